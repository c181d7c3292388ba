/** The buttons to decide a request. If one is disabled, the reason is shown next to it. */

import { useEffect, useRef, useState, type ReactElement, type Ref } from "react";
import { Button } from "../components/Button";
import { named, useShortcuts } from "../shortcuts";
import { useMe } from "../session";
import type { Check, DecisionType, Json, Kind, Request } from "../types";
import { approveAll } from "./approveAll";
import { ApproveButton } from "./ApproveButton";
import { setDraft, type Draft } from "./draft";
import { editable, editOf } from "./edit";
import { GrantDialog } from "./GrantDialog";
import { confirmationFor, blockedReason, type DecisionContext } from "./approvalGuard";
import { NotePanel, RejectPanel, RespondPanel } from "./Panels";
import type { Deciding } from "./useDecide";

interface Labels {
  reject: string;
  rejectSubmit: string;
  rejectStop: string;
  respond: string;
  respondLabel: string;
  respondHint: string;
  respondSubmit: string;
  approve: string;
}

const LABELS: Record<Kind, Labels> = {
  approval: {
    reject: "Reject",
    rejectSubmit: "Reject request",
    rejectStop: "Reject and stop the run",
    respond: "Respond",
    respondLabel: "Response to use instead of running it",
    respondHint: "The tool does not run. The agent gets this as its result.",
    respondSubmit: "Send response",
    approve: "Approve",
  },
  question: {
    reject: "Decline",
    rejectSubmit: "Decline to answer",
    rejectStop: "Decline and stop the run",
    respond: "Answer",
    respondLabel: "Answer",
    respondHint: "",
    respondSubmit: "Send answer",
    approve: "Approve",
  },
  in_doubt: {
    reject: "Give up",
    rejectSubmit: "Give up",
    rejectStop: "Give up and stop the run",
    respond: "It ran",
    respondLabel: "Result",
    respondHint: "The agent gets this as the result. Nothing runs.",
    respondSubmit: "Record the result",
    approve: "Run it again",
  },
};

/** Milliseconds after a request appears in which decisions are ignored: the key or click may have been meant for the previous one. */
const WARM_UP_MS = 350;

function useWarming(key: string): boolean {
  const [warm, setWarm] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setWarm(key), WARM_UP_MS);
    return () => clearTimeout(timer);
  }, [key]);
  return warm !== key;
}

interface ActionBarProps {
  request: Request;
  draft: Draft;
  deciding: Deciding;
  now: DecisionContext;
  /** The answer to a question, or why there is none yet. */
  answer?: { value?: Json; missing?: string };
  /** The server's check of the edit. `editInvalid`: the form holds invalid JSON. */
  check?: Check;
  editInvalid?: boolean;
  onEdit: () => void;
  /** Off where a page shows several requests. */
  shortcuts?: boolean;
}

