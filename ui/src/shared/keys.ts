/** Single-key shortcuts: never inside a field, never with a modifier, and they can be switched off. */

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

/** Whether a key pressed there is text. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest("[contenteditable='true']")) return true;
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  return target instanceof HTMLInputElement && !["button", "submit", "reset"].includes(target.type);
}

export type Bindings = Record<string, (event: KeyboardEvent) => void>;
const SEQUENCE_MS = 1_200;

/**
 * Find what a key means, in the last list that knows it: `j`, `?`, `Escape`, or the second key of `g i`.
 * After the first key of a sequence nothing else counts, so that `g r` can never reject.
 */
export function match(lists: Bindings[], key: string, lead: string): { run?: Bindings[string]; lead: string } {
  const wanted = lead ? `${lead} ${key}` : key;
  const run = lists.findLast((each) => each[wanted])?.[wanted];
  if (run || lead) return { run, lead: "" };
  const leads = lists.some((each) => Object.keys(each).some((name) => name.startsWith(`${key} `)));
  return { lead: leads ? key : "" };
}

/** The last one added is asked first: an open form before the list behind it. */
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
 * Listen while the component is mounted. Keys do nothing while a dialog is open.
 * A layout effect, because a plain one may run after the paint: keys pressed in between would be lost.
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
