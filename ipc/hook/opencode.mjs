// Asks the gate before each call of a tool, and answers opencode's own questions about the calls that it has approved.
// Everything but an approval throws, which keeps opencode from running the call.
import { spawn } from "node:child_process"

const command = ["permesso", "hook", "opencode"]

// ask resolves if the call is approved, and rejects at every other end.
const ask = (event) => new Promise((resolve, reject) => {
  const hook = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "pipe"] })
  let out = ""
  let why = ""
  hook.stdout.setEncoding("utf8").on("data", (text) => { out += text })
  hook.stderr.setEncoding("utf8").on("data", (text) => { why += text })
  hook.stdin.on("error", () => {}) // the end of the process says more
  hook.on("error", reject)
  hook.on("close", (code) => {
    let reply
    try {
      reply = JSON.parse(out).reply
    } catch {
      // no answer is a deny
    }
    if (code === 0 && reply === "once") resolve()
    else reject(new Error(why.trim() || `permesso ended with code ${code}, without an answer`))
  })
  hook.stdin.end(JSON.stringify(event))
})

export const Permesso = async ({ client, directory }) => {
  const approved = new Set()
  const key = (sessionID, callID) => JSON.stringify([sessionID, callID])
  const answer = async (asked) => {
    let response = "reject"
    try {
      if (!approved.has(key(asked.sessionID, asked.tool?.callID))) {
        const args = { patterns: asked.patterns, metadata: asked.metadata }
        await ask({ event: "permission.asked", sessionID: asked.sessionID, directory, tool: asked.permission, callID: asked.id, args })
      }
      response = "once"
    } catch {
      // rejected
    }
    await client.postSessionIdPermissionsPermissionId({ path: { id: asked.sessionID, permissionID: asked.id }, body: { response } })
  }
  return {
    "tool.execute.before": async (input, output) => {
      await ask({ event: "tool.execute.before", sessionID: input.sessionID, directory, tool: input.tool, callID: input.callID, args: output.args })
      approved.add(key(input.sessionID, input.callID))
    },
    event: async ({ event }) => {
      if (event.type === "permission.asked") answer(event.properties).catch(() => {}) // unanswered, it waits for the person
    },
  }
}
