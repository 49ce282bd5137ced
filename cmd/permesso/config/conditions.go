package config

import (
	"cmp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a container may have no time zones

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

const (
	argsHint   = `args = { path = "/data/**", command = ["go test ...", "git status"], amount = { max = "20.00" } }`
	equalHint  = `{ equals = "first line\nsecond line" }, or { json = '{"rate":1.5}' }`
	boundHint  = `a decimal number: { max = "20.00", min = 1 }`
	windowHint = `between = "08:00-18:00", weekdays = ["mon-fri"], time_zone = "Europe/Rome"`
)

// conditions reads the conditions on arguments. declared are the arguments of the rule's
// tool, nil if it is not known.
func (s *section) conditions(declared map[string]approval.Argument) (all []policy.Condition) {
	sub := s.table("args")
	if sub == nil {
		return nil
	}
	if len(sub.node.order) == 0 {
		sub.fail(sub.node.key, "", argsHint, "args names no argument")
	}
	for _, name := range sub.node.order {
		var c policy.Condition
		if parts := sub.tables[name]; parts != nil {
			c = parts.condition(name)
			sub.failed = sub.failed || parts.failed
		} else {
			c = get[policy.Condition](sub, name)
		}
		all = append(all, c)
		if !sub.failed {
			sub.checkCondition(c, declared)
		}
	}
	s.failed = s.failed || sub.failed
	return all
}

// checkCondition reports a condition that the declared argument can never meet.
func (s *section) checkCondition(c policy.Condition, declared map[string]approval.Argument) {
	name, _, _ := strings.Cut(c.Field, ".")
	at := s.node.children[c.Field].key
	a, known := declared[name]
	err := c.Check()
	switch {
	case err == nil && known:
		err = c.CheckType(a)
	case err == nil && declared != nil:
		s.warn(at, c.Field, didYouMean(name, sortedKeys(declared), ""), "rule never matches: its tool has no argument %s", quote(name))
	}
	if err != nil {
		s.fail(at, c.Field, conditionHint(c.Field, a.Type), "%s", visible(err.Error()))
	}
}

// conditionHint is a condition that an argument of a type can meet, to paste.
func conditionHint(name, kind string) string {
	hint, typed := map[string]string{
		facts.TypeCommand: `["go test ...", "git status"]`, facts.TypePath: `"/data/**"`, facts.TypeURL: `"good.com"`, facts.TypeHost: `"good.com"`,
		facts.TypeRecipients: `["ann@example.org", "@example.org"]`, facts.TypeAmount: `{ max = "20.00" }`, facts.TypeNumber: "{ max = 10 }",
		facts.TypeBool: "true", facts.TypeJSON: `{ json = '{"a":1}' }`,
	}[kind]
	if !typed {
		hint = `{ contains = "standup" }`
	}
	return "args = { " + keyTOML(name) + " = " + hint + " }"
}

// condition reads the parts of one condition: { max = "20.00", currency = "EUR" }.
func (s *section) condition(argument string) policy.Condition {
	if s.has("equals") && s.has("json") || len(s.node.order) == 0 {
		s.fail(s.node.key, "", equalHint, "%s needs equals, json, contains, matches, max or min", argument)
	}
	key := "equals"
	if s.has("json") {
		key = "json"
	}
	return policy.Condition{
		Field: argument, Equals: get[approval.Raw](s, key), Contains: s.text("contains"), Matches: s.text("matches"),
		Max: s.text("max"), Min: s.text("min"), Currency: s.text("currency"), Optional: s.flag("optional"),
	}
}

func conditionKeys() []Key {
	return []Key{
		{Name: "equals", Example: `"team"`, Help: "this value; a text is no pattern", Hint: equalHint, valueType: exactType()},
		{Name: "json", Example: `"null"`, Help: "the value as JSON, for what TOML cannot say", Hint: equalHint, valueType: jsonType()},
		{Name: "contains", Example: `"standup"`, Help: "a part of a text", Hint: `{ contains = "standup" }`, valueType: must("text", func(v string) bool { return v != "" }, "is empty")},
		{Name: "matches", Example: `"[A-Z]+-[0-9]+"`, Help: "a regular expression for the whole text", Hint: `{ matches = "[A-Z]+-[0-9]+" }`, valueType: must("regular expression", func(v string) bool { return v != "" }, "is empty")},
		{Name: "max", Example: `"20.00"`, Help: "of an amount or a number", Hint: boundHint, valueType: decimalType(true)},
		{Name: "min", Example: `"1.00"`, Help: "of an amount or a number", Hint: boundHint, valueType: decimalType(true)},
		{Name: "currency", Example: `"EUR"`, Help: "of an amount", Hint: `{ max = "20.00", currency = "EUR" }`, valueType: matching("currency", `^[A-Z0-9]{2,10}$`, "a currency's code, such as EUR")},
		{Name: "optional", Default: "false", Help: "true, of an allow: a request without the argument matches, too", Hint: `{ matches = ".*", optional = true }`, valueType: flag(), instead: true},
	}
}

// conditionType is a pattern or a list of patterns, by the type of the argument, or a whole
// number, true or false.
func conditionType() valueType {
	t := valueType{text: "pattern, or a list of patterns; whole number; true or false", schema: simpleSchema()}
	t.read = func(s *section, k Key, n *node) any {
		if n.kind == text {
			return policy.Condition{Field: k.Name, Is: []string{n.text}}
		}
		if n.kind == array && !slices.ContainsFunc(n.items, func(item *node) bool { return item.kind != text }) {
			c := policy.Condition{Field: k.Name, Is: []string{}}
			for _, item := range n.items {
				c.Is = append(c.Is, item.text)
			}
			return c
		}
		if v, ok := jsonOf(n); ok {
			return policy.Condition{Field: k.Name, Equals: v}
		}
		s.fail(n.val, k.Name, argsHint, "%s must be a pattern, a whole number, true or false, or a list of patterns", k.Name)
		return nil
	}
	return t
}

func simpleSchema() schema {
	return schema{"anyOf": []schema{
		{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "array", "items": schema{"type": "string"}},
	}}
}

// exactType is a value that an argument must have. A text is no glob here.
func exactType() valueType {
	t := valueType{text: "text, whole number, true or false, or list of strings", schema: simpleSchema()}
	t.read = func(s *section, k Key, n *node) any {
		if n.kind == text {
			b, err := json.Marshal(n.text)
			if err == nil {
				return approval.Raw(b)
			}
		}
		if v, ok := jsonOf(n); ok {
			return v
		}
		s.fail(n.val, k.Name, equalHint, "%s must be a text, a whole number, true or false, or a list of strings", k.Name)
		return nil
	}
	return t
}

// jsonType is any JSON value, as text.
func jsonType() valueType {
	t := checked("JSON value", func(v string) string {
		if !jsontext.Value(v).IsValid() {
			return "is not a JSON value"
		}
		return ""
	})
	read := t.read
	t.read = func(s *section, k Key, n *node) any {
		if v, ok := read(s, k, n).(string); ok {
			return approval.Raw(v)
		}
		return nil
	}
	return t
}

// weekdays are their names in the configuration, by time.Weekday.
var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// window reads between, weekdays and time_zone.
func (s *section) window() (w policy.Window) {
	if v := s.text("between"); v != "" {
		from, to, _ := strings.Cut(v, "-")
		if from == to {
			s.fail(s.position("between"), "between", windowHint, "between must be two different times of day")
		}
		w.From, w.To = timeOfDay(from), timeOfDay(to)
	}
	for _, days := range s.items("weekdays") {
		first, last, _ := strings.Cut(days.text, "-")
		from, to := slices.Index(weekdays, first), slices.Index(weekdays, cmp.Or(last, first))
		for d := from; ; d = (d + 1) % 7 {
			w.Days[d] = true
			if d == to {
				break
			}
		}
	}
	if name := s.text("time_zone"); name != "" {
		w.Zone, _ = time.LoadLocation(name) // it was checked
		if w.From == w.To && w.Days == [7]bool{} {
			s.fail(s.position("time_zone"), "time_zone", windowHint, "time_zone needs between or weekdays")
		}
	}
	return w
}

// timeOfDay reads HH:MM.
func timeOfDay(v string) time.Duration {
	d, _ := time.ParseDuration(strings.Replace(v, ":", "h", 1) + "m") // digits
	return d
}

const dayPattern = `(sun|mon|tue|wed|thu|fri|sat)`

func windowKeys() []Key {
	valid := pattern(`^` + dayPattern + `(-` + dayPattern + `)?$`)
	zone := must("time zone", func(v string) bool {
		_, err := time.LoadLocation(v)
		return err == nil && v != "" && v != "Local"
	}, "is no time zone")
	return []Key{
		{Name: "between", instead: true, Example: `"08:00-18:00"`, Help: "from this time of day until that", Hint: windowHint, valueType: timesOfDay()},
		{Name: "weekdays", instead: true, Example: `["mon-fri"]`, Help: "sun, mon, tue, wed, thu, fri, sat, and from-to", Hint: windowHint, valueType: listOf("list of weekdays", anyText(), validText(func(v string) bool { return valid().MatchString(v) }), "weekdays: mon, tue, mon-fri")},
		{Name: "time_zone", instead: true, Example: `"Europe/Rome"`, Help: "of both; default: this machine's", Hint: windowHint, valueType: zone},
	}
}

func timesOfDay() valueType {
	return matching("two times of day", `^([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])$`, "two different times of day")
}
