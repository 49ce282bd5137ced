/** The types of permesso.mjs: ask a permesso gate before acting. */

/** JSON, and BigInt for whole numbers that JavaScript would round. */
export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json | undefined }

/** The arguments; a string is JSON and stays as it is, byte for byte. */
export type Arguments = { [name: string]: Json | undefined } | string

export interface GateOptions {
  /** http://127.0.0.1:8765, https://..., unix:///path; by default PERMESSO_URL, and without it the two folders. */
  url?: string
  /** By default PERMESSO_KEY. */
  key?: string
  /** By default PERMESSO_REQUESTS, or /permesso/requests. */
  requests?: string
  /** By default PERMESSO_RESPONSES, or /permesso/responses. */
  responses?: string
  /** How long a gate is tried that does not answer, or has no time; by default 75,000. */
  patienceMs?: number
}

export interface WaitOptions {
  /** By default as long as the gate does. */
  timeoutMs?: number
}

/** What a request may say besides. Prose is shown as yours. */
export interface Wish {
  /** exec_cmd, http_request, write_file, send_message or custom:NAME; required without a tool, unless it is a question. */
  actionType?: string
  title?: string
  preview?: string
  rationale?: string
  /** Consent for a session is remembered by this name. */
  sessionId?: string
  /** By default 600 by HTTP, and the workspace's time-out in folders. */
  expiresInSec?: number
  resubmits?: string
  proof?: { [name: string]: Json | undefined }
  /** By HTTP: ask there only. */
  channel?: 'telegram' | 'email'
  target?: { tg_chat_id?: string; email_to?: string }
}

export interface RequestOptions extends Wish {
  type?: 'action' | 'question'
  /** Of a question. */
  options?: string[]
  /** The same one is the same request; 16 to 64 hex digits do for both ways. By default random. */
  idempotencyKey?: string
}

/** A request that was handed over. */
export interface Submitted {
  readonly id: string
}

export type Outcome =
  | 'approved' | 'auto_approved' | 'denied' | 'auto_rejected' | 'expired' | 'cancelled' | 'request_more' | 'overridden'
  | 'answered' | 'failed' | 'interrupted' | 'malformed'

/** How a request ended. */
export declare class Decision {
  private constructor()
  /** Hex digits; by HTTP appr_ stands before them. */
  readonly id: string
  /** What exactly happened. */
  readonly outcome: Outcome
  /** Beware: an overridden request is "approved" too, and nothing ran. */
  readonly status: 'approved' | 'denied' | 'expired'
  readonly execution: 'done' | 'failed' | 'interrupted' | 'none'
  /** Nobody was asked. */
  readonly auto: boolean
  /** "1" to "6". */
  readonly code: string | null
  /** For you: code 4. */
  readonly note: string | null
  /** What to do instead: code 5. */
  readonly override: string | null
  /** Why not, or what they want to know. */
  readonly feedback: string | null
  readonly by: string | null
  readonly via: string | null
  /** A tool's result; {answer} of a question. */
  readonly result: any
  readonly error: string | null
  /** The signed note of an approval. */
  readonly receipt: string | null
  /** The answer as it came. */
  readonly raw: any
  /** The action may be done, or was. Everything else is a no. */
  get approved(): boolean
  /** The answer to a question. */
  get answer(): string | null
  /** Returns itself if it approves, and throws a NotApproved otherwise. */
  check(): this
}

/** The way to a gate. What is not given comes from the environment. */
export declare class Gate {
  constructor(options?: GateOptions)
  /** Hands a request over. Without a tool nothing runs on the host, and actionType says what it is about. */
  submit(toolName?: string, data?: Arguments, options?: RequestOptions): Promise<Submitted>
  /** Gives how a request ended, once it has. */
  wait(request: Submitted | string, options?: WaitOptions): Promise<Decision>
  /** submit and wait. */
  request(toolName?: string, data?: Arguments, options?: RequestOptions & WaitOptions): Promise<Decision>
  /** Takes a request back that nobody has decided yet. By HTTP it throws NotPending where that is too late. */
  cancel(request: Submitted | string): Promise<void>
}

/**
 * Makes a function run only when its call was approved; otherwise a NotApproved is thrown. Its one argument, an
 * object, becomes request_data. When the timeout is over the request is cancelled.
 */
export declare function needsApproval<A extends object, R>(
  func: (arg: A) => R,
  options?: Wish & WaitOptions & { gate?: Gate },
): (arg: A) => Promise<Awaited<R>>

/** Gate.submit of the environment's gate. */
export declare function submit(toolName?: string, data?: Arguments, options?: RequestOptions): Promise<Submitted>
/** Gate.request of the environment's gate. */
export declare function request(toolName?: string, data?: Arguments, options?: RequestOptions & WaitOptions): Promise<Decision>
/** Gate.wait of the environment's gate. */
export declare function wait(request: Submitted | string, options?: WaitOptions): Promise<Decision>
/** Gate.cancel of the environment's gate. */
export declare function cancel(request: Submitted | string): Promise<void>

/** Everything that goes wrong here. */
export declare class PermessoError extends Error {}
/** No gate answered, for all our patience, or it has no time. The same idempotencyKey finds out what became of it. */
export declare class Unreachable extends PermessoError {}
/** Something answers there that is no gate. */
export declare class NotAGate extends PermessoError {}
/** An answer is for other bytes than ours. */
export declare class Mismatch extends PermessoError {}
/** Nobody has answered within the timeout. The request stays: wait for it again, or cancel it. */
export declare class StillWaiting extends PermessoError {
  constructor(id: string)
  readonly id: string
}
/** The gate did not take it. status is HTTP's, detail the gate's sentence. */
export declare class Refused extends PermessoError {
  constructor(status: number, detail: string)
  readonly status: number
  readonly detail: string
}
/** There is no such key, or it may not do this. */
export declare class InvalidKey extends Refused {}
/** The request will never be taken as it is. */
export declare class Invalid extends Refused {}
/** There is no such request, or it is another client's. */
export declare class NotFound extends Refused {}
/** It is over, or decided: too late to cancel. */
export declare class NotPending extends Refused {}
/** The request is over, and nothing may be done. */
export declare class NotApproved extends PermessoError {
  constructor(decision: Decision)
  readonly decision: Decision
}
/** By a person or by policy; decision.feedback may say why. */
export declare class Denied extends NotApproved {}
/** Nobody answered in time. */
export declare class Expired extends NotApproved {}
/** By whoever asked. */
export declare class Cancelled extends NotApproved {}
/** Code 5: nothing ran. Do what decision.override says instead, and ask for that. */
export declare class Overridden extends NotApproved {}
/** Nothing ran. Answer what decision.feedback asks, and ask again with resubmits: decision.id. */
export declare class MoreWanted extends NotApproved {}
/** It was approved, and failed or was interrupted: it may be done, or half done. */
export declare class Failed extends NotApproved {}
