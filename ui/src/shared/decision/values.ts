/** What is known of a JSON value before it is drawn: its type in a word, and how many lines it takes. */

import type { Json, Request } from "../types";

/** Longer values are folded, and nothing is approved until their end was seen. */
export const LONG = 40;
/** So many lines of a description are shown unasked. */
export const FEW = 6;
const COLUMNS = 84;
const FIELDS = 60;
/** Bytes of arguments from which people are warned. */
export const LARGE = 16_384;

export function typeName(value: Json | undefined): string {
  if (value === undefined) return "absent";
  if (value === null) return "null";
  if (Array.isArray(value)) return `list of ${value.length}`;
  if (typeof value === "object") return "object";
  if (typeof value === "string") return "text";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return "yes/no";
}

/** Lines on the screen, roughly; never recursive, since depth is the agent's choice. */
export function lineCount(value: Json): number {
  let lines = 0;
  const todo: Json[] = [value];
  while (todo.length) {
    const item = todo.pop()!;
    if (typeof item === "string") {
      for (const line of item.split("\n")) lines += Math.max(1, Math.ceil(line.length / COLUMNS));
    } else if (Array.isArray(item)) {
      todo.push(...item);
      lines += item.length === 0 ? 1 : 0;
    } else if (item !== null && typeof item === "object") {
      todo.push(...Object.values(item));
      lines += Object.keys(item).length === 0 ? 1 : 0;
    } else lines += 1;
  }
  return lines;
}

/** How deep a value goes; past a point it is drawn as text, because boxes in boxes become unreadable. */
export function isDeep(value: Json, limit = 6): boolean {
  const todo: [Json, number][] = [[value, 0]];
  while (todo.length) {
    const [item, depth] = todo.pop()!;
    if (item === null || typeof item !== "object") continue;
    if (depth >= limit) return true;
    for (const part of Object.values(item)) todo.push([part as Json, depth + 1]);
  }
  return false;
}

export const ALL = "the arguments";

/** The names of what is too long to be seen at a glance; each has to be opened and read to its end. */
export function longParts(args: Json): string[] {
  if (args === null || typeof args !== "object" || Array.isArray(args)) return lineCount(args) > LONG ? [ALL] : [];
  const entries = Object.entries(args);
  if (entries.length > FIELDS || isDeep(args, 40)) return [ALL];
  return entries.filter(([, value]) => lineCount(value) > LONG).map(([name]) => name);
}

const FINGERPRINT = /•••• \([\d,]+ chars?(, [^()\n]{1,40})?\)/;

/** Whether a value stands in the arguments by its fingerprint only, so that an edit would destroy it. */
export function hasFingerprint(value: Json): boolean {
  return FINGERPRINT.test(JSON.stringify(value));
}

/** The name of what is asked about; a question is one, whichever tool asked it. */
export function toolName(request: Request): string {
  if (request.kind === "question") return "Question";
  return request.tool ? (request.shown.tool ?? request.tool) : "Approval";
}

/** A question runs nothing, and "low risk" beside a call that may have run twice would only reassure. */
export function showsRisk(request: Request): boolean {
  return request.kind === "approval" || request.risk.level !== "low";
}
