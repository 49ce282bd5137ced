package program

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func TestGuarantees(t *testing.T) {
	const mail = `tools.send_email(to = %s, body = "b")`
	to := func(values string) string { return fmt.Sprintf(mail, values) }
	proved, refuted, unknown := approval.GuaranteeProved, approval.GuaranteeRefuted, approval.GuaranteeUnknown
	for _, tt := range []struct {
		guarantee, body, state string
		step                   int
	}{
		{`none(tools.pay)`, to(`"a@example.com"`), proved, 0},
		{`none(tools.send_email)`, to(`"a@example.com"`), refuted, 1},
		{`none(tools.pay)`, "if tools.fetch(url = 'https://a.example'): pass", unknown, 0},
		{`none(tools.fetch)`, "if tools.fetch(url = 'https://a.example'): pass", refuted, 1},
		{`at_most(tools.store, 2)`, "tools.store()\n    tools.store()", proved, 0},
		{`at_most(tools.store, 2)`, "tools.store()\n    tools.store()\n    tools.store()", refuted, 3},
		{`tools.send_email.only(to = ["a@example.com"])`, to(`"a@EXAMPLE.com"`), proved, 0},
		{`tools.send_email.only(to = "a@example.com, b@example.com")`, to(`["b@example.com", "a@example.com."]`), refuted, 1},
		{`tools.send_email.only(to = ["a@example.com"])`, to(`"a@example.com, x@example.com"`), refuted, 1},
		{`tools.send_email.only(to = ["a@example.com"])`, to(`["a@example.com", "x@example.com"]`), refuted, 1},
		{`tools.send_email.only(to = ["a@example.com"])`, to(`"A@example.com"`), refuted, 1},
		{`tools.send_email.only(to = ["a@example.com"])`, to(`"x@evil.example <a@example.com>"`), refuted, 1},
		{`tools.send_email.only(to = ["Ann <a@example.com>"])`, to(`"Ann <a@example.com>"`), proved, 0},
		{`tools.send_email.only(to = ["@channel"])`, to(`"@channel"`), proved, 0},
		{`tools.send_email.only(body = ["b"], subject = [])`, to(`"a@example.com"`), proved, 0},
		{`tools.pay.only(amount = [10])`, `tools.pay(to = "a", amount = "10.00", currency = "EUR")`, proved, 0},
		{`tools.store.only(n = [1, 2.5])`, `tools.store(n = 2.50)`, proved, 0},
		{`tools.store.only(tags = ["1"])`, `tools.store(tags = [1])`, refuted, 1},
		{`tools.store.only(tags = ["1", 2])`, `tools.store(tags = [2, "1", 2])`, proved, 0},
		{`tools.store.only(value = ["[1]"])`, `tools.store(value = [1])`, refuted, 1},
		{`tools.store.only(value = [[1], {"a": None}])`, `tools.store(value = {"a": None})`, proved, 0},
		{`tools.write_file.only(path = ["/a/b"])`, `tools.write_file(path = "/a/./x/../b/", content = "")`, proved, 0},
		{`tools.send_email.only(body = ["b"])`, `tools.send_email(to = "a@example.com", body = tools.fetch(url = "https://a.example"))`, unknown, 2},
		{`unique(tools.send_email, "to")`, to(`"a@example.com"`) + "; " + to(`["b@example.com", "Ann <A@Example.com>"]`), refuted, 2},
		{`unique(tools.send_email, "to")`, to(`"a@example.com, a@example.com"`), refuted, 1},
		{`unique(tools.send_email, "to")`, to(`"a@example.com"`) + "; " + to(`"b@example.com"`), proved, 0},
		{`unique(tools.send_email, "body")`, `tools.send_email(to = "a@example.com", body = tools.fetch(url = "https://a.example"))`, unknown, 2},
		{`only_under("path", "~/Sandbox")`, `tools.write_file(path = "~/Sandbox/a", content = "")`, proved, 0},
		{`only_under("path", "~/Sandbox")`, `tools.write_file(path = "~/Sandbox/../.ssh/id", content = "")`, refuted, 1},
		{`only_under("path", "~/Sandbox")`, `tools.write_file(path = "~/Sandbox2/a", content = "")`, refuted, 1},
		{`only_under("path", "~/Sandbox")`, `tools.write_file(path = "~bob/Sandbox/a", content = "")`, unknown, 1},
		{`only_under("path", "~/Sandbox")`, `tools.write_file(path = "~/../Sandbox/a", content = "")`, refuted, 1},
		{`only_under("path", "~/Sandbox")`, `tools.write_file(path = "/home/bob/Sandbox/a", content = "")`, unknown, 1},
		{`only_under("path", "~/Sandbox", "/tmp")`, `tools.write_file(path = ["/tmp/a", "~/Sandbox"], content = "")`, proved, 0},
		{`only_under("path", "/")`, `tools.write_file(path = "/../a", content = "")`, proved, 0},
		{`only_under("path", "/tmp")`, `tools.copy(**{"from": "/tmp/a", "dest": "/etc/b"})`, refuted, 1},
		{`only_under("dest", "/etc")`, `tools.copy(**{"from": "/tmp/a", "dest": "/etc/b"})`, proved, 0},
		{`only_under("path", ["out"])`, `tools.write_file(path = "out/../../a", content = "")`, refuted, 1},
	} {
		r := run(t, "guarantee("+tt.guarantee+")\ndef main():\n    "+tt.body+"\n", nil)
		require.NoError(t, r.err, tt)
		require.NotEmpty(t, r.ev.Guarantees, tt)
		assert.Equal(t, tt.state, r.ev.Guarantees[0].State, tt)
		assert.Equal(t, tt.step, r.ev.Guarantees[0].Step, tt)
	}
}

