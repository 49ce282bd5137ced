package policy_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// harmless gives no reason to ask.
var harmless = approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "false"}

func factsFor(capability string) approval.Facts {
	return approval.Facts{
		RequestID: "aaaaaaaaaaaaaaaa", Workspace: "w", Autonomy: grant.Supervised, Tool: "t", KnownTool: true,
		ActionType: "custom:t", Capability: capability, Target: "/data/a.txt", SessionID: "s1", ClientID: "ws:w",
		ToolSHA256: "definition", Targeted: true, Trust: harmless, Args: approval.Raw(`{}`), Now: noon,
	}
}

func engine(t testing.TB, c policy.Config) *policy.Engine {
	t.Helper()
	e := &policy.Engine{Resolve: noLinks}
	require.NoError(t, e.Load(c))
	return e
}

// noLinks resolves paths where there are no links.
func noLinks(name string) (string, error) { return path.Clean(name), nil }

func rule(o approval.Outcome) policy.Rule {
	return policy.Rule{Name: "r", Tool: policy.Names{"t"}, Outcome: o}
}

// grants returns the grants that codes 2 and 6 give for f, and one for its whole tool.
func grants(f approval.Facts) []grant.Grant {
	kind, target := "exact", f.Target
	if c, ok := facts.CapabilityNamed(f.Capability); ok {
		kind = c.TargetKind
	}
	always := grant.Grant{
		Version: grant.Version, ID: "0000000000000002", By: "ann", CreatedAt: noon.Add(-time.Hour), ExpiresAt: noon.Add(time.Hour),
		Terms: approval.Terms{
			Form: grant.Target, Workspace: f.Workspace, ClientID: f.ClientID, Tool: f.Tool, ToolSHA256: f.ToolSHA256,
			TargetKind: kind, Target: target,
		},
	}
	if kind == "none" {
		always.Form, always.TargetKind, always.Target = grant.Tool, "", ""
	}
	session, tool := always, always
	session.ID, session.SessionID = "0000000000000001", f.SessionID
	tool.ID, tool.Form, tool.TargetKind, tool.Target = "0000000000000003", grant.Tool, "", ""
	return []grant.Grant{session, always, tool}
}

func addGrants(t testing.TB, e *policy.Engine, gs ...grant.Grant) {
	t.Helper()
	for _, g := range gs {
		require.NoError(t, e.AddGrant(g))
	}
}

func TestTableOf39(t *testing.T) {
	const d, a, y = approval.Deny, approval.Ask, approval.Allow
	want := map[string][3]approval.Outcome{ // readonly, supervised, full
		"fs:read":       {a, a, y},
		"fs:write":      {d, a, y},
		"code:exec":     {d, a, a},
		"network:http":  {d, a, y},
		"llm:local":     {y, y, y},
		"llm:online":    {d, a, y},
		"mail:read":     {a, a, y},
		"mail:send":     {d, a, a},
		"channel:in":    {y, y, y},
		"channel:out":   {d, a, y},
		"time:read":     {y, y, y},
		"parse:local":   {y, y, y},
		"calendar:read": {a, a, y},
	}
	require.Len(t, facts.Capabilities(), 13)
	for _, c := range facts.Capabilities() {
		for i, level := range []string{grant.ReadOnly, grant.Supervised, grant.Full} {
			require.Equal(t, want[c.Name][i], policy.Table(level, c.Name), "%s %s", level, c.Name)
			f := factsFor(c.Name)
			f.Autonomy = level
			require.Equal(t, want[c.Name][i], engine(t, policy.Config{}).Judge(f).Outcome, "%s %s through the engine", level, c.Name)
		}
	}
	require.Equal(t, d, policy.Table("", "time:read"), "an invalid level")
	require.Equal(t, d, policy.Table(grant.Full, "fs:delete"), "a closed set")
	f := factsFor("fs:delete")
	f.Autonomy = grant.Full
	require.Equal(t, d, engine(t, policy.Config{Rules: []policy.Rule{rule(y)}}).Judge(f).Outcome)
}

func TestReadonlyBlocksWriteExecAndSend(t *testing.T) {
	for _, c := range []string{"fs:write", "code:exec", "mail:send", "channel:out", "network:http"} {
		for _, level := range []string{grant.ReadOnly, "", "ReadOnly", "root"} {
			f := factsFor(c)
			f.Autonomy = level
			e := engine(t, policy.Config{Rules: []policy.Rule{rule(approval.Allow)}})
			addGrants(t, e, grants(f)...)
			require.Equal(t, approval.Deny, e.Judge(f).Outcome, "%s %q", c, level)
		}
	}
}

func TestFullStillAsksForExecAndSend(t *testing.T) {
	for _, c := range []string{"code:exec", "mail:send"} {
		f := factsFor(c)
		f.Autonomy = grant.Full
		e := engine(t, policy.Config{Rules: []policy.Rule{rule(approval.Allow)}})
		require.Equal(t, approval.Ask, e.Judge(f).Outcome, c)
	}
}

