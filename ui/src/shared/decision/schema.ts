/** JSON Schema for forms: the schema to render, validation messages, and field paths. */

import { Validator, type OutputUnit } from "@cfworker/json-schema";
import type { Json, JsonObject, Schema } from "../types";

export type Problem = { field: string; message: string };

const MAX_DEPTH = 12;

/** Complete a schema from the values it describes. `{}` is left where they differ: only JSON can express that. */
export function completed(schema: Schema, values: Json[], depth = 0): Schema {
  if (depth > MAX_DEPTH || schema.enum || schema.const !== undefined || schema.anyOf || schema.oneOf || schema.allOf) return schema;
  const known = values.filter((value) => value !== null && value !== undefined);
  const kinds = new Set(known.map((value) => (Array.isArray(value) ? "array" : typeof value)));
  const type = schema.type ?? (kinds.size === 1 && known.length === values.length ? [...kinds][0] : undefined);
  const types = [type].flat();
  if (schema.properties || types.includes("object")) {
    const objects = known.filter((value): value is JsonObject => typeof value === "object" && !Array.isArray(value));
    const of = (name: string) => objects.flatMap((each) => (name in each ? [each[name]!] : []));
    const free = !schema.properties && (schema.additionalProperties ?? true) === true;
    const names = free ? [...new Set(objects.flatMap(Object.keys))] : [];
    const added = Object.fromEntries(names.map((name): [string, Schema] => [name, { inferred: true }]));
    const properties = Object.entries({ ...added, ...schema.properties }).map(([name, part]): [string, Schema] => [name, completed(part, of(name), depth + 1)]);
    const made: Schema = { ...schema, type, ...(properties.length ? { properties: Object.fromEntries(properties) } : {}) };
    return free ? { ...made, additionalProperties: true } : made;
  }
  if (types.includes("array")) {
    const items = known.flatMap((value) => (Array.isArray(value) ? value : []));
    return { ...schema, type, items: completed(schema.items ?? {}, items, depth + 1) };
  }
  return type === undefined ? schema : { ...schema, type };
}

/** A schema derived from a value, for arguments without one. The server still validates them. */
export function inferSchema(value: Json): Schema {
  return completed({}, [value]);
}

/** Whether a part has no form, so that it is edited as JSON. */
export function isFormless(schema: Schema): boolean {
  if (schema.enum || schema.const !== undefined || schema.anyOf || schema.oneOf || schema.allOf || schema.properties) return false;
  const types = [schema.type].flat();
  if (types.includes("array")) return !schema.items || isFormless(schema.items);
  return schema.type === undefined || (types.filter((type) => type !== "null").length > 1);
}

/** The columns of a list that a table can edit: one without a name for plain values, else a column per field. */
export function columnsOf(schema: Schema): { name: string; type: string }[] | null {
  const plain = (part: Schema) => {
    const types = [part.type].flat().filter((type) => type !== "null");
    return part.enum || types.length !== 1 || !["string", "number", "integer"].includes(types[0]!) ? null : types[0]!;
  };
  const items = schema.items;
  if (!items) return null;
  const own = plain(items);
  if (own) return [{ name: "", type: own }];
  const fields = Object.entries(items.properties ?? {}).map(([name, part]) => ({ name, type: plain(part) }));
  return fields.length > 0 && fields.every(({ type }) => type !== null) ? (fields as { name: string; type: string }[]) : null;
}

/**
 * The schema of the form: the tool's own if it has properties, else one derived from the arguments. The tool's does not
 * describe `converted` arguments, of which its validators make others.
 */
export function formSchema(schema: Schema | null, args: JsonObject, converted: string[] = []): Schema {
  const inferred = inferSchema(args);
  if (!schema?.properties) return { ...inferred, required: Object.keys(args) };
  const own = completed(simplifySchema(schema), [args]);
  if (converted.length === 0) return own;
  const written = converted.map((name) => [name, inferred.properties?.[name] ?? {}]);
  const required = (schema.required ?? []).filter((name) => name in args);
  return { ...own, properties: { ...own.properties, ...Object.fromEntries(written) }, required };
}

