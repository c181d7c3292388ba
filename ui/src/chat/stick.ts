/** Keeps the newest text in view while it streams, unless the user has scrolled up. */

import { useEffect, useLayoutEffect, useRef, useState, type RefObject } from "react";

const NEAR = 120;
const ABOVE = 16;

interface Stick {
  box: RefObject<HTMLDivElement | null>;
  /** Whether the view follows the newest text. */
  low: boolean;
  onScroll: () => void;
  toEnd: () => void;
}

export function useStick(shown: unknown[]): Stick {
  const box = useRef<HTMLDivElement>(null);
  const place = useRef(0);
  const [low, setLow] = useState(true);
  const any = shown.length > 0;

  // Scroll down to the end, but not past the first open card, and never up.
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
    // Cards load their content after the message is rendered, and grow.
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
