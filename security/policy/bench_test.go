package policy_test

import (
	"fmt"
	"testing"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
)

// benchEngine is an engine with 100 rules and n grants of all kinds.
func benchEngine(b *testing.B, n int) *policy.Engine {
	rules := make([]policy.Rule, 100)
	for i := range rules {
		rules[i] = policy.Rule{Name: fmt.Sprint("r", i), Tool: fmt.Sprintf("tool%d*", i), Outcome: approval.Outcome(i % 3)}
		switch i % 4 {
		case 1:
			rules[i].Tool, rules[i].Target = "", fmt.Sprintf("/srv/%d/**", i)
		case 2:
			rules[i].Tool, rules[i].Args = "", []policy.Condition{{Field: "text", Glob: fmt.Sprintf("x%d*", i)}}
			rules[i].Outcome = approval.Allow
		}
	}
	e := engine(b, policy.Config{Rules: rules})
	for i := range n {
		g := grants(factsFor("fs:write"))[i%3]
		g.ID = fmt.Sprintf("%016x", i)
		switch i % 6 {
		case 0, 3:
			g.SessionID = fmt.Sprint("s", i)
		case 1, 4:
			g.ActionType = fmt.Sprint("custom:t", i)
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
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("decision, 100 rules and %d grants", n), func(b *testing.B) {
			e := benchEngine(b, n)
			f := factsFor("fs:write")
			f.Args = approval.Raw(`{"text":"Meeting at 5","path":"/data/7/a.txt"}`)
			f.Target = "/data/8/b.txt"
			b.ReportAllocs()
			for b.Loop() {
				if e.Judge(f).Rule == "" {
					b.Fatal("no ruling")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, ":µs<=20") // a figure of make bench
		})
	}
}
