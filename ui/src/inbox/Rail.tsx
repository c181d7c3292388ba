/** Context of a request: policy, conversation, similar calls, timeline. */

import { useEffect, useRef, type ReactElement, type ReactNode } from "react";
import { StatusBadge } from "../shared/components/Badge";
import { Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { actorName, eventLabel, eventReason, ROLE_NAMES } from "../shared/eventLabels";
import { Link } from "../shared/router";
import type { SimilarCalls, RequestDetail, RequestEvent, Turn } from "../shared/types";
import { visible } from "../shared/visible";

function Section({ title, children }: { title: string; children: ReactNode }): ReactElement {
  return (
    <section className="rail-section" aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

export function Rail({ request, loading }: { request: RequestDetail; loading: boolean }): ReactElement {
  const { conversation, like, events } = request;
  return (
    <div className="rail">
      <Section title="Why it was asked">
        <p className="wrap">{reasonOf(request)}</p>
        {like?.facts && like.facts.length > 0 && (
          <ul className="facts" aria-label="Compared with the last approved calls">
            {like.facts.map((fact) => (
              <li key={fact} className="wrap">
                {fact}
              </li>
            ))}
          </ul>
        )}
        <PolicyInfo request={request} />
      </Section>
      {request.quorum > 1 && (
        <Section title="Approvals">
          <Votes request={request} />
        </Section>
      )}
      {loading && !conversation && <Skeleton rows={4} label="Loading context" />}
      {conversation && conversation.length > 0 && (
        <Section title="Conversation">
          <Conversation turns={conversation} question={request.shown.question?.text} />
        </Section>
      )}
      {like && request.tool && (
        <Section title="Similar calls">
          <SimilarCallList like={like} />
        </Section>
      )}
      {events && events.length > 0 && (
        <Section title="Timeline">
          <Timeline events={events} />
        </Section>
      )}
    </div>
  );
}

/** Why a person is asked, in a sentence: the rule's own description if it has one. */
function reasonOf({ policy, rule, tool, kind, reviewers }: RequestDetail): string {
  const people = reviewers.map((name) => visible(name.replace(/^group:/, ""))).join(" or ");
  const who = people ? `It needs ${people}.` : "";
  if (kind === "question") return `The agent asks you something. ${who}`;
  const declared = !rule || rule === "needs_approval";
  // Without a tool, the description is the caller's.
  if (tool !== null && !declared && policy?.description) return `${policy.description} (rule “${visible(rule)}”)`;
  if (declared) return `The tool asks for approval of this call. ${who}`;
  return `The rule “${visible(rule)}” asks for approval of this call. ${who}`;
}

/** A reviewer's name: of a person, or `group finance`. */
export const personName = (name: string): string => visible(name.replace(/^group:/, "group "));

function PolicyInfo({ request }: { request: RequestDetail }): ReactElement {
  const { risk, reviewers } = request;
  return (
    <dl className="policy-info">
      {request.rule && request.kind !== "question" && (
        <div>
          <dt>Rule</dt>
          <dd>
            <code className="wrap">{visible(request.rule)}</code>
          </dd>
        </div>
      )}
      {risk.reasons.length > 0 && (
        <div>
          <dt>Risk</dt>
          <dd>{risk.reasons.map(visible).join("; ")}</dd>
        </div>
      )}
      {reviewers.length > 0 && (
        <div>
          <dt>Reviewers</dt>
          <dd>{reviewers.map(personName).join(", ")}</dd>
        </div>
      )}
    </dl>
  );
}

function Votes({ request }: { request: RequestDetail }): ReactElement {
  const missing = Math.max(0, request.quorum - request.votes.length);
  return (
    <ul className="votes">
      {request.votes.map((vote) => (
        <li key={vote.by}>
          <strong>{visible(vote.by)}</strong> approved <Age at={vote.at} />{" "}
          <span className="muted">({vote.assurance})</span>
        </li>
      ))}
      {request.status === "pending" && missing > 0 && (
        <li className="muted">
          {missing === 1 ? "1 more approval is needed" : `${missing} more approvals are needed`}
        </li>
      )}
    </ul>
  );
}

/** The latest messages. A call that asks a question is shown as the question. */
function Conversation({ turns, question }: { turns: Turn[]; question: string | undefined }): ReactElement {
  const box = useRef<HTMLOListElement>(null);
  useEffect(() => {
    // Show the latest messages, which led to the request.
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [turns.length]);
  return (
    <ol className="rail-turns" ref={box} tabIndex={0} aria-label="Latest messages">
      {turns.map((turn) => (
        <li key={turn.seq} className={turn.current ? "rail-turn rail-turn-current" : "rail-turn"}>
          <p className="rail-turn-who">
            {ROLE_NAMES[turn.role] ?? turn.role}
            {turn.name && <span className="mono"> {turn.name}</span>}
            {turn.current && <span className="rail-turn-mark">this request</span>}
          </p>
          {turn.text && <p className="wrap">{turn.text}</p>}
          {turn.current && turn.calls?.length === 1 && question !== undefined ? (
            <p className="wrap">{question}</p>
          ) : (
            turn.calls?.map((call) => (
            <p key={call.id} className="mono small wrap rail-turn-call">
              {call.name} {typeof call.shown_args === "string" ? call.shown_args : JSON.stringify(call.shown_args)}
            </p>
            ))
          )}
        </li>
      ))}
    </ol>
  );
}

function SimilarCallList({ like }: { like: SimilarCalls }): ReactElement {
  const counts: [string, number][] = [
    ["approved", like.approved],
    ["edited", like.edited],
    ["rejected", like.rejected],
    ["answered", like.responded],
  ];
  const known = counts.filter(([, count]) => count > 0);
  if (known.length === 0) return <p className="muted">This agent has not called this tool before.</p>;
  return (
    <>
      <p>{known.map(([word, count]) => `${count} ${word}`).join(", ")}</p>
      <ul className="similar-calls">
        {like.recent.map((each) => (
          <li key={each.id}>
            <Link to={`/inbox/${each.id}`}>
              <StatusBadge status={each.status} />
              <span className="similar-call-text">{each.summary}</span>
            </Link>
            <span className="muted small">
              {each.by ? `${each.by}, ` : ""}
              <Age at={each.at} />
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Timeline({ events }: { events: RequestEvent[] }): ReactElement {
  return (
    <ol className="rail-timeline">
      {events.map((event, index) => (
        <li key={index}>
          <span className="rail-timeline-type">{actorName(event.actor)}</span> {eventLabel(event.type, event.body).text}
          <span className="muted">
            {" "}
            <Age at={event.at} />
          </span>
          {eventReason(event.body) && <p className="muted small wrap">{eventReason(event.body)}</p>}
        </li>
      ))}
    </ol>
  );
}
