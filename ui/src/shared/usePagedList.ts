/** A paginated list. Reloading it puts new items on top and keeps the older pages. */

import { useCallback, useEffect, useRef, useState } from "react";
import { ApiError } from "./api";
import type { Page } from "./types";

export interface PagedList<T> {
  items: T[];
  /** Nothing has been loaded for this key yet. */
  loading: boolean;
  error: ApiError | undefined;
  /** Whether there is an older page. */
  more: boolean;
  busy: boolean;
  loadMore: () => void;
  reload: () => void;
}

interface Loaded<T> {
  key: string;
  items: T[];
  next: string | null;
  load: boolean;
  error?: ApiError;
}

/** `fresh` in its order, followed by the items of `loaded` that are not in it. */
export function mergeById<T>(fresh: T[], loaded: T[], id: (item: T) => string): T[] {
  const known = new Set(fresh.map(id));
  return [...fresh, ...loaded.filter((item) => !known.has(id(item)))];
}

export function usePagedList<T>(
  key: string,
  id: (item: T) => string,
  load: (after: string | null, signal: AbortSignal) => Promise<Page<T>>,
): PagedList<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({ key, items: [], next: null, load: false });
  const [turn, setTurn] = useState(0);
  const [busy, setBusy] = useState(false);
  const latest = useRef({ load, id });
  latest.current = { load, id };

  useEffect(() => {
    const stop = new AbortController();
    latest.current
      .load(null, stop.signal)
      .then((page) =>
        setLoaded((old) => {
          const again = old.key === key && old.load;
          // Older pages stay, together with the cursor after them.
          const deeper = again && old.items.length > page.items.length;
          const items = again ? mergeById(page.items, old.items, latest.current.id) : page.items;
          return { key, items: deeper ? items : page.items, next: deeper ? old.next : page.next, load: true };
        }),
      )
      .catch((error: unknown) => {
        if (!stop.signal.aborted) setLoaded((old) => failed(old, key, error));
      });
    return () => stop.abort();
  }, [key, turn]);

  const mine = loaded.key === key;
  const next = mine ? loaded.next : null;
  const loadMore = useCallback(() => {
    if (next === null) return;
    setBusy(true);
    latest.current
      .load(next, new AbortController().signal)
      .then((page) =>
        setLoaded((old) =>
          old.key === key
            ? { key, items: mergeById(old.items, page.items, latest.current.id), next: page.next, load: true }
            : old,
        ),
      )
      .catch((error: unknown) => setLoaded((old) => failed(old, key, error)))
      .finally(() => setBusy(false));
  }, [key, next]);
  const reload = useCallback(() => setTurn((count) => count + 1), []);
  const error = mine ? loaded.error : undefined;
  return {
    items: mine ? loaded.items : [],
    loading: !(mine && loaded.load) && !error,
    error,
    more: next !== null,
    busy,
    loadMore,
    reload,
  };
}

function failed<T>(old: Loaded<T>, key: string, error: unknown): Loaded<T> {
  const apiError = error instanceof ApiError ? error : new ApiError(0, "Error", String(error));
  return old.key === key ? { ...old, error: apiError } : { key, items: [], next: null, load: false, error: apiError };
}
