package codec

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Cost is a cost in millionths of the operator's unit. JSON has it in units, as a decimal
// number: 12.5.
type Cost int64

const perUnit = 1_000_000

// MaxCost is more than any budget.
const MaxCost Cost = math.MaxInt64

// Units is a whole number of units.
func Units(n int64) Cost { return Cost(n) * perUnit }

// ParseCost reads a decimal number of units without an exponent, exactly; of more than six
// decimals it takes the next higher cost. A cost that is too large is MaxCost. ok is false
// for what is no such number, or is below 0.
func ParseCost(s string) (c Cost, ok bool) {
	if s == "" || len(s) > 100 || strings.Trim(s, "0123456789.") != "" || s[0] == '.' || s[len(s)-1] == '.' {
		return MaxCost, false
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return MaxCost, false
	}
	r.Mul(r, big.NewRat(perUnit, 1))
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return MaxCost, true
	}
	return Cost(n.Int64()), true
}

// Plus adds costs of 0 or more. The sum is at most MaxCost.
func (c Cost) Plus(d Cost) Cost {
	if c > MaxCost-d {
		return MaxCost
	}
	return c + d
}

// String is the cost in units.
func (c Cost) String() string {
	whole, rest := strconv.FormatInt(int64(c/perUnit), 10), int64(c%perUnit)
	if rest == 0 || c < 0 {
		return whole
	}
	digits := strconv.FormatInt(perUnit+rest, 10)[1:]
	return whole + "." + strings.TrimRight(digits, "0")
}

// MarshalJSON writes the cost in units.
func (c Cost) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON reads a cost in units. What is no cost is MaxCost, so that a budget counts it.
func (c *Cost) UnmarshalJSON(b []byte) error {
	*c, _ = ParseCost(string(b))
	return nil
}
