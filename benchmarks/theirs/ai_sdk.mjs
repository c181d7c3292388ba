// The AI SDK's own server side for the chat benchmark; it stores nothing.
import http from 'node:http';
import { convertToModelMessages, isStepCount, pipeUIMessageStreamToResponse, streamText, tool, toUIMessageStream } from 'ai';
import { MockLanguageModelV4, simulateReadableStream } from 'ai/test';
import { z } from 'zod';

globalThis.AI_SDK_LOG_WARNINGS = false;
const answer = 'Final answer: the weather in New York is sunny.';
const usage = {
  inputTokens: { total: 10, noCache: 10, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 5, text: 5, reasoning: undefined },
};
let calls = 0;

function reply(prompt) {
  if (prompt.at(-1).role === 'tool') {
    return [
      { type: 'text-start', id: 't' },
      ...answer.match(/\S+\s*/g).map(word => ({ type: 'text-delta', id: 't', delta: word })),
      { type: 'text-end', id: 't' },
      { type: 'finish', finishReason: { unified: 'stop', raw: 'stop' }, usage },
    ];
  }
  const id = `call_${++calls}`;
  return [
    { type: 'tool-call', toolCallId: id, toolName: 'getWeatherInformation', input: '{"city":"New York"}' },
    { type: 'finish', finishReason: { unified: 'tool-calls', raw: 'tool-calls' }, usage },
  ];
}

const model = new MockLanguageModelV4({
  doStream: async ({ prompt }) => {
    model.doStreamCalls.length = 0; // the mock keeps every call
    const chunks = [{ type: 'stream-start', warnings: [] }, ...reply(prompt)];
    return { stream: simulateReadableStream({ chunks, initialDelayInMs: null, chunkDelayInMs: null }) };
  },
});
const tools = {
  getWeatherInformation: tool({
    description: 'show the weather in a given city to the user',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `The weather in ${city} is sunny.`,
  }),
};

const server = http.createServer(async (request, response) => {
  let raw = '';
  for await (const chunk of request) raw += chunk;
  const { messages } = JSON.parse(raw);
  const result = streamText({
    model,
    tools,
    stopWhen: isStepCount(5),
    messages: await convertToModelMessages(messages, { tools }),
    toolApproval: { getWeatherInformation: 'user-approval' },
  });
  const stream = toUIMessageStream({ stream: result.stream, tools, originalMessages: messages, generateMessageId: () => `m${++calls}` });
  await pipeUIMessageStreamToResponse({ response, stream });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
