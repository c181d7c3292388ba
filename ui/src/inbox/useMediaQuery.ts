import { useSyncExternalStore } from "react";

/** Whether a media query matches. */
export function useMediaQuery(query: string): boolean {
  return useSyncExternalStore(
    (watch) => {
      const list = matchMedia(query);
      list.addEventListener("change", watch);
      return () => list.removeEventListener("change", watch);
    },
    () => matchMedia(query).matches,
  );
}
