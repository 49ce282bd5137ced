package config

import (
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// ExampleOptions has settings for a first configuration. Zero fields get the defaults.
type ExampleOptions struct {
	Workspace string
	Autonomy  string
	Approver  string // a name, which needs UID; "": only the local operator
	UID       string
}

// Example returns a commented configuration to start from, with a workspace and a
// tool. Lines that begin with # and no space are optional settings.
func Example() string { return ExampleOptions{}.Example() }

// Example returns the example with these settings. The names must be valid.
func (s ExampleOptions) Example() string {
	text := strings.Replace(example, "{languages}", strings.Join(chat.Languages(), ", "), 1)
	if s.Workspace != "" {
		text = strings.ReplaceAll(text, "[workspaces.default]", "[workspaces."+s.Workspace+"]")
		text = strings.ReplaceAll(text, `workspace = "default"`, "workspace = "+strconv.QuoteToASCII(s.Workspace))
	}
	if s.Autonomy != "" {
		text = strings.Replace(text, `autonomy = "supervised"`, "autonomy = "+strconv.QuoteToASCII(s.Autonomy), 1)
	}
	if s.Approver != "" {
		text = strings.Replace(text, "approvers = []", "approvers = ["+strconv.QuoteToASCII(s.Approver)+"]", 1)
		text = strings.Replace(text, "#[approvers.ann]\n#local = 1000 ", "[approvers."+s.Approver+"]\nlocal = "+s.UID+" ", 1)
		text = strings.Replace(text, `#principal = "ann"`, "#principal = "+strconv.QuoteToASCII(s.Approver), 1)
	}
	return text
}

const example = `# permesso.toml: which agents may send requests, who may decide, what may run.
# Every key has a safe default. An unknown key is an error.

# Global settings, before the first [table].
#gate = "permesso"               # the name in receipts
#run_before = "10m"              # an approved action that has not started by then expires
#log_level = "info"              # debug, info, warn, error
#log_format = "auto"             # json, console; auto: console on a terminal, json elsewhere
#language = "en"                 # {languages}
#local_decisions = true          # false: no decisions by terminal, CLI or browser
#listen = "127.0.0.1:8765"       # HTTP API for agents with a key: permesso key create; "" turns it off
#listen_hosts = []               # host names of the API and the web UI besides their address: ["host.docker.internal:8765"]
#ui = "127.0.0.1:8766"           # web UI, only on this machine: permesso ui; false turns it off
#socket = "/run/permesso/permesso.sock"  # for approvers, if the daemon runs as a system user

# Each agent has a workspace. Rename this one. The agent's two folders are
# HOME/ipc/NAME/requests and HOME/ipc/NAME/responses; permesso mounts NAME
# prints the mounts for a container.
[workspaces.default]
autonomy = "supervised"          # readonly, supervised, full
approvers = []                   # names from [approvers]; empty: only the local operator
#agent_uid = 1001                # or [1001, 1002]: the agent's UID, if it is not in a container; it may not decide
#channels = ["telegram", "email"] # also ask approvers there
#telegram = { chat_id = -1001234567890, thread_id = 7 }  # a group, or one topic of it; default: each approver's private chat
#quiet_hours = "22:00-07:00"     # silent notifications
#night_timeout = "10h"           # the approval_timeout then
#principal = "ann"               # the human it works for: only this approver decides
#email_ceiling = "reversible"    # by email, approve only up to: reversible, partial, irreversible; deny always works
approval_timeout = "5m"
approval_timeout_max = "24h"     # the longest timeout that an agent may request
#limits = { pending = 32, ask_per_minute = 60, per_minute = 600, request_size = "256KiB", running = 8 }

# Approvers are recognized by ids that they cannot choose.
#[approvers.ann]
#local = 1000                    # the UID: what id -u prints
#telegram = 123456789            # the numeric id, never a username
#email = "ann@example.org"
#language = "it"

# A tool is an action that an agent may request. You describe it here, not the
# agent; {fields} are replaced with values of the request.
[tools.hello]
#capability = "code:exec"        # what it does; without one, only trust and the rules count
action_type = "custom:hello"
verb = { en = "say hello", it = "saluti" }
summary = "hello to {name}"
target = "this machine"
reversibility = "reversible"     # reversible, partial, irreversible
territory = "none"               # none, session, permanent
trust = false                    # or set each to true, false or "forbidden":
                                 # public_source, secret_data, public_sink, dangerous_writes
# The program runs without a shell, in an empty folder, with only these
# variables. It gets the request's data as JSON on standard input.
handler = { kind = "command", argv = ["/bin/echo", "hello"], timeout = "30s", env = ["LANG"] }

# A tool may also be one HTTP request. {fields} may stand in the path, in values of
# the query, and for complete values of a JSON body; never in the host. Put secrets
# into files (mode 600). Redirects to other hosts are not followed. Private
# addresses must be in allow_private.
#[tools.post]
#capability = "channel:out"
#verb = "post"
#summary = "{text} -> {board}"
#[tools.post.handler]            # the default of target is the URL's host
#kind = "http"
#method = "POST"                 # GET, HEAD, POST, PUT, PATCH, DELETE
#url = "https://api.example.org/v1/boards/{board}/posts"
#body = '{"text":{text}}'        # or body_args = true: send the request's data
#headers = { Accept = "application/json" }
#secret_headers = { Authorization = "Bearer /etc/permesso/api.token" }
#timeout = "30s"
#max_output = "256KiB"           # of the response; the rest is cut off and marked
#status = [200, 201]             # success; default: 200 to 299
#allow_private = ["10.1.2.3:8080", "api.internal"]
#ca_file = "/etc/permesso/ca.pem" # instead of the system's authorities
#idempotent = false              # true: repeat it once after a crash, with the same Idempotency-Key

# The meaning of arguments, for cards and rules. If an argument is a program, only a
# prover can tell what it does.
#[tools.newsletter]
#facts = { recipient = ["to", "cc", "bcc"], path = "attachment" }  # recipient, path, host, amount, table
#[tools.script]
#program = "code"

# Keys of trusted provers. This one is an example: its private key does not exist. A
# public_key_file is read together with this file.
#[provers.lab]
#public_key = "Mu3GE0tOuZvktwmf+XVEj5xfDfTn8XYklvcc17KgkwU="  # or public_key_file: base64, or PEM

# Requests that match no rule need approval.
[[rules]]
match = { tool = "hello", workspace = "default" }
outcome = "ask"                  # allow, ask, deny
reason = "an approver should see it once"
# A rule may depend on what a prover has proven or, without a program in the request,
# on the arguments. Unknown facts are not proven. Claims of the agent never count.
#[[rules]]
#match = { tool = "script" }
#outcome = "deny"                # unless_proven: for deny and ask; when_proven: for allow
#unless_proven = [{ domain = "mail", op = "send", at_most = 0, of = { recipient = "boss@example.org" } }]
#[[rules]]
#match = { tool = "script" }
#outcome = "allow"
#when_proven = [{ domain = "mail", op = "send", only = { recipient = ["ann@example.org"] } }, { domain = "mail", unique = "recipient" }, { domain = "mail", at_most = 10 }, { domain = "file", under = { path = ["/srv/out"] } }]

# Approvers decide by replying to an email: permesso email setup finds the settings.
# Put passwords into files (mode 600), or into PERMESSO_EMAIL_PASSWORD.
#[channels.email]
#from = "permesso@example.org"
#smtp = { address = "mail.example.org:587", username = "permesso", password_file = "/etc/permesso/mail.password" }
#imap = { address = "mail.example.org:993", username = "permesso", password_file = "/etc/permesso/mail.password", mailbox = "INBOX" }
#authserv_id = "mx.example.org"  # trust its Authentication-Results
#dkim = true                     # verify DKIM signatures
#trust_relay = false             # true: trust From; only if a mail server on this machine checks it
#sub_addressing = false          # true: permesso+anything@example.org is delivered to from
#follow_up = true                # send the outcome by email
#dns = "127.0.0.1:53"            # instead of the system's resolver
# Approvers decide in Telegram. @BotFather creates a bot and its token. The bot
# answers /start with the user's numeric id.
#[channels.telegram]
#token_file = "/etc/permesso/telegram.token"  # mode 600; or set PERMESSO_TELEGRAM_TOKEN
#feed = false                    # true: also report what policy allowed, silently
#server_url = "http://127.0.0.1:8081"  # a Bot API server of your own
#webhook = { listen = "127.0.0.1:8443", url = "https://gate.example.org/telegram", secret_file = "/etc/permesso/webhook.secret" }

# How long documents of settled requests are kept. The audit log is never pruned.
#[retention]
#responses = "7d"                # for agents that read them late
#records = "90d"                 # the complete history of each request, for permesso show
`
