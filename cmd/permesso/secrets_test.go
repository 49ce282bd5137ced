package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/security/secrets"
)

// secretsConfig asks for most tools. Its targets and summaries contain the agent's
// arguments.
const secretsConfig = `log_level = "debug"
[workspaces.default]
limits = { pending = 1000, per_minute = 100000, ask_per_minute = 100000 }
[tools.send]
args = { a = "text", b = "text" }
capability = "channel:out"
target = "{a}{b}"
summary = "{a}{b} -> somewhere"
territory = "permanent"
handler = { kind = "command", argv = ["/bin/true"] }
[tools.breaks]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
args = { a = "text", b = "text" }
target = "{a}"
summary = "{a}"
handler = { kind = "command", argv = ["/bin/sh", "-c", 'echo "what is $1?" >&2; exit 3', "sh", "{a}"] }
[tools.free]
args = { a = "text", b = "text" }
trust = false
target = "{a}"
handler = { kind = "command", argv = ["/bin/true"] }
[tools.never]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
args = { a = "text", b = "text" }
target = "{a}"
[[rules]]
match = { tool = "free" }
outcome = "allow"
[[rules]]
match = { tool = "never" }
outcome = "deny"
`

// plantedSecret is one secret and the request that contains it.
type plantedSecret struct {
	kind, text    string
	grep          []string // texts that no file may contain
	a, b          string   // two arguments
	title, why    string
	body, outcome string
}

// secretRule is one kind of secret.
type secretRule struct{ ID, Regex string }

// plantSecrets makes 50 requests, each with a secret of another kind. They rotate
// through the disguises, the fields and the outcomes.
func plantSecrets(t *testing.T) []plantedSecret {
	t.Helper()
	scan, err := secrets.New()
	require.NoError(t, err)
	file, err := os.ReadFile("../../security/secrets/rules.toml")
	require.NoError(t, err)
	var set struct{ Rules []secretRule }
	require.NoError(t, toml.Unmarshal(file, &set))
	outcomes := []string{"approve", "deny", "expire", "malformed", "free", "never", "breaks"}
	quote := func(s string) string {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		return string(b)
	}
	var all []plantedSecret
	for _, r := range set.Rules {
		p, ok := plantedSecret{}, false
		for try := 0; try < 50 && !ok && len(all) < 50; try++ {
			p, ok = disguise(scan, r, try, len(all))
		}
		if !ok {
			continue
		}
		p.outcome = outcomes[len(all)%len(outcomes)]
		tool := map[string]string{"free": "free", "never": "never", "breaks": "breaks"}[p.outcome]
		if tool == "" {
			tool = "send"
		}
		extra := ""
		switch p.outcome {
		case "expire":
			extra = `,"expires_in_sec":1`
		case "malformed":
			extra = `,` + quote(p.text) + `:1`
		}
		p.body = fmt.Sprintf(`{"tool_name":%q,"request_data":{"a":%s,"b":%s},"title":%s,"rationale":%s%s}`, tool, quote(p.a), quote(p.b), quote(p.title), quote(p.why), extra)
		all = append(all, p)
	}
	require.Len(t, all, 50)
	return all
}

// disguise makes a secret of one line, long enough to be unique, in the i-th form.
// ok is false if the scanner does not find it in that form: the tests of recall
// measure that.
func disguise(scan *secrets.Scanner, r secretRule, try, i int) (p plantedSecret, ok bool) {
	defer func() {
		if recover() != nil { // no text was found that matches the rule
			ok = false
		}
	}()
	text := strings.TrimSpace(rapid.StringMatching(r.Regex).Example(try))
	notPlain := func(c rune) bool { return c < ' ' || c > '~' || strings.ContainsRune("\\\"'`", c) }
	if len(text) < 20 || len(text) > 200 || strings.ContainsFunc(text, notPlain) || len(scan.Independent().Spans(text)) == 0 {
		return p, false
	}
	p = plantedSecret{kind: r.ID, text: text, grep: []string{text}, a: "nothing", title: "a title", why: "a reason"}
	half := len(text) / 2
	switch i % 8 {
	case 0:
		p.a = text
	case 1:
		p.a = base64.StdEncoding.EncodeToString([]byte(text))
		p.grep = append(p.grep, p.a)
	case 2:
		p.a, p.b = text[:half], text[half:]
		// A rule may match more than the secret: a name before it.
		at := scan.Independent().Spans(text)
		if len(at) == 0 || at[0].Start > half-8 || at[0].End < half+8 {
			return p, false
		}
		p.grep = append(p.grep, text[at[0].Start:half], text[half:at[0].End])
	case 3:
		p.a = text[:half] + "\u200b" + text[half:]
		p.grep = append(p.grep, p.a)
	case 4:
		p.a = text + " # gitleaks:allow"
	case 5:
		p.title = text
	case 6:
		p.why = "I need " + text
	case 7:
		p.b = "x " + text + " y"
	}
	args, err := json.Marshal(map[string]string{"a": p.a, "b": p.b})
	found := scan.Scan(&approval.Facts{Args: args, Agent: approval.Prose{Title: p.title, Rationale: p.why}})
	return p, err == nil && len(found) > 0
}

