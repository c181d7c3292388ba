/** A plan: its steps as a list, each with its tool, arguments and risk; and removing or editing steps. */

import { useState, type ReactElement } from "react";
import { RiskBadge } from "../components/Badge";
import { Button } from "../components/Button";
import type { Json, JsonObject, Request, RiskLevel } from "../types";
import { HiddenCharacters } from "./HiddenCharacters";
import { EndMark } from "./LongValue";
import { readJson } from "./schema";
import type { Seen } from "./useSeen";
import { ValueView } from "./ValueView";

/** The name of the argument that lists the steps. */
const STEPS = "steps";

interface Step {
  tool: string;
  args: JsonObject;
  risk: RiskLevel;
  /** What people read first; left out once the arguments are edited. */
  title?: string;
  /** The policy allows the call without the plan. */
  allowed?: boolean;
}

function stepsOf(args: JsonObject): Step[] {
  return args[STEPS] as unknown as Step[];
}

function StepHead({ step, number }: { step: Step; number: number }): ReactElement {
  return (
    <div className="plan-step-head">
      <strong className="wrap">
        {number}. {step.title ?? step.tool}
      </strong>
      <RiskBadge level={step.risk} long />
      <code className="muted small">{step.tool}</code>
      {step.allowed && <span className="muted small">the rules allow it without this plan</span>}
    </div>
  );
}

/** What the steps of a plan are, as they would run. */
export function PlanView({ request, seen }: { request: Request; seen: Seen }): ReactElement {
  const args = request.shown.args;
  return (
    <div data-testid="plan">
      <p className="muted small plan-order">
        Each of these calls runs once, {args.any_order ? "in any order" : "in this order"}. Any other call asks again.
      </p>
      <ol className="plan-steps">
        {stepsOf(args).map((step, index) => (
          <li key={index} data-testid="plan-step">
            <StepHead step={step} number={index + 1} />
            <ValueView value={step.args} />
          </li>
        ))}
      </ol>
      {seen.unseen.includes(STEPS) && <EndMark name="the steps" onSeen={() => seen.see(STEPS)} />}
    </div>
  );
}

interface Kept {
  step: Step;
  text: string;
}

interface Props {
  args: JsonObject;
  onChange: (args: Json) => void;
  /** Called with whether the arguments of some step are no JSON object. */
  onInvalid: (invalid: boolean) => void;
}

/** Remove steps, or edit their arguments as JSON. */
export function PlanForm({ args, onChange, onInvalid }: Props): ReactElement {
  const [kept, setKept] = useState<Kept[]>(() =>
    stepsOf(args).map((step) => ({ step, text: JSON.stringify(step.args, null, 2) })),
  );
  const put = (next: Kept[]) => {
    setKept(next);
    const invalid = next.some(({ text }) => problemOf(text) !== undefined);
    onInvalid(invalid);
    if (!invalid) onChange({ ...args, [STEPS]: next.map(edited) as unknown as Json });
  };
  return (
    <ol className="plan-steps" data-testid="plan-form">
      {kept.map(({ step, text }, index) => {
        const problem = problemOf(text);
        const label = `Arguments of step ${index + 1}`;
        return (
          <li key={index} data-testid="plan-step">
            <StepHead step={edited({ step, text })} number={index + 1} />
            <label className="field">
              <span className="field-label">{label}</span>
              <textarea
                className="mono"
                rows={Math.min(12, text.split("\n").length)}
                spellCheck={false}
                aria-invalid={problem ? true : undefined}
                value={text}
                onChange={(event) => put(kept.map((each, at) => (at === index ? { step, text: event.target.value } : each)))}
              />
              {problem && <span className="field-error">{problem}</span>}
              <HiddenCharacters text={text} />
            </label>
            <Button
              small
              icon="trash"
              disabled={kept.length === 1}
              aria-label={`Remove step ${index + 1}`}
              onClick={() => put(kept.filter((_, at) => at !== index))}
            >
              Remove
            </Button>
          </li>
        );
      })}
    </ol>
  );
}

function problemOf(text: string): string | undefined {
  const { value, error } = readJson(text);
  if (error !== undefined) return error;
  return value === null || typeof value !== "object" || Array.isArray(value) ? "Write an object." : undefined;
}

/** A step with the arguments as they were written. Its title was made from the old ones. */
function edited({ step, text }: Kept): Step {
  const { value } = readJson(text);
  if (problemOf(text) !== undefined || JSON.stringify(value) === JSON.stringify(step.args)) return step;
  const { title: _, ...rest } = step;
  return { ...rest, args: value as JsonObject };
}
