/** From JSON Schema to a form: which widget a schema means, and what a new value of it is. */

import type { Json, JsonObject, Schema } from "../types";

export type Widget =
  | { kind: "text" | "number" | "integer" | "boolean" | "json" }
  | { kind: "enum"; values: Json[] }
  | { kind: "object"; fields: [string, Schema][]; required: Set<string> }
  | { kind: "array"; items: Schema };

export interface Field {
  widget: Widget;
  schema: Schema;
  nullable: boolean;
}

const DEEPEST = 12;

/** Follow `$ref`, a single `allOf`, and "or null", as far as they say one thing. */
function settle(schema: Schema, root: Schema): { schema: Schema; nullable: boolean } {
  let here = schema;
  let nullable = false;
  for (let step = 0; step < DEEPEST; step += 1) {
    if (here.$ref) {
      const found = lookUp(here.$ref, root);
      if (!found) return { schema: here, nullable };
      const { $ref: _, ...beside } = here;
      here = { ...found, ...beside };
      continue;
    }
    if (here.allOf?.length === 1) {
      const { allOf, ...beside } = here;
      here = { ...allOf[0], ...beside };
      continue;
    }
    const choice = here.anyOf ?? here.oneOf;
    if (choice) {
      const rest = choice.filter((each) => each.type !== "null");
      if (rest.length < choice.length) nullable = true;
      if (rest.length !== 1) return { schema: here, nullable };
      const { anyOf: _any, oneOf: _one, default: _default, ...beside } = here;
      here = { ...rest[0], ...beside };
      continue;
    }
    if (Array.isArray(here.type) && here.type.includes("null")) {
      const rest = here.type.filter((each) => each !== "null");
      nullable = true;
      here = { ...here, type: rest.length === 1 ? rest[0] : rest };
      continue;
    }
    break;
  }
  return { schema: here, nullable };
}

function lookUp(ref: string, root: Schema): Schema | undefined {
  if (!ref.startsWith("#/")) return undefined;
  let here: unknown = root;
  for (const part of ref.slice(2).split("/")) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    here = here !== null && typeof here === "object" ? (here as Record<string, unknown>)[key] : undefined;
  }
  return here as Schema | undefined;
}

/** Which widget; what forms cannot say is edited as JSON. */
export function fieldOf(schema: Schema, root: Schema, value?: Json, depth = 0): Field {
  const { schema: here, nullable } = settle(schema, root);
  return { widget: widgetOf(here, value, depth), schema: here, nullable };
}

function widgetOf(schema: Schema, value: Json | undefined, depth: number): Widget {
  if (schema.const !== undefined) return { kind: "enum", values: [schema.const] };
  if (schema.enum) return { kind: "enum", values: schema.enum };
  if (depth > DEEPEST || schema.anyOf || schema.oneOf || schema.allOf || schema.$ref) return { kind: "json" };
  const type = Array.isArray(schema.type) ? undefined : schema.type;
  switch (type ?? (schema.properties ? "object" : undefined)) {
    case "string":
      return { kind: "text" };
    case "integer":
      return { kind: "integer" };
    case "number":
      return { kind: "number" };
    case "boolean":
      return { kind: "boolean" };
    case "object":
      return objectOf(schema, value);
    case "array":
      return schema.items && typeof schema.items === "object" && !schema.prefixItems
        ? { kind: "array", items: schema.items }
        : { kind: "json" };
    default:
      return { kind: "json" };
  }
}

function objectOf(schema: Schema, value: Json | undefined): Widget {
  const fields = Object.entries(schema.properties ?? {});
  const known = new Set(fields.map(([name]) => name));
  const extra = value !== null && typeof value === "object" ? Object.keys(value).some((key) => !known.has(key)) : false;
  // Free keys have no names to make fields from.
  if (fields.length === 0 || extra) return { kind: "json" };
  return { kind: "object", fields, required: new Set(schema.required ?? []) };
}

/** A first value for something that was added: empty where only a person can know. */
export function blank(schema: Schema, root: Schema, depth = 0): Json {
  if (schema.default !== undefined) return schema.default;
  const { widget, nullable, schema: here } = fieldOf(schema, root, undefined, depth);
  if (here.default !== undefined) return here.default;
  if (nullable) return null;
  switch (widget.kind) {
    case "text":
      return "";
    case "boolean":
      return false;
    case "number":
    case "integer":
      // Nobody should give a number that they did not write; the server refuses null.
      return null;
    case "enum":
      return widget.values.length === 1 ? widget.values[0]! : null;
    case "array":
      return [];
    case "object": {
      const made: JsonObject = {};
      for (const [name, part] of widget.fields) {
        if (widget.required.has(name)) made[name] = blank(part, root, depth + 1);
      }
      return made;
    }
    case "json":
      return here.type === "object" ? {} : here.type === "array" ? [] : null;
  }
}

/** A schema for arguments that came without one, so that they too get fields; the server has the last word. */
export function inferred(value: Json, depth = 0): Schema {
  if (depth > DEEPEST || value === null) return {};
  if (Array.isArray(value))
    return value.length ? { type: "array", items: inferred(value[0]!, depth + 1) } : { type: "array" };
  if (typeof value === "object") {
    const entries = Object.entries(value);
    const properties = Object.fromEntries(entries.map(([name, item]) => [name, inferred(item, depth + 1)]));
    return { type: "object", properties, required: Object.keys(value) };
  }
  return { type: typeof value };
}

/** The schema to make a form from: the tool's own, where it names fields. */
export function formSchema(schema: Schema | null, args: JsonObject): Schema {
  return schema && fieldOf(schema, schema).widget.kind === "object"
    ? schema
    : { ...inferred(args), title: "arguments" };
}

/** Whether a text wants several lines. */
export function isMultiline(schema: Schema, value: Json | undefined): boolean {
  if (schema.format) return false;
  return typeof value === "string" && (value.includes("\n") || value.length > 72);
}

/** `[text, error]` of a number that is being typed; nothing is rounded or guessed. */
export function readNumber(text: string, integer: boolean): { value?: number; error?: string } {
  const trimmed = text.trim();
  if (!/^-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(trimmed)) return { error: "Write a number." };
  const value = Number(trimmed);
  if (!Number.isFinite(value)) return { error: "This number is too large." };
  if (integer && !Number.isInteger(value)) return { error: "Write a whole number." };
  if (Number.isInteger(value) && !Number.isSafeInteger(value))
    return { error: "This number is too large to be exact." };
  return { value };
}

export function readJson(text: string): { value?: Json; error?: string } {
  try {
    return { value: JSON.parse(text) as Json };
  } catch (error) {
    return { error: `Not JSON: ${(error as Error).message}` };
  }
}

/** `args.to[0].name` without its first part, as the form names its fields: `to[0].name`. */
export function fieldPath(path: string): string {
  return path.replace(/^(args|value)\.?/, "");
}

/** Whether an error belongs to a field or to something inside it. */
export function isWithin(error: string, field: string): boolean {
  return error === field || error.startsWith(`${field}.`) || error.startsWith(`${field}[`);
}
