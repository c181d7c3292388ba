/**
 * The list: groups with exact counts from the server, and the rows of each as far as they were read.
 * The feed keeps it true, and nothing moves under the cursor: what is new waits behind a pill.
 */

import { useCallback, useEffect, useRef, useState } from "react";
import { ApiError, api, type Query } from "../shared/api";
import { useChanges } from "../shared/live";
import type { FilterValues, Request, RequestGroup } from "../shared/types";
import { groupKey, isBeyond, keyOf, sorted, type Rows, type Sort } from "./order";

const PAGE = 100;
/** How many vanished rows are looked up, so that they can say how they ended. */
const LOOKED_UP = 10;
/** A list that was read while a decision was on its way may still hold what was decided. */
const STALE = 5_000;
const NONE: Rows = { items: [], next: null, more: false };

interface InboxState {
  groups: RequestGroup[];
  rows: Record<string, Rows>;
  /** How many requests match, exactly; the list may show fewer until it is read anew. */
  count: number;
  values: FilterValues | undefined;
  /** How many arrived since, and wait behind the pill. */
  arrived: number;
  loading: boolean;
  error: ApiError | undefined;
}

export interface Inbox extends InboxState {
  rowsOf: (key: string) => Rows;
  /** Every row that was read, in the order of the list. */
  items: Request[];
  reload: () => void;
  /** Read the next rows of a group; resolves to all that are read then. */
  load: (group: RequestGroup) => Promise<Request[]>;
  /** Decided here: they leave the list. */
  remove: (ids: string[]) => void;
  update: (request: Request) => void;
}

const START: InboxState = {
  groups: [],
  rows: {},
  count: 0,
  values: undefined,
  arrived: 0,
  loading: true,
  error: undefined,
};

function asError(problem: unknown): ApiError {
  return problem instanceof ApiError ? problem : new ApiError(0, "Error", String(problem));
}

interface Removed {
  request: Request;
  at: number;
}

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

/** Deal the rows of the first page of the whole list to their groups; each group continues where that page ended. */
function dealt(groups: RequestGroup[], items: Request[], next: string | null): Record<string, Rows> {
  const byKey = byGroup(items);
  return Object.fromEntries(
    groups.map((group) => {
      const key = keyOf(group);
      const mine = byKey.get(key) ?? [];
      return [key, { items: mine, next, more: next !== null && mine.length < group.count }];
    }),
  );
}

export function useInbox(query: Query, sort: Sort): Inbox {
  const key = JSON.stringify([query, sort]);
  const [state, setState] = useState<InboxState>(START);
  const [turn, setTurn] = useState(0);
  const latest = useRef({ state, key, removed: [] as Removed[] });
  latest.current.state = state;
  latest.current.key = key;
  const { sort: _, ...filters } = query;

  const read = (signal?: AbortSignal) =>
    Promise.all([api.groups(filters, signal), api.requests({ ...query, limit: PAGE }, signal)]);
  const anew = ([counted, page]: Awaited<ReturnType<typeof read>>): InboxState => {
    const items = page.items.filter((request) => !isStale(latest.current.removed, request));
    const groups = sorted(counted.items, sort);
    const { count, values } = counted;
    const rows = dealt(groups, items, page.next);
    return { groups, rows, count, values, arrived: 0, loading: false, error: undefined };
  };

  useEffect(() => {
    const stop = new AbortController();
    setState((old) => ({ ...old, loading: true, error: undefined }));
    read(stop.signal)
      .then((found) => setState(anew(found)))
      .catch((problem: unknown) => {
        if (!stop.signal.aborted) setState((old) => ({ ...old, loading: false, error: asError(problem) }));
      });
    return () => stop.abort();
  }, [key, turn]);

  const refresh = useCallback(async () => {
    const mine = latest.current.key;
    try {
      const found = await read();
      const old = latest.current.state;
      const next = await merged(old, found, sort, latest.current.removed);
      if (latest.current.key !== mine) return;
      const waiting = Object.values(next.rows).some(({ items }) => items.some((each) => each.status === "pending"));
      // Nothing is under the cursor in an empty list, so arrivals may show at once.
      setState(waiting || old.groups.some((group) => group.count > 0 && next.count > 0) ? next : anew(found));
    } catch (problem) {
      setState((old) => (old.groups.length ? old : { ...old, loading: false, error: asError(problem) }));
    }
  }, [key]);
  useChanges(() => void refresh(), 150);

  const reading = useRef(new Map<string, Promise<Request[]>>());
  const load = (group: RequestGroup): Promise<Request[]> => {
    const name = keyOf(group);
    const { items, next } = latest.current.state.rows[name] ?? NONE;
    const mine = latest.current.key;
    const under = `${mine} ${name}`;
    const known = reading.current.get(under);
    if (known) return known;
    const { kind, agent, tool, risk } = group;
    const wanted = { ...query, kind, agent, tool, risk, limit: PAGE, after: items.length ? next : null };
    const promise = api
      .requests(wanted)
      .then((page) => {
        const ids = new Set(items.map((request) => request.id));
        const fresh = page.items.filter((request) => groupKey(request) === name && !ids.has(request.id));
        const all = [...items, ...fresh];
        if (latest.current.key === mine) {
          const rows: Rows = { items: all, next: page.next, more: page.next !== null };
          setState((old) => ({ ...old, rows: { ...old.rows, [name]: rows } }));
        }
        return all;
      })
      .catch((problem: unknown) => {
        setState((old) => ({ ...old, error: asError(problem) }));
        return items;
      })
      .finally(() => reading.current.delete(under));
    reading.current.set(under, promise);
    return promise;
  };

  const rowsOf = (name: string) => state.rows[name] ?? NONE;
  return {
    ...state,
    rowsOf,
    items: state.groups.flatMap((group) => rowsOf(keyOf(group)).items),
    reload: useCallback(() => setTurn((count) => count + 1), []),
    load,
    remove: (ids) => {
      const gone = Object.values(state.rows).flatMap(({ items }) => items.filter(({ id }) => ids.includes(id)));
      latest.current.removed = gone.map((request) => ({ request, at: Date.now() }));
      const left = byGroup(gone);
      setState((old) => ({
        ...old,
        count: old.count - gone.length,
        groups: old.groups
          .map((group) => ({ ...group, count: group.count - (left.get(keyOf(group))?.length ?? 0) }))
          .filter((group) => group.count > 0 || old.rows[keyOf(group)]?.items.some(({ id }) => !ids.includes(id))),
        rows: mapped(old.rows, (items) => items.filter(({ id }) => !ids.includes(id))),
      }));
    },
    update: (request) =>
      setState((old) => ({
        ...old,
        rows: mapped(old.rows, (items) => items.map((each) => (each.id === request.id ? { ...each, ...request } : each))),
      })),
  };
}

