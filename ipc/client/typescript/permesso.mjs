/**
 * Client of a permesso approval gate. One file of plain JavaScript, Node 18 or later, no dependencies.
 * permesso.d.mts has the types, for TypeScript and for editors.
 *
 *     import * as permesso from './permesso.mjs'
 *
 *     const decision = await permesso.request('x_post', { text: 'Meeting at 5' }, { rationale: 'the team forgets' })
 *     if (decision.approved) console.log(decision.result)      // the host has run it
 *
 *     const remove = permesso.needsApproval(async function remove(path) { await fs.rm(path) })
 *     await remove('/tmp/x')                                   // runs here, and only after an approval
 *
 *     await permesso.run(source)                               // a program: permesso plan --teach says how to write one
 *
 * PERMESSO_URL is the gate's URL (http://127.0.0.1:8765, https://..., unix:///path), PERMESSO_KEY the key.
 * Without PERMESSO_URL the client uses two folders, PERMESSO_REQUESTS and PERMESSO_RESPONSES (default
 * /permesso/requests and /permesso/responses).
 *
 * A request without a response is sent again with the same Idempotency-Key, so that people are asked only
 * once. A refused request is not sent again. The client follows no redirect and uses no proxy: both would
 * send the key to another server. An approval must have a receipt for exactly the bytes of the arguments, or
 * of the program; otherwise it is a Mismatch.
 *
 * Integers that JavaScript would round are BigInts, in arguments and in results.
 */

import { createHash, randomBytes } from 'node:crypto'
import { open, readFile, rename } from 'node:fs/promises'
import http from 'node:http'
import https from 'node:https'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const RETRY_TIMEOUT = 75_000 // ms of retries while the gate does not answer or is busy
const LONG_POLL = 30 // s
const SETTLE_TIME = 5 // s
const GRACE = 15_000
const MAX_RESPONSE = 16 << 20
const LARGE = 64 << 10
const PREFIX = 'appr_'
const HOW = 'Set PERMESSO_URL and PERMESSO_KEY, or mount the folders that permesso mounts prints'

/** Base of all errors of this module. */
export class PermessoError extends Error {
  get name() {
    return this.constructor.name
  }
}

/**
 * No gate answered within the timeout, or it was busy. A request may have been accepted: submit it again with the same
 * idempotencyKey to find out. The error of a submission has the key that it used.
 */
export class Unreachable extends PermessoError {
  idempotencyKey = ''
}

/** The server is not a gate. */
export class NotAGate extends PermessoError {}

/** A response is for other bytes than the submitted ones. */
export class Mismatch extends PermessoError {}

/** No decision within the timeout. The request stays pending: wait for it again, or cancel it. */
export class StillWaiting extends PermessoError {
  /** @param {string} id */
  constructor(id) {
    super(`no response to ${id} yet`)
    this.id = id
  }
}

/** The gate refused the request. status is the HTTP status, detail the gate's sentence. */
export class Refused extends PermessoError {
  /** @param {number} status @param {string} detail */
  constructor(status, detail) {
    super(`the gate returned ${status}: ${detail}`)
    this.status = status
    this.detail = detail
  }
}

/** The key is unknown, or lacks a scope. */
export class InvalidKey extends Refused {}

/** The gate will never accept the request as it is. */
export class Invalid extends Refused {}

/** There is no such request, or it is another client's. */
export class NotFound extends Refused {}

/** The request is decided or has ended: too late to cancel. */
export class NotPending extends Refused {}

/** The request has ended without an approval. */
export class NotApproved extends PermessoError {
  /** @param {Decision} decision */
  constructor(decision) {
    const reason = decision.override ?? decision.feedback ?? decision.error
    super(reason ? `${decision.outcome}: ${reason}` : decision.outcome)
    this.decision = decision
  }
}

/** Denied by a person; decision.feedback may have the reason. */
export class Denied extends NotApproved {}

/** Refused by the gate or its policy, without asking anyone. The reason is in the message. */
export class Rejected extends Denied {}

/** The gate could not read the request, and never will. The reason is in the message. */
export class Malformed extends Denied {}

/** No decision in time. */
export class Expired extends NotApproved {}

/** Cancelled by its client. */
export class Cancelled extends NotApproved {}

/** Code 5: nothing ran. Do what decision.override says, with a new request. */
export class Overridden extends NotApproved {}

