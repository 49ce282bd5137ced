package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc/mcp/mcptest"
)

const (
	otherKey = "Mu3GE0tOuZvktwmf+XVEj5xfDfTn8XYklvcc17KgkwU="

	allowed, refused, asked = "auto_approved", "auto_rejected", "pending"
)

// lab is the key of a prover, labKey what is configured of it.
var (
	lab    = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	labKey = base64.StdEncoding.EncodeToString(lab.Public().(ed25519.PublicKey))

	proven = provenFor("script")
)

// provenFor is a request for a tool with a proof of lab: it sends one email to bob.
func provenFor(tool string) string {
	const code, data = "send()", `{"code":"send()"}`
	proof := fmt.Sprintf(`{"prover":"lab","tool":%q,"args_sha256":%q,"expires":"2099-01-01T00:00:00Z","program_sha256":%q,`+
		`"effects":[{"domain":"email","op":"send","args":{"recipient":"bob@example.com"},"status":"proven"}]`,
		tool, approval.Digest([]byte(data)), approval.Digest([]byte(code)))
	b, err := facts.ProofBytes(approval.Raw(proof + "}"))
	if err != nil {
		panic(err)
	}
	signature := base64.StdEncoding.EncodeToString(ed25519.Sign(lab, b))
	return fmt.Sprintf(`{"tool_name":%q,"request_data":%s,"proof":%s,"signature":%q}}`, tool, data, proof, signature)
}

// noTrust are the properties of a tool that policy always allows.
const noTrust = "public_source = false\nsecret_data = false\npublic_sink = false\ndangerous_writes = false\n"

func liveGroups() []liveGroup {
	return append(logGroups(), decidingGroup(), peopleGroup(), agentGroup(), messagesGroup(), policyGroup(), toolsGroup(), proverGroup(), handlersGroup(), mcpGroup(), rulesGroup(), clausesGroup(), listedGroup(), emailGroup(), telegramGroup(), tokenGroup(), webhookGroup())
}

// say has the tool of sayRequest, which needs approval.
const say = "[tools.say]\nverb = \"say\"\nreversibility = \"reversible\"\n" + noTrust +
	"handler = { kind = \"command\", argv = [\"/bin/echo\", \"said\"] }\n[[rules]]\nmatch = { tool = \"say\" }\noutcome = \"ask\"\n"

// mails is the configuration of email: mails are sent to the test and read from DIR/inbox.
const mails = `[channels.email]
from = "gate@example.org"
smtp = { address = "SMTP", security = "none" }
dns = "127.0.0.1:1"
dkim = false
trust_relay = true
maildir = "DIR/inbox"
`

const bot = "[channels.telegram]\nserver_url = \"SERVER\"\ntoken_file = \"DIR/token\"\n"

// decidingGroup has until when an approval counts, at every entrance.
func decidingGroup() liveGroup {
	g := liveGroup{name: "deciding", text: `run_before = «"10m"¦"1m"»
elicitation = «"off"¦"notify"»
[approvers.ann]
local = MYSELF
telegram = 1001
email = "ann@example.org"
[workspaces.default]
approvers = ["ann"]
[workspaces.chat]
approvers = ["ann"]
channels = ["telegram"]
[workspaces.mails]
approvers = ["ann"]
channels = ["email"]
` + say + bot + mails}
	add := func(entrance string, see func(*live) string) {
		g.checks = append(g.checks, liveCheck{"run_before", entrance, see, [2]string{"approved for 10m0s", "approved for 1m0s"}})
	}
	add(atCLI, approveIn("default"))
	add(atSocket, meBySocket("default"))
	add(atHTTP, annByHTTP("default"))
	add(atBrowser, browserOf("operator", "default"))
	add(atTelegram, annByTelegram("chat"))
	add(atEmail, annByEmail("mails"))
	g.checks = append(g.checks, liveCheck{"elicitation", atHTTP, toldByMCP, [2]string{"expired", "/r/default/"}})
	return g
}

// listedGroup has who is on a list, and who is the only one to decide: ann before the
// edit, cid after it.
func listedGroup() liveGroup {
	g := liveGroup{name: "listed", text: `[approvers.ann]
local = MYSELF
telegram = 1001
email = "ann@example.org"
[approvers.cid]
email = "cid@example.org"
[workspaces.default]
` + say + bot + mails}
	for i, row := range [][2]string{
		{"approvers", `approvers = «["ann", "cid"]¦["cid"]»`},
		{"principal", "approvers = [\"ann\", \"cid\"]\nprincipal = «\"ann\"¦\"cid\"»"},
	} {
		key, chat := row[0], int64(-1008-i)
		g.text += fmt.Sprintf("[workspaces.%[1]s]\n%[2]s\n[workspaces.%[1]s-chat]\n%[2]s\nchannels = [\"telegram\"]\ntelegram = { chat_id = %[3]d }\n"+
			"[workspaces.%[1]s-mail]\n%[2]s\nchannels = [\"email\"]\n", key, row[1], chat)
		for _, c := range []struct {
			entrance, refused string
			see               func(*live) string
		}{
			{atSocket, "nothing here for you", meBySocket(key)},
			{atHTTP, "404", annByHTTP(key)},
			{atBrowser, "refused", browserOf("approver", key)},
			{atTelegram, "You are not an approver", annInGroup(key+"-chat", chat)},
			{atEmail, "refused", annByEmail(key + "-mail")},
		} {
			g.checks = append(g.checks, liveCheck{"workspaces.NAME." + key, c.entrance, c.see, [2]string{"approved for", c.refused}})
		}
	}
	return g
}

// emailGroup has keys of [channels.email].
func emailGroup() liveGroup {
	g := liveGroup{name: "email", text: `[approvers.ann]
email = "ann@example.org"
[workspaces.default]
approvers = ["ann"]
channels = ["email"]
[channels.email]
from = «"gate@example.org"¦"door@example.org"»
smtp = { address = "«SMTP¦SMTQ»", security = "none" }
sub_addressing = «false¦true»
dns = "127.0.0.1:1"
dkim = false
trust_relay = «true¦false»
authserv_id = «"mx.one"¦"mx.two"»
maildir = "DIR/«inbox¦inbox2»"
` + say}
	const passed = "Authentication-Results: mx.two; dmarc=pass header.from=example.org; spf=pass smtp.mailfrom=ann@example.org"
	add := func(key string, see func(*live) string, before, after string) {
		g.checks = append(g.checks, liveCheck{"channels.email." + key, atEmail, see, [2]string{before, after}})
	}
	card := mailOf("default", sayRequest)
	add("from", card, "gate@example.org", "door@example.org")
	add("smtp.address", card, "to <", "second to <")
	add("sub_addressing", replyAddress(card), "gate@example.org", "door+")
	add("maildir", reply(passed), "inbox decided", "inbox2 decided")
	add("trust_relay", reply(), "decided", "refused")
	// A failure that the own server states counts even with trust_relay.
	add("authserv_id", reply(strings.Replace(passed, "pass", "fail", 1)), "decided", "refused")
	return g
}

