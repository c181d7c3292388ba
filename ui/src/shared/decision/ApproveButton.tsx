/** The approve button. Enter alone never approves, and higher risk needs an extra confirmation. */

import { useEffect, useRef, useState, type ReactElement } from "react";
import { Button } from "../components/Button";
import { Dialog } from "../components/Dialog";
import { toast } from "../components/Toasts";
import { isTyping, named, useShortcuts } from "../shortcuts";
import type { Request } from "../types";
import { visible } from "../visible";
import { decisive } from "./inWords";
import { confirmationPhrase, type Confirmation } from "./approvalGuard";

interface Props {
  request: Request;
  label: string;
  confirmation: Confirmation;
  /** Why the decision is not possible now; empty if it is. */
  blockedReason: string;
  warming: boolean;
  shortcut?: string;
  tone?: "primary" | "default";
  onConfirm: () => void;
}

export function ApproveButton(props: Props): ReactElement {
  const { request, label, confirmation, blockedReason, warming, shortcut, tone = "primary", onConfirm } = props;
  const [armed, setArmed] = useState(false);
  const [typing, setTyping] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const disarm = () => setArmed(false);
  useEffect(() => disarm, [request.id, request.revision]);
  const confirm = () => {
    disarm();
    onConfirm();
  };
  const press = () => {
    if (warming) return;
    if (blockedReason) toast(blockedReason, "info");
    else if (confirmation === "type") setTyping(true);
    else if (confirmation === "confirm") {
      setArmed(true);
      // In a text, Enter starts a line.
      if (isTyping(document.activeElement)) button.current?.focus();
    }
    else confirm();
  };
  useShortcuts(shortcut ? { [shortcut.toLowerCase()]: named(!blockedReason && label, press) } : {});
  useShortcuts({ Enter: confirm, Escape: disarm }, armed && !blockedReason);
  useEffect(() => {
    if (!armed) return;
    // Once the focus has moved, Enter is meant for something else.
    const moved = (event: FocusEvent) => event.target !== button.current && disarm();
    document.addEventListener("focusin", moved);
    return () => document.removeEventListener("focusin", moved);
  }, [armed]);
  return (
    <>
      <Button
        ref={button}
        tone={tone}
        icon={tone === "primary" ? "check" : undefined}
        shortcut={armed ? "Enter" : shortcut}
        className={armed ? "button-armed" : undefined}
        disabled={blockedReason !== "" || warming}
        data-warming={warming && blockedReason === "" ? "" : undefined}
        onKeyDown={(event) => {
          // Enter on a button is a click. Here it only counts as the confirmation.
          if (event.key !== "Enter" || armed) return;
          event.preventDefault();
          if (confirmation === "type") setTyping(true);
          else toast(`Enter alone does not approve. Press Space${shortcut ? ` or ${shortcut}` : ""}.`, "info");
        }}
        onClick={() => (armed ? confirm() : press())}
      >
        {armed ? `Confirm: ${label.toLowerCase()}` : label}
      </Button>
      <span className={armed ? "confirm-hint" : "sr-only"} role="status">
        {armed ? "Press Enter to confirm, Esc to go back" : ""}
      </span>
      {typing && <TypeToConfirm request={request} label={label} onClose={() => setTyping(false)} onConfirm={confirm} />}
    </>
  );
}

function TypeToConfirm(props: { request: Request; label: string; onClose: () => void; onConfirm: () => void }): ReactElement {
  const [text, setText] = useState("");
  const wanted = confirmationPhrase(props.request);
  const right = text === wanted;
  return (
    <Dialog title="Confirm critical request" onClose={props.onClose}>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!right) return;
          props.onClose();
          props.onConfirm();
        }}
      >
        <p className="wrap">
          <strong>{props.request.shown.title}</strong>
        </p>
        {decisive(props.request.shown.args) && <p className="decisive wrap">{decisive(props.request.shown.args)}</p>}
        <pre className="confirm-args wrap" tabIndex={0} aria-label="What will run">
          {props.request.shown.lines.join("\n")}
        </pre>
        <p>
          {props.request.risk.reasons.length > 0 && `Risk: ${visible(props.request.risk.reasons.join("; "))}. `}
          Type <code className="phrase">{wanted}</code> to confirm.
        </p>
        <label className="field">
          <span className="field-label">Tool name</span>
          <input
            className="mono"
            data-autofocus
            autoComplete="off"
            spellCheck={false}
            value={text}
            onChange={(event) => setText(event.target.value)}
            onPaste={(event) => event.preventDefault()}
          />
        </label>
        <div className="dialog-actions">
          <Button onClick={props.onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={!right}>
            {props.label}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
