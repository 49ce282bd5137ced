package chat

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func TestNoticeHasTheHostsWordsAlone(t *testing.T) {
	en := Style{}
	require.Equal(t, Notice{"🔐 May I post?", "x_post · x.com/ricardo · personal · a7f3b2c1"}, en.Notice(example()))
	require.Equal(t, Notice{"🔐 Vuoi che pubblichi su X?", "x_post · x.com/ricardo · personal · a7f3b2c1"}, Style{Language: "it"}.Notice(example()))
	for _, row := range []struct {
		why    string
		change func(p *approval.Pending)
		want   Notice
	}{
		{"a summary, a title and a preview are the agent's", func(p *approval.Pending) {
			p.Summary, p.Agent.Title, p.Agent.Preview = "hostile", "hostile", "hostile"
		}, Notice{"🔐 May I post?", "x_post · x.com/ricardo · personal · a7f3b2c1"}},
		{"a verb with fields has the agent's values", func(p *approval.Pending) {
			p.RequestData, p.Verb = approval.Raw(`{"text":"hostile"}`), map[string]string{"en": "post {text}"}
		}, Notice{"🔐 May I run x_post?", "x_post · x.com/ricardo · personal · a7f3b2c1"}},
		{"a target with a sentence of the agent", func(p *approval.Pending) {
			p.RequestData, p.Target = approval.Raw(`{"to":"this is hostile"}`), "x.com/this is hostile"
		}, Notice{"🔐 May I post?", "x_post · personal · a7f3b2c1"}},
		{"a target of several arguments", func(p *approval.Pending) {
			p.RequestData, p.Target = approval.Raw(`{"to":["hostile","x y"]}`), `["hostile","x y"]`
		}, Notice{"🔐 May I post?", "x_post · personal · a7f3b2c1"}},
		{"the operator's own target may have spaces", func(p *approval.Pending) {
			p.RequestData, p.Target = approval.Raw(`{"name":"ann"}`), "this machine"
		}, Notice{"🔐 May I post?", "x_post · this machine · personal · a7f3b2c1"}},
		{"a long target", func(p *approval.Pending) { p.Target = strings.Repeat("hostile", 40) }, Notice{"🔐 May I post?", "x_post · personal · a7f3b2c1"}},
		{"a target with an invisible character", func(p *approval.Pending) { p.Target = "x.com/\u202eann" }, Notice{"🔐 May I post?", `x_post · x.com/\u{202E}ann · personal · a7f3b2c1`}},
		{"an unknown tool has a name of the agent", func(p *approval.Pending) { p.ToolSHA256, p.ToolName = "", "hostile" }, Notice{"🔐 May the agent send this?", "personal · a7f3b2c1"}},
		{"a request without a tool", func(p *approval.Pending) { p.ToolName, p.ActionType = "", "custom:hostile" }, Notice{"🔐 May the agent do this?", "personal · a7f3b2c1"}},
		{"a question is the agent's", func(p *approval.Pending) {
			p.Type, p.ToolName, p.Agent.Title = approval.TypeQuestion, "", "hostile"
		}, Notice{"🔐 The agent asks a question", "personal · a7f3b2c1"}},
	} {
		got := en.Notice(example(row.change))
		require.Equal(t, row.want, got, row.why)
		require.NotContains(t, got.Title+got.Text, "hostile", row.why)
	}
}

func TestNoticeHasNoSecret(t *testing.T) {
	n := Style{Redact: secretWords{"hunter2"}}.Notice(example(func(p *approval.Pending) { p.Target = "x.com/hunter2" }))
	require.Equal(t, "x_post · personal · a7f3b2c1", n.Text)
}

func TestSettledNotice(t *testing.T) {
	rec := &approval.Record{RequestID: cardID, Status: approval.StatusDenied}
	require.Equal(t, "Settled: denied · "+rec.ShortID(), Style{}.SettledNotice(rec))
	require.Equal(t, "Esito: negato · "+rec.ShortID(), Style{Language: "it"}.SettledNotice(rec))
}
