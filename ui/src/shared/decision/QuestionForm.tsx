/** The form for a question: one option, several options, free text, or fields from a schema. */

import { lazy, Suspense, useId, type ReactElement } from "react";
import type { Json, JsonObject, Question } from "../types";
import { pick, pickOther, takesAnything, type Answer } from "./answer";
import { emptyValue, problemsOf, type Problem } from "./schema";

const SchemaForm = lazy(() => import("./SchemaForm"));

interface Props {
  question: Question;
  /** The same question with hidden characters made visible. Rendered; the answer is sent from `question`. */
  shown: Question;
  answer: Answer;
  problems?: Problem[];
  disabled?: boolean;
  /** Whether number keys pick the options. */
  numbered?: boolean;
  onChange: (answer: Answer) => void;
}

/** The names of the fields that differ. */
function changed(before: Json | undefined, after: Json): string[] {
  const fields = (value: Json | undefined): JsonObject => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});
  const [old, now] = [fields(before), fields(after)];
  return Object.keys({ ...old, ...now }).filter((name) => JSON.stringify(old[name]) !== JSON.stringify(now[name]));
}

export function QuestionForm(props: Props): ReactElement {
  const { question, shown, answer, onChange, disabled } = props;
  const id = useId();
  if (question.schema && !takesAnything(question)) {
    const value = answer.form ?? emptyValue(question.schema);
    const touched = (field: string) => answer.touched?.includes(field.split(/[.[]/)[0]!);
    const own = problemsOf(question.schema, value).filter(({ field, message }) => message !== "Required." || touched(field));
    return (
      <fieldset className="question" disabled={disabled}>
        <legend className="sr-only">{shown.text}</legend>
        <Suspense fallback={<p className="muted">Loading form…</p>}>
          <SchemaForm
            schema={question.schema}
            value={value}
            disabled={disabled}
            problems={own.length ? own : (props.problems ?? [])}
            onChange={(form) => onChange({ ...answer, form, touched: [...(answer.touched ?? []), ...changed(value, form)] })}
          />
        </Suspense>
      </fieldset>
    );
  }
  if (question.options.length === 0) {
    return (
      <div className="question">
        <label className="field">
          <span className="field-label">Your answer</span>
          <textarea
            rows={3}
            disabled={disabled}
            value={answer.text}
            onChange={(event) => onChange({ ...answer, text: event.target.value })}
          />
        </label>
        {takesAnything(question) && (
          <label className="check">
            <input
              type="checkbox"
              disabled={disabled}
              checked={answer.asJson}
              onChange={(event) => onChange({ ...answer, asJson: event.target.checked })}
            />
            This is JSON
          </label>
        )}
      </div>
    );
  }
  const type = question.multiple ? "checkbox" : "radio";
  return (
    <fieldset className="question" disabled={disabled}>
      <legend className="sr-only">{shown.text}</legend>
      {question.multiple && <p className="muted">Pick one or more.</p>}
      {shown.options.map((option, index) => (
        <label key={index} className="option">
          <input
            type={type}
            name={id}
            aria-describedby={option.description ? `${id}-${index}` : undefined}
            checked={answer.picked.includes(index)}
            onChange={(event) => onChange(pick(question, answer, index, event.target.checked))}
          />
          <span>
            <span className="option-label">
              {option.label} {props.numbered && index < 9 && <kbd aria-hidden="true">{index + 1}</kbd>}
            </span>
            {option.description && (
              <span className="option-text" id={`${id}-${index}`} aria-hidden="true">
                {option.description}
              </span>
            )}
          </span>
        </label>
      ))}
      {question.free_text && (
        <div className="option option-other">
          <input
            type={type}
            name={id}
            id={`${id}-other`}
            checked={answer.other}
            onChange={(event) => onChange(pickOther(question, answer, event.target.checked))}
          />
          <span>
            <label className="option-label" htmlFor={`${id}-other`}>
              Something else
            </label>
            <textarea
              rows={2}
              aria-label="Your own answer"
              placeholder="Your own words"
              value={answer.text}
              onChange={(event) =>
                onChange({
                  ...pickOther(question, answer, event.target.value !== "" || answer.other),
                  text: event.target.value,
                })
              }
            />
          </span>
        </div>
      )}
    </fieldset>
  );
}
