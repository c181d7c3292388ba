import { describe, expect, it } from "vitest";
import { makeRequest } from "../shared/testData";
import type { Request, RequestGroup } from "../shared/types";
import { separateReason, entriesOf, isAfterLoaded, groupKey, nextAfter, sortGroups, nextEntry, type Rows } from "./order";

const at = (minute: number) => new Date(Date.UTC(2026, 0, 1, 10, minute)).toISOString();

const aGroup = (over: Partial<RequestGroup>): RequestGroup => ({
  kind: "approval",
  agent: "billing",
  tool: "refund",
  risk: "low",
  at_least: false,
  count: 1,
  expires_at: null,
  oldest_at: at(1),
  ...over,
});
const tools = (groups: RequestGroup[]) => groups.map((group) => group.tool).join("");

describe("sortGroups", () => {
  const a = aGroup({ tool: "a", oldest_at: at(1) });
  const b = aGroup({ tool: "b", oldest_at: at(2), risk: "critical" });
  const c = aGroup({ tool: "c", oldest_at: at(3), expires_at: at(50) });
  const d = aGroup({ tool: "d", oldest_at: at(4), expires_at: at(40), risk: "high" });
  const e = aGroup({ tool: "e", oldest_at: at(9), kind: "in_doubt" });
  const all = [a, b, c, d, e];

  it("sorts by expiry, then by risk, then by age", () => {
    expect(tools(sortGroups(all, "expiring"))).toBe("edcba");
  });

  it("sorts by risk, then by expiry", () => expect(tools(sortGroups(all, "risk"))).toBe("ebdca"));
  it("sorts by age", () => expect(tools(sortGroups(all, "age"))).toBe("eabcd"));
  it("does not change its input", () => {
    sortGroups(all, "expiring");
    expect(tools(all)).toBe("abcde");
  });
});

describe("isAfterLoaded", () => {
  const last = makeRequest({ id: "m", created_at: at(5), expires_at: at(30) });
  const sooner = makeRequest({ id: "n", created_at: at(9), expires_at: at(20) });
  const never = makeRequest({ id: "o", created_at: at(1), expires_at: null });

  it("compares expiry, then age", () => {
    expect(isAfterLoaded(sooner, last, "expiring")).toBe(false);
    expect(isAfterLoaded(never, last, "expiring")).toBe(true);
    expect(isAfterLoaded({ ...last, id: "p", created_at: at(6) }, last, "expiring")).toBe(true);
  });

  it("compares only age in that order", () => {
    expect(isAfterLoaded(sooner, last, "age")).toBe(true);
    expect(isAfterLoaded(never, last, "age")).toBe(false);
  });

  it("is true if nothing was loaded", () => expect(isAfterLoaded(never, undefined, "age")).toBe(true));
});

describe("entriesOf", () => {
  const rows: Record<string, Rows> = {};
  const many = aGroup({ tool: "many", count: 9 });
  const few = aGroup({ tool: "few", count: 2 });
  const one = aGroup({ tool: "one" });
  rows[groupKey(many)] = { items: [makeRequest({ id: "m1" })], next: "5", more: true };
  rows[groupKey(few)] = { items: [makeRequest({ id: "f1" }), makeRequest({ id: "f2" })], next: null, more: false };
  const of = (key: string) => rows[key] ?? { items: [], next: null, more: true };
  const folded = (_: string, count: number) => count > 4;
  const lines = entriesOf([many, few, one], of, folded);

  it("folds large groups, and adds a line for rows that are not loaded", () => {
    expect(lines.map((line) => line.type)).toEqual(["group", "group", "row", "row", "more"]);
    expect(entriesOf([many], of, () => false).map((line) => line.type)).toEqual(["group", "row", "more"]);
  });

  it("stops at folded groups and rows to load, and skips the heads of open groups", () => {
    expect(nextEntry(lines, undefined, 1)).toMatchObject({ type: "group", group: many });
    expect(nextEntry(lines, "f1", 1)).toMatchObject({ key: "f2" });
    expect(nextEntry(lines, "f2", 1)).toMatchObject({ type: "more", group: one });
    expect(nextEntry(lines, "f1", -1)).toMatchObject({ type: "group", group: many });
    expect(nextEntry(lines, undefined, -1)).toMatchObject({ type: "more", group: one });
    expect(nextEntry([], "a", 1)).toBe(undefined);
  });
});

describe("separateReason", () => {
  it.each([
    [{ masked: true }, /masked/],
    [{ quorum: 2 }, /several approvals/],
    [{ can: [] as Request["can"], why_not: "no" }, /no/],
    [{ args: { body: "x\n".repeat(99) } }, /long value/],
  ])("excludes %j", (over, why) => expect(separateReason(makeRequest(over))).toMatch(why));

  it("is empty for a plain request", () => expect(separateReason(makeRequest())).toBe(""));
});

describe("moving", () => {
  const list = ["a", "b", "c"].map((id) => makeRequest({ id }));

  it("goes to the next pending request, else to the previous one", () => {
    expect(nextAfter(list, "a")).toBe("b");
    expect(nextAfter(list, "c")).toBe("b");
    expect(nextAfter([list[0]!, makeRequest({ id: "b", status: "rejected" }), list[2]!], "a")).toBe("c");
    expect(nextAfter([list[0]!], "a")).toBe(null);
  });
});
