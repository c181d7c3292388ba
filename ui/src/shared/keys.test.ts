// @vitest-environment jsdom
import { afterEach, describe, expect, it, vi } from "vitest";
import { isTyping, match, type Bindings } from "./keys";

const page: Bindings = { "g i": vi.fn(), "g r": vi.fn(), "?": vi.fn(), Escape: vi.fn() };
const bar: Bindings = { a: vi.fn(), r: vi.fn() };
const form: Bindings = { Escape: vi.fn() };

describe("match", () => {
  it("asks whoever came last first", () => {
    expect(match([page, bar, form], "Escape", "").run).toBe(form.Escape);
    expect(match([page, bar], "Escape", "").run).toBe(page.Escape);
  });

  it("takes g as the first key of a sequence, and the second key for nothing else", () => {
    expect(match([page, bar], "g", "")).toEqual({ run: undefined, lead: "g" });
    expect(match([page, bar], "r", "g").run).toBe(page["g r"]);
    expect(match([page, bar], "a", "g")).toEqual({ run: undefined, lead: "" });
    expect(match([page, bar], "r", "").run).toBe(bar.r);
  });

  it("does nothing for keys that nobody knows", () => {
    expect(match([page, bar], "x", "")).toEqual({ run: undefined, lead: "" });
    expect(match([], "a", "")).toEqual({ run: undefined, lead: "" });
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
  ])("is text in %s", (html) => expect(isTyping(made(html))).toBe(true));

  it("is text inside something editable", () => {
    expect(isTyping(made("<div contenteditable='true'><b data-it>x</b></div>"))).toBe(true);
  });

  it.each(["<button data-it>x</button>", "<a href='/' data-it>x</a>", "<input type=submit data-it>"])(
    "is no text in %s",
    (html) => expect(isTyping(made(html))).toBe(false),
  );
});
