import { describe, expect, it } from "vitest";
import { amountOf, columnsOf, dateOf, decisive, hostOf, ibanOf, shapeOf, sqlPieces } from "./inWords";

describe("amounts", () => {
  it.each([
    ["euros", 1200, {}, "€\u00a01,200"],
    ["amount_usd", "1250.5", {}, "$\u00a01,250.50"],
    ["amount", 3, { currency: "GBP" }, "£\u00a03"],
    ["totalEur", -12345678, {}, "€\u00a0−12,345,678"],
    ["amount", 3, {}, null],
    ["euro_cents", 500, {}, null],
    ["euros", "many", {}, null],
    ["euros", 1e21, {}, null],
  ])("%s %s", (name, value, args, text) => expect(amountOf(name, value, args)).toBe(text));
});

it("an IBAN is grouped, and its check digits are checked", () => {
  expect(ibanOf("DE89370400440532013000")).toBe("IBAN DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000");
  expect(ibanOf("DE88370400440532013000")).toContain("check digits are wrong");
  expect(ibanOf("invoice")).toBeNull();
});

it("dates are read, and what is no date is not", () => {
  expect(dateOf("2026-11-30")).toBe("Monday, Nov 30, 2026");
  expect(dateOf("2026-11-31")).toBeNull();
  expect(dateOf("2026")).toBeNull();
});

it("a URL names the host that it leads to", () => {
  expect(hostOf("https://bank.com@evil.example/pay")).toBe("evil.example");
  expect(hostOf("javascript:alert(1)")).toBeNull();
});

it("the decisive values are one sentence", () => {
  const args = { to: "Hooli", iban: "DE89370400440532013000", euros: 1200, memo: "A-16" };
  expect(decisive(args)).toBe("€\u00a01,200 to Hooli, IBAN DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000");
  expect(decisive({ to: ["a", "b"], usd: 5 })).toBe("$\u00a05 to 2 recipients");
  expect(decisive({ to: "ana", body: "hi" })).toBe("");
});

it("a shape needs evidence", () => {
  expect(shapeOf("query", "DELETE FROM users")).toBe("sql");
  expect(shapeOf("note", "Delete from the list, please")).toBe("text");
  expect(shapeOf("patch", "@@ -1 +1 @@\n-a\n+b")).toBe("diff");
  expect(shapeOf("body", "# Title\n\n- one\n- two")).toBe("markdown");
  expect(shapeOf("body", "- one")).toBe("text");
});

it("the pieces of SQL are its text", () => {
  const text = "DELETE FROM users WHERE name = 'it''s -- me' AND id > 5 -- all of them";
  const pieces = sqlPieces(text);
  expect(pieces.map(([, piece]) => piece).join("")).toBe(text);
  expect(pieces.filter(([kind]) => kind === "keyword").map(([, piece]) => piece)).toEqual(["DELETE", "FROM", "WHERE", "AND"]);
  expect(pieces.find(([kind]) => kind === "string")?.[1]).toBe("'it''s -- me'");
});

it("only equal flat objects are a table", () => {
  expect(columnsOf([{ a: 1, b: 2 }, { a: 3, b: null }])).toEqual(["a", "b"]);
  expect(columnsOf([{ a: 1 }, { b: 2 }])).toBeNull();
  expect(columnsOf([{ a: [] }, { a: [] }])).toBeNull();
});
