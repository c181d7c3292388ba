import type { ReactElement } from "react";
import { Icon } from "../shared/components/Icon";
import { actorName, eventLabel, eventReason } from "../shared/eventLabels";
import { Link } from "../shared/router";
import { exact } from "../shared/format";
import type { Json, RunDetail } from "../shared/types";
import { visible } from "../shared/visible";

type Step = RunDetail["timeline"][number] & { body?: Json };

/** The events of a run, oldest first. */
export function Timeline({ steps, titles }: { steps: Step[]; titles: Map<string, string> }): ReactElement {
  if (steps.length === 0) return <p className="muted">No events yet.</p>;
  return (
    <ol className="timeline" data-testid="timeline">
      {steps.map((step, index) => {
        const label = eventLabel(step.type, step.body);
        const reason = eventReason(step.body);
        return (
          <li key={index} className="step">
            <span className={`event-icon event-${label.tone}`}>
              <Icon name={label.icon} size={14} />
            </span>
            <div className="step-text">
              <p>
                <strong>{actorName(step.actor)}</strong> {label.text}
                {step.tool && step.request && (
                  <>
                    {" "}
                    <Link to={`/inbox/${encodeURIComponent(step.request)}`}>
                      {titles.get(step.request) ?? <code>{visible(step.tool)}</code>}
                    </Link>
                  </>
                )}
              </p>
              {reason && <p className="step-reason wrap">{reason}</p>}
              <p className="muted small">
                <time dateTime={step.at}>{exact(step.at)}</time>
                {timeSince(steps[index - 1]?.at, step.at)}
              </p>
            </div>
          </li>
        );
      })}
    </ol>
  );
}

/** The time since the previous event; empty if it is less than a second. */
export function timeSince(before: string | undefined, now: string): string {
  if (!before) return "";
  const seconds = (Date.parse(now) - Date.parse(before)) / 1_000;
  if (seconds < 1) return "";
  if (seconds < 60) return ` · ${Math.round(seconds)} s later`;
  if (seconds < 3_600) return ` · ${Math.round(seconds / 60)} min later`;
  if (seconds < 172_800) return ` · ${Math.round(seconds / 3_600)} h later`;
  return ` · ${Math.round(seconds / 86_400)} days later`;
}
