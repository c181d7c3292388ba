import { describe, expect, it } from "vitest";
import { findHiddenCharacters, visible } from "./visible";

describe("visible", () => {
  it.each([
    ["a\u202eb", "a⟨U+202E⟩b"],
    ["a\u200bb", "a⟨U+200B⟩b"],
    ["\u001b[2K", "⟨U+001B⟩[2K"],
    ["a\u00a0b", "a⟨U+00A0⟩b"],
    ["\u{e0041}", "⟨U+E0041⟩"],
    ["\u3164", "⟨U+3164⟩"],
  ])("escapes %j", (text, shown) => expect(visible(text)).toBe(shown));

  it.each(["plain text", "two\nlines\tand a tab", "Ünïcödé 東京"])("does not change %j", (text) =>
    expect(visible(text)).toBe(text),
  );
});

describe("findHiddenCharacters", () => {
  it("returns each hidden character with its position", () =>
    expect(findHiddenCharacters("to: ana\u202e@x\nbye\u200b\u{e0041}")).toEqual([
      { line: 1, code: "U+202E", before: "to: ana", after: "@x" },
      { line: 2, code: "U+200B", before: "bye", after: "⟨U+E0041⟩" },
      { line: 2, code: "U+E0041", before: "bye⟨U+200B⟩", after: "" },
    ]));

  it.each(["", "two\nlines\tand a tab", "Ünïcödé 東京"])("finds none in %j", (text) => expect(findHiddenCharacters(text)).toEqual([]));
});