// telegramGroup has keys of [channels.telegram].
func telegramGroup() liveGroup {
	return liveGroup{name: "telegram", text: askAnnByTelegram + `[tools.free]
` + noTrust + `[channels.telegram]
server_url = "«SERVER¦OTHERAPI»"
token_file = "DIR/token"
feed = «false¦true»
` + say, checks: []liveCheck{
		{"channels.telegram.server_url", atTelegram, cardServer, [2]string{"the first server", "the other server"}},
		{"channels.telegram.feed", atTelegram, feedBefore, [2]string{"no feed", "a feed"}},
	}}
}

const askAnnByTelegram = `[approvers.ann]
telegram = 1001
[workspaces.default]
approvers = ["ann"]
channels = ["telegram"]
`

// tokenGroup has the bot's token.
func tokenGroup() liveGroup {
	return liveGroup{name: "token", text: askAnnByTelegram + `[channels.telegram]
server_url = "SERVER"
token_file = "DIR/«token¦token2»"
` + say, checks: []liveCheck{{"channels.telegram.token_file", atTelegram, botToken, [2]string{"accepted", "refused"}}}}
}

// hookSecret is sent by Telegram with every update.
const hookSecret = "0123456789-0123456789-0123456789"

// webhookGroup has how Telegram delivers.
func webhookGroup() liveGroup {
	return liveGroup{name: "webhook", text: askAnnByTelegram + `[channels.telegram]
server_url = "SERVER"
token_file = "DIR/token"
webhook = { listen = "«HOOKA¦HOOKB»", url = "https://example.org/«one¦two»", secret_file = "DIR/«hook¦hook2»" }
` + say, checks: []liveCheck{
		{"channels.telegram.webhook.url", atTelegram, lastHook, [2]string{"https://example.org/one", "https://example.org/two"}},
		{"channels.telegram.webhook.secret_file", atTelegram, lastHook, [2]string{" " + hookSecret, " other-" + hookSecret}},
		{"channels.telegram.webhook.listen", atTelegram, hookListens, [2]string{"true false", "false true"}},
	}}
}

// peopleGroup has who may decide. Ann is the user of this test.
func peopleGroup() liveGroup {
	const ok = "approved for"
	g := liveGroup{name: "people", text: `local_decisions = «true¦false»
[approvers.ann]
telegram = 1001
[approvers.bob]
local = «MYSELF¦4999»
telegram = «1002¦1003»
email = «"bob@example.org"¦"robert@example.org"»
language = «"en"¦"it"»
[approvers.cid]
email = "cid@example.org"
language = "en"
[workspaces.default]
approvers = ["ann", "bob"]
[workspaces.own]
approvers = ["ann", "bob"]
local_decisions = «true¦false»
[workspaces.bobs]
local_decisions = true
approvers = ["bob"]
channels = ["telegram"]
[workspaces.mails]
local_decisions = true
approvers = ["bob"]
channels = ["email"]
[workspaces.ceiling]
approvers = ["cid"]
channels = ["email"]
email_ceiling = «"irreversible"¦"reversible"»
[tools.firm]
capability = "channel:out"
reversibility = "irreversible"
` + say + bot + `[channels.email]
from = "gate@example.org"
smtp = { address = "SMTP", security = "none" }
dns = "127.0.0.1:1"
`}
	add := func(keys, entrance string, see func(*live) string, before, after string) {
		g.checks = append(g.checks, liveCheck{keys, entrance, see, [2]string{before, after}})
	}
	const no = "nothing here for you"
	add("local_decisions", atCLI, approveIn("default"), ok, no)
	add("local_decisions", atSocket, meBySocket("default"), ok, no)
	add("local_decisions", atBrowser, browserOf("operator", "default"), ok, "refused")
	add("workspaces.NAME.local_decisions", atCLI, approveIn("own"), ok, no)
	add("workspaces.NAME.local_decisions", atSocket, meBySocket("own"), ok, no)
	add("workspaces.NAME.local_decisions", atBrowser, browserOf("operator", "own"), ok, "refused")
	add("approvers.NAME.local", atSocket, meBySocket("bobs"), ok, no)
	add("approvers.NAME.local", atBrowser, browserOf("approver", "bobs"), ok, "refused")
	add("approvers.NAME.telegram", atTelegram, tapIn("bobs", 1002, 1003), "from 1002: Approved", "from 1003: Appr")
	add("approvers.NAME.language", atTelegram, privateCard("bobs", 1002, 1003), "🔐 May I say?", "🔐 Posso? (say)")
	add("approvers.NAME.email", atEmail, mailOf("mails", sayRequest), "bob@example.org", "robert@example.org")
	add("workspaces.NAME.email_ceiling", atEmail, mayApprove(mailOf("ceiling", `{"tool_name":"firm"}`)), "may approve", "limited")
	return g
}

// agentGroup has the UID of an agent, which may not decide anywhere.
func agentGroup() liveGroup {
	return liveGroup{name: "agent", text: `[approvers.ann]
telegram = 1001
[workspaces.default]
agent_uid = «4998¦AGENT»
` + say, checks: []liveCheck{
		{"workspaces.NAME.agent_uid", atCLI, approveAsAgent, [2]string{"approved for", "nothing here for you"}},
		{"workspaces.NAME.agent_uid", atBrowser, browserOf("agent", "default"), [2]string{"approved for", "refused"}},
	}}
}

