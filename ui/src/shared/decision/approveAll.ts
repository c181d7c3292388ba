/** Approve the pending requests that a grant covers, together. */

import { api, type OneOfMany } from "../api";
import { toast } from "../components/Toasts";
import type { GrantPreview } from "../types";

/** One that changed since stays pending. */
export async function approveAll(pending: GrantPreview["pending"]): Promise<void> {
  const items: OneOfMany[] = pending
    .filter((request) => request.digest !== null)
    .map(({ id, digest }) => ({ id, type: "approve", seen_digest: digest }));
  if (items.length === 0) return;
  const { items: outcomes } = await api.decideAll(items.slice(0, 100));
  const left = outcomes.filter((outcome) => outcome.error).length;
  if (left > 0) toast(`${left} of the pending requests could not be approved together. Decide them one by one.`, "bad");
}
