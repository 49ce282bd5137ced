package policy

import (
	"math/big"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// matchText evaluates contains and matches.
func (c *condition) matchText(a approval.Argument, v approval.Raw, how reading) matchResult {
	values, ok := textsOf(v)
	if !ok || !readAsText(a.Type) && a.Type != facts.TypeList && a.Type != facts.TypeURL {
		return unknown
	}
	results := make([]matchResult, 0, len(values))
	for _, text := range values {
		r := yes
		if c.Contains != "" {
			r = min(r, matchContains(c.Contains, text, how))
		}
		if c.matches != nil {
			r = min(r, c.matchExpression(text, how))
		}
		results = append(results, r)
	}
	return how.each(results)
}

func matchContains(part, text string, how reading) matchResult {
	return yesIf(how == narrow && !hasLineBreak(text) && strings.Contains(text, part) ||
		how == wide && (strings.Contains(text, part) || strings.Contains(fold(text), fold(part))))
}

func (c *condition) matchExpression(text string, how reading) matchResult {
	if how == narrow {
		return yesIf(!hasLineBreak(text) && c.matches.MatchString(text))
	}
	for _, s := range append([]string{text, fold(text)}, lineBreak.Split(text, -1)...) {
		if c.matchAny.MatchString(s) || c.matchAny.MatchString(strings.TrimSpace(s)) || c.matchAny.MatchString(fold(s)) {
			return yes
		}
	}
	return no
}

// matchTexts compares with texts that are no patterns.
func matchTexts(is []pattern, text string, how reading) matchResult {
	for i := range is {
		if text == is[i].text && is[i].fits(facts.TypeText) == nil || how == wide && equalsWide(is[i].text, text) {
			return yes
		}
	}
	return no
}

func equalsWide(want, text string) bool {
	want = fold(want)
	for _, line := range append(lineBreak.Split(text, -1), text) {
		if fold(line) == want {
			return true
		}
	}
	return false
}

func yesIf(b bool) matchResult {
	if b {
		return yes
	}
	return no
}

// lineBreak is what some program takes for the end of a line.
var lineBreak = regexp.MustCompile("[\n\v\f\r\u0085\u2028\u2029]")

func hasLineBreak(s string) bool { return lineBreak.MatchString(s) }

// fold is a text without regard to case, widths, invisible characters, and kinds and number
// of blanks.
func fold(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.In(r, unicode.Cf, unicode.Cc, unicode.Variation_Selector), r == '\u034f', r == '\u115f', r == '\u1160', r == '\u3164':
			return -1
		}
		return r
	}, norm.NFKC.String(s))
	return strings.Join(strings.Fields(strings.ToLower(strings.ToUpper(s))), " ")
}

// maxDigits bounds the numbers that are compared.
const maxDigits = 40

// parseDecimal reads a number without an exponent, exactly.
func parseDecimal(s string) (*big.Rat, bool) {
	if a := facts.AmountOf(s); !a.Valid || a.Exponent || len(s) > maxDigits {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// parseNumber also reads a number with a small exponent.
func parseNumber(s string) (*big.Rat, bool) {
	if a := facts.AmountOf(s); a.Valid && a.Exponent && len(s) <= maxDigits && smallExponent.MatchString(s) {
		return new(big.Rat).SetString(s)
	}
	return parseDecimal(s)
}

var smallExponent = regexp.MustCompile(`[eE][+-]?[0-9]{1,3}$`)

// matchBounds compares an amount, a number, or the numbers of a list with max and min.
func (c *condition) matchBounds(q *request, a approval.Argument, v approval.Raw, how reading) matchResult {
	switch a.Type {
	case facts.TypeAmount, facts.TypeNumber, facts.TypeList:
	default:
		return unknown
	}
	values, ok := textsOf(listOf(v))
	if !ok || a.Type == facts.TypeNumber && v.Kind() != '0' && how == narrow {
		return unknown
	}
	worst := yes
	if a.Type == facts.TypeAmount {
		worst = c.matchCurrency(q, a, how)
	}
	results := make([]matchResult, 0, len(values))
	for _, text := range values {
		results = append(results, c.bound(text, how))
	}
	return min(worst, how.each(results))
}

// zero is the least amount that an allow without min matches.
var zero = new(big.Rat)

func (c *condition) bound(text string, how reading) matchResult {
	d, ok := parseDecimal(text)
	if how == wide {
		d, ok = parseNumber(text)
	}
	least := c.min
	if least == nil && how == narrow {
		least = zero
	}
	switch {
	case !ok || strings.HasPrefix(text, "+") && how == narrow:
		return unknown
	case c.max != nil && c.max.Cmp(d) < 0, least != nil && d.Cmp(least) < 0:
		return no
	}
	return yes
}

// matchCurrency compares the currency that the tool states, or takes from an argument.
func (c *condition) matchCurrency(q *request, a approval.Argument, how reading) matchResult {
	actual := a.Currency
	if _, isArgument := q.declared[a.Currency]; isArgument {
		field, ok := q.args.named(a.Currency)
		if actual, ok = (codec.Field{Value: field.Value}).Text(); !ok || c.Currency == "" {
			return unknown
		}
	}
	switch {
	case c.Currency == "":
		return yes
	case actual == "":
		return unknown
	case how == wide:
		return yesIf(fold(actual) == fold(c.Currency))
	}
	return yesIf(actual == c.Currency)
}
