/**
 * Ask a permesso gate before acting. One file of plain JavaScript, Node 18 or later, no dependencies.
 * Beside it permesso.d.mts says the types, for TypeScript and for editors.
 *
 *     import * as permesso from './permesso.mjs'
 *
 *     const decision = await permesso.request('x_post', { text: 'Meeting at 5' }, { rationale: 'the team forgets' })
 *     if (decision.approved) console.log(decision.result)      // the host has done it
 *
 *     const remove = permesso.needsApproval(async function remove({ path }) { await fs.rm(path) })
 *     await remove({ path: '/tmp/x' })                         // runs here, and only when somebody has said yes
 *
 * The gate is where PERMESSO_URL says (http://127.0.0.1:8765, https://..., unix:///path), with the key in
 * PERMESSO_KEY; without PERMESSO_URL it is behind two folders, PERMESSO_REQUESTS and PERMESSO_RESPONSES
 * (/permesso/requests and /permesso/responses).
 *
 * What got no answer is sent again with the same Idempotency-Key, so that nothing is asked twice; what was
 * refused is not. No redirect is followed and no proxy used, which would carry the key elsewhere. What was
 * approved must come with a receipt for the very bytes of the arguments, or it is a Mismatch.
 *
 * Whole numbers that JavaScript would round are BigInts, in arguments and in results.
 */

import { createHash, randomBytes } from 'node:crypto'
import { open, readFile, rename } from 'node:fs/promises'
import http from 'node:http'
import https from 'node:https'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const PATIENCE = 75_000 // ms, for a gate that does not answer, or has no time
const LONG_POLL = 30 // s
const SETTLING = 5 // s
const GRACE = 15_000
const MOST = 16 << 20
const LARGE = 64 << 10
const PREFIX = 'appr_'

/** Everything that goes wrong here. */
export class PermessoError extends Error {
  get name() {
    return this.constructor.name
  }
}

/** No gate answered, for all our patience, or it has no time. The same idempotencyKey finds out what became of it. */
export class Unreachable extends PermessoError {}

/** Something answers there that is no gate. */
export class NotAGate extends PermessoError {}

/** An answer is for other bytes than ours. */
export class Mismatch extends PermessoError {}

/** Nobody has answered within the timeout. The request stays: wait for it again, or cancel it. */
export class StillWaiting extends PermessoError {
  /** @param {string} id */
  constructor(id) {
    super(`no response to ${id} yet`)
    this.id = id
  }
}

/** The gate did not take it. status is HTTP's, detail the gate's sentence. */
export class Refused extends PermessoError {
  /** @param {number} status @param {string} detail */
  constructor(status, detail) {
    super(`the gate answers ${status}: ${detail}`)
    this.status = status
    this.detail = detail
  }
}

/** There is no such key, or it may not do this. */
export class InvalidKey extends Refused {}

/** The request will never be taken as it is. */
export class Invalid extends Refused {}

/** There is no such request, or it is another client's. */
export class NotFound extends Refused {}

/** It is over, or decided: too late to cancel. */
export class NotPending extends Refused {}

/** The request is over, and nothing may be done. */
export class NotApproved extends PermessoError {
  /** @param {Decision} decision */
  constructor(decision) {
    const why = decision.override ?? decision.feedback ?? decision.error
    super(why ? `${decision.outcome}: ${why}` : decision.outcome)
    this.decision = decision
  }
}

/** By a person or by policy; decision.feedback may say why. */
export class Denied extends NotApproved {}

/** Nobody answered in time. */
export class Expired extends NotApproved {}

/** By whoever asked. */
export class Cancelled extends NotApproved {}

/** Code 5: nothing ran. Do what decision.override says instead, and ask for that. */
export class Overridden extends NotApproved {}

/** Nothing ran. Answer what decision.feedback asks, and ask again with resubmits: decision.id. */
export class MoreWanted extends NotApproved {}

/** It was approved, and failed or was interrupted: it may be done, or half done. */
export class Failed extends NotApproved {}

