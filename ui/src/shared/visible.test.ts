import { describe, expect, it } from "vitest";
import { visible } from "./visible";

describe("visible", () => {
  it.each([
    ["a\u202eb", "a⟨U+202E⟩b"],
    ["a\u200bb", "a⟨U+200B⟩b"],
    ["\u001b[2K", "⟨U+001B⟩[2K"],
    ["a\u00a0b", "a⟨U+00A0⟩b"],
    ["\u{e0041}", "⟨U+E0041⟩"],
    ["\u3164", "⟨U+3164⟩"],
  ])("writes %j out", (text, shown) => expect(visible(text)).toBe(shown));

  it.each(["plain text", "two\nlines\tand a tab", "Ünïcödé 東京"])("leaves %j as it is", (text) =>
    expect(visible(text)).toBe(text),
  );
});
