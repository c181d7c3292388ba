/** The buttons to decide a request. If one is disabled, the reason is shown next to it. */

import { useEffect, useRef, useState, type ReactElement, type Ref } from "react";
import { Button } from "../components/Button";
import { useShortcuts } from "../keys";
import { useMe } from "../session";
import type { Check, DecisionType, GrantWish, Json, Kind, Request } from "../types";
import { Approve } from "./Approve";
import { setDraft, type Draft } from "./draft";
import { GrantDialog } from "./GrantDialog";
import { ceremony, hindrance, type Circumstances } from "./guard";
import { RejectPanel, RespondPanel } from "./Panels";
import type { Deciding } from "./useDecide";

interface Words {
  reject: string;
  rejectWord: string;
  respond: string;
  respondLabel: string;
  respondHint: string;
  respondWord: string;
  approve: string;
}

const WORDS: Record<Kind, Words> = {
  approval: {
    reject: "Reject",
    rejectWord: "Reject request",
    respond: "Respond",
    respondLabel: "Response to use instead of running it",
    respondHint: "The tool does not run. The agent gets this as its result.",
    respondWord: "Send response",
    approve: "Approve",
  },
  question: {
    reject: "Decline",
    rejectWord: "Decline to answer",
    respond: "Answer",
    respondLabel: "Answer",
    respondHint: "",
    respondWord: "Send answer",
    approve: "Approve",
  },
  in_doubt: {
    reject: "Give up",
    rejectWord: "Give up",
    respond: "It ran",
    respondLabel: "Result",
    respondHint: "The agent gets this as the result. Nothing runs.",
    respondWord: "Record the result",
    approve: "Run it again",
  },
};

/** Milliseconds after a request appears in which decisions are ignored: the key or click may have been meant for the previous one. */
const WARM = 350;

function useWarming(key: string): boolean {
  const [warm, setWarm] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setWarm(key), WARM);
    return () => clearTimeout(timer);
  }, [key]);
  return warm !== key;
}

export interface ActionBarProps {
  request: Request;
  draft: Draft;
  deciding: Deciding;
  now: Circumstances;
  /** The answer to a question, or why there is none yet. */
  answer?: { value?: Json; missing?: string };
  /** The server's check of the edit. `editBad`: the form holds invalid JSON. */
  check?: Check;
  editBad?: boolean;
  onEdit: () => void;
  /** Off where a page shows several requests. */
  shortcuts?: boolean;
}

