/**
 * How much of a request has been on the screen. It is read from its top without gaps, so a jump to its
 * end reads nothing in between. Once all of it was on the screen, it stays read.
 */

import { useEffect, useRef, useState, type RefObject } from "react";

const TOLERANCE = 4;

export interface Reading {
  /** The element that holds the request, and the one right after what must be read. */
  body: RefObject<HTMLDivElement | null>;
  end: RefObject<HTMLDivElement | null>;
  /** How many screens are left; 0 once all was on the screen. */
  left: number;
  /** Scroll by most of a screen, and open the folded part that comes next. */
  turn: (by: 1 | -1) => void;
}

/** The part of an element's height that its scrolling ancestors and the window show. */
function visibleRange(element: HTMLElement): [number, number] {
  let top = 0;
  let bottom = window.innerHeight;
  for (let at: HTMLElement | null = element; at && at !== document.body; at = at.parentElement) {
    if (getComputedStyle(at).overflowY === "visible") continue;
    const box = at.getBoundingClientRect();
    top = Math.max(top, box.top);
    bottom = Math.min(bottom, box.bottom);
  }
  return [top, bottom];
}

export function useReading(key: string, active: boolean): Reading {
  const body = useRef<HTMLDivElement>(null);
  const end = useRef<HTMLDivElement>(null);
  const read = useRef({ key: "", to: 0, total: 0, done: false });
  const [left, setLeft] = useState(1);
  useEffect(() => {
    if (!active) return;
    const look = () => {
      if (!body.current || !end.current || document.visibilityState !== "visible") return;
      if (read.current.key !== key) read.current = { key, to: 0, total: 0, done: false };
      const here = read.current;
      const origin = body.current.getBoundingClientRect().top - body.current.scrollTop;
      const total = end.current.getBoundingClientRect().top - origin;
      const [top, bottom] = visibleRange(body.current);
      // What was unfolded is new: whatever is below the screen may have moved.
      if (total > here.total + TOLERANCE && here.total > 0) here.to = Math.min(here.to, Math.max(0, bottom - origin));
      here.total = total;
      if (bottom > top && top - origin <= here.to + TOLERANCE) here.to = Math.max(here.to, bottom - origin);
      here.done ||= total > 0 && here.to >= total - TOLERANCE;
      setLeft(here.done ? 0 : Math.max(1, Math.ceil((total - here.to) / Math.max(1, bottom - top))));
    };
    look();
    const sizes = new ResizeObserver(look);
    sizes.observe(body.current!);
    const content = new MutationObserver(look);
    content.observe(body.current!, { subtree: true, childList: true, attributes: true });
    document.addEventListener("scroll", look, true);
    document.addEventListener("visibilitychange", look);
    window.addEventListener("resize", look);
    return () => {
      sizes.disconnect();
      content.disconnect();
      document.removeEventListener("scroll", look, true);
      document.removeEventListener("visibilitychange", look);
      window.removeEventListener("resize", look);
    };
  }, [key, active]);
  const turn = (by: 1 | -1) => {
    const box = body.current;
    if (!box) return;
    const [top, bottom] = visibleRange(box);
    const folded = [...box.querySelectorAll<HTMLElement>(".long-due > button[aria-expanded='false']")].find(
      (each) => by === 1 && each.getBoundingClientRect().top < bottom,
    );
    if (folded) folded.click();
    else box.scrollBy({ top: by * Math.max(20, (bottom - top) * 0.9) });
  };
  return { body, end, left: read.current.key === key && read.current.done ? 0 : left, turn };
}
