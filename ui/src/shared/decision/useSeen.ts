/** Tracks which long values have been read to their end; a request cannot be approved before. */

import { useCallback, useMemo, useState } from "react";
import type { Request } from "../types";
import { longParts } from "./values";

export interface Seen {
  /** Long values whose end has not been on the screen. */
  unseen: string[];
  isSeen: (name: string) => boolean;
  see: (name: string) => void;
  seeAll: () => void;
}

export function useSeen(request: Request): Seen {
  const key = `${request.id} ${request.revision} ${request.masked}`;
  const parts = useMemo(() => longParts(request.shown.args), [key]);
  const [state, setState] = useState<{ key: string; seen: Set<string> }>({ key, seen: new Set() });
  const seen = state.key === key ? state.seen : EMPTY;
  const add = useCallback(
    (names: string[]) =>
      setState((old) => {
        const before = old.key === key ? old.seen : EMPTY;
        return names.every((name) => before.has(name)) ? old : { key, seen: new Set([...before, ...names]) };
      }),
    [key],
  );
  return {
    unseen: parts.filter((name) => !seen.has(name)),
    isSeen: (name) => seen.has(name),
    see: useCallback((name: string) => add([name]), [add]),
    seeAll: useCallback(() => add(parts), [add, parts]),
  };
}

const EMPTY: Set<string> = new Set();
