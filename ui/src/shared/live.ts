/** One live feed for the whole page: its state is the dot in the top bar, its changes wake the pages. */

import { useEffect, useRef, useSyncExternalStore } from "react";
import { readSse } from "./sse";
import type { Change } from "./types";

export interface LiveState {
  /** `ended`: signed out. `closed`: this person may not hear the feed, and reads by hand. */
  state: "connecting" | "live" | "reconnecting" | "offline" | "ended" | "closed";
  /** When the next attempt is made, in milliseconds since the epoch. */
  retryAt: number | null;
  /** When we last heard from the server: what the page shows is from then. */
  heardAt: number | null;
  reason?: string;
}

/** `resync` means that changes may have been missed: read again. */
export type LiveEvent = Change | { type: "resync" };
type Listener = (event: LiveEvent) => void;

const SILENCE = 40_000;
const WAITS = [1_000, 3_000, 5_000, 10_000];
const GIVEN_UP = 3;

let state: LiveState = { state: "connecting", retryAt: null, heardAt: null };
const watchers = new Set<() => void>();
const listeners = new Set<Listener>();
let stop: AbortController | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
let silence: ReturnType<typeof setTimeout> | undefined;
let lastId = "";
let failures = 0;
let opened = false;

function set(next: Partial<LiveState>): void {
  state = { ...state, ...next };
  watchers.forEach((watch) => watch());
}

function tell(event: LiveEvent): void {
  listeners.forEach((listen) => listen(event));
}

function heard(): void {
  state = { ...state, heardAt: Date.now() };
  clearTimeout(silence);
  silence = setTimeout(() => stop?.abort(), SILENCE);
}

function later(): void {
  const wait = WAITS[Math.min(failures, WAITS.length - 1)]!;
  failures += 1;
  const offline = !navigator.onLine || failures > GIVEN_UP;
  set({ state: offline ? "offline" : "reconnecting", retryAt: Date.now() + wait });
  clearTimeout(timer);
  timer = setTimeout(() => void connect(), wait);
}

async function connect(): Promise<void> {
  clearTimeout(timer);
  stop?.abort();
  const mine = new AbortController();
  stop = mine;
  try {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (lastId) headers["Last-Event-ID"] = lastId;
    const response = await fetch("/api/events", { headers, signal: mine.signal, credentials: "same-origin" });
    if (response.status === 401 || response.status === 403) {
      set({ state: response.status === 401 ? "ended" : "closed", retryAt: null });
      return;
    }
    if (!response.ok || !response.body) throw new Error(String(response.status));
    const again = opened;
    opened = true;
    failures = 0;
    heard();
    set({ state: "live", retryAt: null });
    if (again) tell({ type: "resync" });
    await readSse(
      response,
      (message) => {
        if (message.id) lastId = message.id;
        if (message.event === "change") tell(JSON.parse(message.data) as Change);
        if (message.event === "end") {
          const { reason } = JSON.parse(message.data) as { reason: string };
          set({ state: "ended", retryAt: null, reason });
        }
      },
      heard,
    );
  } catch {
    // Told below: whatever broke the stream, we come back.
  }
  clearTimeout(silence);
  if (stop === mine && state.state !== "ended") later();
}

/** Start the feed; called once by the shell, when somebody is signed in. */
export function startLive(): () => void {
  opened = false;
  failures = 0;
  lastId = "";
  const online = () => void connect();
  const offline = () => {
    stop?.abort();
    set({ state: "offline" });
  };
  window.addEventListener("online", online);
  window.addEventListener("offline", offline);
  set({ state: "connecting", retryAt: null });
  void connect();
  return () => {
    window.removeEventListener("online", online);
    window.removeEventListener("offline", offline);
    const old = stop;
    stop = null;
    old?.abort();
    clearTimeout(timer);
    clearTimeout(silence);
  };
}

export function retryNow(): void {
  failures = 0;
  void connect();
}

export function useLive(): LiveState {
  return useSyncExternalStore(
    (watch) => {
      watchers.add(watch);
      return () => watchers.delete(watch);
    },
    () => state,
  );
}

/** Why no decision can be made now, since what is shown may be old; empty if one can. */
export function useOffline(): string {
  const { state: now } = useLive();
  if (now === "ended") return "You are signed out: sign in to decide.";
  return now === "offline" ? "Offline: nothing is decided, and nothing is queued." : "";
}

/** Hear every change; several within `quiet` milliseconds are told once, as the last of them. */
export function useChanges(listener: (events: LiveEvent[]) => void, quiet = 120): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    let pending: LiveEvent[] = [];
    let wait: ReturnType<typeof setTimeout> | undefined;
    const listen: Listener = (event) => {
      pending.push(event);
      wait ??= setTimeout(() => {
        const events = pending;
        pending = [];
        wait = undefined;
        latest.current(events);
      }, quiet);
    };
    listeners.add(listen);
    return () => {
      listeners.delete(listen);
      clearTimeout(wait);
    };
  }, [quiet]);
}
