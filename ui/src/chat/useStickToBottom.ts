/** Keeps the newest text in view while it streams, unless the user has scrolled up. */

import { useEffect, useLayoutEffect, useRef, useState, type RefObject } from "react";

/** Within this many pixels of the end, the view follows again. */
const NEAR_END = 120;
/** Space above an open card, in pixels. */
const CARD_MARGIN = 16;

interface StickToBottom {
  box: RefObject<HTMLDivElement | null>;
  /** Whether the view follows the newest text. */
  following: boolean;
  onScroll: () => void;
  scrollToEnd: () => void;
}

export function useStickToBottom(shown: unknown[]): StickToBottom {
  const box = useRef<HTMLDivElement>(null);
  const place = useRef(0);
  const [following, setFollowing] = useState(true);
  const any = shown.length > 0;

  // Scroll down to the end, but not past the first open card, and never up.
  const scrollDown = () => {
    const area = box.current;
    if (!area || !any) return;
    const card = area.querySelector(".request-card");
    const from = area.getBoundingClientRect().top - area.scrollTop + CARD_MARGIN;
    const top = Math.min(area.scrollHeight, card ? card.getBoundingClientRect().top - from : Infinity);
    if (top > area.scrollTop) area.scrollTo({ top });
    place.current = area.scrollTop;
  };
  useLayoutEffect(() => {
    if (following) scrollDown();
  }, [shown, following]);
  useEffect(() => {
    // Cards load their content after the message is rendered, and grow.
    const inner = box.current?.firstElementChild;
    if (!inner || !following) return;
    const watcher = new ResizeObserver(scrollDown);
    watcher.observe(inner);
    return () => watcher.disconnect();
  }, [following, any]);

  return {
    box,
    following,
    onScroll: () => {
      const area = box.current!;
      const rest = area.scrollHeight - area.scrollTop - area.clientHeight;
      if (rest < NEAR_END) setFollowing(true);
      else if (area.scrollTop < place.current - 4) setFollowing(false);
      place.current = area.scrollTop;
    },
    scrollToEnd: () => {
      setFollowing(true);
      box.current?.scrollTo({ top: box.current.scrollHeight });
    },
  };
}
