// Package widthtest is test support: it checks that a grant allows nothing but what its
// sentence says. Consent judges by the sentence's text. It shares no code with what it
// judges: it imports none of our packages.
package widthtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Call is a request as the agent sent it, with what the configuration says of its tool.
type Call struct {
	ID                         string
	Workspace, Client, Session string
	Tool                       string // "": the agent itself acts
	Action                     string // then: the action type
	Definition                 string // of the tool, as configured
	Capability                 string
	Target                     string // the tool's target, with {names} of arguments
	Command                    string // the tool's only argument that is a command; "": none
	Args                       string // request_data
	Prose                      string // what the agent says; it counts where there is nothing else
	At                         time.Time
}

// Consent is what a person was told when a grant was given.
type Consent struct {
	Offer string    // the sentence on the card; "" of a grant that was given without a card
	Grant string    // the sentence in the list of grants
	Call  Call      // what was approved, or named on the command line
	Until time.Time // the end in the list of grants
}

// sentence is what a sentence says.
type sentence struct {
	once      bool   // it holds in one session
	session   string // of this name; "": the one of the request that was approved
	days      int    // 0: until says it
	until     string
	form      string // a key of forms
	workspace string
	client    string // "": the agent with the workspace's folder
	tool      string // or the action
	target    string // or the words of a pattern
	id        string // of the same request
}

// A value in a sentence is one plain word, or stands in quotation marks.
const (
	value     = `(?:"(?:[^"\\]|\\.)*"|[^ \[\]()|"\\␠;,]+)`
	until     = `until (?P<until>[0-9]{4}-[0-9]{2}-[0-9]{2})`
	workspace = ` in (?P<workspace>` + value + `)(?: \(API key (?P<client>` + value + `)\))?$`
)

func form(words string) *regexp.Regexp {
	words = strings.ReplaceAll(words, "TOOL", `(?P<tool>`+value+`)`)
	words = strings.ReplaceAll(words, "TARGET", `(?P<target>`+value+`)`)
	words = strings.ReplaceAll(words, "LIST", `(?P<target>`+value+`|\[`+value+`(?:, `+value+`)*\])`)
	return regexp.MustCompile(`^` + words + workspace)
}

// forms are the sentences about what is allowed.
var forms = map[string]*regexp.Regexp{
	"tool":    form(`TOOL with any arguments`),
	"to":      form(`TOOL to LIST`),
	"at":      form(`TOOL at TARGET`),
	"on":      form(`TOOL on TARGET`),
	"like":    form(`TOOL on every path like TARGET`),
	"again":   form(`exactly (?:this TOOL request|the (?P<tool2>` + value + `) request (?P<id>[0-9a-f]+)) again`),
	"command": form(`TOOL like TARGET without other options`),
	"action":  form(`every TOOL that the agent does itself, but no tool,`),
	"any":     form(`any command that the agent runs itself, but no tool,`),
}

var (
	now    = regexp.MustCompile(`^For this session: (?P<what>.+)$`)
	later  = regexp.MustCompile(`^In session (?P<session>` + value + `): (?P<what>.+), ` + until + `$`)
	always = regexp.MustCompile(`^Always: (?P<what>.+), (?:(?P<days>[0-9]+) days|` + until + `)$`)
)

// read reads a sentence. It must have exactly one meaning.
func read(text string) (s sentence, err error) {
	parts := map[string]string{}
	for _, frame := range []*regexp.Regexp{now, later, always} {
		maps.Copy(parts, match(frame, text))
		s.once = s.once || frame != always && parts["what"] != ""
	}
	what := parts["what"]
	if what == "" {
		return s, fmt.Errorf("it does not say for how long: %q", text)
	}
	for name, words := range forms {
		if m := match(words, what); m != nil && s.form != "" {
			return s, fmt.Errorf("it has two meanings: %q", text)
		} else if m != nil {
			s.form = name
			maps.Copy(parts, m)
		}
	}
	if s.form == "" {
		return s, fmt.Errorf("it says nothing of what is allowed: %q", text)
	}
	s.days, _ = strconv.Atoi(parts["days"])
	s.until, s.id, s.tool = parts["until"], parts["id"], parts["tool"]+parts["tool2"]
	if s.target = parts["target"]; strings.HasPrefix(s.target, "[") {
		s.target, err = list(s.target)
	} else {
		err = unescape(&s.target)
	}
	return s, errors.Join(err, unescape(&s.workspace, parts["workspace"]), unescape(&s.client, parts["client"]),
		unescape(&s.session, parts["session"]), unescape(&s.tool))
}

// match returns the named parts of a text, nil if it does not match.
func match(words *regexp.Regexp, text string) map[string]string {
	m := words.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	parts := map[string]string{}
	for i, name := range words.SubexpNames() {
		if name != "" && m[i] != "" {
			parts[name] = m[i]
		}
	}
	return parts
}