function byGroup(items: Request[]): Map<string, Request[]> {
  const groups = new Map<string, Request[]>();
  for (const request of items) {
    const key = groupKey(request);
    const known = groups.get(key);
    if (known) known.push(request);
    else groups.set(key, [request]);
  }
  return groups;
}

function mapped(rows: Record<string, Rows>, change: (items: Request[]) => Request[]): Record<string, Rows> {
  return Object.fromEntries(Object.entries(rows).map(([key, each]) => [key, { ...each, items: change(each.items) }]));
}

/** Fresh facts into the shown order; rows that are gone stay where they are until the list is read anew. */
async function merged(
  old: InboxState,
  [counted, page]: [Awaited<ReturnType<typeof api.groups>>, Awaited<ReturnType<typeof api.requests>>],
  sort: Sort,
  removed: Removed[],
): Promise<InboxState> {
  const fresh = page.items.filter((request) => !isStale(removed, request));
  const byId = new Map(fresh.map((request) => [request.id, request]));
  const shown = Object.values(old.rows).flatMap(({ items }) => items);
  const known = new Set(shown.map((request) => request.id));
  const complete = page.next === null;
  const first = page.items.at(-1);
  const gone = shown.filter(
    (request) =>
      request.status === "pending" && !byId.has(request.id) && (complete || !isBeyond(request, first, sort)),
  );
  const ends = await Promise.all(gone.slice(0, LOOKED_UP).map((request) => api.request(request.id).catch(() => null)));
  ends.forEach((request) => request && byId.set(request.id, request));
  const rows = mapped(old.rows, (items) => items.map((request) => byId.get(request.id) ?? request));
  const counts = new Map(counted.items.map((group) => [keyOf(group), group]));
  const groups = old.groups.map((group) => counts.get(keyOf(group)) ?? { ...group, count: 0 });
  const unread = (request: Request) => {
    const group = old.rows[groupKey(request)];
    return group !== undefined && group.more && isBeyond(request, group.items.at(-1), sort);
  };
  const arrived = fresh.filter((request) => !known.has(request.id) && !unread(request));
  const seen = new Set([...Object.keys(old.rows), ...arrived.map(groupKey)]);
  const others = counted.items.filter((group) => !seen.has(keyOf(group)));
  return {
    ...old,
    groups,
    rows,
    count: counted.count,
    values: counted.values,
    arrived: arrived.length + others.reduce((sum, group) => sum + group.count, 0),
    error: undefined,
    loading: false,
  };
}
