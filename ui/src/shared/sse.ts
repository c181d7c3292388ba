/** Server-sent events over fetch: unlike EventSource it tells the status and sends Last-Event-ID. */

export interface SseMessage {
  id: string;
  event: string;
  data: string;
}

/** Cut a stream of text into messages; comments and half lines are handled. */
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

/** Read a response to its end, message by message; `onChunk` also hears of comments. */
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
