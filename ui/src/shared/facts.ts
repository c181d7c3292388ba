/** Labels for events of the audit log: a verb phrase to follow the actor, an icon and a tone. */

import type { IconName } from "./components/Icon";
import type { Json } from "./types";
import { visible } from "./visible";

export interface Fact {
  words: string;
  icon: IconName;
  tone: "good" | "bad" | "warn" | "off";
}

const FACTS: Record<string, [string, IconName, Fact["tone"]]> = {
  opened: ["opened the thread", "plus", "off"],
  asked: ["asked for a decision", "question", "warn"],
  reasked: ["asked again", "question", "warn"],
  revised: ["changed the request", "edit", "off"],
  voted: ["voted to approve", "check", "good"],
  decided: ["decided", "check", "good"],
  allowed: ["allowed the call without approval", "shield", "off"],
  denied: ["denied the call", "cross", "bad"],
  claimed: ["claimed the run", "user", "off"],
  lease_released: ["released the run", "user", "off"],
  woken: ["woke the run", "play", "off"],
  started: ["started the call", "play", "off"],
  released: ["was cleared to run the call itself", "play", "good"],
  joined: ["made the same call again", "question", "off"],
  deferred: ["was told to wait for a decision", "clock", "off"],
  reported: ["reported the result", "check", "off"],
  suspended: ["paused during the call", "clock", "off"],
  recorded: ["recorded the result", "check", "good"],
  late: ["reported a result too late", "clock", "off"],
  in_doubt: ["marked the call as in doubt", "doubt", "warn"],
  settled: ["looked up the outcome", "doubt", "off"],
  retried: ["made the call ready to retry", "doubt", "off"],
  expired: ["expired the request", "clock", "bad"],
  cancelled: ["cancelled the request", "cross", "off"],
  superseded: ["replaced the request with newer input", "doubt", "off"],
  run_cancelled: ["cancelled the run", "cross", "off"],
  finished: ["finished the run", "check", "off"],
  granted: ["created a grant", "key", "good"],
  revoked: ["revoked a grant", "key", "off"],
  refused: ["was refused access", "shield", "warn"],
  revealed: ["revealed masked values", "eye", "warn"],
  policy_loaded: ["loaded a policy", "shield", "off"],
  pruned: ["pruned old content", "trash", "off"],
  webhook_dead: ["gave up on a webhook", "warning", "warn"],
  token_created: ["signed in or created a token", "key", "off"],
  token_revoked: ["signed out or revoked a token", "key", "off"],
};

/** Sessions and sign-in links are tokens too. The prefix of the id, if the user may see it, says which. */
const ACCESS: Record<string, Record<string, string>> = {
  token_created: { ses: "signed in", lnk: "created a sign-in link", tok: "created the token" },
  token_revoked: { ses: "signed out", lnk: "revoked a sign-in link", tok: "revoked the token" },
};

const DECIDED: Record<string, [string, IconName, Fact["tone"]]> = {
  approve: ["approved", "check", "good"],
  edit: ["approved with edits", "edit", "good"],
  reject: ["rejected", "cross", "bad"],
  respond: ["answered", "reply", "good"],
};

const FAILED: Record<string, (body?: Json) => boolean> = {
  recorded: (body) => inside(body, "ok") === false,
  finished: (body) => inside(body, "status") === "failed",
};

const FAILURES: Record<string, [string, IconName, Fact["tone"]]> = {
  recorded: ["recorded a failure", "warning", "bad"],
  finished: ["ended the run with a failure", "warning", "bad"],
};

function inside(body: Json | undefined, name: string): Json | undefined {
  return body !== null && typeof body === "object" && !Array.isArray(body) ? body[name] : undefined;
}

export function factOf(type: string, body?: Json): Fact {
  const decided = type === "decided" ? DECIDED[String(inside(body, "decision"))] : undefined;
  const failed = FAILED[type]?.(body) ? FAILURES[type] : undefined;
  const [words, icon, tone] = decided ?? failed ?? FACTS[type] ?? [type.replaceAll("_", " "), "medium", "off"];
  return { words: accessOf(type, body) || words, icon, tone };
}

function accessOf(type: string, body?: Json): string {
  const token = String(inside(body, "token") ?? "");
  const words = ACCESS[type]?.[token.slice(0, 3)];
  if (!words?.endsWith("token")) return words ?? "";
  const person = inside(body, "person");
  const whose = typeof person === "string" ? ` for ${visible(person)} (${visible(String(inside(body, "role")))})` : "";
  return `${words} ${visible(token)}${whose}`;
}

/** A readable name for an actor such as `agent:assistant` or `worker:host:1:ab`. */
export function actorOf(actor: string): string {
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

/** The reason or message of an event; empty if it has none. */
export function reasonOf(body?: Json): string {
  const found = inside(body, "reason") || inside(body, "message");
  return typeof found === "string" ? visible(found) : "";
}