/** @type {Record<number, typeof Refused>} */
const REFUSALS = { 401: InvalidKey, 403: InvalidKey, 404: NotFound, 409: NotPending, 410: NotPending }

/** @type {Record<string, typeof NotApproved>} */
const ENDS = {
  expired: Expired, cancelled: Cancelled, overridden: Overridden, request_more: MoreWanted, failed: Failed, interrupted: Failed,
}

/**
 * What each end means in the four statuses of the field. One that nobody knows is a no.
 * @type {Record<string, [string, string]>}
 */
const STATUSES = {
  approved: ['approved', 'done'], auto_approved: ['approved', 'done'], failed: ['approved', 'failed'],
  interrupted: ['approved', 'interrupted'], overridden: ['approved', 'none'], answered: ['approved', 'none'],
  expired: ['expired', 'none'],
}

/** How a request ended. */
export class Decision {
  /** @param {string} id @param {string} outcome @param {any} raw @param {boolean} auto */
  constructor(id, outcome, raw, auto) {
    const said = raw.decision ?? {}
    /** @type {[any, any]} */
    const [status, execution] = Object.hasOwn(STATUSES, outcome) ? STATUSES[outcome] : ['denied', 'none']
    this.id = id
    /** @type {any} */ this.outcome = outcome
    this.status = status
    this.execution = execution
    this.auto = auto
    /** @type {string | null} */ this.code = said.code ?? null
    /** @type {string | null} */ this.note = said.note ?? null
    /** @type {string | null} */ this.override = said.override ?? null
    /** @type {string | null} */ this.feedback = raw.feedback ?? null
    /** @type {string | null} */ this.by = said.by ?? null
    /** @type {string | null} */ this.via = said.via ?? null
    /** @type {any} */ this.result = raw.result ?? null
    /** @type {string | null} */ this.error = raw.error ?? null
    /** @type {string | null} */ this.receipt = raw.receipt ?? null
    /** @type {any} */ this.raw = raw
  }

  /** The action may be done, or was. Everything else is a no. */
  get approved() {
    return this.outcome === 'approved' || this.outcome === 'auto_approved'
  }

  /**
   * The answer to a question.
   * @returns {string | null}
   */
  get answer() {
    return this.outcome === 'answered' ? this.result?.answer ?? null : null
  }

  /** Returns itself if it approves, and throws a NotApproved otherwise. */
  check() {
    if (this.approved) return this
    throw new (Object.hasOwn(ENDS, this.outcome) ? ENDS[this.outcome] : Denied)(this)
  }
}

/**
 * The way to a gate. What is not given comes from the environment.
 */
export class Gate {
  /** @type {Http | Folders} */
  #way

  /** @param {{ url?: string, key?: string, requests?: string, responses?: string, patienceMs?: number }} options */
  constructor({ url, key, requests, responses, patienceMs = PATIENCE } = {}) {
    const env = process.env
    if (url === undefined && requests === undefined && responses === undefined) url = env.PERMESSO_URL
    this.#way = url
      ? new Http(url, key ?? env.PERMESSO_KEY ?? '', patienceMs)
      : new Folders(requests || env.PERMESSO_REQUESTS || '/permesso/requests', responses || env.PERMESSO_RESPONSES || '/permesso/responses')
  }

