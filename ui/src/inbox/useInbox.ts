/**
 * The request list: groups with exact counts from the server, and the rows loaded so far. The live feed
 * keeps it up to date without moving rows under the cursor: new requests are only counted until the
 * user loads them with the "new" button.
 */

import { useCallback, useEffect, useRef, useState } from "react";
import { ApiError, api, type Query } from "../shared/api";
import { useChanges } from "../shared/live";
import type { FilterValues, Groups, Page, Request, RequestGroup } from "../shared/types";
import { groupKey, groupOf, isAfterLoaded, requestGroupKey, sortGroups, type Rows, type Sort } from "./order";

const PAGE = 100;
/** The rows to load at once after the first page: the most that the server gives. */
const NEXT_PAGE = 200;
/** The most rows to look up when they are no longer pending, to show how they ended. */
const LOOKED_UP = 10;
/** Milliseconds in which a decided request is ignored in lists, which may have been read before the decision. */
const STALE = 5_000;
const NONE: Rows = { items: [], next: null, more: false };

interface InboxState {
  groups: RequestGroup[];
  rows: Record<string, Rows>;
  /** The number of matching requests. The list may show fewer until it is reloaded. */
  count: number;
  /** How many of them wait for this person. */
  yours: number;
  /** Whether there may be more. */
  atLeast: boolean;
  values: FilterValues | undefined;
  /** New requests that the list does not show yet. */
  arrived: number;
  loading: boolean;
  error: ApiError | undefined;
}

export interface Inbox extends InboxState {
  rowsOf: (key: string) => Rows;
  /** All loaded rows, in the order of the list. */
  items: Request[];
  reload: () => void;
  /** Load the next rows of a group. Resolves to all its loaded rows. */
  load: (group: RequestGroup) => Promise<Request[]>;
  /** Remove requests that were decided here. */
  remove: (ids: string[]) => void;
  update: (request: Request) => void;
}

const START: InboxState = {
  groups: [],
  rows: {},
  count: 0,
  yours: 0,
  atLeast: false,
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
      // The same call may come back in doubt or as a new revision, which needs another decision.
      request.kind === fresh.kind &&
      request.revision === fresh.revision &&
      Date.now() - at < STALE,
  );
}

type Found = [Groups, Page<Request>];

/**
 * Groups and their rows. They come from two API calls, so either may be newer: a row without a group
 * gets one, and a group with a higher count than it has rows loads the rest.
 */
function listOf([counted, page]: Found, sort: Sort, removed: Removed[]): Pick<InboxState, "groups" | "rows" | "count" | "yours" | "atLeast"> {
  const stale = byGroup(page.items.filter((request) => isStale(removed, request)));
  const fresh = byGroup(page.items.filter((request) => !isStale(removed, request)));
  const groups = counted.items.map((group) => ({ ...group, count: group.count - (stale.get(groupKey(group))?.length ?? 0) }));
  const known = new Set(groups.map(groupKey));
  for (const [key, items] of fresh) if (!known.has(key)) groups.push(groupOf(items));
  // Counting may have stopped where the page went on, perhaps to the end of the list.
  const atLeast = counted.at_least && page.next !== null;
  for (const group of groups) group.at_least = atLeast && (group.at_least || !known.has(groupKey(group)));
  const rows: Record<string, Rows> = {};
  for (const group of groups) {
    const items = fresh.get(groupKey(group)) ?? [];
    group.count = Math.max(group.count, items.length);
    rows[groupKey(group)] = { items, next: page.next, more: items.length < group.count || group.at_least };
  }
  const shown = groups.filter((group) => group.count > 0);
  const count = shown.reduce((sum, group) => sum + group.count, 0);
  const yours = Math.max(0, counted.yours + count - counted.count);
  return { groups: sortGroups(shown, sort), rows, count, yours, atLeast };
}