// messagesGroup has what approvers read, and where.
func messagesGroup() liveGroup {
	return liveGroup{name: "messages", text: `language = «"en"¦"it"»
[approvers.ann]
telegram = 1001
[workspaces.default]
approvers = ["ann"]
channels = «[]¦["telegram"]»
telegram = { chat_id = -1003 }
[workspaces.top]
approvers = ["ann"]
channels = ["telegram"]
telegram = { chat_id = -1004 }
[workspaces.own]
approvers = ["ann"]
channels = ["telegram"]
language = «"it"¦"en"»
telegram = { chat_id = -1005 }
[workspaces.chat]
approvers = ["ann"]
channels = ["telegram"]
telegram = { chat_id = «-1001¦-1002» }
[workspaces.topic]
approvers = ["ann"]
channels = ["telegram"]
telegram = { chat_id = -1006, thread_id = «1¦2» }
[workspaces.quiet]
approvers = ["ann"]
channels = ["telegram"]
quiet_hours = «"` + hours(-1) + `"¦"` + hours(2) + `"»
telegram = { chat_id = -1007 }
[workspaces.night]
quiet_hours = "` + hours(-1) + `"
night_timeout = «"2h"¦"3h"»
[workspaces.times]
approval_timeout = «"7m"¦"8m"»
[workspaces.longest]
approval_timeout_max = «"24h"¦"1h"»
[workspaces.domains]
own_domains = «["example.org"]¦["example.org", "example.com"]»
` + say + bot, checks: []liveCheck{
		{"language", atTelegram, telegramCard("top", -1004), [2]string{"🔐 May I say?", "🔐 Posso? (say)"}},
		{"workspaces.NAME.language", atTelegram, telegramCard("own", -1005), [2]string{"🔐 Posso? (say)", "🔐 May I say?"}},
		{"workspaces.NAME.channels", atTelegram, cardOrNone("default", -1003, "top", -1004), [2]string{"none", "a card"}},
		{"workspaces.NAME.telegram.chat_id", atTelegram, cardIn("chat", -1001, -1002), [2]string{"in -1001", "in -1002"}},
		{"workspaces.NAME.telegram.thread_id", atTelegram, telegramCard("topic", -1006), [2]string{"thread 1 ", "thread 2 "}},
		{"workspaces.NAME.quiet_hours", atTelegram, telegramCard("quiet", -1007), [2]string{"silent true", "silent false"}},
		{"workspaces.NAME.night_timeout", atFolder, waits("night", sayRequest), [2]string{"waits 2h0m0s", "waits 3h0m0s"}},
		{"workspaces.NAME.approval_timeout", atFolder, waits("times", sayRequest), [2]string{"waits 7m0s", "waits 8m0s"}},
		{"workspaces.NAME.night_timeout", atHTTP, waitsByHTTP("night"), [2]string{"waits 2h0m0s", "waits 3h0m0s"}},
		{"workspaces.NAME.approval_timeout", atHTTP, waitsByHTTP("times"), [2]string{"waits 7m0s", "waits 8m0s"}},
		{"workspaces.NAME.approval_timeout_max", atFolder, waits("longest", `{"tool_name":"say","expires_in_sec":72000}`), [2]string{"waits 20h0m0s", "waits 1h0m0s"}},
		{"workspaces.NAME.own_domains", atFolder, pendingMember("domains", "own_domains"), [2]string{`["example.org"]`, `["example.org","example.com"]`}},
		{"workspaces.NAME.approval_timeout_max", atHTTP, waitsByHTTP("longest", `"expires_in_sec":72000`), [2]string{"waits 20h0m0s", "waits 1h0m0s"}},
	}}
}

// policyGroup has what policy reads of a workspace.
func policyGroup() liveGroup {
	write := `{"tool_name":"write"}`
	free := `{"tool_name":"free","request_data":{"text":"x"}}`
	big := fmt.Sprintf(`{"tool_name":"free","request_data":{"text":%q}}`, strings.Repeat("x", 4096))
	const browse, post = `{"tool_name":"browse"}`, `{"tool_name":"post"}`
	return liveGroup{name: "policy", text: `[workspaces.level]
autonomy = «"readonly"¦"full"»
[workspaces.session]
autonomy = "full"
sessions = { s1 = «"full"¦"readonly"» }
[workspaces.vault]
autonomy = "full"
contains_secrets = «false¦true»
[workspaces.exec]
«remember_exec_cmd = "any"¦»
[workspaces.from]
release_trust = { public_source = «false¦"forbidden"» }
[workspaces.secrets]
release_trust = { secret_data = «false¦"forbidden"» }
[workspaces.to]
release_trust = { public_sink = «false¦"forbidden"» }
[workspaces.folder]
autonomy = "full"
folder = «true¦false»
[workspaces.binds]
autonomy = "full"
contains_secrets = true
folder = false
binds_sessions = «true¦false»
[workspaces.root]
admin = «false¦true»
[workspaces.asks]
autonomy = "full"
ask_above = { "fs:write" = «"100/1h"¦"0/1h"» }
[workspaces.denies]
autonomy = "full"
deny_above = { "fs:write" = «"100/1h"¦"0/1h"» }
[workspaces.ss]
budget_session = { soft = «1000¦1» }
[workspaces.sh]
budget_session = { hard = «1000¦1» }
[workspaces.ds]
budget_day = { soft = «1000¦1» }
[workspaces.dh]
budget_day = { hard = «1000¦1» }
[workspaces.pending]
limits = { pending = «32¦1» }
[workspaces.asking]
limits = { ask_per_minute = «60¦1» }
[workspaces.minute]
limits = { per_minute = «600¦1» }
[workspaces.size]
limits = { request_size = «"64KiB"¦"2KiB"» }
[workspaces.running]
limits = { running = «2¦1» }
[workspaces.stored]
limits = { stored = «"256MiB"¦"16MiB"» }
[tools.write]
capability = "fs:write"
dangerous_writes = false
[tools.free]
` + noTrust + `args = { text = "text" }
cost = 5
[tools.large]
` + noTrust + `handler = { kind = "command", argv = ["/bin/sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' x"], max_output = "8MiB" }
[tools.browse]
public_source = true
secret_data = false
public_sink = false
dangerous_writes = false
[tools.post]
public_source = false
secret_data = false
public_sink = true
dangerous_writes = false
[tools.slow]
` + noTrust + `handler = { kind = "command", argv = ["/bin/sh", "-c", 'echo begin >>DIR/slow; while ! [ -e DIR/go ]; do sleep 0.01; done; echo end >>DIR/slow'] }
[[rules]]
match = { tool = "browse", workspace = "root" }
outcome = "deny"
` + say, checks: []liveCheck{
		{"workspaces.NAME.autonomy", atFolder, ruling("level", write), [2]string{refused, allowed}},
		{"workspaces.NAME.autonomy", atHTTP, rulingByHTTP("level", write), [2]string{refused, allowed}},
		{"workspaces.NAME.sessions.SESSION", atFolder, ruling("session", `{"tool_name":"write","session_id":"s1"}`), [2]string{allowed, refused}},
		{"workspaces.NAME.contains_secrets", atFolder, afterRuling("vault", []string{browse}, post), [2]string{allowed, asked}},
		{"workspaces.NAME.remember_exec_cmd", atFolder, document("exec", release("exec_cmd")), [2]string{`"form":"action"`, `"form":"again"`}},
		{"workspaces.NAME.release_trust.public_source", atFolder, ruling("from", release("send_message")), [2]string{asked, refused}},
		{"workspaces.NAME.release_trust.secret_data", atFolder, ruling("secrets", release("send_message")), [2]string{asked, refused}},
		{"workspaces.NAME.release_trust.public_sink", atFolder, ruling("to", release("send_message")), [2]string{asked, refused}},
		{"workspaces.NAME.folder", atFolder, ruling("folder", write), [2]string{allowed, refused}},
		{"workspaces.NAME.binds_sessions", atHTTP, byHTTP(afterRuling("binds", []string{`{"tool_name":"browse","session_id":"a"}`}, `{"tool_name":"post","session_id":"b"}`)), [2]string{allowed, asked}},
		{"workspaces.NAME.admin", atEdit, acceptsAPublicSource, [2]string{"accepted", "refused"}},
		{"workspaces.NAME.ask_above.CAPABILITY", atFolder, ruling("asks", write), [2]string{allowed, asked}},
		{"workspaces.NAME.deny_above.CAPABILITY", atFolder, ruling("denies", write), [2]string{allowed, refused}},
		{"workspaces.NAME.budget_session.soft", atFolder, ruling("ss", free), [2]string{allowed, asked}},
		{"workspaces.NAME.budget_session.hard", atFolder, ruling("sh", free), [2]string{allowed, refused}},
		{"workspaces.NAME.budget_day.soft", atFolder, ruling("ds", free), [2]string{allowed, asked}},
		{"workspaces.NAME.budget_day.hard", atFolder, ruling("dh", free), [2]string{allowed, refused}},
		{"workspaces.NAME.limits.pending", atFolder, afterRuling("pending", []string{sayRequest}, sayRequest), [2]string{asked, refused}},
		{"workspaces.NAME.limits.ask_per_minute", atFolder, afterRuling("asking", []string{sayRequest}, sayRequest), [2]string{asked, refused}},
		{"workspaces.NAME.limits.per_minute", atFolder, afterRuling("minute", []string{free}, free), [2]string{allowed, refused}},
		{"workspaces.NAME.limits.request_size", atFolder, ruling("size", big), [2]string{allowed, "malformed"}},
		{"workspaces.NAME.limits.request_size", atHTTP, rulingByHTTP("size", big), [2]string{allowed, "413"}},
		{"workspaces.NAME.limits.stored", atFolder, afterRuling("stored", []string{`{"tool_name":"large"}`}, free), [2]string{allowed, refused}},
		{"workspaces.NAME.limits.running", atFolder, twoAtOnce, [2]string{"begin begin end end", "begin end begin end"}},
	}}
}

