/** Reads the AI SDK's messages: the text and calls in them, and the state of each call. */

import { getToolName, isToolUIPart, type DynamicToolUIPart, type ToolUIPart, type UIMessage } from "ai";
import type { Decision, Json, Kind, Status } from "../shared/types";
import { visible } from "../shared/visible";

export type ToolPart = ToolUIPart | DynamicToolUIPart;

/** The request of a call, which the server sends as a `data-request` part. */
export interface CallRequest {
  id: string;
  kind: Kind;
  status: Status;
  /** Why a decision made in this chat was not accepted. */
  problem?: string;
  decision?: Omit<Decision, "assurance">;
}

/** The state of a call as shown on the page. */
export type CallState = "writing" | "running" | "asking" | "waiting" | "done" | "answered" | "refused" | "closed" | "failed";

/** A tool call. `id` is also the id of its request, if there is one. */
export interface Call {
  id: string;
  name: string;
  part: ToolPart;
  request: CallRequest | undefined;
  state: CallState;
}

/** The rendered parts of a message, in order. Steps and data parts are left out. */
export type Piece = { kind: "text"; key: string; text: string; streaming: boolean } | { kind: "call"; key: string; call: Call };

export function pieces(message: UIMessage): Piece[] {
  const requests = new Map<string, CallRequest>();
  for (const part of message.parts) if (part.type === "data-request") requests.set(part.id ?? "", part.data as CallRequest);
  const found: Piece[] = [];
  message.parts.forEach((part, index) => {
    if (part.type === "text" && part.text.trim()) {
      found.push({ kind: "text", key: `text-${index}`, text: part.text, streaming: part.state === "streaming" });
    } else if (isToolUIPart(part)) {
      const id = part.toolCallId;
      const request = requests.get(id);
      found.push({ kind: "call", key: id, call: { id, name: getToolName(part), part, request, state: callState(part, request) } });
    }
  });
  return found;
}

function callState(part: ToolPart, request: CallRequest | undefined): CallState {
  const closed = request !== undefined && ["expired", "cancelled", "superseded"].includes(request.status);
  switch (part.state) {
    case "input-streaming":
      return "writing";
    case "input-available":
      return request?.status === "pending" ? "asking" : "running";
    case "approval-requested":
      return "waiting";
    case "approval-responded":
      return "running";
    case "output-available":
      return request?.status === "responded" ? "answered" : "done";
    case "output-denied":
      return closed ? "closed" : "refused";
    case "output-error":
      return closed ? "closed" : request?.status === "rejected" ? "refused" : "failed";
  }
}

export const isOpen = (call: Call): boolean => call.state === "waiting" || call.state === "asking";

export const callsOf = (message: UIMessage): Call[] =>
  pieces(message).flatMap((piece) => (piece.kind === "call" ? [piece.call] : []));

/** The open calls. They are in the last message only, because a newer message closes earlier ones. */
export function openCalls(messages: UIMessage[]): Call[] {
  const last = messages.at(-1);
  return last?.role === "assistant" ? callsOf(last).filter(isOpen) : [];
}

/** Whether more of the answer is expected without user input: the user wrote last, a call is running, or text is streaming. */
export function isUnfinished(messages: UIMessage[]): boolean {
  const last = messages.at(-1);
  if (!last) return false;
  if (last.role === "user") return true;
  const calls = callsOf(last);
  if (calls.some((call) => call.state === "running" || call.state === "writing")) return true;
  if (calls.some(isOpen)) return false;
  const piece = pieces(last).at(-1);
  return piece === undefined || piece.kind === "call" || piece.streaming;
}

/** The text of a message. */
export function textOf(message: UIMessage): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Indented JSON with hidden characters made visible. Strings are not quoted. */
export function formatValue(value: unknown): string {
  if (typeof value === "string") return visible(value);
  return visible(JSON.stringify(value, null, 2) ?? "");
}

/** The arguments on one line, for a collapsed call. */
export function argsSummary(input: unknown, limit = 80): string {
  if (input === null || typeof input !== "object") return "";
  const shown = Object.entries(input as Record<string, Json>)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ")
    .replace(/\s+/g, " ");
  const inert = visible(shown);
  return inert.length > limit ? `${inert.slice(0, limit - 1)}…` : inert;
}

/** The answer to a question: the labels of the selected options, or free text. */
export function answerText(input: unknown, output: unknown): string {
  const value = typeof output === "object" && output !== null && "answer" in output ? output.answer : output;
  const options = (input as { options?: { label: string; value: unknown }[] } | undefined)?.options ?? [];
  const label = (each: unknown) => {
    const option = options.find((one) => JSON.stringify(one.value) === JSON.stringify(each));
    return option ? visible(option.label) : formatValue(each);
  };
  return Array.isArray(value) ? value.map(label).join(", ") || "none" : label(value);
}

/** The message to show for an error of the chat client, whose message is the body of the response. */
export function errorMessage(error: Error): string {
  if (error instanceof TypeError) return "The server could not be reached. Check the connection and try again.";
  try {
    const body = JSON.parse(error.message) as { message?: unknown };
    if (typeof body.message === "string") return visible(body.message);
  } catch {
    // Plain text.
  }
  return visible(error.message) || "Something went wrong. Try again.";
}

/** Whether two lists of messages would render the rendersSame. */
export function rendersSame(left: UIMessage[], right: UIMessage[]): boolean {
  return JSON.stringify(left.map(rendered)) === JSON.stringify(right.map(rendered));
}

function rendered(message: UIMessage): unknown {
  const content = pieces(message).map((piece) => {
    if (piece.kind === "text") return piece.text;
    const { id, part, request, state } = piece.call;
    return [id, state, part.input ?? null, part.output ?? null, request?.decision?.at ?? null];
  });
  return [message.role, content];
}

/** The progress of a call. One that runs without a request counts as just started: the stream may not have sent the rest yet. */
function callProgress({ state, request }: Call): number {
  if (state === "writing" || (state === "running" && !request)) return 0;
  if (state === "waiting" || state === "asking") return 1;
  return state === "running" ? 2 : 3;
}

/** The progress of an answer: the number of its parts, then the progress of each. */
function answerProgress(message: UIMessage): number {
  const of = (piece: Piece) => (piece.kind === "text" ? piece.text.length : callProgress(piece.call));
  return pieces(message).reduce((sum, piece) => sum + 100_000 + of(piece), 0);
}

/**
 * A stream that is joined again replays the answer from its start. Keep showing the previous messages
 * until it has caught up, so that a request does not disappear while the user is working with it.
 */
export function keepUntilCaughtUp(before: UIMessage[], next: UIMessage[], busy: boolean): UIMessage[] {
  const old = before.at(-1);
  const last = next.at(-1);
  if (!busy || !old || !last || old.id !== last.id || old.role !== "assistant") return next;
  return answerProgress(last) < answerProgress(old) ? before : next;
}
