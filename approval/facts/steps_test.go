package facts_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// The facts of a call are those of the same request, but that what is not known, or not described, is left out.
func TestFactsOfAStep(t *testing.T) {
	args := argTypes("to", facts.TypeRecipients, "file", facts.TypePath, "url", facts.TypeURL, "sum", facts.TypeAmount, "table", facts.TypeTable, "note", facts.TypeText)
	left := func(domain, op, name string) approval.HostFact {
		return approval.HostFact{Domain: domain, Op: op, Name: name, Omitted: 1, From: facts.FromArgument}
	}
	to := approval.HostFact{Domain: facts.Mail, Op: "send", Name: "recipient", Values: []string{"a@x.org"}, From: facts.FromArgument}
	host := approval.HostFact{Domain: facts.Host, Op: "http", Name: "host", Values: []string{"api.x.org"}, From: facts.FromTemplate}
	for why, tc := range map[string]struct {
		tool   approval.Tool
		data   string
		opaque []string
		want   []approval.HostFact
	}{
		"known":          {approval.Tool{Capability: "mail:send"}, `{"to":"a@x.org","note":"hi"}`, nil, []approval.HostFact{to}},
		"an opaque text": {approval.Tool{Capability: "mail:send"}, `{"to":"a@x.org"}`, []string{"note"}, []approval.HostFact{to}},
		"opaque": {approval.Tool{Capability: "mail:send"}, `{}`, []string{"to", "file", "url", "sum", "table"}, []approval.HostFact{
			left(facts.Mail, "send", "recipient"), left(facts.File, "send", "path"), left(facts.Host, "send", "host"), left(facts.Money, "send", "amount"), left(facts.Database, "send", "table"),
		}},
		"an opaque recipient of a channel":   {approval.Tool{Capability: "channel:out"}, `{}`, []string{"to"}, []approval.HostFact{left("channel", "out", "recipient")}},
		"mail that does not say to whom":     {approval.Tool{Capability: "mail:send"}, `{}`, nil, []approval.HostFact{left(facts.Mail, "send", "recipient")}},
		"a file that is not named":           {approval.Tool{Capability: "fs:write"}, `{"to":"a@x.org"}`, nil, []approval.HostFact{{Domain: facts.Mail, Op: "write", Name: "recipient", Values: []string{"a@x.org"}, From: facts.FromArgument}, left(facts.File, "write", "path")}},
		"a host that is not named":           {approval.Tool{Capability: "network:http"}, `{}`, nil, []approval.HostFact{left(facts.Host, "http", "host")}},
		"a host that the handler names":      {approval.Tool{Capability: "network:http", Handler: approval.Handler{Kind: approval.HandlerHTTP, HTTP: approval.HTTP{URL: "https://api.x.org/"}}}, `{}`, nil, []approval.HostFact{host}},
		"nothing is said of it":              {approval.Tool{}, `{"note":"x"}`, nil, []approval.HostFact{left(facts.Program, "", "program_sha256")}},
		"no capability, but what it touches": {approval.Tool{}, `{"to":"a@x.org"}`, nil, []approval.HostFact{{Domain: facts.Mail, Name: "recipient", Values: []string{"a@x.org"}, From: facts.FromArgument}}},
		"the clock":                          {approval.Tool{Capability: "time:read"}, `{}`, nil, nil},
		"a command":                          {approval.Tool{Capability: "code:exec"}, `{}`, []string{"cmd"}, []approval.HostFact{{Domain: facts.Command, Name: "program", Omitted: 1, From: facts.FromCommand}}},
	} {
		tc.tool.Name, tc.tool.Args = "t", args
		call := approval.Call{Tool: "t", Data: approval.Raw(tc.data)}
		for _, name := range tc.opaque {
			call.Opaque = append(call.Opaque, approval.ResultRef{Arg: name, Step: 1})
		}
		e := facts.OfStep(tc.tool, &call)
		require.Nil(t, e.Proof)
		var got []approval.HostFact
		for _, h := range e.Host {
			if h.From == facts.FromDigest {
				require.Equal(t, []string{approval.Digest([]byte(tc.data))}, h.Values)
				continue
			}
			got = append(got, h)
		}
		require.Equal(t, tc.want, got, why)
	}
}

// The evidence of a program says of each fact which step it is of.
func TestEvidenceOfAProgram(t *testing.T) {
	each := []approval.Evidence{
		{Host: []approval.HostFact{{Domain: "a"}, {Domain: "b"}}}, {}, {Host: []approval.HostFact{{Domain: "a"}}, Proof: &approval.Proof{Verified: true}},
	}
	require.Equal(t, approval.Evidence{Host: []approval.HostFact{{Domain: "a", Step: 1}, {Domain: "b", Step: 1}, {Domain: "a", Step: 3}}}, facts.ProgramEvidence(each))
	require.Zero(t, each[0].Host[0].Step, "those of the step do not change")
	require.Zero(t, facts.ProgramEvidence(nil))
}
