import type { ReactElement } from "react";
import { Dialog } from "../shared/components/Dialog";
import { setShortcutsEnabled, useShortcutsEnabled } from "../shared/shortcuts";
import { PAGES } from "./pages";

const INBOX: [string[], string][] = [
  [["j", "k"], "Next or previous request"],
  [["Enter"], "Open the request. Enter alone never approves"],
  [["x"], "Select the request, to decide several together"],
  [["a"], "Approve. For high risk, confirm with Enter"],
  [["n"], "Approve with a note"],
  [["r"], "Reject with a reason"],
  [["e"], "Edit the arguments"],
  [["u"], "Undo your last decision, for five seconds. Also Ctrl+Z"],
  [["m"], "Respond without running the call, or answer a question"],
  [["Space"], "Turn the page, to read the request to its end. Also PageDown; Shift or PageUp goes back"],
  [["1", "9"], "Pick an option of a question"],
  [["Ctrl", "Enter"], "Send the answer"],
  [["Esc"], "Close a form, or go back to the list"],
];
const ANYWHERE: [string[], string][] = [
  [["/"], "Search"],
  [["Ctrl", "k"], "Find requests, views, pages and actions"],
  [["?"], "Show this list"],
  ...PAGES.map((page): [string[], string] => [["g", page.key], `Go to ${page.name}`]),
];

function List({ title, rows }: { title: string; rows: [string[], string][] }): ReactElement {
  return (
    <section>
      <h3>{title}</h3>
      <dl className="shortcuts">
        {rows.map(([keys, text]) => (
          <div key={text}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

export function ShortcutsDialog({ onClose }: { onClose: () => void }): ReactElement {
  const enabled = useShortcutsEnabled();
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} wide>
      <label className="check">
        <input type="checkbox" checked={enabled} onChange={(event) => setShortcutsEnabled(event.target.checked)} />
        Enable single-key shortcuts
      </label>
      <div className="shortcut-columns">
        <List title="Inbox" rows={INBOX} />
        <List title="Anywhere" rows={ANYWHERE} />
      </div>
    </Dialog>
  );
}
