package policy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// tainting is an entry about the claim of a request that reads.
func tainting(kind event.Kind, id int, taints ...string) event.Entry {
	return event.Entry{
		Event: kind, Workspace: "w", RequestID: fmt.Sprintf("%016d", id), SessionID: "s1", Time: noon,
		Tool: "web", Capability: "network:http", Target: fmt.Sprintf("https://%d.example/", id), Taints: taints,
	}
}

// What failed before it could read taints nothing. Only the taints of that claim are
// taken back.
func TestWhatReadNothingTaintsNothing(t *testing.T) {
	const c, s = grant.TaintCorruption, grant.TaintSecret
	claim := func(id int, taints ...string) event.Entry { return tainting(event.AutoApproved, id, taints...) }
	nothing := func(id int, taints ...string) event.Entry { return tainting(event.Failed, id, taints...) }
	cleared := event.Entry{Event: event.TaintsCleared, Workspace: "w"}
	many := []event.Entry{claim(1, c), claim(2, c), claim(3, c), claim(4, c), claim(5, c), claim(6, c)}
	for _, row := range []struct {
		why  string
		log  []event.Entry
		want []string
	}{
		{"it could not start", []event.Entry{claim(1, c, s), nothing(1, c, s)}, nil},
		{"it failed later: the entry names no taints", []event.Entry{claim(1, c), nothing(1)}, []string{c}},
		{"another has read", []event.Entry{claim(1, c), claim(2, c), nothing(1, c)}, []string{c}},
		{"both could not start", []event.Entry{claim(1, c), claim(2, c), nothing(2, c), nothing(1, c)}, nil},
		{"twice the same end", []event.Entry{claim(1, c), claim(2, c), nothing(1, c), nothing(1, c)}, []string{c}},
		{"it was cleared before, and another has read since", []event.Entry{claim(1, c), cleared, claim(2, c), nothing(1, c)}, []string{c}},
		{"an unknown request", []event.Entry{claim(1, c), nothing(7, c)}, []string{c}},
		{"one of many", append(many[:6:6], nothing(1, c)), []string{c}},
		{"more than are named", append(many[:6:6], nothing(1, c), nothing(2, c), nothing(3, c), nothing(4, c)), []string{c}},
	} {
		e := engine(t, policy.Config{})
		for i, x := range row.log {
			x.Seq = int64(i + 1)
			e.Learn(x)
		}
		require.Equal(t, row.want, e.Taints("w")[""], row.why)
		b, err := e.Snapshot()
		require.NoError(t, err)
		restored := engine(t, policy.Config{})
		_, err = restored.Restore(b)
		require.NoError(t, err)
		require.Equal(t, row.want, restored.Taints("w")[""], "after a restart: "+row.why)
	}
}

// Where the host names the sessions, what one could not read is taken back from that one.
func TestWhatReadNothingInASession(t *testing.T) {
	e := engine(t, policy.Config{Bound: []string{"w"}})
	a, b := tainting(event.AutoApproved, 1, grant.TaintSecret), tainting(event.AutoApproved, 2, grant.TaintSecret)
	b.SessionID = "s2"
	e.Learn(a)
	e.Learn(b)
	a.Event = event.Failed
	e.Learn(a)
	require.Equal(t, map[string][]string{"s2": {grant.TaintSecret}}, e.Taints("w"))
}

// The trifecta's reason names what was read and where this goes, and what would lift it.
func TestTrifectaNamesWhatWasRead(t *testing.T) {
	e := engine(t, policy.Config{})
	e.Learn(tainting(event.AutoApproved, 1, grant.TaintCorruption))
	file := tainting(event.AutoApproved, 2, grant.TaintSecret)
	file.Capability, file.Tool, file.Target = "", "vault", "/srv/keys"
	e.Learn(file)
	f := factsFor("channel:out")
	f.Autonomy, f.Trust, f.Target = grant.Full, approval.Trust{}, "x.com"
	r := e.Judge(f)
	require.Equal(t, "trifecta", r.Rule)
	require.Contains(t, r.Reasons, approval.Because("trifecta", "tool", "t", "target", "x.com",
		"strangers", "network:http", "strangers_in", "https://1.example/", "secrets", "tool vault", "secrets_in", "/srv/keys"))
	require.Equal(t, []string{"clear_taints workspace=w", "rule_despite tool=t what=trifecta"}, forms(r.Change))
	f.Autonomy = grant.Supervised
	require.Equal(t, r.Change, e.Judge(f).Change, "and nothing that would not help")
	e.Learn(tainting(event.AutoApproved, 3, grant.TaintSecret))
	require.Contains(t, e.Judge(f).Reasons, approval.Because("trifecta", "tool", "t", "target", "x.com",
		"strangers", "network:http", "strangers_in", "https://1.example/", "secrets", "tool vault", "secrets_in", "/srv/keys", "secrets_n", "2"))
	for _, o := range e.Offers(f, r) {
		require.Equal(t, approval.Because("asked_anyway", "rule", "trifecta"), o.WhyNot, "no 2 and no 6")
	}
}

// A rule lifts the trifecta and secrets only if it says so, and only for listed
// destinations; never a deny.
func TestDespiteNeedsClosedDestinations(t *testing.T) {
	equals := func(field, value string) policy.Condition {
		return policy.Condition{Field: field, Equals: approval.Raw(`"` + value + `"`)}
	}
	to, path := equals("to", "ann@example.org"), equals("path", "/srv/a")
	for _, row := range []struct {
		why     string
		despite []string
		args    []policy.Condition
		declare map[string]approval.Argument
		change  func(*approval.Facts)
		want    string
	}{
		{"both are listed", []string{"trifecta"}, []policy.Condition{to, path}, nil, nil, "r"},
		{"without the word", nil, []policy.Condition{to, path}, nil, nil, "trifecta"},
		{"another word", []string{"secrets"}, []policy.Condition{to, path}, nil, nil, "trifecta"},
		{"one is open", []string{"trifecta"}, []policy.Condition{to}, nil, nil, "trifecta"},
		{"a pattern", []string{"trifecta"}, []policy.Condition{to, {Field: "path", Is: []string{"/srv/*"}}}, nil, nil, "trifecta"},
		{"a text without a pattern", []string{"trifecta"}, []policy.Condition{to, {Field: "path", Is: []string{"/srv/a"}}}, nil, nil, "r"},
		{"a command can go anywhere", []string{"trifecta"}, []policy.Condition{to, path}, map[string]approval.Argument{"line": {Type: "command"}}, nil, "trifecta"},
		{"a text is no destination", []string{"trifecta"}, []policy.Condition{to, path}, map[string]approval.Argument{"text": {Type: "text"}}, nil, "r"},
		{"forbidden", []string{"trifecta"}, []policy.Condition{to, path}, nil, func(f *approval.Facts) { f.Trust.PublicSink = "forbidden" }, "trust"},
	} {
		f := factsFor("channel:out")
		f.Autonomy, f.Trust, f.Args = grant.Full, approval.Trust{}, approval.Raw(`{"to":"ann@example.org","path":"/srv/a"}`)
		f.Declared = map[string]approval.Argument{"to": {Type: "recipients"}, "path": {Type: "path"}}
		for name, a := range row.declare {
			f.Declared[name] = a
		}
		if row.change != nil {
			row.change(&f)
		}
		e := tainted(t, policy.Config{Rules: []policy.Rule{{Name: "r", Tool: policy.Names{"t"}, Outcome: approval.Allow, Args: row.args, Despite: row.despite}}})
		require.Equal(t, row.want, e.Judge(f).Rule, row.why)
	}
}
