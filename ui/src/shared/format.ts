/** Formatting of times and numbers, and one shared clock for everything that counts down. */

import { useSyncExternalStore } from "react";
import { loadSetting, saveSetting } from "./theme";

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

/** The current time. Rerenders every `step` seconds. */
export function useNow(step = 1): number {
  const grain = step * 1_000;
  return useSyncExternalStore(watch, () => Math.floor(now / grain) * grain);
}

const TIMES = "sayso.times";
let timesExact = typeof localStorage !== "undefined" && loadSetting(TIMES) === "exact";

export function setTimesExact(on: boolean): void {
  timesExact = on;
  saveSetting(TIMES, on ? "exact" : null);
  watchers.forEach((each) => each());
}

/** Whether the person wants dates and times instead of "5 m ago". */
export function useTimesExact(): boolean {
  return useSyncExternalStore(watch, () => timesExact);
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

/** `12,000` */
export const thousands = (number: number): string => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

/** A count of requests; of many that a search finds, only some are counted. */
export const counted = ({ count, at_least }: { count: number; at_least: boolean }): string =>
  `${thousands(count)}${at_least ? "+" : ""}`;

// Not Intl: its first use blocks the page for about 50 ms, and the app is in English only.
export const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const two = (number: number): string => String(number).padStart(2, "0");

/** `14:05` */
export function clock(time: number): string {
  const date = new Date(time);
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** `14:05:09` */
export function clockSeconds(iso: string): string {
  const time = Date.parse(iso);
  return `${clock(time)}:${two(new Date(time).getSeconds())}`;
}

/** `Nov 17, 2026, 14:05:09 UTC+1` */
export function exact(iso: string): string {
  const date = new Date(iso);
  const day = `${MONTHS[date.getMonth()]} ${date.getDate()}, ${date.getFullYear()}`;
  return `${day}, ${clockSeconds(iso)} ${zone(-date.getTimezoneOffset())}`;
}

function zone(minutes: number): string {
  if (minutes === 0) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "-" : "+"}${hours}${rest ? `:${two(rest)}` : ""}`;
}
