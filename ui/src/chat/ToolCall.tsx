import { useId, useState, type ReactElement } from "react";
import { Icon, type IconName } from "../shared/components/Icon";
import { Link } from "../shared/router";
import { useMe } from "../shared/session";
import { visible } from "../shared/visible";
import { answerOf, brief, pretty, type Call, type Stand } from "./parts";

const WORDS: Record<Stand, [string, IconName | null, string]> = {
  writing: ["preparing", null, "off"],
  running: ["running", null, "off"],
  waiting: ["waiting for a decision", "clock", "wait"],
  asking: ["waiting for an answer", "question", "wait"],
  done: ["done", "check", "good"],
  given: ["answered", "reply", "good"],
  refused: ["refused", "cross", "bad"],
  closed: ["closed, did not run", "cross", "off"],
  failed: ["failed", "warning", "bad"],
};

const YES = { approve: "Approved", edit: "Approved with edits" } as const;

interface ToolCallProps {
  call: Call;
  /** The call was open when a newer message replaced it. */
  overtaken: boolean;
}

/** One tool call with its state; its arguments and result are collapsed. */
export function ToolCall({ call, overtaken }: ToolCallProps): ReactElement {
  const [open, setOpen] = useState(false);
  const id = useId();
  const { role } = useMe();
  const { part, card, stand } = call;
  const [word, icon, tone] = WORDS[overtaken ? "closed" : stand];
  const name = visible(call.name);
  const decision = card?.decision?.type;
  const by = card?.decision && visible(card.decision.by);
  const question = card?.kind === "question";
  if (question && stand === "given") return <Answered call={call} />;
  return (
    <section className="call" data-testid="tool-call" data-tool={name} data-stand={stand} aria-label={`Call of ${name}`}>
      <button type="button" className="call-head" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
        <Icon name={open ? "chevronDown" : "chevronRight"} size={14} />
        <code className="call-name">{name}</code>
        <span className="call-brief">{open ? "" : brief(part.input)}</span>
        {by && (decision === "approve" || decision === "edit") && (
          <span className="call-by">
            {YES[decision]} by {by}
          </span>
        )}
        <span className={`call-stand stand-${tone}`}>
          {icon ? <Icon name={icon} size={14} /> : <span className="spinner" aria-hidden="true" />}
          {word}
          {by && (decision === "reject" || decision === "respond") && ` by ${by}`}
        </span>
      </button>
      <div id={id} className="call-body" hidden={!open}>
        <p className="call-label">Arguments</p>
        <pre>{pretty(part.input)}</pre>
        {part.state === "output-available" && (
          <>
            <p className="call-label">Result</p>
            <pre>{pretty(part.output)}</pre>
          </>
        )}
        {part.state === "output-error" && (
          <>
            <p className="call-label">Error</p>
            <pre>{pretty(part.errorText)}</pre>
          </>
        )}
        {card && role !== "chat" && (
          <p className="small">
            <Link to={`/inbox/${encodeURIComponent(call.id)}`}>Open the request</Link>
          </p>
        )}
      </div>
      {card?.decision?.message && (
        <p className="call-said">
          <Icon name="user" size={14} />
          <span className="wrap">{visible(card.decision.message)}</span>
        </p>
      )}
    </section>
  );
}

/** An answered question: the question and the answer. */
function Answered({ call }: { call: Call }): ReactElement {
  const asked = (call.part.input ?? {}) as { question?: unknown };
  return (
    <section className="answered" data-testid="tool-call" data-tool={call.name} data-stand={call.stand} aria-label="Question">
      <p className="answered-question wrap">{typeof asked.question === "string" ? visible(asked.question) : "Question"}</p>
      <p className="answered-answer wrap">
        <Icon name="reply" size={14} />
        <span>{answerOf(call.part.input, call.part.output)}</span>
      </p>
    </section>
  );
}