/** Nothing ran. Answer the question in decision.feedback with a new request and resubmits: decision.id. */
export class MoreWanted extends NotApproved {}

/** Approved, but failed or interrupted: it may have run completely or in part. */
export class Failed extends NotApproved {}

// The members that submit takes beside its own options.
const FIELDS = ['actionType', 'title', 'preview', 'rationale', 'sessionId', 'expiresInSec', 'resubmits', 'proof', 'metadata', 'channel', 'target', 'type', 'options', 'argsSubset', 'program', 'continues']

/** @type {Record<number, typeof Refused>} */
const REFUSALS = { 401: InvalidKey, 403: InvalidKey, 404: NotFound, 409: NotPending, 410: NotPending }

/** @type {Record<string, typeof NotApproved>} */
const ENDS = {
  expired: Expired, cancelled: Cancelled, overridden: Overridden, request_more: MoreWanted, failed: Failed, interrupted: Failed,
  auto_rejected: Rejected, malformed: Malformed,
}

/**
 * Status and execution of each outcome. An unknown outcome is denied.
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
    const decision = raw.decision ?? {}
    /** @type {[any, any]} */
    const [status, execution] = Object.hasOwn(STATUSES, outcome) ? STATUSES[outcome] : ['denied', 'none']
    this.id = id
    /** @type {any} */ this.outcome = outcome
    this.status = status
    this.execution = execution
    this.auto = auto
    /** @type {string | null} */ this.code = decision.code ?? null
    /** @type {string | null} */ this.note = decision.note ?? null
    /** @type {string | null} */ this.override = decision.override ?? null
    /** @type {string | null} */ this.feedback = raw.feedback ?? null
    /** @type {string | null} */ this.by = decision.by ?? null
    /** @type {string | null} */ this.via = decision.via ?? null
    /** @type {any} */ this.result = raw.result ?? null
    /** @type {string | null} */ this.error = raw.error ?? null
    /** @type {string | null} */ this.receipt = raw.receipt ?? null
    /** @type {any} */ this.metadata = raw.metadata ?? null
    /** @type {any} */ this.raw = raw
  }

  /** True only if the action may run, or has run. */
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

/** How a program ended. A program that needs the results of its calls to go on is asked in several parts. */
export class Program {
  /** @param {Decision[]} decisions */
  constructor(decisions) {
    this.decisions = decisions
  }

  /** True only if all parts were approved and main has returned. */
  get approved() {
    return this.decisions.every((decision) => decision.approved) && this.#last.main === 'returned'
  }

  /** The calls of all parts so far, in order. */
  get steps() {
    return this.#last.steps ?? []
  }

  /** A program that undoes the steps of a part that stopped, as far as their tools have an inverse. */
  get undo() {
    return this.#last.undo ?? null
  }

  /** Returns itself if no part ended without an approval, and throws a NotApproved otherwise. */
  check() {
    this.decisions[this.decisions.length - 1].check()
    return this
  }

  /** The result of the last part that has one. */
  get #last() {
    return this.decisions.reduce((/** @type {any} */ last, { result }) => result ?? last, {})
  }
}

/**
 * A connection to a gate. Missing options come from the environment.
 */
export class Gate {
  /** @type {Http | Folders} */
  #transport

  /** @param {{ url?: string, key?: string, requests?: string, responses?: string, retryTimeoutMs?: number }} options */
  constructor({ url, key, requests, responses, retryTimeoutMs = RETRY_TIMEOUT } = {}) {
    const env = process.env
    if (url === undefined && requests === undefined && responses === undefined) url = env.PERMESSO_URL
    this.#transport = url
      ? new Http(url, key ?? env.PERMESSO_KEY ?? '', retryTimeoutMs)
      : new Folders(requests || env.PERMESSO_REQUESTS || '/permesso/requests', responses || env.PERMESSO_RESPONSES || '/permesso/responses')
  }

