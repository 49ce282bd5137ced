package config

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// valueType is what a key takes.
type valueType struct {
	kinds  []kind // accepted ones, of which messages name the first; none: any
	text   string // for people
	hint   string // of an error, if the key has none
	schema schema
	// read returns the value of a node of an accepted kind. After reporting an issue
	// it returns nil.
	read func(s *section, k Key, n *node) any
}

// schema is a part of a JSON schema.
type schema map[string]any

func tables(text string) valueType { return valueType{kinds: []kind{table}, text: text} }

func tableList() valueType { return valueType{kinds: []kind{array}, text: "list of tables"} }

func flag() valueType {
	return valueType{
		kinds: []kind{boolean}, text: "true or false", hint: "true or false, without quotes", schema: schema{"type": "boolean"},
		read: func(_ *section, _ Key, n *node) any { return n.text == "true" },
	}
}

// checked is a text for which problem returns "", or what is wrong with it. The text
// is not quoted: it may be a secret.
func checked(name string, problem func(string) string) valueType {
	return valueType{
		kinds: []kind{text}, text: name, schema: schema{"type": "string"},
		read: func(s *section, k Key, n *node) any {
			if p := problem(n.text); p != "" {
				s.fail(n.val, k.Name, k.Hint, "%s %s", k.Name, p)
				return nil
			}
			return n.text
		},
	}
}

func must(name string, valid func(string) bool, rule string) valueType {
	return checked(name, func(v string) string {
		if valid(v) {
			return ""
		}
		return rule
	})
}

func anyText() valueType { return must("string", func(string) bool { return true }, "") }

func glob() valueType {
	return must("string; * stands for any text", func(v string) bool { return v != "" }, "is empty")
}

// matching is a text of a pattern that JSON Schema has, too.
func matching(name, expression, rule string) valueType {
	valid := pattern(expression)
	t := must(name, func(v string) bool { return valid().MatchString(v) }, "must be "+rule)
	t.schema = schema{"type": "string", "pattern": expression}
	return t
}

// line is a text for display.
func line(maxLen int) valueType {
	t := must(fmt.Sprintf("one line, at most %d bytes", maxLen), func(v string) bool { return v != "" && len(v) <= maxLen && printable(v) },
		fmt.Sprintf("must be one line of 1 to %d bytes, without invisible characters", maxLen))
	t.schema = schema{"type": "string", "minLength": 1, "maxLength": maxLen}
	return t
}

func printable(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) })
}

func word(allowed ...string) valueType {
	return valueType{
		kinds: []kind{text}, text: "one of " + strings.Join(allowed, ", "), hint: "one of " + list(allowed), schema: schema{"enum": allowed},
		read: func(s *section, k Key, n *node) any {
			if !s.checkAllowed(n, k.Name, allowed) {
				return nil
			}
			return n.text
		},
	}
}

func duration(least, most time.Duration) valueType {
	return valueType{
		kinds: []kind{text}, text: "duration, " + short(least) + " to " + short(most), hint: `write it with its unit: "30s", "5m", "1h30m"`,
		schema: schema{"type": "string", "pattern": `^([0-9]+d|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`},
		read: func(s *section, k Key, n *node) any {
			d, err := parseDuration(n.text)
			switch {
			case err != nil:
				s.fail(n.val, k.Name, k.hintText(), "%s is not a duration", k.Name)
			case d < least || d > most:
				s.fail(n.val, k.Name, "", "%s must be %s to %s", k.Name, short(least), short(most))
			default:
				return d
			}
			return nil
		},
	}
}

// parseDuration also takes days.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		count, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(count) * dayLong, err
	}
	return time.ParseDuration(s)
}

