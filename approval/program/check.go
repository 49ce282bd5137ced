package program

import (
	"math/big"
	"path"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Check says of each guarantee what the calls of a program make of it. needs: the plan does not reach the program's end.
//
// A guarantee is refuted at the first step that breaks it; else unknown at the first step that may break it; else unknown,
// of no step, if the plan does not reach the end; else proved. What each promises:
//
//   - none: the tool is not called.
//   - at_most: the tool is called at most Max times.
//   - sum: the amounts in the argument of all calls are together at most Sum. What is negative counts as 0: the run may
//     stop after any step. An amount in another currency, or in none if there is a Currency, refutes. A call without an
//     amount, or with one that cannot be read, is unknown.
//   - only: each value of the argument is one of Values. A call without the argument has no value.
//   - unique: no value of the argument occurs twice, in one call or in several.
//   - only_under: each path, of every tool, is one of the folders Values or below it. A path is a value of the argument of
//     that name; if the name is path, also a value of each argument of that type. Links are not resolved. A path that
//     begins elsewhere than all folders, such as one below / for a folder below ~, is unknown.
//
// The values of an argument: each recipient, with its domain in lower case; each path, cleaned; each item of a text or
// list of texts; the JSON of each item of a list; a number or amount as a decimal; else the JSON of the whole. An only has no recipient with a display
// name or a comment, unless it is written so in Values. For unique, letter case of recipients does not count.
// A value that is not known may be any.
func Check(steps []approval.Step, needs bool, gs []approval.Guarantee) []approval.Guarantee {
	out := make([]approval.Guarantee, 0, len(gs))
	for _, g := range gs {
		c := checkerOf(g)
		g.State, g.Step = approval.GuaranteeProved, 0
		if needs {
			g.State = approval.GuaranteeUnknown
		}
		if !slices.Contains(kinds, g.Kind) { // of a later version
			g.State = approval.GuaranteeUnknown
			out = append(out, g)
			continue
		}
		for i := range steps {
			state := c.step(&steps[i])
			if state == approval.GuaranteeRefuted || state == approval.GuaranteeUnknown && g.Step == 0 {
				g.State, g.Step = state, i+1
			}
			if state == approval.GuaranteeRefuted {
				break
			}
		}
		out = append(out, g)
	}
	return out
}

var kinds = []string{
	approval.GuaranteeNone, approval.GuaranteeAtMost, approval.GuaranteeSum, approval.GuaranteeOnly, approval.GuaranteeUnique,
	approval.GuaranteeOnlyUnder,
}

// checker checks one guarantee, step by step.
type checker struct {
	g     approval.Guarantee
	calls int64
	sum   *big.Rat
	max   *big.Rat
	seen  map[string]bool // values so far
	may   map[string]bool // the values of an only
}

func checkerOf(g approval.Guarantee) *checker {
	limit, ok := decimal(g.Sum)
	if !ok {
		limit = new(big.Rat)
	}
	return &checker{g: g, sum: new(big.Rat), max: limit, seen: map[string]bool{}}
}

// step is "" if the call keeps the guarantee.
func (c *checker) step(s *approval.Step) string {
	if c.g.Kind == approval.GuaranteeOnlyUnder {
		return c.paths(s)
	}
	if s.Tool != c.g.Tool {
		return ""
	}
	c.calls++
	switch c.g.Kind {
	case approval.GuaranteeNone:
		return approval.GuaranteeRefuted
	case approval.GuaranteeAtMost:
		if c.calls > c.g.Max {
			return approval.GuaranteeRefuted
		}
		return ""
	case approval.GuaranteeSum:
		return c.amount(s)
	}
	return c.values(s)
}

func (c *checker) amount(s *approval.Step) string {
	raw, _ := argOf(s, c.g.Arg)
	amount, ok := decimal(textOf(raw))
	if !ok {
		return approval.GuaranteeUnknown
	}
	if c.g.Currency != "" {
		currency := s.Declared[c.g.Arg].Currency
		if !facts.IsCurrency(currency) {
			named, opaque := argOf(s, currency)
			if opaque {
				return approval.GuaranteeUnknown
			}
			currency = textOf(named)
		}
		if currency != c.g.Currency {
			return approval.GuaranteeRefuted
		}
	}
	if amount.Sign() > 0 {
		c.sum.Add(c.sum, amount)
	}
	if c.sum.Cmp(c.max) > 0 {
		return approval.GuaranteeRefuted
	}
	return ""
}

func (c *checker) values(s *approval.Step) string {
	raw, opaque := argOf(s, c.g.Arg)
	if opaque {
		return approval.GuaranteeUnknown
	}
	declared := s.Declared[c.g.Arg].Type
	if c.may == nil && c.g.Kind == approval.GuaranteeOnly {
		c.may = map[string]bool{}
		for _, v := range c.g.Values {
			for _, one := range valuesOf(codec.Quote(v), declared, true) {
				c.may[one.exact] = true
			}
		}
	}
	for _, v := range valuesOf(raw, declared, false) {
		if c.g.Kind == approval.GuaranteeOnly {
			if !c.may[v.exact] {
				return approval.GuaranteeRefuted
			}
			continue
		}
		if c.seen[v.folded] {
			return approval.GuaranteeRefuted
		}
		c.seen[v.folded] = true
	}
	return ""
}

func (c *checker) paths(s *approval.Step) string {
	state := ""
	names := []string{c.g.Arg}
	for name, a := range s.Declared {
		if c.g.Arg == facts.TypePath && a.Type == facts.TypePath && name != c.g.Arg {
			names = append(names, name)
		}
	}
	for _, name := range names {
		raw, opaque := argOf(s, name)
		if opaque {
			state = approval.GuaranteeUnknown
		}
		for _, text := range textsOf(raw) {
			switch c.below(text) {
			case approval.GuaranteeRefuted:
				return approval.GuaranteeRefuted
			case approval.GuaranteeUnknown:
				state = approval.GuaranteeUnknown
			}
		}
	}
	return state
}

func (c *checker) below(text string) string {
	p := placeOf(text)
	sure := true
	for _, folder := range c.g.Values {
		f := placeOf(folder)
		if f.root != p.root {
			sure = false
			continue
		}
		if !escapes(p) && (f.rest == "." || p.rest == f.rest || strings.HasPrefix(p.rest, f.rest+"/")) {
			return ""
		}
	}
	if sure {
		return approval.GuaranteeRefuted
	}
	return approval.GuaranteeUnknown
}

// place is a path: where it begins, and the rest, cleaned.
type place struct{ root, rest string }

// placeOf reads a path. It begins at /, ~ or ~user, else in an unknown folder.
func placeOf(text string) place {
	switch {
	case strings.HasPrefix(text, "/"):
		return place{"/", strings.TrimPrefix(path.Clean(text), "/") + dotIf(path.Clean(text) == "/")}
	case strings.HasPrefix(text, "~"):
		root, rest, _ := strings.Cut(text, "/")
		return place{root, path.Clean(strings.TrimLeft(rest, "/"))}
	}
	return place{"", path.Clean(text)}
}

func dotIf(is bool) string {
	if is {
		return "."
	}
	return ""
}

// escapes reports whether a path leaves where it begins.
func escapes(p place) bool { return p.rest == ".." || strings.HasPrefix(p.rest, "../") }

// value is a value in the form that is compared.
type value struct{ exact, folded string }

// asJSON says whether values of an argument are compared as their JSON.
func asJSON(declared string) bool {
	return declared == facts.TypeJSON || declared == facts.TypeCommand || declared == facts.TypeList
}

func isNumber(declared string) bool {
	return declared == facts.TypeAmount || declared == facts.TypeNumber
}

// valuesOf lists the values of an argument. literal: it is a text of a guarantee, which is one value.
func valuesOf(raw approval.Raw, declared string, literal bool) (all []value) {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return nil
	}
	texts := textsOf(raw)
	switch {
	case asJSON(declared) && literal: // the text is the JSON of one value
	case declared == facts.TypeList:
		items, _ := codec.Items(raw)
		texts = nil
		for _, item := range items {
			texts = append(texts, string(item))
		}
	case asJSON(declared):
		texts = []string{string(raw)}
	case declared == facts.TypeRecipients:
		for _, text := range texts {
			read, _ := facts.Recipients(text)
			for _, r := range read {
				all = append(all, recipientValue(r))
			}
		}
		return all
	}
	for _, text := range texts {
		switch declared {
		case facts.TypePath:
			p := placeOf(text)
			text = p.root + "\x00" + p.rest
		case facts.TypeNumber, facts.TypeAmount:
			if n, ok := decimal(text); ok {
				text = n.RatString()
			}
		}
		all = append(all, value{text, text})
	}
	return all
}

