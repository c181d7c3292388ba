import { describe, expect, it } from "vitest";
import { sseParser, type SseMessage } from "./sse";

function read(...chunks: string[]): SseMessage[] {
  const out: SseMessage[] = [];
  const push = sseParser((message) => out.push(message));
  chunks.forEach(push);
  return out;
}

describe("sseParser", () => {
  it("reads id, event and data", () => {
    expect(read('id: 7\nevent: change\ndata: {"a":1}\n\n')).toEqual([{ id: "7", event: "change", data: '{"a":1}' }]);
  });

  it("joins chunks that end anywhere", () => {
    const text = "id: 7\nevent: change\ndata: one\ndata: two\n\n";
    expect(read(...text.split(""))).toEqual([{ id: "7", event: "change", data: "one\ntwo" }]);
  });

  it("skips comments, and remembers the last id", () => {
    expect(read("id: 1\ndata: a\n\n: keep-alive\n\ndata: b\n\n")).toEqual([
      { id: "1", event: "message", data: "a" },
      { id: "1", event: "message", data: "b" },
    ]);
  });

  it("emits nothing before the empty line", () => {
    expect(read("data: a\n")).toEqual([]);
  });
});
