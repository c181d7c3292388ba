/** "Always allow…": approve a call and create a grant with a scope, a number of uses and an end. */

import { useState, type ReactElement } from "react";
import { Button } from "../components/Button";
import { Dialog } from "../components/Dialog";
import { ReplaySummary } from "../components/Replay";
import { api } from "../api";
import type { GrantInput, GrantPreview, NoGrant, Request, SimilarCall } from "../types";
import { useResource, type Resource } from "../useResource";
import { visible } from "../visible";
import { toGrantInput, patternScope, type FieldRule } from "./grant";

const ENDS: [string, number][] = [
  ["1 hour", 3_600],
  ["1 day", 86_400],
  ["7 days", 604_800],
  ["30 days", 2_592_000],
];

/** How many of the covered requests are listed. */
const MOST = 8;

/** A scope of the fields below, or the number of one that the server offers. */
type Choice = "exact" | "any" | "pattern" | number;

export function GrantDialog(props: {
  request: Request;
  onClose: () => void;
  onGrant: (grant: GrantInput, pending: GrantPreview["pending"]) => void;
}): ReactElement {
  const { request } = props;
  const names = Object.keys(request.args);
  const [choice, setChoice] = useState<Choice>("exact");
  const [rules, setRules] = useState<Record<string, FieldRule>>({});
  const [uses, setUses] = useState("");
  const [ends, setEnds] = useState(86_400);
  const [taking, setTaking] = useState(true);
  const offer = useResource(`grant ${request.id} ${request.revision}`, (signal) =>
    api.previewGrant(request.id, { scope: "exact" }, signal),
  );
  const scopes = offer.data?.ok ? offer.data.scopes : [];
  const pattern = patternScope(request.args, rules);
  const scope = typeof choice === "number" ? scopes[choice]!.scope : choice === "pattern" ? pattern.scope : choice;
  const wish = toGrantInput(scope, uses, ends);
  const invalid = (choice === "pattern" ? pattern.error : "") || wish.error;
  const covered = useResource(
    offer.data?.ok && !invalid ? `grant ${request.id} ${request.revision} ${JSON.stringify(scope)}` : null,
    (signal) => api.previewGrant(request.id, { scope }, signal),
  );
  const preview = covered.data?.ok ? covered.data : undefined;
  const problem = invalid || refusal(offer) || refusal(covered);
  const radio = (value: Choice, label: string, text: string) => (
    <label className="option" key={value}>
      <input type="radio" name="scope" checked={choice === value} onChange={() => setChoice(value)} />
      <span>
        <span className="option-label wrap">{label}</span>
        <span className="option-text">{text}</span>
      </span>
    </label>
  );
  const offered = (
    <>
      {radio("exact", exactLabel(scopes), "Every other call still needs approval.")}
      {scopes.slice(1).map(({ scope, shown }, index) =>
        radio(index + 1, shown.join(" "), "command" in scope ? ONE_COMMAND : ANY_CONTENT),
      )}
    </>
  );
  const fields = (
    <>
      {radio("exact", "Exactly these arguments", "Every other call still needs approval.")}
      {names.length > 0 && radio("pattern", "Calls that match a pattern", "Choose what each field may contain.")}
      {radio("any", "This tool, any arguments", "No call of this tool needs approval, unless its risk is higher.")}
    </>
  );
  return (
    <Dialog title="Always allow" onClose={props.onClose} wide>
      <p>
        Approve this call, and let <strong>{request.shown.agent ?? request.agent}</strong> call{" "}
        <code>{request.shown.tool ?? request.tool}</code> again without approval:
      </p>
      {offer.data?.ok && (
        <fieldset className="question">
          <legend className="sr-only">Scope</legend>
          {scopes.length > 0 ? offered : fields}
        </fieldset>
      )}
      {choice === "pattern" && (
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
      {preview && <Covered preview={preview} taking={taking} onTaking={setTaking} />}
      {problem && (
        <p className="field-error" role="alert">
          {problem}
        </p>
      )}
      <div className="dialog-actions">
        <Button onClick={props.onClose}>Cancel</Button>
        <Button
          tone="primary"
          disabled={problem !== "" || !preview}
          onClick={() => {
            props.onClose();
            props.onGrant(wish.grant!, taking ? preview!.pending : []);
          }}
        >
          Approve and always allow
        </Button>
      </div>
    </Dialog>
  );
}

const ONE_COMMAND = "One command, with nothing chained or redirected, that does no more than this one.";
const ANY_CONTENT = "With any content. Files that hold credentials, or that other tools run, still need approval.";

/** Why the server would not accept the grant; "" if it would, or has not answered yet. */
function refusal({ data, error }: Resource<GrantPreview | NoGrant>): string {
  return error?.message ?? (data && !data.ok ? data.message : "");
}

function exactLabel(scopes: GrantPreview["scopes"]): string {
  return scopes[0] && "command" in scopes[0].scope ? scopes[0].shown.join(" ") : "Exactly these arguments";
}

/** Which earlier requests a grant would have covered, and which pending ones it covers. */
function Covered(props: {
  preview: GrantPreview;
  taking: boolean;
  onTaking: (taking: boolean) => void;
}): ReactElement {
  const { past, pending } = props.preview;
  return (
    <section aria-label="What it covers" className="covered" data-testid="covered">
      <CoveredList
        items={past}
        none="It would have covered none of the latest requests."
        some="Earlier requests that it would have covered"
      />
      {props.preview.replay && <ReplaySummary replay={props.preview.replay} />}
      <CoveredList items={pending} none="It covers no pending request." some="Pending requests that it covers" />
      {pending.length > 0 && (
        <label className="check">
          <input type="checkbox" checked={props.taking} onChange={(event) => props.onTaking(event.target.checked)} />{" "}
          Approve these pending requests too
        </label>
      )}
    </section>
  );
}

function CoveredList(props: { items: SimilarCall[]; some: string; none: string }): ReactElement {
  const { items } = props;
  if (items.length === 0) return <p className="muted small">{props.none}</p>;
  return (
    <>
      <p className="field-label">
        {props.some}: {items.length}
      </p>
      <ul className="small mono wrap">
        {items.slice(0, MOST).map((item) => (
          <li key={item.id}>{item.summary}</li>
        ))}
        {items.length > MOST && <li>and {items.length - MOST} more</li>}
      </ul>
    </>
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
        {props.text && <option value="matches">text matching a regular expression…</option>}
      </select>
      {rule.kind === "matches" ? (
        <input
          className="mono"
          aria-label={`${label} matches`}
          value={rule.text ?? ""}
          onChange={(event) => onChange({ ...rule, text: event.target.value })}
        />
      ) : (
        <span className="muted mono wrap">{rule.kind === "same" ? props.shown : ""}</span>
      )}
    </li>
  );
}