// No file that the run writes contains a secret, except:
//
//   - requests/ID.json, which the agent itself wrote
//   - of a pending request: request_data, and the fields that approvers see
//     redacted: target, summary, agent, proof, facts
//   - of a claim and a record: the bytes of the request, its facts, and the output
//     of the handler (result, error, and the same in the response)
//   - the arguments of a handler
//
// Nor does the output of a command, except for the card of a pending request: on this
// host it shows all that would run but for tokens, so that a person can consent to it.
func TestFiftySecretsAreNeverWritten(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", secretsConfig)
	d := h.serve()
	all := plantSecrets(t)
	ids := make([]string, len(all))
	var said bytes.Buffer
	run := func(args ...string) {
		code, out, errs := h.run("", args...)
		fmt.Fprintf(&said, "%s\n%s\n", out, errs)
		if args[0] == "approve" && code == console.ExitFailed {
			return // the tool fails, and the command says so
		}
		require.Equal(t, console.ExitOK, code, "%v: %s", args, errs)
	}
	for i, p := range all {
		ids[i] = h.ask(p.body)
	}
	for i, p := range all {
		switch p.outcome {
		case "approve", "deny", "expire", "free", "breaks":
			h.awaitAsked(ids[i])
		}
	}
	run("pending", "--all")
	for i, p := range all {
		switch p.outcome {
		case "approve", "breaks", "free":
			code, card, errs := h.run("", "show", ids[i])
			require.Equal(t, console.ExitOK, code, errs)
			require.Contains(t, card, "seen: ")
			run("policy", "explain", ids[i])
			run("approve", ids[i])
		case "deny":
			run("deny", ids[i])
		}
	}
	statuses := map[approval.Status]int{}
	for i := range all {
		statuses[h.response(ids[i]).Status]++
		run("show", ids[i])
	}
	require.Len(t, statuses, 6, "%v", statuses)
	run("policy", "simulate")
	run("grants", "--all")
	run("grants", "--all", "--json")
	require.NotContains(t, said.String(), `"form":"target"`, "no grant for a target that may be a secret")
	d.kill()
	d = h.serve()
	d.awaitLog("serving")
	d.stop()

	written := map[string]string{"output of the commands": said.String()}
	require.NoError(t, filepath.WalkDir(h.dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || file == h.config || strings.HasPrefix(file, h.agent.Requests) {
			return err
		}
		if filepath.Dir(file) == h.layout.Journal() {
			return nil // it holds the documents whole, until its space is used again
		}
		b, err := os.ReadFile(file)
		written[strings.TrimPrefix(file, h.dir)] = string(withoutAgentData(t, file, b))
		return err
	}))
	require.Greater(t, len(written), 2*len(all), "too few files found")
	for _, p := range all {
		for _, text := range p.grep {
			inJSON, _ := json.Marshal(text)
			for name, content := range written {
				if strings.Contains(content, text) || strings.Contains(content, strings.Trim(string(inJSON), `"`)) {
					t.Errorf("%s: a %s (%s)", name, p.kind, p.outcome)
				}
			}
		}
	}
}

// awaitAsked waits until a request is pending or settled.
func (h *rig) awaitAsked(id string) {
	h.t.Helper()
	await(h.t, h.layout.Pendings("default"), func() bool {
		_, err := os.Lstat(filepath.Join(h.layout.Pendings("default"), id+".json"))
		_, settled := os.Lstat(filepath.Join(h.agent.Responses, id+".json"))
		return err == nil || settled == nil
	})
}

// withoutAgentData removes the fields of the agent and of the handler from a
// document.
func withoutAgentData(t *testing.T, file string, b []byte) []byte {
	t.Helper()
	var doc map[string]json.RawMessage
	if filepath.Ext(file) != ".json" || json.Unmarshal(b, &doc) != nil {
		return b
	}
	switch filepath.Base(filepath.Dir(filepath.Dir(file))) {
	case "records", "receipts":
		delete(doc, "request")
		delete(doc, "pending")
		delete(doc, "facts")
		doc["response"] = withoutAgentData(t, filepath.Join("responses", "x.json"), unquoted(doc["response"]))
	default:
		switch filepath.Base(filepath.Dir(file)) {
		case "pending_approvals":
			for _, name := range []string{"request_data", "target", "summary", "agent", "proof", "facts", "runs"} {
				delete(doc, name)
			}
		case "responses":
			if bytes.Contains(doc["error"], []byte("Execution failed")) {
				delete(doc, "error")
			}
		}
	}
	out, err := json.Marshal(doc)
	require.NoError(t, err)
	return out
}

// unquoted is a value, or the content of a JSON string.
func unquoted(v json.RawMessage) []byte {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return []byte(s)
	}
	return v
}
