// Runs scenarios.json with the JavaScript client: drive.mjs SCENARIOS [NAME ...]. See README.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { inspect } from 'node:util'
import * as permesso from '../../ipc/client/typescript/permesso.mjs'

const KINDS = new Map([
  [permesso.InvalidKey, 'invalid_key'], [permesso.Invalid, 'invalid'], [permesso.NotFound, 'not_found'],
  [permesso.NotPending, 'not_pending'], [permesso.Unreachable, 'unreachable'], [permesso.NotAGate, 'not_a_gate'],
  [permesso.Mismatch, 'mismatch'], [permesso.StillWaiting, 'still_waiting'], [permesso.Denied, 'denied'],
  [permesso.Expired, 'expired'], [permesso.Cancelled, 'cancelled'], [permesso.Overridden, 'overridden'],
  [permesso.MoreWanted, 'more_wanted'], [permesso.Failed, 'failed'], [permesso.Rejected, 'rejected'], [permesso.Malformed, 'malformed'],
])

const json = (value) => {
  if (typeof value === 'bigint') return String(value)
  if (Array.isArray(value)) return '[' + value.map(json).join(',') + ']'
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  return '{' + Object.entries(value).map(([name, member]) => JSON.stringify(name) + ':' + json(member)).join(',') + '}'
}

const resultOf = ({ outcome, auto, code, note, override, feedback, by, via, error, metadata, result }) =>
  ({ decision: { outcome, auto, code, note, override, feedback, by, via, error, metadata, result: json(result) } })

const camel = (name) => name.replace(/_([a-z])/g, (_, c) => c.toUpperCase())

async function runScenario(s) {
  const gate = s.key ? new permesso.Gate({ key: s.key }) : new permesso.Gate()
  assert(!inspect(gate, { showHidden: true, depth: 5 }).includes(process.env.PERMESSO_KEY ?? 'permesso_'))
  let { tool_name: tool, data = '{}', ...fields } = { session_id: s.name, ...s.request }
  if (s.pad) data = data.replace('""', '"' + 'x'.repeat(s.pad) + '"')
  const more = Object.fromEntries(Object.entries(fields).map(([name, value]) => [camel(name), value]))
  const timeoutMs = s.timeout && s.timeout * 1000
  switch (s.do) {
    case 'request':
      return resultOf(await gate.request(tool, data, { ...more, timeoutMs }))
    case 'run': {
      const { program: source, ...rest } = more
      const program = await gate.run(source, { ...rest, timeoutMs })
      const end = program.decisions.at(-1)
      assert.deepEqual(program.steps, end.result?.steps ?? [])
      assert.equal(program.undo, null)
      return { parts: program.decisions.length, same: program.approved, ...resultOf(end) }
    }
    case 'cancel': {
      const asked = await gate.submit(tool, data, more)
      await gate.cancel(asked)
      if (process.env.PERMESSO_URL) await gate.cancel(asked.id)
      return resultOf(await gate.wait('appr_' + asked.id))
    }
    case 'late': {
      const asked = await gate.submit(tool, data, more)
      await gate.wait(asked)
      return gate.cancel(asked)
    }
    case 'again': {
      const once = { ...more, idempotencyKey: 'again' }
      const first = await gate.submit(tool, data, once)
      const same = (await gate.submit(tool, data, once)).id === first.id
      return gate.submit(tool, '{"a":2}', once).catch((error) => ({ same, error: KINDS.get(error.constructor), status: error.status }))
    }
    case 'foreign':
      await assert.rejects(gate.cancel(process.env.FOREIGN), permesso.NotFound)
      return gate.wait(process.env.FOREIGN)
    case 'no_gate':
      return new permesso.Gate({ url: 'http://127.0.0.1:9', key: 'permesso_x', retryTimeoutMs: timeoutMs ? undefined : 300 })
        .request(tool, data, { timeoutMs })
        .catch((error) => { assert.equal(error.idempotencyKey?.length, 32); throw error })
    case 'guard':
    case 'mutate':
      return guard(s, gate, more, timeoutMs)
  }
  throw new Error('unexpected result of ' + s.do)
}

async function guard(s, gate, more, timeoutMs) {
  const ran = []
  const arg = structuredClone(s.args)
  if (s.do === 'mutate') {
    const submit = gate.submit.bind(gate)
    gate.submit = async (...what) => {
      const asked = await submit(...what)
      arg.path = '/etc' // after it was shown
      return asked
    }
  }
  const guarded = permesso.needsApproval(async (arg) => { ran.push(arg); return 'value' }, { ...more, gate, timeoutMs })
  try {
    assert.equal(await guarded(arg), 'value')
    assert.deepEqual(ran, [s.args])
  } catch (error) {
    return { ran: ran.length, error: KINDS.get(error.constructor) ?? String(error) }
  }
  return { ran: ran.length }
}

async function run(s) {
  const began = Date.now()
  const got = await runScenario(s).catch((error) => {
    assert(!String(error).includes(process.env.PERMESSO_KEY ?? 'permesso_'))
    return { error: KINDS.get(error.constructor) ?? inspect(error), status: error.status }
  })
  console.log(JSON.stringify({ name: s.name, took: (Date.now() - began) / 1000, ...got }))
}

const todo = JSON.parse(readFileSync(process.argv[2], 'utf8')).filter(({ name }) => process.argv.slice(3).includes(name))
await Promise.all(todo.map(run))
