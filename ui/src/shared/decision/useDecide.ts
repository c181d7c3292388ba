/**
 * Send decisions, one at a time and without a queue. If a decision gets no response, the request is
 * read again to find out whether the decision was recorded.
 */

import { useRef, useState } from "react";
import { ApiError, api } from "../api";
import { toast } from "../components/Toasts";
import { signWithPasskey } from "../passkey";
import { useMe } from "../session";
import { toastWithUndo, undoSeconds } from "../undo";
import type { DecisionBody, Request } from "../types";
import { dropDraft } from "./draft";

export interface Deciding {
  busy: boolean;
  error: ApiError | null;
  clear: () => void;
  /** Resolves to whether the decision was recorded. */
  send: (body: Omit<DecisionBody, "seen_digest">) => Promise<boolean>;
}

/** Requests decided on this page. Their events are not reported as decisions from elsewhere. */
export const sentHere = new Set<string>();

const DONE = { approve: "Approved", edit: "Approved with edits", reject: "Rejected", respond: "Answered" } as const;

export function useDecide(
  request: Request,
  after: (request: Request) => void,
  conflict: (error: ApiError) => void,
  complete: boolean,
  decide?: typeof api.decide,
): Deciding {
  const [state, setState] = useState<{ id: string; busy: boolean; error: ApiError | null }>({
    id: request.id,
    busy: false,
    error: null,
  });
  const sending = useRef(false);
  const { name: me } = useMe();
  const revision = `${request.id} ${request.revision}`;
  const opened = useRef({ revision: "", at: 0 });
  if (opened.current.revision !== revision) opened.current = { revision, at: Date.now() };
  const mine = state.id === request.id;
  const send: Deciding["send"] = async (body) => {
    if (sending.current) return false;
    sending.current = true;
    sentHere.add(request.id);
    setState({ id: request.id, busy: true, error: null });
    try {
      // A chat goes on at once.
      const seconds = decide ? 0 : undoSeconds(request, body);
      const shown = { seconds: Math.max(0, Date.now() - opened.current.at) / 1_000, complete };
      const inInbox = decide ? {} : { shown, ...(seconds ? { undo_seconds: seconds } : {}) };
      const plain = { ...body, seen_digest: request.digest, ...inInbox };
      const sent =
        request.confirm_with === "passkey"
          ? { ...plain, passkey: await signWithPasskey(await api.confirmation(request.id, plain)) }
          : plain;
      const result = await (decide ?? api.decide)(request.id, sent).catch((problem: unknown) => confirmed(problem, request, body, me));
      dropDraft(request.id);
      if (result.status === "pending") sentHere.delete(request.id);
      const waits = result.status === "pending" && (body.type === "approve" || body.type === "edit");
      const refused = waits && result.refusals.length > request.refusals.length;
      if (refused) toast("A call with these arguments was rejected before. See why, then decide.", "bad");
      else {
        const text = waits ? `Your approval is recorded. ${more(result)}` : `${DONE[body.type]}: ${request.shown.title}`;
        if (seconds) toastWithUndo(text, result);
        else toast(text, "good");
      }
      setState({ id: request.id, busy: false, error: null });
      after(result);
      return true;
    } catch (problem) {
      const error = problem instanceof ApiError ? problem : new ApiError(0, "Error", String(problem));
      sentHere.delete(request.id);
      setState({ id: request.id, busy: false, error });
      if (error.status === 409 || error.status === 404) conflict(error);
      return false;
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

/** Return the request if the server recorded the decision although the response was lost; else throw. */
async function confirmed(
  problem: unknown,
  request: Request,
  body: Pick<DecisionBody, "type">,
  me: string,
): Promise<Request> {
  if (!(problem instanceof ApiError) || problem.status !== 0) throw problem;
  const found = await api.recorded(request.id).catch(() => null);
  if (!found) throw problem;
  const { decision, votes } = found;
  if (decision?.by === me && decision.type === body.type) return found;
  if (found.status !== "pending") throw new ApiError(409, "Conflict", `The request is no longer pending (${found.status}).`, undefined, decision ?? undefined);
  if (votes.some((vote) => vote.by === me) && !request.votes.some((vote) => vote.by === me)) return found;
  throw new ApiError(408, "TimedOut", `${problem.message.replace(" Try again.", "")} The request is still pending.`);
}

function more(request: Request): string {
  const left = Math.max(0, request.quorum - request.votes.length);
  return left === 1 ? "1 more approval is needed." : `${left} more approvals are needed.`;
}
