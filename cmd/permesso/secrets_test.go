package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/secrets"
)

// secretive asks everybody for everything, with targets and summaries that are
// made of what the agent wrote.
const secretive = `log_level = "debug"
[workspaces.default]
limits = { pending = 1000, per_minute = 100000, ask_per_minute = 100000 }
[tools.send]
capability = "channel:out"
target = "{a}{b}"
summary = "{a}{b} -> somewhere"
territory = "permanent"
handler = { kind = "command", argv = ["/bin/true"] }
[tools.breaks]
target = "{a}"
summary = "{a}"
handler = { kind = "command", argv = ["/bin/sh", "-c", 'echo "what is $1?" >&2; exit 3', "sh", "{a}"] }
[tools.free]
trust = false
target = "{a}"
handler = { kind = "command", argv = ["/bin/true"] }
[tools.never]
target = "{a}"
[[rules]]
match = { tool = "free" }
outcome = "allow"
[[rules]]
match = { tool = "never" }
outcome = "deny"
`

// plantedSecret is one secret, and the request that carries it.
type plantedSecret struct {
	kind, text string
	grep       []string // what must be found nowhere
	body       string
	fate       string
}

// plantSecrets makes 50 requests with a secret of another kind each, in turns
// disguised, placed and fated in another way.
func plantSecrets(t *testing.T) []plantedSecret {
	t.Helper()
	rnd := rand.New(rand.NewPCG(4, 2))
	scan, err := secrets.New()
	require.NoError(t, err)
	fates := []string{"approve", "deny", "expire", "malformed", "free", "never", "breaks"}
	quote := func(s string) string {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		return string(b)
	}
	var all []plantedSecret
	for _, r := range secrets.Rules() {
		text := sampleOf(scan, r, rnd)
		if text == "" || len(all) == 50 {
			continue
		}
		i := len(all)
		p := plantedSecret{kind: r.ID, text: text, grep: []string{text}, fate: fates[i%len(fates)]}
		half := len(text) / 2
		a, b, title, why := "nothing", "", "a title", "a reason"
		switch i % 8 {
		case 0:
			a = text
		case 1:
			a = base64.StdEncoding.EncodeToString([]byte(text))
			p.grep = append(p.grep, a)
		case 2:
			a, b = text[:half], text[half:]
			p.grep = append(p.grep, a, b)
		case 3:
			a = text[:half] + "\u200b" + text[half:]
			p.grep = append(p.grep, a)
		case 4:
			a = text + " # gitleaks:allow"
		case 5:
			title = text
		case 6:
			why = "I need " + text
		case 7:
			b = "x " + text + " y"
		}
		tool := map[string]string{"free": "free", "never": "never", "breaks": "breaks"}[p.fate]
		if tool == "" {
			tool = "send"
		}
		extra := ""
		switch p.fate {
		case "expire":
			extra = `,"expires_in_sec":1`
		case "malformed":
			extra = `,` + quote(text) + `:` + quote(text)
		}
		p.body = fmt.Sprintf(`{"tool_name":%q,"request_data":{"a":%s,"b":%s},"title":%s,"rationale":%s%s}`, tool, quote(a), quote(b), quote(title), quote(why), extra)
		all = append(all, p)
	}
	require.Len(t, all, 50)
	return all
}

// sampleOf is a secret of one line that the scan finds, and that is long enough
// for nothing else to look like it.
func sampleOf(scan *secrets.Scanner, r secrets.Rule, rnd *rand.Rand) string {
	for range 50 {
		text, ok := r.Sample(rnd)
		text = strings.TrimSpace(text)
		if ok && len(text) >= 20 && len(text) < 200 && !strings.ContainsAny(text, "\n\r\\\"'`") && len(scan.Spans(text)) > 0 {
			return text
		}
	}
	return ""
}

// Nothing that the run writes holds a secret. Set aside are, and nothing else:
//
//   - requests/ID.json, which the agent itself wrote
//   - of a pending: request_data, and what it shows of it to people, who see it
//     redacted: target, summary, agent
//   - of a claim and a record: the kept bytes of that request or pending, and
//     the output of a handler, which says what it likes (result, error, and the
//     same in the response)
//   - what a handler was given
func TestFiftySecretsAreFoundNowhere(t *testing.T) {
	h := newPlace(t, "default", secretive)
	d := h.serve()
	all := plantSecrets(t)
	ids := make([]string, len(all))
	var said bytes.Buffer
	run := func(args ...string) {
		code, out, errs := h.run("", args...)
		fmt.Fprintf(&said, "%s\n%s\n", out, errs)
		require.Equal(t, codeDone, code, "%v: %s", args, errs)
	}
	for i, p := range all {
		ids[i] = h.ask(p.body)
	}
	for i, p := range all {
		switch p.fate {
		case "approve", "deny", "expire", "free", "breaks":
			h.awaitAsked(ids[i])
		}
	}
	run("pending", "--all")
	for i, p := range all {
		switch p.fate {
		case "approve", "breaks", "free":
			run("show", ids[i])
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
	require.NotContains(t, said.String(), `"kind":"grant"`, "a target that may be a secret is not remembered")
	d.kill()
	d = h.serve()
	d.awaitLog("serving")
	d.stop()

	written := map[string]string{"what the commands said": said.String()}
	require.NoError(t, filepath.WalkDir(h.dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || file == h.config || strings.HasPrefix(file, h.agent.Requests) {
			return err
		}
		b, err := os.ReadFile(file)
		written[strings.TrimPrefix(file, h.dir)] = string(setAside(t, file, b))
		return err
	}))
	require.Greater(t, len(written), 2*len(all), "looked in the wrong folder")
	for _, p := range all {
		for _, text := range p.grep {
			inJSON, _ := json.Marshal(text)
			for name, content := range written {
				if strings.Contains(content, text) || strings.Contains(content, strings.Trim(string(inJSON), `"`)) {
					t.Errorf("%s: a %s (%s)", name, p.kind, p.fate)
				}
			}
		}
	}
}

// awaitAsked waits until a request waits for a person or is over.
func (h *place) awaitAsked(id string) {
	h.t.Helper()
	await(h.t, h.layout.Pendings("default"), func() bool {
		_, err := os.Lstat(filepath.Join(h.layout.Pendings("default"), id+".json"))
		_, settled := os.Lstat(filepath.Join(h.agent.Responses, id+".json"))
		return err == nil || settled == nil
	})
}

// setAside takes out of a document what it keeps of the agent's and of a
// handler's.
func setAside(t *testing.T, file string, b []byte) []byte {
	t.Helper()
	var doc map[string]json.RawMessage
	if filepath.Ext(file) != ".json" || json.Unmarshal(b, &doc) != nil {
		return b
	}
	switch filepath.Base(filepath.Dir(filepath.Dir(file))) {
	case "records", "receipts":
		delete(doc, "request")
		delete(doc, "pending")
		doc["response"] = setAside(t, filepath.Join("responses", "x.json"), unquoted(doc["response"]))
	default:
		switch filepath.Base(filepath.Dir(file)) {
		case "pending_approvals":
			for _, name := range []string{"request_data", "target", "summary", "agent"} {
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

// unquoted is a value, or what a string of it holds.
func unquoted(v json.RawMessage) []byte {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return []byte(s)
	}
	return v
}
