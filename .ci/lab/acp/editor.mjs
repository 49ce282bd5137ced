// An editor of the official SDK: it starts the command of its arguments as its agent, chooses a mode, prompts once, and
// prints what the agent said and what it was asked itself.

import { spawn } from 'node:child_process'
import { Readable, Writable } from 'node:stream'
import * as acp from '@agentclientprotocol/sdk'

const child = spawn(process.argv[2], process.argv.slice(3), { stdio: ['pipe', 'pipe', 'inherit'] })
const asked = []
const said = []
await acp.client({ name: 'lab' })
  .onRequest('fs/read_text_file', () => ({ content: 'old\n' }))
  .onRequest('fs/write_text_file', ({ params }) => { asked.push('write ' + params.path); return {} })
  .onRequest('terminal/create', () => { asked.push('terminal'); return { terminalId: 't' } })
  .onRequest('session/request_permission', () => { asked.push('permission'); return { outcome: { outcome: 'selected', optionId: 'o-allow_always' } } })
  .onNotification('session/update', ({ params }) => { said.push(params.update.content.text) })
  .connectWith(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (agent) => {
    await agent.request('initialize', { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true } })
    const { sessionId } = await agent.request('session/new', { cwd: process.cwd(), mcpServers: [] })
    await agent.request('session/set_mode', { sessionId, modeId: 'all' })
    await agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'go' }] })
  })
console.log(JSON.stringify({ asked, said: said.slice(1) }))
child.stdin.end()
