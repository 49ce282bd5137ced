// Tests of the JavaScript client that need no gate. It prints nothing on success.

import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtempSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import * as permesso from '../../ipc/client/typescript/permesso.mjs'

const hidesKey = (error) => !inspect(error, { showHidden: true, depth: 9 }).includes('hunter2')

for (const url of ['ftp://x', 'http://hunter2:pw@x', 'http://a:hunter2@x', 'unix://host/p', 'nonsense', 'http://', 'http://h/?hunter2', 'http://h/#x']) {
  assert.throws(() => new permesso.Gate({ url, key: 'permesso_x' }), hidesKey, url)
}
for (const key of ['', 'two words', 'new\nline', 'hunter2ü', 'x'.repeat(300)]) {
  assert.throws(() => new permesso.Gate({ url: 'http://127.0.0.1:1', key }), hidesKey, key)
}
const secret = new permesso.Gate({ url: 'http://127.0.0.1:1', key: 'hunter2', retryTimeoutMs: 0 })
assert(hidesKey(secret) && !JSON.stringify(secret).includes('hunter2'))
await assert.rejects(secret.request('x'), (error) => error instanceof permesso.Unreachable && error.name === 'Unreachable' && hidesKey(error))

// Data that JSON cannot encode is not submitted.
class Thing {}
for (const data of [{ a: NaN }, { a: Infinity }, { a: () => 1 }, { a: Symbol('x') }, { a: new Map([[1, 2]]) }, { a: new Thing() }, { a: [undefined] }, { a: [, 1] }]) {
  await assert.rejects(secret.submit('x', data), TypeError, inspect(data))
}
for (const data of ['[1]', '', 'null', [1], 7]) await assert.rejects(secret.submit('x', data), TypeError, inspect(data))

const gates = []

/** A fake gate: its folders, and a timer that answers every request. */
function fakeGate(status, { result = 'null', ...more } = {}) {
  const dir = mkdtempSync(join(tmpdir(), 'permesso-js-'))
  const fake = { dir, asked: [], cancelled: 0, gate: new permesso.Gate({ requests: dir, responses: join(dir, 'r') }) }
  mkdirSync(join(dir, 'r'))
  const seen = new Set(['r'])
  fake.timer = setInterval(() => {
    for (const name of readdirSync(dir)) {
      if (seen.has(name) || name.startsWith('.')) continue
      seen.add(name)
      if (name.endsWith('.cancel')) fake.cancelled++
      const body = readFileSync(join(dir, name), 'utf8')
      if (!body || !status) continue
      fake.asked.push(body)
      assert.equal(statSync(join(dir, name)).mode & 0o777, 0o644)
      const request_sha256 = createHash('sha256').update(body).digest('hex')
      const response = JSON.stringify({ status, request_sha256, decision: { override: 'do that', auto: false }, ...more })
      writeFileSync(join(dir, 'r', '.' + name), response.slice(0, -1) + `,"result":${result}}`)
      renameSync(join(dir, 'r', '.' + name), join(dir, 'r', name))
    }
  }, 5)
  gates.push(fake)
  return fake
}

process.umask(0o077) // agents may have a strict umask, and the gate is another user

// Every digit survives both ways, and no string is read as a number.
const long = '"\\"9007199254740993\\\\'.repeat(10_000)
const yes = fakeGate('approved', { result: `{"n":9007199254740993,"m":-123456789012345678901234567890,"f":1.5e3,"z":-0,"s":"9007199254740993","9007199254740993":[9007199254740993],"t":${JSON.stringify(long)}}` })
const { result } = await yes.gate.request('x', { n: 2n ** 53n + 1n, date: new Date(0), gone: undefined, list: [1n, null, 'ü'] })
assert.equal(result.n, 9007199254740993n)
assert.equal(result.m, -123456789012345678901234567890n)
assert.equal(result.f, 1500)
assert.equal(result.s, '9007199254740993')
assert.deepEqual(result['9007199254740993'], [9007199254740993n])
assert.equal(result.t, long)
assert(yes.asked[0].includes('"request_data":{"n":9007199254740993,"date":"1970-01-01T00:00:00.000Z","list":[1,null,"ü"]}'), yes.asked[0])

const ran = []
const guarded = permesso.needsApproval(async function remove(arg) { ran.push(arg); return arg.path }, { gate: yes.gate, sessionId: 's', title: 't', argsSubset: ['list'] })
assert.equal(await guarded({ path: '/x' }), '/x')
const asked = JSON.parse(yes.asked[1])
assert.deepEqual([asked.action_type, asked.session_id, asked.title, asked.args_subset, asked.request_data, asked.tool_name], ['custom:remove', 's', 't', ['list'], { path: '/x' }, undefined])
await assert.rejects(guarded({ path: () => '/etc' }), TypeError)

