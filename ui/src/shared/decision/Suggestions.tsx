/** Grants that equal decisions suggest: what each covers, its replay, and one button to give it. */

import { useState, type ReactElement } from "react";
import { ApiError, api } from "../api";
import { RiskBadge } from "../components/Badge";
import { Button } from "../components/Button";
import { CopyButton } from "../components/CopyButton";
import { ReplaySummary } from "../components/Replay";
import { toast } from "../components/Toasts";
import { thousands } from "../format";
import { useChanges, useOffline } from "../live";
import type { Suggestion } from "../types";
import { useResource } from "../useResource";
import { visible } from "../visible";
import { approveAll } from "./approveAll";

/** Milliseconds without a change before what is suggested is read again. */
const QUIET = 2_000;

export function Suggestions({ onGranted }: { onGranted?: () => void }): ReactElement | null {
  const suggested = useResource("suggestions", (signal) => api.suggestions(signal));
  useChanges(() => suggested.reload(), QUIET);
  const items = suggested.data?.items ?? [];
  if (items.length === 0) return null;
  return (
    <section aria-label="Suggestions" className="suggestions">
      <h2>Suggestions</h2>
      {items.map((suggestion) => (
        <SuggestionCard
          key={suggestion.id}
          suggestion={suggestion}
          onGranted={() => {
            suggested.reload();
            onGranted?.();
          }}
        />
      ))}
    </section>
  );
}

function SuggestionCard(props: { suggestion: Suggestion; onGranted: () => void }): ReactElement {
  const { suggestion } = props;
  const { pending } = suggestion;
  const offline = useOffline();
  const [busy, setBusy] = useState(false);
  const [taking, setTaking] = useState(false);
  const days = Math.round(suggestion.ends_in / 86_400);
  const accept = async () => {
    setBusy(true);
    try {
      await api.acceptSuggestion(suggestion.id);
      if (taking) await approveAll(pending);
      toast(`Allowed for ${days} days. Revoke it on the page Grants.`, "good");
    } catch (error) {
      toast(error instanceof ApiError ? error.message : String(error), "bad");
    }
    setBusy(false);
    props.onGranted();
  };
  return (
    <article className="card suggestion" data-testid="suggestion">
      <p>
        {thousands(suggestion.count)} equal calls of <code>{visible(suggestion.tool)}</code> by{" "}
        <strong>{visible(suggestion.agent)}</strong> were approved, and none was rejected or edited.{" "}
        <RiskBadge level={suggestion.risk} />
      </p>
      <ul className="small mono wrap">
        {suggestion.shown_scope.map((line) => (
          <li key={line}>{visible(line)}</li>
        ))}
      </ul>
      <ReplaySummary replay={suggestion.replay} />
      {pending.length > 0 && (
        <>
          <p className="field-label">Pending requests that it covers: {pending.length}</p>
          <ul className="small mono wrap">
            {pending.map((request) => (
              <li key={request.id}>{visible(request.summary)}</li>
            ))}
          </ul>
          <label className="check">
            <input type="checkbox" checked={taking} onChange={(event) => setTaking(event.target.checked)} /> Approve
            these pending requests too
          </label>
        </>
      )}
      <div className="dialog-actions">
        {suggestion.rule ? (
          <span className="muted small">
            Copy as a rule <CopyButton text={suggestion.rule} label="Copy as a rule" />
          </span>
        ) : (
          <span className="muted small">{suggestion.no_rule}</span>
        )}
        <Button tone="primary" disabled={busy || offline !== ""} onClick={() => void accept()}>
          Allow for {days} days
        </Button>
      </div>
    </article>
  );
}