/** Whether the list shows a pending request, or is about to load one. */
function showsPending({ rows }: InboxState): boolean {
  return Object.values(rows).some(({ items, more }) => more || items.some(({ status }) => status === "pending"));
}

export function useInbox(query: Query, sort: Sort): Inbox {
  const key = JSON.stringify([query, sort]);
  const [state, setState] = useState<InboxState>(START);
  const [turn, setTurn] = useState(0);
  const latest = useRef({ state, key, removed: [] as Removed[], asked: 0, shown: 0 });
  latest.current.state = state;
  latest.current.key = key;
  const { sort: _, ...filters } = query;

  /** Load, and apply the change that `next` returns. Dropped if a load that started later has been applied. */
  const read = async (requests: typeof api.requests, next: (found: Found) => Promise<(old: InboxState) => InboxState>, signal?: AbortSignal) => {
    const asked = ++latest.current.asked;
    const mine = latest.current.key;
    const isOld = () => signal?.aborted || latest.current.key !== mine || latest.current.shown > asked;
    try {
      const calls = [api.groups(filters, signal), requests({ ...query, limit: PAGE }, signal)] as const;
      const change = await next(await Promise.all(calls));
      if (isOld()) return;
      latest.current.shown = asked;
      setState(change);
    } catch (problem) {
      // Keep the shown list, unless another one was requested.
      const fails = (old: InboxState) => old.loading || old.groups.length === 0;
      if (!isOld()) setState((old) => (fails(old) ? { ...old, loading: false, error: asError(problem) } : old));
    }
  };
  const replaced = (found: Found): InboxState => ({
    ...listOf(found, sort, latest.current.removed),
    values: found[0].values,
    arrived: 0,
    loading: false,
    error: undefined,
  });

  useEffect(() => {
    const stop = new AbortController();
    setState((old) => ({ ...old, loading: true, error: undefined }));
    void read(api.requests, async (found) => () => replaced(found), stop.signal);
    return () => stop.abort();
  }, [key, turn]);

  const refresh = () =>
    read(api.requestPage, async (found) => {
      const closed = await readClosed(latest.current.state, found[1], sort);
      return (old) => {
        const next = mergeFresh(old, found, closed, sort, latest.current.removed);
        // In an empty list nothing can move under the cursor, so new requests are shown at once.
        const keeps = !old.loading && next.count > 0 && (showsPending(next) || showsPending(old));
        return keeps ? next : replaced(found);
      };
    });
  useChanges(() => void refresh(), 150);

  const reading = useRef(new Map<string, Promise<Request[]>>());
  const load = (group: RequestGroup): Promise<Request[]> => {
    const name = groupKey(group);
    const { items, next } = latest.current.state.rows[name] ?? NONE;
    const mine = latest.current.key;
    const under = `${mine} ${name}`;
    const known = reading.current.get(under);
    if (known) return known;
    const { kind, agent, tool, risk } = group;
    const wanted = { ...query, kind, agent, tool, risk, limit: NEXT_PAGE, after: items.length ? next : null };
    const promise = api
      .requests(wanted)
      .then((page) => {
        const found = page.items.filter((each) => requestGroupKey(each) === name && !isStale(latest.current.removed, each));
        const joined = (before: Request[]) => {
          const ids = new Set(before.map(({ id }) => id));
          return [...before, ...found.filter(({ id }) => !ids.has(id))];
        };
        if (latest.current.key === mine) {
          const added = (old: InboxState): InboxState => {
            const all = joined(old.rows[name]?.items ?? []);
            return { ...old, rows: { ...old.rows, [name]: { items: all, next: page.next, more: page.next !== null } } };
          };
          // Also for a load that starts before the next render, which would read this page again.
          latest.current.state = added(latest.current.state);
          setState(added);
        }
        return joined(items);
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
    items: state.groups.flatMap((group) => rowsOf(groupKey(group)).items),
    reload: useCallback(() => setTurn((count) => count + 1), []),
    load,
    remove: (decided) => {
      const ids = new Set(decided);
      const gone = Object.values(state.rows).flatMap(({ items }) => items.filter(({ id }) => ids.has(id)));
      latest.current.removed = gone.map((request) => ({ request, at: Date.now() }));
      const left = byGroup(gone);
      setState((old) => ({
        ...old,
        count: old.count - gone.length,
        yours: old.yours - gone.length,
        groups: old.groups
          .map((group) => ({ ...group, count: group.count - (left.get(groupKey(group))?.length ?? 0) }))
          .filter((group) => group.count > 0 || old.rows[groupKey(group)]?.items.some(({ id }) => !ids.has(id))),
        rows: mapItems(old.rows, (items) => items.filter(({ id }) => !ids.has(id))),
      }));
    },
    update: (request) =>
      setState((old) => ({
        ...old,
        rows: mapItems(old.rows, (items) => items.map((each) => (each.id === request.id ? { ...each, ...request } : each))),
      })),
  };
}

function byGroup(items: Request[]): Map<string, Request[]> {
  const groups = new Map<string, Request[]>();
  for (const request of items) {
    const key = requestGroupKey(request);
    const known = groups.get(key);
    if (known) known.push(request);
    else groups.set(key, [request]);
  }
  return groups;
}

function mapItems(rows: Record<string, Rows>, change: (items: Request[]) => Request[]): Record<string, Rows> {
  return Object.fromEntries(Object.entries(rows).map(([key, each]) => [key, { ...each, items: change(each.items) }]));
}

/** Read some of the shown rows that are no longer pending, to show how they ended. */
async function readClosed(state: InboxState, page: Page<Request>, sort: Sort): Promise<Request[]> {
  const waiting = new Set(page.items.map((request) => request.id));
  const last = page.next === null ? undefined : page.items.at(-1);
  const gone = Object.values(state.rows)
    .flatMap(({ items }) => items)
    .filter(({ status, id }) => status === "pending" && !waiting.has(id))
    .filter((request) => page.next === null || !isAfterLoaded(request, last, sort));
  const found = await Promise.all(gone.slice(0, LOOKED_UP).map(({ id }) => api.request(id).catch(() => null)));
  return found.filter((request) => request !== null);
}

/** Update the shown rows and counts in place. Closed rows stay until the list is reloaded. */
function mergeFresh(
  old: InboxState,
  [counted, page]: Found,
  closed: Request[],
  sort: Sort,
  removed: Removed[],
): InboxState {
  const fresh = page.items.filter((request) => !isStale(removed, request));
  const byId = new Map([...fresh, ...closed].map((request) => [request.id, request]));
  const known = new Set(Object.values(old.rows).flatMap(({ items }) => items.map((request) => request.id)));
  const rows = mapItems(old.rows, (items) => items.map((request) => byId.get(request.id) ?? request));
  const counts = new Map(counted.items.map((group) => [groupKey(group), group]));
  const absent = (group: RequestGroup) => (counted.at_least ? group : { ...group, count: 0 });
  const groups = old.groups.map((group) => counts.get(groupKey(group)) ?? absent(group));
  const unread = (request: Request) => {
    const group = old.rows[requestGroupKey(request)];
    return group !== undefined && group.more && isAfterLoaded(request, group.items.at(-1), sort);
  };
  const arrived = fresh.filter((request) => !known.has(request.id) && !unread(request));
  const seen = new Set([...Object.keys(old.rows), ...arrived.map(requestGroupKey)]);
  const others = counted.items.filter((group) => !seen.has(groupKey(group)));
  return {
    ...old,
    groups,
    rows,
    count: counted.count,
    yours: counted.yours,
    atLeast: counted.at_least,
    values: counted.values,
    arrived: arrived.length + others.reduce((sum, group) => sum + group.count, 0),
    error: undefined,
    loading: false,
  };
}