  /**
   * Hands a request over. Without a tool nothing runs on the host, and actionType says what it is about.
   * @param {string} toolName @param {any} data @param {any} options
   */
  async submit(toolName = '', data = {}, { idempotencyKey = randomBytes(16).toString('hex'), ...more } = {}) {
    const args = typeof data === 'string' ? data.trim() : encode(data)
    if (!args.startsWith('{')) throw new TypeError('the arguments must be a JSON object')
    /** @type {Record<string, any>} */
    const fields = {}
    for (const [name, value] of Object.entries({ toolName, ...more })) {
      const empty = value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0)
      if (!empty) fields[name.replace(/[A-Z]/g, (c) => '_' + c.toLowerCase())] = value
    }
    return this.#way.submit(fields, args, idempotencyKey)
  }

  /**
   * Gives how a request ended, once it has. Without a timeout it waits as long as the gate does.
   * @param {any} request @param {{ timeoutMs?: number }} options
   * @returns {Promise<Decision>}
   */
  async wait(request, { timeoutMs = Infinity } = {}) {
    const asked = typeof request === 'string' ? { id: request } : request
    return this.#way.wait({ ...asked, id: plain(asked.id) }, Date.now() + timeoutMs)
  }

  /**
   * submit and wait.
   * @param {string} [toolName] @param {any} [data] @param {any} [options]
   */
  async request(toolName, data, options = {}) {
    const { timeoutMs, ...more } = options
    return this.wait(await this.submit(toolName, data, more), { timeoutMs })
  }

  /**
   * Takes a request back that nobody has decided yet. By HTTP it throws NotPending where that is too late.
   * @param {any} request
   */
  async cancel(request) {
    await this.#way.cancel(plain(typeof request === 'string' ? request : request.id))
  }
}

/**
 * Makes a function run only when its call was approved; otherwise a NotApproved is thrown. Its one argument, an
 * object, becomes request_data. When the timeout is over the request is cancelled.
 * @param {(arg: any) => any} func @param {any} options
 */
export function needsApproval(func, { gate, actionType, timeoutMs = Infinity, ...more } = {}) {
  if (!actionType && !func.name) throw new TypeError('a function without a name needs an actionType')
  const kind = actionType ?? 'custom:' + func.name.replace(/[^A-Za-z0-9_.-]/g, '_').slice(0, 64)
  return async (/** @type {any} */ arg = {}) => {
    const shown = encode(arg)
    const door = gate ?? new Gate()
    const asked = await door.submit('', shown, { ...more, actionType: kind })
    try {
      ;(await door.wait(asked, { timeoutMs })).check()
    } catch (why) {
      if (why instanceof StillWaiting) await door.cancel(asked).catch(() => {}) // it is over, or will expire
      throw why
    }
    if (encode(arg) !== shown) throw new Mismatch('the argument changed while the gate was asked')
    return func(arg)
  }
}

/**
 * Gate.submit of the environment's gate.
 * @param {string} [toolName] @param {any} [data] @param {any} [options]
 */
export const submit = async (toolName, data, options) => new Gate().submit(toolName, data, options)

/**
 * Gate.request of the environment's gate.
 * @param {string} [toolName] @param {any} [data] @param {any} [options]
 */
export const request = async (toolName, data, options) => new Gate().request(toolName, data, options)

/**
 * Gate.wait of the environment's gate.
 * @param {any} asked @param {any} [options]
 */
export const wait = async (asked, options) => new Gate().wait(asked, options)

/**
 * Gate.cancel of the environment's gate.
 * @param {any} asked
 */
export const cancel = async (asked) => new Gate().cancel(asked)

/**
 * JSON without its silences: what it cannot say is an error, because an approver would not see it.
 * @param {any} value @returns {string}
 */
function encode(value) {
  if (value !== null && typeof value?.toJSON === 'function') value = value.toJSON()
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isFinite(value))) return String(value)
  if (Array.isArray(value)) return '[' + Array.from(value, encode).join(',') + ']'
  const prototype = typeof value === 'object' ? Object.getPrototypeOf(value) : undefined
  if (prototype !== null && prototype !== Object.prototype) throw new TypeError(`JSON cannot say ${Object.prototype.toString.call(value)}`)
  const members = Object.entries(value).filter(([, member]) => member !== undefined)
  return '{' + members.map(([name, member]) => JSON.stringify(name) + ':' + encode(member)).join(',') + '}'
}

/**
 * JSON.parse, but that whole numbers it would round are BigInts.
 * @param {string} text @returns {any}
 */
