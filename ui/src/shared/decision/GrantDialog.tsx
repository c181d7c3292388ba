/** "Always allow…": approve a call and create a grant with a scope, a number of uses and an end. */

import { useState, type ReactElement } from "react";
import { Button } from "../components/Button";
import { Dialog } from "../components/Dialog";
import type { GrantInput, Request } from "../types";
import { visible } from "../visible";
import { toGrantInput, patternScope, type FieldRule } from "./grant";

const ENDS: [string, number][] = [
  ["1 hour", 3_600],
  ["1 day", 86_400],
  ["7 days", 604_800],
  ["30 days", 2_592_000],
];

type Scope = "exact" | "any" | "pattern";

export function GrantDialog(props: {
  request: Request;
  onClose: () => void;
  onGrant: (grant: GrantInput) => void;
}): ReactElement {
  const { request } = props;
  const names = Object.keys(request.args);
  const [scope, setScope] = useState<Scope>("exact");
  const [rules, setRules] = useState<Record<string, FieldRule>>({});
  const [uses, setUses] = useState("");
  const [ends, setEnds] = useState(86_400);
  const pattern = patternScope(request.args, rules);
  const wish = toGrantInput(scope === "pattern" ? pattern.scope : scope, uses, ends);
  const problem = (scope === "pattern" ? pattern.error : "") || wish.error;
  const radio = (value: Scope, label: string, text: string) => (
    <label className="option">
      <input type="radio" name="scope" checked={scope === value} onChange={() => setScope(value)} />
      <span>
        <span className="option-label">{label}</span>
        <span className="option-text">{text}</span>
      </span>
    </label>
  );
  return (
    <Dialog title="Always allow" onClose={props.onClose} wide>
      <p>
        Approve this call, and let <strong>{request.shown.agent ?? request.agent}</strong> call{" "}
        <code>{request.shown.tool ?? request.tool}</code> again without approval:
      </p>
      <fieldset className="question">
        <legend className="sr-only">Scope</legend>
        {radio("exact", "Exactly these arguments", "Every other call still needs approval.")}
        {names.length > 0 && radio("pattern", "Calls that match a pattern", "Choose what each field may contain.")}
        {radio("any", "This tool, any arguments", "No call of this tool needs approval.")}
      </fieldset>
      {scope === "pattern" && (
        <ul className="pattern">
          {names.map((name) => (
            <PatternRow
              key={name}
              name={name}
              shown={JSON.stringify((request.shown.args as Record<string, unknown>)[name] ?? request.args[name])}
              text={typeof request.args[name] === "string"}
              rule={rules[name] ?? { kind: "same" }}
              onChange={(rule) => setRules({ ...rules, [name]: rule })}
            />
          ))}
        </ul>
      )}
      <div className="columns">
        <label className="field">
          <span className="field-label">Number of uses</span>
          <input
            inputMode="numeric"
            placeholder="Unlimited"
            value={uses}
            onChange={(event) => setUses(event.target.value)}
          />
        </label>
        <label className="field">
          <span className="field-label">Ends after</span>
          <select value={ends} onChange={(event) => setEnds(Number(event.target.value))}>
            {ENDS.map(([word, seconds]) => (
              <option key={seconds} value={seconds}>
                {word}
              </option>
            ))}
          </select>
        </label>
      </div>
      {problem && (
        <p className="field-error" role="alert">
          {problem}
        </p>
      )}
      <div className="dialog-actions">
        <Button onClick={props.onClose}>Cancel</Button>
        <Button
          tone="primary"
          disabled={problem !== ""}
          onClick={() => {
            props.onClose();
            props.onGrant(wish.grant!);
          }}
        >
          Approve and always allow
        </Button>
      </div>
    </Dialog>
  );
}

function PatternRow(props: {
  name: string;
  shown: string;
  text: boolean;
  rule: FieldRule;
  onChange: (rule: FieldRule) => void;
}): ReactElement {
  const { name, rule, onChange } = props;
  const label = visible(name);
  return (
    <li>
      <span className="mono pattern-name">{label}</span>
      <select
        aria-label={`Allowed values of ${label}`}
        value={rule.kind}
        onChange={(event) => onChange({ kind: event.target.value as FieldRule["kind"], text: rule.text })}
      >
        <option value="same">same value as now</option>
        <option value="any">anything</option>
        {props.text && <option value="starts">text starting with…</option>}
        {props.text && <option value="matches">text matching a regular expression…</option>}
      </select>
      {rule.kind === "starts" || rule.kind === "matches" ? (
        <input
          className="mono"
          aria-label={rule.kind === "starts" ? `${label} starts with` : `${label} matches`}
          value={rule.text ?? ""}
          onChange={(event) => onChange({ ...rule, text: event.target.value })}
        />
      ) : (
        <span className="muted mono wrap">{rule.kind === "same" ? props.shown : ""}</span>
      )}
    </li>
  );
}
