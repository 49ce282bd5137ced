package config

import (
	"strconv"
	"strings"
)

// Start is what a first configuration is to say. What is zero is left at its
// default.
type Start struct {
	Workspace string
	Autonomy  string
	Approver  string // name, with UID; "": only the local operator
	UID       string
}

// Example is a commented configuration to start from, with a workspace and a
// first tool to be renamed. Lines that begin with # and no space are settings
// switched off.
func Example() string { return Start{}.Example() }

// Example is the Example with these settings in it. The names must be valid.
func (s Start) Example() string {
	text := example
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

const example = `# permesso.toml: who may ask, who may decide, what may run.
# Everything left out has a safe default; a key that is not known is an error.

# Settings of the whole gate stand here, before the first [table].
#gate = "permesso"               # the name that signs receipts
#run_before = "10m"              # an approval not carried out by then expires
#log_level = "info"              # debug, info, warn, error
#log_format = "auto"             # json, console; auto: console on a terminal, json elsewhere
#language = "en"                 # en, it
#local_decisions = true          # false: nobody decides at the terminal, CLI or browser
#listen = "127.0.0.1:8765"       # HTTP for agents that have a key: permesso key create; "" turns it off
#listen_hosts = []               # names it and the pages answer to besides their address: ["host.docker.internal:8765"]
#ui = "127.0.0.1:8766"           # the pages for people, in a browser of this machine: permesso ui; false turns them off
#socket = "/run/permesso/permesso.sock"  # where a system user runs the gate: its approvers decide through it

# A workspace is the home of one agent. Rename it: the agent's two folders are
# HOME/ipc/NAME/requests and HOME/ipc/NAME/responses; permesso mounts NAME
# prints how to give them to a container.
[workspaces.default]
autonomy = "supervised"          # readonly, supervised, full
approvers = []                   # names from [approvers]; empty: only the local operator
#agent_uid = 1001                # or [1001, 1002]: what the agent runs as, if not in a container; never decides
#channels = ["telegram", "email"] # where its approvers are asked, besides this machine
#telegram = { chat_id = -1001234567890, thread_id = 7 }  # a group, or a topic of it; left out: each approver's private chat
#quiet_hours = "22:00-07:00"     # what asks then makes no sound
#night_timeout = "10h"           # … and waits longer
#principal = "ann"               # the human it works for: of the approvers only this one decides
#email_ceiling = "reversible"    # mail denies everything, and approves only up to: reversible, partial, irreversible
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
#capability = "code:exec"        # what kind of thing it does; with none, only trust and the rules speak
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

# A tool may also be one HTTP request. {fields} stand in the path, in values of
# the query, and for whole values of a JSON body; never in the host. Secrets lie
# in files (mode 600). No redirect is followed to another host, and no private
# address is called that is not named.
#[tools.post]
#capability = "channel:out"
#verb = "post"
#summary = "{text} -> {board}"
#[tools.post.handler]            # target, left out above, is then the URL's host
#kind = "http"
#method = "POST"                 # GET, HEAD, POST, PUT, PATCH, DELETE
#url = "https://api.example.org/v1/boards/{board}/posts"
#body = '{"text":{text}}'        # or body_args = true: the request's data as it is
#headers = { Accept = "application/json" }
#secret_headers = { Authorization = "Bearer /etc/permesso/api.token" }
#timeout = "30s"
#max_output = "256KiB"           # of the answer; more is cut off, and said so
#status = [200, 201]             # what counts as done; left out: 200 to 299
#allow_private = ["10.1.2.3:8080", "api.internal"]
#ca_file = "/etc/permesso/ca.pem" # instead of the system's authorities
#idempotent = false              # true: asked once more after a crash, with the same Idempotency-Key

# Which arguments are what: cards say it, and rules can rely on it. And a tool whose
# argument is a program: what such a program does, only a prover can say.
#[tools.newsletter]
#facts = { recipient = ["to", "cc", "bcc"], path = "attachment" }  # recipient, path, host, amount, table
#[tools.script]
#program = "code"

# Whose proofs are believed. This key is an example: nobody has its other half. A
# public_key_file is read whenever this file is.
#[provers.lab]
#public_key = "Mu3GE0tOuZvktwmf+XVEj5xfDfTn8XYklvcc17KgkwU="  # or public_key_file: base64, or PEM

# What no rule names is asked.
[[rules]]
match = { tool = "hello", workspace = "default" }
outcome = "ask"                  # allow, ask, deny
reason = "somebody should see it once"
# A rule may depend on what a prover has proven or, where no program comes with the
# request, on the arguments. What is unknown is not proven; never the agent's word.
#[[rules]]
#match = { tool = "script" }
#outcome = "deny"                # unless_proven: for deny and ask; when_proven: for allow
#unless_proven = [{ domain = "mail", op = "send", at_most = 0, of = { recipient = "boss@example.org" } }]
#[[rules]]
#match = { tool = "script" }
#outcome = "allow"
#when_proven = [{ domain = "mail", op = "send", only = { recipient = ["ann@example.org"] } }, { domain = "mail", unique = "recipient" }, { domain = "mail", at_most = 10 }, { domain = "file", under = { path = ["/srv/out"] } }]

# People are asked by e-mail, and a reply decides: permesso email setup finds out
# what belongs here. Passwords lie in files (mode 600), or in PERMESSO_EMAIL_PASSWORD.
#[channels.email]
#from = "permesso@example.org"
#smtp = { address = "mail.example.org:587", username = "permesso", password_file = "/etc/permesso/mail.password" }
#imap = { address = "mail.example.org:993", username = "permesso", password_file = "/etc/permesso/mail.password", mailbox = "INBOX" }
#authserv_id = "mx.example.org"  # whose Authentication-Results are believed
#dkim = true                     # and signatures are verified here
#trust_relay = false             # true: From is believed; only behind a mail server of this machine that checks it
#sub_addressing = false          # true: permesso+anything@example.org is delivered to from
#follow_up = true                # people hear by mail how it ended
#dns = "127.0.0.1:53"            # instead of the system's resolver
# People answer from their phones. @BotFather makes a bot and gives its token;
# whoever writes /start to the bot is told their number.
#[channels.telegram]
#token_file = "/etc/permesso/telegram.token"  # mode 600; or the variable PERMESSO_TELEGRAM_TOKEN
#feed = false                    # true: what policy allowed is told, too, without a sound
#server_url = "http://127.0.0.1:8081"  # a Bot API server of your own
#webhook = { listen = "127.0.0.1:8443", url = "https://gate.example.org/telegram", secret_file = "/etc/permesso/webhook.secret" }

# How long what is settled is kept; the audit log is never shortened.
#[retention]
#responses = "7d"                # for agents that fetch theirs late
#records = "90d"                 # the whole story of every request, for permesso show
`
