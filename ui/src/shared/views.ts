/** Saved views: filters of the inbox under a name, kept by the server for each person. */

import { api } from "./api";
import { useChanges } from "./live";
import type { SavedView } from "./types";
import { useResource, type Resource } from "./useResource";

/** The filters in the address of the inbox. */
export const FILTERS = ["q", "mine", "risk", "agent", "tool", "kind", "expiring"] as const;
/** Seconds within which a request counts as expiring soon. */
export const SOON = 60 * 60;

/** The filters of an address as the server keeps them. */
export function filtersOf(query: URLSearchParams): Record<string, string | number | boolean> {
  const { mine, expiring, ...texts } = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  return {
    ...Object.fromEntries(Object.entries(texts).filter(([, text]) => text)),
    ...(mine ? { mine: true } : {}),
    ...(expiring ? { expires_within: SOON } : {}),
  };
}

/** The query of the inbox's address that shows a view. */
export function queryOf({ filters }: SavedView): string {
  const { mine, expires_within, ...texts } = filters;
  const query = new URLSearchParams();
  for (const name of FILTERS) {
    const text = name === "mine" ? mine && "1" : name === "expiring" ? expires_within && "1" : texts[name];
    if (text) query.set(name, text);
  }
  return query.toString();
}

/** The views of this person with their counts, which follow the live feed. */
export function useViews(active = true): Resource<SavedView[]> {
  const views = useResource(active ? "views" : null, async (signal) => (await api.views(signal)).items);
  useChanges(() => views.reload(), 1_000);
  return views;
}
