package policy

import (
	"cmp"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// matchText evaluates contains and matches.
func (c *condition) matchText(x *element, how reading) matchResult {
	if kind := x.is.Type; !x.isText || !readAsText(kind) && kind != facts.TypeList && kind != facts.TypeURL {
		return unknown
	}
	all := tally{how: how}
	for i := range x.texts {
		t, r := &x.texts[i], yes
		if c.Contains != "" {
			r = yesIf(how == narrow && !t.isBroken() && strings.Contains(t.as, c.Contains) ||
				how == wide && (strings.Contains(t.as, c.Contains) || strings.Contains(t.fold(), c.part) ||
					t.isHidden() && strings.Contains(squeeze(t.fold()), squeeze(c.part))))
		}
		if c.matches != nil && r == yes {
			r = c.matchExpression(t, x.is.Type == facts.TypeURL, how)
		}
		all.add(r)
	}
	return all.result()
}

// AnyText is the regular expression that matches every text, also one of several lines.
const AnyText = "(?s).*"

func (c *condition) matchExpression(t *text, isURL bool, how reading) matchResult {
	if how == narrow {
		return yesIf((c.Matches == AnyText || !t.isBroken()) && t.mayHave(c.needed) && c.matches.MatchString(t.as))
	}
	switch {
	case !isURL && !t.mayHave(c.needed):
	case slices.ContainsFunc(t.forms(), c.matchAny.MatchString), isURL && slices.ContainsFunc(t.urls(), c.matchAny.MatchString):
		return yes
	case isURL && t.oddPlace():
		return unknown
	}
	return no
}

// matchTexts compares with texts that are no patterns.
func matchTexts(is []pattern, t *text, how reading) matchResult {
	for i := range is {
		if t.as == is[i].text && is[i].fits(facts.TypeText) == nil || how == wide && equalsWide(is[i].folded, t) {
			return yes
		}
	}
	return no
}

// equalsWide compares a text and its lines with a folded text.
func equalsWide(want string, t *text) bool {
	return t.fold() == want || t.isHidden() && squeeze(t.fold()) == squeeze(want) || t.isBroken() && slices.Contains(t.forms(), want)
}

func yesIf(b bool) matchResult {
	if b {
		return yes
	}
	return no
}

// lineBreak is what some program takes for the end of a line.
var lineBreak = regexp.MustCompile("[\n\v\f\r\u0085\u2028\u2029]")

func hasLineBreak(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r >= '\n' && r <= '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
	})
}

func isInvisible(r rune) bool {
	if r >= ' ' && r < 0x7f { // most runes
		return false
	}
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector) || unicode.IsControl(r) && !unicode.IsSpace(r) ||
		strings.ContainsRune("\u034f\u115f\u1160\u3164\u2800\u180e", r)
}

// squeeze removes the blanks of a folded text: an invisible character may stand for one.
func squeeze(s string) string { return strings.ReplaceAll(s, " ", "") }

// fold is a text without regard to case, widths, invisible characters, and kinds and number
// of blanks.
func fold(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII || r < ' ' || r == 0x7f }) {
		return strings.Join(strings.Fields(strings.ToLower(s)), " ")
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case isInvisible(r):
			return -1
		}
		return r
	}, norm.NFKC.String(s))
	return strings.Join(strings.Fields(strings.ToLower(strings.ToUpper(s))), " ")
}

// maxDigits bounds the numbers that are compared.
const maxDigits = 40

// number is a number, exactly. Most fit into an integer of millionths, which is compared
// faster.
type number struct {
	text     string
	millions int64
	fits     bool
}

// newNumber is a number that parseNumber reads.
func newNumber(text string) *number {
	n := &number{text: text}
	whole, fraction, _ := strings.Cut(text, ".")
	if len(whole) > 12 || len(fraction) > 6 || strings.ContainsAny(text, "eE+") {
		return n
	}
	millions, err := strconv.ParseInt(whole+fraction+"000000"[len(fraction):], 10, 64)
	n.millions, n.fits = millions, err == nil
	return n
}

func (n *number) exact() *big.Rat {
	r, _ := parseNumber(n.text)
	return r
}

func (n *number) cmp(o *number) int {
	if n.fits && o.fits {
		return cmp.Compare(n.millions, o.millions)
	}
	return n.exact().Cmp(o.exact())
}

// CompareDecimals compares two decimal numbers, exactly.
func CompareDecimals(a, b string) int { return newNumber(a).cmp(newNumber(b)) }

// isNumber says whether parseNumber reads a text.
func isNumber(s string) bool {
	a := facts.AmountOf(s)
	return a.Valid && len(s) <= maxDigits && (!a.Exponent || smallExponent.MatchString(s))
}

// parseDecimal reads a number without an exponent, exactly.
func parseDecimal(s string) (*big.Rat, bool) {
	if a := facts.AmountOf(s); !a.Valid || a.Exponent || len(s) > maxDigits {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// parseNumber also reads a number with a small exponent.
func parseNumber(s string) (*big.Rat, bool) {
	if !isNumber(s) {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

var smallExponent = regexp.MustCompile(`[eE][+-]?[0-9]{1,3}$`)

// matchBounds compares an amount, a number, or the numbers of a list with max and min.
func (c *condition) matchBounds(q *request, x *element, how reading) matchResult {
	switch x.is.Type {
	case facts.TypeAmount, facts.TypeNumber, facts.TypeList:
	default:
		return unknown
	}
	numbers, ok := x.numbers()
	if !ok || x.is.Type == facts.TypeNumber && x.raw.Kind() != '0' && how == narrow {
		return unknown
	}
	worst := yes
	if x.is.Type == facts.TypeAmount {
		worst = c.matchCurrency(q, &x.is, how)
	}
	all := tally{how: how}
	for i := range numbers {
		t := &numbers[i]
		if how == narrow && x.is.Type == facts.TypeAmount && isThousands(t.as) {
			all.add(unknown)
			continue
		}
		all.add(c.bound(t, how))
	}
	return min(worst, all.result())
}

// isThousands says whether some people read an amount as thousands: 1.000.
func isThousands(s string) bool {
	whole, fraction, _ := strings.Cut(s, ".")
	return whole != "" && len(whole) <= 3 && len(fraction) == 3 && strings.Trim(whole+fraction, "0123456789") == ""
}

// zero is the least amount that an allow without min matches.
var zero = newNumber("0")

func (c *condition) bound(t *text, how reading) matchResult {
	if t.number == nil {
		if !isNumber(t.as) {
			return unknown
		}
		t.number = newNumber(t.as)
	}
	least := c.min
	if least == nil && how == narrow {
		least = zero
	}
	switch {
	case how == narrow && strings.ContainsAny(t.as, "eE+"):
		return unknown
	case c.max != nil && c.max.cmp(t.number) < 0, least != nil && t.number.cmp(least) < 0:
		return no
	}
	return yes
}

// matchCurrency compares the currency that the tool states, or takes from an argument.
func (c *condition) matchCurrency(q *request, a *approval.Argument, how reading) matchResult {
	actual := a.Currency
	if _, isArgument := q.declared[a.Currency]; isArgument {
		field, _ := q.args.named(a.Currency) // no value has no text
		var ok bool
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
		return yesIf(strings.EqualFold(actual, c.Currency) || len(actual) != len(c.Currency) && fold(actual) == fold(c.Currency))
	}
	return yesIf(actual == c.Currency)
}