function decode(text) {
  const mark = randomBytes(16).toString('hex')
  const next = /["\d-]/g
  const number = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y
  let out = ''
  let copied = 0
  for (let at = next.exec(text); at; at = next.exec(text)) {
    if (at[0] === '"') {
      next.lastIndex = endOfString(text, at.index)
      continue
    }
    number.lastIndex = at.index
    const digits = number.exec(text)?.[0] ?? '-'
    next.lastIndex = at.index + digits.length
    if (/^-?\d+$/.test(digits) && !Number.isSafeInteger(Number(digits))) {
      out += text.slice(copied, at.index) + `"${mark}${digits}"`
      copied = next.lastIndex
    }
  }
  if (copied === 0) return JSON.parse(text)
  return JSON.parse(out + text.slice(copied), (_, value) =>
    typeof value === 'string' && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value)
}

/** @param {string} text @param {number} start of its first quote */
function endOfString(text, start) {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let from = at
    while (text[from - 1] === '\\') from--
    if ((at - from) % 2 === 0) return at + 1
  }
  return text.length
}

/** @param {string} id */
function plain(id) {
  const digits = id.startsWith(PREFIX) ? id.slice(PREFIX.length) : id
  if (!/^[0-9a-f]{16,64}$/.test(digits)) throw new TypeError(`${JSON.stringify(id)} is no request id: 16 to 64 lower-case hex digits`)
  return digits
}

/**
 * A request with its arguments verbatim.
 * @param {Record<string, any>} fields @param {string} args
 */
function body(fields, args) {
  const head = encode(fields).slice(0, -1)
  return `${head}${head === '{' ? '' : ','}"request_data":${args}}`
}

/**
 * The URL, if it is one of a gate. Whoever writes a password there does not see it in an error.
 * @param {string} url
 */
function gateURL(url) {
  try {
    const base = new URL(url)
    const named = /^https?:$/.test(base.protocol) && base.hostname
    const path = base.protocol === 'unix:' && !base.host && base.pathname.startsWith('/')
    if ((named || path) && !base.username && !base.password && !base.search && !base.hash) return base
  } catch {
    // said below
  }
  throw new TypeError('PERMESSO_URL must be http://HOST:PORT, https://HOST or unix:///PATH')
}

/** @param {string} data */
const sha256 = (data) => createHash('sha256').update(data).digest('hex')

/** @typedef {{ id: string, toolName?: string, argsSha256?: string, requestSha256?: string }} Asked */

/** The gate's HTTP door. */
class Http {
  #key
  #base
  #patience

  /** @param {string} url @param {string} key @param {number} patience */
  constructor(url, key, patience) {
    if (!/^[!-~]{1,249}$/.test(key)) throw new TypeError('PERMESSO_KEY must be a key as permesso key create prints it')
    this.#key = key
    this.#base = gateURL(url)
    this.#patience = patience
  }

  /** @param {Record<string, any>} fields @param {string} args @param {string} key @returns {Promise<Asked>} */
  async submit(fields, args, key) {
    const raw = await this.#call('POST', '/v1/approvals', { text: body(fields, args), key })
    const asked = { id: plain(raw.approval_id), toolName: fields.tool_name ?? '', argsSha256: sha256(args) }
    fits(asked, raw)
    return asked
  }

  /** @param {Asked} asked @param {number} end */
  async wait(asked, end) {
    for (;;) {
      const began = Date.now()
      if (began >= end) throw new StillWaiting(asked.id)
      const poll = Math.max(1, Math.min(LONG_POLL, Math.floor((end - began) / 1000)))
      const raw = await this.#call('GET', `/v1/approvals/${PREFIX}${asked.id}?wait=${poll}`, { takes: poll * 1000, end })
      if (raw === null) throw new StillWaiting(asked.id)
      fits(asked, raw)
      if (raw.outcome !== null && raw.outcome !== undefined) return new Decision(asked.id, raw.outcome, raw, raw.auto === true)
      // A gate that is about to stop answers at once, again and again.
      if (Date.now() - began < 1000) await sleep(Math.max(0, Math.min(1000, end - Date.now())))
    }
  }