func TestSums(t *testing.T) {
	for _, tt := range []struct {
		body, state string
		step        int
	}{
		{"pay('60', 'EUR'); pay(40.00, 'EUR')", approval.GuaranteeProved, 0},
		{"pay('60.005', 'EUR'); pay('40', 'EUR')", approval.GuaranteeRefuted, 2},
		{"pay('60', 'EUR'); pay('-60', 'EUR'); pay(41, 'EUR')", approval.GuaranteeRefuted, 3},
		{"pay('60', 'EUR'); pay('1', 'USD')", approval.GuaranteeRefuted, 2},
		{"pay('1', 'EUR') ; tools.pay(to = 'a', amount = 1, currency = tools.fetch(url = 'https://a.example'))", approval.GuaranteeUnknown, 3},
	} {
		r := run(t, `
guarantee(at_most(tools.pay, 3, sum_of("amount", 100, "EUR")))
def pay(amount, currency):
    return tools.pay(to = "a", amount = amount, currency = currency)
def main():
    `+tt.body+"\n", nil)
		require.NoError(t, r.err, tt)
		require.Len(t, r.ev.Guarantees, 2)
		assert.Equal(t, approval.GuaranteeProved, r.ev.Guarantees[0].State)
		assert.Equal(t, tt.state, r.ev.Guarantees[1].State, tt)
		assert.Equal(t, tt.step, r.ev.Guarantees[1].Step, tt)
	}
}

func TestGuaranteeOfALaterVersion(t *testing.T) {
	got := Check(make([]approval.Step, 2), false, []approval.Guarantee{{Kind: "at_least"}})
	require.Equal(t, approval.GuaranteeUnknown, got[0].State)
}

// What follows is a checker that shares no code with Check. It does not read values: it knows what each was made from.

// truth is a call as it was made.
type truth struct {
	tool     string
	opaque   bool // the note
	note     string
	to       []person
	path     []string // its segments, the first is its root; nil: none
	cents    int
	currency string
}

type person struct {
	name, domain string
	display      bool
}

