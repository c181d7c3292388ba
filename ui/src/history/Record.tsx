import { useState, type ReactElement } from "react";
import { ApiError, api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { Notice } from "../shared/components/States";
import { clock, thousands } from "../shared/format";
import type { Verification } from "../shared/types";

type Result = { at: number; found?: Verification; error?: ApiError };

/** The record proves itself: every fact is tied to the one before, and this reads all of it. */
export function Record(): ReactElement {
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
    <section className="card record" aria-labelledby="record">
      <div className="record-head">
        <Icon name="shield" size={20} />
        <div className="record-words">
          <h2 id="record">The record</h2>
          <p className="muted">Each event is chained to the one before it. The check reads them all and names any that are broken, missing or cut off.</p>
        </div>
        <Button onClick={() => void check()} disabled={busy}>
          {busy ? "Checking…" : result ? "Check again" : "Check the record"}
        </Button>
      </div>
      <div role="status" data-testid="verification">
        {result?.error && (
          <Notice tone="bad" title="The check failed">
            <p>{result.error.message}</p>
          </Notice>
        )}
        {result?.found?.ok && (
          <Notice tone="good" title="The audit log is intact">
            <p>
              {count(result.found.events, "event")} in {count(result.found.threads, "thread")}, {count(result.found.seals, "seal")}; checked at{" "}
              {clock(result.at)}.
            </p>
          </Notice>
        )}
        {result?.found && !result.found.ok && (
          <Notice tone="bad" title={`The audit log has problems: ${count(result.found.problems.length, "problem")}`}>
            <ul className="record-problems">
              {result.found.problems.map((problem, index) => (
                <li key={index} className="wrap">
                  {problem}
                </li>
              ))}
            </ul>
            <p>
              Stop approving until it is known why. <code>sayso audit verify</code> in a terminal says the same, and{" "}
              <code>sayso audit export</code> keeps what is there.
            </p>
          </Notice>
        )}
      </div>
    </section>
  );
}

const count = (number: number, word: string): string => `${thousands(number)} ${word}${number === 1 ? "" : "s"}`;
