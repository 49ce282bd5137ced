package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/decide"
)

// Script decides requests instead of people, for tests of agents. The first rule
// that matches a request decides it; if none does, Default.
type Script struct {
	Name    string // file name without folders
	SHA256  string // of the file, in hex
	Rules   []ScriptRule
	Default ScriptRule
}

// ScriptRule is one rule of a Script. An empty glob matches everything; in others *
// stands for any text.
type ScriptRule struct {
	Tool, ActionType, Workspace, Title string
	Args                               map[string]string // by argument: a glob for a text's content, or for the JSON of any other value
	Do                                 string            // of ScriptActions
	Text                               string            // for the agent, depending on Do
	Delay                              time.Duration
	Times                              int // how often the rule applies; 0: always
}

// Actions of a rule.
const (
	doApprove     = "approve"
	doSession     = "session"
	doAlways      = "always"
	doNote        = "note"
	doOverride    = "override"
	doDeny        = "deny"
	doRequestMore = "request_more"
	doAnswer      = "answer"
	doNone        = "none"
)

// ScriptActions lists the actions of a rule.
func ScriptActions() []string {
	return []string{doApprove, doSession, doAlways, doNote, doOverride, doDeny, doRequestMore, doAnswer, doNone}
}

// LoadScript reads the script at path. The error is an *Error.
func LoadScript(path string) (*Script, error) {
	data, _, err := readFile(path)
	if err != nil {
		e := unreadable(path, err)
		e.Errors[0].Hint = "permesso serve --help has an example"
		return nil, e
	}
	return ParseScript(path, data)
}

// ParseScript reads data, the content of the file called name, as strictly as a
// configuration. The error is an *Error with all issues.
func ParseScript(name string, data []byte) (*Script, error) {
	r := &reader{cfg: emptyConfig()}
	sc := &Script{Name: visible(filepath.Base(name)), SHA256: approval.Digest(data)}
	err := r.parse(name, data, func(root *node) {
		s := r.section(root, "", scriptKeys())
		sc.Default = ScriptRule{Do: s.text("otherwise"), Text: "no rule of the script matches"}
		for _, rule := range s.list("rules") {
			sc.Rules = append(sc.Rules, rule.scriptRule())
		}
	})
	if err != nil {
		return nil, err
	}
	return sc, nil
}

// maxTextLength is the same limit as for texts of agents.
const maxTextLength = 8 << 10

// scriptKeys is the table of keys of a script.
func scriptKeys() Key {
	const globHint = "a text in which * stands for any text; remove it to match everything"
	match := func(name string) Key { return Key{Name: name, Hint: globHint, valueType: glob()} }
	return Key{Keys: []Key{
		{Name: "otherwise", Default: `"deny"`, valueType: word(doDeny, doNone)},
		{Name: "rules", Hint: "write [[rules]]", valueType: tableList(), Keys: []Key{
			{Name: "match", Hint: `match = { tool = "x_post", args = { text = "*standup*" } }`, valueType: tables(""), Keys: []Key{
				match("tool"), match("action_type"), match("workspace"), match("title"),
				{Name: "args", Hint: `args = { text = "*standup*" }`, valueType: tables(""), Keys: []Key{match("NAME")}},
			}},
			{Name: "do", valueType: word(ScriptActions()...)},
			{Name: "delay", valueType: duration(0, time.Hour)},
			{Name: "times", Hint: "remove it for a rule that always applies", valueType: number(1, 1<<20)},
			{Name: "text", valueType: must("text", func(v string) bool { return len(v) <= maxTextLength }, fmt.Sprintf("is longer than %d bytes", maxTextLength))},
		}},
	}}
}

func (s *section) scriptRule() ScriptRule {
	r := ScriptRule{Do: cmp.Or(s.text("do"), doDeny), Delay: s.duration("delay"), Times: int(s.number("times")), Text: s.text("text")}
	if !s.has("do") {
		s.fail(s.node.key, "do", `do = "approve"`, "rule has no action: do must be %s", list(ScriptActions()))
	}
	needs := slices.Contains([]string{doNote, doOverride, doRequestMore, doAnswer}, r.Do)
	switch {
	case needs && r.Text == "" && !s.failed:
		s.fail(s.node.key, "text", `text = "message to the agent"`, "%s needs a text", r.Do)
	case !needs && r.Do != doDeny && r.Text != "":
		s.fail(s.position("text"), "text", "", "%s has no text", r.Do)
	}
	if m := s.table("match"); m != nil {
		r.Tool, r.ActionType, r.Workspace, r.Title = m.text("tool"), m.text("action_type"), m.text("workspace"), m.text("title")
		r.Args = values[string](m, "args")
	}
	return r
}

// Matches reports whether the rule matches a pending request.
func (r *ScriptRule) Matches(p *approval.Pending) bool {
	for _, m := range [][2]string{{r.Tool, p.ToolName}, {r.ActionType, p.ActionType}, {r.Workspace, p.SourceGroup}, {r.Title, p.Agent.Title}} {
		if m[0] != "" && !matchGlob(m[0], m[1]) {
			return false
		}
	}
	if len(r.Args) == 0 {
		return true
	}
	fields, err := codec.Fields(p.RequestData)
	if err != nil {
		return false
	}
	for name, glob := range r.Args {
		if !slices.ContainsFunc(fields, func(f codec.Field) bool {
			value, ok := f.Text()
			if !ok {
				value = string(f.Value)
			}
			return f.Name == name && matchGlob(glob, value)
		}) {
			return false
		}
	}
	return true
}

// matchGlob matches the complete text. * stands for any text; there are no other
// special characters.
func matchGlob(glob, text string) bool {
	expression := strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, ".*")
	return regexp.MustCompile("(?s)^" + expression + "$").MatchString(text)
}

// Decision returns the rule's decision about a request; ok is false if the rule does
// not decide. The caller sets By and Via.
func (r *ScriptRule) Decision(k approval.Key) (a decide.Input, ok bool) {
	codes := map[string]string{doApprove: "1", doSession: "2", doDeny: "3", doNote: "4", doOverride: "5", doAlways: "6"}
	switch r.Do {
	case doNone:
		return decide.Input{}, false
	case doRequestMore:
		a.Verdict, a.Feedback = approval.RequestMore, r.Text
	case doAnswer:
		a.Verdict, a.Text = approval.Answered, r.Text
	default:
		a = decide.ByCode(cmp.Or(codes[r.Do], codes[doDeny]), r.Text)
	}
	a.Key = k
	return a, true
}
