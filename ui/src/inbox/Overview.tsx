/** The inbox without a selected request, and its empty states. */

import { useState, type ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { CopyButton } from "../shared/components/CopyButton";
import { StatusBadge } from "../shared/components/Badge";
import { EmptyState } from "../shared/components/States";
import { toast } from "../shared/components/Toasts";
import { Age } from "../shared/components/Time";
import { api } from "../shared/api";
import { Suggestions } from "../shared/decision/Suggestions";
import { counted, thousands } from "../shared/format";
import { useChanges } from "../shared/live";
import { useResource } from "../shared/useResource";
import { Link } from "../shared/router";
import { useMe } from "../shared/session";
import type { Request } from "../shared/types";
import { visible } from "../shared/visible";
import { FILTERS } from "../shared/views";
import { clearFilters } from "./Filters";

interface Props {
  /** The number of pending requests; null while they are loading. */
  pending: number | null;
  /** How many of them this person may decide. */
  yours: number;
  /** Whether there may be more. */
  atLeast: boolean;
  filtered: boolean;
}

/** How many of the last decisions are listed. */
const LAST = 8;

export function Overview({ pending, yours, atLeast, filtered }: Props): ReactElement {
  const me = useMe();
  const last = useResource("last", (signal) => api.requests({ status: "closed", sort: "newest", limit: LAST }, signal));
  useChanges(() => last.reload(), 400);
  const decided = last.data?.items[0];
  const never = pending === 0 && !filtered && last.data?.items.length === 0;
  return (
    <div className="overview">
      <h1>{heading(pending, yours, atLeast, filtered)}</h1>
      {pending !== null && pending > yours && (
        <p className="muted">
          {pending - yours === 1 ? "1 more waits" : `${thousands(pending - yours)} more wait`} for other people.
        </p>
      )}
      {pending !== null && pending > 0 && (
        <p className="muted">
          Select one from the list, or press <kbd>j</kbd>. Press <kbd>?</kbd> for all shortcuts.
        </p>
      )}
      {decided && last.data!.items.length === 1 && ["approved", "edited"].includes(decided.status) && !me.demo && (
        <p className="overview-first" role="status">
          That was your first approved call. What you saw is what {decided.execution.status === "done" ? "ran" : "will run"}, once.
        </p>
      )}
      {me.agents > 0 && !me.demo && (
        <p className="muted">{me.agents === 1 ? "1 agent" : `${me.agents} agents`} on this server.</p>
      )}
      <Suggestions />
      <div className="overview-cards">
        {me.demo ? <DemoHint /> : never && <Connect />}
        {decided && <LastDecisions requests={last.data!.items} />}
      </div>
    </div>
  );
}

function LastDecisions({ requests }: { requests: Request[] }): ReactElement {
  return (
    <section className="hint card" aria-label="Last decisions">
      <h2>Last decisions</h2>
      <ul className="last-decisions">
        {requests.map((request) => (
          <li key={request.id}>
            <StatusBadge status={request.status} />
            <span>
              <Link to={`/inbox/${request.id}`}>{request.shown.title}</Link>
              <span className="muted small">
                {request.decision && `by ${visible(request.decision.by)}, `}
                <Age at={request.decision?.at ?? request.created_at} />
              </span>
            </span>
          </li>
        ))}
      </ul>
      <Link to="/history">All decisions</Link>
    </section>
  );
}

function heading(pending: number | null, yours: number, atLeast: boolean, filtered: boolean): string {
  if (pending === null) return "Inbox";
  if (pending === 0) return filtered ? "No requests match" : "No pending requests";
  if (yours === 0) return "No request needs your review";
  return yours === 1 ? "1 request needs your review" : `${counted({ count: yours, at_least: atLeast })} requests need your review`;
}

const EXAMPLES: [string, string][] = [
  ["What is the weather in Oslo?", "one call that needs approval"],
  ["Do two things in Oslo", "two calls in one turn, decided separately"],
  ["Book a flight to Paris for Friday", "edit it before you approve"],
  ["Order a pizza", "questions until the order is complete"],
  ["Start a coding agent", "its hook asks before each edit and command"],
];

/** Examples to run in the demo. */
function DemoHint(): ReactElement {
  const [running, setRunning] = useState("");
  const run = (text: string) => {
    setRunning(text);
    api
      .startChat(text)
      .catch((error: unknown) => toast(error instanceof Error ? error.message : String(error), "bad"))
      .finally(() => setRunning(""));
  };
  return (
    <section className="hint card" aria-label="What to try">
      <h2>Try it</h2>
      <p>
        The demo agent is scripted and needs no API key or model. Run an example and its requests appear in the list, or{" "}
        <Link to="/chat">chat</Link> with the agent. <strong>What really ran</strong>, below, lists every execution.
      </p>
      <ul className="tries">
        {EXAMPLES.map(([text, why]) => (
          <li key={text}>
            <span>
              <q>{text}</q>
              <span className="muted"> {why}</span>
            </span>
            <Button small disabled={running !== ""} aria-label={`Run “${text}”`} onClick={() => run(text)}>
              {running === text ? "Running…" : "Run"}
            </Button>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Commands for this server and its store, which work when they are pasted. */
function Connect(): ReactElement {
  const me = useMe();
  const store = `'${me.store.replaceAll("'", "'\\''")}'`;
  const python = `python - <<'END'
import sayso

gate = sayso.Gate(${JSON.stringify(me.store)}, wait=None)  # wait for the decision


@gate.guard
def refund(order: str, euros: int) -> str:
    return f"Refunded {euros} euros for order {order}"


print(refund("A-17", euros=120))
END`;
  const create = `export SAYSO_TOKEN=$(sayso token create my-agent --role agent --store ${store})`;
  const bearer = me.auth ? ` -H "Authorization: Bearer $SAYSO_TOKEN"` : "";
  const post = `curl${bearer} -H "Content-Type: application/json" -d '{"text": "May I continue?"}' ${location.origin}/api/requests`;
  const shared = me.store !== "" && !me.store.startsWith("memory:");
  return (
    <section className="hint card" aria-label="Connect your first agent">
      <h2>Ask for the first approval</h2>
      <p>Agents started with this server appear here by themselves. To see one call through, from the question to its result:</p>
      {shared && (
        <>
          <h3>With Python, on this machine</h3>
          <Command text={python} />
          <p className="muted">It waits. Approve the request that appears here, and it prints the refund.</p>
        </>
      )}
      <h3>Over HTTP</h3>
      {me.auth && shared && <Command text={create} />}
      <Command text={post} />
      <p className="muted">
        Next: guard <a href="https://github.com/sayso-dev/sayso#three-ways-in">a framework, a coding agent or plain functions</a>.
      </p>
    </section>
  );
}

function Command({ text }: { text: string }): ReactElement {
  return (
    <div className="connect">
      <pre className="wrap" tabIndex={0}>{text}</pre>
      <CopyButton text={text} label={`Copy: ${text.slice(0, 24)}`} />
    </div>
  );
}

export function NoPending(): ReactElement {
  return (
    <EmptyState icon="check" title="No pending requests">
      <p className="muted">New requests appear here automatically.</p>
    </EmptyState>
  );
}

export function FilteredEmpty({ query }: { query: URLSearchParams }): ReactElement {
  const active = FILTERS.filter((name) => query.get(name)).map((name) =>
    name === "q"
      ? `“${visible(query.get("q")!)}”`
      : name === "mine"
        ? "mine"
        : name === "expiring"
          ? "expiring soon"
          : `${name} ${visible(query.get(name)!)}`,
  );
  return (
    <EmptyState icon="search" title="No requests match">
      <p className="muted">Filters: {active.join(", ")}.</p>
      <Button onClick={clearFilters}>Clear filters</Button>
    </EmptyState>
  );
}
