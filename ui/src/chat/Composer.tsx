import { useEffect, useRef, useState, type KeyboardEvent, type ReactElement } from "react";
import { Button, IconButton } from "../shared/components/Button";
import { useLive, type LiveState } from "../shared/live";

interface ComposerProps {
  /** The number of open requests, which should be decided first. */
  open: number;
  busy: boolean;
  onSend: (text: string) => void;
  onStop: () => void;
  focus?: boolean;
}

/** Why sending is disabled. */
const AWAY: Partial<Record<LiveState["state"], string>> = {
  offline: "You are offline. You can send once the connection is back.",
  ended: "You are signed out. Sign in to continue.",
};

/** The message field. Disabled while requests are open, unless the user chooses to write instead. */
export function Composer({ open, busy, onSend, onStop, focus }: ComposerProps): ReactElement {
  const [text, setText] = useState("");
  const [instead, setInstead] = useState(false);
  // Set by Enter while an answer is streaming: the message is sent when the answer ends, unless a request is open then.
  const [queued, setQueued] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const offline = AWAY[useLive().state] ?? "";
  const shut = open > 0 && !instead;

  useEffect(() => {
    if (open === 0) setInstead(false);
  }, [open]);
  useEffect(() => {
    if (focus && matchMedia("(hover: hover)").matches) field.current?.focus();
  }, [focus]);
  useEffect(() => {
    if (instead) field.current?.focus();
  }, [instead]);
  useEffect(() => {
    const area = field.current!;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, 200)}px`;
  }, [text]);

  const ready = text.trim() !== "" && !busy && !shut && !offline;
  const send = () => {
    if (!ready) {
      setQueued(busy && text.trim() !== "");
      return;
    }
    setQueued(false);
    onSend(text.trim());
    setText("");
  };
  useEffect(() => {
    if (queued && !busy) send();
  }, [queued, busy]);
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {open > 0 && (
        <div className="composer-note" id="composer-note">
          <span>
            {shut
              ? open === 1
                ? "Waiting for your decision."
                : `Waiting for ${open} decisions.`
              : "Sending a message closes the open requests. They will not run."}
          </span>
          <Button small tone="ghost" onClick={() => setInstead(!instead)}>
            {shut ? "Cancel and write instead" : "Keep waiting"}
          </Button>
        </div>
      )}
      <div className="composer-box" data-shut={shut || undefined}>
        <textarea
          ref={field}
          rows={1}
          value={text}
          disabled={shut}
          aria-label="Message"
          aria-describedby={open > 0 ? "composer-note" : undefined}
          placeholder={shut ? "Decide above to continue" : "Message the agent"}
          onChange={(event) => {
            setText(event.target.value);
            setQueued(false);
          }}
          onKeyDown={press}
        />
        {busy ? (
          <Button className="composer-stop" onClick={onStop}>
            <span className="stop-mark" aria-hidden="true" />
            Stop
          </Button>
        ) : (
          <IconButton type="submit" className="composer-send" label="Send" icon="up" disabled={!ready} />
        )}
      </div>
      <p className="composer-hint" role={offline || queued ? "status" : undefined}>
        {offline ||
          (queued ? "This will be sent when the answer is complete." : "Enter to send, Shift+Enter for a new line.")}
      </p>
    </form>
  );
}