// short formats a duration without zero parts: 24h, not 24h0m0s. Years are in days.
func short(d time.Duration) string {
	if d > maxWait {
		return strconv.Itoa(int(d/dayLong)) + "d"
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func number(least, most int64) valueType {
	return valueType{
		kinds: []kind{integer}, text: fmt.Sprintf("whole number, %d to %d", least, most), schema: schema{"type": "integer", "minimum": least, "maximum": most},
		read: func(s *section, k Key, n *node) any {
			if v, ok := inRange(n, least, most); ok {
				return v
			}
			s.fail(n.val, k.Name, k.hintText(), "%s must be %d to %d", k.Name, least, most)
			return nil
		},
	}
}

func inRange(n *node, least, most int64) (int64, bool) {
	v, err := strconv.ParseInt(n.text, 0, 64)
	return v, n.kind == integer && err == nil && v >= least && v <= most
}

const sizeExpression = `^([0-9]{1,9})(B|KiB|MiB|GiB)$`

// size is a number of bytes, with a unit or without.
func size(least, most int64) valueType {
	t := number(least, most)
	plain, withUnit := t.read, pattern(sizeExpression)
	t.kinds, t.text, t.hint = []kind{text, integer}, "size, "+bytesText(least)+" to "+bytesText(most), `write it with its unit: "256KiB", "1MiB"`
	t.schema = schema{"anyOf": []any{t.schema, schema{"type": "string", "pattern": sizeExpression}}}
	t.read = func(s *section, k Key, n *node) any {
		if n.kind == integer {
			return plain(s, k, n)
		}
		m := withUnit().FindStringSubmatch(n.text)
		if m == nil {
			s.fail(n.val, k.Name, k.hintText(), "%s is not a size", k.Name)
			return nil
		}
		v, _ := strconv.ParseInt(m[1], 10, 64) // nine digits at most
		if v <<= map[string]int{"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]]; v < least || v > most {
			s.fail(n.val, k.Name, "", "%s must be %d to %d bytes", k.Name, least, most)
			return nil
		}
		return v
	}
	return t
}

func bytesText(n int64) string {
	unit := min(bits.TrailingZeros64(uint64(n))/10, 3)
	return strconv.FormatInt(n>>(10*unit), 10) + []string{"B", "KiB", "MiB", "GiB"}[unit]
}

// listOf is a list of valid values, which rule describes. Its value is their nodes,
// because later checks report positions.
func listOf(name string, item valueType, valid func(*node) bool, rule string) valueType {
	return valueType{
		kinds: []kind{array}, text: name, schema: schema{"type": "array", "items": item.schema},
		read: func(s *section, k Key, n *node) any {
			items := make([]*node, 0, len(n.items))
			for _, at := range n.items {
				switch {
				case item.kinds[0] == text && at.kind != text:
					s.fail(at.val, k.Name, k.hintText(), "%s must hold strings, not %s", k.Name, at.kind)
					return nil
				case !valid(at):
					s.fail(at.val, k.Name, k.hintText(), "%s must hold %s", k.Name, rule)
				default:
					items = append(items, at)
				}
			}
			return items
		},
	}
}

func anyItem(*node) bool { return true }

// domainPattern is a domain name as DNS has it, in lower case; one of another script is
// written as xn--….
const domainPattern = `^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`

func domainList() valueType {
	valid := pattern(domainPattern)
	isDomain := func(v string) bool { return len(v) <= 253 && valid().MatchString(v) }
	t := listOf("list of domain names", anyText(), validText(isDomain), `domain names in lower case, without @, * or a final dot`)
	t.schema = schema{"type": "array", "items": schema{"type": "string", "maxLength": 253, "pattern": domainPattern}}
	return t
}

func despiteType() valueType {
	kinds := []string{"trifecta", "secrets"}
	known := validText(func(v string) bool { return slices.Contains(kinds, v) })
	return listOf("list of trifecta, secrets", word(kinds...), known, list(kinds))
}

func validText(valid func(string) bool) func(*node) bool {
	return func(n *node) bool { return valid(n.text) }
}

func numbers(name string, least, most int64, rule string) valueType {
	return listOf(name, number(least, most), func(n *node) bool {
		_, ok := inRange(n, least, most)
		return ok
	}, rule)
}

func oneOrMoreTexts() valueType {
	return oneOrMore("string, or a list of them", anyText(), listOf("", anyText(), anyItem, ""))
}

// namesType takes a name or a list of names, each with a star at its end or without.
func namesType(valid func(string) bool) valueType {
	fits := func(v string) bool {
		prefix, star := strings.CutSuffix(v, "*")
		return valid(v) || star && valid(prefix)
	}
	return oneOrMore("name, or a list of them", must("name", fits, "is not a name"), listOf("", anyText(), validText(fits), "names"))
}

// oneOrMore takes a value of the type one, or a list as of several.
func oneOrMore(name string, one, several valueType) valueType {
	return valueType{
		kinds: slices.Concat(one.kinds, several.kinds), text: name,
		schema: schema{"anyOf": []any{one.schema, several.schema}},
		read: func(s *section, k Key, n *node) any {
			switch {
			case n.kind == array:
				return several.read(s, k, n)
			case one.read(s, k, n) == nil:
				return nil
			}
			return []*node{n}
		},
	}
}

// checkAllowed reports a value that is not allowed. It does not quote the value,
// which may be a secret.
func (s *section) checkAllowed(n *node, key string, allowed []string) bool {
	if slices.Contains(allowed, n.text) {
		return true
	}
	s.fail(n.val, key, didYouMean(n.text, allowed, ""), "%s must be %s", key, list(allowed))
	return false
}

// pattern compiles a regular expression on first use: most commands need none.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
