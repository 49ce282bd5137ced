package ruletest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/ruletest"
)

// TestRuleChecker compares the table with the checker alone: the same people have not written
// both the table and the engine.
func TestRuleChecker(t *testing.T) {
	rows := 0
	for _, b := range readTable(t, links(t)) {
		for _, r := range b.rows {
			if rows++; !b.isPlain() || b.refused {
				continue
			}
			require.NotPanics(t, func() {
				if got := b.expected(b.request(r)); !slices.ContainsFunc(got, r.fits) {
					t.Errorf("%s: %s: %s, checker: %v", r.where, b.name, r.want, got)
				}
			}, r.where)
		}
	}
	t.Log(rows)
}

// TestRuleCheckerIsConsistent: what an allow matches, a deny with the same conditions matches as
// well, also in other spellings.
func TestRuleCheckerIsConsistent(t *testing.T) {
	s, folder := &tally{counts: map[string]int{}}, links(t)
	seed, n := seedAndLength(600, 6000)
	t.Logf("PERMESSO_SEED=%d, %d pairs", seed, n)
	for number := range n {
		r := random{rand.New(rand.NewPCG(seed, uint64(number))), folder}
		p := r.pair(kinds[number%len(kinds)], "allow")
		narrow := p.rule.Applies(p.request.seenTargeted(p))
		s.counted(p, narrow)
		p.rule.Outcome = "deny"
		wide := p.rule.Applies(p.request.seenTargeted(p))
		s.counted(p, wide)
		if narrow.Has(ruletest.Yes) && !wide.Has(ruletest.Yes) && !wide.Has(ruletest.Unknown) {
			s.fail(fmt.Sprintf("%d: allow: %s, deny: %s\n%s\n%s", number, narrow, wide, p.request.requestData(), tomlOf(p.rule.Match)+p.declared["a"].Type))
		}
		lines := strings.Contains(p.request.requestData(), `\n`) && strings.Contains(tomlOf(p.rule.Match), `"matches"`)
		if wide != ruletest.Yes || !p.canBeRespelled() || lines { // other blanks make other lines for an expression
			continue
		}
		for _, v := range respell(p.respelledAs(), p.request.args["a"], tomlOf(p.rule.Match)) {
			q := p
			q.request = p.request.with("a", v)
			if a := q.rule.Applies(q.request.seenTargeted(q)); a == ruletest.No && p.kind != "path" { // links lead elsewhere
				s.fail(fmt.Sprintf("%d: %s\nis denied, not\n%s\n%s", number, p.request.requestData(), q.request.requestData(), tomlOf(p.rule.Match)+p.declared["a"].Type))
			}
		}
	}
	t.Log(s)
	for _, why := range s.failed[:min(len(s.failed), 10)] {
		t.Error(why)
	}
}
