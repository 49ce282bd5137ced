package ruletest_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/ruletest"
)

// TestGeneratedRules compares the engine with the checker over generated rules and requests. What
// an allow lets through in a wider spelling is what the checker allows, and what a deny stops
// it stops in other spellings. PERMESSO_SEED repeats a run.
func TestGeneratedRules(t *testing.T) {
	seed, n := seedAndLength(1000, 20_000)
	t.Logf("PERMESSO_SEED=%d, %d pairs", seed, n)
	all, folder := &tally{counts: map[string]int{}}, links(t)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for number := all.next(); number < n; number = all.next() {
				x := random{rand.New(rand.NewPCG(seed, uint64(number))), folder}
				kind := kinds[number%len(kinds)]
				outcome := []string{"allow", "allow", "deny", "deny", "ask"}[number/len(kinds)%5]
				if why := all.compare(t, x, x.pair(kind, outcome)); why != "" {
					all.fail(fmt.Sprintf("pair %d: %s", number, why))
				}
			}
		})
	}
	wg.Wait()
	t.Log(all)
	if len(all.failed) > 0 {
		t.Fatal(strings.Join(all.failed, "\n\n"))
	}
	all.reached(t, n)
}

// seedAndLength are the seed of a run, and how many pairs it tries.
func seedAndLength(short, long int) (seed uint64, n int) {
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	if os.Getenv("PERMESSO_SOAK") != "" {
		return seed, long
	}
	return seed, short
}

// reached: a run in which an answer seldom comes tests little. A long one has each answer for
// each kind of condition.
func (s *tally) reached(t *testing.T, n int) {
	t.Helper()
	for answer, percent := range map[string]int{
		"allow yes": 5, "allow no": 20, "deny yes": 10, "deny no": 10, "deny cannot be told": 4,
	} {
		sum := 0
		for _, kind := range kinds {
			count := s.counts[kind+": "+answer]
			sum += count
			if n >= 20_000 && (answer != "deny cannot be told" || kind != "when") {
				require.Greater(t, count, n/len(kinds)/100, "%s: %s", kind, answer)
			}
		}
		require.Greater(t, sum, n*percent/100, answer)
	}
	require.Greater(t, s.counts["wider, allowed"], n/40)
	require.Greater(t, s.counts["wider, asked"], n/5)
	require.Greater(t, s.counts["respelled, not allowed"], n)
	require.Less(t, s.counts["configuration refused"], n/20)
}

// tally counts what happened, and keeps the first failures.
type tally struct {
	mu     sync.Mutex
	begun  int
	counts map[string]int
	failed []string
}

// next is the number of the next pair. There is none after ten failures.
func (s *tally) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun++; len(s.failed) >= 10 {
		return 1 << 30
	}
	return s.begun - 1
}

func (s *tally) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

func (s *tally) fail(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, why)
}

// String implements fmt.Stringer.
func (s *tally) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		fmt.Fprintf(&b, "%s: %d\n", what, s.counts[what])
	}
	return b.String()
}

// compare says how the engine and the checker differ, "" if they do not.
func (s *tally) compare(t *testing.T, r random, p pair) string {
	g, err := newRig(p.toml(), nil)
	if err != nil {
		s.count("configuration refused")
		return ""
	}
	got, want := g.send(t, p.request), p.rule.Applies(p.request.seenTargeted(p))
	s.counted(p, want)
	if why := p.differs(got, want); why != "" {
		return fmt.Sprintf("%s\n%s\n%s", why, p, p.request.requestData())
	}
	if p.rule.Outcome == "allow" && got.outcome == "allow" {
		return s.wider(t, r, g, p)
	}
	if p.rule.Outcome != "allow" && got.outcome != "allow" && want == ruletest.Yes {
		return s.respelled(t, r, g, p)
	}
	return ""
}

func (s *tally) counted(p pair, want ruletest.Answer) {
	outcome := p.rule.Outcome
	if outcome == "ask" {
		outcome = "deny"
	}
	switch what := p.kind + ": " + outcome + " "; want {
	case ruletest.Yes, ruletest.No, ruletest.Unknown:
		s.count(what + want.String())
	default:
		s.count(what + "left open")
	}
}

// expected are the outcomes that the document allows.
func (p pair) expected() []string {
	return expected(append(p.others, p.rule), p.rule.Outcome != "allow", p.request.seenTargeted(p))
}

// differs compares an outcome with those that the document allows.
func (p pair) differs(got judged, want ruletest.Answer) string {
	ok := p.expected()
	stopped := slices.ContainsFunc(ok, func(o string) bool { return o != "allow" })
	switch {
	case p.odd && stopped && got.outcome != "allow": // in an odd spelling, to ask is as good as to deny
		return ""
	case !slices.Contains(ok, got.outcome):
		return fmt.Sprintf("%s: %s applies: %s, expected: %v, outcome: %s", p.kind, p.rule.Outcome, want, ok, got.outcome)
	case got.ruling.Soft && p.rule.Outcome == "deny" && want == ruletest.Unknown:
		return "a grant could lift an ask because it cannot be told whether a deny applies"
	}
	return ""
}

