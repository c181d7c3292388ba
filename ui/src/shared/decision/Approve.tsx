/** The approve button. Enter alone never approves, and higher risk needs an extra confirmation. */

import { useEffect, useRef, useState, type ReactElement } from "react";
import { Button } from "../components/Button";
import { Dialog } from "../components/Dialog";
import { toast } from "../components/Toasts";
import { useShortcuts } from "../keys";
import type { Request } from "../types";
import { visible } from "../visible";
import type { Ceremony } from "./guard";
import { phrase } from "./guard";

const BY_KEY = 2_000;
const BY_POINTER = 4_000;

interface Props {
  request: Request;
  label: string;
  ceremony: Ceremony;
  /** Why the decision is not possible now; empty if it is. */
  hindrance: string;
  warming: boolean;
  shortcut?: string;
  tone?: "primary" | "default";
  onYes: () => void;
}

export function Approve(props: Props): ReactElement {
  const { request, label, ceremony, hindrance, warming, shortcut, tone = "primary", onYes } = props;
  const [armed, setArmed] = useState(false);
  const [typing, setTyping] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const disarm = () => {
    clearTimeout(timer.current);
    setArmed(false);
  };
  const arm = (ms: number) => {
    clearTimeout(timer.current);
    setArmed(true);
    timer.current = setTimeout(() => setArmed(false), ms);
  };
  useEffect(() => disarm, [request.id, request.revision]);
  const yes = () => {
    disarm();
    onYes();
  };
  const want = (byKey: boolean) => {
    if (warming) return;
    if (hindrance) toast(hindrance, "info");
    else if (ceremony === "type") setTyping(true);
    else if (ceremony === "confirm") arm(byKey ? BY_KEY : BY_POINTER);
    else yes();
  };
  useShortcuts(shortcut ? { [shortcut.toLowerCase()]: () => want(true) } : {});
  useShortcuts({ Enter: yes, Escape: disarm }, armed && !hindrance);
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
        disabled={hindrance !== "" || warming}
        data-warming={warming && hindrance === "" ? "" : undefined}
        onKeyDown={(event) => {
          // Enter on a button is a click. Here it only counts as the confirmation.
          if (event.key !== "Enter" || armed) return;
          event.preventDefault();
          if (ceremony === "type") setTyping(true);
          else toast(`Enter alone does not approve. Press Space${shortcut ? ` or ${shortcut}` : ""}.`, "info");
        }}
        onClick={() => (armed ? yes() : want(false))}
      >
        {armed ? `Confirm: ${label.toLowerCase()}` : label}
      </Button>
      <span className="sr-only" role="status">
        {armed ? "Press Enter to confirm" : ""}
      </span>
      {typing && <TypeName request={request} label={label} onClose={() => setTyping(false)} onYes={yes} />}
    </>
  );
}

function TypeName(props: { request: Request; label: string; onClose: () => void; onYes: () => void }): ReactElement {
  const [text, setText] = useState("");
  const wanted = phrase(props.request);
  const right = text === wanted;
  return (
    <Dialog title="Confirm critical request" onClose={props.onClose}>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!right) return;
          props.onClose();
          props.onYes();
        }}
      >
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
