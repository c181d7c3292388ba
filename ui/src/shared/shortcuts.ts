/** Single-key shortcuts. Ignored in fields and with modifiers; users can turn them off. */

import { useLayoutEffect, useRef, useSyncExternalStore } from "react";
import { loadSetting, saveSetting } from "./theme";

const KEY = "sayso.shortcuts";
let enabled = typeof localStorage === "undefined" || loadSetting(KEY) !== "off";
const watchers = new Set<() => void>();

export function setShortcutsEnabled(on: boolean): void {
  enabled = on;
  saveSetting(KEY, on ? null : "off");
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

export type Handler = ((event?: KeyboardEvent) => void) & { label?: string };
export type Bindings = Record<string, Handler>;

/** A handler that the palette offers by its label, or by none while it has nothing to do. */
export function named(label: string | false, run: Handler): Handler {
  return label ? Object.assign(run, { label }) : run;
}

const SEQUENCE_MS = 1_200;

/**
 * Find the handler of a key: `j`, `?`, `Escape`, or the second key of a sequence such as `g i`. The
 * last list wins. After the first key of a sequence, single keys are ignored, so `g r` never rejects.
 */
export function matchShortcut(lists: Bindings[], key: string, prefix: string): { run?: Bindings[string]; prefix: string } {
  const wanted = prefix ? `${prefix} ${key}` : key;
  const run = lists.findLast((each) => each[wanted])?.[wanted];
  if (run || prefix) return { run, prefix: "" };
  const isPrefix = lists.some((each) => Object.keys(each).some((name) => name.startsWith(`${key} `)));
  return { prefix: isPrefix ? key : "" };
}

/** The binding added last wins: an open form comes before the list behind it. */
const stack: { current: Bindings }[] = [];
let prefix = "";
let prefixAt = 0;

/** The labelled shortcuts of all that is on the page. */
export function namedShortcuts(): { key: string; label: string; run: Handler }[] {
  return stack.flatMap(({ current }) =>
    Object.entries(current).flatMap(([key, run]) => (run.label ? [{ key, label: run.label, run }] : [])),
  );
}

function listen(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const always = event.key === "Escape";
  if (!always && (!enabled || event.repeat || isTyping(event.target))) return;
  if (document.querySelector("dialog[open]")) return;
  // Space presses the button that has the focus.
  if (event.key === " " && (event.target as HTMLElement).closest?.("button, summary, [role=tab]")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const found = matchShortcut(
    stack.map((each) => each.current),
    key,
    Date.now() - prefixAt < SEQUENCE_MS ? prefix : "",
  );
  prefix = found.prefix;
  prefixAt = Date.now();
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
