/** The content of a request with its action bar. Used by the inbox and the chat. */

import { useEffect, useRef, useState, type ReactElement, type ReactNode } from "react";
import { useShortcuts } from "../shortcuts";
import { ApiError, api } from "../api";
import { Notice } from "../components/States";
import { useOffline } from "../live";
import { useMe } from "../session";
import type { Evidence, Json, Request, RequestDetail } from "../types";
import { visible } from "../visible";
import { ActionBar } from "./ActionBar";
import { answerOf, pick, type Answer } from "./answer";
import { ArgsView } from "./ArgsView";
import { AgentNote, EarlierRejections, ModelOpinion, Preview, Warnings } from "./RequestNotices";
import { setDraft, useDraft } from "./draft";
import { editable } from "./edit";
import { EditForm, useCheck } from "./EditForm";
import { LongValue } from "./LongValue";
import { DecisionLine, Outcome } from "./Outcome";
import { QuestionForm } from "./QuestionForm";
import { fieldPath } from "./schema";
import { useDecide } from "./useDecide";
import { useReading } from "./useReading";
import { useSeen } from "./useSeen";
import { SHORT_DESCRIPTION, lineCount } from "./values";
import { ValueView } from "./ValueView";

interface Props {
  request: RequestDetail;
  onDecided: (request: Request) => void;
  /** The request has changed or is gone, and must be read again. */
  onStale: () => void;
  onRevealed?: (request: RequestDetail) => void;
  /** Sends the decision, if not over the inbox's route. */
  decide?: typeof api.decide;
  shortcuts?: boolean;
  /** Rendered before the request, and to be read with it. */
  head?: ReactNode;
  /** Rendered between the request and the action bar. */
  children?: ReactNode;
}

export function RequestBody(props: Props): ReactElement {
  const { request } = props;
  const me = useMe();
  const offline = useOffline();
  const draft = useDraft(request.id);
  const seen = useSeen(request);
  const answer = draft.reply;
  const setAnswer = (reply: Answer) => setDraft(request.id, { reply });
  const [invalid, setInvalid] = useState(false);
  const editing = draft.mode === "edit" && request.status === "pending";
  const { check, error } = useCheck(request, editing ? draft.args : undefined);
  const pending = request.status === "pending";
  const reading = useReading(`${request.id} ${request.revision} ${request.masked}`, pending);
  const complete = reading.left === 0 && seen.unseen.length === 0;
  const deciding = useDecide(request, props.onDecided, props.onStale, complete, props.decide);
  const question = pending && request.can.includes("respond") ? request.question : null;
  const shortcuts = props.shortcuts !== false;
  useShortcuts(
    {
      " ": (event) => reading.turn(event?.shiftKey ? -1 : 1),
      PageDown: () => reading.turn(1),
      PageUp: () => reading.turn(-1),
      ...Object.fromEntries(
        (question?.options ?? []).slice(0, 9).map((_, index) => [
          String(index + 1),
          () => setAnswer(pick(question!, answer, index, !answer.picked.includes(index))),
        ]),
      ),
    },
    shortcuts,
  );
  const reply = request.question ? answerOf(request.question, answer) : undefined;
  const field = deciding.error?.field
    ? [{ field: fieldPath(deciding.error.field), message: deciding.error.message }]
    : [];
  return (
    <div className="request-body">
      <div className="request-scroll" ref={reading.body}>
        {props.head}
        <Outcome request={request} me={me.name} />
        <EarlierRejections rejections={request.refusals} />
        <UnsentDraft request={request} />
        {pending && <Warnings request={request} onRevealed={props.onRevealed} />}
        {request.kind === "in_doubt" && pending && <InDoubtNotice request={request} />}
        {request.shown.question ? (
          <section className="section" aria-label="Question">
            {/* The page of a request has the question as its heading, unless it was too long for one. */}
            {(!shortcuts || request.shown.question.text !== request.shown.title) && (
              <p className="question-text wrap">{request.shown.question.text}</p>
            )}
            {pending && (
              <QuestionForm
                question={request.question!}
                shown={request.shown.question}
                answer={answer}
                problems={field}
                disabled={offline !== "" || !request.can.includes("respond")}
                numbered={shortcuts}
                onChange={setAnswer}
              />
            )}
          </section>
        ) : (
          <section className="section" aria-label="What will run" data-testid="what-will-run">
            <h2>{editing ? "Edit what will run" : heading(request)}</h2>
            <Description key={request.id} text={request.shown.description} />
            {editing ? (
              <EditForm request={request} args={draft.args ?? editable(request)} checked={{ check, error }} onInvalid={setInvalid} />
            ) : (
              <ArgsView key={`${request.id} ${request.revision}`} request={request} seen={seen} />
            )}
          </section>
        )}
        <Preview request={request} />
        {request.shown.binds !== null && request.shown.binds !== undefined && (
          <section className="preview" aria-label="Bound facts">
            <h3>
              Bound facts <span className="preview-when">compared again before it runs</span>
            </h3>
            <ValueView value={request.shown.binds as Json} />
          </section>
        )}
        <AgentNote request={request} />
        <ModelOpinion request={request} />
        <div className="request-end" ref={reading.end} />
        {props.children}
      </div>
      {pending && (
        <div className="request-actions">
          <DecisionError error={deciding.error} />
          <ActionBar
            request={request}
            draft={draft}
            deciding={deciding}
            now={{ offline, busy: deciding.busy, unseen: seen.unseen, left: reading.left }}
            answer={reply}
            check={check}
            editInvalid={invalid}
            shortcuts={props.shortcuts}
            onEdit={() => setDraft(request.id, { mode: "edit", args: draft.args ?? editable(request) })}
          />
        </div>
      )}
    </div>
  );
}

