/** Sending a decision: one at a time, nothing queued, and a failure says whether anything was recorded. */

import { useRef, useState } from "react";
import { ApiError, api } from "../api";
import { toast } from "../components/Toasts";
import type { DecisionBody, Request } from "../types";
import { dropDraft } from "./draft";
import { title } from "./values";

export interface Deciding {
  busy: boolean;
  error: ApiError | null;
  clear: () => void;
  send: (body: Omit<DecisionBody, "seen_digest">) => Promise<void>;
}

/** What this page itself sent: when the feed tells of it, that is no news from somebody else. */
export const sentHere = new Set<string>();

const DONE = { approve: "Approved", edit: "Approved with edits", reject: "Rejected", respond: "Answered" } as const;

export function useDecide(
  request: Request,
  after: (request: Request) => void,
  conflict: (error: ApiError) => void,
  decide: typeof api.decide = api.decide,
): Deciding {
  const [state, setState] = useState<{ id: string; busy: boolean; error: ApiError | null }>({
    id: request.id,
    busy: false,
    error: null,
  });
  const sending = useRef(false);
  const mine = state.id === request.id;
  const send: Deciding["send"] = async (body) => {
    if (sending.current) return;
    sending.current = true;
    sentHere.add(request.id);
    setState({ id: request.id, busy: true, error: null });
    try {
      const result = await decide(request.id, { ...body, seen_digest: request.digest });
      dropDraft(request.id);
      if (result.status === "pending") sentHere.delete(request.id);
      const waits = result.status === "pending" && (body.type === "approve" || body.type === "edit");
      toast(waits ? `Your yes is recorded. ${more(result)}` : `${DONE[body.type]}: ${title(request)}`, "good");
      setState({ id: request.id, busy: false, error: null });
      after(result);
    } catch (problem) {
      const error = problem instanceof ApiError ? problem : new ApiError(0, "Error", String(problem));
      sentHere.delete(request.id);
      setState({ id: request.id, busy: false, error });
      if (error.status === 409 || error.status === 404) conflict(error);
    } finally {
      sending.current = false;
    }
  };
  return {
    busy: mine && state.busy,
    error: mine ? state.error : null,
    clear: () => setState({ id: request.id, busy: false, error: null }),
    send,
  };
}

function more(request: Request): string {
  const left = Math.max(0, request.quorum - request.votes.length);
  return left === 1 ? "One more person has to agree." : `${left} more people have to agree.`;
}
