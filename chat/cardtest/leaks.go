package cardtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Secretive is a request with a secret, which leaves the host in no text about it.
type Secretive struct {
	Name    string
	Pending *approval.Pending
	parts   []string // of the secret: none may be read anywhere
}

// RequireHidden fails if a text has a part of the secret.
func (s Secretive) RequireHidden(t testing.TB, what, text string) {
	t.Helper()
	for _, part := range s.parts {
		require.NotContains(t, strings.ToLower(text), strings.ToLower(part), "%s, in %s", s.Name, what)
	}
}

// Made-up secrets: a token that a mask may hide where it stands alone, and one that no mask may hide.
const (
	madeUpToken = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	madeUpKey   = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq0FqGkW9zX1c3v5b7n9m2k4j6h8g0f\n" +
		"QmF0dGVyeUhvcnNlU3RhcGxlQ29ycmVjdEJhdHRlcnlIb3JzZQ\n-----END RSA PRIVATE KEY-----"
)

// PrivateKey is a made-up secret that no mask may hide.
func PrivateKey() string { return madeUpKey }

// secretForms are values of each type with a secret at a place of its own.
var secretForms = map[string][]string{
	"text": {"%s", "note: %s"}, "path": {"/srv/%s/x", "%s"}, "url": {"https://%s.example.org/", "https://example.org/%s"},
	"host": {"%s.example.org"}, "table": {"%s", "\"%s"}, "program": {"x = '%s'"}, "json": {"%s"}, "list": {"%s"},
	"recipients": {"%s@example.org", "ann@%s.example.org", "Ann <%s@example.org>", "Ann %s <ann@example.org>"},
	"diff":       {"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+%s\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+key = '%s'\n"},
	"command": {
		"%s -x", "echo %s", "curl -H 'A: %s' x", "cat <<E\n%s\nE\n", "tee %s", "cp a b/%s", "curl https://%s.example.org/x",
		"curl -o %s https://x.example", "curl --output=%s x.example", "dd of=%s", "ssh %s@host x", "ssh %s", "scp a %s:b", "sudo %s",
		"bash -c %s", "export %s=1", "A=%s B=2 env", "PATH=%s x", "echo > %s", "git clone https://x:%s@github.com/a/b",
		"git clone https://x:y@%s:80/b", "alias a=%s", "f() { %s; }", "eval %s", "find . -exec %s ;",
	},
}

// SecretiveRequests have a secret in each place where an agent, or a file of this host, may put one.
func SecretiveRequests() (all []Secretive) {
	for _, secret := range []string{madeUpToken, madeUpKey} {
		for _, typ := range slices.Sorted(maps.Keys(secretForms)) {
			for _, form := range secretForms[typ] {
				all = append(all, inArgument(typ, form, secret)...)
			}
		}
		all = append(all, elsewhere(secret)...)
	}
	return all
}

// inArgument puts a secret into an argument, alone and in a list, for tools that show it in the summary, in the
// target and in the invocation. What the gate refuses is left out.
func inArgument(typ, form, secret string) (all []Secretive) {
	one := str(fmt.Sprintf(form, secret))
	two := list()
	two.items = []*value{one, str("second@example.org")}
	for _, v := range []*value{one, two} {
		for _, t := range []approval.Tool{
			{Name: "x", Summary: "do {v}", Target: "z", Handler: command("/bin/x")},
			{Name: "x", Target: "{v}", Handler: command("/bin/x", "--v={v}")},
			{Name: "x", Summary: "{v}", Handler: approval.Handler{Kind: approval.HandlerNone}},
		} {
			t.Args = map[string]approval.Argument{"v": {Type: typ}}
			data := object()
			data.set("v", v)
			if p, ok := pending(request{tool: t, data: data, raw: data.json(nil)}); ok {
				for _, own := range [][]string{nil, {"example.net"}} {
					q := *p
					q.OwnDomains = own
					all = append(all, secretive(fmt.Sprintf("%s %q in a %s", typ, form, t.Handler.Kind), &q, secret))
					for steps := range 3 {
						program := programOf(&q, steps+1, "def main():\n    tools.x(v = '"+secret+"')\n")
						all = append(all, secretive(fmt.Sprintf("%s %q in a program", typ, form), program, secret))
					}
				}
			}
		}
	}
	return all
}