var oneValue = regexp.MustCompile(value)

// list is the JSON list of the values in brackets.
func list(shown string) (string, error) {
	var texts []string
	for _, s := range oneValue.FindAllString(strings.Trim(shown, "[]"), -1) {
		if err := unescape(&s); err != nil {
			return "", err
		}
		texts = append(texts, s)
	}
	b, err := json.Marshal(texts)
	return string(b), err
}

var written = regexp.MustCompile(`\\u\{([0-9A-F]+)\}|\\x\{([0-9A-F]{2})\}|␠\{([0-9]+)\}|\\(.)|([‹›])`)

// unescape replaces a value, or what is shown, by what it stands for. A mask stands for
// something that the person did not see.
func unescape(s *string, shown ...string) (err error) {
	if len(shown) > 0 {
		*s = shown[0]
	}
	if strings.HasPrefix(*s, `"`) {
		*s = strings.TrimSuffix((*s)[1:], `"`)
	}
	*s = written.ReplaceAllStringFunc(*s, func(part string) string {
		m := written.FindStringSubmatch(part)
		switch {
		case m[1] != "":
			r, _ := strconv.ParseInt(m[1], 16, 32)
			return string(rune(r))
		case m[2] != "":
			b, _ := strconv.ParseUint(m[2], 16, 8)
			return string([]byte{byte(b)})
		case m[3] != "":
			n, _ := strconv.Atoi(m[3])
			return strings.Repeat(" ", n)
		case m[5] != "":
			err = errors.New("it hides a part")
		}
		switch m[4] {
		case "n":
			return "\n"
		case "r":
			return "\r"
		case "t":
			return "\t"
		}
		return m[4]
	})
	return err
}

const day = 24 * time.Hour // how long a session's grant is valid

// Covers says why a later request is not within what was said, nil if it is.
func (c Consent) Covers(later Call) error {
	for _, text := range []string{c.Grant, c.Offer} {
		if text == "" && c.Grant != "" {
			continue
		}
		said, err := read(text)
		if err == nil {
			err = said.covers(c, later)
		}
		if err != nil {
			return fmt.Errorf("the sentence %q: %w", text, err)
		}
	}
	return nil
}

func (s sentence) covers(c Consent, later Call) error {
	was := c.Call
	switch {
	case later.Workspace != was.Workspace || later.Workspace != s.workspace:
		return errors.New("another workspace")
	case later.Client != was.Client || later.Client != s.client && (s.client != "" ||
		later.Client != "ws:"+s.workspace):
		return errors.New("another client")
	case s.once && (later.Session == "" || later.Session != was.Session || s.session != "" &&
		later.Session != s.session):
		return errors.New("another session")
	case !later.At.Before(c.Until):
		return errors.New("after the end in the list")
	case s.until != "" && later.At.UTC().Format(time.DateOnly) > s.until:
		return errors.New("after the day of its end")
	case s.days > 0 && later.At.Sub(was.At) >= time.Duration(s.days)*day:
		return errors.New("the days have passed")
	case s.once && s.until == "" && later.At.Sub(was.At) >= day:
		return errors.New("a day has passed")
	case later.Tool != was.Tool || later.Tool == "" && later.Action != was.Action:
		return errors.New("another tool or action")
	case s.form == "any" && (later.Tool != "" || later.Action != "exec_cmd"):
		return errors.New("it is no command of the agent")
	case s.form != "any" && s.tool != later.Tool+onlyIf(later.Tool == "", later.Action):
		return fmt.Errorf("it names %s", s.tool)
	case later.Definition != was.Definition:
		return errors.New("another definition of the tool")
	case !strings.HasPrefix(was.ID, s.id):
		return errors.New("it names another request")
	}
	return s.arguments(was, later)
}

func onlyIf(ok bool, s string) string {
	if ok {
		return s
	}
	return ""
}

// arguments compares what the requests are about.
func (s sentence) arguments(was, later Call) error {
	switch s.form {
	case "again":
		return same(was, later, false)
	case "command":
		return s.command(was, later)
	case "to", "at", "on", "like":
		return s.leads(later)
	case "action":
		if later.Tool != "" || later.Action == "exec_cmd" {
			return errors.New("something runs")
		}
	case "tool":
		if later.Target != "" && !targetless[later.Capability] {
			return errors.New("the tool has a target, and the sentence names none")
		}
		if askedEachTime[later.Capability] {
			return errors.New("it must be asked each time")
		}
	}
	return nil
}

// What the words of a capability mean, as DESIGN.md lists them.
var (
	targetless    = map[string]bool{"llm:local": true, "llm:online": true, "time:read": true, "parse:local": true}
	askedEachTime = map[string]bool{"code:exec": true, "mail:send": true}
	paths         = map[string]bool{"fs:read": true, "fs:write": true}
)
