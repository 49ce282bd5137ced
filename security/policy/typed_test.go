package policy_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// Names may be lists, with a star at the end of a name. Only a name without a star names a
// tool for a capability that is always asked.
func TestNamesOfARule(t *testing.T) {
	for _, row := range []struct {
		tools policy.Names
		tool  string
		want  approval.Outcome
	}{
		{nil, "t", approval.Deny},
		{policy.Names{"t"}, "t", approval.Deny},
		{policy.Names{"u", "t"}, "t", approval.Deny},
		{policy.Names{"mcp.github.*"}, "mcp.github.create_issue", approval.Deny},
		{policy.Names{"u", "mcp.github.*"}, "mcp.github.", approval.Deny},
		{policy.Names{"mcp.github.*"}, "mcp.githubx", approval.Allow},
		{policy.Names{"mcp.github.*"}, "mcp.github", approval.Allow},
		{policy.Names{"u", "v"}, "t", approval.Allow},
		{policy.Names{}, "t", approval.Deny},
	} {
		f := factsFor("fs:write")
		f.Tool, f.Autonomy = row.tool, grant.Full
		r := policy.Rule{Name: "r", Tool: row.tools, Outcome: approval.Deny}
		require.Equal(t, row.want, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, "%q %s", row.tools, row.tool)
	}
}

// A window is the part of the week that its zone's clocks show.
func TestWindows(t *testing.T) {
	rome, err := time.LoadLocation("Europe/Rome")
	require.NoError(t, err)
	days := func(names ...time.Weekday) (d [7]bool) {
		for _, n := range names {
			d[n] = true
		}
		return d
	}
	const hour = time.Hour
	for _, row := range []struct {
		window policy.Window
		at     string
		in     bool
	}{
		{policy.Window{}, "2026-11-23T03:00:00Z", true},
		{policy.Window{From: 8 * hour, To: 18 * hour}, "2026-11-23T06:59:59.999Z", false}, // 7:59 in Rome
		{policy.Window{From: 8 * hour, To: 18 * hour}, "2026-11-23T07:00:00Z", true},
		{policy.Window{From: 8 * hour, To: 18 * hour}, "2026-11-23T16:59:59.999Z", true},
		{policy.Window{From: 8 * hour, To: 18 * hour}, "2026-11-23T17:00:00Z", false},
		{policy.Window{From: 8 * hour, To: 18 * hour}, "2026-07-23T06:00:00Z", true}, // summer: 8:00
		{policy.Window{From: 22 * hour, To: 6 * hour}, "2026-11-23T22:00:00Z", true},
		{policy.Window{From: 22 * hour, To: 6 * hour}, "2026-11-23T20:59:00Z", false},
		{policy.Window{From: 22 * hour, To: 6 * hour}, "2026-11-23T04:59:59Z", true},
		{policy.Window{From: 22 * hour, To: 6 * hour}, "2026-11-23T05:00:00Z", false},
		{policy.Window{Days: days(time.Monday)}, "2026-11-22T23:00:00Z", true}, // Monday, 0:00 in Rome
		{policy.Window{Days: days(time.Monday)}, "2026-11-22T22:59:59Z", false},
		{policy.Window{From: 22 * hour, To: 6 * hour, Days: days(time.Monday)}, "2026-11-24T04:00:00Z", true}, // the night of Monday
		{policy.Window{From: 22 * hour, To: 6 * hour, Days: days(time.Monday)}, "2026-11-23T04:00:00Z", false},
		{policy.Window{From: 22 * hour, To: 0, Days: days(time.Monday)}, "2026-11-23T22:59:00Z", true},
		{policy.Window{From: 22 * hour, To: 0, Days: days(time.Monday)}, "2026-11-23T23:00:00Z", false},
		{policy.Window{From: 2 * hour, To: 3 * hour}, "2026-10-25T00:30:00Z", true}, // 2:30 comes twice
		{policy.Window{From: 2 * hour, To: 3 * hour}, "2026-10-25T01:30:00Z", true},
		{policy.Window{From: 2 * hour, To: 3 * hour}, "2026-03-29T01:30:00Z", false}, // 2:30 does not come
	} {
		row.window.Zone = rome
		f := factsFor("fs:write")
		f.Now, err = time.Parse(time.RFC3339Nano, row.at)
		require.NoError(t, err)
		r := rule(approval.Allow)
		r.When = row.window
		want := approval.Ask
		if row.in {
			want = approval.Allow
		}
		require.Equal(t, want, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, "%+v %s", row.window, row.at)
	}
}

