import { describe, expect, it } from "vitest";
import type { Schema } from "../types";
import { blank, fieldOf, fieldPath, formSchema, inferred, isMultiline, isWithin, readJson, readNumber } from "./schema";

const kind = (schema: Schema, value?: never) => fieldOf(schema, schema, value).widget.kind;

describe("fieldOf", () => {
  it.each([
    [{ type: "string" }, "text"],
    [{ type: "integer" }, "integer"],
    [{ type: "number" }, "number"],
    [{ type: "boolean" }, "boolean"],
    [{ enum: ["a", "b"] }, "enum"],
    [{ const: 3 }, "enum"],
    [{ type: "array", items: { type: "string" } }, "array"],
    [{ type: "array" }, "json"],
    [{ type: "object", properties: { a: {} } }, "object"],
    [{ type: "object" }, "json"],
    [{}, "json"],
    [{ anyOf: [{ type: "string" }, { type: "integer" }] }, "json"],
  ] as [Schema, string][])("draws %j as %s", (schema, wanted) => expect(kind(schema)).toBe(wanted));

  it("sees through a choice between something and null", () => {
    const field = fieldOf({ anyOf: [{ type: "string" }, { type: "null" }] }, {});
    expect(field).toMatchObject({ nullable: true, widget: { kind: "text" } });
    expect(fieldOf({ type: ["integer", "null"] }, {})).toMatchObject({ nullable: true, widget: { kind: "integer" } });
  });

  it("keeps null possible where the rest is edited as JSON", () => {
    const field = fieldOf({ anyOf: [{ type: "string" }, { type: "integer" }, { type: "null" }] }, {});
    expect(field).toMatchObject({ nullable: true, widget: { kind: "json" } });
  });

  it("follows references into the root, and stops at circles", () => {
    const root: Schema = { $defs: { City: { type: "object", properties: { name: { type: "string" } } } } };
    expect(fieldOf({ $ref: "#/$defs/City" }, root).widget.kind).toBe("object");
    const circle: Schema = { $defs: { A: { $ref: "#/$defs/A" } }, $ref: "#/$defs/A" };
    expect(fieldOf(circle, circle).widget.kind).toBe("json");
    expect(fieldOf({ $ref: "other.json" }, root).widget.kind).toBe("json");
  });

  it("shows an object with unknown keys as JSON, so that none is lost", () => {
    const schema: Schema = { type: "object", properties: { a: { type: "string" } } };
    expect(fieldOf(schema, schema, { a: "x" }).widget.kind).toBe("object");
    expect(fieldOf(schema, schema, { a: "x", b: 1 }).widget.kind).toBe("json");
  });
});

describe("blank", () => {
  it("uses defaults, and leaves to people what only they can know", () => {
    const schema: Schema = {
      type: "object",
      properties: {
        name: { type: "string" },
        size: { type: "integer", default: 7 },
        kind: { enum: ["x", "y"] },
        least: { type: "number", minimum: 2 },
        note: { anyOf: [{ type: "string" }, { type: "null" }] },
        extra: { type: "string" },
      },
      required: ["name", "size", "kind", "least", "note"],
    };
    expect(blank(schema, schema)).toEqual({ name: "", size: 7, kind: null, least: null, note: null });
  });

  it("comes to an end for a schema that holds itself", () => {
    const root: Schema = {
      $defs: { Node: { type: "object", properties: { next: { $ref: "#/$defs/Node" } }, required: ["next"] } },
      $ref: "#/$defs/Node",
    };
    expect(() => blank(root, root)).not.toThrow();
  });
});

describe("reading", () => {
  it.each([
    ["3", true, 3],
    ["-2.5", false, -2.5],
    ["1e3", false, 1000],
  ])("reads the number %s", (text, integer, value) => expect(readNumber(text, integer)).toEqual({ value }));

  it.each([
    ["", false],
    ["1.5", true],
    ["abc", false],
    ["0x10", false],
    ["12345678901234567890", true],
    ["1e999", false],
  ])("refuses %j", (text, integer) => expect(readNumber(text, integer).error).toBeTruthy());

  it("reads JSON, or says what is wrong", () => {
    expect(readJson('{"a": [1]}')).toEqual({ value: { a: [1] } });
    expect(readJson("{a}").error).toMatch(/Not JSON/);
  });
});

it("knows long text, but gives a date one line", () => {
  expect(isMultiline({}, "a\nb")).toBe(true);
  expect(isMultiline({}, "x".repeat(100))).toBe(true);
  expect(isMultiline({}, "short")).toBe(false);
  expect(isMultiline({ format: "date" }, "a\nb")).toBe(false);
});

it("finds the field that a complaint is about", () => {
  expect(fieldPath("args.to[0].name")).toBe("to[0].name");
  expect(fieldPath("args")).toBe("");
  expect(isWithin("to[0].name", "to")).toBe(true);
  expect(isWithin("total", "to")).toBe(false);
});

describe("inferred", () => {
  it("gives arguments without a schema fields of their own", () => {
    const args = { to: ["ana"], count: 3, live: true, note: null, more: { x: "y" } };
    expect(inferred(args)).toMatchObject({
      properties: {
        to: { type: "array", items: { type: "string" } },
        count: { type: "number" },
        live: { type: "boolean" },
        note: {},
        more: { properties: { x: { type: "string" } } },
      },
    });
  });

  it("is used only where the tool names no fields", () => {
    const own: Schema = { type: "object", properties: { a: { type: "integer" } } };
    expect(formSchema(own, { a: 1 })).toBe(own);
    expect(formSchema(null, { a: 1 }).properties).toEqual({ a: { type: "number" } });
    expect(formSchema({ type: "object" }, { a: "x" }).properties).toEqual({ a: { type: "string" } });
  });
});
