import { expect, it } from "vitest";
import page from "../../../docs/audit.md?raw";
import { LABELS, actorName, eventLabel, eventReason } from "./eventLabels";

it("a decision is labelled by its type", () => {
  expect(eventLabel("decided", { decision: "approve" }).text).toBe("approved");
  expect(eventLabel("decided", { decision: "reject" })).toMatchObject({ text: "rejected", tone: "bad" });
  expect(eventLabel("decided").text).toBe("decided");
});

it("a failure does not look like a success", () => {
  expect(eventLabel("recorded", { ok: true }).tone).toBe("good");
  expect(eventLabel("recorded", { ok: false }).tone).toBe("bad");
  expect(eventLabel("finished", { status: "failed" }).tone).toBe("bad");
});

it("an unknown event type is shown as it is", () => {
  expect(eventLabel("key_rotated").text).toBe("key rotated");
});

it("every documented event has a label", () => {
  const cells = [...page.matchAll(/^\| (`[a-z_`, ]+`) \|/gm)].map((row) => row[1]!);
  const types = cells.flatMap((cell) => [...cell.matchAll(/[a-z_]+/g)].map(([type]) => type));
  expect(types.length).toBeGreaterThan(40);
  expect(types.filter((type) => !(type in LABELS))).toEqual([]);
});

it("a change of a person names them and what they may do now", () => {
  const ana = { person: "ana", role: "reviewer", groups: ["finance", "ops"], stand_in: "ben" };
  expect(eventLabel("person_added", { ...ana, stand_in: "" }).text).toBe("added ana: reviewer in finance, ops");
  expect(eventLabel("person_changed", ana).text).toBe("changed ana: reviewer in finance, ops; ben decides meanwhile");
  expect(eventLabel("person_removed", { person: "ana" }).text).toBe("removed ana");
  expect(eventLabel("person_changed", null).text).toBe("changed what a person may do");
});

it("actors get readable names", () => {
  expect(actorName("ana")).toBe("ana");
  expect(actorName("agent:mailer")).toBe("mailer");
  expect(actorName("worker:vm-1:7954:ab")).toBe("Worker vm-1");
  expect(actorName("policy:needs_approval")).toBe("Rule needs_approval");
  expect(actorName("clock")).toBe("Sayso");
  expect(actorName("a\u200bna")).toBe("a⟨U+200B⟩na");
});

it("a failed webhook shows its reason", () => {
  const body = { message: "evt_1", reason: "the receiver answered 500" };
  expect(`${eventLabel("webhook_dead", body).text}: ${eventReason(body)}`).toBe("gave up on a webhook: the receiver answered 500");
});

it("signing in is not shown as creating a token", () => {
  expect(eventLabel("token_created", { token: "ses_tok_1a.2b", person: "ana", role: "admin" }).text).toBe("signed in");
  expect(eventLabel("token_revoked", { token: "ses_lnk_1a" }).text).toBe("signed out");
  expect(eventLabel("token_created", { token: "tok_1a", person: "bot", role: "agent" }).text).toBe(
    "created the token tok_1a for bot (agent)",
  );
  expect(eventLabel("token_revoked", { token: "tok_1a" }).text).toBe("revoked the token tok_1a");
  expect(eventLabel("token_created", { token: "pky_AbC", person: "ana" }).text).toBe("added a passkey");
  expect(eventLabel("token_created", null).text).toBe("signed in or created a token");
});

it("a reason or message is shown if there is one", () => {
  expect(eventReason({ message: "", reason: "too late" })).toBe("too late");
  expect(eventReason({ message: "Not today" })).toBe("Not today");
  expect(eventReason(null)).toBe("");
});