// A rule's trust replaces what the tool says of the requests that it matches. Where rules
// differ, true wins; forbidden stays.
func TestTrustOfARule(t *testing.T) {
	harmless := approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false"}
	command := policy.Condition{Field: "c", Is: []string{"go test ..."}}
	quiet := policy.Rule{Name: "quiet", Tool: policy.Names{"t"}, Outcome: approval.Allow, Args: []policy.Condition{command}, Trust: harmless}
	plain := quiet
	plain.Name, plain.Trust = "plain", approval.Trust{}
	loud := quiet
	loud.Name, loud.Trust = "loud", approval.Trust{PublicSource: "true"}
	all := []string{grant.TaintCorruption, grant.TaintSecret}
	asks := policy.Rule{Name: "asks", Tool: policy.Names{"t"}, Outcome: approval.Ask}
	for _, row := range []struct {
		why    string
		rules  []policy.Rule
		line   string
		taints []string
	}{
		{"no trust", []policy.Rule{plain}, "go test ./a", all},
		{"trust", []policy.Rule{quiet}, "go test ./a", nil},
		{"another command", []policy.Rule{quiet}, "curl x", all},
		{"beside an ask", []policy.Rule{quiet, asks}, "go test ./a", all},
		{"with another rule", []policy.Rule{quiet, plain}, "go test ./a", nil},
		{"true wins", []policy.Rule{quiet, loud}, "go test ./a", []string{grant.TaintCorruption}},
		{"true wins in any order", []policy.Rule{loud, quiet}, "go test ./a", []string{grant.TaintCorruption}},
	} {
		f := factsFor("code:exec")
		f.Trust, f.Args, f.Declared = approval.Trust{}, approval.Raw(`{"c":"`+row.line+`"}`), map[string]approval.Argument{"c": {Type: "command"}}
		require.Equal(t, row.taints, engine(t, policy.Config{Rules: row.rules}).Judge(f).Taints, row.why)
	}
	f := factsFor("code:exec")
	f.Trust, f.Args, f.Declared = approval.Trust{PublicSink: "forbidden"}, approval.Raw(`{"c":"go test"}`), map[string]approval.Argument{"c": {Type: "command"}}
	require.Equal(t, approval.Deny, engine(t, policy.Config{Rules: []policy.Rule{quiet}}).Judge(f).Outcome)
	for _, bad := range []policy.Rule{
		{Outcome: approval.Deny, Trust: harmless},
		{Outcome: approval.Ask, Trust: harmless},
		{Outcome: approval.Allow, Trust: approval.Trust{PublicSink: "forbidden"}},
		{Outcome: approval.Allow, Trust: approval.Trust{DangerousWrites: "false"}},
	} {
		require.Error(t, bad.Check())
	}
}

// A tool may say that a secret denies or does not matter. Only a configured tool may.
func TestSecretsOfATool(t *testing.T) {
	for _, row := range []struct {
		says  string
		known bool
		found bool
		want  approval.Outcome
	}{
		{"", true, true, approval.Ask},
		{"allow", true, true, approval.Allow},
		{"deny", true, true, approval.Deny},
		{"other", true, true, approval.Ask},
		{"allow", false, true, approval.Ask},
		{"deny", true, false, approval.Allow},
	} {
		e := engine(t, policy.Config{})
		if row.found {
			e.Scan = func(*approval.Facts) []approval.Finding {
				return []approval.Finding{{Kind: "k", Where: "request_data.a", Length: 9}}
			}
		}
		f := factsFor("fs:write")
		f.Autonomy, f.Secrets, f.KnownTool = grant.Full, row.says, row.known
		r := e.Judge(f)
		require.Equal(t, row.want, r.Outcome, "%+v", row)
		if row.known {
			requireKnown(t, r)
		}
	}
}

// Amounts add up exactly to the budget of a day.
func TestBudgetOfAmounts(t *testing.T) {
	e := engine(t, policy.Config{Limits: map[string]policy.Limits{"w": {Day: policy.Budget{Hard: codec.Units(1)}}}})
	f := factsFor("fs:write")
	f.Autonomy = grant.Full
	for i := range 10 {
		f.RequestID = string(rune('a' + i))
		f.Cost, _ = codec.ParseCost("0.1")
		r := e.Judge(f)
		require.Equal(t, approval.Allow, r.Outcome, "ten times 0.1 is 1: %d", i)
		_, refused := e.Reserve(f, r, false)
		require.Nil(t, refused)
	}
	f.RequestID, f.Cost = "z", codec.Cost(1)
	require.Equal(t, approval.Deny, e.Judge(f).Outcome)
	require.Equal(t, "cost_day_deny max=1 n=1.000001", e.Judge(f).Reasons[1].String())
}

// linked are a machine's links, for Resolve.
type linked map[string]string

func (l linked) resolve(name string) (string, error) {
	if to, ok := l[name]; ok {
		if to == "" {
			return "", errors.New("loop")
		}
		return to, nil
	}
	return noLinks(name)
}

