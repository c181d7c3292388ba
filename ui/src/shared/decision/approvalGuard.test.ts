import { describe, expect, it } from "vitest";
import { makeRequest } from "../testData";
import type { RiskLevel } from "../types";
import { confirmationFor, blockedReason } from "./approvalGuard";
import { ALL_ARGS, hasFingerprint, lineCount, longParts } from "./values";

const now = { offline: "", busy: false, unseen: [] as string[], left: 0 };
const risky = (level: RiskLevel) => makeRequest({ risk: { level, reasons: [] } });

describe("confirmationFor", () => {
  it.each([
    ["low", "direct"],
    ["medium", "direct"],
    ["high", "confirm"],
    ["critical", "type"],
  ] as [RiskLevel, string][])("%s risk: %s", (level, wanted) =>
    expect(confirmationFor(risky(level))).toBe(wanted),
  );

  it("uses the higher risk of request and edit", () => {
    expect(confirmationFor(risky("low"), "critical")).toBe("type");
    expect(confirmationFor(risky("critical"), "low")).toBe("type");
  });

  it("always needs a confirmation to run a call again", () => {
    expect(confirmationFor(makeRequest({ kind: "in_doubt" }))).toBe("confirm");
  });
});

describe("blockedReason", () => {
  it("is empty for a request that can be decided", () => {
    expect(blockedReason(makeRequest(), "approve", now)).toBe("");
  });

  it("gives the reason why the server cannot be reached", () => {
    expect(blockedReason(makeRequest(), "reject", { ...now, offline: "You are signed out." })).toBe("You are signed out.");
  });

  it("says how much is left to read, and does not keep anyone from rejecting", () => {
    expect(blockedReason(makeRequest(), "approve", { ...now, left: 2 })).toMatch(/2 more screens/);
    expect(blockedReason(makeRequest(), "reject", { ...now, left: 2 })).toBe("");
  });

  it("requires revealing masked values to approve, not to reject", () => {
    const masked = makeRequest({ masked: true, digest: null });
    expect(blockedReason(masked, "approve", now)).toMatch(/masked/);
    expect(blockedReason(masked, "edit", now)).toMatch(/Reveal/);
    expect(blockedReason(masked, "reject", now)).toBe("");
    expect(blockedReason(masked, "respond", now)).toBe("");
  });

  it("requires revealing masked options before answering", () => {
    const choice = (value: string) => ({ label: value, value, description: "" });
    const options = [choice("•••• (43 chars, fingerprint 0123abcd)"), choice("No")];
    const question = { text: "Which?", options, multiple: false, free_text: false, schema: null };
    expect(blockedReason(makeRequest({ masked: true, question }), "respond", now)).toMatch(/Reveal/);
  });

  it("requires reading long values to their end", () => {
    expect(blockedReason(makeRequest(), "approve", { ...now, unseen: ["body"] })).toBe("Scroll to the end of “body” first.");
    expect(blockedReason(makeRequest(), "respond", { ...now, unseen: ["body"] })).toBe("");
  });

  it("says which decisions are still possible", () => {
    const voted = makeRequest({ quorum: 2, can: ["reject"], why_not: "you already voted" });
    expect(blockedReason(voted, "approve", now)).toBe("You already voted. You can still reject.");
    expect(blockedReason(voted, "reject", now)).toBe("");
  });

  it("gives the server's reason", () => {
    expect(blockedReason(makeRequest({ can: [], why_not: "it is for group:finance" }), "approve", now)).toMatch(
      /group:finance/,
    );
    expect(blockedReason(makeRequest({ status: "expired" }), "approve", now)).toMatch(/expired/);
  });
});

describe("longParts", () => {
  it("returns the names of values that do not fit on a screen", () => {
    const body = Array.from({ length: 60 }, () => "line").join("\n");
    expect(longParts({ to: "ana", body })).toEqual(["body"]);
    expect(longParts({ body: "x".repeat(84 * 41) })).toEqual(["body"]);
    expect(longParts({ list: Array.from({ length: 120 }, (_, index) => `r${index}`) })).toEqual(["list"]);
    expect(longParts({ to: "ana" })).toEqual([]);
  });

  it("treats very many or very deep fields as one part", () => {
    expect(longParts(Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`k${index}`, 1])))).toEqual([ALL_ARGS]);
    let deep: never[] | object = [];
    for (let level = 0; level < 1_000; level += 1) deep = { a: deep };
    expect(longParts(deep as never)).toEqual([ALL_ARGS]);
    expect(lineCount(deep as never)).toBe(1);
  });
});

it("recognizes a value that is only a fingerprint", () => {
  expect(hasFingerprint({ a: { b: "•••• (32 chars, fingerprint ab12cd34)" } })).toBe(true);
  expect(hasFingerprint({ a: "••••" })).toBe(false);
});