func TestGrantNeverLiftsADeny(t *testing.T) {
	forbidden := harmless
	forbidden.PublicSink = "forbidden"
	for why, change := range map[string]func(*approval.Facts, *policy.Config){
		"a deny rule":          func(_ *approval.Facts, c *policy.Config) { c.Rules = []policy.Rule{rule(approval.Deny)} },
		"the table":            func(f *approval.Facts, _ *policy.Config) { f.Autonomy = grant.ReadOnly },
		"a forbidden property": func(f *approval.Facts, _ *policy.Config) { f.Trust = forbidden },
		"a hard budget": func(f *approval.Facts, c *policy.Config) {
			f.Cost, c.Limits = codec.Units(5), map[string]policy.Limits{"w": {Day: policy.Budget{Hard: codec.Units(4)}}}
		},
		"a hard rate": func(_ *approval.Facts, c *policy.Config) {
			c.Limits = map[string]policy.Limits{"w": {Deny: map[string]policy.Rate{"fs:write": {Burst: 0, Per: time.Hour}}}}
		},
	} {
		f, c := factsFor("fs:write"), policy.Config{}
		change(&f, &c)
		e := engine(t, c)
		addGrants(t, e, grants(f)...)
		require.Equal(t, approval.Deny, e.Judge(f).Outcome, why)
	}
}

func TestGrantNeverLiftsAlways(t *testing.T) {
	for _, c := range []string{"code:exec", "mail:send"} {
		for _, level := range grant.Levels()[1:] {
			f := factsFor(c)
			f.Autonomy = level
			e := engine(t, policy.Config{})
			addGrants(t, e, grants(f)...)
			require.Equal(t, approval.Ask, e.Judge(f).Outcome, "%s %s", c, level)
		}
	}
}

func TestGrantLiftsTheTablesAskAndADangerousWrite(t *testing.T) {
	for _, dangerous := range []approval.Property{"false", "true"} {
		for i, g := range grants(factsFor("fs:write")) {
			f := factsFor("fs:write")
			f.Trust.DangerousWrites = dangerous
			e := engine(t, policy.Config{})
			require.Equal(t, approval.Ask, e.Judge(f).Outcome)
			addGrants(t, e, g)
			r := e.Judge(f)
			require.Equal(t, approval.Allow, r.Outcome, "grant %d, dangerous %s: %v", i, dangerous, r.Reasons)
			require.Equal(t, g.ID, r.Grant)
		}
	}
}

// tainted is an engine whose client has both taints.
func tainted(t testing.TB, c policy.Config) *policy.Engine {
	e := engine(t, c)
	e.Learn(event.Entry{
		Event: event.AutoApproved, Workspace: "w", RequestID: "bbbbbbbbbbbbbbbb", SessionID: "s1", Time: noon,
		Taints: []string{grant.TaintCorruption, grant.TaintSecret},
	})
	return e
}

// noGrantLifts are engines that ask about a request, and would with any grant.
var noGrantLifts = map[string]func(*testing.T, *approval.Facts) *policy.Engine{
	"secrets": func(t *testing.T, _ *approval.Facts) *policy.Engine {
		e := engine(t, policy.Config{Rules: []policy.Rule{rule(approval.Allow)}})
		e.Scan = func(*approval.Facts) []approval.Finding {
			return []approval.Finding{{Kind: "k", Where: "x", Length: 9}}
		}
		return e
	},
	"the trifecta": func(t *testing.T, f *approval.Facts) *policy.Engine {
		f.Trust.PublicSink = "true"
		return tainted(t, policy.Config{Rules: []policy.Rule{rule(approval.Allow)}})
	},
	"a soft budget": func(t *testing.T, f *approval.Facts) *policy.Engine {
		f.Cost = codec.Units(5)
		return engine(t, policy.Config{
			Rules: []policy.Rule{rule(approval.Allow)}, Limits: map[string]policy.Limits{"w": {Session: policy.Budget{Soft: codec.Units(4)}}},
		})
	},
	"a rate": func(t *testing.T, _ *approval.Facts) *policy.Engine {
		return engine(t, policy.Config{
			Rules:  []policy.Rule{rule(approval.Allow)},
			Limits: map[string]policy.Limits{"w": {Ask: map[string]policy.Rate{"fs:write": {Burst: 0, Per: time.Hour}}}},
		})
	},
	"a helper of the agent": func(t *testing.T, f *approval.Facts) *policy.Engine {
		f.Subagent = "explorer"
		return engine(t, policy.Config{})
	},
	"what changes who is asked": func(t *testing.T, f *approval.Facts) *policy.Engine {
		f.ByAgent, f.Args = true, approval.Raw(`{"path":"/home/ann/.bashrc"}`)
		return engine(t, policy.Config{Rules: []policy.Rule{rule(approval.Allow)}})
	},
	"a call that no table declares": func(t *testing.T, f *approval.Facts) *policy.Engine {
		f.ByAgent, f.Unlisted = true, true
		return engine(t, policy.Config{Rules: []policy.Rule{rule(approval.Allow)}})
	},
	"a rule": func(t *testing.T, _ *approval.Facts) *policy.Engine {
		always := rule(approval.Ask)
		always.Always = true
		return engine(t, policy.Config{Rules: []policy.Rule{always}})
	},
}

func TestGrantNeverLiftsSecretsTheTrifectaALimitOrAlwaysAsk(t *testing.T) {
	for why, set := range noGrantLifts {
		f := factsFor("fs:write")
		e := set(t, &f)
		addGrants(t, e, grants(f)...)
		r := e.Judge(f)
		require.Equal(t, approval.Ask, r.Outcome, "%s: %v", why, r.Reasons)
		require.Empty(t, r.Grant, why)
	}
}

