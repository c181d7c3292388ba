import { expect, it } from "vitest";
import { actorOf, factOf, reasonOf } from "./facts";

it("a decision is labelled by its type", () => {
  expect(factOf("decided", { decision: "approve" }).words).toBe("approved");
  expect(factOf("decided", { decision: "reject" })).toMatchObject({ words: "rejected", tone: "bad" });
  expect(factOf("decided").words).toBe("decided");
});

it("a failure does not look like a success", () => {
  expect(factOf("recorded", { ok: true }).tone).toBe("good");
  expect(factOf("recorded", { ok: false }).tone).toBe("bad");
  expect(factOf("finished", { status: "failed" }).tone).toBe("bad");
});

it("an unknown event type is shown as it is", () => {
  expect(factOf("key_rotated").words).toBe("key rotated");
});

it("actors get readable names", () => {
  expect(actorOf("ana")).toBe("ana");
  expect(actorOf("agent:mailer")).toBe("mailer");
  expect(actorOf("worker:vm-1:7954:ab")).toBe("Worker vm-1");
  expect(actorOf("policy:needs_approval")).toBe("Rule needs_approval");
  expect(actorOf("clock")).toBe("Sayso");
  expect(actorOf("a\u200bna")).toBe("a⟨U+200B⟩na");
});

it("a failed webhook shows its reason", () => {
  const body = { message: "evt_1", reason: "the receiver answered 500" };
  expect(`${factOf("webhook_dead", body).words}: ${reasonOf(body)}`).toBe("gave up on a webhook: the receiver answered 500");
});

it("signing in is not shown as creating a token", () => {
  expect(factOf("token_created", { token: "ses_tok_1a.2b", person: "ana", role: "admin" }).words).toBe("signed in");
  expect(factOf("token_revoked", { token: "ses_lnk_1a" }).words).toBe("signed out");
  expect(factOf("token_created", { token: "tok_1a", person: "bot", role: "agent" }).words).toBe(
    "created the token tok_1a for bot (agent)",
  );
  expect(factOf("token_revoked", { token: "tok_1a" }).words).toBe("revoked the token tok_1a");
  expect(factOf("token_created", null).words).toBe("signed in or created a token");
});

it("a reason or message is shown if there is one", () => {
  expect(reasonOf({ message: "", reason: "too late" })).toBe("too late");
  expect(reasonOf({ message: "Not today" })).toBe("Not today");
  expect(reasonOf(null)).toBe("");
});
