import { describe, expect, it } from "vitest";
import type { DecisionBody, Request } from "../shared/types";
import type { Call } from "./messageParts";
import { toChatReply } from "./chatReply";

const request = (more: object = {}) =>
  ({ id: "req_1", revision: 1, kind: "approval", args: { city: "Oslo", days: 1 }, ...more }) as unknown as Request;
const card = (approval = "req_1.r1") =>
  ({
    id: "req_1",
    name: "weather",
    state: "waiting",
    part: { type: "tool-weather", toolCallId: "req_1", state: "approval-requested", input: {}, approval: { id: approval } },
  }) as unknown as Call;
const asking = () =>
  ({ id: "req_1", name: "ask", state: "asking", part: { type: "tool-ask", toolCallId: "req_1", state: "input-available", input: {} } }) as unknown as Call;
const decision = (type: DecisionBody["type"], more: object = {}): DecisionBody => ({ type, seen_digest: "d", ...more });

describe("a decision over the chat", () => {
  it("approves, or rejects with a reason", () => {
    expect(toChatReply(card(), request(), decision("approve"))).toEqual({ kind: "approval", id: "req_1.r1", approved: true });
    expect(toChatReply(card(), request(), decision("reject", { message: "No" }))).toMatchObject({ approved: false, reason: "No" });
  });

  it("edits the arguments, or responds instead of running the call", () => {
    const edit = { args: { city: "Bergen" }, unset: ["days"] };
    const body = { edits: { "req_1.r1": edit.args }, unset: { "req_1.r1": edit.unset } };
    expect(toChatReply(card(), request(), decision("edit", edit))).toMatchObject({ body });
    expect(toChatReply(card(), request(), decision("respond", { value: 7 }))).toMatchObject({ body: { answers: { "req_1.r1": 7 } } });
  });

  it("answers questions with an output, and declines with an error", () => {
    const question = request({ kind: "question" });
    expect(toChatReply(asking(), question, decision("respond", { value: ["a"] }))).toEqual({ kind: "output", output: { answer: ["a"] } });
    expect(toChatReply(asking(), question, decision("reject", { message: "No" }))).toEqual({ kind: "error", errorText: "No" });
    expect(toChatReply(asking(), request(), decision("respond", { value: 7 }))).toEqual({ kind: "output", output: 7 });
  });

  it("decides a call in doubt only if the card was about it", () => {
    expect(toChatReply(card("req_1.r1d"), request({ kind: "in_doubt" }), decision("approve"))).not.toBeNull();
    expect(toChatReply(card("req_1.r1"), request({ kind: "in_doubt" }), decision("approve"))).toBeNull();
  });
});

describe("the request's own route is used", () => {
  it("when the card showed another revision than the chat has", () => {
    expect(toChatReply(card("req_1.r2"), request(), decision("approve"))).toBeNull();
    expect(toChatReply(card("req_1.r1"), request({ revision: 2 }), decision("approve"))).toBeNull();
  });

  it("to stop the run", () => {
    expect(toChatReply(card(), request(), decision("reject", { message: "No", stop: true }))).toBeNull();
  });

  it("for a grant, and for calls that are not open", () => {
    expect(toChatReply(card(), request(), decision("approve", { grant: { scope: "any" } }))).toBeNull();
    expect(toChatReply({ ...asking(), state: "running" }, request(), decision("respond", { value: 1 }))).toBeNull();
    expect(toChatReply(asking(), request(), decision("approve"))).toBeNull();
  });
});
