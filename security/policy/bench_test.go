package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// benchRules are 100 rules with conditions of each type. All but the eighth about commands are
// evaluated for the tool t, a tenth for the tool own.
func benchRules() []policy.Rule {
	rules := make([]policy.Rule, 100)
	for i := range rules {
		r := policy.Rule{Name: fmt.Sprint("r", i), Outcome: approval.Outcome(i % 3)}
		if i%2 == 0 {
			r.Tool = policy.Names{"t", "sh", "u*"}
		}
		c := policy.Condition{Field: "text", Contains: fmt.Sprint("x", i)}
		switch i % 8 {
		case 1:
			c = policy.Condition{Field: "text", Matches: fmt.Sprintf("[A-Z]+-%d", i)}
		case 2:
			c = policy.Condition{Field: "path", Is: []string{fmt.Sprintf("/srv/%d/**", i)}}
		case 3:
			r.Tool = policy.Names{"t"}
			c = policy.Condition{Field: "to", Is: []string{fmt.Sprintf("@d%d.example.org", i), fmt.Sprintf("ann@e%d.example.org", i)}}
		case 4:
			r.Tool = policy.Names{"t"}
			c = policy.Condition{Field: "url", Is: []string{fmt.Sprintf("*.d%d.example.org", i)}}
		case 5:
			r.Tool = policy.Names{"t"}
			c = policy.Condition{Field: "amount", Min: fmt.Sprint(1000 + i), Currency: "EUR"}
		case 6:
			r.Tool = policy.Names{"sh"}
			c = policy.Condition{Field: "command", Is: []string{fmt.Sprintf("p%d test [-v -run *] ...", i), fmt.Sprintf("git p%d ...", i)}}
		case 7:
			c = policy.Condition{Field: "json.a", Is: []string{fmt.Sprint("y", i)}}
			r.When = policy.Window{To: 23 * time.Hour, Zone: time.UTC}
		}
		if i%10 == 9 {
			r.Tool = append(slices.Clone(r.Tool), "t", "own")
		} else if r.Tool == nil {
			r.Tool = policy.Names{"t", "sh"}
		}
		r.Args = []policy.Condition{c}
		rules[i] = r
	}
	return rules
}

// benchArgs are the arguments that benchRules are about.
var benchArgs = map[string]approval.Argument{
	"text": {Type: "text"}, "path": {Type: "path"}, "to": {Type: "recipients"}, "url": {Type: "url"},
	"amount": {Type: "amount", Currency: "EUR"}, "command": {Type: "command"}, "json": {Type: "json"},
}

// benchEngine is an engine with 100 rules and n grants of all kinds.
func benchEngine(b *testing.B, n int) *policy.Engine {
	rules := benchRules()
	e := engine(b, policy.Config{Rules: rules})
	pattern, _ := pendingOf(e, execFacts(command("go test ./a"))).Offer(approval.Commands)
	digest := pattern.Terms.Digest // of the arguments besides the command: all these patterns have the same
	for i := range n {
		g := grants(factsFor("fs:write"))[1]
		g.ID = fmt.Sprintf("%016x", i)
		switch i % 6 {
		case 0, 3:
			g.SessionID = fmt.Sprint("s", i)
		case 1:
			g.Terms = approval.Terms{Form: grant.Action, Workspace: g.Workspace, ClientID: g.ClientID, ActionType: fmt.Sprint("custom:t", i)}
		case 4:
			g.Terms = approval.Terms{
				Form: grant.Command, Workspace: g.Workspace, ClientID: g.ClientID, ActionType: "exec_cmd", Digest: digest,
				Words: []string{"go", "test", fmt.Sprint("./p", i), "..."},
			}
		case 2:
			g.Target = fmt.Sprintf("/data/%d/**", i)
		default:
			g.Target = fmt.Sprintf("/data/*/%d.txt", i)
		}
		if err := e.AddGrant(g); err != nil {
			b.Fatal(err)
		}
	}
	return e
}

func BenchmarkJudge(b *testing.B) {
	write := factsFor("fs:write")
	write.Target, write.Declared = "/data/8/b.txt", benchArgs
	write.Args = approval.Raw(`{"text":"Meeting at 5","path":"/data/7/a.txt","to":["ann@example.org","bob@example.org"],"url":"https://example.org/x?y=1","amount":"12.50","json":{"a":"b"}}`)
	line := write
	line.Tool = "sh"
	line.Args = approval.Raw(`{"text":"Meeting at 5","path":"/data/7/a.txt","command":"go vet ./... && go test -v -run 'TestA|TestB' ./a ./b","json":{"a":"b"}}`)
	own := write
	own.Tool = "own"
	for name, f := range map[string]approval.Facts{"decision": write, "decision by ten of them": own, "command": line, "exec_cmd": execFacts(command("go test ./a ./b"))} {
		for _, n := range []int{10, 10_000} {
			e := benchEngine(b, n)
			b.Run(fmt.Sprintf("%s, 100 rules and %d grants", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if e.Judge(f).Rule == "" {
						b.Fatal("no ruling")
					}
				}
				goal := map[string]string{"decision": ":µs<=20", "decision by ten of them": ":µs<=20", "command": ":µs<=60", "exec_cmd": ":µs<=60"}[name] // figures of make bench
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, goal)
			})
			b.Run(fmt.Sprintf("%s with its offers, 100 rules and %d grants", name, n), func(b *testing.B) {
				r := e.Judge(f)
				for b.Loop() {
					if len(e.Offers(f, r)) == 0 {
						b.Fatal("no offer")
					}
				}
			})
		}
	}
}
