package widthtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// values reads request_data. Numbers keep their digits.
func values(args string) (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(args))
	d.UseNumber()
	m := map[string]any{}
	return m, d.Decode(&m)
}

// same says why two requests are not the same, nil if they are; but for the words of their
// one command, if others is set.
func same(was, later Call, others bool) error {
	a, err := values(was.Args)
	b, err2 := values(later.Args)
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	if later.Tool == "" {
		if len(a) == 0 && was.Prose != later.Prose {
			return errors.New("other words of the agent, which were all that was shown")
		}
		if err := sameCommand(a, b, others); err != nil {
			return err
		}
	} else if others {
		if reflect.TypeOf(a[was.Command]) != reflect.TypeOf(b[was.Command]) {
			return errors.New("the command is given in another way")
		}
		delete(a, was.Command)
		delete(b, was.Command)
	}
	if !reflect.DeepEqual(a, b) {
		return errors.New("other arguments")
	}
	return nil
}

// sameCommand compares what an agent wants to run itself, and removes it from both.
func sameCommand(a, b map[string]any, others bool) error {
	was, name, err := commandIn(a)
	now, name2, err2 := commandIn(b)
	switch {
	case name == "" && name2 == "":
		return nil
	case errors.Join(err, err2) != nil:
		return errors.Join(err, err2)
	case others && (name != name2 || reflect.TypeOf(a[name]) != reflect.TypeOf(b[name2])):
		return errors.New("the command is given in another way")
	case !others && !reflect.DeepEqual(was, now):
		return fmt.Errorf("another command: %q, not %q", now, was)
	}
	delete(a, name)
	delete(b, name2)
	return nil
}

// commandIn finds the words of the one command among arguments of the agent's own naming.
func commandIn(args map[string]any) (words []string, name string, err error) {
	for _, n := range []string{"argv", "command", "cmd"} {
		v, ok := args[n]
		if !ok {
			continue
		}
		if name != "" {
			return nil, name, errors.New("two commands")
		}
		name = n
		words, err = wordsOf(v)
	}
	return words, name, err
}

func wordsOf(v any) (words []string, err error) {
	switch v := v.(type) {
	case string:
		return Words(v)
	case []any:
		for _, w := range v {
			s, ok := w.(string)
			if !ok {
				return nil, errors.New("a word that is no text")
			}
			words = append(words, s)
		}
		return words, nil
	}
	return nil, errors.New("no command")
}

// Words splits one plain command. It refuses every character that could mean more to a
// shell than itself.
func Words(line string) (words []string, err error) {
	word, open := strings.Builder{}, false
	end := func() {
		if open {
			words = append(words, word.String())
		}
		word.Reset()
		open = false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == ' ' || c == '\t':
			end()
		case c == '\'' || c == '"':
			rest, closed := line[i+1:], strings.IndexByte(line[i+1:], c)
			if closed < 0 || c == '"' && strings.ContainsAny(rest[:closed], "$`\\!") {
				return nil, fmt.Errorf("not a plain command: %q", line)
			}
			word.WriteString(rest[:closed])
			open, i = true, i+1+closed
		case strings.IndexByte(";|&$`<>(){}*?[]!\n\r\\\x00", c) >= 0, !open && (c == '#' || c == '~'):
			return nil, fmt.Errorf("not a plain command: %q", line)
		default:
			word.WriteByte(c)
			open = true
		}
	}
	end()
	if len(words) == 0 || assignment.MatchString(words[0]) {
		return nil, fmt.Errorf("no command: %q", line)
	}
	return words, nil
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\+?=`)

// command says why another command is not what the pattern says.
func (s sentence) command(was, later Call) error {
	if err := same(was, later, true); err != nil {
		return err
	}
	args, err := values(later.Args)
	if err != nil {
		return err
	}
	pattern, err := Words(s.target)
	if err != nil {
		return err
	}
	var words []string
	if later.Tool == "" {
		words, _, err = commandIn(args)
	} else {
		words, err = wordsOf(args[later.Command])
	}
	if err == nil && !matches(pattern, words) {
		err = fmt.Errorf("%q is not %q", words, pattern)
	}
	return err
}

// matches compares words: "..." stands for words that are no options and lead nowhere else.
func matches(pattern, words []string) bool {
	if len(pattern) == 0 {
		return len(words) == 0
	}
	if pattern[0] == "..." {
		return matches(pattern[1:], words) || len(words) > 0 && free(words[0]) && matches(pattern, words[1:])
	}
	return len(words) > 0 && pattern[0] == words[0] && matches(pattern[1:], words[1:])
}

var unfree = regexp.MustCompile(`^$|^[-/~@]|=|::|://|(^|/)\.\.(/|$)|[[:cntrl:]]`)

