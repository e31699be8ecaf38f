// SPDX-License-Identifier: Apache-2.0
// One client of the Model Context Protocol, driven as its own programs drive it.  What it is to do comes as JSON on
// standard input; what it saw goes out as JSON.
//
//   {sdk: 1|2, mode: "legacy"|"auto"|{pin: ...}, command, args, env} or {..., url, headers}, calls: [arguments, ...]
import { readFileSync } from 'node:fs';

const plan = JSON.parse(readFileSync(0, 'utf8'));
const info = { name: 'exercise', version: '1' };

async function connect() {
  if (plan.sdk === 1) {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const client = new Client(info);
    await client.connect(transport(StdioClientTransport, StreamableHTTPClientTransport));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const client = new Client(info, { versionNegotiation: { mode: plan.mode } });
  await client.connect(transport(StdioClientTransport, StreamableHTTPClientTransport));
  return client;
}

function transport(Stdio, Http) {
  if (plan.url)
    return new Http(new URL(plan.url), { requestInit: { headers: plan.headers } });
  return new Stdio({ command: plan.command, args: plan.args, env: plan.env, stderr: 'inherit' });
}

async function failure(promise) {
  try {
    await promise;
    return null;
  } catch (e) {
    return { name: e.name, message: String(e.message), code: e.code };
  }
}

const client = await connect();
const call = (args, options) => plan.sdk === 1
  ? client.callTool({ name: 'run_python', arguments: args }, undefined, options)
  : client.callTool({ name: 'run_python', arguments: args }, options);
const seen = {
  server: client.getServerVersion(),
  capabilities: client.getServerCapabilities(),
  instructions: client.getInstructions(),
  era: plan.sdk === 1 ? 'legacy' : client.getProtocolEra(),
  tools: (await client.listTools()).tools,
  results: [],
  progress: [],
};
for (const args of plan.calls)
  seen.results.push(await call(args));
seen.slow = await call({ script_content: 'import time; time.sleep(3.5); print("slow")' },
  { onprogress: p => seen.progress.push(p) });
const stop = new AbortController();
const long = { script_content: 'import time; time.sleep(100)', timeout: 100, args: [plan.mark] };
const marked = call(long, { signal: stop.signal });
setTimeout(() => stop.abort('enough'), 400);
seen.aborted = await failure(marked);
seen.timed_out = await failure(call(long, { timeout: 400 }));
seen.unknown = await failure(client.callTool({ name: 'no_such_tool', arguments: {} }));
seen.together = (await Promise.all([1, 2, 3, 4, 5, 6].map(n => call({ script_content: `print(${n})` }))))
  .map(r => r.structuredContent.stdout);
seen.after = await call({ script_content: 'print("after")' });
console.log(JSON.stringify(seen));
await client.close();