  /**
   * Submits a request. Without a tool nothing runs on the host, and actionType describes the action. Without an answer
   * it is Unreachable after timeoutMs, or the gate's retryTimeoutMs.
   * @param {string} toolName @param {any} data @param {any} options
   */
  async submit(toolName = '', data = {}, { timeoutMs = Infinity, idempotencyKey = randomBytes(16).toString('hex'), ...more } = {}) {
    known(more)
    const end = until(timeoutMs)
    const args = typeof data === 'string' ? data.trim() : encode(data)
    if (!args.startsWith('{')) throw new TypeError('the arguments must be a JSON object')
    /** @type {Record<string, any>} */
    const fields = {}
    for (const [name, value] of Object.entries({ toolName, ...more })) {
      const empty = value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0)
      if (!empty) fields[name.replace(/[A-Z]/g, (c) => '_' + c.toLowerCase())] = value
    }
    try {
      return await this.#transport.submit(fields, args, idempotencyKey, end)
    } catch (error) {
      if (error instanceof Unreachable) error.idempotencyKey = idempotencyKey
      throw error
    }
  }

  /**
   * Returns the end of a request, once it has ended. Without a timeout it waits until then.
   * @param {any} request @param {{ timeoutMs?: number }} options
   * @returns {Promise<Decision>}
   */
  async wait(request, { timeoutMs = Infinity } = {}) {
    const asked = typeof request === 'string' ? { id: request } : request
    return this.#transport.wait({ ...asked, id: plain(asked.id) }, until(timeoutMs))
  }

  /**
   * Submits a request and waits for its end. The timeout covers both: without an answer of a gate it is Unreachable then,
   * without a decision StillWaiting.
   * @param {string} [toolName] @param {any} [data] @param {any} [options]
   */
  async request(toolName, data, options = {}) {
    const end = until(options.timeoutMs)
    return this.wait(await this.submit(toolName, data, options), { timeoutMs: left(end) })
  }

  /**
   * Submits a program and waits for its end, and goes on with it while it needs results. The timeout covers all parts.
   * With the same idempotencyKey, a program that was left after a StillWaiting goes on where it was.
   * @param {string} program @param {any} options
   */
  async run(program, { timeoutMs, ...more } = {}) {
    const end = until(timeoutMs)
    /** @type {Decision[]} */
    const decisions = []
    for (;;) {
      const asked = await this.submit('', {}, { ...more, program, timeoutMs: left(end) })
      const decision = await this.wait(asked, { timeoutMs: left(end) })
      decisions.push(decision)
      if (!decision.approved || decision.result?.main !== 'needs') return new Program(decisions)
      more = { ...more, continues: asked.id, idempotencyKey: decision.result.next_request_id, resubmits: undefined }
    }
  }

  /**
   * Cancels a pending request. By HTTP it throws NotPending if that is too late.
   * @param {any} request
   */
  async cancel(request) {
    await this.#transport.cancel(plain(typeof request === 'string' ? request : request.id))
  }
}

/**
 * Makes a function run only after an approval of each call; otherwise it throws NotApproved. One argument that is a
 * plain object becomes request_data; otherwise each argument is a member, under the name of its parameter. A default that
 * the function itself would fill in is not shown. After the timeout the request is cancelled.
 * @param {(...args: any[]) => any} func @param {any} options
 */
export function needsApproval(func, { gate, actionType, timeoutMs = Infinity, parameters = parametersOf(func), ...more } = {}) {
  known(more)
  until(timeoutMs)
  if (!actionType && !func.name) throw new TypeError('a function without a name needs an actionType')
  const kind = actionType ?? 'custom:' + func.name.replace(/[^A-Za-z0-9_.-]/g, '_').slice(0, 64)
  return async (/** @type {any[]} */ ...args) => {
    const shown = dataOf(parameters, args)
    const target = gate ?? new Gate()
    const end = until(timeoutMs)
    const asked = await target.submit('', shown, { ...more, actionType: kind, timeoutMs })
    try {
      ;(await target.wait(asked, { timeoutMs: left(end) })).check()
    } catch (error) {
      if (error instanceof StillWaiting) await target.cancel(asked).catch(() => {}) // it has ended, or will expire
      throw error
    }
    if (dataOf(parameters, args) !== shown) throw new Mismatch('the arguments changed during the approval')
    return func(...args)
  }
}

/**
 * An option that is not known is an error: without its timeout, a request would wait for hours.
 * @param {any} options
 */
function known(options) {
  for (const name of Object.keys(options)) {
    if (!FIELDS.includes(name)) throw new TypeError(`unknown option ${name}${name === 'timeout' ? ': the timeout is timeoutMs, in milliseconds' : ''}`)
  }
}