func free(word string) bool { return !unfree.MatchString(word) }

// leads says why a request leads elsewhere than the sentence says.
func (s sentence) leads(later Call) error {
	target, err := fill(later.Target, later.Args)
	if err != nil {
		return err
	}
	kind, ok := "to", target == s.target
	switch {
	case askedEachTime[later.Capability]:
		return errors.New("it must be asked each time")
	case paths[later.Capability]:
		kind = "on"
		ok = plainPath(target) && (s.form == "on" && ok || s.form == "like" && globOf(s.target).MatchString(target))
	case later.Capability == "network:http":
		kind = "at"
		was, known := origin(s.target)
		now, plain := origin(target)
		if was[0] == "" && now[0] == "https" { // https goes where no scheme was named
			now[0] = ""
			if now[2] == "443" {
				now[2] = ""
			}
		}
		ok = known && plain && was == now
	}
	if s.form != kind && (s.form != "like" || kind != "on") {
		return fmt.Errorf("the sentence is not about %q", target)
	}
	if !ok {
		return fmt.Errorf("it leads to %q", target)
	}
	return nil
}

var name = regexp.MustCompile(`\{[A-Za-z0-9_]+\}`)

// fill is a template with the arguments in it.
func fill(template, args string) (string, error) {
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(args), &m); err != nil {
		return "", err
	}
	return name.ReplaceAllStringFunc(template, func(field string) string {
		field = strings.Trim(field, "{}")
		v, ok := m[field]
		text := ""
		switch {
		case !ok:
			return "(no " + field + ")"
		case bytes.HasPrefix(v, []byte{'"'}) && json.Unmarshal(v, &text) == nil:
			return text
		}
		return string(v)
	}), nil
}

// plainPath says whether a path is written in the one way. One that does not begin with / may
// be a list.
func plainPath(p string) bool {
	for i, part := range strings.Split(p, "/") {
		if part == "." || part == ".." || part == "" && i > 0 && p[0] == '/' {
			return false
		}
	}
	return p != ""
}

// globOf is a path with * for any name, ** for any folders, [ab] and {a,b} for one of them, and
// \ before a character that stands for itself.
func globOf(glob string) *regexp.Regexp {
	b, braces := strings.Builder{}, 0
	b.WriteString(`(?s)^`)
	for i := 0; i < len(glob); i++ {
		switch end := strings.IndexByte(glob[i:], ']'); {
		case glob[i] == '\\' && i+1 < len(glob):
			i++
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		case glob[i:] == "/**":
			b.WriteString(`(/.*)?`)
			i += 2
		case strings.HasPrefix(glob[i:], "**/"):
			b.WriteString(`(.*/)?`)
			i += 2
		case glob[i] == '[' && end > 0 && letters.MatchString(glob[i:i+end+1]):
			b.WriteString(glob[i : i+end+1])
			i += end
		case glob[i] == '{':
			braces++
			b.WriteString(`(?:`)
		case glob[i] == '}' && braces > 0:
			braces--
			b.WriteString(`)`)
		case glob[i] == ',' && braces > 0:
			b.WriteString(`|`)
		case glob[i] == '*':
			b.WriteString(`[^/]*`)
		case glob[i] == '?':
			b.WriteString(`[^/]`)
		default:
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		}
	}
	r, err := regexp.Compile(b.String() + `$`)
	if err != nil {
		return never
	}
	return r
}

var (
	letters = regexp.MustCompile(`^\[[a-z]+\]$`)
	never   = regexp.MustCompile(`$.^`)
)

var address = regexp.MustCompile(`^(?:([A-Za-z]+)://)?` + // scheme
	`([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]*))?` + // host and port
	`(?:[/?#][^\\\s]*)?$`)

// origin is the scheme, host and port of an address: the usual port of its scheme, if it
// has one.
func origin(s string) (o [3]string, ok bool) {
	m := address.FindStringSubmatch(s)
	if m == nil || m[1] == "" && strings.Contains(s, "://") { // that may be a scheme
		return o, false
	}
	scheme, host, port := strings.ToLower(m[1]), strings.ToLower(m[2]), m[3]
	usual, known := map[string]string{"": "", "https": "443", "http": "80"}[scheme]
	if port == "" {
		port = usual
	}
	return [3]string{scheme, strings.TrimSuffix(host, "."), port}, known
}
