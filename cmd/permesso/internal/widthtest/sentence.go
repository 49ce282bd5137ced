// Package widthtest is test support: it checks that a grant allows nothing but what its
// sentence says. Consent judges by the sentence's text. It shares no code with what it
// judges: it imports none of our packages.
package widthtest

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Call is a request as the agent sent it, with what the configuration says of its tool.
type Call struct {
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
	session bool // it holds in one session
	days    int  // 0: until says it, or the list
	until   string
	form    string // a key of forms
	tool    string
	target  string // or the words of a pattern
}

// forms are the sentences about what is allowed, in front of the workspace.
var forms = map[string]*regexp.Regexp{
	"tool":    regexp.MustCompile(`^(?P<tool>[^ ]+) with any arguments$`),
	"to":      regexp.MustCompile(`^(?P<tool>[^ ]+) to (?P<target>.+)$`),
	"on":      regexp.MustCompile(`^(?P<tool>[^ ]+) on (?P<target>.+)$`),
	"again":   regexp.MustCompile(`^exactly this (?P<tool>[^ ]+) again$`),
	"command": regexp.MustCompile(`^(?P<tool>[^ ]+): (?P<target>.+)$`),
	"action":  regexp.MustCompile(`^(?P<tool>[^ ]+), which runs nothing here,$`),
	"any":     regexp.MustCompile(`^every command of this agent$`),
}

var (
	inSession = regexp.MustCompile(`^For this session: (.+)$`)
	always    = regexp.MustCompile(`^Always: (.+), (?:([0-9]+) days|until ([0-9]{4}-[0-9]{2}-[0-9]{2}))$`)
)

// read reads a sentence about a workspace. It must have exactly one meaning.
func read(text, workspace string) (s sentence, err error) {
	what := ""
	if m := inSession.FindStringSubmatch(text); m != nil {
		s.session, what = true, m[1]
	} else if m := always.FindStringSubmatch(text); m != nil {
		what, s.until = m[1], m[3]
		s.days, _ = strconv.Atoi(m[2])
	} else {
		return s, fmt.Errorf("it says neither for how long: %q", text)
	}
	what, ok := strings.CutSuffix(what, " in "+workspace)
	if !ok {
		return s, fmt.Errorf("it does not name the workspace: %q", text)
	}
	for _, form := range slices.Sorted(maps.Keys(forms)) {
		m := forms[form].FindStringSubmatch(what)
		if m == nil {
			continue
		}
		if s.form != "" {
			return s, fmt.Errorf("it has two meanings: %q", text)
		}
		s.form = form
		for i, name := range forms[form].SubexpNames() {
			switch name {
			case "tool":
				s.tool = m[i]
			case "target":
				s.target, err = unescape(m[i])
			}
		}
	}
	if s.form == "" {
		err = fmt.Errorf("it says nothing of what is allowed: %q", text)
	}
	return s, err
}

var written = regexp.MustCompile(`\\u\{([0-9A-F]+)\}|\\x\{([0-9A-F]{2})\}|␠\{([0-9]+)\}|\\(.)|([‹›])`)

// unescape is what the text of a card stands for. A mask stands for something that the
// person did not see.
func unescape(shown string) (s string, err error) {
	s = written.ReplaceAllStringFunc(shown, func(part string) string {
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
			err = fmt.Errorf("it hides a part: %q", shown)
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
	return s, err
}

// The longest times that a person is told: a session's grant is for a day.
const (
	sessionLife = 24 * time.Hour
	day         = 24 * time.Hour
)

// Covers says why a later request is not within what was said, nil if it is.
func (c Consent) Covers(later Call) error {
	said, err := read(c.Grant, c.Call.Workspace)
	if err != nil {
		return err
	}
	if err := said.covers(c, later); err != nil {
		return fmt.Errorf("the sentence %q: %w", c.Grant, err)
	}
	if c.Offer == "" {
		return nil
	}
	card, err := read(c.Offer, c.Call.Workspace)
	if err != nil {
		return err
	}
	if card.session && later.At.Sub(c.Call.At) >= sessionLife {
		return errors.New("a day has passed")
	}
	if err := card.covers(c, later); err != nil {
		return fmt.Errorf("the offer %q: %w", c.Offer, err)
	}
	return nil
}

func (s sentence) covers(c Consent, later Call) error {
	was := c.Call
	switch {
	case later.Workspace != was.Workspace:
		return errors.New("another workspace")
	case later.Client != was.Client:
		return errors.New("another client")
	case s.session && (later.Session == "" || later.Session != was.Session):
		return errors.New("another session")
	case !later.At.Before(c.Until):
		return errors.New("after the end in the list")
	case s.until != "" && later.At.UTC().Format(time.DateOnly) > s.until:
		return errors.New("after the day of its end")
	case s.days > 0 && later.At.Sub(was.At) >= time.Duration(s.days)*day:
		return errors.New("the days have passed")
	case later.Tool != was.Tool || later.Tool == "" && later.Action != was.Action:
		return errors.New("another tool or action")
	case s.form == "any" && (later.Tool != "" || later.Action != "exec_cmd"):
		return errors.New("it is no command of the agent")
	case s.form != "any" && s.tool != later.Tool+onlyIf(later.Tool == "", later.Action):
		return fmt.Errorf("it names %s", s.tool)
	case later.Definition != was.Definition:
		return errors.New("another definition of the tool")
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
	case "to", "on":
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