/**
 * Simplify a schema for rendering: a nullable value becomes one field instead of a choice of two, and
 * references are resolved, so that a field keeps its own title.
 */
export function simplifySchema(schema: Schema, root: Schema = schema, depth = 0): Schema {
  if (depth > MAX_DEPTH) return {};
  const { $ref, $defs, definitions, ...rest } = schema;
  if ($ref) {
    const found = $ref
      .replace(/^#\/?/, "")
      .split("/")
      .filter(Boolean)
      .reduce<unknown>((at, part) => (at as Record<string, unknown> | undefined)?.[part.replace(/~1/g, "/").replace(/~0/g, "~")], root);
    return simplifySchema({ ...((found as Schema | undefined) ?? {}), ...rest }, root, depth + 1);
  }
  const each = (part: Schema) => simplifySchema(part, root, depth + 1);
  const choices = (rest.anyOf ?? rest.oneOf)?.filter((choice) => choice.type !== "null");
  if (choices?.length === 1) {
    const { anyOf, oneOf, default: _, ...about } = rest;
    const only = each(choices[0]!);
    return { ...only, ...about, type: typeof only.type === "string" ? [only.type, "null"] : only.type };
  }
  const made: Schema = { ...rest };
  if (rest.properties) made.properties = Object.fromEntries(Object.entries(rest.properties).map(([k, v]) => [k, each(v)]));
  if (rest.items) made.items = each(rest.items);
  if (rest.anyOf) made.anyOf = rest.anyOf.map(each);
  if (rest.oneOf) made.oneOf = rest.oneOf.map(each);
  if (rest.allOf) made.allOf = rest.allOf.map(each);
  if (typeof rest.additionalProperties === "object") made.additionalProperties = each(rest.additionalProperties);
  return made;
}

/** The initial value of a form. Defaults are left out: only what the user entered is sent. */
export function emptyValue(schema: Schema): Json | undefined {
  const { type, properties } = simplifySchema(schema);
  if (type === "object" || properties) return {};
  return type === "array" ? [] : undefined;
}

const TYPES: Record<string, string> = {
  integer: "Enter a whole number.",
  number: "Enter a number.",
  string: "Enter some text.",
  boolean: "Choose yes or no.",
  array: "Add a list of values.",
  object: "Fill in these fields.",
};
const FORMATS: Record<string, string> = {
  email: "Enter an email address.",
  date: "Enter a date, such as 2026-01-31.",
  "date-time": "Enter a date and time, such as 2026-01-31T12:00:00Z.",
  time: "Enter a time, such as 12:00:00.",
  uri: "Enter a web address.",
  uuid: "Enter a UUID.",
};
const MESSAGES: Record<string, (limit: unknown) => string> = {
  type: (type) => TYPES[String(Array.isArray(type) ? type[0] : type)] ?? "Wrong type of value.",
  enum: () => "Choose one of the options.",
  const: (value) => `Must be ${JSON.stringify(value)}.`,
  format: (format) => FORMATS[String(format)] ?? `Enter a valid ${String(format)}.`,
  pattern: (pattern) => `Must match ${String(pattern)}.`,
  minimum: (limit) => `Enter ${String(limit)} or more.`,
  maximum: (limit) => `Enter ${String(limit)} or less.`,
  exclusiveMinimum: (limit) => `Enter more than ${String(limit)}.`,
  exclusiveMaximum: (limit) => `Enter less than ${String(limit)}.`,
  multipleOf: (step) => `Enter a multiple of ${String(step)}.`,
  minLength: (limit) => (limit === 1 ? "Enter some text." : `Enter at least ${String(limit)} characters.`),
  maxLength: (limit) => `Enter at most ${String(limit)} characters.`,
  minItems: (limit) => (limit === 1 ? "Add at least one." : `Add at least ${String(limit)}.`),
  maxItems: (limit) => `Add at most ${String(limit)}.`,
  uniqueItems: () => "Each value must be unique.",
  additionalProperties: () => "Unknown field.",
  anyOf: () => "This matches none of the allowed types.",
  oneOf: () => "This must match exactly one of the allowed types.",
};

/** `#/to/0/name` as `to[0].name`. */
function pathOf(pointer: string): string {
  const parts = pointer.replace(/^#\/?/, "").split("/").filter(Boolean);
  return parts
    .map((part) => decodeURIComponent(part).replace(/~1/g, "/").replace(/~0/g, "~"))
    .reduce((path, part) => (/^\d+$/.test(part) ? `${path}[${part}]` : path ? `${path}.${part}` : part), "");
}

function limitAt(schema: Schema, location: string): unknown {
  return location
    .replace(/^#\/?/, "")
    .split("/")
    .reduce<unknown>((at, part) => (at as Record<string, unknown> | undefined)?.[part.replace(/~1/g, "/")], schema);
}

/** Validate a value. Returns a message per invalid field. */
export function problemsOf(schema: Schema, value: Json | undefined): Problem[] {
  const simplified = simplifySchema(schema);
  if (value === undefined) return [{ field: "", message: "Required." }];
  // The form library sets a field that was emptied to undefined, which is no JSON.
  const given = JSON.parse(JSON.stringify(value)) as Json;
  const found = new Validator(simplified as object, "2020-12", false).validate(given).errors;
  const inside = found.filter(({ keyword }) => keyword === "anyOf" || keyword === "oneOf");
  const isInside = (error: OutputUnit) =>
    inside.some((outer) => error !== outer && error.keywordLocation.startsWith(`${outer.keywordLocation}/`));
  const problems = found.flatMap((error): Problem[] => {
    const field = pathOf(error.instanceLocation);
    if (isInside(error)) return [];
    if (error.keyword === "required") {
      const name = /property "(.*)"/.exec(error.error)?.[1] ?? "";
      return [{ field: field ? `${field}.${name}` : name, message: "Required." }];
    }
    const message = MESSAGES[error.keyword];
    return message ? [{ field, message: message(limitAt(simplified, error.keywordLocation)) }] : [];
  });
  return [...problems, ...unsafeIntegers(value), ...unnamedEntries(simplified, value)];
}

/** Whether a new map entry has no name yet: the form library calls it `newKey`. */
export function isUnnamed(name: string): boolean {
  return /^newKey(-\d+)?$/.test(name);
}

function unnamedEntries(schema: Schema | undefined, value: Json, path = ""): Problem[] {
  if (Array.isArray(value)) return value.flatMap((item, index) => unnamedEntries(schema?.items, item, `${path}[${index}]`));
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([name, item]): Problem[] => {
    const field = path ? `${path}.${name}` : name;
    const own = schema?.properties?.[name];
    const more = typeof schema?.additionalProperties === "object" ? schema.additionalProperties : undefined;
    const nameless = !own && isUnnamed(name) ? [{ field, message: "Give this entry a name." }] : [];
    return [...nameless, ...unnamedEntries(own ?? more, item, field)];
  });
}

/** JavaScript would round integers beyond the safe range and send other values. */
function unsafeIntegers(value: Json, path = ""): Problem[] {
  if (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value))
    return [{ field: path, message: "This number is too large to edit exactly in a browser. Edit it in the terminal." }];
  if (Array.isArray(value)) return value.flatMap((item, index) => unsafeIntegers(item, `${path}[${index}]`));
  if (value !== null && typeof value === "object")
    return Object.entries(value).flatMap(([name, item]) => unsafeIntegers(item, path ? `${path}.${name}` : name));
  return [];
}

/** Whether a text needs a multi-line field. */
export function isMultiline(schema: Schema, value: Json | undefined): boolean {
  if (schema.format) return false;
  return typeof value === "string" && (value.includes("\n") || value.length > 72);
}

export function readJson(text: string): { value?: Json; error?: string } {
  try {
    return { value: JSON.parse(text) as Json };
  } catch (error) {
    return { error: `Invalid JSON: ${(error as Error).message}` };
  }
}

/** The field path without the leading `args` or `value`: `args.to[0].name` becomes `to[0].name`. */
export function fieldPath(path: string): string {
  return path.replace(/^(args|value)\.?/, "");
}
