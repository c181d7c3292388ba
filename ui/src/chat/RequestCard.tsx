import type { ReactElement } from "react";
import { api } from "../shared/api";
import { LoadError, Notice, Skeleton } from "../shared/components/States";
import { DecisionCard } from "../shared/decision/DecisionCard";
import { useChanges } from "../shared/live";
import { useResource } from "../shared/useResource";
import { Link } from "../shared/router";
import { useMe } from "../shared/session";
import { visible } from "../shared/visible";
import type { Call } from "./messageParts";
import type { Thread } from "./useThread";

interface RequestCardProps {
  call: Call;
  thread: Thread;
  /** The agent's text above the card. If the note repeats it, the card does not show the note. */
  textAbove: string | undefined;
}

/** The request of an open call, as a card to decide it. */
export function RequestCard({ call, thread, textAbove }: RequestCardProps): ReactElement {
  const { id } = call;
  const { role } = useMe();
  const request = useResource(id, (signal) => api.request(id, signal));
  useChanges((events) => {
    if (events.some((event) => !("request" in event) || event.request === id)) request.reload();
  });
  if (request.error && !request.data) return <LoadError what="the request" error={request.error} retry={request.reload} />;
  if (!request.data) return <Skeleton rows={2} label="Loading request" />;
  return (
    <div className="request-card" data-hide-note={request.data.note.trim() === textAbove?.trim() || undefined}>
      {call.request?.problem && (
        <Notice tone="bad" title="Your decision was not accepted">
          <p className="wrap">{visible(call.request.problem)}</p>
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
        <Link to={`/inbox/${encodeURIComponent(id)}`} className="request-card-link small">
          Open in the inbox
        </Link>
      )}
    </div>
  );
}
