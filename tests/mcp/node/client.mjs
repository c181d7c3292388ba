// Drives the proxy with the TypeScript SDK. Reads commands from stdin, one JSON object per line,
// and answers each with one line.
import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const target = JSON.parse(process.argv[2]);
const transport = target.url
  ? new StreamableHTTPClientTransport(new URL(target.url), {
      requestInit: { headers: target.headers ?? {} },
    })
  : new StdioClientTransport({ command: target.command, args: target.args, stderr: 'inherit' });
const client = new Client({ name: 'ts', version: '1' }, { capabilities: {} });
let progress = 0;

async function act(given) {
  if (given.do === 'tools') return (await client.listTools()).tools.map((tool) => tool.name);
  if (given.do === 'progress') return progress;
  const options = { timeout: given.timeout ?? 60000 };
  if (given.onprogress) {
    options.onprogress = () => (progress += 1);
    options.resetTimeoutOnProgress = true;
  }
  return client.callTool({ name: given.tool, arguments: given.args }, undefined, options);
}

function say(value) {
  process.stdout.write(JSON.stringify(value) + '\n');
}

await client.connect(transport);
say({ server: client.getServerVersion().name });
for await (const line of createInterface({ input: process.stdin })) {
  try {
    say({ result: await act(JSON.parse(line)) });
  } catch (error) {
    say({ error: error.message, code: error.code });
  }
}
await client.close();
