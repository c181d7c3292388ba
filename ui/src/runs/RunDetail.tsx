import type { ReactElement } from "react";
import { api } from "../shared/api";
import { KindBadge, RiskBadge, StatusBadge } from "../shared/components/Badge";
import { CopyButton } from "../shared/components/CopyButton";
import { Icon } from "../shared/components/Icon";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { showsRisk } from "../shared/decision/values";
import { decisive } from "../shared/decision/inWords";
import { Outcome } from "../shared/decision/Outcome";
import { ROLE_NAMES } from "../shared/eventLabels";
import { useChanges } from "../shared/live";
import { Link } from "../shared/router";
import { useMe } from "../shared/session";
import { useResource } from "../shared/useResource";
import type { Request, Run, RunDetail as Detail, Turn } from "../shared/types";
import { visible } from "../shared/visible";
import { outputText } from "./output";
import { RunStatus } from "./RunStatus";
import { Timeline } from "./Timeline";
import { Trust } from "./Trust";

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
        <RunView run={run.data} reload={run.reload} />
      ) : (
        <Skeleton rows={8} label="Loading run" />
      )}
    </main>
  );
}

function RunView({ run, reload }: { run: Detail; reload: () => void }): ReactElement {
  const output = outputText(run.output);
  return (
    <>
      <header className="run-head">
        <h1 className="wrap">{titleOf(run)}</h1>
        <RunStatus run={run} />
      </header>
      <p className="muted run-who">
        {visible(run.agent)}
        {run.requester && ` for ${visible(run.requester)}`}, started <Age at={run.created_at} />
      </p>
      <Trust run={run} reload={reload} />
      <div className="run-columns">
        <section aria-labelledby="run-story" className="run-main">
          <h2 id="run-story">What happened</h2>
          <Story run={run} />
          {(output || run.stop) && (
            <section className="card run-output" aria-label="Outcome" data-tone={run.status === "failed" ? "bad" : undefined}>
              <h3 className="run-ended">{run.status === "failed" ? "Why it failed" : output ? "Result" : "Why it stopped"}</h3>
              <p className="wrap">{output || visible(run.stop ?? "")}</p>
            </section>
          )}
        </section>
        <div>
          <section aria-labelledby="run-timeline">
            <h2 id="run-timeline">Every event</h2>
            <Timeline steps={run.timeline} titles={new Map(run.requests.map((request) => [request.id, request.shown.title]))} />
          </section>
          <details className="identifiers">
            <summary>Names</summary>
            <dl className="run-meta">
              <div>
                <dt>Run</dt>
                <dd>
                  <code className="wrap">{visible(run.id)}</code>
                  <CopyButton text={run.id} label="Copy run ID" />
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
          </details>
        </div>
      </div>
    </>
  );
}

/** The user's words, the agent's replies, and each request where it was made; without a conversation, the requests in order. */
function Story({ run }: { run: Detail }): ReactElement {
  const left = [...run.requests];
  const answered = new Set<Turn>();
  const items: ReactElement[] = [];
  for (const [index, turn] of run.conversation.entries()) {
    const isResult = turn.role === "tool";
    if (turn.text && !(isResult && answered.has(turn))) items.push(<Said key={`said ${turn.seq}`} turn={turn} />);
    for (const [number, call] of (turn.calls ?? []).entries()) {
      const key = `call ${turn.seq} ${number}`;
      const result = run.conversation.slice(index + 1).find((each) => each.role === "tool" && each.name === call.name && !answered.has(each));
      if (result) answered.add(result);
      const at = left.findIndex((request) => request.tool === call.name);
      items.push(at < 0 ? <Called key={key} call={call} result={result?.text} /> : <Asked key={key} request={left.splice(at, 1)[0]!} />);
    }
  }
  items.push(...left.map((request) => <Asked key={request.id} request={request} />));
  if (items.length === 0) return <p className="muted">Nothing was asked in this run.</p>;
  return (
    <ol className="story" data-testid="story">
      {items}
    </ol>
  );
}

function Said({ turn }: { turn: Turn }): ReactElement {
  return (
    <li className="story-said" data-role={turn.role}>
      <p className="turn-who">{ROLE_NAMES[turn.role] ?? visible(turn.role)}</p>
      <p className="wrap">{visible(turn.text)}</p>
    </li>
  );
}

/** A call that needed no person. */
function Called({ call, result }: { call: NonNullable<Turn["calls"]>[number]; result?: string }): ReactElement {
  const args = typeof call.shown_args === "string" ? call.shown_args : JSON.stringify(call.shown_args);
  return (
    <li className="card story-call">
      <p>
        <strong>{wordsOf(call.name)}</strong> <span className="muted">needed no approval</span>
      </p>
      {args && <pre className="wrap small">{visible(args)}</pre>}
      {result && <p className="wrap">{visible(result)}</p>}
    </li>
  );
}

function Asked({ request }: { request: Request }): ReactElement {
  const me = useMe();
  const headline = decisive(request.shown.args);
  const people = request.reviewers.map((name) => visible(name.replace(/^group:/, ""))).join(" or ");
  return (
    <li className="card story-call" data-testid="story-request">
      <p className="story-head">
        <Link to={`/inbox/${encodeURIComponent(request.id)}`} className="wrap">
          <strong>{request.shown.title}</strong>
        </Link>
        {showsRisk(request) && <RiskBadge level={request.risk.level} />}
        {request.kind === "in_doubt" ? <KindBadge kind="in_doubt" /> : request.status === "pending" && <StatusBadge status="pending" />}
      </p>
      {headline && <p className="wrap">{headline}</p>}
      {request.status === "pending" ? (
        <p className="muted">
          Asked <Age at={request.created_at} />
          {people && `, waits for ${people}`}
        </p>
      ) : (
        <Outcome request={request} me={me.name} />
      )}
    </li>
  );
}

/** What the run is about: the first words of the user, or its first request. */
export function titleOf(run: Pick<Run, "title" | "agent"> & { conversation?: Turn[] }): string {
  const words = run.conversation?.find((turn) => turn.role === "user")?.text ?? "";
  return (words && visible(words.length > 120 ? `${words.slice(0, 120)}…` : words)) || run.title || `A run of ${visible(run.agent)}`;
}

/** `send_email` and `sendEmail` as `Send email`. */
function wordsOf(name: string): string {
  const words = visible(name).replace(/([a-z])([A-Z])/g, "$1 $2").replace(/[_-]+/g, " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}
