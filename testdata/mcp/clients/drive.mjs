// Drives one of the official clients: reads {"op":"tools"|"call","tool","args"} from standard input, one to a line, and
// writes each answer as a line. PLAN has the folder of the packages, the version of the protocol, and the server.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { createRequire } from "node:module";

const plan = JSON.parse(process.env.PLAN);
const load = (name) => import(pathToFileURL(createRequire(plan.modules + "/").resolve(name)));

async function connect() {
  const old = plan.version === "2025-11-25";
  const names = old
    ? ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/stdio.js", "@modelcontextprotocol/sdk/client/streamableHttp.js"]
    : ["@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio", "@modelcontextprotocol/client"];
  const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }] = await Promise.all(names.map(load));
  const client = new Client({ name: "typescript", version: "1" }, old ? {} : { versionNegotiation: { mode: { pin: plan.version } } });
  const transport = plan.url
    ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: { Authorization: "Bearer " + plan.key } } })
    : new StdioClientTransport({ command: plan.command[0], args: plan.command.slice(1), env: process.env, stderr: "inherit" });
  await client.connect(transport);
  return client;
}

const client = await connect();
console.log(JSON.stringify({ ready: client.getServerVersion()?.name }));
for await (const line of createInterface({ input: process.stdin })) {
  const { op, tool, args } = JSON.parse(line);
  try {
    if (op === "tools") {
      console.log(JSON.stringify({ tools: (await client.listTools()).tools.map((t) => t.name) }));
      continue;
    }
    const r = await client.callTool({ name: tool, arguments: args });
    console.log(JSON.stringify({ text: r.content.map((c) => c.text).join(""), error: r.isError === true, data: r.structuredContent, meta: r._meta }));
  } catch (e) {
    console.log(JSON.stringify({ failed: String(e) }));
  }
}
await client.close();