// A rule may be for the helpers of an agent. Without that it is for both.
func TestRulesForSubagents(t *testing.T) {
	only := rule(approval.Allow)
	only.Subagent = policy.Names{"expl*"}
	f := factsFor("fs:write")
	require.Equal(t, approval.Ask, engine(t, policy.Config{Rules: []policy.Rule{only}}).Judge(f).Outcome)
	require.Equal(t, approval.Allow, engine(t, policy.Config{Rules: []policy.Rule{rule(approval.Allow)}}).Judge(f).Outcome)
	f.Subagent = "explorer"
	require.Equal(t, approval.Allow, engine(t, policy.Config{Rules: []policy.Rule{only}}).Judge(f).Outcome)
	require.Equal(t, approval.Allow, engine(t, policy.Config{Rules: []policy.Rule{rule(approval.Allow)}}).Judge(f).Outcome)
	only.Subagent = policy.Names{"*"}
	f.Subagent = ""
	require.Equal(t, approval.Ask, engine(t, policy.Config{Rules: []policy.Rule{only}}).Judge(f).Outcome, "it is not a helper")
}

// An allow may also match a request without an argument; a deny never does so.
func TestOptionalConditions(t *testing.T) {
	r := rule(approval.Allow)
	r.Args = []policy.Condition{{Field: "n", Max: "3", Optional: true}}
	judge := func(r policy.Rule, args string) approval.Outcome {
		f := factsFor("fs:write")
		f.Args, f.Declared = approval.Raw(args), map[string]approval.Argument{"n": {Type: "number", Optional: true}, "path": {Type: "path"}}
		return engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome
	}
	require.Equal(t, approval.Allow, judge(r, `{"path":"/x"}`))
	require.Equal(t, approval.Allow, judge(r, `{"n":3}`))
	for _, args := range []string{`{"n":4}`, `{"n":null}`, `{"n":"3"}`, `{"n":[]}`, `{"n":{}}`} {
		require.Equal(t, approval.Ask, judge(r, args), args)
	}
	r.Args[0].Optional = false
	require.Equal(t, approval.Ask, judge(r, `{"path":"/x"}`))
	r.Args[0].Optional, r.Outcome = true, approval.Deny
	require.Equal(t, approval.Ask, judge(r, `{"path":"/x"}`), "it cannot be told")
	require.Equal(t, approval.Deny, judge(r, `{"n":3}`))
}

// An offer counts the earlier requests that it would have allowed, and no others.
func TestFigureCountsWhatAGrantLifts(t *testing.T) {
	figures := func(e *policy.Engine, f approval.Facts) (list [][2]int) {
		r := e.Judge(f)
		require.Equal(t, approval.Ask, r.Outcome)
		e.Learn(event.Entry{
			Event: event.Requested, Workspace: "w", RequestID: f.RequestID, Tool: f.Tool, ActionType: f.ActionType, ClientID: f.ClientID,
			SessionID: f.SessionID, Capability: f.Capability, Target: f.Target, Time: noon, Rule: r.Rule, Exact: r.Exact, Soft: r.Soft,
		})
		require.NoError(t, e.Load(policy.Config{}))
		e.Scan = nil
		f = factsFor("fs:write")
		for _, o := range e.Offers(f, e.Judge(f)) {
			list = append(list, [2]int{o.Would, o.Of})
		}
		return list
	}
	for why, set := range noGrantLifts {
		f := factsFor("fs:write")
		require.Equal(t, [][2]int{{0, 1}, {0, 1}}, figures(set(t, &f), f), why)
	}
	for why, c := range map[string]policy.Config{"the table": {}, "an ask rule": {Rules: []policy.Rule{rule(approval.Ask)}}} {
		require.Equal(t, [][2]int{{1, 1}, {1, 1}}, figures(engine(t, c), factsFor("fs:write")), why)
	}
}

func TestNewSessionKeepsTaints(t *testing.T) {
	sink := harmless
	sink.PublicSink = "true"
	f := factsFor("fs:write")
	f.Trust, f.Autonomy = sink, grant.Full
	e := tainted(t, policy.Config{})
	for _, session := range []string{"s1", "s2", ""} {
		f.SessionID = session
		require.Equal(t, "trifecta", e.Judge(f).Rule, "session %q", session)
	}
	f.Workspace, f.ClientID = "v", "ws:v"
	require.Equal(t, approval.Allow, e.Judge(f).Outcome, "another client has read nothing")

	bound := tainted(t, policy.Config{Bound: []string{"w"}})
	f = factsFor("fs:write")
	f.Trust, f.Autonomy = sink, grant.Full
	require.Equal(t, "trifecta", bound.Judge(f).Rule)
	f.SessionID = "s2"
	require.Equal(t, approval.Allow, bound.Judge(f).Outcome, "the host assigned this session, so it has no taint")
}

func TestOnlyTaintsClearedRemovesTaints(t *testing.T) {
	e := tainted(t, policy.Config{})
	e.Learn(event.Entry{Event: event.Started})
	require.Len(t, e.Taints("w")[""], 2)
	e.Learn(event.Entry{Event: event.TaintsCleared, Workspace: "w", By: "ann"})
	require.Empty(t, e.Taints("w"))
	e = tainted(t, policy.Config{Secrets: []string{"w"}})
	e.Learn(event.Entry{Event: event.TaintsCleared, Workspace: "w", By: "ann"})
	require.Equal(t, []string{grant.TaintSecret}, e.Taints("w")[""], "a configured taint cannot be cleared")
}