export function ActionBar(props: ActionBarProps): ReactElement {
  const { request, draft, deciding, now, shortcuts = true } = props;
  const { role } = useMe();
  const [granting, setGranting] = useState(false);
  const labels = LABELS[request.kind];
  const warming = useWarming(`${request.id} ${request.revision}`);
  // An edit can be started before everything was read. Sending it needs the same conditions as an approval.
  const why = (type: DecisionType) => blockedReason(request, type, type === "edit" ? { ...now, unseen: [], left: 0 } : now);
  const allowed = (type: DecisionType) => request.allowed.includes(type);
  const set = (mode: Draft["mode"]) => {
    deciding.clear();
    setDraft(request.id, { mode });
  };
  const can = (type: DecisionType) => allowed(type) && !why(type);
  const open = (mode: "reject" | "respond") => {
    if (can(mode)) set(mode);
  };
  const idle = draft.mode === "none";
  const bar = useRef<HTMLDivElement>(null);
  const lastMode = useRef<Draft["mode"]>("none");
  const cancel = () => {
    lastMode.current = draft.mode;
    set("none");
  };
  // After Cancel, return the focus to the button that opened the form.
  useEffect(() => {
    if (idle) bar.current?.querySelector<HTMLElement>(`[data-mode="${lastMode.current}"]`)?.focus();
    lastMode.current = "none";
  }, [idle]);
  const question = request.kind === "question";
  const mayEdit = can("edit") && !question;
  const notable = allowed("approve") && request.kind === "approval" && request.can.includes("approve");
  // Ctrl+Enter sends an answer from anywhere, also from its text.
  useEffect(() => {
    if (!question || !shortcuts || !idle) return;
    const send = (event: KeyboardEvent) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      bar.current?.querySelector<HTMLButtonElement>("[data-send]")?.click();
    };
    document.addEventListener("keydown", send);
    return () => document.removeEventListener("keydown", send);
  }, [question, shortcuts, idle]);
  useShortcuts(
    {
      r: named(can("reject") && `${labels.reject}…`, () => open("reject")),
      m: named(can("respond") && `${labels.respond}…`, () => (question ? focusAnswer() : open("respond"))),
      e: named(mayEdit && "Edit…", () => mayEdit && props.onEdit()),
      n: named(notable && "Approve with a note…", () => notable && set("note")),
    },
    shortcuts && idle,
  );
  const common = { id: request.id, draft, busy: deciding.busy || now.offline !== "", onCancel: cancel };
  if (draft.mode === "reject") {
    const send = (message: string, stop?: boolean) =>
      void deciding.send(stop ? { type: "reject", message, stop } : { type: "reject", message });
    return (
      <Bar>
        <RejectPanel {...common} submitLabel={labels.rejectSubmit} stopLabel={labels.rejectStop} onSend={send} />
      </Bar>
    );
  }
  if (draft.mode === "respond") {
    const send = (value: Json) => void deciding.send({ type: "respond", value });
    return (
      <Bar>
        <RespondPanel
          {...common}
          label={labels.respondLabel}
          hint={labels.respondHint}
          submitLabel={labels.respondSubmit}
          onSend={send}
        />
      </Bar>
    );
  }
  if (draft.mode === "note") {
    return (
      <Bar>
        {why("approve") && (
          <p className="decide-reason" data-testid="reason">
            {why("approve")}
          </p>
        )}
        <NotePanel id={request.id} draft={draft} onCancel={cancel}>
          <ApproveButton
            request={request}
            label="Approve with this note"
            confirmation={confirmationFor(request)}
            blockedReason={deciding.busy ? "Sending…" : why("approve")}
            warming={false}
            onConfirm={() => void deciding.send({ type: "approve", message: draft.note.trim() })}
          />
        </NotePanel>
      </Bar>
    );
  }
  if (draft.mode === "edit") return <EditBar {...props} warming={warming} onCancel={cancel} />;
  if (request.kind === "in_doubt") return <InDoubtBar {...props} bar={bar} warming={warming} why={why} onOpen={open} />;
  const key = (letter: string) => (shortcuts ? letter : undefined);
  const busy = deciding.busy;
  const reason = disabledReason(request, question ? "respond" : "approve", now, props.answer?.missing);
  const canGrant =
    role !== "chat" &&
    !question &&
    request.kind === "approval" &&
    request.tool !== null &&
    !request.plan &&
    request.quorum === 1 &&
    request.risk.level !== "critical";
  return (
    <Bar ref={bar}>
      {reason && (
        <p className="decide-reason" id="bar-reason" data-testid="reason">
          {reason}
          {shortcuts && now.left > 0 && <span className="keys-only"> Space turns the page.</span>}
        </p>
      )}
      <div className="decide-buttons">
        {allowed("reject") && (
          <Button
            tone="danger"
            icon="cross"
            shortcut={key("R")}
            data-mode="reject"
            disabled={busy || why("reject") !== ""}
            onClick={() => open("reject")}
          >
            {labels.reject}
          </Button>
        )}
        {!question && allowed("respond") && (
          <Button
            icon="reply"
            shortcut={key("M")}
            data-mode="respond"
            disabled={busy || why("respond") !== ""}
            onClick={() => open("respond")}
          >
            {labels.respond}
          </Button>
        )}
        {!question && allowed("edit") && (
          <Button
            icon="edit"
            shortcut={key("E")}
            data-mode="edit"
            disabled={busy || why("edit") !== ""}
            onClick={props.onEdit}
          >
            Edit
          </Button>
        )}
        <div className="decide-main">
          {notable && (
            <Button tone="ghost" className="touch-only" data-mode="note" disabled={busy || warming} onClick={() => set("note")}>
              Note…
            </Button>
          )}
          {canGrant && allowed("approve") && (
            <Button tone="ghost" disabled={busy || why("approve") !== ""} onClick={() => setGranting(true)}>
              Always allow…
            </Button>
          )}
          {question
            ? allowed("respond") && (
                <Button
                  tone="primary"
                  icon="reply"
                  data-send
                  shortcut={key("Ctrl Enter")}
                  disabled={busy || warming || why("respond") !== "" || props.answer?.value === undefined}
                  data-warming={warming ? "" : undefined}
                  onClick={() => void deciding.send({ type: "respond", value: props.answer!.value })}
                >
                  Send answer
                </Button>
              )
            : allowed("approve") && (
                <ApproveButton
                  request={request}
                  label={labels.approve}
                  confirmation={confirmationFor(request)}
                  blockedReason={busy ? "Sending…" : why("approve")}
                  warming={warming}
                  shortcut={key("A")}
                  onConfirm={() => void deciding.send({ type: "approve" })}
                />
              )}
        </div>
      </div>
      {granting && (
        <GrantDialog
          request={request}
          onClose={() => setGranting(false)}
          onGrant={(grant, pending) =>
            void deciding.send({ type: "approve", grant }).then((done) => (done ? approveAll(pending) : undefined))
          }
        />
      )}
    </Bar>
  );
}

