import { describe, expect, it } from "vitest";
import { lineDiff, diffWithinLine } from "./diff";

const rendered = (before: string | null, after: string | null) =>
  lineDiff(before, after).map(
    (line) =>
      `${line.kind[0]} ${line.pieces.map((piece) => (piece.changed ? `[${piece.text}]` : piece.text)).join("")}`,
  );

describe("diffWithinLine", () => {
  it("marks what is between the common prefix and suffix", () => {
    expect(diffWithinLine("1.4.2", "1.4.3")).toEqual([
      [
        { text: "1.4.", changed: false },
        { text: "2", changed: true },
      ],
      [
        { text: "1.4.", changed: false },
        { text: "3", changed: true },
      ],
    ]);
  });

  it("does not count an overlap of prefix and suffix twice", () => {
    expect(
      diffWithinLine("aa", "aaa")[1]
        .map((piece) => piece.text)
        .join(""),
    ).toBe("aaa");
    expect(diffWithinLine("", "")).toEqual([[], []]);
  });

  it("does not split surrogate pairs", () => {
    const [before, after] = diffWithinLine("😀", "😁");
    expect(before).toEqual([{ text: "😀", changed: true }]);
    expect(after).toEqual([{ text: "😁", changed: true }]);
  });
});

describe("lineDiff", () => {
  it("keeps unchanged lines in order", () => {
    expect(rendered("a\nb\nc", "a\nx\nc")).toEqual(["s a", "r [b]", "a [x]", "s c"]);
  });

  it("shows added and removed lines whole", () => {
    expect(rendered("a", "a\nb\nc")).toEqual(["s a", "a [b]", "a [c]"]);
    expect(rendered("a\nb", "b")).toEqual(["r [a]", "s b"]);
  });

  it("distinguishes a missing text from an empty one", () => {
    expect(rendered(null, "")).toEqual(["a []"]);
    expect(rendered("x", null)).toEqual(["r [x]"]);
  });

  it("contains both texts completely", () => {
    const before = "one\ntwo\n\nthree\nfour";
    const after = "zero\none\n2\n\nfour\nfive";
    const lines = lineDiff(before, after);
    const side = (kind: string) =>
      lines
        .filter((line) => line.kind === kind || line.kind === "same")
        .map((line) => line.pieces.map((piece) => piece.text).join(""))
        .join("\n");
    expect(side("removed")).toBe(before);
    expect(side("added")).toBe(after);
  });

  it("does not hang on long texts", () => {
    const before = Array.from({ length: 20_000 }, (_, index) => `line ${index}`).join("\n");
    expect(lineDiff(before, `${before}\nmore`).length).toBeGreaterThan(20_000);
  });
});