func TestGrantEnds(t *testing.T) {
	f := factsFor("fs:write")
	for why, change := range map[string]func(*grant.Grant){
		"expired":            func(g *grant.Grant) { g.ExpiresAt = noon },
		"revoked":            func(g *grant.Grant) { g.RevokedAt = noon.Add(-time.Minute) },
		"another workspace":  func(g *grant.Grant) { g.Workspace = "v" },
		"another client":     func(g *grant.Grant) { g.ClientID = "ws:v" },
		"another tool":       func(g *grant.Grant) { g.Tool = "u" },
		"another definition": func(g *grant.Grant) { g.ToolSHA256 = "other" },
	} {
		for _, g := range grants(f) {
			e := engine(t, policy.Config{})
			change(&g)
			addGrants(t, e, g)
			require.Equal(t, approval.Ask, e.Judge(f).Outcome, "%s %s", why, g.Form)
		}
	}
}

func TestGrantUsesAreCountedFromTheLog(t *testing.T) {
	f := factsFor("fs:write")
	g := grants(f)[1]
	g.MaxUses = 2
	use := event.Entry{Event: event.AutoApproved, Workspace: "w", Grant: g.ID, Time: noon}
	e := engine(t, policy.Config{})
	e.Learn(use) // the log is read before the grants
	addGrants(t, e, g)
	require.Equal(t, approval.Allow, e.Judge(f).Outcome)
	undo, no := e.Reserve(f, e.Judge(f), false)
	require.Nil(t, no)
	other := f
	other.RequestID = "cccccccccccccccc"
	require.Equal(t, approval.Ask, e.Judge(other).Outcome, "the last use is reserved")
	_, no = e.Reserve(other, approval.Ruling{Outcome: approval.Allow}, false)
	require.NotNil(t, no, "and cannot be reserved twice")
	undo()
	require.Equal(t, approval.Allow, e.Judge(other).Outcome, "the reservation was undone")
	use.RequestID = f.RequestID
	e.Learn(use)
	require.Equal(t, approval.Ask, e.Judge(other).Outcome, "used up")
	require.Equal(t, 2, e.Grants()[0].Uses)
	require.Equal(t, noon, e.Grants()[0].LastUsed)
}

func TestIncompleteGrantsAreRefused(t *testing.T) {
	f := factsFor("fs:write")
	for why, change := range map[string]func(*grant.Grant){
		"no date":                 func(g *grant.Grant) { g.ExpiresAt = time.Time{} },
		"ends before it begins":   func(g *grant.Grant) { g.ExpiresAt = g.CreatedAt },
		"no giver":                func(g *grant.Grant) { g.By = "" },
		"no form":                 func(g *grant.Grant) { g.Form = "" },
		"another form":            func(g *grant.Grant) { g.Form = grant.Again },
		"a field of another form": func(g *grant.Grant) { g.Words = []string{"ls"} },
		"version 1":               func(g *grant.Grant) { g.Version = 1 },
		"no client":               func(g *grant.Grant) { g.ClientID = "" },
		"no workspace":            func(g *grant.Grant) { g.Workspace = "" },
		"no definition":           func(g *grant.Grant) { g.ToolSHA256 = "" },
		"no id":                   func(g *grant.Grant) { g.ID = "x" },
	} {
		for _, g := range grants(f) {
			change(&g)
			require.Error(t, engine(t, policy.Config{}).AddGrant(g), "%s %s", why, g.Form)
		}
	}
}

func TestUnparsableDateIsExpiredNotEternal(t *testing.T) {
	g := grants(factsFor("fs:write"))[1]
	body, err := g.Encode()
	require.NoError(t, err)
	_, err = grant.Parse(body, g.ID)
	require.NoError(t, err)
	for _, date := range []string{`"never"`, `"2099"`, `""`, `null`, `0`, `"2099-13-01T00:00:00Z"`} {
		bad := []byte(replaceOnce(t, string(body), `"expires_at":"2026-11-21T13:00:00.000000000Z"`, `"expires_at":`+date))
		_, err := grant.Parse(bad, g.ID)
		require.Error(t, err, date)
	}
}

func TestPathGrantCoversFilesBelow(t *testing.T) {
	g := grants(factsFor("fs:write"))[1]
	g.Target = "/docs/invoices-2026/**"
	for target, want := range map[string]approval.Outcome{
		"/docs/invoices-2026/04-Acme.pdf":    approval.Allow,
		"/docs/invoices-2026/q1/04-Acme.pdf": approval.Allow,
		"/docs/invoices-2026":                approval.Ask, // the folder itself is not below it
		"/docs/invoices-2026-old/a.pdf":      approval.Ask,
		"/docs/invoices-2026/../secret":      approval.Ask,
		"/docs//invoices-2026/a.pdf":         approval.Ask,
		"/docs/invoices-2026/a\\b":           approval.Ask,
		"":                                   approval.Ask,
	} {
		e := engine(t, policy.Config{})
		addGrants(t, e, g)
		f := factsFor("fs:write")
		f.Target = target
		require.Equal(t, want, e.Judge(f).Outcome, "%q", target)
	}
	g.Target = "/docs/*/x.txt"
	e := engine(t, policy.Config{})
	addGrants(t, e, g)
	f := factsFor("fs:write")
	f.Target = "/docs/a/x.txt"
	require.Equal(t, approval.Allow, e.Judge(f).Outcome)
	f.Target = "/docs/a/b/x.txt"
	require.Equal(t, approval.Ask, e.Judge(f).Outcome)
}

