import { useMemo, useSyncExternalStore } from "react";

/** Whether a media query matches. */
export function useMediaQuery(query: string): boolean {
  const list = useMemo(() => matchMedia(query), [query]);
  return useSyncExternalStore(
    (watch) => {
      list.addEventListener("change", watch);
      return () => list.removeEventListener("change", watch);
    },
    () => list.matches,
  );
}