/**
 * When a timeout that begins now is over. Any other value than a number would never be over.
 * @param {any} timeoutMs
 */
function until(timeoutMs = Infinity) {
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0)) throw new TypeError(`timeoutMs must be a number of milliseconds, not ${typeof timeoutMs} ${timeoutMs}`)
  return Date.now() + timeoutMs
}

/** @param {number} end */
const left = (end) => Math.max(0, end - Date.now())

/**
 * The names of a function's parameters, as its source has them; an unnamed one is "".
 * @param {(...args: any[]) => any} func @returns {string[]}
 */
function parametersOf(func) {
  const source = Function.prototype.toString.call(func)
  const list = /^(?:async\b\s*)?(?:function\b)?[\s*]*[\w$]*\s*\(([^()]*)\)/.exec(source) ?? /^(?:async\s+)?([\w$]+)\s*=>/.exec(source)
  return (list?.[1] ?? '').split(',').map((one) => /^\s*(?:\.\.\.)?([A-Za-z_$][\w$]*)\s*(?:=[^]*)?$/.exec(one)?.[1] ?? '')
}

/**
 * The JSON of a call's arguments.
 * @param {string[]} parameters @param {any[]} args
 */
function dataOf(parameters, args) {
  const [first] = args
  const prototype = typeof first === 'object' && first !== null ? Object.getPrototypeOf(first) : undefined
  if (args.length === 1 && (prototype === null || prototype === Object.prototype)) return encode(first)
  /** @type {Record<string, any>} */
  const data = {}
  args.forEach((value, i) => {
    const name = parameters[i]
    data[name && !Object.hasOwn(data, name) ? name : `argument ${i + 1}`] = value
  })
  return encode(data)
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
 * Gate.run of the environment's gate.
 * @param {string} program @param {any} [options]
 */
export const run = async (program, options) => new Gate().run(program, options)

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
 * JSON.stringify, but a value that it would drop is an error, because an approver would not see it.
 * @param {any} value @returns {string}
 */
function encode(value) {
  if (value !== null && typeof value?.toJSON === 'function') value = value.toJSON()
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isFinite(value))) return String(value)
  if (Array.isArray(value)) return '[' + Array.from(value, encode).join(',') + ']'
  const prototype = typeof value === 'object' ? Object.getPrototypeOf(value) : undefined
  if (prototype !== null && prototype !== Object.prototype) throw new TypeError(`JSON cannot encode ${Object.prototype.toString.call(value)}`)
  const members = Object.entries(value).filter(([, member]) => member !== undefined)
  return '{' + members.map(([name, member]) => JSON.stringify(name) + ':' + encode(member)).join(',') + '}'
}

/**
 * JSON.parse, but integers that it would round are BigInts.
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
  if (!/^([0-9a-f]{16,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.test(digits)) {
    throw new TypeError(`${JSON.stringify(id)} is not a request id: 16 to 64 lower-case hex digits, or a lower-case UUID with its dashes`)
  }
  return digits
}

/**
 * A request with the unchanged bytes of its arguments.
 * @param {Record<string, any>} fields @param {string} args
 */
function body(fields, args) {
  const head = encode(fields).slice(0, -1)
  return `${head}${head === '{' ? '' : ','}"request_data":${args}}`
}

/**
 * The parsed URL of a gate. The error does not contain the URL, which may have a password.
 * @param {string} url
 */
function gateURL(url) {
  try {
    const base = new URL(url)
    const named = /^https?:$/.test(base.protocol) && base.hostname
    const path = base.protocol === 'unix:' && !base.host && base.pathname.startsWith('/')
    if ((named || path) && !base.username && !base.password && !base.search && !base.hash) return base
  } catch {
    // thrown below
  }
  throw new TypeError('PERMESSO_URL must be http://HOST:PORT, https://HOST or unix:///PATH')
}

/** @param {string} data */
const sha256 = (data) => createHash('sha256').update(data).digest('hex')

/** @typedef {{ id: string, toolName?: string, argsSha256?: string, programSha256?: string, requestSha256?: string }} Asked */

/**
 * The digests that the end of a request must have.
 * @param {Record<string, any>} fields @param {string} args
 */
const digests = (fields, args) =>
  fields.program === undefined ? { toolName: fields.tool_name ?? '', argsSha256: sha256(args) } : { programSha256: sha256(fields.program) }

