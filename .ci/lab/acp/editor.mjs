// An editor of the official SDK: it starts the command of its arguments as its agent, chooses the mode LAB_MODE, prompts once
// with LAB_STEPS, cancels the turn when the file LAB_DIR/cancel is there, and prints what the agent said last.

import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { existsSync, writeFileSync } from 'node:fs'
import { Readable, Writable } from 'node:stream'
import * as acp from '@agentclientprotocol/sdk'

const { LAB_DIR, LAB_MODE, LAB_STEPS } = process.env
const leave = (text) => writeFileSync(text.match(/\/\S+\/effects\/[^.]+\./)[0] + randomUUID(), '')
const child = spawn(process.argv[2], process.argv.slice(3), { stdio: ['pipe', 'pipe', 'inherit'] })
const said = []
let watching
try {
  await acp.client({ name: 'lab' })
    .onRequest('fs/read_text_file', () => ({ content: 'old' }))
    .onRequest('fs/write_text_file', ({ params }) => { leave(params.path); return {} })
    .onRequest('terminal/create', ({ params }) => { leave(params.command); return { terminalId: 't' } })
    .onRequest('session/request_permission', () => { said.push('ASKED THE EDITOR'); return { outcome: { outcome: 'cancelled' } } })
    .onNotification('session/update', ({ params }) => { said.push(params.update.content.text) })
    .connectWith(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (agent) => {
      await agent.request('initialize', { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true } })
      const { sessionId } = await agent.request('session/new', { cwd: process.cwd(), mcpServers: [] })
      if (LAB_MODE) await agent.request('session/set_mode', { sessionId, modeId: LAB_MODE }).catch(() => said.push('mode refused'))
      watching = setInterval(() => {
        if (!existsSync(LAB_DIR + '/cancel')) return
        clearInterval(watching)
        agent.notify('session/cancel', { sessionId })
      }, 10)
      await agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text: LAB_STEPS }] })
    })
} catch (error) {
  said.push('the connection ended')
}
clearInterval(watching)
console.log('SAID ' + JSON.stringify(said))
child.stdin.end()
