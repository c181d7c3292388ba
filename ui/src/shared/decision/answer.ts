/** What an answer to a question is, before it is sent. */

import type { Json, Question } from "../types";
import { blank } from "./schema";

export interface Answer {
  /** Indexes of the options that are picked. */
  picked: number[];
  /** Own words; they count when `other` is on, or when there are no options. */
  text: string;
  other: boolean;
  /** The value of a question with a schema; the form's first values until somebody changes it. */
  form: Json | undefined;
}

export const NO_ANSWER: Answer = { picked: [], text: "", other: false, form: undefined };

/** The value to send, or why there is none yet. */
export function answerOf(question: Question, answer: Answer): { value?: Json; missing?: string } {
  if (question.schema) return { value: answer.form ?? blank(question.schema, question.schema) };
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