export function ActionBar(props: ActionBarProps): ReactElement {
  const { request, draft, deciding, now, shortcuts = true } = props;
  const { role } = useMe();
  const [granting, setGranting] = useState(false);
  const words = WORDS[request.kind];
  const warming = useWarming(`${request.id} ${request.revision}`);
  // An edit can be started before everything was read. Sending it needs the same conditions as an approval.
  const why = (type: DecisionType) => hindrance(request, type, type === "edit" ? { ...now, unseen: [] } : now);
  const allowed = (type: DecisionType) => request.allowed.includes(type);
  const set = (mode: Draft["mode"]) => {
    deciding.clear();
    setDraft(request.id, { mode });
  };
  const open = (mode: "reject" | "respond") => {
    if (allowed(mode) && !why(mode)) set(mode);
  };
  const idle = draft.mode === "none";
  const bar = useRef<HTMLDivElement>(null);
  const left = useRef<Draft["mode"]>("none");
  const cancel = () => {
    left.current = draft.mode;
    set("none");
  };
  // After Cancel, return the focus to the button that opened the form.
  useEffect(() => {
    if (idle) bar.current?.querySelector<HTMLElement>(`[data-mode="${left.current}"]`)?.focus();
    left.current = "none";
  }, [idle]);
  const question = request.kind === "question";
  useShortcuts(
    {
      r: () => open("reject"),
      m: () => (question ? focusAnswer() : open("respond")),
      e: () => allowed("edit") && !question && !why("edit") && props.onEdit(),
    },
    shortcuts && idle,
  );
  const common = { id: request.id, draft, busy: deciding.busy || now.offline !== "", onCancel: cancel };
  if (draft.mode === "reject") {
    const send = (message: string) => void deciding.send({ type: "reject", message });
    return (
      <Bar>
        <RejectPanel {...common} word={words.rejectWord} onSend={send} />
      </Bar>
    );
  }
  if (draft.mode === "respond") {
    const send = (value: Json) => void deciding.send({ type: "respond", value });
    return (
      <Bar>
        <RespondPanel
          {...common}
          label={words.respondLabel}
          hint={words.respondHint}
          word={words.respondWord}
          onSend={send}
        />
      </Bar>
    );
  }
  if (draft.mode === "edit") return <EditBar {...props} warming={warming} onCancel={cancel} />;
  if (request.kind === "in_doubt") return <DoubtBar {...props} bar={bar} warming={warming} why={why} onOpen={open} />;
  const key = (letter: string) => (shortcuts ? letter : undefined);
  const busy = deciding.busy;
  const reason = reasonBeside(request, question ? "respond" : "approve", now, props.answer?.missing);
  const canGrant =
    role !== "chat" &&
    !question &&
    request.kind === "approval" &&
    request.tool !== null &&
    request.quorum === 1 &&
    request.risk.level !== "critical";
  return (
    <Bar ref={bar}>
      {reason && (
        <p className="decide-reason" id="bar-reason" data-testid="reason">
          {reason}
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
            {words.reject}
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
            {words.respond}
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
        <div className="decide-yes">
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
                  disabled={busy || warming || why("respond") !== "" || props.answer?.value === undefined}
                  data-warming={warming ? "" : undefined}
                  onClick={() => void deciding.send({ type: "respond", value: props.answer!.value })}
                >
                  Send answer
                </Button>
              )
            : allowed("approve") && (
                <Approve
                  request={request}
                  label={words.approve}
                  ceremony={ceremony(request)}
                  hindrance={busy ? "Sending…" : why("approve")}
                  warming={warming}
                  shortcut={key("A")}
                  onYes={() => void deciding.send({ type: "approve" })}
                />
              )}
        </div>
      </div>
      {granting && (
        <GrantDialog
          request={request}
          onClose={() => setGranting(false)}
          onGrant={(grant: GrantWish) => void deciding.send({ type: "approve", grant })}
        />
      )}
    </Bar>
  );
}

/** The choices for a call in doubt. Each explains what it does, and none has the shortcut of Approve. */
function DoubtBar(
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
  const reason = why("approve") || why("respond");
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
              {WORDS.in_doubt.respond}
            </Button>
            <span>You enter the result, and the agent continues with it. Nothing runs.</span>
          </li>
        )}
        {allowed("approve") && (
          <li>
            <Approve
              request={request}
              label={WORDS.in_doubt.approve}
              tone="default"
              ceremony={ceremony(request)}
              hindrance={busy ? "Sending…" : why("approve")}
              warming={props.warming}
              onYes={() => void deciding.send({ type: "approve" })}
            />
            <span>Runs {tool} once more. If the first attempt took effect, it happens twice.</span>
          </li>
        )}
        {allowed("reject") && (
          <li>
            <Button data-mode="reject" disabled={busy || why("reject") !== ""} onClick={() => onOpen("reject")}>
              {WORDS.in_doubt.reject}
            </Button>
            <span>Closes it as failed and tells the agent. Nothing runs.</span>
          </li>
        )}
      </ul>
    </Bar>
  );
}

function reasonBeside(request: Request, main: DecisionType, now: Circumstances, missing?: string): string {
  if (!request.allowed.includes(main)) return "";
  return hindrance(request, main, now) || missing || "";
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
    hindrance(request, "edit", now) ||
    (props.editBad ? "This is not valid JSON." : "") ||
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
        <Button tone="ghost" onClick={() => setDraft(request.id, { args: request.args })}>
          Start over
        </Button>
        <div className="decide-yes">
          <Approve
            request={request}
            label="Approve with edits"
            ceremony={ceremony(request, check?.risk?.level)}
            hindrance={deciding.busy ? "Sending…" : (blocked ?? "")}
            warming={false}
            onYes={() => void deciding.send({ type: "edit", args: draft.args })}
          />
        </div>
      </div>
    </Bar>
  );
}
