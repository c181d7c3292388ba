/** A standing yes, from what the dialog says to what the server takes. */

import type { Grant, GrantWish, Json, JsonObject, Schema } from "../types";
import { visible } from "../visible";

export interface FieldRule {
  kind: "same" | "any" | "starts" | "matches";
  text?: string;
}

const SPECIAL = /[.*+?^${}()|[\]\\/]/g;

/** A JSON Schema that holds each field as its rule says; fields that are not named are not allowed. */
export function patternScope(args: JsonObject, rules: Record<string, FieldRule>): { scope: Schema; error: string } {
  const properties: Record<string, Schema> = {};
  let error = "";
  for (const [name, value] of Object.entries(args)) {
    const rule = rules[name] ?? { kind: "same" };
    const text = rule.text ?? "";
    if (rule.kind === "same") properties[name] = { const: value };
    else if (rule.kind === "any") properties[name] = {};
    else if (rule.kind === "starts") {
      if (text === "") error ||= `Say what ${name} begins with.`;
      else if (!String(value).startsWith(text)) error ||= `${name} does not begin with that in this call.`;
      properties[name] = { type: "string", pattern: `^${text.replace(SPECIAL, "\\$&")}` };
    } else {
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
  if (text === "") return `Write the expression that ${name} has to match.`;
  try {
    if (new RegExp(`^(?:${text})$`, "u").test(value)) return "";
    return `The expression for ${name} does not match this call.`;
  } catch {
    return `The expression for ${name} is not a regular expression.`;
  }
}

export function grantWish(scope: GrantWish["scope"], uses: string, ends: number): { grant?: GrantWish; error: string } {
  const text = uses.trim();
  if (text !== "" && !/^[1-9]\d{0,8}$/.test(text)) return { error: "The number of uses is a whole number from 1." };
  return { grant: { scope, ends_in: ends, ...(text === "" ? {} : { uses: Number(text) }) }, error: "" };
}

/** What one field may be, in words; nothing if words do not suffice. */
function fieldWords(name: string, rule: Schema): string | null {
  const keys = Object.keys(rule).filter((key) => key !== "type");
  if (keys.length === 0) return rule.type === undefined ? `${name}: anything` : `${name}: any ${String(rule.type)}`;
  if (keys.length > 1) return null;
  if (rule.const !== undefined) return `${name}: ${JSON.stringify(rule.const)}`;
  if (rule.enum) return `${name}: one of ${rule.enum.map((each: Json) => JSON.stringify(each)).join(", ")}`;
  if (rule.pattern !== undefined) return `${name}: matches ${rule.pattern}`;
  return null;
}

/** A scope as people read it: a line for each field, or the schema as it is. */
export function scopeLines(grant: Pick<Grant, "scope" | "shown_scope">): string[] {
  const { scope } = grant;
  if (Object.keys(scope).length === 0) return ["Any arguments"];
  const known = ["type", "properties", "required", "additionalProperties"];
  const plain = scope.properties && Object.keys(scope).every((key) => known.includes(key));
  const lines = plain ? Object.entries(scope.properties!).map(([name, rule]) => fieldWords(name, rule)) : [null];
  if (lines.every((line) => line !== null)) return lines.map(visible);
  return typeof grant.shown_scope === "string" ? [grant.shown_scope] : grant.shown_scope;
}
