/** Decisions in the AI SDK's chat protocol. */

import type { DecisionBody, Request } from "../shared/types";
import type { Call } from "./parts";

export type Words =
  | { say: "approval"; id: string; approved: boolean; reason?: string; body?: object }
  | { say: "output"; output: unknown }
  | { say: "error"; errorText: string };

/**
 * The chat message for a decision, whose response streams what follows. Null if the chat protocol cannot
 * express the decision, or if the card showed another revision than the chat has. The decision then goes
 * to the request's own route, which checks the digest that was seen.
 */
export function wordsFor(call: Call, request: Request, decision: DecisionBody): Words | null {
  if (decision.grant || request.id !== call.id) return null;
  const approval = call.part.state === "approval-requested" ? call.part.approval.id : null;
  if (approval !== null) {
    if (approval !== `${call.id}.r${request.revision}${request.kind === "in_doubt" ? "d" : ""}`) return null;
    return confirmed(approval, request, decision);
  }
  if (call.stand !== "asking") return null;
  if (decision.type === "reject") return { say: "error", errorText: decision.message ?? "" };
  if (decision.type !== "respond") return null;
  return { say: "output", output: request.kind === "question" ? { answer: decision.value } : decision.value };
}

function confirmed(id: string, request: Request, decision: DecisionBody): Words | null {
  switch (decision.type) {
    case "approve":
      return { say: "approval", id, approved: true };
    case "reject":
      return { say: "approval", id, approved: false, reason: decision.message || undefined };
    case "respond":
      return { say: "approval", id, approved: true, body: { answers: { [id]: decision.value } } };
    case "edit":
      // The chat merges an edit into the old arguments, so it cannot remove one of them.
      return Object.keys(request.args).every((name) => name in (decision.args ?? {}))
        ? { say: "approval", id, approved: true, body: { edits: { [id]: decision.args } } }
        : null;
  }
}
