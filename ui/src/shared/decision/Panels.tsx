/** The forms of the action bar: the reason for a rejection, and the value of a response. */

import { useEffect, useRef, type KeyboardEvent, type ReactElement, type ReactNode } from "react";
import { Button } from "../components/Button";
import type { Json } from "../types";
import { setDraft, type Draft } from "./draft";
import { readJson } from "./schema";

interface PanelProps {
  label: string;
  hint: string;
  text: string;
  onText: (text: string) => void;
  onCancel: () => void;
  onSend: () => void;
  error?: string;
  children: ReactNode;
}

function Panel({ label, hint, text, onText, onCancel, onSend, error, children }: PanelProps): ReactElement {
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => box.current?.focus(), []);
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault();
      onCancel();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onSend();
    }
  };
  return (
    <div className="panel" onKeyDown={keys}>
      <label className="field">
        <span className="field-label">{label}</span>
        <textarea
          ref={box}
          rows={3}
          value={text}
          aria-invalid={error ? true : undefined}
          onChange={(event) => onText(event.target.value)}
        />
        <span className="field-hint">{hint}</span>
        {error && <span className="field-error">{error}</span>}
      </label>
      <div className="panel-actions">{children}</div>
    </div>
  );
}

interface Common {
  id: string;
  draft: Draft;
  busy: boolean;
  onCancel: () => void;
}

interface RejectProps extends Common {
  submitLabel: string;
  stopLabel: string;
  onSend: (message: string, stop?: boolean) => void;
}

export function RejectPanel(props: RejectProps): ReactElement {
  const { draft, id, busy, onCancel } = props;
  const send = () => !busy && props.onSend(draft.reason.trim());
  return (
    <Panel
      label="Reason"
      hint="The agent sees this. Say what to do instead."
      text={draft.reason}
      onText={(reason) => setDraft(id, { reason })}
      onCancel={onCancel}
      onSend={send}
    >
      <Button onClick={onCancel}>Cancel</Button>
      <Button tone="ghost" disabled={busy} onClick={() => props.onSend(draft.reason.trim(), true)}>
        {props.stopLabel}
      </Button>
      <Button tone="danger" icon="cross" shortcut="Ctrl Enter" disabled={busy} onClick={send}>
        {props.submitLabel}
      </Button>
    </Panel>
  );
}

/** A note with an approval: for the record, which the agent does not read. */
export function NotePanel({ id, draft, onCancel, children }: Omit<Common, "busy"> & { children: ReactNode }): ReactElement {
  const actions = useRef<HTMLDivElement>(null);
  return (
    <Panel
      label="Note"
      hint="Kept with your approval. People see it in the history."
      text={draft.note}
      onText={(note) => setDraft(id, { note })}
      onCancel={onCancel}
      onSend={() => actions.current?.querySelector<HTMLButtonElement>("button.button-primary")?.click()}
    >
      <Button onClick={onCancel}>Cancel</Button>
      <div ref={actions}>{children}</div>
    </Panel>
  );
}

/** The value to send: text, or parsed JSON if that is selected. */
function replyValue(draft: Draft): { value?: Json; error?: string } {
  if (!draft.asJson) return draft.answer === "" ? { error: "Enter the result for the agent." } : { value: draft.answer };
  return readJson(draft.answer);
}

interface RespondProps extends Common {
  label: string;
  hint: string;
  submitLabel: string;
  onSend: (value: Json) => void;
}

export function RespondPanel(props: RespondProps): ReactElement {
  const { draft, id, busy, onCancel } = props;
  const reply = replyValue(draft);
  const send = () => {
    if (!busy && reply.error === undefined) props.onSend(reply.value!);
  };
  return (
    <Panel
      label={props.label}
      hint={props.hint}
      text={draft.answer}
      onText={(answer) => setDraft(id, { answer })}
      onCancel={onCancel}
      onSend={send}
      error={draft.asJson && draft.answer !== "" ? reply.error : undefined}
    >
      <label className="check panel-json">
        <input
          type="checkbox"
          checked={draft.asJson}
          onChange={(event) => setDraft(id, { asJson: event.target.checked })}
        />
        This is JSON
      </label>
      <Button onClick={onCancel}>Cancel</Button>
      <Button tone="primary" icon="reply" shortcut="Ctrl Enter" disabled={busy || reply.error !== undefined} onClick={send}>
        {props.submitLabel}
      </Button>
    </Panel>
  );
}
