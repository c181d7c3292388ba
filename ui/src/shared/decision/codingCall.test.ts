import { expect, test } from "vitest";
import { codingCall } from "./codingCall";

test("a command with its directory", () => {
  const call = codingCall("Bash", { command: "make", cwd: "/src", timeout: 5 });
  expect(call).toEqual({ kind: "command", command: "make", cwd: "/src", rest: { timeout: 5 } });
  expect(codingCall("Bash", { command: 5 })).toBeNull();
  expect(codingCall("refund", { command: "make" })).toBeNull();
  expect(codingCall("Bash", ["make"])).toBeNull();
});

test("an edit with its changes and all other arguments", () => {
  expect(codingCall("Edit", { file_path: "a", old_string: "x", new_string: "y", replace_all: true })).toEqual({
    kind: "edit",
    path: "a",
    cwd: null,
    changes: [{ before: "x", after: "y" }],
    rest: { replace_all: true },
  });
  const many = { file_path: "a", edits: [{ old_string: "x", new_string: "y" }] };
  expect(codingCall("MultiEdit", many)).toMatchObject({ changes: [{ before: "x", after: "y" }], rest: {} });
  const more = { file_path: "a", edits: [{ old_string: "x", new_string: "y", replace_all: true }] };
  expect(codingCall("MultiEdit", more)).toBeNull();
  expect(codingCall("Write", { file_path: "a", content: "x" })).toMatchObject({ changes: [{ before: null, after: "x" }] });
  expect(codingCall("Write", { file_path: "a" })).toBeNull();
});

test("a fetch with the host that its URL leads to", () => {
  expect(codingCall("WebFetch", { url: "https://bank.com@evil.example/x", prompt: "p" })).toEqual({
    kind: "fetch",
    url: "https://bank.com@evil.example/x",
    host: "evil.example",
    rest: { prompt: "p" },
  });
  expect(codingCall("WebFetch", { url: "not an address" })).toMatchObject({ host: "" });
});
