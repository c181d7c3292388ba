import { describe, expect, it } from "vitest";
import { aRequest } from "../shared/testing";
import type { Request, RequestGroup } from "../shared/types";
import { aloneBecause, entriesOf, isBeyond, keyOf, nextAfter, sorted, step, type Rows } from "./order";

const at = (minute: number) => new Date(Date.UTC(2026, 0, 1, 10, minute)).toISOString();

const aGroup = (over: Partial<RequestGroup>): RequestGroup => ({
  kind: "approval",
  agent: "billing",
  tool: "refund",
  risk: "low",
  count: 1,
  expires_at: null,
  oldest_at: at(1),
  ...over,
});
const tools = (groups: RequestGroup[]) => groups.map((group) => group.tool).join("");

describe("sorted", () => {
  const a = aGroup({ tool: "a", oldest_at: at(1) });
  const b = aGroup({ tool: "b", oldest_at: at(2), risk: "critical" });
  const c = aGroup({ tool: "c", oldest_at: at(3), expires_at: at(50) });
  const d = aGroup({ tool: "d", oldest_at: at(4), expires_at: at(40), risk: "high" });
  const e = aGroup({ tool: "e", oldest_at: at(9), kind: "in_doubt" });
  const all = [a, b, c, d, e];

  it("sorts by expiry, then by risk, then by age", () => {
    expect(tools(sorted(all, "expiring"))).toBe("edcba");
  });

  it("sorts by risk, then by expiry", () => expect(tools(sorted(all, "risk"))).toBe("ebdca"));
  it("sorts by age", () => expect(tools(sorted(all, "age"))).toBe("eabcd"));
  it("does not change its input", () => {
    sorted(all, "expiring");
    expect(tools(all)).toBe("abcde");
  });
});

describe("isBeyond", () => {
  const last = aRequest({ id: "m", created_at: at(5), expires_at: at(30) });
  const sooner = aRequest({ id: "n", created_at: at(9), expires_at: at(20) });
  const never = aRequest({ id: "o", created_at: at(1), expires_at: null });

  it("compares expiry, then age", () => {
    expect(isBeyond(sooner, last, "expiring")).toBe(false);
    expect(isBeyond(never, last, "expiring")).toBe(true);
    expect(isBeyond({ ...last, id: "p", created_at: at(6) }, last, "expiring")).toBe(true);
  });

  it("compares only age in that order", () => {
    expect(isBeyond(sooner, last, "age")).toBe(true);
    expect(isBeyond(never, last, "age")).toBe(false);
  });

  it("is true if nothing was loaded", () => expect(isBeyond(never, undefined, "age")).toBe(true));
});

describe("entriesOf", () => {
  const rows: Record<string, Rows> = {};
  const many = aGroup({ tool: "many", count: 9 });
  const few = aGroup({ tool: "few", count: 2 });
  const one = aGroup({ tool: "one" });
  rows[keyOf(many)] = { items: [aRequest({ id: "m1" })], next: "5", more: true };
  rows[keyOf(few)] = { items: [aRequest({ id: "f1" }), aRequest({ id: "f2" })], next: null, more: false };
  const of = (key: string) => rows[key] ?? { items: [], next: null, more: true };
  const folded = (_: string, count: number) => count > 4;
  const lines = entriesOf([many, few, one], of, folded);

  it("folds large groups, and adds a line for rows that are not loaded", () => {
    expect(lines.map((line) => line.type)).toEqual(["group", "group", "row", "row", "more"]);
    expect(entriesOf([many], of, () => false).map((line) => line.type)).toEqual(["group", "row", "more"]);
  });

  it("stops at folded groups and rows to load, and skips the heads of open groups", () => {
    expect(step(lines, undefined, 1)).toMatchObject({ type: "group", group: many });
    expect(step(lines, "f1", 1)).toMatchObject({ key: "f2" });
    expect(step(lines, "f2", 1)).toMatchObject({ type: "more", group: one });
    expect(step(lines, "f1", -1)).toMatchObject({ type: "group", group: many });
    expect(step(lines, undefined, -1)).toMatchObject({ type: "more", group: one });
    expect(step([], "a", 1)).toBe(undefined);
  });
});

describe("aloneBecause", () => {
  it.each([
    [{ masked: true }, /masked/],
    [{ quorum: 2 }, /several approvals/],
    [{ can: [] as Request["can"], why_not: "no" }, /no/],
    [{ args: { body: "x\n".repeat(99) } }, /long value/],
  ])("excludes %j", (over, why) => expect(aloneBecause(aRequest(over))).toMatch(why));

  it("is empty for a plain request", () => expect(aloneBecause(aRequest())).toBe(""));
});

describe("moving", () => {
  const list = ["a", "b", "c"].map((id) => aRequest({ id }));

  it("goes to the next pending request, else to the previous one", () => {
    expect(nextAfter(list, "a")).toBe("b");
    expect(nextAfter(list, "c")).toBe("b");
    expect(nextAfter([list[0]!, aRequest({ id: "b", status: "rejected" }), list[2]!], "a")).toBe("c");
    expect(nextAfter([list[0]!], "a")).toBe(null);
  });
});
