import type { ReactElement } from "react";
import type { Run } from "../shared/types";
import { Icon, type IconName } from "../shared/components/Icon";

const STATUS: Record<string, [string, IconName, string]> = {
  running: ["Running", "play", "info"],
  paused: ["Waits for a person", "clock", "warn"],
  done: ["Done", "check", "good"],
  failed: ["Failed", "warning", "bad"],
  cancelled: ["Cancelled", "cross", "muted"],
};

export const STATUSES = Object.entries(STATUS).map(([value, [label]]) => ({ value, label }));

/** Icon and word, so that the meaning does not depend on colour. */
export function RunStatus({ run }: { run: Pick<Run, "status" | "held"> }): ReactElement {
  // Nobody is asked, and no process works on it: its code continues it when it runs again.
  const idle = run.status === "running" && !run.held;
  const [label, icon, tone] = idle ? ["Waits for its agent", "clock", "muted"] : (STATUS[run.status] ?? [run.status, "clock", "muted"]);
  return (
    <span className={`badge run-${tone}`} data-testid="run-status">
      <Icon name={icon as IconName} size={14} />
      {label}
    </span>
  );
}
