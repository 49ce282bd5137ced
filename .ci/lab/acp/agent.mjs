// An agent of the official SDK that asks for permission twice, writes a file and starts a terminal, and says what it got.

import { Readable, Writable } from 'node:stream'
import * as acp from '@agentclientprotocol/sdk'

const options = ['allow_always', 'allow_once', 'reject_once'].map((kind) => ({ optionId: 'o-' + kind, name: kind, kind }))

acp.agent({ name: 'lab' })
  .onRequest('initialize', () => ({ protocolVersion: 1, agentCapabilities: { loadSession: false }, authMethods: [] }))
  .onRequest('session/new', () => ({ sessionId: 'lab-session', modes: { currentModeId: 'ask', availableModes: [{ id: 'ask', name: 'Ask' }, { id: 'all', name: 'All' }] } }))
  .onRequest('session/set_mode', () => ({}))
  .onRequest('session/prompt', async ({ params, client }) => {
    const { sessionId } = params
    const said = []
    const say = (text) => client.notify('session/update', { sessionId, update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } } })
    const permission = async (toolCallId, title) => {
      const { outcome } = await client.request('session/request_permission', { sessionId, toolCall: { toolCallId, title, kind: 'execute', rawInput: { command: title } }, options })
      said.push(outcome.optionId ?? outcome.outcome)
    }
    await say('é "quoted"\n')
    said.push((await client.request('fs/read_text_file', { sessionId, path: '/lab/in' })).content)
    await permission('c1', 'make')
    await client.request('fs/write_text_file', { sessionId, path: '/lab/out', content: 'new\n' })
    await client.request('terminal/create', { sessionId, command: 'make' }).catch((error) => said.push(error.message.replace(/ [0-9a-f]{8}:/, '')))
    await permission('c2', 'make clean')
    await say(JSON.stringify(said))
    return { stopReason: 'end_turn' }
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)))
