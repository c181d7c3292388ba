import { describe, expect, it } from "vitest";
import { clock, clockSeconds, exact, thousands } from "./format";

describe("formats", () => {
  it("separates thousands", () => {
    expect([0, 999, 1_000, 123_456, 1_000_000].map(thousands)).toEqual(["0", "999", "1,000", "123,456", "1,000,000"]);
  });

  it("shows local times", () => {
    const iso = "2026-11-07T04:05:09Z";
    const date = new Date(iso);
    const hours = String(date.getHours()).padStart(2, "0");
    const minutes = String(date.getMinutes()).padStart(2, "0");
    expect(clock(date.getTime())).toBe(`${hours}:${minutes}`);
    expect(clockSeconds(iso)).toBe(`${hours}:${minutes}:09`);
    expect(exact(iso)).toMatch(/^Nov \d{1,2}, 2026, \d\d:\d\d:09 UTC([+-]\d{1,2}(:\d\d)?)?$/);
  });
});
