package gate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
)

// forecasts has a tool whose arguments have types, and whose URL takes one of them.
func forecasts() map[string]approval.Tool {
	return map[string]approval.Tool{"forecast": {
		Name: "forecast", Trust: gatetest.Harmless(), Summary: "forecast of {city}",
		Args: map[string]approval.Argument{
			"city": {Type: facts.TypeText}, "to": {Type: facts.TypeRecipients}, "dry_run": {Type: facts.TypeBool, Optional: true},
		},
		Handler: approval.Handler{Kind: approval.HandlerHTTP, HTTP: approval.HTTP{Method: "POST", URL: "https://api.example.org/v1/{city}", BodyArgs: true}},
	}}
}

// People are asked only about what can run.
func TestWhatCannotRunIsRefusedAtOnce(t *testing.T) {
	for _, c := range []struct{ why, tool, data, want string }{
		{"an unknown tool", "forcast", `{"city":"Roma","to":"a@b"}`, "tool_unknown near=forecast tool=forcast"},
		{"nothing like it", "delete_everything", `{}`, "tool_unknown tool=delete_everything"},
		{"another folder of the URL", "forecast", `{"city":"Roma/../x","to":"a@b"}`, `argument_unfillable name=city value="\"Roma/../x\"" why=fit_segment`},
		{"dots", "forecast", `{"city":"..","to":"a@b"}`, `argument_unfillable name=city value="\"..\"" why=fit_dots`},
		{"a missing argument", "forecast", `{"to":"a@b"}`, `argument_missing detail="city (text), dry_run (bool, optional), to (recipients)" name=city why=is_text`},
		{"an undeclared argument", "forecast", `{"city":"Roma","to":"a@b","bcc":"eve@x"}`, `argument_undeclared detail="city (text), dry_run (bool, optional), to (recipients)" name=bcc`},
		{"a misspelled one", "forecast", `{"ciy":"Roma","to":"a@b"}`, `argument_undeclared detail="city (text), dry_run (bool, optional), to (recipients)" name=ciy near=city`},
		{"another letter case", "forecast", `{"City":"Roma","to":"a@b"}`, `argument_undeclared detail="city (text), dry_run (bool, optional), to (recipients)" name=City near=city`},
		{"a list where a text belongs", "forecast", `{"city":["Roma"],"to":"a@b"}`, `argument_type name=city value="[\"Roma\"]" why=is_text`},
		{"a number where a text belongs", "forecast", `{"city":3,"to":"a@b"}`, `argument_type name=city value=3 why=is_text`},
		{"an object among recipients", "forecast", `{"city":"Roma","to":["a@b",{}]}`, `argument_type name=to value="[\"a@b\",{}]" why=is_recipients`},
		{"a flag as text", "forecast", `{"city":"Roma","to":"a@b","dry_run":"yes"}`, `argument_type name=dry_run value="\"yes\"" why=is_bool`},
		{"no recipients", "forecast", `{"city":"Roma","to":[]}`, `argument_type name=to value=[] why=is_recipients`},
		{"a header among recipients", "forecast", `{"city":"Roma","to":"a@b\nBcc: c@d"}`, `argument_type name=to value="\"a@b\\nBcc: c@d\"" why=is_recipients`},
	} {
		t.Run(c.why, func(t *testing.T) {
			h, k := newRig(t, options{inline: true, tools: forecasts()}), key(1)
			h.writeRequest(k, request(k, c.tool, c.data))
			h.step(k)
			require.Equal(t, "auto_rejected: "+c.want, h.outcome(k))
			require.False(t, h.has(approval.DocPending, k))
			require.True(t, h.isSettled(k))
			require.Equal(t, []event.Kind{event.AutoRejected}, h.history(k), "no channel hears of it")
			require.Zero(t, h.executor.count())
			log, err := os.ReadFile(filepath.Join(h.layout.Audit(), "log.jsonl"))
			require.NoError(t, err)
			require.NotContains(t, string(log)+h.logs.String(), "Roma", "the audit log and the log hold no arguments")
		})
	}
}

// A pending shows what runs, and only that runs.
func TestPendingShowsWhatRuns(t *testing.T) {
	h, k := newRig(t, options{inline: true, tools: forecasts()}), key(1)
	const data = `{"city":"San José","to":["a@b"],"dry_run":null}`
	h.ask(k, request(k, "forecast", data))
	want := approval.Runs{
		Kind: "http", Method: "POST", WithArgs: true, Args: forecasts()["forecast"].Args,
		URL: []approval.Part{{Text: "https://api.example.org/v1/"}, {Text: "San%20Jos%C3%A9", Arg: "city"}},
	}
	require.Equal(t, want, h.pending(k).Runs)
	h.decide(decision(k, approval.Approved))
	h.step(k)
	require.Equal(t, "approved", h.outcome(k))
	require.Equal(t, []string{data}, h.executor.argsOf(k))

	release := key(2)
	h.ask(release, `{"request_id":"`+release.ID+`","action_type":"exec_cmd","request_data":{"argv":["ls"]}}`)
	require.Equal(t, approval.Runs{Args: facts.ReleaseArgs("exec_cmd")}, h.pending(release).Runs, "types for display; nothing runs")

	question := key(3)
	h.ask(question, `{"request_id":"`+question.ID+`","type":"question","tool_name":"nosuch","title":"Which?","options":["a","b"]}`)
	require.Zero(t, h.pending(question).Runs)
}

// Only the agent knows what a call of its own takes, also one that takes nothing.
func TestACallThatNoTableNamesCanBeApproved(t *testing.T) {
	for _, data := range []string{`{}`, `{"command":"ls"}`, `{"what":{}}`} {
		t.Run(data, func(t *testing.T) {
			h, k := newRig(t, options{inline: true}), key(1)
			h.ask(k, request(k, "ExitPlanMode", data, `"execution":"agent"`))
			require.True(t, h.pending(k).Runs.Unlisted)
			h.decide(decision(k, approval.Approved))
			h.step(k)
			require.Equal(t, "approved", h.outcome(k))
		})
	}
}

// A version that would run something else than was shown does not run it. The first
// version showed no invocation.
func TestOnlyWhatWasShownRuns(t *testing.T) {
	for shown, edit := range map[string]func(*approval.Runs){
		"another URL": func(r *approval.Runs) { r.URL[0].Text = strings.Replace(r.URL[0].Text, "v1", "v0", 1) },
		"no runs":     func(r *approval.Runs) { *r = approval.Runs{} },
	} {
		t.Run(shown, func(t *testing.T) {
			h, k := newRig(t, options{inline: true, tools: forecasts()}), key(1)
			h.ask(k, request(k, "forecast", `{"city":"Roma","to":"a@b"}`))
			p := h.pending(k)
			edit(&p.Runs)
			body, err := p.Encode()
			require.NoError(t, err)
			require.NoError(t, os.Remove(filepath.Join(h.layout.Pendings(personal), k.ID+".json")))
			h.writeDoc(approval.DocPending, k, string(h.key.Seal(approval.DocPending, k, body)))
			h.decide(decision(k, approval.Approved))
			h.step(k)
			require.Equal(t, "failed: the tool changed, ask again", h.outcome(k))
			require.Zero(t, h.executor.count())
		})
	}
}
