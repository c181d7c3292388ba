/** An edit as the server takes it: the arguments that it changes, and the names of those that it removes. */

import type { Edit, JsonObject } from "../types";

/** The edit that turns the arguments that were shown into these. A form leaves a cleared field undefined. */
export function editOf(shown: JsonObject, args: JsonObject): Edit {
  const text = (value: unknown) => JSON.stringify(value);
  const changed = Object.entries(args).filter(([name, value]) => value !== undefined && text(value) !== text(shown[name]));
  return {
    args: Object.fromEntries(changed),
    unset: Object.keys(shown).filter((name) => args[name] === undefined),
  };
}
