/** The types of permesso.mjs, the client of a permesso approval gate. */

/** JSON, and BigInt for integers that JavaScript would round. */
export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json | undefined }

/** The arguments; a string is JSON and is sent unchanged. */
export type Arguments = { [name: string]: Json | undefined } | string

export interface GateOptions {
  /** http://127.0.0.1:8765, https://..., unix:///path; default PERMESSO_URL; without it the two folders. */
  url?: string
  /** Default PERMESSO_KEY. */
  key?: string
  /** Default PERMESSO_REQUESTS, or /permesso/requests. */
  requests?: string
  /** Default PERMESSO_RESPONSES, or /permesso/responses. */
  responses?: string
  /** How long to retry while a gate does not answer or is busy; default 75,000. */
  retryTimeoutMs?: number
}

export interface WaitOptions {
  /** Default: wait until the request has ended. In request and needsApproval it covers the submission, too. */
  timeoutMs?: number
}

/** Optional members of a request. Prose is shown as the agent's. */
export interface RequestFields {
  /** exec_cmd, http_request, write_file, send_message or custom:NAME; required without a tool, except for a question. */
  actionType?: string
  title?: string
  preview?: string
  rationale?: string
  /** Grants for a session are bound to this name. */
  sessionId?: string
  /** Default 600 by HTTP, and the workspace's timeout in folders. */
  expiresInSec?: number
  resubmits?: string
  proof?: { [name: string]: Json | undefined }
  /** Without a tool: lists in the arguments of which the receipt covers any part. */
  argsSubset?: string[]
  /** An object of up to 4 KiB, which comes back in the decision. */
  metadata?: { [name: string]: Json | undefined }
  /** By HTTP: ask only there. */
  channel?: 'telegram' | 'email'
  target?: { tg_chat_id?: string; email_to?: string }
}

export interface RequestOptions extends RequestFields {
  type?: 'action' | 'question'
  /** For a question. */
  options?: string[]
  /** The same key is the same request; in folders 16 to 64 hex digits, or a UUID. Default: random. */
  idempotencyKey?: string
}

export interface ProgramOptions extends Omit<RequestFields, 'actionType' | 'argsSubset' | 'proof'>, WaitOptions {
  /** The part of the program that went before, if it goes on here. */
  continues?: string
  /** As in RequestOptions. With the same key, a program that was left after a StillWaiting goes on where it was. */
  idempotencyKey?: string
}

/** A submitted request. */
export interface Submitted {
  readonly id: string
}

export type Outcome =
  | 'approved' | 'auto_approved' | 'denied' | 'auto_rejected' | 'expired' | 'cancelled' | 'request_more' | 'overridden'
  | 'answered' | 'failed' | 'interrupted' | 'malformed'

/** How a request ended. */
export declare class Decision {
  private constructor()
  /** Hex digits; by HTTP with the prefix appr_. */
  readonly id: string
  /** The exact end. */
  readonly outcome: Outcome
  /** An overridden request is "approved" too, but nothing ran. */
  readonly status: 'approved' | 'denied' | 'expired'
  readonly execution: 'done' | 'failed' | 'interrupted' | 'none'
  /** No person was asked. */
  readonly auto: boolean
  /** "1" to "6". */
  readonly code: string | null
  /** For the agent: code 4. */
  readonly note: string | null
  /** What to do instead: code 5. */
  readonly override: string | null
  /** The approver's reason or question. */
  readonly feedback: string | null
  readonly by: string | null
  readonly via: string | null
  /** A tool's result; {answer} for a question. */
  readonly result: any
  readonly error: string | null
  /** The signed note of an approval. */
  readonly receipt: string | null
  /** The request's, unchanged. */
  readonly metadata: any
  /** The unchanged response. */
  readonly raw: any
  /** True only if the action may run, or has run. */
  get approved(): boolean
  /** The answer to a question. */
  get answer(): string | null
  /** Returns itself if it approves, and throws a NotApproved otherwise. */
  check(): this
}

/** One call of a program. */
export interface Step {
  /** From 1. */
  readonly step: number
  readonly tool: string
  readonly status: Outcome | 'not_run'
  readonly result: any
  /** The result is only in the gate's record: the response would be too long. */
  readonly result_omitted?: boolean
  readonly error?: string
  /** Of a tool that runs nothing on the host. */
  readonly receipt?: string
}

/** How a program ended. A program that needs the results of its calls to go on is asked in several parts. */
export declare class Program {
  private constructor()
  /** One for each part, in order. */
  readonly decisions: Decision[]
  /** True only if all parts were approved and main has returned. */
  get approved(): boolean
  /** The calls of all parts so far, in order. */
  get steps(): readonly Step[]
  /** A program that undoes the steps of a part that stopped, as far as their tools have an inverse. */
  get undo(): string | null
  /** Returns itself if no part ended without an approval, and throws a NotApproved otherwise. */
  check(): this
}

