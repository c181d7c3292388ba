import { expect, it } from "vitest";
import { outputText } from "./output";
import { timeSince } from "./Timeline";

it("a run's output is shown as text, also if it is stored as JSON", () => {
  expect(outputText('"Final answer: done."')).toBe("Final answer: done.");
  expect(outputText("Final answer: done.")).toBe("Final answer: done.");
  expect(outputText('{"size":"large"}')).toBe('{"size":"large"}');
  expect(outputText({ size: "large" })).toBe('{"size":"large"}');
  expect(outputText(null)).toBe("");
});

it("a gap of at least a second is shown", () => {
  const at = (second: number) => new Date(second * 1_000).toISOString();
  expect(timeSince(undefined, at(0))).toBe("");
  expect(timeSince(at(0), at(0.4))).toBe("");
  expect(timeSince(at(0), at(7))).toBe(" · 7 s later");
  expect(timeSince(at(0), at(600))).toBe(" · 10 min later");
  expect(timeSince(at(0), at(86_400 * 3))).toBe(" · 3 days later");
});
