/** Grants: from the dialog's fields to the API's input, and from a scope to text. */

import type { Grant, GrantInput, Json, JsonObject, Schema } from "../types";
import { visible } from "../visible";

export interface FieldRule {
  kind: "same" | "any" | "matches";
  text?: string;
}

/** A JSON Schema with one property per rule. Other properties are not allowed. */
export function patternScope(args: JsonObject, rules: Record<string, FieldRule>): { scope: Schema; error: string } {
  const properties: Record<string, Schema> = {};
  let error = "";
  for (const [name, value] of Object.entries(args)) {
    const rule = rules[name] ?? { kind: "same" };
    const text = rule.text ?? "";
    if (rule.kind === "same") properties[name] = { const: value };
    else if (rule.kind === "any") properties[name] = {};
    else {
      error ||= badExpression(name, text, String(value));
      properties[name] = { type: "string", pattern: `^(?:${text})$` };
    }
  }
  return {
    scope: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
    error,
  };
}

function badExpression(name: string, text: string, value: string): string {
  if (text === "") return `Enter a regular expression for ${name}.`;
  try {
    if (new RegExp(`^(?:${text})$`, "u").test(value)) return "";
    return `The regular expression for ${name} does not match this call.`;
  } catch {
    return `The regular expression for ${name} is invalid.`;
  }
}

export function toGrantInput(scope: GrantInput["scope"], uses: string, ends: number): { grant?: GrantInput; error: string } {
  const text = uses.trim();
  if (text !== "" && !/^[1-9]\d{0,8}$/.test(text)) return { error: "The number of uses must be a whole number of at least 1." };
  return { grant: { scope, ends_in: ends, ...(text === "" ? {} : { uses: Number(text) }) }, error: "" };
}

/** The rule of one field as text; null if the schema is too complex for that. */
function fieldWords(name: string, rule: Schema): string | null {
  const keys = Object.keys(rule).filter((key) => key !== "type");
  if (keys.length === 0) return rule.type === undefined ? `${name}: anything` : `${name}: any ${String(rule.type)}`;
  if (keys.length > 1) return null;
  if (rule.const !== undefined) return `${name}: ${JSON.stringify(rule.const)}`;
  if (rule.enum) return `${name}: one of ${rule.enum.map((each: Json) => JSON.stringify(each)).join(", ")}`;
  if (rule.pattern !== undefined) return `${name}: matches ${rule.pattern}`;
  return null;
}

/** A scope as text: one line per field, or the schema itself. */
export function scopeLines(grant: Pick<Grant, "scope" | "shown_scope">): string[] {
  const scope = grant.scope as Schema;
  if (Object.keys(scope).length === 0) return ["Any arguments"];
  const known = ["type", "properties", "required", "additionalProperties"];
  const plain = scope.properties && Object.keys(scope).every((key) => known.includes(key));
  const lines = plain ? Object.entries(scope.properties!).map(([name, rule]) => fieldWords(name, rule)) : [null];
  if (lines.every((line) => line !== null)) return lines.map(visible);
  return grant.shown_scope;
}
