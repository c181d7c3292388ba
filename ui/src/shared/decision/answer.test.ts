import { describe, expect, it } from "vitest";
import type { Question } from "../types";
import { answerOf, NO_ANSWER, pick, pickOther } from "./answer";
import { toGrantInput, patternScope, scopeLines } from "./grant";

const ask = (over: Partial<Question> = {}): Question => ({
  text: "Which?",
  options: [
    { label: "One", value: 1, description: "" },
    { label: "Two", value: "two", description: "" },
  ],
  multiple: false,
  free_text: false,
  schema: null,
  ...over,
});

describe("answerOf", () => {
  it("sends the value of the option, not its label", () => {
    const question = ask();
    expect(answerOf(question, NO_ANSWER).missing).toBeTruthy();
    expect(answerOf(question, pick(question, NO_ANSWER, 0, true))).toEqual({ value: 1 });
  });

  it("takes one option, or several if the question allows it", () => {
    const one = ask();
    expect(answerOf(one, pick(one, pick(one, NO_ANSWER, 0, true), 1, true))).toEqual({ value: "two" });
    const many = ask({ multiple: true });
    expect(answerOf(many, pick(many, pick(many, NO_ANSWER, 1, true), 0, true))).toEqual({ value: [1, "two"] });
    expect(answerOf(many, NO_ANSWER).missing).toBeTruthy();
  });

  it("takes text or JSON if the question takes anything", () => {
    const any = ask({ options: [], free_text: true, schema: {} });
    expect(answerOf(any, NO_ANSWER).missing).toBeTruthy();
    expect(answerOf(any, { ...NO_ANSWER, text: "true" })).toEqual({ value: "true" });
    expect(answerOf(any, { ...NO_ANSWER, text: "true", asJson: true })).toEqual({ value: true });
    expect(answerOf(any, { ...NO_ANSWER, text: "{", asJson: true }).missing).toBeTruthy();
  });

  it("takes free text instead of an option, or in addition to several", () => {
    const one = ask({ free_text: true });
    const own = { ...pickOther(one, pick(one, NO_ANSWER, 0, true), true), text: "three" };
    expect(answerOf(one, own)).toEqual({ value: "three" });
    expect(answerOf(one, { ...own, text: " " }).missing).toBeTruthy();
    const many = ask({ free_text: true, multiple: true });
    expect(answerOf(many, { ...pick(many, NO_ANSWER, 0, true), other: true, text: "x" })).toEqual({ value: [1, "x"] });
  });

  it("drops free text when an option is selected after it", () => {
    const one = ask({ free_text: true });
    const own = { ...pickOther(one, NO_ANSWER, true), text: "three" };
    expect(answerOf(one, pick(one, own, 1, true))).toEqual({ value: "two" });
  });

  it("takes plain text, and the value of a form", () => {
    expect(answerOf(ask({ options: [] }), { ...NO_ANSWER, text: "hello" })).toEqual({ value: "hello" });
    const schema = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
    expect(answerOf(ask({ options: [], schema }), NO_ANSWER)).toEqual({ missing: "Fill in the required fields." });
    expect(answerOf(ask({ options: [], schema }), { ...NO_ANSWER, form: { a: 3 } })).toEqual({ value: { a: 3 } });
  });
});

describe("grants", () => {
  it("makes a scope of the rules and allows no other field", () => {
    const { scope, error } = patternScope(
      { path: "/tmp/a.b", mode: 7, note: "x" },
      { path: { kind: "matches", text: "/tmp/[a-z.]+" }, note: { kind: "any" } },
    );
    expect(error).toBe("");
    expect(scope).toEqual({
      type: "object",
      properties: { path: { type: "string", pattern: "^(?:/tmp/[a-z.]+)$" }, mode: { const: 7 }, note: {} },
      required: ["path", "mode", "note"],
      additionalProperties: false,
    });
  });

  it("refuses a pattern that does not match the call itself", () => {
    expect(patternScope({ path: "/etc" }, { path: { kind: "matches", text: "/tmp" } }).error).toBeTruthy();
    expect(patternScope({ path: "/etc" }, { path: { kind: "matches", text: "[" } }).error).toBeTruthy();
    expect(patternScope({ path: "/etc" }, { path: { kind: "matches", text: "/e" } }).error).toBeTruthy();
    expect(patternScope({ path: "/etc" }, { path: { kind: "matches", text: "/e.c" } }).error).toBe("");
  });

  it("shows a scope as text, or as the schema itself", () => {
    const { scope } = patternScope(
      { path: "/tmp/a", mode: 7, note: "x" },
      { path: { kind: "matches", text: "/tmp/." }, note: { kind: "any" } },
    );
    expect(scopeLines({ scope, shown_scope: [] })).toEqual(["path: matches ^(?:/tmp/.)$", "mode: 7", "note: anything"]);
    expect(scopeLines({ scope: {}, shown_scope: [] })).toEqual(["Any arguments"]);
    expect(scopeLines({ scope: { const: { a: 1 } }, shown_scope: ["const:", "  a: 1"] })).toEqual(["const:", "  a: 1"]);
    const odd = { properties: { a: { not: {} } } };
    expect(scopeLines({ scope: odd, shown_scope: ["whole"] })).toEqual(["whole"]);
  });

  it("reads the number of uses", () => {
    expect(toGrantInput("exact", "", 60).grant).toEqual({ scope: "exact", ends_in: 60 });
    expect(toGrantInput("any", " 3 ", 60).grant).toEqual({ scope: "any", ends_in: 60, uses: 3 });
    expect(toGrantInput("any", "0", 60).error).toBeTruthy();
    expect(toGrantInput("any", "two", 60).error).toBeTruthy();
  });
});
