/** Properties of JSON values that decide how they are shown: type, length, depth. */

import type { Json, Request } from "../types";
import { visible } from "../visible";

/** Values with more lines are collapsed and must be read to their end before approval. */
export const LONG_LINES = 40;
/** Longer descriptions are collapsed. */
export const SHORT_DESCRIPTION = 6;
const COLUMNS = 84;
const MAX_FIELDS = 60;
/** Arguments with more bytes than this get a warning. */
export const LARGE_BYTES = 16_384;

export function typeName(value: Json | undefined): string {
  if (value === undefined) return "absent";
  if (value === null) return "null";
  if (Array.isArray(value)) return `list of ${value.length}`;
  if (typeof value === "object") return "object";
  if (typeof value === "string") return "text";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return "yes/no";
}

/** The approximate number of lines on the screen. Not recursive, because agents choose the depth. */
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

/** Whether a value is nested too deeply to show as boxes; it is then shown as JSON text. */
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

export const ALL_ARGS = "the arguments";

/** The names of the arguments that must be opened and read to their end before approval. */
export function longParts(args: Json): string[] {
  if (args === null || typeof args !== "object" || Array.isArray(args)) return lineCount(args) > LONG_LINES ? [ALL_ARGS] : [];
  const entries = Object.entries(args);
  if (entries.length > MAX_FIELDS || isDeep(args, 40)) return [ALL_ARGS];
  return entries.filter(([, value]) => lineCount(value) > LONG_LINES).map(([name]) => name);
}

const FINGERPRINT = /•••• \([\d,]+ chars?(, [^()\n]{1,40})?\)/;

/** Whether a value contains a fingerprint in place of a masked secret, so that sending it would lose the secret. */
export function hasFingerprint(value: Json): boolean {
  return FINGERPRINT.test(JSON.stringify(value));
}

/** The tool's name to show. A question is shown as one, whichever tool asked it. */
export function toolName(request: Request): string {
  if (request.kind === "question") return "Question";
  return request.tool ? (request.shown.tool ?? request.tool) : "Approval";
}

/** A tool's name in words, with which the titles of its calls begin: `getWeather` is "Get weather". */
export function humanName(tool: string): string {
  const words = tool
    .replace(/(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g, " ")
    .split(/[^\p{L}\p{N}]+/u)
    .filter(Boolean);
  const name = words.map((word) => (/^\P{Ll}*\p{Lu}\P{Ll}*$/u.test(word) ? word : word.toLowerCase())).join(" ");
  return name ? name.charAt(0).toUpperCase() + name.slice(1) : visible(tool);
}

/** A question runs nothing, and "low risk" would be misleading for a call that may run twice. */
export function showsRisk(request: Request): boolean {
  return request.kind === "approval" || request.risk.level !== "low";
}
