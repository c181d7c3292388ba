import type { ReactElement } from "react";
import { Icon, type IconName } from "../shared/components/Icon";

const STATUS: Record<string, [string, IconName, string]> = {
  running: ["Running", "play", "info"],
  paused: ["Paused", "clock", "warn"],
  done: ["Done", "check", "good"],
  failed: ["Failed", "warning", "bad"],
  cancelled: ["Cancelled", "cross", "muted"],
};

export const STATUSES = Object.entries(STATUS).map(([value, [label]]) => ({ value, label }));

/** Icon and word, so that the meaning does not depend on colour. */
export function RunStatus({ status }: { status: string }): ReactElement {
  const [label, icon, tone] = STATUS[status] ?? [status, "clock", "muted"];
  return (
    <span className={`badge run-${tone}`} data-testid="run-status">
      <Icon name={icon as IconName} size={14} />
      {label}
    </span>
  );
}
