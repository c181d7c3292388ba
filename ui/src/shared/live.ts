/**
 * The live feed, one connection per browser. A browser opens at most six HTTP/1.1 connections to a
 * server, so tabs cannot hold one each. One visible tab is the leader: it reads the feed and forwards
 * events to the other tabs over a BroadcastChannel. A tab that is hidden, closed or kept in the
 * back/forward cache holds no connection. A new leader continues after the last event any tab received.
 *
 * The leader holds a Web Lock, which the browser releases even if the tab crashes. Where locks are not
 * available (plain HTTP from another machine), every visible tab reads the feed itself.
 */

import { useEffect, useRef, useSyncExternalStore } from "react";
import { readSse } from "./sse";
import type { Change } from "./types";

export interface LiveState {
  /** `ended`: signed out. `closed`: the user may not read the feed, so pages poll. */
  state: "connecting" | "live" | "reconnecting" | "offline" | "ended" | "closed";
  /** Time of the next attempt, in milliseconds since the epoch. */
  retryAt: number | null;
  /** When the server last sent something; the page shows the state as of then. */
  heardAt: number | null;
  reason?: string;
}

/** `resync`: changes may have been missed, so read everything again. */
export type LiveEvent = Change | { type: "resync" };
type Listener = (event: LiveEvent) => void;

/** Messages between tabs. */
type Message =
  | { kind: "hello" }
  | { kind: "retry" }
  | { kind: "state"; state: LiveState; lastId: string }
  | { kind: "event"; event: LiveEvent; lastId: string };

/** Reconnect after this long without a message or keep-alive. */
const SILENCE = 40_000;
const RETRY_DELAYS = [1_000, 3_000, 5_000, 10_000];
/** Failed attempts after which the state is `offline`. */
const OFFLINE_AFTER = 3;
/** How often a hidden tab reloads, so that the count in its title stays roughly right. */
const HIDDEN = 60_000;

let state: LiveState = { state: "connecting", retryAt: null, heardAt: null };
/** The last event that any tab received. A new leader continues there. */
let lastId = "";
/** Whether this tab has received events before, so that there can be a gap. */
let opened = false;
const watchers = new Set<() => void>();
const listeners = new Set<Listener>();
let retry: () => void = () => {};

function setState(next: LiveState): void {
  state = next;
  watchers.forEach((watch) => watch());
}

function notify(event: LiveEvent): void {
  listeners.forEach((listen) => listen(event));
}

/**
 * Read the feed until `ends` is aborted, reconnecting with growing delays. Returns a function that
 * retries at once. Calls `giveUp` if the server refuses access.
 */
function readFeed(ends: AbortSignal, publish: (message: Message) => void, giveUp: () => void): () => void {
  let stop: AbortController | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let silence: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;
  const set = (next: Partial<LiveState>) => {
    setState({ ...state, ...next });
    publish({ kind: "state", state, lastId });
  };
  const pass = (event: LiveEvent) => {
    notify(event);
    publish({ kind: "event", event, lastId });
  };
  const heard = () => {
    state = { ...state, heardAt: Date.now() };
    clearTimeout(silence);
    silence = setTimeout(() => stop?.abort(), SILENCE);
  };
  const later = () => {
    const wait = RETRY_DELAYS[Math.min(failures, RETRY_DELAYS.length - 1)]!;
    failures += 1;
    const offline = !navigator.onLine || failures > OFFLINE_AFTER;
    set({ state: offline ? "offline" : "reconnecting", retryAt: Date.now() + wait });
    clearTimeout(timer);
    timer = setTimeout(() => void connect(), wait);
  };
  const connect = async (): Promise<void> => {
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
        giveUp();
        return;
      }
      if (!response.ok || !response.body) throw new Error(String(response.status));
      failures = 0;
      heard();
      set({ state: "live", retryAt: null });
      if (opened) pass({ type: "resync" });
      opened = true;
      await readSse(
        response,
        (message) => {
          if (message.id) lastId = message.id;
          if (message.event === "change") pass(JSON.parse(message.data) as Change);
          if (message.event === "end") {
            const { reason } = JSON.parse(message.data) as { reason: string };
            set({ state: "ended", retryAt: null, reason });
            giveUp();
          }
        },
        heard,
      );
    } catch {
      // Reconnect, whatever broke the stream.
    }
    clearTimeout(silence);
    if (stop === mine && !ends.aborted) later();
  };
  const now = () => {
    failures = 0;
    void connect();
  };
  const offline = () => {
    stop?.abort();
    set({ state: "offline" });
  };
  window.addEventListener("online", now, { signal: ends });
  window.addEventListener("offline", offline, { signal: ends });
  ends.addEventListener("abort", () => {
    clearTimeout(timer);
    clearTimeout(silence);
    stop?.abort();
  });
  void connect();
  return now;
}

/** Follow the feed while the tab is visible. `person` is the signed-in user. */
export function startLive(person: string): () => void {
  const name = `sayso.live ${person}`;
  setState({ state: "connecting", retryAt: null, heardAt: null });
  lastId = "";
  opened = false;
  let ends: AbortController | null = null;
  let channel: BroadcastChannel | null = null;
  let leads = false;

  const publish = (message: Message) => channel?.postMessage(message);
  const hear = ({ data }: MessageEvent<Message>) => {
    if (data.kind === "hello") {
      if (leads) publish({ kind: "state", state, lastId });
    } else if (data.kind === "retry") {
      if (leads) retry();
    } else {
      lastId = data.lastId || lastId;
      opened = true;
      if (data.kind === "state") setState(data.state);
      else notify(data.event);
    }
  };
  const lead = (mine: AbortController) => {
    leads = true;
    const over = new Promise<void>((resolve) =>
      mine.signal.addEventListener("abort", () => {
        leads = false;
        resolve();
      }),
    );
    // Release the lock when access is refused: another tab may sign in again and needs it.
    retry = readFeed(mine.signal, publish, () => mine.abort());
    return over;
  };
  const join = () => {
    if (ends || document.visibilityState !== "visible") return;
    const mine = new AbortController();
    ends = mine;
    channel = new BroadcastChannel(name);
    channel.onmessage = hear;
    retry = () => publish({ kind: "retry" });
    publish({ kind: "hello" });
    if (!navigator.locks) void lead(mine);
    else navigator.locks.request(name, { signal: mine.signal }, () => lead(mine)).catch(() => {});
    // Something may have changed while this tab was not listening.
    if (opened) notify({ type: "resync" });
  };
  const leave = () => {
    ends?.abort();
    channel?.close();
    ends = channel = null;
  };
  const turn = () => (document.visibilityState === "visible" ? join() : leave());
  const hidden = setInterval(() => document.visibilityState === "hidden" && notify({ type: "resync" }), HIDDEN);

  document.addEventListener("visibilitychange", turn);
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", join);
  join();
  return () => {
    clearInterval(hidden);
    document.removeEventListener("visibilitychange", turn);
    window.removeEventListener("pagehide", leave);
    window.removeEventListener("pageshow", join);
    leave();
  };
}

export function retryNow(): void {
  retry();
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

/** Why decisions are disabled while the page may be out of date; empty if they are not. */
export function useOffline(): string {
  const { state: now } = useLive();
  if (now === "ended") return "You are signed out. Sign in to decide.";
  return now === "offline" ? "You are offline. You can decide once the connection is back." : "";
}

/** Call `listener` with changes, batched over `quiet` milliseconds. */
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
