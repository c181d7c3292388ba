/** What an answer to a question is, before it is sent. */

import type { Json, Question } from "../types";
import { blank, problemsOf, readJson } from "./schema";

export interface Answer {
  /** Indexes of the options that are picked. */
  picked: number[];
  /** Own words; they count when `other` is on, or when there are no options. */
  text: string;
  other: boolean;
  /** The value of a question with a schema; the form's first values until a person changes it. */
  form: Json | undefined;
  /** Whether the text is JSON; only where any JSON will do. */
  asJson: boolean;
}

export const NO_ANSWER: Answer = { picked: [], text: "", other: false, form: undefined, asJson: false };

/** Whether a question takes words and any JSON alike. */
export function takesAnything(question: Question): boolean {
  return question.free_text && question.schema !== null && Object.keys(question.schema).length === 0;
}

/** The value to send, or why there is none yet. */
export function answerOf(question: Question, answer: Answer): { value?: Json; missing?: string } {
  if (takesAnything(question) && answer.asJson) {
    const { value, error } = readJson(answer.text);
    return error === undefined ? { value } : { missing: error };
  }
  if (question.schema && !takesAnything(question)) {
    const value = answer.form ?? blank(question.schema);
    const wrong = problemsOf(question.schema, value).length;
    if (wrong || value === undefined) return { missing: "Correct the fields that are marked." };
    return { value };
  }
  const own = answer.text.trim() !== "" && (answer.other || question.options.length === 0) ? answer.text : undefined;
  if (question.options.length === 0) return own === undefined ? { missing: "Write an answer." } : { value: own };
  if (answer.other && own === undefined) return { missing: "Write your own answer." };
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
