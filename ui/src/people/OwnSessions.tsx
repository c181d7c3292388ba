/** Where you are signed in, with a way out. */

import { useState, type ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { LoadError, Skeleton } from "../shared/components/States";
import { useResource } from "../shared/useResource";
import { ownSessions, type Credential } from "./api";
import { CredentialTable, SESSION_HEADS } from "./Credentials";
import { TakeAway, credentialLine } from "./TakeAway";
import { count } from "./words";
import "./people.css";

export function OwnSessions(): ReactElement {
  const sessions = useResource("own sessions", ownSessions.list);
  const [ending, setEnding] = useState<Credential | "all" | null>(null);
  const items = sessions.data?.items ?? [];
  const close = { onDone: sessions.reload, onClose: () => setEnding(null) };
  return (
    <section aria-label="Sessions">
      <div className="page-head">
        <div>
          <h2>Sessions</h2>
          <p className="muted">Where you are signed in. If you do not know one of them, sign it out and tell an admin.</p>
        </div>
        {items.length > 0 && (
          <Button tone="danger" onClick={() => setEnding("all")}>
            Sign out everywhere…
          </Button>
        )}
      </div>
      {sessions.error && <LoadError what="your sessions" error={sessions.error} retry={sessions.reload} />}
      {sessions.loading && <Skeleton rows={2} />}
      {sessions.data && (
        <div className="card people-card">
          <CredentialTable label="Sessions" heads={SESSION_HEADS} items={items} empty="No sessions." onRevoke={setEnding} />
        </div>
      )}
      {ending === "all" && (
        <TakeAway
          title="Sign out everywhere?"
          verb="Sign out everywhere"
          keep="Stay signed in"
          done="You are signed out everywhere"
          act={ownSessions.endAll}
          {...close}
        >
          <p>{count(items.length, "session")} will end, this one too. Tokens and passkeys stay.</p>
        </TakeAway>
      )}
      {ending && ending !== "all" && (
        <TakeAway
          title="Sign out this browser?"
          verb="Sign out"
          keep="Keep"
          done="Signed out"
          act={() => ownSessions.end(ending)}
          {...close}
        >
          <p className="wrap">{credentialLine(ending)}.</p>
          {ending.current && <p>This is the session of this page: you will have to sign in again.</p>}
        </TakeAway>
      )}
    </section>
  );
}
