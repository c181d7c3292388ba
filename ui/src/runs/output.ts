/** A run's last word as text: the store keeps it as JSON, and most of the time it is a sentence. */

import type { Json } from "../shared/types";
import { visible } from "../shared/visible";

export function outputText(output: Json | undefined): string {
  if (output === null || output === undefined) return "";
  if (typeof output !== "string") return visible(JSON.stringify(output));
  try {
    const inner: unknown = JSON.parse(output);
    if (typeof inner === "string") return visible(inner);
  } catch {
    // It is a sentence already.
  }
  return visible(output);
}
