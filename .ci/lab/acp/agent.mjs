// An agent of the official SDK. The prompt is a list of steps in JSON; each that it was allowed leaves a file. It says which
// options it got.

import { randomUUID } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { Readable, Writable } from 'node:stream'
import * as acp from '@agentclientprotocol/sdk'

// leave makes the file of an effect that a text names as DIR/effects/NAME.XXXXXX.
const leave = (text) => writeFileSync(text.match(/\/\S+\/effects\/[^.]+\./)[0] + randomUUID(), '')

acp.agent({ name: 'lab' })
  .onRequest('initialize', () => ({ protocolVersion: 1, agentCapabilities: { loadSession: false }, authMethods: [] }))
  .onRequest('session/new', () => ({ sessionId: 'lab-session', modes: { currentModeId: 'ask', availableModes: [{ id: 'ask', name: 'Ask' }] } }))
  .onRequest('session/set_mode', ({ params }) => { leave(params.modeId); return {} })
  .onNotification('session/cancel', () => {})
  .onRequest('session/prompt', async ({ params, client }) => {
    const { sessionId } = params
    const said = []
    const say = (text) => client.notify('session/update', { sessionId, update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } } })
    const steps = {
      permission: async ({ command, kinds }) => {
        // null: the option has no kind
        const options = kinds?.map((kind, i) => ({ optionId: 'o-' + (kind ?? i), name: kind ?? 'none', ...(kind && { kind }) }))
        const { outcome } = await client.request('session/request_permission', { sessionId, toolCall: { toolCallId: 'c' + said.length, title: command, kind: 'execute', rawInput: { command } }, ...(options && { options }) })
        if (outcome.outcome === 'selected' && !outcome.optionId.startsWith('o-reject')) leave(command)
        return outcome.optionId ?? outcome.outcome
      },
      read: async ({ path }) => (await client.request('fs/read_text_file', { sessionId, path })).content,
      write: async ({ path }) => { await client.request('fs/write_text_file', { sessionId, path, content: 'é\n' }); return 'written' },
      terminal: async ({ command }) => { await client.request('terminal/create', { sessionId, command }); return 'started' },
    }
    await say('é "quoted"\n')
    for (const step of JSON.parse(params.prompt[0].text)) {
      said.push(await steps[step.do](step).catch(() => 'refused'))
    }
    await say(said.join(' '))
    return { stopReason: 'end_turn' }
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)))
