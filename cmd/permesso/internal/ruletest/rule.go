// Package ruletest is test support: it says what a rule of a configuration means for a
// request, as security/policy/RULES.md describes it. It is slow and simple, and shares no
// code with what it judges: it imports none of our packages.
package ruletest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Answer is the set of the answers to "does this apply?" that the document leaves open.
// Mostly it has one element.
type Answer uint8

// The answers.
const (
	No Answer = 1 << iota
	Unknown
	Yes
)

// Has reports whether all answers of b are in a.
func (a Answer) Has(b Answer) bool { return a&b == b }

// String implements fmt.Stringer.
func (a Answer) String() string {
	var words []string
	for _, x := range []struct {
		is   Answer
		word string
	}{{Yes, "yes"}, {No, "no"}, {Unknown, "cannot be told"}} {
		if a.Has(x.is) {
			words = append(words, x.word)
		}
	}
	return strings.Join(words, " or ")
}

// both combines two answers one by one.
func both(a, b Answer, of func(x, y Answer) Answer) (all Answer) {
	for _, x := range []Answer{No, Unknown, Yes} {
		for _, y := range []Answer{No, Unknown, Yes} {
			if a.Has(x) && b.Has(y) {
				all |= of(x, y)
			}
		}
	}
	return all
}

// every is Yes if all are, and No if one is.
func every(answers ...Answer) Answer {
	all := Yes
	for _, a := range answers {
		all = both(all, a, func(x, y Answer) Answer { return min(x, y) })
	}
	return all
}

// some is Yes if one is, and No if all are.
func some(answers ...Answer) Answer {
	all := No
	for _, a := range answers {
		all = both(all, a, func(x, y Answer) Answer { return max(x, y) })
	}
	return all
}

func answer(holds bool) Answer {
	if holds {
		return Yes
	}
	return No
}

// Rule is one of the rules of a configuration: its keys with their values as TOML has them.
type Rule struct {
	Outcome string
	Match   map[string]any
}

// Argument is what a tool declares of an argument.
type Argument struct {
	Type     string
	Currency string // a code, or the argument that names it
}

// Request is a request as the gate knows it.
type Request struct {
	Tool, Capability, Target             string
	Workspace, Session, Client, Approver string
	Declared                             map[string]Argument
	Args                                 map[string]any // numbers as json.Number
	Now                                  time.Time      // in the zone of the machine
}

// judge asks about one request for one rule: narrowly for an allow, else widely.
type judge struct {
	narrow bool
	q      Request
}

// Applies says whether the rule applies. For an allow it is never Unknown: what cannot be
// told is No.
func (r Rule) Applies(q Request) Answer {
	j := judge{r.Outcome == "allow", q}
	a := every(j.names(r.Match), outsidePrograms(r.Match), j.target(r.Match), j.when(r.Match), j.conditions(r.Match))
	if j.narrow && a.Has(Unknown) {
		a = a&^Unknown | No
	}
	return a
}

// outsidePrograms answers for the key of programs: the requests are no steps of one.
func outsidePrograms(match map[string]any) Answer {
	program, _ := match["program"].(bool)
	return answer(!program)
}

// names answers for the keys that compare names.
func (j judge) names(match map[string]any) Answer {
	all := Yes
	for key, name := range map[string]string{
		"tool": j.q.Tool, "workspace": j.q.Workspace, "session": j.q.Session, "client": j.q.Client,
	} {
		if patterns, ok := match[key]; ok {
			all = every(all, answer(slices.ContainsFunc(texts(patterns), func(p string) bool {
				start, star := strings.CutSuffix(p, "*")
				return p == name || star && strings.HasPrefix(name, start)
			})))
		}
	}
	for key, name := range map[string]string{"approver": j.q.Approver, "capability": j.q.Capability} {
		if is, ok := match[key]; ok {
			all = every(all, answer(slices.Contains(texts(is), name)))
		}
	}
	return all
}

