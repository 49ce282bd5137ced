package secrets

import (
	"math/rand/v2"
	"regexp/syntax"
	"strings"
)

// Rule is one kind of secret, for tests and benchmarks that measure recall.
type Rule struct {
	ID string
	r  *rule
}

// Rules lists the rules.
func Rules() []Rule {
	set, err := loadRules()
	if err != nil {
		return nil
	}
	all := make([]Rule, 0, len(set.Rules))
	for _, r := range set.Rules {
		all = append(all, Rule{r.ID, r})
	}
	return all
}

// Sample generates a text that matches the rule's expression and its entropy. ok is
// false if this attempt failed.
func (r Rule) Sample(rnd *rand.Rand) (text string, ok bool) {
	x, err := syntax.Parse(r.r.Regex, syntax.Perl)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	g := generator{rnd, &b}
	g.write(x)
	text = b.String()
	r.r.prepare()
	r.r.within(text, 0, len(text), func(int, int) { ok = true })
	return text, ok
}

type generator struct {
	rnd *rand.Rand
	out *strings.Builder
}

func (g generator) write(x *syntax.Regexp) {
	switch x.Op {
	case syntax.OpLiteral:
		for _, c := range x.Rune {
			g.out.WriteRune(c)
		}
	case syntax.OpCharClass:
		g.out.WriteRune(g.class(x.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		g.out.WriteByte("abcdefghij KLMNOP0123"[g.rnd.IntN(21)])
	case syntax.OpCapture, syntax.OpConcat:
		for _, s := range x.Sub {
			g.write(s)
		}
	case syntax.OpAlternate:
		g.write(x.Sub[g.rnd.IntN(len(x.Sub))])
	case syntax.OpStar:
		g.repeat(x.Sub[0], 0, 4)
	case syntax.OpPlus:
		g.repeat(x.Sub[0], 1, 6)
	case syntax.OpQuest:
		g.repeat(x.Sub[0], 0, 1)
	case syntax.OpRepeat:
		most := x.Max
		if most < 0 || most > x.Min+20 {
			most = x.Min + 20
		}
		g.repeat(x.Sub[0], x.Min, most)
	}
}

func (g generator) repeat(x *syntax.Regexp, least, most int) {
	for range least + g.rnd.IntN(most-least+1) {
		g.write(x)
	}
}

// class picks a printable ASCII rune of a class, if there is one.
func (g generator) class(ranges []rune) rune {
	var ok []rune
	for i := 0; i+1 < len(ranges); i += 2 {
		for c := max(ranges[i], ' '); c <= min(ranges[i+1], '~'); c++ {
			ok = append(ok, c)
		}
	}
	if len(ok) == 0 {
		return ranges[0]
	}
	return ok[g.rnd.IntN(len(ok))]
}
