// A daemon with its agents and the operator's commands.

import { execFile, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { Gate as Client } from '../../ipc/client/typescript/permesso.mjs'

const exec = promisify(execFile)

export class Gate {
  /** @param {{ program: string, flags: string[], folders: object, sandbox: string, effects: string }} plan */
  constructor(plan) {
    Object.assign(this, plan)
  }

  /** A client for an agent of a workspace, over its two folders. */
  agent(workspace) {
    return new Client(this.folders[workspace])
  }

  /** Runs a command of the operator and returns its output. */
  async operator(...args) {
    const { stdout } = await exec(this.program, [...this.flags, ...args])
    return stdout.trim()
  }

  /** Approves a request as it is now. */
  async approve(id, ...options) {
    const { pending_sha256: digest } = JSON.parse(await this.operator('show', id, '--json'))
    return this.operator('approve', id, '--seen', digest, ...options)
  }

  /** A login link, which works once. */
  async link() {
    return (await this.operator('ui', '--print')).match(/http:\/\/\S+/)[0]
  }

  /** Makes an agent in a sandbox submit a request and wait; returns the response that it read. */
  async sandboxed(...args) {
    const child = spawn('/bin/sh', ['-c', this.sandbox, 'sh', 'request', ...args, '--wait', '--timeout', '180s', '--json'])
    let out = ''
    let errs = ''
    child.stdout.on('data', (text) => (out += text))
    child.stderr.on('data', (text) => (errs += text))
    await new Promise((resolve) => child.on('close', resolve))
    try {
      return JSON.parse(out)
    } catch {
      throw new Error(`unexpected output of the sandboxed agent: ${out}${errs}`)
    }
  }

  /** How often a request was run. */
  runs(id) {
    return readFileSync(this.effects, 'utf8').split('\n').filter((line) => line === id).length
  }
}
