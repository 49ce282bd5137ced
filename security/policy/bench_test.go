package policy_test

import (
	"fmt"
	"testing"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// benchEngine is an engine with 100 rules and n grants of all kinds.
func benchEngine(b *testing.B, n int) *policy.Engine {
	rules := make([]policy.Rule, 100)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprint("r", i), Tool: policy.Names{fmt.Sprintf("tool%d*", i)}, Outcome: approval.Outcome(i % 3)}
		switch i % 4 {
		case 1:
			rules[i].Tool, rules[i].Target = nil, []string{fmt.Sprintf("/srv/%d/**", i)}
		case 2:
			rules[i].Tool, rules[i].Args = nil, []policy.Condition{{Field: "text", Is: []string{fmt.Sprintf("x%d*", i)}}}
			rules[i].Outcome = approval.Allow
		}
	}
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
	write.Args, write.Target = approval.Raw(`{"text":"Meeting at 5","path":"/data/7/a.txt"}`), "/data/8/b.txt"
	for name, f := range map[string]approval.Facts{"decision": write, "command": execFacts(command("go test ./a ./b"))} {
		for _, n := range []int{10, 10_000} {
			e := benchEngine(b, n)
			b.Run(fmt.Sprintf("%s, 100 rules and %d grants", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if e.Judge(f).Rule == "" {
						b.Fatal("no ruling")
					}
				}
				goal := map[string]string{"decision": ":µs<=20", "command": ":µs<=60"}[name] // figures of make bench
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
