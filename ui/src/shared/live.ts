/**
 * The live feed, once per browser. A browser opens at most six HTTP/1.1 connections to a server, so
 * pages must not hold one each: of all visible pages one leads, reads the feed and passes what it
 * hears to the others over a channel. A page that is hidden, left or kept for the back button holds
 * no connection; the next leader asks for what came after the last event that any page heard.
 *
 * The lead is a Web Lock, which the browser frees even if the page crashes. Without locks (a page
 * over plain HTTP from another machine) every visible page reads the feed itself.
 */

import { useEffect, useRef, useSyncExternalStore } from "react";
import { readSse } from "./sse";
import type { Change } from "./types";

export interface LiveState {
  /** `ended`: signed out. `closed`: this person may not read the feed, so pages poll. */
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

/** What pages say to each other. */
type Message =
  | { kind: "hello" }
  | { kind: "retry" }
  | { kind: "state"; state: LiveState; lastId: string }
  | { kind: "event"; event: LiveEvent; lastId: string };

const SILENCE = 40_000;
const WAITS = [1_000, 3_000, 5_000, 10_000];
const GIVEN_UP = 3;
/** A hidden page reads anew this often, so that the count in its title stays about right. */
const HIDDEN = 60_000;

let state: LiveState = { state: "connecting", retryAt: null, heardAt: null };
/** The last event that any page heard: the next leader continues there. */
let lastId = "";
/** Whether this page has heard the feed before, so that a gap is possible. */
let opened = false;
const watchers = new Set<() => void>();
const listeners = new Set<Listener>();
let retry: () => void = () => {};

function adopt(next: LiveState): void {
  state = next;
  watchers.forEach((watch) => watch());
}

function tell(event: LiveEvent): void {
  listeners.forEach((listen) => listen(event));
}

/**
 * Read the feed until `ends` is aborted, reconnecting with growing pauses. Returns how to retry at
 * once. Calls `giveUp` if the server refuses this person.
 */
function follow(ends: AbortSignal, publish: (message: Message) => void, giveUp: () => void): () => void {
  let stop: AbortController | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let silence: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;
  const set = (next: Partial<LiveState>) => {
    adopt({ ...state, ...next });
    publish({ kind: "state", state, lastId });
  };
  const pass = (event: LiveEvent) => {
    tell(event);
    publish({ kind: "event", event, lastId });
  };
  const heard = () => {
    state = { ...state, heardAt: Date.now() };
    clearTimeout(silence);
    silence = setTimeout(() => stop?.abort(), SILENCE);
  };
  const later = () => {
    const wait = WAITS[Math.min(failures, WAITS.length - 1)]!;
    failures += 1;
    const offline = !navigator.onLine || failures > GIVEN_UP;
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
      // Whatever broke the stream, we reconnect.
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

/** Take part in the feed while the page is visible; `person` is who is signed in. */
export function startLive(person: string): () => void {
  const name = `sayso.live ${person}`;
  adopt({ state: "connecting", retryAt: null, heardAt: null });
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
      if (data.kind === "state") adopt(data.state);
      else tell(data.event);
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
    // Another page that signs in again must find the lead free.
    retry = follow(mine.signal, publish, () => mine.abort());
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
    // Something may have changed while this page heard nothing.
    if (opened) tell({ type: "resync" });
  };
  const leave = () => {
    ends?.abort();
    channel?.close();
    ends = channel = null;
  };
  const turn = () => (document.visibilityState === "visible" ? join() : leave());
  const hidden = setInterval(() => document.visibilityState === "hidden" && tell({ type: "resync" }), HIDDEN);

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

/** Why no decision can be made now, since what is shown may be old; empty if one can. */
export function useOffline(): string {
  const { state: now } = useLive();
  if (now === "ended") return "You are signed out: sign in to decide.";
  return now === "offline" ? "You are offline. You can decide once the connection is back." : "";
}

/** Hear every change; those within `quiet` milliseconds arrive together. */
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
