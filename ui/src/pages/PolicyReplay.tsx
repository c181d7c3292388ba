/** Try a policy file on the calls in the store before it is deployed. For admins, and recorded. */

import { useState, type ReactElement } from "react";
import { api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { ReplaySummary } from "../shared/components/Replay";
import { Notice } from "../shared/components/States";
import { humanName } from "../shared/decision/values";
import { thousands } from "../shared/format";
import { useOffline } from "../shared/live";
import { Link } from "../shared/router";
import type { Replay } from "../shared/types";
import { visible } from "../shared/visible";

/** How many of the calls that would have been treated differently are listed. */
const MOST = 20;
const AFTER = { asked: "asked about", allowed: "allowed", denied: "denied", refused: "refused" };

export function PolicyReplay(): ReactElement {
  const [policy, setPolicy] = useState("");
  const [busy, setBusy] = useState(false);
  const [replay, setReplay] = useState<Replay | null>(null);
  const [problem, setProblem] = useState("");
  const offline = useOffline();
  const change = (text: string) => {
    setPolicy(text);
    setReplay(null);
    setProblem("");
  };
  const run = async () => {
    setBusy(true);
    setProblem("");
    try {
      setReplay(await api.replayPolicy(policy));
    } catch (error) {
      setReplay(null);
      setProblem(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  };
  return (
    <section className="card policy-replay" aria-label="Try a policy">
      <h2>Try a policy</h2>
      <p className="muted">
        See what a policy file would have done with the calls in this store. Nothing runs, nothing changes, and the
        audit log records that you looked.
      </p>
      <label className="field">
        <span className="field-label">Policy file</span>
        <input
          type="file"
          accept=".toml"
          onChange={({ target }) => void target.files?.[0]?.text().then(change)}
        />
      </label>
      <label className="field">
        <span className="field-label">Policy as TOML</span>
        <textarea className="mono" rows={8} spellCheck={false} value={policy} onChange={(event) => change(event.target.value)} />
      </label>
      <div className="dialog-actions">
        <Button disabled={busy || offline !== "" || policy.trim() === ""} onClick={() => void run()}>
          {busy ? "Judging the stored calls…" : "Try on stored calls"}
        </Button>
      </div>
      <div aria-live="polite">
        {problem && (
          <Notice tone="bad" title="The policy was not tried">
            <p className="wrap">{problem}</p>
          </Notice>
        )}
        {replay && <Outcome replay={replay} />}
      </div>
    </section>
  );
}

function Outcome({ replay }: { replay: Replay }): ReactElement {
  const stricter = replay.changes.filter(({ after }) => after !== "allowed");
  return (
    <>
      <ReplaySummary replay={replay} />
      {stricter.map(({ before, after, outcome, count }) => (
        <p key={`${before} ${after} ${outcome}`} className="small">
          {thousands(count)} {outcome ?? before} {count === 1 ? "call" : "calls"} would have been {AFTER[after]}.
        </p>
      ))}
      {replay.differences.length > 0 && (
        <ul className="small" aria-label="Calls that would have been treated differently">
          {replay.differences.slice(0, MOST).map((call) => (
            <li key={call.id}>
              <Link to={`/inbox/${call.id}`}>{humanName(call.tool)}</Link> <code>{visible(call.tool)}</code> by{" "}
              {visible(call.agent)}: {call.outcome ?? call.before}, would have been {AFTER[call.after]}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