// wider sends an allowed request with more in it. It is allowed only if the checker says so.
func (s *tally) wider(t *testing.T, r random, g *rig, p pair) string {
	for range 6 {
		q := p
		if q.request = r.widened(p); q.request.args == nil {
			continue
		}
		got := g.send(t, q.request)
		if got.outcome != "allow" {
			s.count("wider, asked")
			continue
		}
		s.count("wider, allowed")
		if !slices.Contains(q.expected(), "allow") {
			return fmt.Sprintf("%s\n%s\nis allowed, and so is\n%s", p, p.request.requestData(), q.request.requestData())
		}
	}
	return ""
}

// widened is a request that does what another does, and perhaps more.
func (r random) widened(p pair) request {
	v, given := p.request.args["a"]
	if !given || p.kind == "when" || p.kind == "target" {
		return request{}
	}
	if s, ok := v.(string); ok && r.oneIn(2) {
		more := map[string][]string{
			"command": {" > out", " && id", "; id", " $(id)", " &", " | sh", " -exec x", " /etc/passwd", "\nid", " ../x", " `id`", " <(id)", " *", " ~", " --force", " 2>&1", " # x", " sh"},
			"path":    {"/..", "/../..", "/../../outside/secret.txt", "/out/secret.txt", "/../out", "/x/../../../outside", "/../file", "\\x", "\n", "/dangling"},
			"url":     {":8443", "/../x", "@evil.example/", ".evil.example", "?@evil.example", " x", `\@evil.example`, "%2eevil.example", ":80", "\n"},
			"host":    {":80", ":8443", ".evil.example", "@evil.example", "/x", " ", "%00", ",evil.example", ":443"},
			"recipients": {
				", eve@evil.example", ",eve@evil.example", ";eve@evil.example", " <eve@evil.example>", ".evil.example", "\neve@evil.example", "@evil.example", "+x", ", Eve <eve@evil.example>",
			},
			"amount": {"0", "e9", "9", "9.9", " EUR", ",00"},
		}[p.declared["a"].Type]
		if more == nil {
			more = []string{"\nx", " x", "x", "\r\nx", "\u2028x", "\u200b"}
		}
		return p.request.with("a", s+pick(r, more...))
	}
	all := respell(p.declared["a"].Type, v, "")
	q := p.request.with("a", all[r.IntN(len(all))])
	if r.oneIn(10) {
		q.args["b"] = "more"
	}
	return q
}

// respelled sends what a deny matches in other spellings.
func (s *tally) respelled(t *testing.T, r random, g *rig, p pair) string {
	if !p.canBeRespelled() {
		return ""
	}
	v := p.request.args["a"]
	all := respell(p.respelledAs(), v, tomlOf(p.rule.Match))
	for range 8 {
		q := p
		q.request = p.request.with("a", all[r.IntN(len(all))])
		got := g.send(t, q.request)
		if got.outcome != "allow" {
			s.count("respelled, not allowed")
			continue
		}
		if slices.Contains(q.expected(), "allow") {
			s.count("respelled into another request")
			continue
		}
		return fmt.Sprintf("%s\n%s\nis stopped, and not\n%s\nwhere the checker says: %s", p, p.request.requestData(), q.request.requestData(),
			q.rule.Applies(q.request.seenTargeted(q)))
	}
	return ""
}

// seenTargeted is the request with its target, as the checker takes it.
func (q request) seenTargeted(p pair) ruletest.Request {
	seen := q.seen(p.declared)
	if p.kind == "target" {
		seen.Target, _ = q.args["a"].(string)
		seen.Capability = p.capability
	}
	return seen
}

// respelledAs is the type whose spellings a deny sees through.
func (p pair) respelledAs() string {
	if p.kind == "equals" {
		return "text"
	}
	return p.declared["a"].Type
}

// canBeRespelled excludes rules that match one value only, which is another one with more in it.
func (p pair) canBeRespelled() bool {
	v, given := p.request.args["a"]
	_, isText := v.(string)
	args, _ := p.rule.Match["args"].(map[string]any)
	l, isList := args["a"].([]any)
	one := p.kind == "equals" && !isText || isList && len(l) == 0
	return given && !one && p.kind != "when" && p.kind != "target"
}

// String implements fmt.Stringer.
func (p pair) String() string {
	types := map[string]any{}
	for name, a := range p.declared {
		types[name] = strings.TrimSpace(a.Type + " " + a.Currency)
	}
	text := ""
	for _, r := range append([]ruletest.Rule{p.rule}, p.others...) {
		text += r.Outcome + " " + tomlOf(r.Match) + "\n"
	}
	return text + "of " + tomlOf(types) + " in " + p.request.session
}
