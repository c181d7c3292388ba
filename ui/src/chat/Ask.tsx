import type { ReactElement } from "react";
import { api } from "../shared/api";
import { Failed, Notice, Skeleton } from "../shared/components/States";
import { DecisionCard } from "../shared/decision/DecisionCard";
import { useChanges } from "../shared/live";
import { useResource } from "../shared/resource";
import { Link } from "../shared/router";
import { useMe } from "../shared/session";
import { visible } from "../shared/visible";
import type { Call } from "./parts";
import type { Thread } from "./thread";

interface AskProps {
  call: Call;
  thread: Thread;
  /** The agent's text above the card. If the note repeats it, the card does not show the note. */
  said: string | undefined;
}

/** The request of an open call, as a card to decide it. */
export function Ask({ call, thread, said }: AskProps): ReactElement {
  const { id } = call;
  const { role } = useMe();
  const request = useResource(id, (signal) => api.request(id, signal));
  useChanges((events) => {
    if (events.some((event) => !("request" in event) || event.request === id)) request.reload();
  });
  if (request.error && !request.data) return <Failed what="the request" error={request.error} retry={request.reload} />;
  if (!request.data) return <Skeleton rows={2} label="Loading request" />;
  return (
    <div className="ask" data-said={request.data.note.trim() === said?.trim() || undefined}>
      {call.card?.problem && (
        <Notice tone="bad" title="Your decision was not accepted">
          <p className="wrap">{visible(call.card.problem)}</p>
        </Notice>
      )}
      <DecisionCard
        request={request.data}
        decide={(_, body) => thread.decide(call, request.data!, body)}
        onDecided={(decided) => request.set({ ...request.data, ...decided })}
        onStale={() => {
          request.reload();
          thread.follow();
        }}
      />
      {role !== "chat" && (
        <Link to={`/inbox/${encodeURIComponent(id)}`} className="ask-link small">
          Open in the inbox
        </Link>
      )}
    </div>
  );
}
