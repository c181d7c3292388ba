/**
 * Undo: the server holds a decision for a few seconds, in which its author can take it back. There is
 * none where a confirmation step came before, and none if the person has turned it off.
 */

import { useEffect, useRef, useSyncExternalStore } from "react";
import { ApiError, api } from "./api";
import { closeToast, toast } from "./components/Toasts";
import { confirmationFor } from "./decision/approvalGuard";
import { navigate } from "./router";
import { loadSetting, saveSetting } from "./theme";
import type { DecisionBody, Request } from "./types";

const KEY = "sayso.undo";
/** How long Undo is offered, and how long the server holds the decision: a click may take a while. */
const OFFERED_MS = 5_000;
const HELD_SECONDS = 6;

let enabled = typeof localStorage === "undefined" || loadSetting(KEY) !== "off";
const watchers = new Set<() => void>();

export function setUndoEnabled(on: boolean): void {
  enabled = on;
  saveSetting(KEY, on ? null : "off");
  watchers.forEach((watch) => watch());
}

export function useUndoEnabled(): boolean {
  return useSyncExternalStore(
    (watch) => {
      watchers.add(watch);
      return () => watchers.delete(watch);
    },
    () => enabled,
  );
}

/** For how many seconds a decision can be undone. */
export function undoSeconds(request: Request, body: Pick<DecisionBody, "type" | "grant">): number {
  const asks = body.type === "approve" || body.type === "edit" ? confirmationFor(request) !== "direct" : false;
  const confirmed = asks || body.grant !== undefined || request.kind === "in_doubt" || request.confirm_with === "passkey";
  return enabled && !confirmed ? HELD_SECONDS : 0;
}

interface Offer {
  id: string;
  toast: number;
  until: number;
}

let offers: Offer[] = [];
const listeners = new Set<(request: Request) => void>();

/** Report a decision, and offer to undo it. */
export function toastWithUndo(text: string, request: Request): void {
  const offer = { id: request.id, until: Date.now() + OFFERED_MS, toast: 0 };
  offer.toast = toast(text, "good", { label: "Undo", shortcut: "U", run: () => void undo(offer) }, OFFERED_MS);
  offers = [...offers.filter(({ until }) => until > Date.now()), offer];
}

/** Undo the last decision that can still be undone. Returns whether there was one. */
export function undoLast(): boolean {
  const offer = offers.findLast(({ until }) => until > Date.now());
  if (offer) void undo(offer);
  return offer !== undefined;
}

async function undo(offer: Offer): Promise<void> {
  offers = offers.filter((other) => other !== offer);
  closeToast(offer.toast);
  try {
    const request = await api.undo(offer.id);
    toast(`Undone: ${request.shown.title}`, "info");
    if (listeners.size === 0) navigate(`/inbox/${request.id}`);
    listeners.forEach((listen) => listen(request));
  } catch (problem) {
    toast(problem instanceof ApiError ? problem.message : String(problem), "bad");
  }
}

/** Call `listener` with each request whose decision was undone here. */
export function useUndone(listener: (request: Request) => void): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const listen = (request: Request) => latest.current(request);
    listeners.add(listen);
    return () => void listeners.delete(listen);
  }, []);
}