  /** @param {string} id */
  async cancel(id) {
    const path = `/v1/approvals/${PREFIX}${id}`
    try {
      await this.#call('DELETE', path)
    } catch (why) {
      if (!(why instanceof NotPending)) throw why
      // Our own word may be what it is no longer pending for: its answer was lost. It needs a moment to be over.
      const { outcome } = await this.#call('GET', `${path}?wait=${SETTLING}`, { takes: SETTLING * 1000 })
      if (outcome !== 'cancelled') throw why
    }
  }

  /**
   * Sends until the gate answers, or our patience ends. At the end of the caller's time it gives null.
   * @param {string} method @param {string} path @param {{ text?: string, key?: string, takes?: number, end?: number }} options
   * @returns {Promise<any>}
   */
  async #call(method, path, { text, key, takes = 0, end = Infinity } = {}) {
    let failing = 0
    for (let pause = 250; ; pause = Math.min(2 * pause, 10_000)) {
      const answer = await this.#send(method, path, text, key, Math.min(takes + 2 * GRACE, Math.max(50, end - Date.now())))
      const busy = 'lost' in answer || answer.status === 429 || answer.status >= 500
      if (!busy) return read(answer)
      const now = Date.now()
      failing ||= now
      const wait = Math.max(pause * (0.5 + Math.random()), 'lost' in answer ? 0 : retryAfter(answer.headers['retry-after']))
      if (now + wait >= end) {
        await sleep(Math.max(0, end - now))
        return null
      }
      if (now - failing + wait > this.#patience) {
        throw new Unreachable(`the gate cannot be reached: ${'lost' in answer ? answer.lost : refusal(answer).message}`)
      }
      await sleep(wait)
    }
  }

  /**
   * @param {string} method @param {string} path @param {string | undefined} text @param {string | undefined} key @param {number} ms
   * @returns {Promise<{ lost: string } | Answer>}
   */
  #send(method, path, text, key, ms) {
    const unix = this.#base.protocol === 'unix:'
    const large = text !== undefined && text.length > LARGE // a gate that refuses it would not read it to its end
    const options = {
      method, agent: false,
      headers: {
        authorization: 'Bearer ' + this.#key, accept: 'application/json',
        ...(text === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
        ...(key ? { 'idempotency-key': key } : {}),
        ...(large ? { expect: '100-continue' } : {}),
      },
    }
    const base = this.#base
    return new Promise((resolve) => {
      const lost = (/** @type {any} */ why) => {
        clearTimeout(timer)
        resolve({ lost: why.code ?? why.message })
      }
      const heard = (/** @type {any} */ answer) => {
        /** @type {any[]} */
        const parts = []
        let size = 0
        answer.on('data', (/** @type {any} */ part) => {
          size += part.length
          if (size <= MOST) parts.push(part)
          else request.destroy(new Error('the response is too large'))
        })
        answer.on('error', lost)
        answer.on('end', () => {
          clearTimeout(timer)
          request.destroy()
          resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text: Buffer.concat(parts).toString() })
        })
      }
      const request = unix
        ? http.request({ ...options, socketPath: decodeURIComponent(base.pathname), path, host: 'localhost' }, heard)
        : (base.protocol === 'https:' ? https : http).request(base.origin + base.pathname.replace(/\/$/, '') + path, options, heard)
      const timer = setTimeout(() => request.destroy(new Error('no answer in time')), ms)
      request.on('error', lost)
      if (!large) return request.end(text)
      let sent = false
      const send = () => {
        if (!sent) request.end(text)
        sent = true
      }
      request.on('continue', send)
      setTimeout(send, 1000).unref() // for whatever lies between us and does not know the header
      request.flushHeaders()
    })
  }
}

/** @typedef {{ status: number, headers: Record<string, string | undefined>, text: string }} Answer */

/** @param {Answer} answer */
function read(answer) {
  if (answer.status >= 400) throw refusal(answer)
  let raw = null
  try {
    if (answer.status === 200 || answer.status === 201) raw = decode(answer.text)
  } catch {
    // said below
  }
  if (typeof raw?.approval_id !== 'string') throw new NotAGate(`what answers there is no gate: ${answer.status} and no approval`)
  return raw
}

