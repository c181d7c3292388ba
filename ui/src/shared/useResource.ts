/** Data loaded from the server. The old value stays while it is reloaded. */

import { useCallback, useEffect, useRef, useState } from "react";
import { ApiError } from "./api";

export interface Resource<T> {
  data: T | undefined;
  error: ApiError | undefined;
  loading: boolean;
  reload: () => void;
  set: (value: T) => void;
}

/** Load when `key` changes. Nothing is loaded while `key` is null. */
export function useResource<T>(key: string | null, read: (signal: AbortSignal) => Promise<T>): Resource<T> {
  const [state, setState] = useState<{ key: string | null; data?: T; error?: ApiError }>({ key });
  const [turn, setTurn] = useState(0);
  const reader = useRef(read);
  reader.current = read;
  useEffect(() => {
    if (key === null) return;
    const stop = new AbortController();
    reader
      .current(stop.signal)
      .then((data) => setState({ key, data }))
      .catch((error: unknown) => {
        if (stop.signal.aborted) return;
        const apiError = error instanceof ApiError ? error : new ApiError(0, "Error", String(error));
        setState((old) => ({ key, data: old.key === key ? old.data : undefined, error: apiError }));
      });
    return () => stop.abort();
  }, [key, turn]);
  const reload = useCallback(() => setTurn((count) => count + 1), []);
  const set = useCallback((data: T) => setState({ key, data }), [key]);
  const mine = state.key === key;
  const data = mine ? state.data : undefined;
  const error = mine ? state.error : undefined;
  return { data, error, loading: key !== null && !data && !error, reload, set };
}