func TestHostGrantIsForOneHost(t *testing.T) {
	f := factsFor("network:http")
	f.Target = "api.example.org"
	g := grants(f)[1]
	for target, want := range map[string]approval.Outcome{
		"api.example.org":                            approval.Allow,
		"API.example.org.":                           approval.Allow,
		"https://api.example.org/v1?x=1":             approval.Allow,
		"https://api.example.org:443/":               approval.Allow,
		"api.example.org:8443":                       approval.Ask,
		"https://api.example.org@evil.test/":         approval.Ask,
		"evil.test/api.example.org":                  approval.Ask,
		"api.example.org.evil.test":                  approval.Ask,
		"http://api.example.org/":                    approval.Ask,
		"https://evil.test/?https://api.example.org": approval.Ask,
		"file://api.example.org/etc/passwd":          approval.Ask,
		"https://api.example.org:80/":                approval.Ask,
		"https://api.example.org\\@evil.test":        approval.Ask,
		"":                                           approval.Ask,
	} {
		e := engine(t, policy.Config{})
		addGrants(t, e, g)
		f.Target = target
		require.Equal(t, want, e.Judge(f).Outcome, "%q", target)
	}

	// Without a scheme a program may speak http.
	e := engine(t, policy.Config{})
	g.Target = "https://api.example.org"
	addGrants(t, e, g)
	f.Target = "https://api.example.org/v1"
	require.Equal(t, approval.Allow, e.Judge(f).Outcome)
	for _, target := range []string{"api.example.org", "api.example.org/v1", "api.example.org:443", "api.example.org:80"} {
		f.Target = target
		require.Equal(t, approval.Ask, e.Judge(f).Outcome, "%q", target)
	}
}

// Where it cannot be told whether a condition holds, an allow does not apply and a deny asks,
// whatever was granted.
func TestConditionThatCannotBeEvaluatedIsNeverMilder(t *testing.T) {
	for why, c := range map[string]policy.Condition{
		"a missing field": {Field: "gone", Is: []string{"x"}},
		"no text":         {Field: "n", Is: []string{"1"}},
		"a relative path": {Field: "path", Is: []string{"/data/**"}},
		"not an object":   {Field: "n.a", Is: []string{"x"}},
	} {
		f := factsFor("fs:write")
		f.Args, f.Declared = approval.Raw(`{"n":1,"path":"data/x"}`), map[string]approval.Argument{"n": {Type: "text"}, "path": {Type: "path"}}
		allow, deny := rule(approval.Allow), rule(approval.Deny)
		allow.Args, deny.Args = []policy.Condition{c}, []policy.Condition{c}
		require.Equal(t, approval.Ask, engine(t, policy.Config{Rules: []policy.Rule{allow}}).Judge(f).Outcome, why)
		f.Autonomy = grant.Full
		e := engine(t, policy.Config{Rules: []policy.Rule{deny}})
		for _, g := range grants(f) {
			require.NoError(t, e.AddGrant(g))
		}
		r := e.Judge(f)
		require.Equal(t, approval.Ask, r.Outcome, why)
		require.Equal(t, "r", r.Rule, why)
		f.Args = approval.Raw(`[1]`)
		require.Equal(t, approval.Ask, e.Judge(f).Outcome, "no object")
	}
}

func TestRuleLiftsAlwaysOnlyWithEachArgument(t *testing.T) {
	f := factsFor("code:exec")
	f.Args = approval.Raw(`{"argv":["git","status"],"dir":"/src/x"}`)
	argv := policy.Condition{Field: "argv", Equals: approval.Raw(`["git", "status"]`)}
	dir := policy.Condition{Field: "dir", Is: []string{"/src/*"}}
	f.Declared = map[string]approval.Argument{"argv": {Type: "command"}, "dir": {Type: "path"}}
	for why, c := range map[string]struct {
		args []policy.Condition
		tool string
		want approval.Outcome
	}{
		"each argument":           {[]policy.Condition{argv, dir}, "t", approval.Allow},
		"one without a condition": {[]policy.Condition{argv}, "t", approval.Ask},
		"none":                    {nil, "t", approval.Ask},
		"no tool":                 {[]policy.Condition{argv, dir}, "*", approval.Ask},
		"a tool pattern":          {[]policy.Condition{argv, dir}, "t*", approval.Ask},
		"other words":             {[]policy.Condition{{Field: "argv", Equals: approval.Raw(`["git"]`)}, dir}, "t", approval.Ask},
	} {
		r := rule(approval.Allow)
		r.Tool, r.Args = policy.Names{c.tool}, c.args
		require.Equal(t, c.want, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, why)
	}
}

