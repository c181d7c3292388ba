import type { ReactElement } from "react";
import { api } from "../shared/api";
import { KindBadge, RiskBadge, StatusBadge } from "../shared/components/Badge";
import { CopyButton } from "../shared/components/CopyButton";
import { Icon } from "../shared/components/Icon";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { showsRisk } from "../shared/decision/values";
import { ROLE_NAMES } from "../shared/eventLabels";
import { useChanges } from "../shared/live";
import { Link } from "../shared/router";
import { useResource } from "../shared/useResource";
import type { Request, RunDetail as Detail, Turn } from "../shared/types";
import { visible } from "../shared/visible";
import { outputText } from "./output";
import { RunStatus } from "./RunStatus";
import { Timeline } from "./Timeline";

export function RunDetail({ id }: { id: string }): ReactElement {
  const run = useResource(id, (signal) => api.run(id, signal));
  useChanges((events) => {
    if (events.some((event) => !("run" in event) || event.run === id)) run.reload();
  }, 400);
  return (
    <main className="page runs">
      <Link to="/runs" className="back">
        <Icon name="chevronLeft" size={14} />
        All runs
      </Link>
      {run.error?.status === 404 ? (
        <EmptyState icon="search" title="Run not found">
          <p className="muted">It may have been pruned, or the link is incomplete.</p>
        </EmptyState>
      ) : run.error && !run.data ? (
        <LoadError what="this run" error={run.error} retry={run.reload} />
      ) : run.data ? (
        <RunView run={run.data} />
      ) : (
        <Skeleton rows={8} label="Loading run" />
      )}
    </main>
  );
}

function RunView({ run }: { run: Detail }): ReactElement {
  const output = outputText(run.output);
  return (
    <>
      <header className="run-head">
        <h1>
          <code className="wrap">{visible(run.id)}</code>
          <CopyButton text={run.id} label="Copy run ID" />
        </h1>
        <RunStatus status={run.status} />
      </header>
      <dl className="run-meta">
        <div>
          <dt>Agent</dt>
          <dd>{visible(run.agent)}</dd>
        </div>
        <div>
          <dt>Requester</dt>
          <dd>{run.requester ? visible(run.requester) : "–"}</dd>
        </div>
        <div>
          <dt>Started</dt>
          <dd>
            <Age at={run.created_at} />
          </dd>
        </div>
        <div>
          <dt>Thread</dt>
          <dd>
            <Link to={`/runs?thread=${encodeURIComponent(run.thread)}`}>
              <code className="wrap">{visible(run.thread)}</code>
            </Link>
          </dd>
        </div>
      </dl>
      {(output || run.stop) && (
        <section className="card run-output" aria-label="Outcome" data-tone={run.status === "failed" ? "bad" : undefined}>
          <h2 className="run-ended">{run.status === "failed" ? "Why it failed" : output ? "Output" : "Stop reason"}</h2>
          <p className="wrap">{output || visible(run.stop ?? "")}</p>
        </section>
      )}
      <div className="run-columns">
        <div className="run-main">
          <section aria-labelledby="run-requests">
            <h2 id="run-requests">Requests</h2>
            {run.requests.length === 0 ? (
              <p className="muted">No requests.</p>
            ) : (
              <ul className="card run-requests">
                {run.requests.map((request) => (
                  <RequestRow key={request.id} request={request} />
                ))}
              </ul>
            )}
          </section>
          <section aria-labelledby="run-transcript">
            <h2 id="run-transcript">Conversation</h2>
            <Transcript turns={run.conversation} />
          </section>
        </div>
        <section aria-labelledby="run-timeline">
          <h2 id="run-timeline">Timeline</h2>
          <Timeline steps={run.timeline} />
        </section>
      </div>
    </>
  );
}

function RequestRow({ request }: { request: Request }): ReactElement {
  const { decision } = request;
  return (
    <li>
      <Link to={`/inbox/${encodeURIComponent(request.id)}`} className="run-request">
        <span className="run-request-what">
          <code>{request.tool ? visible(request.tool) : request.kind === "question" ? "Question" : "Approval"}</code>
          <span className="what-summary">{request.shown.summary}</span>
        </span>
        {showsRisk(request) && <RiskBadge level={request.risk.level} />}
        <span className="run-request-end">
          {request.kind === "in_doubt" ? <KindBadge kind="in_doubt" /> : <StatusBadge status={request.status} />}
          {decision && <span className="muted small">by {visible(decision.by)}</span>}
        </span>
      </Link>
    </li>
  );
}

/** The messages of the thread, as the model sees them. */
function Transcript({ turns }: { turns: Turn[] }): ReactElement {
  if (turns.length === 0) return <p className="muted">No messages in this thread.</p>;
  return (
    <ol className="card" data-testid="conversation">
      {turns.map((turn) => (
        <li key={turn.seq} className="turn" data-role={turn.role} data-current={turn.current || undefined}>
          <p className="turn-who">
            {ROLE_NAMES[turn.role] ?? visible(turn.role)}
            {turn.name && <code> {visible(turn.name)}</code>}
          </p>
          <div>
            {turn.text && <p className={turn.role === "tool" ? "wrap mono" : "wrap"}>{visible(turn.text)}</p>}
            {turn.calls?.map((call) => (
              <p key={call.id} className="turn-call wrap">
                <code>
                  <strong>{visible(call.name)}</strong> {visible(typeof call.shown_args === "string" ? call.shown_args : JSON.stringify(call.shown_args))}
                </code>
              </p>
            ))}
          </div>
        </li>
      ))}
    </ol>
  );
}
