import { useId, useState, type ReactElement } from "react";
import { Icon, type IconName } from "../shared/components/Icon";
import { Link } from "../shared/router";
import { useMe } from "../shared/session";
import { visible } from "../shared/visible";
import { answerText, argsSummary, formatValue, type Call, type CallState } from "./messageParts";

const STATES: Record<CallState, [string, IconName | null, string]> = {
  writing: ["preparing", null, "off"],
  running: ["running", null, "off"],
  waiting: ["waiting for a decision", "clock", "wait"],
  asking: ["waiting for an answer", "question", "wait"],
  done: ["done", "check", "good"],
  answered: ["answered", "reply", "good"],
  refused: ["refused", "cross", "bad"],
  closed: ["closed, did not run", "cross", "off"],
  failed: ["failed", "warning", "bad"],
};

const APPROVED = { approve: "Approved", edit: "Approved with edits" } as const;

interface ToolCallProps {
  call: Call;
  /** The call was open when a newer message replaced it. */
  replaced: boolean;
}

/** One tool call with its state; its arguments and result are collapsed. */
export function ToolCall({ call, replaced }: ToolCallProps): ReactElement {
  const [open, setOpen] = useState(false);
  const id = useId();
  const { role } = useMe();
  const { part, request, state } = call;
  const [label, icon, tone] = STATES[replaced ? "closed" : state];
  const name = visible(call.name);
  const decision = request?.decision?.type;
  const by = request?.decision && visible(request.decision.by);
  const question = request?.kind === "question";
  if (question && state === "answered") return <Answered call={call} />;
  return (
    <section className="call" data-testid="tool-call" data-tool={name} data-state={state} aria-label={`Call of ${name}`}>
      <button type="button" className="call-head" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
        <Icon name={open ? "chevronDown" : "chevronRight"} size={14} />
        <code className="call-name">{name}</code>
        <span className="call-brief">{open ? "" : argsSummary(part.input)}</span>
        {by && (decision === "approve" || decision === "edit") && (
          <span className="call-by">
            {APPROVED[decision]} by {by}
          </span>
        )}
        <span className={`call-state call-state-${tone}`}>
          {icon ? <Icon name={icon} size={14} /> : <span className="spinner" aria-hidden="true" />}
          {state === "refused" && decision === "reject" ? "rejected" : label}
          {by && (decision === "reject" || decision === "respond") && ` by ${by}`}
        </span>
      </button>
      <div id={id} className="call-body" hidden={!open}>
        <p className="call-label">Arguments</p>
        <pre>{formatValue(part.input)}</pre>
        {part.state === "output-available" && (
          <>
            <p className="call-label">Result</p>
            <pre>{formatValue(part.output)}</pre>
          </>
        )}
        {part.state === "output-error" && (
          <>
            <p className="call-label">Error</p>
            <pre>{formatValue(part.errorText)}</pre>
          </>
        )}
        {request && role !== "chat" && (
          <p className="small">
            <Link to={`/inbox/${encodeURIComponent(call.id)}`}>Open the request</Link>
          </p>
        )}
      </div>
      {request?.decision?.message && (
        <p className="call-message">
          <Icon name="user" size={14} />
          <span className="wrap">{visible(request.decision.message)}</span>
        </p>
      )}
    </section>
  );
}

/** An answered question: the question and the answer. */
function Answered({ call }: { call: Call }): ReactElement {
  const asked = (call.part.input ?? {}) as { question?: unknown };
  return (
    <section className="answered" data-testid="tool-call" data-tool={call.name} data-state={call.state} aria-label="Question">
      <p className="answered-question wrap">{typeof asked.question === "string" ? visible(asked.question) : "Question"}</p>
      <p className="answered-answer wrap">
        <Icon name="reply" size={14} />
        <span>{answerText(call.part.input, call.part.output)}</span>
      </p>
    </section>
  );
}
