import { describe, expect, it } from "vitest";
import { columnPath, dayName, labelStep, percent, formatDuration, ticks } from "./figures";

describe("ticks", () => {
  it("are round, start at zero and cover the maximum", () => {
    expect(ticks(39)).toEqual([0, 10, 20, 30, 40]);
    expect(ticks(4)).toEqual([0, 1, 2, 3, 4]);
    expect(ticks(1)).toEqual([0, 1]);
    expect(ticks(0)).toEqual([0, 1]);
    expect(ticks(1_234)).toEqual([0, 500, 1_000, 1_500]);
    for (const most of [1, 3, 7, 11, 99, 101, 5_001]) expect(ticks(most).at(-1)).toBeGreaterThanOrEqual(most);
  });
});

it("durations have at most two units", () => {
  expect(formatDuration(null)).toBe("–");
  expect(formatDuration(0.84)).toBe("0.8 s");
  expect(formatDuration(42.4)).toBe("42 s");
  expect(formatDuration(185)).toBe("3 m 5 s");
  expect(formatDuration(3_600)).toBe("1 h");
  expect(formatDuration(90_000)).toBe("1 d 1 h");
});

it("a share of zero is a dash", () => {
  expect(percent(1, 0)).toBe("–");
  expect(percent(21, 28)).toBe("75 %");
});

it("days do not depend on the local time zone", () => {
  expect(dayName("2026-11-01")).toContain("1");
  expect(dayName("2026-11-01")).toBe(dayName("2026-11-01T23:59:59Z"));
});

it("a crowded axis skips labels", () => {
  expect(labelStep(7, 600)).toBe(1);
  expect(labelStep(90, 600)).toBe(8);
});

it("a low column has no rounded corners", () => {
  expect(columnPath(0, 9, 10, 1)).toContain("V10");
  expect(columnPath(0, 10, 10, 0)).toBe("M0,10V10Q0,10 0,10H10Q10,10 10,10V10Z");
});
