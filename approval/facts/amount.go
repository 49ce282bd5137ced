package facts

import (
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Amount is a number as it is written: digits are never rounded or grouped.
type Amount struct {
	Text     string
	Valid    bool // [-+]digits[.digits][e[-+]digits]
	Zero     bool
	Negative bool
	Exponent bool
}

// AmountOf reads a number.
func AmountOf(text string) Amount {
	a := Amount{Text: text}
	rest := text
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		a.Negative, rest = rest[0] == '-', rest[1:]
	}
	mantissa, exponent := rest, ""
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		mantissa, exponent, a.Exponent = rest[:i], rest[i+1:], true
		if exponent != "" && (exponent[0] == '-' || exponent[0] == '+') {
			exponent = exponent[1:]
		}
	}
	whole, fraction, point := strings.Cut(mantissa, ".")
	a.Valid = digits(whole) && (!point || digits(fraction)) && (!a.Exponent || digits(exponent))
	a.Zero = a.Valid && strings.Trim(mantissa, "0.") == ""
	return a
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// IsCurrency says whether s is written as a currency's code: EUR.
func IsCurrency(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// CostOf is what a request costs: an amount of its arguments, or what the tool costs always.
// What cannot be counted costs more than any budget.
func CostOf(t approval.Tool, data approval.Raw) codec.Cost {
	if t.CostArg == "" {
		return t.Cost
	}
	fields, err := codec.Fields(data)
	if err != nil {
		return codec.MaxCost
	}
	for _, f := range fields {
		if f.Name != t.CostArg {
			continue
		}
		text, ok := f.Text()
		if !ok {
			text = string(f.Value)
		}
		cost, _ := codec.ParseCost(strings.TrimSpace(text))
		return cost
	}
	return codec.MaxCost
}
