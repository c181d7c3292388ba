import { describe, expect, it } from "vitest";
import { aRequest } from "../testing";
import type { RiskLevel } from "../types";
import { ceremony, hindrance } from "./guard";
import { ALL, hasFingerprint, lineCount, longParts } from "./values";

const now = { offline: "", busy: false, unseen: [] as string[] };
const risky = (level: RiskLevel) => aRequest({ risk: { level, reasons: [] } });

describe("ceremony", () => {
  it.each([
    ["low", "direct"],
    ["medium", "direct"],
    ["high", "confirm"],
    ["critical", "type"],
  ] as [RiskLevel, string][])("makes a yes to %s risk %s", (level, wanted) =>
    expect(ceremony(risky(level))).toBe(wanted),
  );

  it("goes by the higher risk of an edit, and never by a lower one", () => {
    expect(ceremony(risky("low"), "critical")).toBe("type");
    expect(ceremony(risky("critical"), "low")).toBe("type");
  });

  it("never runs something again with one key", () => {
    expect(ceremony(aRequest({ kind: "in_doubt" }))).toBe("confirm");
  });
});

describe("hindrance", () => {
  it("is nothing for a request that can be decided", () => {
    expect(hindrance(aRequest(), "approve", now)).toBe("");
  });

  it("says why nothing is decided without a server", () => {
    expect(hindrance(aRequest(), "reject", { ...now, offline: "You are signed out." })).toBe("You are signed out.");
  });

  it("wants masked values revealed for a yes, and not for a no", () => {
    const masked = aRequest({ masked: true, digest: null });
    expect(hindrance(masked, "approve", now)).toMatch(/masked/);
    expect(hindrance(masked, "edit", now)).toMatch(/Reveal/);
    expect(hindrance(masked, "reject", now)).toBe("");
    expect(hindrance(masked, "respond", now)).toBe("");
  });

  it("wants choices revealed before one of them is the answer", () => {
    const choice = (value: string) => ({ label: value, value, description: "" });
    const options = [choice("•••• (43 chars, fingerprint 0123abcd)"), choice("No")];
    const question = { text: "Which?", options, multiple: false, free_text: false, schema: null };
    expect(hindrance(aRequest({ masked: true, question }), "respond", now)).toMatch(/Reveal/);
  });

  it("wants the end of long values seen", () => {
    expect(hindrance(aRequest(), "approve", { ...now, unseen: ["body"] })).toBe("Scroll to the end of “body” first.");
    expect(hindrance(aRequest(), "respond", { ...now, unseen: ["body"] })).toBe("");
  });

  it("does not say that nothing can be decided where a no still can", () => {
    const voted = aRequest({ quorum: 2, can: ["reject"], why_not: "you already voted" });
    expect(hindrance(voted, "approve", now)).toBe("You already voted. You can still reject.");
    expect(hindrance(voted, "reject", now)).toBe("");
  });

  it("gives the server's reason", () => {
    expect(hindrance(aRequest({ can: [], why_not: "it is for group:finance" }), "approve", now)).toMatch(
      /group:finance/,
    );
    expect(hindrance(aRequest({ status: "expired" }), "approve", now)).toMatch(/expired/);
  });
});

describe("longParts", () => {
  it("names what does not fit on a screen", () => {
    const body = Array.from({ length: 60 }, () => "line").join("\n");
    expect(longParts({ to: "ana", body })).toEqual(["body"]);
    expect(longParts({ body: "x".repeat(84 * 41) })).toEqual(["body"]);
    expect(longParts({ list: Array.from({ length: 120 }, (_, index) => `r${index}`) })).toEqual(["list"]);
    expect(longParts({ to: "ana" })).toEqual([]);
  });

  it("takes very many fields, or very deep ones, as one", () => {
    expect(longParts(Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`k${index}`, 1])))).toEqual([ALL]);
    let deep: never[] | object = [];
    for (let level = 0; level < 1_000; level += 1) deep = { a: deep };
    expect(longParts(deep as never)).toEqual([ALL]);
    expect(lineCount(deep as never)).toBe(1);
  });
});

it("knows a value that is only a fingerprint", () => {
  expect(hasFingerprint({ a: { b: "•••• (32 chars, fingerprint ab12cd34)" } })).toBe(true);
  expect(hasFingerprint({ a: "••••" })).toBe(false);
});
