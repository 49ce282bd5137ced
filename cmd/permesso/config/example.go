package config

// Example is a commented configuration to start from, with a workspace and a
// first tool to be renamed. Lines that begin with # and no space are settings
// switched off.
func Example() string { return example }

const example = `# permesso.toml: who may ask, who may decide, what may run.
# Everything left out has a safe default; a key that is not known is an error.

# Settings of the whole gate stand here, before the first [table].
#gate = "permesso"               # the name that signs receipts
#run_before = "10m"              # an approval not carried out by then expires
#log_level = "info"              # debug, info, warn, error
#log_format = "auto"             # json, console; auto: console on a terminal, json elsewhere
#language = "en"                 # en, it
#local_decisions = true          # false: nobody decides at the terminal, CLI or browser

# A workspace is the home of one agent. Rename it: the agent's two folders are
# HOME/ipc/NAME/requests and HOME/ipc/NAME/responses; permesso mounts NAME
# prints how to give them to a container.
[workspaces.default]
autonomy = "supervised"          # readonly, supervised, full
approvers = []                   # names from [approvers]; empty: only the local operator
#principal = "ann"               # the human it works for: of the approvers only this one decides
approval_timeout = "5m"
approval_timeout_max = "24h"     # how long an agent may ask to wait
#limits = { pending = 32, ask_per_minute = 60, per_minute = 600, request_size = "256KiB", running = 8 }

# People are known by ids that cannot be chosen freely.
#[approvers.ann]
#local = 1000                    # the uid: what id -u prints
#telegram = 123456789            # the numeric id, never a username
#email = "ann@example.org"
#language = "it"

# A tool is what an agent may name. It is described here, in your words, never
# in the agent's; {fields} are taken from the request.
[tools.hello]
capability = "code:exec"
action_type = "custom:hello"
verb = { en = "say hello", it = "saluti" }
summary = "hello to {name}"
target = "this machine"
reversibility = "reversible"     # reversible, partial, irreversible
territory = "none"               # none, session, permanent
trust = false                    # or each by itself, true, false or "forbidden":
                                 # public_source, secret_data, public_sink, dangerous_writes
# The program runs without a shell, in an empty folder, with only these
# variables; the request's data comes on standard input, as JSON.
handler = { kind = "command", argv = ["/bin/echo", "hello"], timeout = "30s", env = ["LANG"] }

# What no rule names is asked.
[[rules]]
match = { tool = "hello", workspace = "default" }
outcome = "ask"                  # allow, ask, deny
reason = "somebody should see it once"
`
