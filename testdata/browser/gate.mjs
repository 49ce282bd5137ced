// A gate and what lives around it: its agents, and the operator's command line.

import { execFile, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { Gate } from '../../ipc/client/typescript/permesso.mjs'

const exec = promisify(execFile)

export class House {
  /** @param {{ program: string, flags: string[], folders: object, sandbox: string, effects: string }} plan */
  constructor(plan) {
    Object.assign(this, plan)
  }

  /** An agent of a workspace, which asks through its two folders. */
  agent(workspace) {
    return new Gate(this.folders[workspace])
  }

  /** Runs the operator's command line, and gives what it prints. */
  async operator(...args) {
    const { stdout } = await exec(this.program, [...this.flags, ...args])
    return stdout.trim()
  }

  /** An address that opens the pages, once. */
  async link() {
    return (await this.operator('ui', '--print')).match(/http:\/\/\S+/)[0]
  }

  /** Has an agent in a sandbox ask and wait; gives the response that it read there. */
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
      throw new Error(`the agent in its sandbox said ${out}${errs}`)
    }
  }

  /** How often a request was run. */
  ran(id) {
    return readFileSync(this.effects, 'utf8').split('\n').filter((line) => line === id).length
  }
}
