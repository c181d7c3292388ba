/** What a grant or a policy would have done with the calls in the store, in a few lines. */

import type { ReactElement } from "react";
import { thousands } from "../format";
import type { Replay } from "../types";

/** How many of the calls that people rejected are linked. */
const MOST = 5;

export function ReplaySummary({ replay }: { replay: Replay }): ReactElement {
  const allowed = replay.changes.filter((change) => change.after === "allowed");
  const total = allowed.reduce((sum, { count }) => sum + count, 0);
  const rejected = replay.differences.filter(({ after, outcome }) => after === "allowed" && outcome === "rejected");
  return (
    <div className="small" data-testid="replay">
      <p>
        In the last 30 days, {thousands(total)} of {thousands(replay.calls)} calls would have run without a person
        {allowed.length > 0 && ` (${allowed.map(({ outcome, count }) => `${thousands(count)} ${outcome}`).join(", ")})`}.
      </p>
      {replay.overruled > 0 && (
        <p className="field-error" role="alert">
          People rejected {thousands(replay.overruled)} of them:{" "}
          {rejected.slice(0, MOST).map(({ id }) => (
            <code key={id}>{id} </code>
          ))}
        </p>
      )}
      {replay.disagreements.length > 0 && (
        <p>
          A model and people disagreed on {thousands(replay.disagreements.length)} calls:{" "}
          {replay.disagreements.slice(0, MOST).map(({ id }) => (
            <code key={id}>{id} </code>
          ))}
        </p>
      )}
      {replay.not_stored.map((sentence) => (
        <p key={sentence} className="muted">
          {sentence}
        </p>
      ))}
    </div>
  );
}
