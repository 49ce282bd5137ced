package policy

import (
	"math/big"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// amountArg is the name of amounts, in facts and in effects.
const amountArg = "amount"

// decimal reads a decimal number that is not negative, exactly: 12.50.
func decimal(text string) (*big.Rat, bool) {
	n, ok := parseDecimal(text)
	return n, ok && !strings.ContainsAny(text, "+-")
}

func notAlphanumeric(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
}

// amounts is the sum of amounts in one currency.
type amounts struct {
	currency string
	sum      big.Rat
}

// add adds values, each as often as it occurs. The reason says why it cannot.
func (a *amounts) add(values []string, times int) approval.Reason {
	for _, v := range values {
		n, ok := decimal(v)
		if !ok {
			return approval.Because("gap_amount")
		}
		a.sum.Add(&a.sum, n.Mul(n, new(big.Rat).SetInt64(int64(times))))
	}
	return approval.Reason{}
}

// addEffect adds the amounts of an effect.
func (a *amounts) addEffect(x approval.ProvenEffect, times int) approval.Reason {
	values, whole := facts.ValuesOf(x, amountArg)
	if !whole || len(values) == 0 {
		return approval.Because("gap_value")
	}
	currencies, whole := facts.ValuesOf(x, "currency")
	if !whole || len(currencies) == 0 || slices.ContainsFunc(currencies, func(s string) bool { return s != a.currency }) {
		return approval.Because("gap_currency")
	}
	return a.add(values, times)
}

// atMost says why the sum is above the bound; none if it is not.
func (a *amounts) atMost(bound string) approval.Reason {
	if most, ok := decimal(bound); ok && a.sum.Cmp(most) <= 0 {
		return approval.Reason{}
	}
	digits, _ := a.sum.FloatPrec() // all of them: a decimal number has an end
	return approval.Because("gap_sum", "n", a.sum.FloatString(digits))
}

// checkSum checks the sum of the amounts that the gate read, by step. Each recipient of a
// call may get them all: the arguments do not say whether they share.
func (s *evidenceIndex) checkSum(c *Clause, values map[int][]string) approval.Reason {
	n := map[int]int{}
	for _, h := range s.of.Host {
		if _, pays := values[h.Step]; pays && h.Name == recipientArg {
			n[h.Step] += recipients(h.Values)
			if h.Omitted > 0 {
				return approval.Because("gap_value")
			}
		}
	}
	sum := amounts{currency: c.Currency}
	for step, each := range values {
		if why := sum.add(each, max(1, n[step])); !why.IsZero() {
			return why
		}
	}
	return sum.atMost(c.Sum)
}