// release is a request without a tool.
func release(action string) string {
	return fmt.Sprintf(`{"action_type":%q,"request_data":{"command":"ls"}}`, action)
}

// toolsGroup has what the operator says of a tool.
func toolsGroup() liveGroup {
	const browse, post, inbox = `{"tool_name":"browse"}`, `{"tool_name":"post"}`, `{"tool_name":"inbox"}`
	const told = `{"tool_name":"told","request_data":{"name":"Ann"}}`
	doc := document("default", told)
	g := liveGroup{name: "tools", text: `[provers.lab]
public_key = «"` + labKey + `"¦"` + otherKey + `"»
[workspaces.default]
[workspaces.full]
autonomy = "full"
[workspaces.reads]
autonomy = "full"
contains_secrets = true
[workspaces.secret]
autonomy = "full"
[workspaces.sinks]
autonomy = "full"
contains_secrets = true
[workspaces.spends]
budget_day = { soft = 50 }
[workspaces.codes]
[workspaces.facts]
[tools.told]
capability = «"channel:out"¦"fs:write"»
action_type = «"send_message"¦"write_file"»
verb = «"tell"¦"shout"»
summary = «"one {name}"¦"two {name}"»
target = «"here"¦"there"»
reversibility = «"reversible"¦"irreversible"»
territory = «"session"¦"permanent"»
[tools.spoken]
capability = "channel:out"
verb = { en = «"speak"¦"sing"» }
[tools.clear]
capability = "channel:in"
«trust = false¦public_source = "forbidden"»
[tools.source]
public_source = «false¦true»
secret_data = false
public_sink = false
dangerous_writes = false
[tools.inbox]
public_source = false
secret_data = «false¦true»
public_sink = false
dangerous_writes = false
[tools.sink]
public_source = false
secret_data = false
public_sink = «false¦true»
dangerous_writes = false
[tools.danger]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = «false¦true»
[tools.browse]
public_source = true
secret_data = false
public_sink = false
dangerous_writes = false
[tools.post]
public_source = false
secret_data = false
public_sink = true
dangerous_writes = false
[tools.costly]
` + noTrust + `cost = «1¦80»
[tools.gets]
` + noTrust + `secrets = «"allow"¦"deny"»
args = { a = "text" }
[tools.script]
capability = "channel:out"
args = { code = "program" }
[tools.program]
capability = "channel:out"
args = { code = «"program"¦"text"» }
[tools.mail]
capability = "channel:out"
args = { to = «"recipients"¦"text"» }
[tools.typed]
capability = "channel:out"
[tools.typed.args.n]
type = «"number"¦"text"»
[tools.lax]
capability = "channel:out"
[tools.lax.args.n]
optional = «true¦false»
[tools.pay]
capability = "channel:out"
[tools.pay.args.sum]
type = "amount"
currency = «"EUR"¦"USD"»
[tools.put]
capability = "channel:out"
[tools.put.args]
one = "path"
two = "path"
[tools.put.args.content]
writes = «"one"¦"two"»
[tools.swap]
capability = "channel:out"
args = { old = "text", older = "text", new = { type = "text", replaces = «"old"¦"older"» } }
[tools.sized]
capability = "channel:out"
args = { a = "text", b = "text" }
size = «"a"¦"b"»
[tools.peek]
trust = false
reads = «true¦false»
handler = { kind = "command", argv = ["/bin/true"] }
[tools.undone]
capability = "fs:write"
undo = «"clear"¦"peek"»
[[rules]]
match = { tool = "peek" }
outcome = "ask"
[[rules]]
match = { tool = "script" }
outcome = "allow"
when_proven = [{ domain = "email", only = { recipient = "bob@example.com" } }]
[[rules]]
match = { tool = "program" }
outcome = "allow"
when_proven = [{ domain = "email", only = { recipient = "bob@example.com" } }]
[[rules]]
match = { tool = "mail" }
outcome = "allow"
when_proven = [{ domain = "channel", only = { recipient = "bob@example.com" } }]
`}
	add := func(key, entrance string, see func(*live) string, before, after string) {
		g.checks = append(g.checks, liveCheck{"tools.NAME." + key, entrance, see, [2]string{before, after}})
	}
	add("capability", atFolder, doc, `"capability":"channel:out"`, `"capability":"fs:write"`)
	add("action_type", atFolder, doc, `"action_type":"send_message"`, `"action_type":"write_file"`)
	add("action_type", atHTTP, rulingByHTTP("default", told), `"action_type":"send_message"`, `"action_type":"write_file"`)
	add("verb", atFolder, doc, `"tell"`, `"shout"`)
	add("summary", atFolder, doc, `one \"Ann\"`, `two \"Ann\"`)
	add("target", atFolder, doc, `"target":"here"`, `"target":"there"`)
	add("reversibility", atFolder, doc, `"reversibility":"reversible"`, `"reversibility":"irreversible"`)
	add("territory", atFolder, doc, `"territory_concession":"session"`, `"territory_concession":"permanent"`)
	add("verb.LANGUAGE", atFolder, document("default", `{"tool_name":"spoken"}`), `"speak"`, `"sing"`)
	add("trust", atFolder, ruling("full", `{"tool_name":"clear"}`), allowed, refused)
	add("public_source", atFolder, afterRuling("reads", []string{`{"tool_name":"source"}`}, post), allowed, asked)
	add("secret_data", atFolder, afterRuling("secret", []string{browse, inbox}, post), allowed, asked)
	add("public_sink", atFolder, afterRuling("sinks", []string{browse}, `{"tool_name":"sink"}`), allowed, asked)
	add("dangerous_writes", atFolder, ruling("full", `{"tool_name":"danger"}`), allowed, asked)
	add("cost", atFolder, ruling("spends", `{"tool_name":"costly"}`), allowed, asked)
	add("secrets", atFolder, ruling("full", `{"tool_name":"gets","request_data":{"a":"ghp_aB3dE6gH9aB3dE6gH9aB3dE6gH9aB3dE6gH9"}}`), allowed, refused)
	const paid, put = `{"tool_name":"pay","request_data":{"sum":1}}`, `{"tool_name":"put","request_data":{"one":"/a","two":"/b","content":"c"}}`
	add("args.ARGUMENT", atFolder, ruling("codes", provenFor("program")), allowed, asked)
	add("args.ARGUMENT.type", atFolder, ruling("codes", `{"tool_name":"typed","request_data":{"n":3}}`), asked, refused)
	add("args.ARGUMENT.optional", atFolder, ruling("codes", `{"tool_name":"lax"}`), asked, refused)
	add("args.ARGUMENT.currency", atFolder, document("codes", paid), `"currency":"EUR"`, `"currency":"USD"`)
	add("args.ARGUMENT.writes", atFolder, document("facts", put), `"writes":"one"`, `"writes":"two"`)
	add("args.ARGUMENT.replaces", atFolder, document("facts", `{"tool_name":"swap","request_data":{"old":"a","older":"b","new":"c"}}`), `"replaces":"old"`, `"replaces":"older"`)
	add("size", atFolder, document("facts", `{"tool_name":"sized","request_data":{"a":"1","b":"2"}}`), g.digest(0, "sized"), g.digest(1, "sized"))
	add("reads", atFolder, document("facts", `{"tool_name":"peek"}`), g.digest(0, "peek"), g.digest(1, "peek"))
	add("undo", atFolder, document("facts", `{"tool_name":"undone"}`), g.digest(0, "undone"), g.digest(1, "undone"))
	add("args.ARGUMENT", atFolder, ruling("facts", `{"tool_name":"mail","request_data":{"to":"bob@example.com"}}`), allowed, asked)
	g.checks = append(g.checks, liveCheck{"provers.NAME.public_key", atFolder, ruling("codes", proven), [2]string{allowed, asked}})
	return g
}