// A path is judged by what it leads to, again when it is claimed. What a person approved is
// the path as it led then.
func TestPathsAreJudgedAgainAtTheClaim(t *testing.T) {
	links := linked{}
	e := engine(t, policy.Config{Rules: []policy.Rule{{
		Name: "r", Tool: policy.Names{"t"}, Outcome: approval.Allow, Args: []policy.Condition{{Field: "p", Is: []string{"/project/**"}}},
	}}})
	e.Resolve = links.resolve
	f := factsFor("fs:write")
	f.Target, f.Args, f.Declared = "/project/a", approval.Raw(`{"p":"/project/a"}`), map[string]approval.Argument{"p": {Type: "path"}}
	r := e.Judge(f)
	require.Equal(t, approval.Allow, r.Outcome)
	require.Empty(t, r.Links)
	for _, to := range []string{"/etc/passwd", ""} {
		links["/project/a"] = to
		require.Equal(t, approval.Ask, e.Judge(f).Outcome, to)
		require.Equal(t, map[string]string{"/project/a": to}, e.Judge(f).Links)
		_, refused := e.Reserve(f, r, false)
		require.NotNil(t, refused, "allowed by policy")
		_, refused = e.Reserve(f, r, true)
		require.NotNil(t, refused, "approved by a person")
		require.Equal(t, "path_moved", refused.Reasons[0].Code)
		requireKnown(t, *refused)
	}
	asked := e.Judge(f)
	_, refused := e.Reserve(f, asked, true)
	require.Nil(t, refused, "a person saw where it leads")
	maps.DeleteFunc(links, func(string, string) bool { return true })
	_, refused = e.Reserve(f, asked, true)
	require.NotNil(t, refused, "now it leads elsewhere again")
	e.Resolve = nil
	require.Equal(t, approval.Ask, e.Judge(f).Outcome, "nothing can be resolved")
}

// A grant for paths covers no link that leads out of them, and is not offered for one.
func TestGrantsOfPathsFollowLinks(t *testing.T) {
	links := linked{"/data/link": "/etc/passwd", "/data/inside": "/data/b"}
	e := engine(t, policy.Config{})
	e.Resolve = links.resolve
	f := factsFor("fs:write")
	g := grants(f)[0]
	g.Target = "/data/**"
	require.NoError(t, e.AddGrant(g))
	for target, want := range map[string]approval.Outcome{
		"/data/a": approval.Allow, "/data/inside": approval.Allow, "/data/link": approval.Ask, "data/a": approval.Ask,
	} {
		f.Target = target
		require.Equal(t, want, e.Judge(f).Outcome, target)
	}
	f.Target = "/data/link"
	for _, o := range e.Offers(f, e.Judge(f)) {
		require.Equal(t, "path_leads", o.WhyNot.Code, "%v", o.Scope)
	}
}

// An expression is tried only with texts that have its literal part, in every form that it is
// matched with.
func TestExpressionsWithALiteralPart(t *testing.T) {
	for _, row := range []struct {
		matches, text string
		deny, allow   approval.Outcome // the ruling by a deny and by an allow of it, where an ask is the default
	}{
		{`[a-z]+-key`, `my-key`, approval.Deny, approval.Allow},
		{`[a-z]+-key`, `my-KEY`, approval.Deny, approval.Ask},
		{`[a-z]+-key`, `my-keys`, approval.Ask, approval.Ask},
		{`[a-z]+-key`, `my-\u212aey`, approval.Deny, approval.Ask}, // the sign for Kelvin
		{`[a-z]+-key`, `my-k\u00e9y`, approval.Ask, approval.Ask},
		{`[a-z]+-KEY`, `my-key`, approval.Deny, approval.Ask},
		{`(?i)[a-z]+-KEY`, `my-key`, approval.Deny, approval.Allow},
		{`(?i)[a-z]+-KEY`, `my-\u212aey`, approval.Deny, approval.Allow},
		{`[a-z]+-\x{212a}ey`, `my-key`, approval.Deny, approval.Ask},
		{`(?i)[a-z]+-\x{212a}ey`, `my-key`, approval.Deny, approval.Allow},
		{`[a-z]+ the key`, `take  the\tkey`, approval.Deny, approval.Ask},
		{`[a-z]+ the key`, `now:\ntake  the key `, approval.Deny, approval.Ask},
		{`[a-z]+ the key`, `take the\u200b key`, approval.Deny, approval.Ask},
		{`[a-z]+ the key`, `take the\u0001 key`, approval.Deny, approval.Ask},
		{`[a-z]+  the key`, `take  the key`, approval.Deny, approval.Allow},
		{`([a-z]+-key)?`, ``, approval.Deny, approval.Allow},
		{`(?:my|your)-key|none`, `none`, approval.Deny, approval.Allow},
		{`key{0}[a-z]+`, `ken`, approval.Deny, approval.Allow},
		{`\Qkey.\E[a-z]+`, `key.a`, approval.Deny, approval.Allow},
	} {
		f := factsFor("fs:write")
		f.Autonomy, f.Declared, f.Args = grant.Supervised, map[string]approval.Argument{"text": {Type: "text"}}, approval.Raw(`{"text":"`+row.text+`"}`)
		for outcome, want := range map[approval.Outcome]approval.Outcome{approval.Deny: row.deny, approval.Allow: row.allow} {
			r := policy.Rule{Name: "r", Outcome: outcome, Args: []policy.Condition{{Field: "text", Matches: row.matches}}}
			require.Equal(t, want, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, "%s %s %q", outcome, row.matches, row.text)
		}
	}
}
