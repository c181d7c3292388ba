/** Your settings, kept in this browser. */

import type { ReactElement } from "react";
import { setTimesExact, useTimesExact } from "../shared/format";
import { setShortcutsEnabled, useShortcutsEnabled } from "../shared/shortcuts";
import { useTheme, type Theme } from "../shared/theme";
import { setUndoEnabled, useUndoEnabled } from "../shared/undo";

const THEMES: Record<Theme, string> = { system: "As this device", light: "Light", dark: "Dark" };

export default function SettingsPage(): ReactElement {
  const undo = useUndoEnabled();
  const keys = useShortcutsEnabled();
  const exact = useTimesExact();
  const [theme, setTheme] = useTheme();
  return (
    <main className="page settings">
      <div className="page-head">
        <h1>Settings</h1>
      </div>
      <p className="muted">They count in this browser.</p>
      <h2>Decisions</h2>
      <label className="check">
        <input type="checkbox" checked={undo} onChange={(event) => setUndoEnabled(event.target.checked)} />
        Offer to undo each decision for five seconds. Until then, nothing starts.
      </label>
      <label className="check">
        <input type="checkbox" checked={keys} onChange={(event) => setShortcutsEnabled(event.target.checked)} />
        Enable single-key shortcuts
      </label>
      <Choice name="Theme" value={theme} options={Object.entries(THEMES) as [Theme, string][]} onChange={setTheme} />
      <Choice
        name="Times"
        value={exact ? "exact" : "ago"}
        options={[
          ["ago", "How long ago: 5 m ago"],
          ["exact", "Date and time: Nov 17, 2026, 14:05:09"],
        ]}
        onChange={(value) => setTimesExact(value === "exact")}
      />
    </main>
  );
}

function Choice<T extends string>(props: { name: string; value: T; options: [T, string][]; onChange: (value: T) => void }): ReactElement {
  return (
    <fieldset className="settings-choice">
      <legend>
        <h2>{props.name}</h2>
      </legend>
      {props.options.map(([value, label]) => (
        <label key={value} className="check">
          <input type="radio" name={props.name} checked={value === props.value} onChange={() => props.onChange(value)} />
          {label}
        </label>
      ))}
    </fieldset>
  );
}