// digest is what a pending shows of a tool, before (0) or after (1) the edit.
func (g *liveGroup) digest(i int, tool string) string {
	c, err := config.Parse(g.name, []byte(g.version(i)))
	if err != nil {
		return err.Error()
	}
	return c.Tools[tool].SHA256()
}

// handlersGroup has how a tool runs.
func handlersGroup() liveGroup {
	g := liveGroup{name: "handlers", text: `[workspaces.default]
autonomy = "full"
`}
	tool := func(key, handler, before, after string) {
		name := strings.ReplaceAll(key, ".", "_")
		g.text += "[tools." + name + "]\n" + noTrust + "args = { x = \"text\" }\nhandler = { " + handler + " }\n"
		g.checks = append(g.checks, liveCheck{"tools.NAME.handler." + key, atFolder, result("default", `{"tool_name":"`+name+`","request_data":{"x":"y"}}`), [2]string{before, after}})
	}
	tool("kind", `«kind = "command", argv = ["/bin/echo", "ran"]¦kind = "none"»`, `ran`, "auto_approved {}")
	tool("argv", `kind = "command", argv = ["/bin/echo", «"one"¦"two"»]`, "one", "two")
	tool("dir", `kind = "command", argv = ["/bin/pwd"], dir = «"/usr"¦"/bin"»`, "/usr", "/bin")
	tool("env", `kind = "command", argv = ["/usr/bin/env"], env = [«"TZ"¦"LIVE"»]`, "TZ=", "LIVE=")
	tool("timeout", `kind = "command", argv = ["/bin/sleep", "0.5"], timeout = «"10s"¦"10ms"»`, "auto_approved", "failed")
	tool("max_output", `kind = "command", argv = ["/bin/sh", "-c", "yes | head -c 3000; echo end"], max_output = «"1MiB"¦"1KiB"»`, "end", "cut")
	tool("max_memory", `kind = "command", argv = ["/bin/sh", "-c", "dd if=/dev/zero of=/dev/null bs=64M count=50 2>&1; echo end"], max_memory = «"1GiB"¦"16MiB"»`, "end", "max_memory")
	tool("max_processes", `kind = "command", argv = ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.5 & done; wait; echo end"], max_processes = «100¦4»`, "end", "max_processes")
	tool("idempotent", `kind = "command", argv = ["/bin/sh", "-c", "echo key=$PERMESSO_IDEMPOTENCY_KEY."], idempotent = «false¦true»`, "key=.", "key=")
	const post = `kind = "http", method = "POST", url = "WEB/x", allow_private = ["127.0.0.1"], `
	tool("method", `kind = "http", method = «"POST"¦"PUT"», url = "WEB/x", allow_private = ["127.0.0.1"]`, "POST /x", "PUT /x")
	tool("url", `kind = "http", method = "POST", url = "WEB/«one¦two»", allow_private = ["127.0.0.1"]`, "POST /one", "POST /two")
	tool("body", post+`body = '{"n":«1¦2»}'`, "n:1", "n:2")
	tool("body_args", post+`body_args = «false¦true»`, "body .", "x:y")
	tool("headers.NAME", post+`headers = { X-Live = «"first"¦"second"» }`, "live first", "live second")
	tool("secret_headers.NAME", post+`secret_headers = { X-Secret = "DIR/«lab¦other».pub" }`, "the secret of lab", "the secret of other")
	tool("status", post+`status = [«200¦201»]`, "auto_approved", "failed")
	tool("allow_private", `kind = "http", method = "POST", url = "WEB/x", allow_private = [«"127.0.0.1"¦"127.0.0.2"»]`, "auto_approved", "failed")
	tool("ca_file", `kind = "http", method = "POST", url = "WEBS/x", allow_private = ["127.0.0.1"], ca_file = "DIR/«ca¦other».pem"`, "auto_approved", "auto_rejected")
	return g
}