func TestBudgetIsEnforcedAtOnce(t *testing.T) {
	f := factsFor("fs:write")
	f.Autonomy, f.Cost = grant.Full, codec.Units(3)
	e := engine(t, policy.Config{Limits: map[string]policy.Limits{"w": {Day: policy.Budget{Soft: codec.Units(6), Hard: codec.Units(9)}}}})
	var undo []func()
	for i := range 4 {
		f.RequestID = fmt.Sprintf("%016d", i)
		back, no := e.Reserve(f, e.Judge(f), false)
		if i < 2 {
			require.Nil(t, no, "two fit under the soft limit")
			undo = append(undo, back)
			continue
		}
		require.NotNil(t, no)
		if i == 2 {
			require.Equal(t, approval.Ask, no.Outcome)
			back, no = e.Reserve(f, *no, true)
			require.Nil(t, no, "a person may go up to the hard limit")
			undo = append(undo, back)
			continue
		}
		require.Equal(t, approval.Deny, no.Outcome)
		_, no = e.Reserve(f, *no, true)
		require.NotNil(t, no, "a person may not exceed the hard limit")
	}
	for _, u := range undo {
		u()
	}
	require.Equal(t, approval.Allow, e.Judge(f).Outcome, "an undone reservation costs nothing")
}

func TestRateRefills(t *testing.T) {
	f := factsFor("fs:write")
	f.Autonomy = grant.Full
	c := policy.Config{Limits: map[string]policy.Limits{"w": {Ask: map[string]policy.Rate{"fs:write": {Burst: 2, Per: time.Hour}}}}}
	e := engine(t, c)
	use := event.Entry{Event: event.AutoApproved, Workspace: "w", Capability: "fs:write", Time: noon}
	e.Learn(use)
	require.Equal(t, approval.Allow, e.Judge(f).Outcome)
	e.Learn(use)
	require.Equal(t, approval.Ask, e.Judge(f).Outcome)
	f.Now = noon.Add(31 * time.Minute)
	require.Equal(t, approval.Allow, e.Judge(f).Outcome, "one token was refilled")
	f.Now = noon.Add(-10 * 365 * 24 * time.Hour)
	require.Equal(t, approval.Ask, e.Judge(f).Outcome, "a clock set back refills nothing")
}

func TestRulingExplainsItself(t *testing.T) {
	f := factsFor("fs:write")
	f.Autonomy = grant.ReadOnly
	r := engine(t, policy.Config{}).Judge(f)
	require.Equal(t, approval.Deny, r.Outcome)
	require.Equal(t, "table", r.Rule)
	require.Equal(t, []approval.Reason{approval.Because("table_deny", "level", "readonly", "capability", "fs:write")}, r.Reasons)
	require.Equal(t, []approval.Reason{approval.Because("raise_autonomy", "capability", "fs:write", "level", "supervised")}, r.Change)
	require.Empty(t, engine(t, policy.Config{Rules: []policy.Rule{rule(approval.Deny)}}).Judge(f).Change, "a higher level lifts no deny rule")
	f.Autonomy = grant.Full
	require.Empty(t, engine(t, policy.Config{}).Judge(f).Change)
}

func TestWouldHaveAllowed(t *testing.T) {
	e := engine(t, policy.Config{})
	for i := range 30 {
		x := event.Entry{
			Event: event.Requested, Workspace: "w", RequestID: fmt.Sprintf("%016d", i), Tool: "t", ActionType: "custom:t",
			ClientID: "ws:w", SessionID: "s1", Capability: "fs:write", Target: "/data/a.txt", Time: noon, Soft: i != 29,
		}
		if i%2 == 0 {
			x.Tool = "other"
		}
		e.Learn(x)
		x.ClientID = "ws:other"
		e.Learn(x)
	}
	f := factsFor("fs:write")
	for _, o := range e.Offers(f, e.Judge(f)) {
		require.Equal(t, 20, o.Of, "of this client")
		require.Equal(t, 9, o.Would, "every second request, without the one that would have been asked anyway")
	}
}

// Where a grant covers every command of the agent, it would have allowed those before.
func TestWouldHaveAllowedAnyCommand(t *testing.T) {
	e := engine(t, policy.Config{})
	e.Learn(event.Entry{
		Event: event.Requested, Workspace: "w", RequestID: "0000000000000009", ActionType: "exec_cmd", ClientID: "ws:w", Time: noon, Soft: true,
	})
	f := approval.Facts{
		RequestID: "0000000000000001", Workspace: "w", ClientID: "ws:w", ActionType: "exec_cmd", AnyExec: true,
		Args: approval.Raw(`{"command":"sh x"}`), Now: noon,
	}
	o := e.Offers(f, e.Judge(f))[1]
	require.Equal(t, grant.Action, o.Terms.Form)
	require.Equal(t, [2]int{1, 1}, [2]int{o.Would, o.Of})
}

// approved judges a request, approves it with a scope, and adds the grant.
func approved(t *testing.T, e *policy.Engine, f approval.Facts, s approval.Scope) *grant.Grant {
	t.Helper()
	p := &approval.Pending{RequestID: f.RequestID, ShortID: f.RequestID[:8], Offers: e.Offers(f, e.Judge(f))}
	g := grant.From(p, &approval.Decision{Verdict: approval.Approved, DecidedBy: "ann", DecidedAt: f.Now, Scope: s})
	if g != nil {
		addGrants(t, e, *g)
	}
	return g
}