// recipientValue folds letter case, and leaves out a display name, only for what must not occur twice.
func recipientValue(r facts.Recipient) value {
	if r.Address == "" {
		return value{r.Text, strings.ToLower(r.Text)}
	}
	local := r.Address[:strings.LastIndexByte(r.Address, '@')]
	address := local + "@" + r.Domain
	v := value{address, strings.ToLower(address)}
	if !r.Bare() {
		v.exact = "\x00" + r.Text
	}
	return v
}

// argOf is an argument of a call; nil if it has none. opaque: its value is not known.
func argOf(s *approval.Step, name string) (raw approval.Raw, opaque bool) {
	if slices.ContainsFunc(s.Opaque, func(r approval.ResultRef) bool { return r.Arg == name }) {
		return nil, true
	}
	fields, _ := codec.Fields(s.Data)
	for _, f := range fields {
		if f.Name == name {
			return f.Value, false
		}
	}
	return nil, false
}

// textOf is the text of a string, or the JSON of another value.
func textOf(raw approval.Raw) string {
	if text, ok := (codec.Field{Value: raw}).Text(); ok {
		return text
	}
	return string(raw)
}

// textsOf lists the texts of a value: those of its items if it is a list.
func textsOf(raw approval.Raw) (texts []string) {
	items, err := codec.Items(raw)
	if err != nil {
		items = []approval.Raw{raw}
	}
	for _, item := range items {
		if len(item) > 0 && item.Kind() != 'n' {
			texts = append(texts, textOf(item))
		}
	}
	return texts
}

// decimal reads a decimal number without an exponent, exactly.
func decimal(text string) (*big.Rat, bool) {
	a := facts.AmountOf(text)
	if !a.Valid || a.Exponent || len(text) > 100 {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}
