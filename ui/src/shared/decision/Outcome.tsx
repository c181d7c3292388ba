/** How a request ended: who decided it and when, their message, and what happened to the call. */

import type { ReactElement } from "react";
import { StatusBadge } from "../components/Badge";
import { Age } from "../components/Time";
import type { Decision, Request } from "../types";
import { visible } from "../visible";
import { ValueView } from "./ValueView";

const VERB: Record<string, string> = {
  approve: "approved",
  edit: "edited and approved",
  reject: "rejected",
  respond: "answered",
  model: "allowed",
};
const ENDED: Record<string, string> = {
  expired: "Nobody decided in time. Nothing ran.",
  cancelled: "It was cancelled. Nothing ran.",
  superseded: "Newer input replaced this request.",
};
const RAN: Record<string, string> = {
  none: "It has not run.",
  ready: "It will run when the agent resumes.",
  running: "It is running.",
  released: "It was released to the agent, which runs it itself.",
  done: "It ran.",
  failed: "It failed.",
  in_doubt: "We don't know whether it ran.",
};

export function DecisionLine({ decision, mine }: { decision: Decision; mine?: boolean }): ReactElement {
  return (
    <>
      <strong>{mine ? "You" : visible(decision.by)}</strong> {decision.source === "model" && "(a model, unverified) "}
      {VERB[decision.type] ?? decision.type} this{" "}
      {decision.stop && "and stopped the run "}
      <Age at={decision.at} />
    </>
  );
}

export function Outcome({ request, me }: { request: Request; me: string }): ReactElement | null {
  if (request.status === "pending") return null;
  const { decision, execution } = request;
  const result = execution.result;
  const message = decision ? decision.message : request.status === "cancelled" ? result : undefined;
  return (
    <section className="outcome" aria-label="Outcome" data-testid="outcome">
      <p className="outcome-line">
        <StatusBadge status={request.status} />
        <span>
          {decision ? <DecisionLine decision={decision} mine={decision.by === me} /> : ENDED[request.status]}
          {decision && (
            <span className="muted">
              {" "}
              via {decision.channel} ({decision.assurance})
              {decision.shown && `, open for ${decision.shown.seconds.toFixed(1)} s as the page says`}
              {decision.undo_until && ". It takes effect in a few seconds."}
            </span>
          )}
        </span>
      </p>
      {typeof message === "string" && message && <blockquote className="wrap">{visible(message)}</blockquote>}
      {decision?.type === "respond" && decision.value !== undefined && (
        <div className="outcome-value">
          <h3>Answer</h3>
          <ValueView value={visibleJson(decision.value)} />
        </div>
      )}
      {request.kind !== "question" && decision && decision.type !== "reject" && decision.type !== "respond" && (
        <div className="outcome-value">
          <p className="muted">{RAN[execution.status] ?? execution.status}</p>
          {result !== null && result !== undefined && <ValueView value={visibleJson(result)} />}
        </div>
      )}
      {request.original !== null && (
        <details>
          <summary>What the agent asked for</summary>
          <ValueView value={request.shown.original} />
        </details>
      )}
    </section>
  );
}

/** Make hidden characters visible in every string of a JSON value. Results come from tools, which are not trusted. */
function visibleJson<T>(value: T): T {
  if (typeof value === "string") return visible(value) as T;
  if (Array.isArray(value)) return value.map(visibleJson) as T;
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [visible(key), visibleJson(item)])) as T;
  }
  return value;
}
