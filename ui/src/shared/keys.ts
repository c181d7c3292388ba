/** Single-key shortcuts. Ignored in fields and with modifiers; users can turn them off. */

import { useLayoutEffect, useRef, useSyncExternalStore } from "react";
import { recall, remember } from "./theme";

const KEY = "sayso.shortcuts";
let enabled = typeof localStorage === "undefined" || recall(KEY) !== "off";
const watchers = new Set<() => void>();

export function setShortcuts(on: boolean): void {
  enabled = on;
  remember(KEY, on ? null : "off");
  watchers.forEach((watch) => watch());
}

export function useShortcutsEnabled(): boolean {
  return useSyncExternalStore(
    (watch) => {
      watchers.add(watch);
      return () => watchers.delete(watch);
    },
    () => enabled,
  );
}

/** Whether a key pressed on this element enters text. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest("[contenteditable='true']")) return true;
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  return target instanceof HTMLInputElement && !["button", "submit", "reset"].includes(target.type);
}

export type Bindings = Record<string, (event: KeyboardEvent) => void>;
const SEQUENCE_MS = 1_200;

/**
 * Find the handler of a key: `j`, `?`, `Escape`, or the second key of a sequence such as `g i`. The
 * last list wins. After the first key of a sequence, single keys are ignored, so `g r` never rejects.
 */
export function match(lists: Bindings[], key: string, lead: string): { run?: Bindings[string]; lead: string } {
  const wanted = lead ? `${lead} ${key}` : key;
  const run = lists.findLast((each) => each[wanted])?.[wanted];
  if (run || lead) return { run, lead: "" };
  const leads = lists.some((each) => Object.keys(each).some((name) => name.startsWith(`${key} `)));
  return { lead: leads ? key : "" };
}

/** The binding added last wins: an open form comes before the list behind it. */
const stack: { current: Bindings }[] = [];
let lead = "";
let leadAt = 0;

function listen(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const always = event.key === "Escape";
  if (!always && (!enabled || event.repeat || isTyping(event.target))) return;
  if (document.querySelector("dialog[open]")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const found = match(
    stack.map((each) => each.current),
    key,
    Date.now() - leadAt < SEQUENCE_MS ? lead : "",
  );
  lead = found.lead;
  leadAt = Date.now();
  if (!found.run) return;
  event.preventDefault();
  found.run(event);
}

/**
 * Handle shortcuts while the component is mounted. Keys do nothing while a dialog is open. Uses a
 * layout effect, because a plain effect may run after the paint and miss keys pressed in between.
 */
export function useShortcuts(bindings: Bindings, active = true): void {
  const latest = useRef(bindings);
  latest.current = bindings;
  useLayoutEffect(() => {
    if (!active) return;
    if (stack.length === 0) window.addEventListener("keydown", listen);
    stack.push(latest);
    return () => {
      stack.splice(stack.indexOf(latest), 1);
      if (stack.length === 0) window.removeEventListener("keydown", listen);
    };
  }, [active]);
}