// mcpGroup has the MCP servers, by what a tool of each tells.
func mcpGroup() liveGroup {
	g := liveGroup{name: "mcp", text: `[workspaces.default]
autonomy = "full"
[mcp.beside.tools.say]
` + strings.Replace(noTrust, "dangerous_writes = false", "dangerous_writes = «false¦true»", 1)}
	g.checks = append(g.checks, liveCheck{"mcp.SERVER.tools.TOOL", atFolder, ruling("default", `{"tool_name":"mcp.beside.say","execution":"agent"}`), [2]string{"auto_approved", "pending"}})
	argv, err := json.Marshal(mcptest.Argv("DIR"))
	if err != nil {
		panic(err)
	}
	add := func(row, server, handler, data, before, after string) {
		name := strings.ReplaceAll(strings.ReplaceAll(row, ".", "_"), "SERVER", "s")
		name = strings.ToLower(name)
		if server != "" {
			g.text += "[mcp." + name + "]\n" + strings.Replace(server, "ARGV", "argv = "+string(argv), 1) + "\n"
			handler = `server = "` + name + `", ` + handler
		}
		g.text += "[tools." + name + "]\n" + noTrust + "args = { x = \"json\", bytes = { type = \"number\", optional = true } }\nhandler = { kind = \"mcp\", " + handler + " }\n"
		g.checks = append(g.checks, liveCheck{row, atFolder, result("default", `{"tool_name":"`+name+`","request_data":`+data+`}`), [2]string{before, after}})
	}
	const env, data, told = `tool = "env"`, `{"x":"y"}`, "umask="
	server := func(key, text, before, after string) { add("mcp.SERVER."+key, text, env, data, before, after) }
	add("tools.NAME.handler.tool", "ARGV", `tool = «"env"¦"unknown"»`, data, told, "failed")
	g.text += "[mcp.one]\nargv = " + string(argv) + "\n[mcp.two]\nargv = " + string(argv) + "\nenv = [\"LIVE\"]\n"
	add("tools.NAME.handler.server", "", `server = «"one"¦"two"», `+env, data, told, "LIVE=")
	server("argv", `argv = «`+string(argv)+`¦["/bin/false"]»`, told, "nothing was sent")
	server("dir", "ARGV\ndir = «\"/usr\"¦\"/etc\"»", "cwd=/usr", "cwd=/etc")
	server("env", "ARGV\nenv = [«\"TZ\"¦\"LIVE\"»]", "TZ=", "LIVE=")
	add("mcp.SERVER.max_memory", "ARGV\nmax_memory = «\"2GiB\"¦\"16MiB\"»", `tool = "big", timeout = "5m"`, `{"x":1,"bytes":20000000}`, "max_output", "max_memory")
	add("mcp.SERVER.max_processes", "ARGV\nmax_processes = «1000¦1»", `tool = "big", timeout = "5m"`, `{"x":1,"bytes":20000000}`, "max_output", "max_processes")
	const url, private = "url = \"WEB/mcp\"\n", "allow_private = [\"127.0.0.1\"]\n"
	server("url", private+"url = \"WEB/«mcp¦none»\"", told, "nothing was sent")
	server("headers.NAME", url+private+`headers = { X-Live = «"first"¦"second"» }`, told, "nothing was sent")
	server("secret_headers.NAME", url+private+`secret_headers = { X-Secret = "DIR/«lab¦other».pub" }`, told, "nothing was sent")
	server("allow_private", url+"allow_private = [«\"127.0.0.1\"¦\"127.0.0.2\"»]", told, "nothing was sent")
	server("ca_file", private+"url = \"WEBS/mcp\"\nca_file = \"DIR/«ca¦other».pem\"", told, "auto_rejected")
	return g
}

// toldByMCP sees what a client is told that can show a page, and about whose call no one decides.
func toldByMCP(l *live) string {
	_, answer := l.key("default", "").do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_approved","arguments":{"tool":"say","arguments":{},"expires_in_sec":1},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"live","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}}}`,
		"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "execute_approved")
	b, err := json.Marshal(answer)
	require.NoError(l.t, err)
	return string(b)
}

// rulesGroup has every key of a rule.
func rulesGroup() liveGroup {
	g := liveGroup{name: "rules", text: `[approvers.ann]
