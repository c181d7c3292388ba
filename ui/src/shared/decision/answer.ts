/** The state of an answer to a question, and the value to send. */

import type { Json, Question } from "../types";
import { emptyValue, problemsOf, readJson } from "./schema";

export interface Answer {
  /** Indexes of the selected options. */
  picked: number[];
  /** Free text. Used if `other` is set or there are no options. */
  text: string;
  other: boolean;
  /** The value of a question with a schema; undefined until it is changed. */
  form: Json | undefined;
  /** The fields that were changed; others are not marked as missing yet. */
  touched?: string[];
  /** Parse the text as JSON. Only if the question takes any JSON. */
  asJson: boolean;
}

export const NO_ANSWER: Answer = { picked: [], text: "", other: false, form: undefined, asJson: false };

/** Whether a question takes both text and any JSON. */
export function takesAnything(question: Question): boolean {
  return question.free_text && question.schema !== null && Object.keys(question.schema).length === 0;
}

/** The value to send, or what is missing. */
export function answerOf(question: Question, answer: Answer): { value?: Json; missing?: string } {
  if (takesAnything(question) && answer.asJson) {
    const { value, error } = readJson(answer.text);
    return error === undefined ? { value } : { missing: error };
  }
  if (question.schema && !takesAnything(question)) {
    const value = answer.form ?? emptyValue(question.schema);
    const wrong = problemsOf(question.schema, value);
    if (wrong.length && wrong.every(({ message }) => message === "Required.")) return { missing: "Fill in the required fields." };
    if (wrong.length || value === undefined) return { missing: "Fix the marked fields." };
    return { value };
  }
  const own = answer.text.trim() !== "" && (answer.other || question.options.length === 0) ? answer.text : undefined;
  if (question.options.length === 0) return own === undefined ? { missing: "Enter an answer." } : { value: own };
  if (answer.other && own === undefined) return { missing: "Enter your own answer." };
  const values = answer.picked.map((index) => question.options[index]!.value);
  if (question.multiple) {
    const all = own === undefined ? values : [...values, own];
    return all.length ? { value: all } : { missing: "Pick at least one." };
  }
  const value = own ?? values[0];
  return value === undefined ? { missing: "Pick an answer." } : { value };
}

export function pick(question: Question, answer: Answer, index: number, on: boolean): Answer {
  if (!question.multiple) return { ...answer, picked: on ? [index] : [], other: false };
  const rest = answer.picked.filter((each) => each !== index);
  return { ...answer, picked: on ? [...rest, index].sort((a, b) => a - b) : rest };
}

export function pickOther(question: Question, answer: Answer, on: boolean): Answer {
  return { ...answer, other: on, picked: question.multiple ? answer.picked : [] };
}
