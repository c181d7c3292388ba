/** Unsent input for a request. Kept while the page is open, so that an error does not lose it. */

import { useSyncExternalStore } from "react";
import type { JsonObject } from "../types";
import { NO_ANSWER, type Answer } from "./answer";

export interface Draft {
  mode: "none" | "edit" | "reject" | "respond" | "note";
  args?: JsonObject;
  reason: string;
  /** A note with an approval. */
  note: string;
  answer: string;
  asJson: boolean;
  /** The answer to a question. */
  reply: Answer;
}

const EMPTY: Draft = { mode: "none", reason: "", note: "", answer: "", asJson: false, reply: NO_ANSWER };
const drafts = new Map<string, Draft>();
const watchers = new Set<() => void>();

export function setDraft(id: string, change: Partial<Draft>): void {
  drafts.set(id, { ...(drafts.get(id) ?? EMPTY), ...change });
  watchers.forEach((watch) => watch());
}

export function dropDraft(id: string): void {
  drafts.delete(id);
  watchers.forEach((watch) => watch());
}

export function useDraft(id: string): Draft {
  return useSyncExternalStore(
    (watch) => {
      watchers.add(watch);
      return () => watchers.delete(watch);
    },
    () => drafts.get(id) ?? EMPTY,
  );
}