// texts is one text, or the texts of a list.
func texts(v any) (all []string) {
	for _, x := range list(v) {
		if s, ok := x.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// list is a list, or one value as a list.
func list(v any) []any {
	if l, ok := v.([]any); ok {
		return l
	}
	return []any{v}
}

func (j judge) target(match map[string]any) Answer {
	patterns, ok := match["target"]
	if !ok {
		return Yes
	}
	if strings.HasPrefix(j.q.Capability, "fs:") {
		return j.paths(texts(patterns), j.q.Target)
	}
	all := No
	for _, p := range texts(patterns) {
		switch {
		case j.q.Capability == "network:http" && strings.Contains(j.q.Target, "://"):
			all = some(all, j.url(p, j.q.Target))
		case j.q.Capability == "network:http":
			all = some(all, j.host(p, j.q.Target))
		default:
			all = some(all, j.targetText(p))
		}
	}
	return all
}

func (j judge) targetText(pattern string) Answer {
	if globText(pattern, j.q.Target) {
		return Yes
	}
	if j.narrow {
		return No
	}
	return answer(globText(fold(pattern), fold(j.q.Target)))
}

// globText matches a text, where * stands for any text without / and ** for any text.
func globText(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	rest, across := strings.CutPrefix(pattern, "**")
	if !across {
		var star bool
		if rest, star = strings.CutPrefix(pattern, "*"); !star {
			return text != "" && text[0] == pattern[0] && globText(pattern[1:], text[1:])
		}
	}
	for i := 0; i <= len(text); i++ {
		if globText(rest, text[i:]) {
			return true
		}
		if i < len(text) && text[i] == '/' && !across {
			break
		}
	}
	return false
}

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// when answers for the time of day and the day.
func (j judge) when(match map[string]any) Answer {
	now := j.q.Now
	if zone, ok := match["time_zone"].(string); ok {
		l, err := time.LoadLocation(zone)
		if err != nil {
			return No
		}
		now = now.In(l)
	}
	day, inside := int(now.Weekday()), true
	if between, ok := match["between"].(string); ok {
		from, until := minuteOf(between[:5]), minuteOf(between[6:])
		at := now.Hour()*60 + now.Minute()
		inside = from <= at && at < until
		if until < from {
			inside = at >= from || at < until
			if at < until {
				day = (day + 6) % 7
			}
		}
	}
	if names, ok := match["weekdays"]; ok {
		inside = inside && slices.ContainsFunc(texts(names), func(s string) bool {
			first, last, isRange := strings.Cut(s, "-")
			if !isRange {
				last = first
			}
			for d := slices.Index(days, first); ; d = (d + 1) % 7 {
				if d == day || days[d] == last {
					return d == day
				}
			}
		})
	}
	return answer(inside)
}

func minuteOf(clock string) int {
	hour, err := strconv.Atoi(clock[:2])
	minute, err2 := strconv.Atoi(clock[3:])
	if err != nil || err2 != nil {
		return -1
	}
	return hour*60 + minute
}

// conditions answers for args and other_args.
func (j judge) conditions(match map[string]any) Answer {
	args, _ := match["args"].(map[string]any)
	all := Yes
	for name, condition := range args {
		all = every(all, j.named(name, condition))
	}
	if others, ok := match["other_args"].(bool); ok && !others && j.narrow {
		for name := range j.q.Args {
			if _, conditioned := args[name]; conditioned {
				continue
			}
			all = every(all, No|Yes)
			if !slices.ContainsFunc(slices.Collect(maps.Keys(args)), func(a string) bool { return strings.HasPrefix(a, name+".") }) {
				return No
			}
		}
	}
	return all
}

// named answers for the condition on an argument, or on a member of one.
func (j judge) named(name string, condition any) Answer {
	if declared, ok := j.q.Declared[name]; ok && !strings.Contains(name, ".") {
		value, given := j.q.Args[name]
		return j.argument(declared, condition, value, given)
	}
	parts := strings.Split(name, ".")
	if _, given := j.q.Args[name]; given && len(parts) > 1 {
		return Unknown
	}
	declared, ok := j.q.Declared[parts[0]]
	value, given := j.q.Args[parts[0]]
	switch {
	case !ok && given && len(parts) == 1:
		return Unknown | No // a request without a tool declares nothing
	case !ok || len(parts) == 1 || !given:
		return Unknown
	case declared.Type != "json":
		return Unknown
	}
	return j.member(parts[1:], condition, value)
}

// member answers for the condition on a member of a JSON value.
func (j judge) member(names []string, condition, value any) Answer {
	if l, ok := value.([]any); ok && len(names) > 0 {
		return j.elements(l, func(x any) Answer { return j.member(names, condition, x) })
	}
	if len(names) == 0 {
		return j.leaf(condition, value)
	}
	members, ok := value.(map[string]any)
	if !ok {
		return Unknown
	}
	v, given := members[names[0]]
	if !given {
		return Unknown
	}
	a := j.member(names[1:], condition, v)
	for other := range members {
		if other != names[0] && strings.EqualFold(other, names[0]) {
			return some(a, Unknown) | Unknown // a reader may take this one
		}
	}
	return a
}

// leaf answers for a member, which is read as text, number or list, as it stands there.
func (j judge) leaf(condition, value any) Answer {
	if m, ok := condition.(map[string]any); ok {
		_, equal := m["equals"]
		_, same := m["json"]
		if equal || same {
			return j.same(m, value)
		}
	}
	switch v := value.(type) {
	case string:
		return j.listElement(condition, v)
	case []any:
		return j.elements(v, func(x any) Answer { return j.listElement(condition, x) })
	}
	return j.listElement(condition, value)
}

// elements answers for the elements of a list: all of them for an allow, else one.
func (j judge) elements(values []any, of func(any) Answer) Answer {
	var all []Answer
	for _, v := range values {
		all = append(all, of(v))
	}
	switch {
	case !j.narrow:
		return some(all...)
	case len(all) == 0:
		return No
	}
	return every(all...)
}

// Strictest is the answer of several rules of one kind: one that applies is enough.
func Strictest(answers ...Answer) Answer { return some(answers...) }
