// @vitest-environment jsdom
import { afterEach, describe, expect, it, vi } from "vitest";
import { isTyping, matchShortcut, type Bindings } from "./shortcuts";

const page: Bindings = { "g i": vi.fn(), "g r": vi.fn(), "?": vi.fn(), Escape: vi.fn() };
const bar: Bindings = { a: vi.fn(), r: vi.fn() };
const form: Bindings = { Escape: vi.fn() };

describe("matchShortcut", () => {
  it("prefers the binding added last", () => {
    expect(matchShortcut([page, bar, form], "Escape", "").run).toBe(form.Escape);
    expect(matchShortcut([page, bar], "Escape", "").run).toBe(page.Escape);
  });

  it("treats g as the start of a sequence and does not run the second key alone", () => {
    expect(matchShortcut([page, bar], "g", "")).toEqual({ run: undefined, prefix: "g" });
    expect(matchShortcut([page, bar], "r", "g").run).toBe(page["g r"]);
    expect(matchShortcut([page, bar], "a", "g")).toEqual({ run: undefined, prefix: "" });
    expect(matchShortcut([page, bar], "r", "").run).toBe(bar.r);
  });

  it("ignores unknown keys", () => {
    expect(matchShortcut([page, bar], "x", "")).toEqual({ run: undefined, prefix: "" });
    expect(matchShortcut([], "a", "")).toEqual({ run: undefined, prefix: "" });
  });
});

describe("isTyping", () => {
  afterEach(() => document.body.replaceChildren());
  const made = (html: string) => {
    document.body.innerHTML = html;
    return document.body.querySelector("[data-it]");
  };

  it.each([
    "<input data-it>",
    "<input type=search data-it>",
    "<textarea data-it></textarea>",
    "<select data-it></select>",
  ])("is true in %s", (html) => expect(isTyping(made(html))).toBe(true));

  it("is true inside an editable element", () => {
    expect(isTyping(made("<div contenteditable='true'><b data-it>x</b></div>"))).toBe(true);
  });

  it.each(["<button data-it>x</button>", "<a href='/' data-it>x</a>", "<input type=submit data-it>"])(
    "is false in %s",
    (html) => expect(isTyping(made(html))).toBe(false),
  );
});