// Positional arguments are members, under the names of their parameters.
const called = []
for (const [func, args, shown, options] of [
  [function move(from, to, force = false, ...rest) { called.push([from, to, force, ...rest]) }, ['/a', '/b'], { from: '/a', to: '/b' }],
  [function move(from, to, force = false, ...rest) { called.push([from, to, force, ...rest]) }, ['/a', '/b', true, 1, 2], { from: '/a', to: '/b', force: true, rest: 1, 'argument 5': 2 }],
  [async (path) => { called.push([path]) }, ['/x'], { path: '/x' }, { actionType: 'custom:a' }],
  [async path => { called.push([path]) }, ['/x'], { path: '/x' }, { actionType: 'custom:a' }],
  [async ({ path }, [n]) => { called.push([path, n]) }, [{ path: 1 }, [2]], { 'argument 1': { path: 1 }, 'argument 2': [2] }, { actionType: 'custom:a' }],
  [function both(a, b) { called.push([a, b]) }, [1, 2], { source: 1, target: 2 }, { parameters: ['source', 'target'] }],
  [function twice(...a) { called.push(a) }, [1, 2], { same: 1, 'argument 2': 2 }, { parameters: ['same', 'same'] }],
  [function list(a) { called.push([a]) }, [[1, 2]], { a: [1, 2] }],
  [function none() { called.push([]) }, [], {}],
]) {
  const fake = fakeGate('approved')
  await permesso.needsApproval(func, { gate: fake.gate, ...options })(...args)
  assert.deepEqual(JSON.parse(fake.asked[0]).request_data, shown)
}
assert.deepEqual(called, [['/a', '/b', false], ['/a', '/b', true, 1, 2], ['/x'], ['/x'], [1, 2], [1, 2], [1, 2], [[1, 2]], []])

assert.throws(() => permesso.needsApproval(() => 1), TypeError, 'a name or an actionType')
assert.equal(ran.length, 1)

for (const [status, kind] of Object.entries({
  denied: permesso.Denied, auto_rejected: permesso.Rejected, malformed: permesso.Malformed, answered: permesso.Denied,
  expired: permesso.Expired, cancelled: permesso.Cancelled, overridden: permesso.Overridden,
  request_more: permesso.MoreWanted, failed: permesso.Failed, interrupted: permesso.Failed,
  perhaps: permesso.Denied, APPROVED: permesso.Denied, constructor: permesso.Denied, __proto__x: permesso.Denied,
})) {
  const no = fakeGate(status)
  await assert.rejects(permesso.needsApproval((arg) => ran.push(arg), { gate: no.gate, actionType: 'custom:x' })({}), (error) => {
    return error.constructor === kind && error.decision.outcome === status && error.decision.approved === false && error.message.includes('do that')
  }, status)
}
assert.equal(ran.length, 1)

const silent = fakeGate(null)
await assert.rejects(permesso.needsApproval(() => ran.push(1), { gate: silent.gate, actionType: 'custom:x', timeoutMs: 50 })({}), permesso.StillWaiting)
for (const end = Date.now() + 60_000; !silent.cancelled && Date.now() < end;) await new Promise((done) => setTimeout(done, 5))
assert.equal(silent.cancelled, 1)
// Nothing listens there: the function's timeout ends also the retries of what submits the request.
const nowhere = new permesso.Gate({ url: 'http://127.0.0.1:9', key: 'permesso_x' })
const began = performance.now()
await assert.rejects(permesso.needsApproval(() => ran.push(1), { gate: nowhere, actionType: 'custom:x', timeoutMs: 50 })({}), permesso.Unreachable)
assert.ok(performance.now() - began < 30_000, 'long before its own end of retries')
// What is not an option is said, and where no gate is, how to name one.
for (const ask of [() => yes.gate.submit('x', {}, { timeout: 5 }), async () => permesso.needsApproval(() => 1, { actionType: 'custom:x', timeout: 5 })]) {
  await assert.rejects(ask, (error) => error instanceof TypeError && error.message === 'unknown option timeout: the timeout is timeoutMs, in milliseconds')
}
for (const timeoutMs of ['3', NaN, -1, null]) {
  for (const ask of [() => yes.gate.submit('x', {}, { timeoutMs }), () => yes.gate.request('x', {}, { timeoutMs }), () => yes.gate.wait('0'.repeat(16), { timeoutMs }), async () => permesso.needsApproval(() => 1, { actionType: 'custom:x', timeoutMs })]) {
    const before = yes.asked.length
    await assert.rejects(ask, (error) => error instanceof TypeError && error.message.startsWith('timeoutMs must be a number of milliseconds, not '))
    assert.equal(yes.asked.length, before)
  }
}
const none = new permesso.Gate({ requests: '/nowhere/requests', responses: '/nowhere/responses' })
await assert.rejects(none.request('x'), (error) => error instanceof permesso.Unreachable && error.message.startsWith('no gate found: there is no folder /nowhere/requests. Set PERMESSO_URL'))
await assert.rejects(none.cancel('0'.repeat(16)), permesso.Unreachable)
await assert.rejects(fakeGate('approved', { request_sha256: '0'.repeat(64) }).gate.request('x'), permesso.Mismatch)
await assert.rejects(silent.gate.wait('nonsense'), TypeError)
assert.equal(ran.length, 1)

for (const { timer, dir } of gates) {
  clearInterval(timer)
  rmSync(dir, { recursive: true })
}