func TestGrantFrom(t *testing.T) {
	e := engine(t, policy.Config{})
	f := factsFor("fs:write")
	f.Target = "/data/[a].txt"
	require.Nil(t, approved(t, e, f, approval.Once), "code 1 gives no grant")
	require.Equal(t, approval.Ask, e.Judge(f).Outcome)
	require.NotNil(t, approved(t, e, f, approval.Session))
	require.Equal(t, approval.Allow, e.Judge(f).Outcome, "the literal target")
	f.SessionID = "s2"
	require.Equal(t, approval.Ask, e.Judge(f).Outcome, "another session")
	require.NotNil(t, approved(t, e, f, approval.Always))
	f.SessionID = ""
	require.Equal(t, approval.Allow, e.Judge(f).Outcome)
	f.Target = "/data/a.txt"
	require.Equal(t, approval.Ask, e.Judge(f).Outcome, "not as a pattern")
	p := &approval.Pending{RequestID: f.RequestID, Offers: e.Offers(f, e.Judge(f))}
	require.Nil(t, grant.From(p, &approval.Decision{Verdict: approval.Denied, Scope: approval.Always}))
}

// What is offered for each kind of request, and what the grant then allows.
func TestOffers(t *testing.T) {
	tool := func(capability, target string) approval.Facts {
		f := factsFor(capability)
		f.Target, f.Targeted = target, target != ""
		return f
	}
	release := func(action, args string) approval.Facts {
		f := factsFor("")
		f.Tool, f.KnownTool, f.ToolSHA256, f.Targeted, f.Target = "", false, "", false, ""
		f.Trust, f.ActionType, f.Args = approval.Trust{}, action, approval.Raw(args)
		return f
	}
	with := func(f approval.Facts, change func(*approval.Facts)) approval.Facts { change(&f); return f }
	for _, row := range []struct {
		why        string
		f          approval.Facts
		form, says string // says: why not
		later      map[string]approval.Facts
		never      map[string]approval.Facts
	}{
		{
			why: "a path", f: tool("fs:write", "/srv/a"), form: grant.Target,
			later: map[string]approval.Facts{"other content": with(tool("fs:write", "/srv/a"), func(f *approval.Facts) { f.Args = approval.Raw(`{"x":1}`) })},
			never: map[string]approval.Facts{
				"another path":       tool("fs:write", "/srv/b"),
				"another tool":       with(tool("fs:write", "/srv/a"), func(f *approval.Facts) { f.Tool = "u" }),
				"another client":     with(tool("fs:write", "/srv/a"), func(f *approval.Facts) { f.ClientID = "api:x" }),
				"another definition": with(tool("fs:write", "/srv/a"), func(f *approval.Facts) { f.ToolSHA256 = "new" }),
			},
		},
		{why: "a path that is not clean", f: tool("fs:write", "/srv/../a"), says: "no_target"},
		{
			why: "a host", f: tool("network:http", "https://good.com/x"), form: grant.Target,
			later: map[string]approval.Facts{"another page": tool("network:http", "https://GOOD.com:443/y?z")},
			never: map[string]approval.Facts{
				"http":      tool("network:http", "http://good.com/x"),
				"a query":   tool("network:http", "http://127.0.0.1:8099/?https://good.com"),
				"a path":    tool("network:http", "https://evil.com/https://good.com/"),
				"a file":    tool("network:http", "file://good.com/x"),
				"a subhost": tool("network:http", "https://a.good.com/"),
			},
		},
		{why: "not a URL", f: tool("network:http", "good .com"), says: "no_target"},
		{
			why: "a tool without a target", f: tool("channel:out", ""), form: grant.Tool,
			later: map[string]approval.Facts{"other arguments": with(tool("channel:out", ""), func(f *approval.Facts) { f.Args = approval.Raw(`{"x":1}`) })},
		},
		{
			why: "mail is asked every time, but for the same again", f: tool("mail:send", "ann@example.org"), form: grant.Again,
			never: map[string]approval.Facts{"another text": with(tool("mail:send", "ann@example.org"), func(f *approval.Facts) { f.Args = approval.Raw(`{"x":1}`) })},
		},
		{
			why: "a release-only action", f: release("send_message", `{"to":"ann"}`), form: grant.Action,
			later: map[string]approval.Facts{"another message": release("send_message", `{"to":"bob"}`)},
			never: map[string]approval.Facts{
				"another action":                 release("write_file", `{}`),
				"a tool of the same action type": with(tool("channel:out", ""), func(f *approval.Facts) { f.ActionType = "send_message" }),
			},
		},
		{
			why: "a command", f: release("exec_cmd", `{"command":"ls /srv"}`), form: grant.Again,
			never: map[string]approval.Facts{"another command": release("exec_cmd", `{"command":"ls /"}`)},
		},
		{why: "a command that opens programs", f: release("exec_cmd", `{"command":"sh x"}`), says: "command_interprets"},
		{
			why: "any command", f: with(release("exec_cmd", `{"command":"sh x"}`), func(f *approval.Facts) { f.AnyExec = true }), form: grant.Action,
			later: map[string]approval.Facts{"another": with(release("exec_cmd", `{"command":"ls"}`), func(f *approval.Facts) { f.AnyExec = true })},
			never: map[string]approval.Facts{"once the workspace says otherwise": release("exec_cmd", `{"command":"ls"}`)},
		},
	} {
		e := engine(t, policy.Config{})
		offers := e.Offers(row.f, e.Judge(row.f))
		require.GreaterOrEqual(t, len(offers), 2, row.why)
		for _, o := range offers[:2] {
			require.Equal(t, row.form, o.Terms.Form, "%s %s: %s", row.why, o.Scope, o.WhyNot)
			require.Equal(t, row.says, o.WhyNot.Code, "%s %s", row.why, o.Scope)
		}
		if row.form == "" {
			continue
		}
		approved(t, e, row.f, approval.Always)
		require.Equal(t, approval.Allow, e.Judge(row.f).Outcome, row.why)
		for why, f := range row.later {
			require.Equal(t, approval.Allow, e.Judge(f).Outcome, "%s: %s", row.why, why)
		}
		for why, f := range row.never {
			require.NotEqual(t, approval.Allow, e.Judge(f).Outcome, "%s: %s", row.why, why)
		}
	}
}

