import { describe, expect, it } from "vitest";
import { editOf } from "./edit";

const SHOWN = { to: "ana", amount: 5, note: null, tags: ["a", "b"], by: { name: "x" } };

describe("an edit names", () => {
  it("only what it changes", () => {
    expect(editOf(SHOWN, { ...SHOWN })).toEqual({ args: {}, unset: [] });
    expect(editOf(SHOWN, { ...SHOWN, amount: 6 })).toEqual({ args: { amount: 6 }, unset: [] });
    expect(editOf(SHOWN, { ...SHOWN, amount: null, more: true })).toEqual({ args: { amount: null, more: true }, unset: [] });
  });

  it("a changed argument whole", () => {
    expect(editOf(SHOWN, { ...SHOWN, tags: ["a"] }).args).toEqual({ tags: ["a"] });
    expect(editOf(SHOWN, { ...SHOWN, by: {} }).args).toEqual({ by: {} });
  });

  it("what it removes", () => {
    const { note: _, ...rest } = SHOWN;
    expect(editOf(SHOWN, rest)).toEqual({ args: {}, unset: ["note"] });
    expect(editOf(SHOWN, { ...SHOWN, tags: undefined as never })).toEqual({ args: {}, unset: ["tags"] });
  });
});
