/** The list: read by the filters of the address, kept true by the feed, and never moved under the cursor. */

import { useCallback, useEffect, useRef, useState } from "react";
import { ApiError, api, type Query } from "../shared/api";
import { useChanges } from "../shared/live";
import type { Request } from "../shared/types";
import { isBeyond, sorted, type Sort } from "./order";

const PAGE = 100;
const MOST = 200;
/** How many vanished rows are looked up, so that they can say how they ended. */
const LOOKED_UP = 10;

export interface InboxState {
  items: Request[];
  /** Arrived since, and waiting behind the pill. */
  arrived: Request[];
  next: string | null;
  /** The last row of what was read. */
  last: Request | undefined;
  loading: boolean;
  error: ApiError | undefined;
  readAt: number | null;
}

export interface Inbox extends InboxState {
  reload: () => void;
  showArrived: () => void;
  loadMore: () => void;
  /** Decided here: it leaves the list. */
  remove: (ids: string[]) => void;
  update: (request: Request) => void;
}

interface Removed {
  request: Request;
  at: number;
}

/** A list that was read while the decision was on its way may still hold what was decided. */
const STALE = 5_000;

function isStale(removed: Removed[], fresh: Request): boolean {
  return removed.some(
    ({ request, at }) =>
      request.id === fresh.id &&
      // The same call may come back, in doubt or asked anew: that is another thing to decide.
      request.kind === fresh.kind &&
      request.revision === fresh.revision &&
      Date.now() - at < STALE,
  );
}

const START: InboxState = { items: [], arrived: [], next: null, last: undefined, loading: true, error: undefined, readAt: null };

function asError(problem: unknown): ApiError {
  return problem instanceof ApiError ? problem : new ApiError(0, "Error", String(problem));
}

/** Fresh facts into the shown order; rows that are gone stay where they are until the list is read anew. */
async function merge(old: InboxState, fresh: Request[], next: string | null, sort: Sort): Promise<InboxState> {
  const byId = new Map(fresh.map((request) => [request.id, request]));
  const known = new Set(old.items.map((request) => request.id));
  const gone = old.items.filter((request) => request.status === "pending" && !byId.has(request.id));
  const ends = await Promise.all(gone.slice(0, LOOKED_UP).map((request) => api.request(request.id).catch(() => null)));
  ends.forEach((request) => request && byId.set(request.id, request));
  const items = old.items.map((request) => byId.get(request.id) ?? request);
  const unread = (request: Request) => old.next !== null && isBeyond(request, old.last, sort);
  const arrived = fresh.filter((request) => !known.has(request.id) && !unread(request));
  return { ...old, items, arrived, next: old.next ?? next, error: undefined, loading: false, readAt: Date.now() };
}

export function useInbox(query: Query, sort: Sort, keep: (request: Request) => boolean): Inbox {
  const key = JSON.stringify([query, sort]);
  const [state, setState] = useState<InboxState>(START);
  const [turn, setTurn] = useState(0);
  const latest = useRef({ state, key, removed: [] as Removed[] });
  latest.current.state = state;
  latest.current.key = key;

  useEffect(() => {
    const stop = new AbortController();
    setState((old) => ({ ...old, loading: true, error: undefined }));
    api
      .requests({ ...query, limit: PAGE }, stop.signal)
      .then((page) => {
        const items = sorted(page.items.filter(keep), sort);
        setState({
          items,
          arrived: [],
          next: page.next,
          last: page.items.at(-1),
          loading: false,
          error: undefined,
          readAt: Date.now(),
        });
      })
      .catch((problem: unknown) => {
        if (!stop.signal.aborted) setState((old) => ({ ...old, loading: false, error: asError(problem) }));
      });
    return () => stop.abort();
  }, [key, turn]);

  const refresh = useCallback(async () => {
    const { state: old, key: mine, removed } = latest.current;
    try {
      const limit = Math.min(MOST, Math.max(PAGE, old.items.length + 20));
      const page = await api.requests({ ...query, limit });
      const fresh = page.items.filter((request) => keep(request) && !isStale(removed, request));
      const merged = await merge(latest.current.state, fresh, page.next, sort);
      if (latest.current.key !== mine) return;
      const waiting = merged.items.some((request) => request.status === "pending");
      // Nothing is under the cursor in an empty list, so arrivals may show at once.
      const anew = { items: sorted(fresh, sort), arrived: [], next: page.next, last: page.items.at(-1) };
      setState(waiting ? merged : { ...merged, ...anew });
    } catch (problem) {
      setState((old) => (old.items.length ? old : { ...old, error: asError(problem) }));
    }
  }, [key]);
  useChanges(() => void refresh(), 150);

  return {
    ...state,
    reload: useCallback(() => setTurn((count) => count + 1), []),
    showArrived: () =>
      setState((old) => {
        const waiting = old.items.filter((request) => request.status === "pending");
        return { ...old, items: sorted([...waiting, ...old.arrived], sort), arrived: [] };
      }),
    loadMore: () => {
      if (!state.next) return;
      api
        .requests({ ...query, limit: PAGE, after: state.next })
        .then((page) =>
          setState((old) => {
            const known = new Set(old.items.map((request) => request.id));
            const more = page.items.filter((request) => keep(request) && !known.has(request.id));
            return { ...old, items: [...old.items, ...more], next: page.next, last: page.items.at(-1) ?? old.last };
          }),
        )
        .catch((problem: unknown) => setState((old) => ({ ...old, error: asError(problem) })));
    },
    remove: (ids) => {
      const gone = state.items.filter((request) => ids.includes(request.id));
      latest.current.removed = gone.map((request) => ({ request, at: Date.now() }));
      setState((old) => ({ ...old, items: old.items.filter((request) => !ids.includes(request.id)) }));
    },
    update: (request) =>
      setState((old) => ({
        ...old,
        items: old.items.map((each) => (each.id === request.id ? { ...each, ...request } : each)),
      })),
  };
}