// Nothing is offered that would not work: what is asked for another reason is asked again.
func TestOfferedOnlyWhereItWorks(t *testing.T) {
	always := rule(approval.Ask)
	always.Always = true
	sink := harmless
	sink.PublicSink = "true"
	for _, row := range []struct {
		why string
		c   policy.Config
		set func(*approval.Facts, *policy.Engine)
		by  string
	}{
		{"an ask rule", policy.Config{Rules: []policy.Rule{rule(approval.Ask)}}, nil, ""},
		{"an always_ask rule", policy.Config{Rules: []policy.Rule{always}}, nil, "r"},
		{"an always_ask rule beside others", policy.Config{Rules: []policy.Rule{
			{Name: "q", Tool: always.Tool, Outcome: approval.Ask}, always, {Name: "s", Tool: always.Tool, Outcome: approval.Ask},
		}}, nil, "r"},
		{"a secret", policy.Config{}, func(_ *approval.Facts, e *policy.Engine) {
			e.Scan = func(*approval.Facts) []approval.Finding {
				return []approval.Finding{{Kind: "k", Where: "x", Length: 9}}
			}
		}, "secrets"},
		{"the trifecta", policy.Config{}, func(f *approval.Facts, e *policy.Engine) {
			f.Trust = sink
			e.Learn(event.Entry{Event: event.AutoApproved, Workspace: "w", Time: noon, Taints: []string{grant.TaintCorruption, grant.TaintSecret}})
		}, "trifecta"},
		{
			"a limit",
			policy.Config{Limits: map[string]policy.Limits{"w": {Day: policy.Budget{Soft: codec.Units(1)}}}},
			func(f *approval.Facts, _ *policy.Engine) { f.Cost = codec.Units(2) }, "limits",
		},
		{
			"a budget that this request uses up",
			policy.Config{Limits: map[string]policy.Limits{"w": {Session: policy.Budget{Soft: codec.Units(3)}}}},
			func(f *approval.Facts, _ *policy.Engine) { f.Cost = codec.Units(2) }, "limits",
		},
		{
			"a hard one",
			policy.Config{Limits: map[string]policy.Limits{"w": {Day: policy.Budget{Hard: codec.Units(3)}}}},
			func(f *approval.Facts, _ *policy.Engine) { f.Cost = codec.Units(2) }, "limits",
		},
		{
			"a budget with room for the next",
			policy.Config{Limits: map[string]policy.Limits{"w": {Session: policy.Budget{Soft: codec.Units(4)}, Day: policy.Budget{Hard: codec.Units(4)}}}},
			func(f *approval.Facts, _ *policy.Engine) { f.Cost = codec.Units(2) }, "",
		},
		{"the trifecta without a session", policy.Config{}, func(f *approval.Facts, e *policy.Engine) {
			f.Trust, f.SessionID = sink, ""
			e.Learn(event.Entry{Event: event.AutoApproved, Workspace: "w", Time: noon, Taints: []string{grant.TaintCorruption, grant.TaintSecret}})
		}, "trifecta"},
	} {
		f, e := factsFor("fs:write"), engine(t, row.c)
		if row.set != nil {
			row.set(&f, e)
		}
		g := approved(t, e, f, approval.Always)
		if row.by == "" {
			require.NotNil(t, g, row.why)
			require.Equal(t, approval.Allow, e.Judge(f).Outcome, row.why)
			continue
		}
		require.Nil(t, g, row.why)
		for _, o := range e.Offers(f, e.Judge(f)) {
			require.Equal(t, approval.Because("asked_anyway", "rule", row.by), o.WhyNot, row.why)
		}
	}
}

func replaceOnce(t *testing.T, s, old, new string) string {
	t.Helper()
	before, after, ok := strings.Cut(s, old)
	require.True(t, ok, "%s is in %s", old, s)
	return before + new + after
}

// The target of a grant that an operator types is one that requests can have.
func TestCheckTarget(t *testing.T) {
	for in, want := range map[string]string{
		"host good.com": "good.com", "host GOOD.com.": "good.com", "host good.com:443": "good.com:443", "host good.com/": "good.com",
		"host https://good.com:443/": "https://good.com", "host http://good.com": "http://good.com",
		"path_glob /srv/**": "/srv/**", "exact x.com/ann": "x.com/ann",
		"host https://good.com/path": "", "host good.com?x": "", "host ftp://good.com": "", "host *.good.com": "", "host ": "",
		"path_glob srv/*": "", "path_glob /srv/../*": "", "exact ": "", "exact x.com/*": "",
	} {
		kind, target, _ := strings.Cut(in, " ")
		got, err := policy.CheckTarget(kind, target)
		require.Equal(t, want, got, in)
		require.Equal(t, want == "", err != nil, in)
	}
}
