/** Order, groups and lines of the request list, as pure functions. */

import { riskRank } from "../shared/decision/approvalGuard";
import { longParts } from "../shared/decision/values";
import { thousands } from "../shared/format";
import type { Request, RequestGroup } from "../shared/types";

export type Sort = "expiring" | "risk" | "age";
export const SORTS: { key: Sort; label: string }[] = [
  { key: "expiring", label: "Expiring first" },
  { key: "risk", label: "Risk first" },
  { key: "age", label: "Oldest first" },
];

const time = (at: string | null) => (at ? Date.parse(at) : Infinity);

type Compare<T> = (a: T, b: T) => number;
const less = (a: number, b: number) => (a === b ? 0 : a - b);
const doubt = (group: RequestGroup) => (group.kind === "in_doubt" ? 0 : 1);

const byDoubt: Compare<RequestGroup> = (a, b) => doubt(a) - doubt(b);
const byEnd: Compare<RequestGroup> = (a, b) => less(time(a.expires_at), time(b.expires_at));
const byRisk: Compare<RequestGroup> = (a, b) => riskRank(b.risk) - riskRank(a.risk);
const byAge: Compare<RequestGroup> = (a, b) => less(time(a.oldest_at), time(b.oldest_at));

/** Calls in doubt always come first: they may have had an effect, and the agent cannot continue. */
const ORDERS: Record<Sort, Compare<RequestGroup>[]> = {
  expiring: [byDoubt, byEnd, byRisk, byAge],
  risk: [byDoubt, byRisk, byEnd, byAge],
  age: [byDoubt, byAge],
};

export function sortGroups(groups: RequestGroup[], sort: Sort): RequestGroup[] {
  return [...groups].sort((a, b) => {
    for (const compare of ORDERS[sort]) {
      const result = compare(a, b);
      if (result !== 0) return result;
    }
    return 0;
  });
}

/** The server's sort order for the rows of a group, which all have the same risk. */
export function serverSort(sort: Sort): string {
  return sort === "age" ? "oldest" : "expiring";
}

/** Whether a request sorts after the last loaded one, and so is on a later page. */
export function isAfterLoaded(request: Request, last: Request | undefined, sort: Sort): boolean {
  if (!last) return true;
  const older = less(time(request.created_at), time(last.created_at)) || (request.id < last.id ? -1 : 1);
  if (sort === "age") return older > 0;
  return (less(time(request.expires_at), time(last.expires_at)) || older) > 0;
}

export function groupKey(group: Pick<RequestGroup, "kind" | "agent" | "tool" | "risk">): string {
  return JSON.stringify([group.kind, group.agent, group.tool, group.risk]);
}

export function requestGroupKey(request: Request): string {
  return groupKey({ ...request, risk: request.risk.level });
}

/** The group of these requests, as the server would return it. */
export function groupOf(items: Request[]): RequestGroup {
  const { kind, agent, tool, risk } = items[0]!;
  const ends = items.map(({ expires_at }) => expires_at).filter((at) => at !== null);
  const first = (moments: string[]) => moments.reduce((a, b) => (time(b) < time(a) ? b : a));
  return {
    kind,
    agent,
    tool,
    risk: risk.level,
    count: items.length,
    at_least: false,
    expires_at: ends.length ? first(ends) : null,
    oldest_at: first(items.map(({ created_at }) => created_at)),
  };
}

/** Only similar calls below high risk can be decided together. */
export function canDecideTogether(group: RequestGroup): boolean {
  return group.kind === "approval" && group.tool !== null && riskRank(group.risk) < riskRank("high") && group.count > 1;
}

/** Larger groups are folded. */
export const MAX_UNFOLDED = 4;

/** The loaded rows of a group, and the cursor of the next page. */
export interface Rows {
  items: Request[];
  next: string | null;
  /** Whether there are rows that are not loaded. */
  more: boolean;
}

export type Entry =
  | { type: "group"; key: string; group: RequestGroup; folded: boolean; content: string }
  | { type: "row"; key: string; request: Request; inside: boolean }
  | { type: "more"; key: string; group: RequestGroup };

