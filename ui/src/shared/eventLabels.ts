/** Labels for events of the audit log: a verb phrase to follow the actor, an icon and a tone. */

import type { IconName } from "./components/Icon";
import type { Json } from "./types";
import { visible } from "./visible";

interface EventLabel {
  text: string;
  icon: IconName;
  tone: "good" | "bad" | "warn" | "off";
}

type Label = [text: string, icon: IconName, tone: EventLabel["tone"]];

export const LABELS: Record<string, Label> = {
  opened: ["opened the thread", "plus", "off"],
  asked: ["asked for a decision", "question", "warn"],
  reasked: ["asked again", "question", "warn"],
  revised: ["changed the request", "edit", "off"],
  tightened: ["made the terms of the request stricter", "shield", "off"],
  voted: ["voted to approve", "check", "good"],
  votes_voided: ["removed votes that no longer count", "cross", "off"],
  held: ["decided, and could undo it", "check", "good"],
  undone: ["undid the decision", "reply", "off"],
  signed_again: ["signed the approval with a new key", "shield", "off"],
  keys_rotated: ["signed the store's rows with a new key", "shield", "off"],
  key_distrusted: ["distrusted a key", "warning", "warn"],
  decided: ["decided", "check", "good"],
  allowed: ["allowed the call without approval", "shield", "off"],
  denied: ["denied the call", "cross", "bad"],
  began: ["began the run", "play", "off"],
  said: ["added messages", "reply", "off"],
  saved: ["saved the state of the run", "check", "off"],
  claimed: ["claimed the run", "user", "off"],
  lease_released: ["released the run", "user", "off"],
  woken: ["woke the run", "play", "off"],
  broke: ["could not continue the run", "warning", "warn"],
  ungated: ["let some tools run without the gate", "warning", "warn"],
  started: ["started the call", "play", "off"],
  read_started: ["started to read", "play", "off"],
  read_stopped: ["stopped reading, and may try again", "clock", "off"],
  read_recorded: ["recorded what was read", "check", "good"],
  duplicate: ["did not start the call, since its effect exists", "doubt", "off"],
  released: ["was cleared to run the call itself", "play", "good"],
  joined: ["made the same call again", "question", "off"],
  deferred: ["was told to wait for a decision", "clock", "off"],
  reported: ["reported the result", "check", "off"],
  suspended: ["paused during the call", "clock", "off"],
  recorded: ["recorded the result", "check", "good"],
  late: ["reported a result too late", "clock", "off"],
  in_doubt: ["marked the call as in doubt", "doubt", "warn"],
  settled: ["looked up the outcome", "doubt", "off"],
  attempt_ended: ["saw the attempt end", "doubt", "off"],
  retried: ["made the call ready to retry", "doubt", "off"],
  reviewed: ["reviewed the request, and left it to people", "eye", "off"],
  reminded: ["reminded people of the request", "clock", "off"],
  escalated: ["let more people decide the request", "user", "warn"],
  expired: ["expired the request", "clock", "bad"],
  cancelled: ["cancelled the request", "cross", "off"],
  superseded: ["replaced the request with newer input", "doubt", "off"],
  stopping: ["stopped the run", "cross", "off"],
  reopened: ["reopened the run", "play", "off"],
  run_cancelled: ["cancelled the run", "cross", "off"],
  finished: ["finished the run", "check", "off"],
  policy_replayed: ["judged stored calls by another policy", "shield", "off"],
  granted: ["created a grant", "key", "good"],
  revoked: ["revoked a grant", "key", "off"],
  lifted: ["lifted a refusal", "key", "off"],
  prompted: ["wrote something new", "user", "off"],
  refused: ["was refused access", "shield", "warn"],
  revealed: ["revealed masked values", "eye", "warn"],
  checked: ["tried out an edit of masked values", "eye", "warn"],
  policy_loaded: ["loaded a policy", "shield", "off"],
  pruned: ["pruned old content", "trash", "off"],
  webhook_dead: ["gave up on a webhook", "warning", "warn"],
  person_added: ["added a person or an agent", "user", "off"],
  person_changed: ["changed what a person may do", "user", "off"],
  person_removed: ["removed a person or an agent", "user", "warn"],
  token_created: ["signed in or created a token", "key", "off"],
  token_revoked: ["signed out or revoked a token", "key", "off"],
};

