/** The order of the list and what stands together in it; pure, so that it can be tested. */

import { riskRank } from "../shared/decision/guard";
import { longParts } from "../shared/decision/values";
import type { Request } from "../shared/types";

export type Sort = "expiring" | "risk" | "age";
export const SORTS: { key: Sort; label: string }[] = [
  { key: "expiring", label: "Expiring first" },
  { key: "risk", label: "Risk first" },
  { key: "age", label: "Oldest first" },
];

const ends = (request: Request) => (request.expires_at ? Date.parse(request.expires_at) : Infinity);
const born = (request: Request) => Date.parse(request.created_at);

type Compare = (a: Request, b: Request) => number;
const byEnd: Compare = (a, b) => (ends(a) === ends(b) ? 0 : ends(a) - ends(b));
const byRisk: Compare = (a, b) => riskRank(b.risk.level) - riskRank(a.risk.level);
const byAge: Compare = (a, b) => born(a) - born(b) || (a.id < b.id ? -1 : 1);

const ORDERS: Record<Sort, Compare[]> = {
  expiring: [byEnd, byRisk, byAge],
  risk: [byRisk, byEnd, byAge],
  age: [byAge],
};

export function sorted(requests: Request[], sort: Sort): Request[] {
  return [...requests].sort((a, b) => {
    for (const compare of ORDERS[sort]) {
      const result = compare(a, b);
      if (result !== 0) return result;
    }
    return 0;
  });
}

/** What the server is asked to sort by, so that the first page is the right one. */
export function serverSort(sort: Sort): string {
  return sort === "expiring" ? "expiring" : "oldest";
}

/** Whether it comes after the last row that was read, and so with the next page. */
export function isBeyond(request: Request, last: Request | undefined, sort: Sort): boolean {
  if (!last) return false;
  const later = sort === "expiring" ? byEnd(request, last) || byAge(request, last) : byAge(request, last);
  return later > 0;
}

export const SOON = 60 * 60 * 1_000;

export function expiresSoon(request: Request, now: number): boolean {
  return ends(request) - now < SOON;
}

export interface Group {
  key: string;
  requests: Request[];
}

/** Bulk is for like things of no great risk; everything else stands alone. */
export function groupKey(request: Request): string | null {
  if (request.status !== "pending" || request.kind !== "approval" || !request.tool) return null;
  if (riskRank(request.risk.level) >= riskRank("high")) return null;
  return JSON.stringify([request.agent, request.tool, request.kind]);
}

/** Like requests stand together, where the first of them stood. */
export function grouped(requests: Request[]): Group[] {
  const groups: Group[] = [];
  const byKey = new Map<string, Group>();
  for (const request of requests) {
    const key = groupKey(request);
    const group = key === null ? undefined : byKey.get(key);
    if (group) {
      group.requests.push(request);
      continue;
    }
    const fresh = { key: key ?? request.id, requests: [request] };
    groups.push(fresh);
    if (key !== null) byKey.set(key, fresh);
  }
  return groups;
}

/** Why a request cannot be approved together with others; empty if it can. */
export function aloneBecause(request: Request): string {
  if (request.masked || request.digest === null) return "has masked values";
  if (longParts(request.shown.args).length > 0) return "has a long value that must be read to its end";
  if (request.quorum > 1) return "needs several people";
  if (!request.can.includes("approve")) return request.why_not ?? "you may not approve it";
  return "";
}

/** Where to go after a request was decided: the next that waits, else the one before. */
export function nextAfter(order: Request[], id: string): string | null {
  const index = order.findIndex((request) => request.id === id);
  const waits = (request: Request) => request.status === "pending" && request.id !== id;
  const after = order.slice(index + 1).find(waits);
  return (after ?? order.slice(0, Math.max(0, index)).findLast(waits))?.id ?? null;
}

/** The neighbour in the list; from nowhere, the first. */
export function step(ids: string[], current: string | undefined, by: 1 | -1): string | undefined {
  if (ids.length === 0) return undefined;
  const index = current === undefined ? -1 : ids.indexOf(current);
  if (index < 0) return by === 1 ? ids[0] : ids.at(-1);
  return ids[Math.min(ids.length - 1, Math.max(0, index + by))];
}
