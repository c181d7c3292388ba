/** Edit the arguments as a form or as JSON. The server checks them while you type. */

import { lazy, Suspense, useEffect, useMemo, useState, type ReactElement } from "react";
import { ApiError, api } from "../api";
import { RiskBadge } from "../components/Badge";
import { Notice } from "../components/States";
import { Tabs } from "../components/Tabs";
import type { Check, Json, JsonObject, Request } from "../types";
import { DiffView } from "./DiffView";
import { setDraft } from "./draft";
import { converted, editable, editOf } from "./edit";
import { fieldPath, formSchema, problemsOf, readJson, type Problem } from "./schema";
import { HiddenCharacters } from "./HiddenCharacters";
import { PlanForm } from "./PlanView";
import { ValueView } from "./ValueView";

const SchemaForm = lazy(() => import("./SchemaForm"));

const PAUSE = 300;

interface Checked {
  /** The result for the current arguments; absent while it is loading. */
  check?: Check;
  error?: ApiError;
}

/** Check the arguments on the server, once typing pauses. */
export function useCheck(request: Request, args: JsonObject | undefined): Checked {
  const key = args === undefined ? "" : `${request.id} ${request.revision} ${JSON.stringify(args)}`;
  const [state, setState] = useState<{ key: string } & Checked>({ key: "" });
  useEffect(() => {
    if (!args) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      api
        .check(request.id, editOf(editable(request), args), stop.signal)
        .then((check) => setState({ key, check }))
        .catch((error: unknown) => {
          if (!stop.signal.aborted && error instanceof ApiError) setState({ key, error });
        });
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key]);
  return state.key === key ? state : {};
}

interface Props {
  request: Request;
  args: JsonObject;
  checked: Checked;
  /** Called with whether the JSON text is invalid. */
  onInvalid: (invalid: boolean) => void;
}

export function EditForm({ request, args, checked, onInvalid }: Props): ReactElement {
  const [view, setView] = useState<"form" | "json">("form");
  const [text, setText] = useState<string | null>(null);
  const [invalidSteps, setInvalidSteps] = useState(false);
  const json = text === null ? undefined : readJson(text);
  const invalid = json?.error !== undefined || invalidSteps;
  useEffect(() => onInvalid(invalid), [invalid]);
  const set = (value: Json) => setDraft(request.id, { args: value as JsonObject });
  const remove = (name: string) => set(Object.fromEntries(Object.entries(args).filter(([key]) => key !== name)));
  const known = useMemo(() => formSchema(request.schema, editable(request), converted(request)), [request.schema, request.args, request.written]);
  const formProblems = useMemo(() => problemsOf(known, args), [known, args]);
  const serverProblems: Problem[] = (checked.check?.errors ?? []).map((each) => ({ ...each, field: fieldPath(each.field) }));
  // The server decides, but the messages of this form are easier to read, so they are shown first.
  const problems = formProblems.length ? formProblems : serverProblems;
  const type = (next: string) => {
    setText(next);
    const { value } = readJson(next);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) set(value);
  };
  const switchTo = (next: "form" | "json") => {
    if (invalid) return;
    setText(next === "json" ? JSON.stringify(args, null, 2) : null);
    setView(next);
  };
  return (
    <div className="edit" data-testid="edit-form">
      <Tabs
        label="Edit as"
        current={view}
        onChange={switchTo}
        tabs={[
          { key: "form", label: request.plan ? "Steps" : "Form" },
          { key: "json", label: "JSON" },
        ]}
      >
        {view === "form" && request.plan ? (
          <PlanForm args={args} onChange={set} onInvalid={setInvalidSteps} />
        ) : view === "form" ? (
          <Suspense fallback={<p className="muted">Loading form…</p>}>
            <SchemaForm schema={known} value={args} problems={problems} onChange={set} onRemove={remove} />
          </Suspense>
        ) : (
          <label className="field">
            <span className="field-label">Arguments as JSON</span>
            <textarea
              className="mono"
              rows={Math.min(24, (text ?? "").split("\n").length + 1)}
              spellCheck={false}
              aria-invalid={json?.error ? true : undefined}
              value={text ?? ""}
              onChange={(event) => type(event.target.value)}
            />
            {json?.error && <span className="field-error">{json.error}</span>}
            <HiddenCharacters text={text ?? ""} />
          </label>
        )}
      </Tabs>
      <CheckView request={request} checked={checked} problems={problems} />
    </div>
  );
}

function CheckView({
  request,
  checked,
  problems,
}: {
  request: Request;
  checked: Checked;
  problems: Problem[];
}): ReactElement {
  const { check, error } = checked;
  const risk = check?.risk?.level ?? request.risk.level;
  const riskier = risk !== request.risk.level;
  const more = (check?.quorum ?? 0) > request.quorum;
  return (
    <div className="check-view" aria-live="polite">
      {error && (
        <Notice tone="bad" title="Could not check the edit">
          {error.message}
        </Notice>
      )}
      {problems.length > 0 && (
        <Notice tone="bad" title="These arguments are invalid">
          <ul>
            {problems.map((problem) => (
              <li key={problem.field + problem.message}>
                {problem.field && <code>{problem.field}</code>} {problem.message}
              </li>
            ))}
          </ul>
        </Notice>
      )}
      {check?.validated && converted(request).length > 0 && (
        <Notice tone="info" title="What the tool's validators make of it">
          <ValueView value={check.validated} />
        </Notice>
      )}
      {check?.ok && !check.validated && request.written !== null && (
        <Notice tone="info" title="The agent validates your edit before it runs">
          <p>If that changes the arguments, you are asked again and see both.</p>
        </Notice>
      )}
      {check?.verdict === "deny" && <Notice tone="bad" title="The policy denies the edited call" />}
      {(riskier || more) && (
        <Notice tone="warn" title="This edit changes the approval it needs">
          <p>
            {riskier && (
              <>
                The call is now <RiskBadge level={risk} long />.{" "}
              </>
            )}
            {more && `It needs ${check?.quorum} approvals.`}
          </p>
        </Notice>
      )}
      <h3>Changes</h3>
      {check ? <DiffView diff={check.diff} /> : <p className="muted">{error ? "" : "Checking…"}</p>}
    </div>
  );
}