/** Sessions and sign-in links are tokens too. The prefix of the id, if the user may see it, says which. */
const TOKEN_TEXTS: Record<string, Record<string, string>> = {
  token_created: {
    ses: "signed in",
    lnk: "created a sign-in link",
    tok: "created the token",
    pky: "added a passkey",
  },
  token_revoked: {
    ses: "signed out",
    lnk: "revoked a sign-in link",
    tok: "revoked the token",
    pky: "removed a passkey",
  },
};

const DECISIONS: Record<string, Label> = {
  approve: ["approved", "check", "good"],
  edit: ["approved with edits", "edit", "good"],
  reject: ["rejected", "cross", "bad"],
  respond: ["answered", "reply", "good"],
  model: ["allowed the call as a model", "check", "good"],
};

const IS_FAILURE: Record<string, (body?: Json) => boolean> = {
  recorded: (body) => bodyField(body, "ok") === false,
  finished: (body) => bodyField(body, "status") === "failed",
};

const FAILURES: Record<string, Label> = {
  recorded: ["recorded a failure", "warning", "bad"],
  finished: ["ended the run with a failure", "warning", "bad"],
};

function bodyField(body: Json | undefined, name: string): Json | undefined {
  return body !== null && typeof body === "object" && !Array.isArray(body) ? body[name] : undefined;
}

export function eventLabel(type: string, body?: Json): EventLabel {
  const decided = type === "decided" ? DECISIONS[String(bodyField(body, "decision"))] : undefined;
  const failed = IS_FAILURE[type]?.(body) ? FAILURES[type] : undefined;
  const [text, icon, tone] = decided ?? failed ?? LABELS[type] ?? [type.replaceAll("_", " "), "medium", "off"];
  return { text: tokenText(type, body) || personText(type, body) || text, icon, tone };
}

/** What happened to a person, if the user may see it: with their rights and their stand-in after a change. */
function personText(type: string, body?: Json): string {
  const verb = { person_added: "added", person_changed: "changed", person_removed: "removed" }[type];
  const name = bodyField(body, "person");
  if (!verb || typeof name !== "string") return "";
  const role = bodyField(body, "role");
  if (typeof role !== "string") return `${verb} ${visible(name)}`;
  const groups = bodyField(body, "groups");
  const inGroups = Array.isArray(groups) && groups.length > 0 ? ` in ${groups.map((group) => visible(String(group))).join(", ")}` : "";
  const standIn = bodyField(body, "stand_in");
  const away = typeof standIn === "string" && standIn ? `; ${visible(standIn)} decides meanwhile` : "";
  return `${verb} ${visible(name)}: ${role}${inGroups}${away}`;
}

function tokenText(type: string, body?: Json): string {
  const token = String(bodyField(body, "token") ?? "");
  const text = TOKEN_TEXTS[type]?.[token.slice(0, 3)];
  if (!text?.endsWith("token")) return text ?? "";
  const person = bodyField(body, "person");
  const whose = typeof person === "string" ? ` for ${visible(person)} (${visible(String(bodyField(body, "role")))})` : "";
  return `${text} ${visible(token)}${whose}`;
}

/** A readable name for an actor such as `agent:assistant` or `worker:host:1:ab`. */
export function actorName(actor: string): string {
  const [kind, name] = actor.split(/:(.*)/s);
  const shown = visible(name ?? "");
  switch (kind) {
    case "agent":
      return shown || "Agent";
    case "worker":
      return `Worker ${shown.split(":")[0]}`;
    case "attempt":
      return `Attempt ${shown}`;
    case "engine":
    case "clock":
      return "Sayso";
    case "policy":
      return shown ? `Rule ${shown}` : "Policy";
    default:
      return visible(actor) || "Sayso";
  }
}

/** Who wrote a message of a conversation. */
export const ROLE_NAMES: Record<string, string> = {
  user: "User",
  assistant: "Agent",
  tool: "Result",
  approval: "Decision",
  system: "Instructions",
};

/** The reason or message of an event; empty if it has none. */
export function eventReason(body?: Json): string {
  const found = bodyField(body, "reason") || bodyField(body, "message");
  return typeof found === "string" ? visible(found) : "";
}
