/** Server-sent events over fetch. Unlike EventSource, it exposes the status and can send Last-Event-ID first. */

export interface SseMessage {
  id: string;
  event: string;
  data: string;
}

/** Parse chunks of text into messages. Chunks may end anywhere; comments are skipped. */
export function sseParser(emit: (message: SseMessage) => void): (chunk: string) => void {
  let rest = "";
  let id = "";
  let event = "";
  let data: string[] = [];
  return (chunk) => {
    const lines = (rest + chunk).split(/\r\n|\n|\r/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (data.length) emit({ id, event: event || "message", data: data.join("\n") });
        event = "";
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "data") data.push(value);
      else if (field === "event") event = value;
      else if (field === "id") id = value;
    }
  };
}

/** Read a response to its end. `onChunk` is also called for comments, which serve as keep-alives. */
export async function readSse(
  response: Response,
  emit: (message: SseMessage) => void,
  onChunk: () => void = () => {},
): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const push = sseParser(emit);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onChunk();
    push(value);
  }
}