/** The gate's HTTP API. */
class Http {
  #key
  #base
  #retryTimeout

  /** @param {string} url @param {string} key @param {number} retryTimeout */
  constructor(url, key, retryTimeout) {
    if (!/^[!-~]{1,249}$/.test(key)) throw new TypeError('PERMESSO_KEY must be a key printed by permesso key create')
    this.#key = key
    this.#base = gateURL(url)
    this.#retryTimeout = retryTimeout
  }

  /** @param {Record<string, any>} fields @param {string} args @param {string} key @param {number} end @returns {Promise<Asked>} */
  async submit(fields, args, key, end) {
    const raw = await this.#call('POST', '/v1/approvals', { text: body(fields, args), key, end })
    if (raw === null) throw new Unreachable('no gate answered within the timeout: the request may have been accepted')
    const asked = { id: plain(raw.approval_id), ...digests(fields, args) }
    checkMatches(asked, raw)
    return asked
  }

  /** @param {Asked} asked @param {number} end */
  async wait(asked, end) {
    for (;;) {
      const began = Date.now()
      if (began >= end) throw new StillWaiting(asked.id)
      const poll = Math.max(1, Math.min(LONG_POLL, Math.floor((end - began) / 1000)))
      const raw = await this.#call('GET', `/v1/approvals/${PREFIX}${asked.id}?wait=${poll}`, { serverWait: poll * 1000, end })
      if (raw === null) throw new StillWaiting(asked.id)
      checkMatches(asked, raw)
      if (raw.outcome !== null && raw.outcome !== undefined) return new Decision(asked.id, raw.outcome, raw, raw.auto === true)
      // A gate that is shutting down answers at once every time.
      if (Date.now() - began < 1000) await sleep(Math.max(0, Math.min(1000, end - Date.now())))
    }
  }

  /** @param {string} id */
  async cancel(id) {
    const path = `/v1/approvals/${PREFIX}${id}`
    try {
      await this.#call('DELETE', path)
    } catch (error) {
      if (!(error instanceof NotPending)) throw error
      // Our own DELETE may have cancelled it, with its response lost. The end takes a moment.
      const { outcome } = await this.#call('GET', `${path}?wait=${SETTLE_TIME}`, { serverWait: SETTLE_TIME * 1000 })
      if (outcome !== 'cancelled') throw error
    }
  }

  /**
   * Sends until the gate answers, or the retry timeout is over. At the end of the caller's time it returns null.
   * @param {string} method @param {string} path @param {{ text?: string, key?: string, serverWait?: number, end?: number }} options
   * @returns {Promise<any>}
   */
  async #call(method, path, { text, key, serverWait = 0, end = Infinity } = {}) {
    let failing = 0
    for (let pause = 250; ; pause = Math.min(2 * pause, 10_000)) {
      const answer = await this.#send(method, path, text, key, Math.min(serverWait + 2 * GRACE, Math.max(50, end - Date.now())))
      const busy = 'failure' in answer || answer.status === 429 || answer.status >= 500
      if (!busy) return read(answer)
      const now = Date.now()
      failing ||= now
      const wait = Math.max(pause * (0.5 + Math.random()), 'failure' in answer ? 0 : retryAfter(answer.headers['retry-after']))
      if (now + wait >= end) {
        await sleep(Math.max(0, end - now))
        return null
      }
      if (now - failing + wait > this.#retryTimeout) {
        throw new Unreachable(`the gate cannot be reached: ${'failure' in answer ? answer.failure : refusal(answer).message}`)
      }
      await sleep(wait)
    }
  }

  /**
   * @param {string} method @param {string} path @param {string | undefined} text @param {string | undefined} key @param {number} ms
   * @returns {Promise<{ failure: string } | Answer>}
   */
  #send(method, path, text, key, ms) {
    const unix = this.#base.protocol === 'unix:'
    const large = text !== undefined && text.length > LARGE // a gate that refuses the request does not read its body
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
      const fail = (/** @type {any} */ error) => {
        clearTimeout(timer)
        resolve({ failure: error.code ?? error.message })
      }
      const onResponse = (/** @type {any} */ answer) => {
        /** @type {any[]} */
        const parts = []
        let size = 0
        answer.on('data', (/** @type {any} */ part) => {
          size += part.length
          if (size <= MAX_RESPONSE) parts.push(part)
          else request.destroy(new Error('the response is too large'))
        })
        answer.on('error', fail)
        answer.on('end', () => {
          clearTimeout(timer)
          request.destroy()
          resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text: Buffer.concat(parts).toString() })
        })
      }
      const request = unix
        ? http.request({ ...options, socketPath: decodeURIComponent(base.pathname), path, host: 'localhost' }, onResponse)
        : (base.protocol === 'https:' ? https : http).request(base.origin + base.pathname.replace(/\/$/, '') + path, options, onResponse)
      const timer = setTimeout(() => request.destroy(new Error('timeout')), ms)
      request.on('error', fail)
      if (!large) return request.end(text)
      let sent = false
      const send = () => {
        if (!sent) request.end(text)
        sent = true
      }
      request.on('continue', send)
      setTimeout(send, 1000).unref() // for a proxy that ignores the header
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
    // thrown below
  }
  if (typeof raw?.approval_id !== 'string') throw new NotAGate(`the server is not a permesso gate: status ${answer.status}, no approval in the response`)
  return raw
}

