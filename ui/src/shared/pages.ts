/** A paginated list. Reloading it puts new items on top and keeps the older pages. */

import { useCallback, useEffect, useRef, useState } from "react";
import { ApiError } from "./api";
import type { Page } from "./types";

export interface Pages<T> {
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

interface Held<T> {
  key: string;
  items: T[];
  next: string | null;
  read: boolean;
  error?: ApiError;
}

/** `fresh` in its order, followed by the items of `held` that are not in it. */
export function merged<T>(fresh: T[], held: T[], id: (item: T) => string): T[] {
  const known = new Set(fresh.map(id));
  return [...fresh, ...held.filter((item) => !known.has(id(item)))];
}

export function usePages<T>(
  key: string,
  id: (item: T) => string,
  read: (after: string | null, signal: AbortSignal) => Promise<Page<T>>,
): Pages<T> {
  const [held, setHeld] = useState<Held<T>>({ key, items: [], next: null, read: false });
  const [turn, setTurn] = useState(0);
  const [busy, setBusy] = useState(false);
  const latest = useRef({ read, id });
  latest.current = { read, id };

  useEffect(() => {
    const stop = new AbortController();
    latest.current
      .read(null, stop.signal)
      .then((page) =>
        setHeld((old) => {
          const again = old.key === key && old.read;
          // Older pages stay, together with the cursor after them.
          const deeper = again && old.items.length > page.items.length;
          const items = again ? merged(page.items, old.items, latest.current.id) : page.items;
          return { key, items: deeper ? items : page.items, next: deeper ? old.next : page.next, read: true };
        }),
      )
      .catch((error: unknown) => {
        if (!stop.signal.aborted) setHeld((old) => failed(old, key, error));
      });
    return () => stop.abort();
  }, [key, turn]);

  const mine = held.key === key;
  const next = mine ? held.next : null;
  const loadMore = useCallback(() => {
    if (next === null) return;
    setBusy(true);
    latest.current
      .read(next, new AbortController().signal)
      .then((page) =>
        setHeld((old) =>
          old.key === key
            ? { key, items: merged(old.items, page.items, latest.current.id), next: page.next, read: true }
            : old,
        ),
      )
      .catch((error: unknown) => setHeld((old) => failed(old, key, error)))
      .finally(() => setBusy(false));
  }, [key, next]);
  const reload = useCallback(() => setTurn((count) => count + 1), []);
  const error = mine ? held.error : undefined;
  return {
    items: mine ? held.items : [],
    loading: !(mine && held.read) && !error,
    error,
    more: next !== null,
    busy,
    loadMore,
    reload,
  };
}

function failed<T>(old: Held<T>, key: string, error: unknown): Held<T> {
  const told = error instanceof ApiError ? error : new ApiError(0, "Error", String(error));
  return old.key === key ? { ...old, error: told } : { key, items: [], next: null, read: false, error: told };
}