/** The tool's description. Collapsed if long, so that the arguments stay on the screen. */
function Description({ text }: { text: string }): ReactElement | null {
  if (!text) return null;
  const paragraph = <p className="muted wrap description">{text}</p>;
  const lines = lineCount(text);
  if (lines <= SHORT_DESCRIPTION) return paragraph;
  return (
    <div className="long-description">
      <LongValue name="the description" lines={lines}>
        {paragraph}
      </LongValue>
    </div>
  );
}

function heading(request: Request): string {
  if (request.status === "edited") return "What was approved";
  if (request.status !== "pending") return "What was requested";
  return request.kind === "in_doubt" ? "What may have run" : request.tool ? "What will run" : "What is requested";
}

/** Why sending a decision failed, and whether it may have been recorded. */
function DecisionError({ error }: { error: ApiError | null }): ReactElement | null {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (error) box.current?.scrollIntoView({ block: "nearest" });
  }, [error]);
  if (!error) return null;
  const unknown = error.status === 0;
  return (
    <div role="alert" ref={box} data-testid="decision-error">
      <Notice tone="bad" title={unknown ? "We don't know whether this was recorded" : "Not recorded"}>
        <p className="wrap">
          {error.decision ? <DecisionLine decision={error.decision} /> : error.message}
          {unknown && " Your input is still here. Sending the same decision again is safe."}
        </p>
        {error.decision?.message && <blockquote className="wrap">{error.decision.message}</blockquote>}
      </Notice>
    </div>
  );
}

/** If the request was decided elsewhere meanwhile, show the unsent edit or reason instead of losing it. */
function UnsentDraft({ request }: { request: Request }): ReactElement | null {
  const draft = useDraft(request.id);
  if (request.status === "pending" || draft.mode === "none") return null;
  const text = { edit: JSON.stringify(draft.args, null, 2), reject: draft.reason, respond: draft.answer, note: draft.note }[draft.mode];
  if (!text) return null;
  return (
    <Notice tone="warn" title="Your changes were not sent">
      <pre className="wrap">{text}</pre>
    </Notice>
  );
}

const EVIDENCE_TEXTS: Record<Evidence["answer"], string> = {
  ran: "The other system says it ran.",
  did_not_run: "The other system says it did not run.",
  unknown: "The other system does not know whether it ran.",
};

function InDoubtNotice({ request }: { request: Request }): ReactElement {
  const tool = request.shown.tool ?? request.tool ?? "it";
  const evidence = request.shown.evidence;
  const reason = request.execution.result;
  return (
    <Notice tone="warn" title="We don't know whether this ran">
      <p>
        <code>{tool}</code> started and did not report a result (
        {request.execution.attempts === 1 ? "1 attempt" : `${request.execution.attempts} attempts`}). Check the other
        system before you choose.
      </p>
      {typeof reason === "string" && reason && <blockquote className="wrap">{visible(reason)}</blockquote>}
      {request.execution.attempt_running != null && (
        <p data-testid="attempt">
          {request.execution.attempt_running
            ? "Its last attempt is still running. You can run it again once that attempt has ended."
            : "Its last attempt has ended."}
        </p>
      )}
      {evidence && (
        <p>
          <strong>{EVIDENCE_TEXTS[evidence.answer]}</strong> {evidence.text}
        </p>
      )}
    </Notice>
  );
}
