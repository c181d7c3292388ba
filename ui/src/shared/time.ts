/** Times in words, and one clock for everything that counts down. */

import { useSyncExternalStore } from "react";

let now = Date.now();
const watchers = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function watch(callback: () => void): () => void {
  watchers.add(callback);
  now = Date.now();
  timer ??= setInterval(() => {
    now = Date.now();
    watchers.forEach((each) => each());
  }, 1_000);
  return () => {
    watchers.delete(callback);
    if (watchers.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time, drawn anew every second, or every `step` seconds for things that change slowly. */
export function useNow(step = 1): number {
  const grain = step * 1_000;
  return useSyncExternalStore(watch, () => Math.floor(now / grain) * grain);
}

const UNITS: [number, string, string][] = [
  [86_400, "d", "day"],
  [3_600, "h", "hour"],
  [60, "m", "minute"],
  [1, "s", "second"],
];

/** `4 s`, `12 m`, `3 h`, `2 d`: short enough for a row. */
export function short(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [size, letter] of UNITS) if (whole >= size) return `${Math.floor(whole / size)} ${letter}`;
  return "now";
}

/** `4 seconds`, `1 day`: for sentences and screen readers. */
export function long(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [size, , word] of UNITS) {
    const count = Math.floor(whole / size);
    if (count >= 1) return `${count} ${word}${count === 1 ? "" : "s"}`;
  }
  return "a moment";
}

/** `4 s ago` or `just now`. */
export function ago(iso: string, at: number): string {
  const text = short((at - Date.parse(iso)) / 1_000);
  return text === "now" ? "just now" : `${text} ago`;
}

/** `4:05` below an hour, else as `short`. */
export function countdown(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  if (whole >= 3_600) return short(whole);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const SECONDS = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const EXACT = new Intl.DateTimeFormat(undefined, {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZoneName: "short",
});

export const clock = (time: number): string => CLOCK.format(time);
export const clockSeconds = (iso: string): string => SECONDS.format(Date.parse(iso));
export const exact = (iso: string): string => EXACT.format(Date.parse(iso));