func (p person) render(r *rand.Rand) string {
	domain := p.domain
	if r.IntN(3) == 0 {
		domain = strings.ToUpper(domain)
	}
	if p.display {
		return "Someone <" + p.name + "@" + domain + ">"
	}
	return p.name + "@" + domain
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// rendered writes segments as a path with detours.
func rendered(r *rand.Rand, path []string) string {
	text := path[0]
	for _, s := range path[1:] {
		if text != "" && !strings.HasSuffix(text, "/") {
			text += "/"
		}
		text += pick(r, "", "", "./", "x/../") + s
	}
	if text == "" {
		text = "."
	}
	return text
}

// resolved follows segments one by one. above counts those that lead out of the root.
func resolved(path []string) (root string, rest []string, above int) {
	for _, s := range path[1:] {
		switch {
		case s != "..":
			rest = append(rest, s)
		case len(rest) > 0:
			rest = rest[:len(rest)-1]
		case path[0] != "/":
			above++
		}
	}
	return path[0], rest, above
}

func randomTruth(r *rand.Rand) truth {
	c := truth{tool: pick(r, "act", "act", "other"), note: pick(r, "x", "y", "z"), opaque: r.IntN(6) == 0, cents: r.IntN(900) - 100, currency: pick(r, "EUR", "EUR", "EUR", "USD")}
	for range 1 + r.IntN(2) {
		c.to = append(c.to, person{pick(r, "a", "b", "c", "A"), pick(r, "example.com", "example.org"), r.IntN(6) == 0})
	}
	if r.IntN(4) > 0 {
		c.path = []string{pick(r, "/", "~", "~", "")}
		for range 1 + r.IntN(4) {
			c.path = append(c.path, pick(r, "s", "s", "t", ".."))
		}
	}
	return c
}

var checkedTool = map[string]approval.Argument{
	"note": {}, "to": {Type: "recipients"}, "path": {Type: "path", Optional: true}, "amount": {Type: "amount", Currency: "currency"}, "currency": {},
}

func (c truth) step(r *rand.Rand) approval.Step {
	amount := fmt.Sprintf("%d.%02d", c.cents/100, c.cents%100)
	if c.cents < 0 {
		amount = fmt.Sprintf("-%d.%02d", -c.cents/100, -c.cents%100)
	}
	amount += pick(r, "", "0", "00")
	if r.IntN(2) == 0 {
		amount = `"` + amount + `"`
	}
	fields := []string{`"amount":` + amount, `"currency":"` + c.currency + `"`}
	s := approval.Step{Declared: checkedTool, Call: approval.Call{Tool: c.tool}}
	if c.opaque {
		s.Opaque = []approval.ResultRef{{Arg: "note", Step: 1}}
	} else {
		fields = append(fields, `"note":"`+c.note+`"`)
	}
	if c.path != nil {
		fields = append(fields, `"path":"`+rendered(r, c.path)+`"`)
	}
	var to []string
	for _, p := range c.to {
		to = append(to, p.render(r))
	}
	if r.IntN(2) == 0 {
		fields = append(fields, `"to":"`+strings.Join(to, ", ")+`"`)
	} else {
		fields = append(fields, `"to":["`+strings.Join(to, `","`)+`"]`)
	}
	s.Data = approval.Raw("{" + strings.Join(fields, ",") + "}")
	return s
}

// contract is a guarantee with what it means: broken says of calls, the last of which is new, "" or a state.
type contract struct {
	g      approval.Guarantee
	broken func(calls []truth) string
}

func acts(calls []truth) (of []truth) {
	for _, c := range calls {
		if c.tool == "act" {
			of = append(of, c)
		}
	}
	return of
}

func randomContract(r *rand.Rand) contract {
	g := approval.Guarantee{Tool: "act"}
	isAct := func(calls []truth) bool { return calls[len(calls)-1].tool == "act" }
	refutedIf := func(is bool) string {
		if is {
			return approval.GuaranteeRefuted
		}
		return ""
	}
	switch r.IntN(7) {
	case 0:
		g.Kind = approval.GuaranteeNone
		return contract{g, func(calls []truth) string { return refutedIf(isAct(calls)) }}
	case 1:
		g.Kind, g.Max = approval.GuaranteeAtMost, int64(r.IntN(4))
		return contract{g, func(calls []truth) string { return refutedIf(isAct(calls) && len(acts(calls)) > int(g.Max)) }}
	case 2:
		limit := r.IntN(2000)
		g.Kind, g.Arg, g.Sum, g.Currency = approval.GuaranteeSum, "amount", fmt.Sprintf("%d.%02d", limit/100, limit%100), pick(r, "EUR", "EUR", "")
		return contract{g, func(calls []truth) string {
			sum, foreign := 0, false
			for _, c := range acts(calls) {
				sum += max(c.cents, 0)
				foreign = foreign || g.Currency == "EUR" && c.currency != "EUR"
			}
			return refutedIf(isAct(calls) && (foreign || sum > limit))
		}}
	case 3:
		allowed := map[person]bool{}
		g.Kind, g.Arg = approval.GuaranteeOnly, "to"
		for range 1 + r.IntN(4) {
			p := person{name: pick(r, "a", "b", "c"), domain: pick(r, "example.com", "example.org")}
			allowed[p] = true
			g.Values = append(g.Values, p.render(r))
		}
		return contract{g, func(calls []truth) string {
			bad := false
			for _, p := range calls[len(calls)-1].to {
				bad = bad || !allowed[p]
			}
			return refutedIf(isAct(calls) && bad)
		}}
	case 4:
		g.Kind, g.Arg, g.Values = approval.GuaranteeOnly, "note", []string{"x", "y"}
		return contract{g, func(calls []truth) string {
			c := calls[len(calls)-1]
			if isAct(calls) && c.opaque {
				return approval.GuaranteeUnknown
			}
			return refutedIf(isAct(calls) && c.note == "z")
		}}
	case 5:
		g.Kind, g.Arg = approval.GuaranteeUnique, "to"
		return contract{g, func(calls []truth) string {
			count, twice := map[string]int{}, false
			for _, c := range acts(calls) {
				for _, p := range c.to {
					key := strings.ToLower(p.name) + "@" + p.domain
					count[key]++
					twice = twice || count[key] > 1
				}
			}
			return refutedIf(isAct(calls) && twice)
		}}
	}
	folder := []string{pick(r, "/", "~", ""), "s"}
	g = approval.Guarantee{Kind: approval.GuaranteeOnlyUnder, Arg: "path", Values: []string{rendered(r, folder)}}
	return contract{g, func(calls []truth) string {
		path := calls[len(calls)-1].path
		if path == nil {
			return ""
		}
		root, rest, above := resolved(path)
		if root != folder[0] {
			return approval.GuaranteeUnknown
		}
		return refutedIf(above > 0 || len(rest) == 0 || rest[0] != "s")
	}}
}

func TestAnotherCheckerAgrees(t *testing.T) {
	seed, traces := uint64(time.Now().UnixNano()), 500
	if os.Getenv("PERMESSO_SOAK") != "" {
		traces = 10_000
	}
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range traces {
		var calls []truth
		var steps []approval.Step
		for range r.IntN(7) {
			calls = append(calls, randomTruth(r))
			steps = append(steps, calls[len(calls)-1].step(r))
		}
		needs := r.IntN(5) == 0
		var contracts []contract
		var gs []approval.Guarantee
		for range 8 {
			contracts = append(contracts, randomContract(r))
			gs = append(gs, contracts[len(contracts)-1].g)
		}
		for i, got := range Check(steps, needs, gs) {
			want, at := approval.GuaranteeProved, 0
			if needs {
				want = approval.GuaranteeUnknown
			}
			for n := len(calls); n > 0; n-- { // the first unknown, but a refutation before all
				if state := contracts[i].broken(calls[:n]); state == approval.GuaranteeUnknown && want != approval.GuaranteeRefuted {
					want, at = state, n
				} else if state == approval.GuaranteeRefuted {
					want, at = state, n
				}
			}
			require.Equal(t, []any{want, at}, []any{got.State, got.Step}, "%v of %v", got, steps)
		}
	}
}
