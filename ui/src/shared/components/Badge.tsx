import type { ReactElement, ReactNode } from "react";
import type { Kind, RiskLevel } from "../types";
import { Icon, type IconName } from "./Icon";

const RISK_WORDS: Record<RiskLevel, string> = { low: "Low", medium: "Medium", high: "High", critical: "Critical" };

/** Icon and word, so that the meaning does not depend on colour. */
export function RiskBadge({ level, long }: { level: RiskLevel; long?: boolean }): ReactElement {
  return (
    <span className={`badge risk-${level}`} data-testid="risk">
      <Icon name={level} size={14} />
      {RISK_WORDS[level]}
      {long ? " risk" : <span className="sr-only"> risk</span>}
    </span>
  );
}

const STATUS: Record<string, [string, IconName, string]> = {
  pending: ["Pending", "clock", "neutral"],
  approved: ["Approved", "check", "good"],
  edited: ["Edited and approved", "edit", "good"],
  rejected: ["Rejected", "cross", "bad"],
  responded: ["Answered", "reply", "good"],
  expired: ["Expired", "clock", "muted"],
  cancelled: ["Cancelled", "cross", "muted"],
  superseded: ["Superseded", "doubt", "muted"],
};

export function StatusBadge({ status }: { status: string }): ReactElement {
  const [word, icon, tone] = STATUS[status] ?? [status, "clock", "neutral"];
  return (
    <span className={`badge tone-${tone}`} data-testid="status">
      <Icon name={icon as IconName} size={14} />
      {word}
    </span>
  );
}

const KINDS: Record<Exclude<Kind, "approval">, [string, IconName]> = {
  question: ["Question", "question"],
  in_doubt: ["In doubt", "doubt"],
};

/** Marks questions and calls in doubt; nothing for approvals. */
export function KindBadge({ kind }: { kind: Kind }): ReactElement | null {
  if (kind === "approval") return null;
  const [word, icon] = KINDS[kind];
  return (
    <span className={`badge kind-${kind}`}>
      <Icon name={icon} size={14} />
      {word}
    </span>
  );
}

export function Tag({ children }: { children: ReactNode }): ReactElement {
  return <span className="tag">{children}</span>;
}