/** @param {Answer} answer */
function refusal({ status, headers, text }) {
  let detail = http.STATUS_CODES[status] ?? ''
  if (/^application\/problem\+json\b/.test(headers['content-type'] ?? '')) {
    try {
      detail = String(JSON.parse(text).detail)
    } catch {
      // what is no gate's is not repeated
    }
  }
  const kind = REFUSALS[status] ?? Invalid
  return new kind(status, detail.replace(/[\p{C}\p{Z}]/gu, ' ').slice(0, 500))
}

/**
 * The header in both its forms, as milliseconds; 0 is that it says nothing.
 * @param {string | undefined} text
 */
function retryAfter(text = '') {
  if (/^\d{1,6}$/.test(text)) return Number(text) * 1000
  return Math.max(0, Date.parse(text) - Date.now()) || 0
}

/**
 * What was approved is so for the bytes that its receipt names, and for no others.
 * @param {Asked} asked @param {any} raw
 */
function fits(asked, raw) {
  if (raw.approval_id !== PREFIX + asked.id) throw new Mismatch('the answer is for another request')
  if (typeof raw.receipt !== 'string') {
    if (raw.outcome === 'approved' || raw.outcome === 'auto_approved') throw new Mismatch('it was approved without a receipt')
    return
  }
  const facts = new Map(raw.receipt.split('\n\n', 1)[0].split('\n').map((/** @type {string} */ line) => {
    const colon = line.indexOf(': ')
    return [line.slice(0, Math.max(0, colon)), line.slice(colon + 2)]
  }))
  const known = asked.argsSha256 !== undefined
  const wrong = known && (facts.get('args_sha256') !== asked.argsSha256 || facts.get('tool') !== (asked.toolName || '""'))
  if (facts.get('request_id') !== asked.id || wrong) throw new Mismatch('its receipt is for something else')
}

/** The two folders that a gate gives to a container. */
class Folders {
  /** @param {string} requests @param {string} responses */
  constructor(requests, responses) {
    this.requests = requests
    this.responses = responses
  }

  /** @param {Record<string, any>} fields @param {string} args @param {string} key @returns {Promise<Asked>} */
  async submit(fields, args, key) {
    const id = plain(key)
    const text = body({ request_id: id, ...fields }, args)
    await this.put(id + '.json', text)
    return { id, toolName: fields.tool_name ?? '', argsSha256: sha256(args), requestSha256: sha256(text) }
  }

  /** @param {Asked} asked @param {number} end */
  async wait(asked, end) {
    for (let pause = 10; ; pause = Math.min(1.5 * pause, 500)) {
      try {
        const raw = decode(await readFile(join(this.responses, asked.id + '.json'), 'utf8'))
        if (asked.requestSha256 && raw.request_sha256 !== asked.requestSha256) {
          throw new Mismatch('the response is for another request under this id')
        }
        return new Decision(asked.id, raw.status, raw, raw.decision.auto === true)
      } catch (why) {
        // Not there yet; or torn by a power cut, and about to be restored.
        if (!(why instanceof SyntaxError) && /** @type {any} */ (why).code !== 'ENOENT') throw why
      }
      const left = end - Date.now()
      if (left <= 0) throw new StillWaiting(asked.id)
      await sleep(Math.min(pause, left))
    }
  }

  /** @param {string} id */
  async cancel(id) {
    await this.put(id + '.cancel', '')
  }

  /**
   * Whole or not at all: under a dot-name first, and renamed when it is on disk.
   * @param {string} name @param {string} text
   */
  async put(name, text) {
    const temporary = join(this.requests, `.${name}.${randomBytes(4).toString('hex')}`)
    const file = await open(temporary, 'wx', 0o644)
    try {
      await file.chmod(0o644) // whatever the umask says: the gate is another user
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, join(this.requests, name))
  }
}