/** @param {Answer} answer */
function refusal({ status, headers, text }) {
  let detail = http.STATUS_CODES[status] ?? ''
  if (/^application\/problem\+json\b/.test(headers['content-type'] ?? '')) {
    try {
      detail = String(JSON.parse(text).detail)
    } catch {
      // text from another server is not repeated
    }
  }
  const kind = REFUSALS[status] ?? Invalid
  return new kind(status, detail.replace(/[\p{C}\p{Z}]/gu, ' ').slice(0, 500))
}

/**
 * Both forms of the header, as milliseconds; 0: none.
 * @param {string | undefined} text
 */
function retryAfter(text = '') {
  if (/^\d{1,6}$/.test(text)) return Number(text) * 1000
  return Math.max(0, Date.parse(text) - Date.now()) || 0
}

/**
 * An approval is valid only for the bytes or the program that its receipt names.
 * @param {Asked} asked @param {any} raw
 */
function checkMatches(asked, raw) {
  if (raw.approval_id !== PREFIX + asked.id) throw new Mismatch('the response is for another request')
  if (typeof raw.receipt !== 'string') {
    if (raw.outcome === 'approved' || raw.outcome === 'auto_approved') throw new Mismatch('approved without a receipt')
    return
  }
  const facts = new Map(raw.receipt.split('\n\n', 1)[0].split('\n').map((/** @type {string} */ line) => {
    const colon = line.indexOf(': ')
    return [line.slice(0, Math.max(0, colon)), line.slice(colon + 2)]
  }))
  const args = asked.argsSha256 !== undefined
  const known = args || asked.programSha256 !== undefined
  const wrong = known && facts.get('program_sha256') !== asked.programSha256 ||
    args && (facts.get('args_sha256') !== asked.argsSha256 || facts.get('tool') !== (asked.toolName || '""'))
  if (facts.get('request_id') !== asked.id || wrong) throw new Mismatch('the receipt is for another request')
}

/** The two folders that a gate mounts into a container. */
class Folders {
  /** @param {string} requests @param {string} responses */
  constructor(requests, responses) {
    this.requests = requests
    this.responses = responses
  }

  /** @param {Record<string, any>} fields @param {string} args @param {string} key @param {number} _end @returns {Promise<Asked>} */
  async submit(fields, args, key, _end) {
    const id = plain(key)
    const text = body({ request_id: id, ...fields }, args)
    await this.put(id + '.json', text)
    return { id, ...digests(fields, args), requestSha256: sha256(text) }
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
      } catch (error) {
        // Not there yet, or torn by a power cut and about to be restored.
        if (!(error instanceof SyntaxError) && /** @type {any} */ (error).code !== 'ENOENT') throw error
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
   * Writes atomically: under a name with a dot first, then syncs and renames.
   * @param {string} name @param {string} text
   */
  async put(name, text) {
    const temporary = join(this.requests, `.${name}.${randomBytes(4).toString('hex')}`)
    const file = await open(temporary, 'wx', 0o644).catch((/** @type {any} */ error) => {
      throw error.code === 'ENOENT' ? new Unreachable(`no gate found: there is no folder ${this.requests}. ${HOW}`) : error
    })
    try {
      await file.chmod(0o644) // independent of the umask: the gate is another user
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, join(this.requests, name))
  }
}
