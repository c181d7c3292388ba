import { useId, type ReactElement, type ReactNode } from "react";
import { Button } from "../shared/components/Button";
import { Dialog } from "../shared/components/Dialog";
import { useAction } from "./useAction";

interface Props {
  title: string;
  /** The verb on the button that sends the form. */
  verb: string;
  danger?: boolean;
  /** What the other button says. */
  keep?: string;
  ready?: boolean;
  /** Closes the dialog itself, if it should close. */
  send: () => Promise<void>;
  onClose: () => void;
  children: ReactNode;
}

/** A dialog that sends something. It stays open with the server's sentence if that fails. */
export function FormDialog({ title, verb, danger, keep = "Cancel", ready = true, send, onClose, children }: Props): ReactElement {
  const { busy, error, run } = useAction();
  const id = useId();
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        className="people-form"
        aria-describedby={error ? id : undefined}
        onSubmit={(event) => {
          event.preventDefault();
          if (ready && !busy) void run(send);
        }}
      >
        {children}
        {error && (
          <p id={id} className="field-error people-error" role="alert">
            {error}
          </p>
        )}
        <div className="dialog-actions">
          <Button onClick={onClose}>{keep}</Button>
          <Button type="submit" tone={danger ? "danger" : "primary"} disabled={!ready || busy}>
            {verb}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
