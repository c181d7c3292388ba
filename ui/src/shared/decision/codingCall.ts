/** Recognizes the calls of coding agents: run a command, edit a file, fetch a URL. */

import type { Json } from "../types";
import { hostOf } from "./inWords";

export interface Change {
  /** The text to replace; null if the whole file is written. */
  before: string | null;
  after: string;
}

export type CodingCall =
  | { kind: "command"; command: string; cwd: string | null; rest: Record<string, Json> }
  | { kind: "edit"; path: string; cwd: string | null; changes: Change[]; rest: Record<string, Json> }
  | { kind: "fetch"; url: string; host: string; rest: Record<string, Json> };

const SHELLS = ["Bash", "bash", "shell", "local_shell", "exec_command", "run_shell_command", "powershell"];
const EDITORS = ["Write", "Edit", "MultiEdit", "write_file", "replace", "create", "edit", "str_replace"];
const FETCHERS = ["WebFetch", "web_fetch", "fetch"];
const PATHS = ["file_path", "path", "filePath"];

/** Parse a known call; null if it is not one. `rest` has the remaining arguments, which are shown separately. */
export function codingCall(tool: string | null, args: Json): CodingCall | null {
  if (tool === null || args === null || typeof args !== "object" || Array.isArray(args)) return null;
  if (SHELLS.includes(tool)) return command(args);
  if (EDITORS.includes(tool)) return edit(args);
  return FETCHERS.includes(tool) ? fetched(args) : null;
}

function without(args: Record<string, Json>, ...names: string[]): Record<string, Json> {
  return Object.fromEntries(Object.entries(args).filter(([name]) => !names.includes(name)));
}

function place(args: Record<string, Json>): string | null {
  return typeof args.cwd === "string" ? args.cwd : null;
}

function command(args: Record<string, Json>): CodingCall | null {
  const name = typeof args.command === "string" ? "command" : "cmd";
  const text = args[name];
  if (typeof text !== "string") return null;
  const cwd = place(args);
  return { kind: "command", command: text, cwd, rest: without(args, name, ...(cwd === null ? [] : ["cwd"])) };
}

function edit(args: Record<string, Json>): CodingCall | null {
  const named = PATHS.find((name) => typeof args[name] === "string");
  const found = changes(args);
  if (!named || !found) return null;
  const cwd = place(args);
  const used = [named, ...found.used, ...(cwd === null ? [] : ["cwd"])];
  return { kind: "edit", path: String(args[named]), cwd, changes: found.changes, rest: without(args, ...used) };
}

/** The changes of an edit. Agents name these arguments differently. */
function changes(args: Record<string, Json>): { changes: Change[]; used: string[] } | null {
  for (const [before, after] of [["old_string", "new_string"], ["old_str", "new_str"]] as const) {
    const change = replaced(args, before, after);
    if (change) return { changes: [change], used: [before, after] };
  }
  if (Array.isArray(args.edits) && args.edits.length > 0) {
    const each = args.edits.map((one) => (isPlain(one) ? replaced(one, "old_string", "new_string") : null));
    // Edits with other keys, such as replace_all, are shown as plain arguments instead.
    const whole = args.edits.every((one) => isPlain(one) && Object.keys(one).length === 2);
    if (whole && each.every((one) => one !== null)) return { changes: each as Change[], used: ["edits"] };
  }
  for (const name of ["content", "file_text"]) {
    const text = args[name];
    if (typeof text === "string") return { changes: [{ before: null, after: text }], used: [name] };
  }
  return null;
}

function isPlain(value: Json): value is Record<string, Json> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function replaced(args: Record<string, Json>, before: string, after: string): Change | null {
  const [old, fresh] = [args[before], args[after]];
  return typeof old === "string" && typeof fresh === "string" ? { before: old, after: fresh } : null;
}

function fetched(args: Record<string, Json>): CodingCall | null {
  if (typeof args.url !== "string") return null;
  return { kind: "fetch", url: args.url, host: hostOf(args.url) ?? "", rest: without(args, "url") };
}
