import { describe, expect, it } from "vitest";
import { aRequest } from "../shared/testing";
import type { Request } from "../shared/types";
import { aloneBecause, grouped, isBeyond, nextAfter, sorted, step } from "./order";

const at = (minute: number) => new Date(Date.UTC(2026, 0, 1, 10, minute)).toISOString();
const ids = (requests: Request[]) => requests.map((request) => request.id).join("");
const risk = (level: Request["risk"]["level"]) => ({ level, reasons: [] });

describe("sorted", () => {
  const a = aRequest({ id: "a", created_at: at(1), risk: risk("low") });
  const b = aRequest({ id: "b", created_at: at(2), risk: risk("critical") });
  const c = aRequest({ id: "c", created_at: at(3), risk: risk("low"), expires_at: at(50) });
  const d = aRequest({ id: "d", created_at: at(4), risk: risk("high"), expires_at: at(40) });
  const all = [a, b, c, d];

  it("puts what ends first before what never ends, then goes by risk, then by age", () => {
    expect(ids(sorted(all, "expiring"))).toBe("dcba");
  });

  it("goes by risk, then by end", () => expect(ids(sorted(all, "risk"))).toBe("bdca"));
  it("goes by age", () => expect(ids(sorted([d, c, b, a], "age"))).toBe("abcd"));
  it("leaves its input alone", () => {
    sorted(all, "expiring");
    expect(ids(all)).toBe("abcd");
  });
});

describe("isBeyond", () => {
  const last = aRequest({ id: "m", created_at: at(5), expires_at: at(30) });
  const sooner = aRequest({ id: "n", created_at: at(9), expires_at: at(20) });
  const never = aRequest({ id: "o", created_at: at(1), expires_at: null });

  it("goes by the end, then by age", () => {
    expect(isBeyond(sooner, last, "expiring")).toBe(false);
    expect(isBeyond(never, last, "expiring")).toBe(true);
    expect(isBeyond({ ...last, id: "p", created_at: at(6) }, last, "expiring")).toBe(true);
  });

  it("goes by age alone in the other orders", () => {
    expect(isBeyond(sooner, last, "age")).toBe(true);
    expect(isBeyond(never, last, "risk")).toBe(false);
  });

  it("knows no end where nothing was read", () => expect(isBeyond(never, undefined, "age")).toBe(false));
});

describe("grouped", () => {
  it("puts like calls of one agent together, where the first stands", () => {
    const groups = grouped([
      aRequest({ id: "a" }),
      aRequest({ id: "x", tool: "deploy" }),
      aRequest({ id: "b" }),
      aRequest({ id: "y", agent: "other" }),
    ]);
    expect(groups.map((group) => ids(group.requests))).toEqual(["ab", "x", "y"]);
  });

  it("leaves high risk, questions and doubts alone", () => {
    const high = { risk: risk("high") };
    const groups = grouped([
      aRequest({ id: "a", ...high }),
      aRequest({ id: "b", ...high }),
      aRequest({ id: "c", kind: "in_doubt" }),
      aRequest({ id: "d", kind: "in_doubt" }),
      aRequest({ id: "e", kind: "question", tool: null }),
      aRequest({ id: "f", kind: "question", tool: null }),
    ]);
    expect(groups.every((group) => group.requests.length === 1)).toBe(true);
  });
});

describe("aloneBecause", () => {
  it.each([
    [{ masked: true }, /masked/],
    [{ quorum: 2 }, /several people/],
    [{ can: [] as Request["can"], why_not: "no" }, /no/],
    [{ args: { body: "x\n".repeat(99) } }, /long value/],
  ])("keeps %j out of a bulk yes", (over, why) => expect(aloneBecause(aRequest(over))).toMatch(why));

  it("lets plain requests in", () => expect(aloneBecause(aRequest())).toBe(""));
});

describe("moving", () => {
  const list = ["a", "b", "c"].map((id) => aRequest({ id }));

  it("goes on to the next that waits, else back", () => {
    expect(nextAfter(list, "a")).toBe("b");
    expect(nextAfter(list, "c")).toBe("b");
    expect(nextAfter([list[0]!, aRequest({ id: "b", status: "rejected" }), list[2]!], "a")).toBe("c");
    expect(nextAfter([list[0]!], "a")).toBe(null);
  });

  it("walks the rows and stops at their ends", () => {
    expect(step(["a", "b"], undefined, 1)).toBe("a");
    expect(step(["a", "b"], undefined, -1)).toBe("b");
    expect(step(["a", "b"], "a", 1)).toBe("b");
    expect(step(["a", "b"], "b", 1)).toBe("b");
    expect(step(["a", "b"], "gone", 1)).toBe("a");
    expect(step([], "a", 1)).toBe(undefined);
  });
});
