import { describe, expect, it } from "vitest";
import type { Json, Schema } from "../types";
import { columnsOf, emptyValue, simplifySchema, fieldPath, formSchema, inferSchema, isFormless, isMultiline, problemsOf, readJson } from "./schema";

describe("simplifySchema", () => {
  it("makes one field of a nullable value", () => {
    const schema: Schema = { anyOf: [{ type: "integer", minimum: 1 }, { type: "null" }], title: "Seats", default: null };
    expect(simplifySchema(schema)).toEqual({ type: ["integer", "null"], minimum: 1, title: "Seats" });
  });

  it("resolves references and keeps the field's own title", () => {
    const schema: Schema = {
      type: "object",
      properties: { home: { $ref: "#/$defs/Address", title: "Home" } },
      $defs: { Address: { type: "object", title: "Address", properties: { city: { type: "string" } } } },
    };
    expect(simplifySchema(schema).properties!.home).toEqual({
      type: "object",
      title: "Home",
      properties: { city: { type: "string" } },
    });
  });

  it("stops at a recursive schema", () => {
    const schema: Schema = {
      $ref: "#/$defs/Node",
      $defs: { Node: { type: "object", properties: { next: { $ref: "#/$defs/Node" } } } },
    };
    expect(JSON.stringify(simplifySchema(schema)).length).toBeLessThan(2_000);
  });
});

describe("problemsOf", () => {
  const schema: Schema = {
    type: "object",
    properties: {
      name: { type: "string", minLength: 2 },
      seats: { type: "integer", minimum: 1, maximum: 9 },
      to: { type: "array", minItems: 1, items: { type: "object", properties: { mail: { type: "string", format: "email" } }, required: ["mail"] } },
      size: { enum: ["small", "large"] },
      note: { anyOf: [{ type: "string" }, { type: "null" }] },
    },
    required: ["name", "seats"],
  };
  const at = (value: Parameters<typeof problemsOf>[1]) =>
    Object.fromEntries(problemsOf(schema, value).map(({ field, message }) => [field, message]));

  it("returns the field and a message", () => {
    expect(at({})).toEqual({ name: "Required.", seats: "Required." });
    expect(at({ name: "x", seats: 0 })).toEqual({ name: "Enter at least 2 characters.", seats: "Enter 1 or more." });
    expect(at({ name: "xy", seats: "many" })).toMatchObject({ seats: "Enter a whole number." });
    expect(at({ name: "xy", seats: 1, size: "medium" })).toEqual({ size: "Choose one of the options." });
    expect(at({ name: "xy", seats: 1, to: [] })).toEqual({ to: "Add at least one." });
    expect(at({ name: "xy", seats: 1, to: [{}] })).toEqual({ "to[0].mail": "Required." });
    expect(at({ name: "xy", seats: 1, to: [{ mail: "no" }] })).toEqual({ "to[0].mail": "Enter an email address." });
  });

  it("requires a field that was emptied", () => {
    expect(at({ name: "xy", seats: undefined } as unknown as Json)).toEqual({ seats: "Required." });
  });

  it("returns nothing for a valid value", () => {
    expect(at({ name: "xy", seats: 9, note: null, to: [{ mail: "a@b.example" }] })).toEqual({});
  });

  it("requires a name for each map entry", () => {
    const map: Schema = {
      type: "object",
      properties: { sizes: { type: "object", additionalProperties: { type: "integer" } }, newKey: { type: "string" } },
    };
    expect(problemsOf(map, { sizes: { chairs: 2 }, newKey: "x" })).toEqual([]);
    expect(problemsOf(map, { sizes: { "newKey-1": 2 } })).toEqual([
      { field: "sizes.newKey-1", message: "Give this entry a name." },
    ]);
  });

  it("refuses integers that would be rounded", () => {
    expect(problemsOf({}, { id: 12345678901234567890 })).toMatchObject([{ field: "id" }]);
  });
});

describe("forms without a schema", () => {
  it("infers fields from the arguments", () => {
    expect(inferSchema({ to: ["a"], n: 1, deep: { ok: true } })).toEqual({
      type: "object",
      properties: {
        to: { type: "array", items: { type: "string" }, inferred: true },
        n: { type: "number", inferred: true },
        deep: {
          type: "object",
          properties: { ok: { type: "boolean", inferred: true } },
          additionalProperties: true,
          inferred: true,
        },
      },
      additionalProperties: true,
    });
    expect(formSchema(null, { a: 1 })).toEqual({
      type: "object",
      properties: { a: { type: "number", inferred: true } },
      required: ["a"],
      additionalProperties: true,
    });
  });

  it("completes untyped parts from the value, and leaves mixed ones to JSON", () => {
    const schema: Schema = { type: "object", properties: { details: { type: "object" }, rows: { type: "array" }, mixed: { type: "array" } } };
    const rows = [{ sku: "A", qty: 1 }, { sku: "B", qty: 2 }];
    const { details, rows: list, mixed } = formSchema(schema, { details: { city: "Bern" }, rows, mixed: [1, "a"] }).properties!;
    expect(details!.properties).toEqual({ city: { type: "string", inferred: true } });
    expect(columnsOf(list!)).toEqual([{ name: "sku", type: "string" }, { name: "qty", type: "number" }]);
    expect([details!, list!, mixed!].map(isFormless)).toEqual([false, false, true]);
  });

  it("starts without default values", () => {
    expect(emptyValue({ type: "object", properties: { a: { type: "string", default: "x" } } })).toEqual({});
    expect(emptyValue({ type: "array" })).toEqual([]);
    expect(emptyValue({ type: "string" })).toBe(undefined);
  });
});

it("uses several lines for long text", () => {
  expect(isMultiline({}, "a\nb")).toBe(true);
  expect(isMultiline({ format: "uri" }, "x".repeat(99))).toBe(false);
});

it("parses JSON, or returns an error", () => {
  expect(readJson('{"a": 1}').value).toEqual({ a: 1 });
  expect(readJson("{").error).toMatch(/^Invalid JSON/);
});

it("drops the leading args or value from a path", () => {
  expect(fieldPath("args.to[0].name")).toBe("to[0].name");
  expect(fieldPath("value")).toBe("");
});
