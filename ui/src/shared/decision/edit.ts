/** An edit as the server takes it: the arguments that it changes, and the names of those that it removes. */

import type { Edit, JsonObject, Request } from "../types";

/** The arguments that an edit changes: as they were written, before any validator. */
export function editable(request: Request): JsonObject {
  return request.written ?? request.args;
}

/** The written arguments of which validators made others. Defaults that were added are left out. */
export function converted(request: Request): string[] {
  const same = (name: string) => JSON.stringify(request.written?.[name]) === JSON.stringify(request.args[name]);
  return Object.keys(request.written ?? {}).filter((name) => !same(name));
}

/** The edit that turns the arguments that were shown into these. A form leaves a cleared field undefined. */
export function editOf(shown: JsonObject, args: JsonObject): Edit {
  const text = (value: unknown) => JSON.stringify(value);
  const changed = Object.entries(args).filter(([name, value]) => value !== undefined && text(value) !== text(shown[name]));
  return {
    args: Object.fromEntries(changed),
    unset: Object.keys(shown).filter((name) => args[name] === undefined),
  };
}
