/** Test data: a request, with some fields overridden. */

import type { Request } from "./types";

export function makeRequest(over: Partial<Request> = {}): Request {
  const args = over.args ?? { order: "A-17", amount: 20 };
  const { shown, ...rest } = over;
  return {
    id: "req_1",
    kind: "approval",
    status: "pending",
    agent: "billing",
    run: "run_1",
    thread: "t-1",
    tool: "refund",
    args,
    schema: null,
    question: null,
    description: "",
    note: "",
    preview: null,
    digest: "d1",
    revision: 1,
    allowed: ["approve", "edit", "reject", "respond"],
    reviewers: [],
    quorum: 1,
    votes: [],
    risk: { level: "low", reasons: [] },
    rule: "needs_approval",
    requester: "",
    created_at: "2026-01-01T10:00:00+00:00",
    expires_at: null,
    decision: null,
    execution: { status: "none", attempts: 0, result: null },
    original: null,
    written: null,
    refusals: [],
    masked: false,
    size: 40,
    can: ["approve", "edit", "reject", "respond"],
    ...rest,
    shown: {
      args,
      lines: [],
      title: "Refund: A-17, 20",
      description: "",
      note: "",
      warnings: [],
      hidden: 0,
      question: null,
      original: null,
      written: null,
      summary: "",
      ...shown,
    },
  };
}