telegram = 1001
autonomy = «"full"¦"readonly"»
[approvers.bob]
telegram = 1002
[workspaces.default]
limits = { pending = 1000, ask_per_minute = 10000, per_minute = 10000 }
[workspaces.other]
[workspaces.anns]
approvers = ["ann", "bob"]
principal = "ann"
[workspaces.bound]
[workspaces.closed]
autonomy = "full"
contains_secrets = true
[workspaces.sources]
autonomy = "full"
contains_secrets = true
[workspaces.vaults]
autonomy = "full"
[workspaces.sinks]
autonomy = "full"
contains_secrets = true
[tools.write]
capability = "fs:write"
[tools.post]
public_source = false
secret_data = false
public_sink = true
dangerous_writes = false
[tools.browse]
public_source = true
secret_data = false
public_sink = false
dangerous_writes = false
`}
	g.checks = append(g.checks, liveCheck{"approvers.NAME.autonomy", atFolder, ruling("anns", `{"tool_name":"write"}`), [2]string{asked, refused}})
	rules := ""
	rule := func(key, tool, workspace, body, text, before, after string, see func(ws, body string) func(*live) string) {
		name := strings.ReplaceAll(key, ".", "_")
		g.text += "[tools." + name + "]\n" + tool + "\n"
		rules += "[[rules]]\n" + strings.ReplaceAll(text, "TOOL", name) + "\n"
		g.checks = append(g.checks, liveCheck{"rules[]." + key, atFolder, see(workspace, strings.Replace(body, "TOOL", name, 1)), [2]string{before, after}})
	}
	const request, reads = `{"tool_name":"TOOL","session_id":"s1","request_data":{"p":"/a/x"}}`, "capability = \"fs:read\"\ntarget = \"/t1\"\nargs = { p = \"text\" }"
	rule("outcome", reads, "default", request, "match = { tool = \"TOOL\" }\noutcome = «\"allow\"¦\"deny\"»", allowed, refused, ruling)
	rule("name", reads, "default", request, "name = «\"first\"¦\"second\"»\nmatch = { tool = \"TOOL\" }\noutcome = \"allow\"", `"rule":"first"`, `"rule":"second"`, document)
	rule("reason", reads, "default", request, "match = { tool = \"TOOL\" }\noutcome = \"deny\"\nreason = «\"why not\"¦\"because\"»", "why not", "because", document)
	rule("match.tool", reads, "default", request, "match = { tool = «\"TOOL\"¦\"outcome\"», target = \"/t1\" }\noutcome = \"deny\"", refused, asked, ruling)
	match := func(key, workspace, value string) {
		rule("match."+key, reads, workspace, request, "match = { tool = \"TOOL\", "+value+" }\noutcome = \"deny\"", refused, asked, ruling)
	}
	match("workspace", "default", `workspace = «"default"¦"other"»`)
	match("approver", "anns", `approver = «"ann"¦"bob"»`)
	match("capability", "default", `capability = «"fs:read"¦"fs:write"»`)
	match("target", "default", `target = «"/t1"¦"/t2"»`)
	match("session", "bound", `session = «"s1"¦"s2"»`)
	match("client", "default", `client = «"ws:default"¦"ws:other"»`)
	match("program", "default", `program = «false¦true»`)
	match("tools", "default", `program = «false¦true, tools = ["TOOL"]»`) // no step of a program
	match("max_steps", "default", `program = «false¦true, max_steps = 5»`)
	match("max_calls", "default", `program = «false¦true, max_calls = 5»`)
	match("args.ARGUMENT", "default", `args = { p = «"/a/x"¦"/b/x"» }`)
	match("args.ARGUMENT.contains", "default", `args = { p = { contains = «"a"¦"b"» } }`)
	match("args.ARGUMENT.matches", "default", `args = { p = { matches = «"/a/."¦"/b/."» } }`)
	now := time.Now().UTC()
	hours := func(from, to time.Duration) string {
		return now.Add(from*time.Hour).Format("15:04") + "-" + now.Add(to*time.Hour).Format("15:04")
	}
	match("between", "default", fmt.Sprintf(`time_zone = "UTC", between = «%q¦%q»`, hours(-2, 2), hours(4, 6)))
	match("time_zone", "default", fmt.Sprintf(`between = %q, time_zone = «"UTC"¦"Asia/Tokyo"»`, hours(-2, 2)))
	match("weekdays", "default", fmt.Sprintf(`time_zone = "UTC", weekdays = [«"mon-sun"¦%q»]`, strings.ToLower(now.AddDate(0, 0, 3).Format("Mon"))))
	const paid, pays = `{"tool_name":"TOOL","request_data":{"sum":"12.50","in":"EUR"}}`, "capability = \"fs:read\"\nargs = { sum = { type = \"amount\", currency = \"in\" }, in = \"text\" }"
	for key, value := range map[string]string{
		"max": `max = «"12.50"¦"12.49"», currency = "EUR"`, "min": `min = «12¦13», currency = "EUR"`, "currency": `max = 20, currency = «"EUR"¦"USD"»`,
	} {
		rule("match.args.ARGUMENT."+key, pays, "default", paid, "match = { tool = \"TOOL\", args = { sum = { "+value+" } } }\noutcome = \"deny\"", refused, asked, ruling)
	}
	rule("match.args.ARGUMENT.optional", reads, "default", request, "match = { tool = \"TOOL\", args = { p = \"/a/x\", q = { matches = \".*\", optional = «true¦false» } } }\noutcome = \"allow\"", allowed, asked, ruling)
	rule("match.subagent", reads+"\nhandler = { kind = \"agent\" }", "default", strings.Replace(request, "{", `{"execution":"agent","subagent":"h1",`, 1),
		"match = { tool = \"TOOL\", subagent = «\"h1\"¦\"h2\"» }\noutcome = \"deny\"", refused, asked, ruling)
	match("args.ARGUMENT.equals", "default", `args = { p = { equals = «"/a/x"¦"/a/y"» } }`)
	match("args.ARGUMENT.json", "default", `args = { p = { json = «'"/a/x"'¦'"/a/y"'» } }`)
	rule("match.other_args", reads, "default", request, "match = { tool = \"TOOL\", other_args = «true¦false» }\noutcome = \"allow\"", allowed, asked, ruling)
	trust := func(key, workspace string, before ...string) {
		last := `{"tool_name":"TOOL"}`
		if key != "public_sink" {
			before, last = append(before, last), `{"tool_name":"post"}`
		}
		rule("trust."+key, "public_source = false\nsecret_data = false\npublic_sink = false\ndangerous_writes = false", workspace, last,
			"match = { tool = \"TOOL\" }\noutcome = \"allow\"\ntrust = { "+key+" = «false¦true» }", allowed, asked,
			func(ws, body string) func(*live) string {
				name := "trust_" + key
				for i := range before {
					before[i] = strings.Replace(before[i], "TOOL", name, 1)
				}
				return afterRuling(ws, before, strings.Replace(body, "TOOL", name, 1))
			})
	}
	trust("public_source", "sources")
	trust("secret_data", "vaults", `{"tool_name":"browse"}`)
	trust("public_sink", "sinks", `{"tool_name":"browse"}`)
	rule("despite", "capability = \"channel:out\"\ntarget = \"team\"", "closed", `{"tool_name":"TOOL"}`, "match = { tool = \"TOOL\" }\noutcome = \"allow\"\n«despite = [\"trifecta\"]¦»", allowed, asked,
		func(ws, body string) func(*live) string {
			return afterRuling(ws, []string{`{"tool_name":"browse"}`}, body)
		})
	g.text += rules
	g.checks = append(g.checks, liveCheck{"rules", atFolder, g.checks[0].see, g.checks[0].want})
	return g
}

// clausesGroup has every key of a clause, in rules that allow and in rules that deny.
func clausesGroup() liveGroup {
	g := liveGroup{name: "clauses", text: "[provers.lab]\npublic_key = \"" + labKey + "\"\n"}
	tools, rules := "", ""
	for _, list := range []string{"when_proven", "unless_proven"} {
		outcome, level, without := "allow", "supervised", asked
		if list == "unless_proven" {
			outcome, level, without = "deny", "full", refused
		}
		add := func(key, tool, body, clause string) {
			ws := strings.ToLower(list[:1] + "-" + strings.ReplaceAll(key, ".argument", ""))
			ws = strings.ReplaceAll(ws, ".", "-")
			g.text += "[workspaces." + ws + "]\nautonomy = \"" + level + "\"\n"
			rules += fmt.Sprintf("[[rules]]\nmatch = { tool = %q, workspace = %q }\noutcome = %q\n%s = [%s]\n", tool, ws, outcome, list, clause)
			g.checks = append(g.checks, liveCheck{strings.TrimSuffix("rules[]."+list+"[]."+key, "[]."), atFolder, ruling(ws, body), [2]string{allowed, without}})
		}
		const save = `{"tool_name":"save","request_data":{"path":"/srv/out/a.txt"}}`
		add("domain", "script", proven, `{ domain = «"email"¦"file"», only = { recipient = "bob@example.com" } }`)
		add("op", "script", proven, `{ domain = "email", op = «"send"¦"receive"», only = { recipient = "bob@example.com" } }`)
		add("only.ARGUMENT", "script", proven, `{ domain = "email", only = { recipient = «"bob@example.com"¦"eve@example.com"» } }`)
		add("under.ARGUMENT", "save", save, `{ domain = "file", under = { path = «"/srv/out"¦"/srv/in"» } }`)
		add("unique", "script", proven, `{ domain = "email", unique = «"recipient"¦"subject"» }`)
		add("at_most", "script", proven, `{ domain = "email", at_most = «1¦0» }`)
		const paid = `{"tool_name":"paid","request_data":{"sum":"12.50"}}`
		add("sum_at_most", "paid", paid, `{ domain = "money", sum_at_most = «"12.50"¦"12.49"», currency = "EUR" }`)
		add("currency", "paid", paid, `{ domain = "money", sum_at_most = 20, currency = «"EUR"¦"USD"» }`)
		add("of.ARGUMENT", "script", proven, `{ domain = "email", at_most = 0, of = { recipient = «"ceo@example.com"¦"bob@example.com"» } }`)
		g.checks = append(g.checks, liveCheck{"rules[]." + list, atFolder, g.checks[len(g.checks)-1].see, g.checks[len(g.checks)-1].want})
	}
	tools += "[tools.script]\ncapability = \"channel:out\"\ndangerous_writes = false\nargs = { code = \"program\" }\n[tools.paid]\ncapability = \"channel:out\"\ndangerous_writes = false\nargs = { sum = { type = \"amount\", currency = \"EUR\" } }\n[tools.save]\ncapability = \"fs:write\"\ndangerous_writes = false\nargs = { path = \"path\" }\ntarget = \"{path}\"\n"
	g.text += tools + rules
	return g
}

// logGroups have what the daemon prints.
func logGroups() []liveGroup {
	return []liveGroup{
		{name: "log level", text: "log_level = «\"info\"¦\"error\"»\nlog_format = \"json\"\n[workspaces.default]\n", checks: []liveCheck{{"log_level", atLog, changedLog, [2]string{logReloaded, "logged: "}}}},
		{name: "log format", text: "log_format = «\"json\"¦\"console\"»\n[workspaces.default]\n", checks: []liveCheck{{"log_format", atLog, changedLog, [2]string{`logged: {"level":"info"`, " INF "}}}},
	}
}

// proverGroup has the key of a prover in a file.
func proverGroup() liveGroup {
	return liveGroup{name: "prover", text: `[provers.lab]
public_key_file = "DIR/«lab¦other».pub"
[workspaces.default]
[tools.script]
capability = "channel:out"
args = { code = "program" }
[[rules]]
match = { tool = "script" }
outcome = "allow"
when_proven = [{ domain = "email", only = { recipient = "bob@example.com" } }]
`, checks: []liveCheck{{"provers.NAME.public_key_file", atFolder, ruling("default", proven), [2]string{allowed, asked}}}}
}

// Keys that need a restart say so when they are edited while a daemon serves.
func TestKeysThatNeedARestart(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "")
	values := map[string]string{
		"gate": `"other"`, "listen": `"127.0.0.1:0"`, "listen_hosts": `["h:1"]`, "ui": `"127.0.0.1:0"`,
		"socket": `"` + filepath.Join(h.dir, "s") + `"`, "retention.responses": `"3d"`, "retention.records": `"30d"`,
	}
	const head = "listen = \"\"\nui = false\n"
	require.NoError(t, os.WriteFile(h.config, []byte(head), 0o600))
	d := h.serve()
	d.awaitLog(`"serving"`)
	reloads := 0
	for _, r := range config.Rows() {
		if !r.Restart {
			continue
		}
		require.Contains(t, values, r.Path)
		table, key, found := strings.Cut(r.Path, ".")
		text := head
		if found {
			text += "[" + table + "]\n" + key + " = " + values[r.Path] + "\n"
		} else {
			text = strings.Join(append(strings.Split(strings.TrimSpace(head), "\n"), ""), "\n")
			for _, line := range []string{`listen = ""`, `ui = false`} {
				if strings.HasPrefix(line, r.Path+" ") {
					text = strings.Replace(text, line+"\n", "", 1)
				}
			}
			text += r.Path + " = " + values[r.Path] + "\n"
		}
		h.replaceConfig(text)
		reloads++
		d.awaitTimes(logReloaded, reloads)
		require.Contains(t, d.logged(), fmt.Sprintf("%s: change takes effect after a restart", r.Path))
		delete(values, r.Path)
	}
	require.Empty(t, values, "rows that are live")
	d.stop()
}

// hours are two hours of the day, which begin some hours after now.
func hours(after int) string {
	from := time.Now().UTC().Add(time.Duration(after) * time.Hour)
	return from.Format("15:04") + "-" + from.Add(2*time.Hour).Format("15:04")
}
