/** Decisions in the AI SDK's chat protocol. */

import type { DecisionBody, Request } from "../shared/types";
import type { Call } from "./messageParts";

export type ChatReply =
  | { kind: "approval"; id: string; approved: boolean; reason?: string; body?: object }
  | { kind: "output"; output: unknown }
  | { kind: "error"; errorText: string };

/**
 * The chat message for a decision, whose response streams what follows. Null if the chat protocol cannot
 * express the decision, or if the card showed another revision than the chat has. The decision then goes
 * to the request's own route, which checks the digest that was seen.
 */
export function toChatReply(call: Call, request: Request, decision: DecisionBody): ChatReply | null {
  if (decision.grant || decision.stop || request.id !== call.id) return null;
  const approval = call.part.state === "approval-requested" ? call.part.approval.id : null;
  if (approval !== null) {
    if (approval !== `${call.id}.r${request.revision}${request.kind === "in_doubt" ? "d" : ""}`) return null;
    return approvalReply(approval, decision);
  }
  if (call.state !== "asking") return null;
  if (decision.type === "reject") return { kind: "error", errorText: decision.message ?? "" };
  if (decision.type !== "respond") return null;
  return { kind: "output", output: request.kind === "question" ? { answer: decision.value } : decision.value };
}

function approvalReply(id: string, decision: DecisionBody): ChatReply {
  switch (decision.type) {
    case "approve":
      return { kind: "approval", id, approved: true };
    case "reject":
      return { kind: "approval", id, approved: false, reason: decision.message || undefined };
    case "respond":
      return { kind: "approval", id, approved: true, body: { answers: { [id]: decision.value } } };
    case "edit":
      return { kind: "approval", id, approved: true, body: { edits: { [id]: decision.args }, unset: { [id]: decision.unset } } };
  }
}
