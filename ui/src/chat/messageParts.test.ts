import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { answerText, argsSummary, pieces, formatValue, rendersSame, errorMessage, keepUntilCaughtUp, isUnfinished, openCalls } from "./messageParts";

type Parts = UIMessage["parts"];

const user = (text: string): UIMessage => ({ id: "u", role: "user", parts: [{ type: "text", text }] });
const agent = (...parts: object[]): UIMessage => ({ id: "run_1", role: "assistant", parts: parts as Parts });
const text = (words: string, state = "done") => ({ type: "text", text: words, state });
const tool = (id: string, state: string, more: object = {}) => ({
  type: "tool-deploy",
  toolCallId: id,
  state,
  input: { version: "2.1" },
  ...more,
});
const card = (id: string, status: string, kind = "approval") => ({ type: "data-request", id, data: { id, kind, status } });
const asked = (id: string) => tool(id, "approval-requested", { approval: { id: `${id}.r1` } });
const statesOf = (message: UIMessage) => pieces(message).map((piece) => (piece.kind === "call" ? piece.call.state : piece.text));

describe("the state of a call", () => {
  it("follows the state of the part and of its request", () => {
    expect(statesOf(agent(asked("req_1"), card("req_1", "pending")))).toEqual(["waiting"]);
    expect(statesOf(agent(tool("req_1", "input-available"), card("req_1", "pending", "question")))).toEqual(["asking"]);
    expect(statesOf(agent(tool("req_1", "input-available"), card("req_1", "approved")))).toEqual(["running"]);
    expect(statesOf(agent(tool("req_1", "output-available", { output: 1 }), card("req_1", "approved")))).toEqual(["done"]);
    expect(statesOf(agent(tool("req_1", "output-available", { output: 1 }), card("req_1", "responded")))).toEqual(["answered"]);
    expect(statesOf(agent(tool("req_1", "output-denied"), card("req_1", "rejected")))).toEqual(["refused"]);
    expect(statesOf(agent(tool("req_1", "output-denied"), card("req_1", "superseded")))).toEqual(["closed"]);
    expect(statesOf(agent(tool("req_1", "output-error", { errorText: "no" }), card("req_1", "rejected")))).toEqual(["refused"]);
    expect(statesOf(agent(tool("req_1", "output-error", { errorText: "no" })))).toEqual(["failed"]);
  });

  it("leaves out parts that are not rendered", () => {
    expect(statesOf(agent({ type: "step-start" }, text(" "), text("Hello"), card("req_9", "pending")))).toEqual(["Hello"]);
  });
});

describe("open calls", () => {
  it("are in the last answer only", () => {
    const open = agent(text("I will"), asked("req_1"), asked("req_2"));
    expect(openCalls([user("two"), open]).map((call) => call.id)).toEqual(["req_1", "req_2"]);
    expect(openCalls([user("two"), open, user("no, wait")])).toEqual([]);
    expect(openCalls([])).toEqual([]);
  });
});

describe("an unfinished answer", () => {
  it("is one the agent is still working on", () => {
    expect(isUnfinished([user("hello")])).toBe(true);
    expect(isUnfinished([user("hello"), agent()])).toBe(true);
    expect(isUnfinished([user("hello"), agent(text("Hel", "streaming"))])).toBe(true);
    expect(isUnfinished([user("hello"), agent(tool("req_1", "output-available", { output: 1 }))])).toBe(true);
    expect(isUnfinished([user("hello"), agent(tool("req_1", "input-available"), asked("req_2"))])).toBe(true);
  });

  it("is not one that has ended or waits for a decision", () => {
    expect(isUnfinished([])).toBe(false);
    expect(isUnfinished([user("hello"), agent(text("Hello."))])).toBe(false);
    expect(isUnfinished([user("two"), agent(tool("req_1", "output-available", { output: 1 }), asked("req_2"))])).toBe(false);
  });
});

describe("two lists of messages", () => {
  it("are the same if they render the same, whatever their ids", () => {
    expect(rendersSame([user("a")], [{ ...user("a"), id: "other" }])).toBe(true);
    expect(rendersSame([user("a"), agent(asked("req_1"))], [user("a"), agent({ type: "step-start" }, asked("req_1"))])).toBe(true);
  });

  it("differ if a call has changed or text was added", () => {
    expect(rendersSame([agent(asked("req_1"))], [agent(tool("req_1", "input-available"), card("req_1", "approved"))])).toBe(false);
    expect(rendersSame([agent(text("Hel"))], [agent(text("Hello"))])).toBe(false);
  });
});

describe("a stream that is joined again", () => {
  const before = [user("two"), agent(text("I will"), asked("req_1"))];
  it("does not replace the shown messages until it has caught up", () => {
    expect(keepUntilCaughtUp(before, [user("two"), agent()], true)).toBe(before);
    expect(keepUntilCaughtUp(before, [user("two"), agent(text("I will"))], true)).toBe(before);
  });

  it("is shown once it has caught up, and whenever nothing streams", () => {
    const after = [user("two"), agent(text("I will"), tool("req_1", "output-available", { output: 1 }))];
    expect(keepUntilCaughtUp(before, after, true)).toBe(after);
    const shorter = [user("two"), agent()];
    expect(keepUntilCaughtUp(before, shorter, false)).toBe(shorter);
    const other = [...before, user("more")];
    expect(keepUntilCaughtUp(before, other, true)).toBe(other);
  });
});

describe("text from agents", () => {
  it("has its hidden characters made visible", () => {
    expect(formatValue("a\u202Eb")).toBe("a⟨U+202E⟩b");
    expect(argsSummary({ to: "a\u200Bb", n: 2 })).toBe("to: a⟨U+200B⟩b, n: 2");
    expect(formatValue({ a: ["<b>"] })).toContain("<b>");
  });

  it("is truncated in the summary only", () => {
    const long = { query: "x".repeat(200) };
    expect(argsSummary(long)).toHaveLength(80);
    expect(formatValue(long)).toContain("x".repeat(200));
  });
});

it("an answer is shown by its labels", () => {
  const input = { options: [{ label: "A link by mail", value: "magic_link" }] };
  expect(answerText(input, { answer: "magic_link" })).toBe("A link by mail");
  expect(answerText(input, { answer: ["magic_link", "my own"] })).toBe("A link by mail, my own");
  expect(answerText({}, { answer: [] })).toBe("none");
  expect(answerText(undefined, "plain")).toBe("plain");
});

it("an error of the client becomes a readable message", () => {
  expect(errorMessage(new Error('{"error":"NotFound","message":"There is no such chat."}'))).toBe("There is no such chat.");
  expect(errorMessage(new Error("agent 'x' is not here"))).toBe("agent 'x' is not here");
  expect(errorMessage(new TypeError("Failed to fetch"))).toContain("could not be reached");
});
