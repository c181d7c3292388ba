/** Keeps the newest words in view while they come, unless the person has scrolled up to read. */

import { useEffect, useLayoutEffect, useRef, useState, type RefObject } from "react";

const NEAR = 120;
const ABOVE = 16;

interface Stick {
  box: RefObject<HTMLDivElement | null>;
  /** Whether the newest is in view, or will be. */
  low: boolean;
  onScroll: () => void;
  toEnd: () => void;
}

export function useStick(shown: unknown[]): Stick {
  const box = useRef<HTMLDivElement>(null);
  const place = useRef(0);
  const [low, setLow] = useState(true);
  const any = shown.length > 0;

  // Down to the end, but not past the first card that waits; and never up, away from what is being read.
  const settle = () => {
    const area = box.current;
    if (!area || !any) return;
    const card = area.querySelector(".ask");
    const from = area.getBoundingClientRect().top - area.scrollTop + ABOVE;
    const top = Math.min(area.scrollHeight, card ? card.getBoundingClientRect().top - from : Infinity);
    if (top > area.scrollTop) area.scrollTo({ top });
    place.current = area.scrollTop;
  };
  useLayoutEffect(() => {
    if (low) settle();
  }, [shown, low]);
  useEffect(() => {
    // Cards load by themselves and grow after the message was drawn.
    const inner = box.current?.firstElementChild;
    if (!inner || !low) return;
    const watcher = new ResizeObserver(settle);
    watcher.observe(inner);
    return () => watcher.disconnect();
  }, [low, any]);

  return {
    box,
    low,
    onScroll: () => {
      const area = box.current!;
      const rest = area.scrollHeight - area.scrollTop - area.clientHeight;
      if (rest < NEAR) setLow(true);
      else if (area.scrollTop < place.current - 4) setLow(false);
      place.current = area.scrollTop;
    },
    toEnd: () => {
      setLow(true);
      box.current?.scrollTo({ top: box.current.scrollHeight });
    },
  };
}
