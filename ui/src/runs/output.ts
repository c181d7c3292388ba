import type { Json } from "../shared/types";
import { visible } from "../shared/visible";

/** The output of a run as text. It is stored as JSON, and is usually a JSON string. */
export function outputText(output: Json | undefined): string {
  if (output === null || output === undefined) return "";
  if (typeof output !== "string") return visible(JSON.stringify(output));
  try {
    const inner: unknown = JSON.parse(output);
    if (typeof inner === "string") return visible(inner);
  } catch {
    // Plain text.
  }
  return visible(output);
}
