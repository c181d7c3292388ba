import { useState, type ReactElement } from "react";
import { ApiError, api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { Notice } from "../shared/components/States";
import { clock, thousands } from "../shared/format";
import type { Verification } from "../shared/types";

type Result = { at: number; found?: Verification; error?: ApiError };

/** Verifies the audit log: the server reads every event and checks the chains and seals. */
export function AuditCheck(): ReactElement {
  const [busy, setBusy] = useState(false);
  const [result, setResult] = useState<Result | null>(null);
  const check = async () => {
    setBusy(true);
    try {
      setResult({ at: Date.now(), found: await api.verify() });
    } catch (error) {
      setResult({ at: Date.now(), error: error instanceof ApiError ? error : new ApiError(0, "Error", String(error)) });
    } finally {
      setBusy(false);
    }
  };
  return (
    <section className="card audit-check" aria-labelledby="audit-check">
      <div className="audit-check-head">
        <Icon name="shield" size={20} />
        <div className="audit-check-text">
          <h2 id="audit-check">Audit log</h2>
          <p className="muted">Each event is chained to the one before it. Verification reads every event and reports any that are changed or missing.</p>
        </div>
        <Button onClick={() => void check()} disabled={busy}>
          {busy ? "Verifying…" : result ? "Verify again" : "Verify audit log"}
        </Button>
      </div>
      <div role="status" data-testid="verification">
        {result?.error && (
          <Notice tone="bad" title="Could not verify the audit log">
            <p>{result.error.message}</p>
          </Notice>
        )}
        {result?.found?.ok && (
          <Notice tone="good" title="The audit log is intact">
            <p>
              {count(result.found.events, "event")} in {count(result.found.threads, "thread")}, {count(result.found.seals, "seal")}; verified at{" "}
              {clock(result.at)}.
            </p>
          </Notice>
        )}
        {result?.found && !result.found.ok && (
          <Notice tone="bad" title={`The audit log has ${count(result.found.problems.length, "problem")}`}>
            <ul className="audit-check-problems">
              {result.found.problems.map((problem, index) => (
                <li key={index} className="wrap">
                  {problem}
                </li>
              ))}
            </ul>
            <p>
              Stop approving until you know the cause. <code>sayso audit verify</code> reports the same in a terminal, and{" "}
              <code>sayso audit export</code> saves the log as it is now.
            </p>
          </Notice>
        )}
      </div>
    </section>
  );
}

const count = (number: number, word: string): string => `${thousands(number)} ${word}${number === 1 ? "" : "s"}`;