/** A connection to a gate. Missing options come from the environment. */
export declare class Gate {
  constructor(options?: GateOptions)
  /** Submits a request. Without a tool nothing runs on the host, and actionType describes the action. */
  submit(toolName?: string, data?: Arguments, options?: RequestOptions & WaitOptions): Promise<Submitted>
  /** Returns the end of a request, once it has ended. */
  wait(request: Submitted | string, options?: WaitOptions): Promise<Decision>
  /** Submits a request and waits for its end. */
  request(toolName?: string, data?: Arguments, options?: RequestOptions & WaitOptions): Promise<Decision>
  /** Submits a program and waits for its end, and goes on with it while it needs results. timeoutMs covers all parts. */
  run(program: string, options?: ProgramOptions): Promise<Program>
  /** Cancels a pending request. By HTTP it throws NotPending if that is too late. */
  cancel(request: Submitted | string): Promise<void>
}

/**
 * Makes a function run only after an approval of each call; otherwise it throws NotApproved. One argument that is a
 * plain object becomes request_data; otherwise each argument is a member, under the name of its parameter. A default that
 * the function itself would fill in is not shown. After the timeout the request is cancelled.
 */
export declare function needsApproval<A extends unknown[], R>(
  func: (...args: A) => R,
  options?: RequestFields & WaitOptions & {
    gate?: Gate
    /** The names of the arguments. Default: those in the function's source, which a minifier changes. */
    parameters?: string[]
  },
): (...args: A) => Promise<Awaited<R>>

/** Gate.submit of the environment's gate. */
export declare function submit(toolName?: string, data?: Arguments, options?: RequestOptions & WaitOptions): Promise<Submitted>
/** Gate.request of the environment's gate. */
export declare function request(toolName?: string, data?: Arguments, options?: RequestOptions & WaitOptions): Promise<Decision>
/** Gate.run of the environment's gate. */
export declare function run(program: string, options?: ProgramOptions): Promise<Program>
/** Gate.wait of the environment's gate. */
export declare function wait(request: Submitted | string, options?: WaitOptions): Promise<Decision>
/** Gate.cancel of the environment's gate. */
export declare function cancel(request: Submitted | string): Promise<void>

/** Base of all errors of this module. */
export declare class PermessoError extends Error {}
/**
 * No gate answered within the timeout, or it was busy. A request may have been accepted: submit it again with the same
 * idempotencyKey to find out. The error of a submission has the key that it used.
 */
export declare class Unreachable extends PermessoError {
  idempotencyKey: string
}
/** The server is not a gate. */
export declare class NotAGate extends PermessoError {}
/** A response is for other bytes than the submitted ones. */
export declare class Mismatch extends PermessoError {}
/** No decision within the timeout. The request stays pending: wait for it again, or cancel it. */
export declare class StillWaiting extends PermessoError {
  constructor(id: string)
  readonly id: string
}
/** The gate refused the request. status is the HTTP status, detail the gate's sentence. */
export declare class Refused extends PermessoError {
  constructor(status: number, detail: string)
  readonly status: number
  readonly detail: string
}
/** The key is unknown, or lacks a scope. */
export declare class InvalidKey extends Refused {}
/** The gate will never accept the request as it is. */
export declare class Invalid extends Refused {}
/** There is no such request, or it is another client's. */
export declare class NotFound extends Refused {}
/** The request is decided or has ended: too late to cancel. */
export declare class NotPending extends Refused {}
/** The request has ended without an approval. */
export declare class NotApproved extends PermessoError {
  constructor(decision: Decision)
  readonly decision: Decision
}
/** Denied by a person; decision.feedback may have the reason. */
export declare class Denied extends NotApproved {}
/** Refused by the gate or its policy, without asking anyone. The reason is in the message. */
export declare class Rejected extends Denied {}
/** The gate could not read the request, and never will. The reason is in the message. */
export declare class Malformed extends Denied {}
/** No decision in time. */
export declare class Expired extends NotApproved {}
/** Cancelled by its client. */
export declare class Cancelled extends NotApproved {}
/** Code 5: nothing ran. Do what decision.override says, with a new request. */
export declare class Overridden extends NotApproved {}
/** Nothing ran. Answer the question in decision.feedback with a new request and resubmits: decision.id. */
export declare class MoreWanted extends NotApproved {}
/** Approved, but failed or interrupted: it may have run completely or in part. */
export declare class Failed extends NotApproved {}
