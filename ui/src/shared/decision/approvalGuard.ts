/** What an approval needs: how it is confirmed, and why it may not be possible yet. */

import type { DecisionType, Request, RiskLevel } from "../types";
import { ALL_ARGS, hasFingerprint } from "./values";

/** `direct`: one key or click. `confirm`: then Enter or a second click. `type`: type the tool's name. */
export type Confirmation = "direct" | "confirm" | "type";

const ORDER: RiskLevel[] = ["low", "medium", "high", "critical"];

export function maxRisk(a: RiskLevel, b: RiskLevel): RiskLevel {
  return ORDER.indexOf(a) >= ORDER.indexOf(b) ? a : b;
}

export function riskRank(level: RiskLevel): number {
  return ORDER.indexOf(level);
}

export function confirmationFor(request: Request, edited?: RiskLevel): Confirmation {
  const level = edited ? maxRisk(request.risk.level, edited) : request.risk.level;
  if (level === "critical") return "type";
  // Running a call again that may already have run always needs a confirmation.
  return level === "high" || request.kind === "in_doubt" ? "confirm" : "direct";
}

/** The text to type for a critical call. */
export function confirmationPhrase(request: Request): string {
  return request.tool ?? "approve";
}

export interface DecisionContext {
  /** Why the server cannot be reached; empty if it can. */
  offline: string;
  busy: boolean;
  unseen: string[];
  /** How many screens of the request are left to read. */
  left: number;
}

/** Why this decision is not possible now, to show next to the button; empty if it is possible. */
export function blockedReason(request: Request, type: DecisionType, now: DecisionContext): string {
  if (now.offline) return now.offline;
  if (request.status !== "pending") return `This request is no longer pending (${request.status}).`;
  if (!request.can.includes(type)) {
    if (!request.why_not) return "The policy does not allow this decision.";
    if (request.can.length === 0) return `You cannot decide this: ${request.why_not}.`;
    const why = request.why_not.charAt(0).toUpperCase() + request.why_not.slice(1);
    return `${why}. You can still ${request.can.join(" or ")}.`;
  }
  if (type === "respond" && hasFingerprint((request.question?.options ?? []).map((option) => option.value))) {
    return "Reveal the masked values first. The answer contains one of them.";
  }
  if (type === "reject" || type === "respond") return "";
  if (type === "edit" && (request.masked || hasFingerprint(request.args))) {
    return "Reveal the masked values first. An edit approves all arguments.";
  }
  if (request.masked || request.digest === null) return "Some values are masked. Reveal them first.";
  if (now.unseen.length > 0) return `Scroll to the end of ${now.unseen.map(named).join(" and ")} first.`;
  if (now.left > 0) return `Read to the end first: ${now.left === 1 ? "1 more screen" : `${now.left} more screens`}.`;
  return "";
}

function named(part: string): string {
  return part === ALL_ARGS ? part : `“${part}”`;
}