/** Arguments that say for whom a call is. */
const FOR_WHOM = /^(to|recipients?|cc|e?mail|customer|payee|iban|account|user|channel)$/i;
const NAMED = 2;

/** What the loaded calls of a group are about: the sum and the largest of each amount, and for whom they are. */
export function contentOf(items: Request[], more: boolean): string {
  const args = items.filter(({ masked }) => !masked).map(({ shown }) => shown.args as Record<string, unknown>);
  if (args.length === 0) return "";
  const parts = Object.keys(args[0]!).flatMap((name) => {
    const values = args.map((each) => each[name]);
    if (values.every((value) => typeof value === "number")) {
      const sum = values.reduce((total, value) => total + value, 0);
      return [`${name}: ${thousands(Number(sum.toFixed(2)))}, largest ${thousands(Math.max(...values))}`];
    }
    if (!FOR_WHOM.test(name)) return [];
    const people = [...new Set(values.flat().filter((value) => typeof value === "string"))];
    const others = people.length - NAMED;
    return people.length ? [`${name}: ${people.slice(0, NAMED).join(", ")}${others > 0 ? ` and ${thousands(others)} more` : ""}`] : [];
  });
  return parts.length ? `${more ? `First ${items.length}: ` : ""}${parts.join(" · ")}` : "";
}

export function entriesOf(
  groups: RequestGroup[],
  rows: (key: string) => Rows,
  folded: (key: string, count: number) => boolean,
): Entry[] {
  return groups.flatMap((group): Entry[] => {
    const key = groupKey(group);
    const { items, more } = rows(key);
    const count = Math.max(group.count, items.length);
    const several = count > 1;
    const shut = several && folded(key, count);
    const lines: Entry[] = several ? [{ type: "group", key: `group ${key}`, group, folded: shut, content: contentOf(items, more) }] : [];
    if (shut) return lines;
    for (const request of items) lines.push({ type: "row", key: request.id, request, inside: several });
    if (more) lines.push({ type: "more", key: `more ${key}`, group });
    return lines;
  });
}

/** Why a request cannot be decided together with others; empty if it can. */
export function separateReason(request: Request): string {
  if (request.masked || request.digest === null) return "it has masked values";
  if (longParts(request.shown.args).length > 0) return "it has a long value that must be read to its end";
  if (request.quorum > 1) return "it needs several approvals";
  if (!request.can.includes("approve")) return request.why_not ?? "you cannot approve it";
  return "";
}

/** Why a request cannot be selected, on its own or together with another one; empty if it can. */
export function whyNotTogether(request: Request, other: Request | undefined): string {
  if (request.status !== "pending") return `It is ${request.status}.`;
  const risky = riskRank(request.risk.level) >= riskRank("high");
  if (request.kind !== "approval" || request.tool === null || risky) return "Questions, calls in doubt and risky calls are decided one by one.";
  const why = separateReason(request);
  if (why) return `It must be decided on its own: ${why}.`;
  if (other && requestGroupKey(other) !== requestGroupKey(request)) return `Only calls like the selected ones can be added: ${other.shown.tool} of ${other.shown.agent}.`;
  return "";
}

/** The request to show after deciding one: the next pending one, else the previous one. */
export function nextAfter(order: Request[], id: string): string | null {
  const index = order.findIndex((request) => request.id === id);
  const waits = (request: Request) => request.status === "pending" && request.id !== id;
  const after = order.slice(index + 1).find(waits);
  return (after ?? order.slice(0, Math.max(0, index)).findLast(waits))?.id ?? null;
}

/** The next line that can be opened: a row, a folded group, or rows to load. Starts at an end if `current` is not in the list. */
export function nextEntry(entries: Entry[], current: string | undefined, by: 1 | -1): Entry | undefined {
  const here = entries.findIndex((entry) => entry.type === "row" && entry.key === current);
  let index = here < 0 ? (by === 1 ? 0 : entries.length - 1) : here + by;
  for (; index >= 0 && index < entries.length; index += by) {
    const entry = entries[index]!;
    if (entry.type !== "group" || entry.folded) return entry;
  }
  return undefined;
}