func secretive(name string, p *approval.Pending, secret string) Secretive {
	parts := []string{secret}
	if lines := strings.Split(secret, "\n"); len(lines) > 1 {
		parts = lines[1:3]
	}
	for _, part := range slices.Clone(parts) {
		parts = append(parts, part[:12])
	}
	return Secretive{name, p, parts}
}

// elsewhere puts a secret beside the arguments, into names, and into requests without a tool.
func elsewhere(secret string) (all []Secretive) {
	tool := func(data string, change func(*approval.Tool, *approval.Pending)) {
		t := approval.Tool{
			Name: "x", Args: map[string]approval.Argument{"v": {Type: "text"}, "amount": {Type: "amount", Currency: "c", Optional: true}, "c": {Optional: true}},
			Handler: command("/bin/x"),
		}
		name := fmt.Sprintf("a place beside the arguments, %d", len(all))
		p, ok := pending(request{tool: t, raw: data})
		if !ok {
			panic(name + " is refused")
		}
		change(&t, p)
		all = append(all, secretive(name, p, secret))
	}
	hello := `{"v":"hello"}`
	quoted := str(secret).json(nil)
	tool(`{"v":"a","amount":"5","c":"EUR"}`, func(_ *approval.Tool, p *approval.Pending) { // of an earlier version
		p.RequestData = approval.Raw(`{"v":"a","amount":"5","c":` + quoted + `}`)
	})
	for _, prose := range []approval.Prose{{Title: secret}, {Preview: secret}, {Rationale: "see " + secret + "\nthere"}} {
		tool(hello, func(_ *approval.Tool, p *approval.Pending) { p.Agent = prose })
		tool(hello, func(_ *approval.Tool, p *approval.Pending) { p.Agent, p.ToolName, p.ActionType = prose, "", "exec_cmd" })
		tool(hello, func(_ *approval.Tool, p *approval.Pending) {
			p.Agent, p.Type, p.Options = prose, approval.TypeQuestion, []string{secret, "no"}
		})
	}
	tool(hello, func(_ *approval.Tool, p *approval.Pending) { // a file of this host
		p.Runs.Args = map[string]approval.Argument{"v": {Type: "text", Writes: "f"}}
		p.Before = &approval.FileBefore{Arg: "v", Exists: true, Text: "a\n" + secret + "\nb\n"}
	})
	tool(hello, func(_ *approval.Tool, p *approval.Pending) { p.Summary, p.SummaryParts = secret, nil })
	for action, member := range map[string]string{
		"exec_cmd": "argv", "http_request": "url", "write_file": "path", "send_message": "to", "custom:x": "v",
	} {
		for _, raw := range []string{
			`{"` + member + `":` + quoted + `}`, `{"` + member + `":["curl","` + quoted[1:] + `]}`,
			`{"` + member + `":{"a":[{` + quoted + `:1}]}}`, `{` + quoted + `:"x"}`,
		} {
			p, _ := pending(request{action: action, raw: raw})
			all = append(all, secretive(fmt.Sprintf("%s %.20s without a tool", action, raw), p, secret))
		}
	}
	return all
}

// Texts are all texts that a channel makes of a pending request.
func Texts(s chat.Style, p *approval.Pending) map[string]string {
	c := s.Card(p)
	cut, _ := c.Text(500)
	said := p.Agent
	failed := strings.Join(append([]string{p.Summary, p.Target, string(p.RequestData), said.Title, said.Preview, said.Rationale}, p.Options...), " ")
	if p.Plan != nil {
		failed += " " + p.Plan.Source + " " + string(p.Plan.Steps[0].Data)
	}
	response := approval.Response{Version: approval.Version, RequestID: p.RequestID, Status: approval.StatusFailed, Error: &failed}
	raw, err := response.Encode()
	if err != nil {
		panic(err)
	}
	ended := approval.Record{RequestID: p.RequestID, Status: approval.StatusFailed, Response: raw}
	return map[string]string{
		"the card": c.String(), "the cut card": cut, "the reasons": strings.Join(c.Why, "\n"), "a line of a list": s.Line(p),
		"the subject": s.Headline(p), "a sentence": s.Brief(p), "a sentence about an outcome": s.OneLine(p, failed), "an outcome": s.Outcome(&ended), "a result": s.Result(p, p.RequestData),
		"lines of an outcome": strings.Join(s.Lines(p, failed), "\n"),
	}
}
