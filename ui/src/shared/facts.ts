/** What happened, in words: the events of the record as a sentence's verb, with an icon and a tone. */

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
  voted: ["agreed", "check", "good"],
  decided: ["decided", "check", "good"],
  allowed: ["let it run without asking", "shield", "off"],
  denied: ["forbade it", "cross", "bad"],
  claimed: ["took the run", "user", "off"],
  lease_released: ["let go of the run", "user", "off"],
  woken: ["woke the run", "play", "off"],
  started: ["started the call", "play", "off"],
  released: ["was allowed to run it itself", "play", "good"],
  joined: ["asked for the answer again", "question", "off"],
  deferred: ["was told that there is no answer yet", "clock", "off"],
  reported: ["reported the result", "check", "off"],
  suspended: ["paused inside the call", "clock", "off"],
  recorded: ["recorded the result", "check", "good"],
  late: ["reported a result too late", "clock", "off"],
  in_doubt: ["could not say whether it took effect", "doubt", "warn"],
  settled: ["asked the other side about it", "doubt", "off"],
  retried: ["made it ready again", "doubt", "off"],
  expired: ["ran out", "clock", "bad"],
  cancelled: ["cancelled it", "cross", "off"],
  superseded: ["went on with something newer", "doubt", "off"],
  run_cancelled: ["cancelled the run", "cross", "off"],
  finished: ["finished the run", "check", "off"],
  granted: ["created a grant", "key", "good"],
  revoked: ["revoked a grant", "key", "off"],
  refused: ["tried what is not theirs, and was refused", "shield", "warn"],
  revealed: ["looked at a masked value", "eye", "warn"],
  policy_loaded: ["loaded a policy", "shield", "off"],
  pruned: ["forgot the contents of what ended long ago", "trash", "off"],
  webhook_dead: ["gave a webhook up", "warning", "warn"],
  token_created: ["signed in, or made a token", "key", "off"],
  token_revoked: ["signed out, or revoked a token", "key", "off"],
};

/** A session and a link to sign in with are tokens, too: the id says which, where one may know. */
const ACCESS: Record<string, Record<string, string>> = {
  token_created: { ses: "signed in", lnk: "made a link to sign in with", tok: "made the token" },
  token_revoked: { ses: "signed out", lnk: "revoked a link to sign in with", tok: "revoked the token" },
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
  finished: ["ended the run: it failed", "warning", "bad"],
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

/** `agent:assistant` and `worker:host:1:ab` as people say them. */
export function actorOf(actor: string): string {
  const [kind, name] = actor.split(/:(.*)/s);
  const shown = visible(name ?? "");
  switch (kind) {
    case "agent":
      return shown || "The agent";
    case "worker":
      return `Worker ${shown.split(":")[0]}`;
    case "attempt":
      return `Attempt ${shown}`;
    case "engine":
      return "Sayso";
    case "clock":
      return "The time";
    case "policy":
      return shown ? `The rule ${shown}` : "The policy";
    default:
      return visible(actor) || "Sayso";
  }
}

/** The reason or message that goes with a fact, if it has one. */
export function reasonOf(body?: Json): string {
  const found = inside(body, "reason") || inside(body, "message");
  return typeof found === "string" ? visible(found) : "";
}