/** The choices for a call in doubt. Each explains what it does, and none has the shortcut of Approve. */
function InDoubtBar(
  props: ActionBarProps & {
    bar: Ref<HTMLDivElement>;
    warming: boolean;
    why: (type: DecisionType) => string;
    onOpen: (mode: "reject" | "respond") => void;
  },
): ReactElement {
  const { request, deciding, why, onOpen } = props;
  const { busy } = deciding;
  const tool = <code>{request.shown.tool ?? request.tool}</code>;
  const allowed = (type: DecisionType) => request.allowed.includes(type);
  const reason = (allowed("approve") && why("approve")) || why("respond");
  return (
    <Bar ref={props.bar}>
      {reason && (
        <p className="decide-reason" data-testid="reason">
          {reason}
        </p>
      )}
      <ul className="doubt-choices">
        {allowed("respond") && (
          <li>
            <Button
              data-mode="respond"
              disabled={busy || why("respond") !== ""}
              onClick={() => onOpen("respond")}
            >
              {LABELS.in_doubt.respond}
            </Button>
            <span>You enter the result, and the agent continues with it. Nothing runs.</span>
          </li>
        )}
        {allowed("approve") && (
          <li>
            <ApproveButton
              request={request}
              label={LABELS.in_doubt.approve}
              tone="default"
              confirmation={confirmationFor(request)}
              blockedReason={busy ? "Sending…" : why("approve")}
              warming={props.warming}
              onConfirm={() => void deciding.send({ type: "approve" })}
            />
            <span>Runs {tool} once more. If the first attempt took effect, it happens twice.</span>
          </li>
        )}
        {allowed("reject") && (
          <li>
            <Button data-mode="reject" disabled={busy || why("reject") !== ""} onClick={() => onOpen("reject")}>
              {LABELS.in_doubt.reject}
            </Button>
            <span>Closes it as failed and tells the agent. Nothing runs.</span>
          </li>
        )}
      </ul>
    </Bar>
  );
}

function disabledReason(request: Request, main: DecisionType, now: DecisionContext, missing?: string): string {
  if (!request.allowed.includes(main)) return "";
  return blockedReason(request, main, now) || missing || "";
}

function focusAnswer(): void {
  document
    .querySelector<HTMLElement>(".question input, .question textarea, .question select, textarea.question")
    ?.focus();
}

function Bar({ children, ref }: { children: React.ReactNode; ref?: Ref<HTMLDivElement> }): ReactElement {
  return (
    <div ref={ref} className="decide-bar" role="group" aria-label="Decide">
      {children}
    </div>
  );
}

function EditBar(props: ActionBarProps & { warming: boolean; onCancel: () => void }): ReactElement {
  const { request, draft, deciding, now, check } = props;
  useShortcuts({ Escape: props.onCancel });
  const blocked =
    blockedReason(request, "edit", now) ||
    (props.editInvalid ? "This is not valid JSON." : "") ||
    (!check ? "Checking the edit…" : "") ||
    (check && !check.ok ? "Fix the marked fields." : "") ||
    (check && check.diff.length === 0 ? "Change something, or cancel the edit and approve." : "");
  return (
    <Bar>
      {blocked && (
        <p className="decide-reason" data-testid="reason">
          {blocked}
        </p>
      )}
      <div className="decide-buttons">
        <Button onClick={props.onCancel}>Cancel edit</Button>
        <Button tone="ghost" onClick={() => setDraft(request.id, { args: editable(request) })}>
          Start over
        </Button>
        <div className="decide-main">
          <ApproveButton
            request={request}
            label="Approve with edits"
            confirmation={confirmationFor(request, check?.risk?.level)}
            blockedReason={deciding.busy ? "Sending…" : (blocked ?? "")}
            warming={false}
            onConfirm={() => void deciding.send({ type: "edit", ...editOf(editable(request), draft.args ?? editable(request)) })}
          />
        </div>
      </div>
    </Bar>
  );
}
