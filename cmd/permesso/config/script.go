package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Script answers requests where people would, for tests of agents. The first rule
// that fits a request answers it, and Otherwise where none does.
type Script struct {
	Name      string // its file's, without folders
	SHA256    string // of its bytes, in hex
	Rules     []ScriptRule
	Otherwise ScriptRule
}

// ScriptRule is one rule of a Script. Empty globs fit everything; in the others *
// stands for any text.
type ScriptRule struct {
	Tool, ActionType, Workspace, Title string
	Args                               map[string]string // by argument: a text's own letters, or the JSON of anything else
	Do                                 string            // one of ScriptActions
	Text                               string            // for the agent, where Do needs it or may have it
	Delay                              time.Duration
	Times                              int // how often it answers; 0: always
}

// What a rule may do.
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

// ScriptActions are what a rule may do.
func ScriptActions() []string {
	return []string{doApprove, doSession, doAlways, doNote, doOverride, doDeny, doRequestMore, doAnswer, doNone}
}

// LoadScript reads the script at path. The error is an *Error.
func LoadScript(path string) (*Script, error) {
	data, _, err := readFile(path)
	if err == nil && len(data) > maxFile {
		err = errors.New("too long for a script")
	}
	if err != nil {
		e := unreadable(path, err)
		e.Errors[0].Hint = "permesso serve --help shows a script"
		return nil, e
	}
	return ParseScript(path, data)
}

// ParseScript reads data, the content of the file called name, as strictly as a
// configuration. The error is an *Error with everything that is wrong with it.
func ParseScript(name string, data []byte) (*Script, error) {
	root, issue := parseTree(data)
	if issue != nil {
		return nil, &Error{File: name, Errors: []Issue{*issue}}
	}
	r := &reader{cfg: emptyConfig()}
	s := r.section(root, "")
	sc := &Script{Name: visible(filepath.Base(name)), SHA256: approval.Digest(data)}
	sc.Otherwise = ScriptRule{Do: s.oneOf("otherwise", doDeny, []string{doDeny, doNone}), Text: "no rule of the script fits"}
	if n := s.get("rules", array, "write [[rules]]"); n != nil {
		for i, item := range n.items {
			if item.kind != table {
				s.fail(item.val, "rules", "write [[rules]]", "rules must hold tables, not %s", item.kind)
				continue
			}
			sc.Rules = append(sc.Rules, s.section(item, fmt.Sprintf("rules[%d]", i+1)).scriptRule())
		}
	}
	s.rejectUnknown()
	sortIssues(r.issues)
	if len(r.issues) > 0 {
		return nil, &Error{File: name, Errors: r.issues}
	}
	return sc, nil
}

// maxTextLength is what a rule may say, as long as what an agent may.
const maxTextLength = 8 << 10

func (s *section) scriptRule() ScriptRule {
	r := ScriptRule{
		Do:    s.oneOf("do", doDeny, ScriptActions()),
		Delay: s.duration("delay", 0, 0, time.Hour),
		Times: int(s.number("times", 0, 1, 1<<20, "leave it out for a rule that always answers")),
	}
	if !s.has("do") {
		s.fail(s.node.key, "do", `do = "approve"`, "rule does nothing: do must be %s", list(ScriptActions()))
	}
	if n := s.get("text", text, ""); n != nil {
		r.Text = n.text
		if len(n.text) > maxTextLength {
			s.fail(n.val, "text", "", "text is longer than %d bytes", maxTextLength)
		}
	}
	needs := slices.Contains([]string{doNote, doOverride, doRequestMore, doAnswer}, r.Do)
	switch {
	case needs && r.Text == "":
		s.fail(s.node.key, "text", `text = "what the agent is told"`, "%s needs a text", r.Do)
	case !needs && r.Do != doDeny && r.Text != "":
		s.fail(s.node.children["text"].val, "text", "", "%s has no text", r.Do)
	}
	if m := s.table("match", `match = { tool = "x_post", args = { text = "*standup*" } }`); m != nil {
		r.Tool, r.ActionType, r.Workspace, r.Title = m.glob("tool"), m.glob("action_type"), m.glob("workspace"), m.glob("title")
		r.Args = m.globs("args")
		m.rejectUnknown()
	}
	s.rejectUnknown()
	return r
}

func (s *section) glob(key string) string {
	n := s.get(key, text, "a text, in which * stands for any text")
	if n == nil {
		return ""
	}
	if n.text == "" {
		s.fail(n.val, key, "leave it out to fit everything", "%s is empty", key)
	}
	return n.text
}

func (s *section) globs(key string) map[string]string {
	sub := s.table(key, `args = { text = "*standup*" }`)
	if sub == nil {
		return nil
	}
	all := map[string]string{}
	for _, name := range sub.node.order {
		all[name] = sub.glob(name)
	}
	return all
}

// Fits says whether a rule is for what waits.
func (r *ScriptRule) Fits(p *approval.Pending) bool {
	for _, m := range [][2]string{{r.Tool, p.ToolName}, {r.ActionType, p.ActionType}, {r.Workspace, p.SourceGroup}, {r.Title, p.Agent.Title}} {
		if m[0] != "" && !matchGlob(m[0], m[1]) {
			return false
		}
	}
	if len(r.Args) == 0 {
		return true
	}
	fields, err := approval.Fields(p.RequestData)
	if err != nil {
		return false
	}
	for name, glob := range r.Args {
		if !slices.ContainsFunc(fields, func(f approval.Field) bool {
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

// matchGlob matches the whole text; * is any text, and every other letter itself.
func matchGlob(glob, text string) bool {
	parts := strings.Split(glob, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return glob == text
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// Answer is what the rule says to the request of a key; ok is false where it says
// nothing. Who says it, and where, is for the caller to fill in.
func (r *ScriptRule) Answer(k approval.Key) (a approval.DecisionInput, ok bool) {
	a.Key = k
	switch r.Do {
	case doApprove:
		a.Verdict, a.Code, a.Scope = approval.Approved, "1", approval.Once
	case doSession:
		a.Verdict, a.Code, a.Scope = approval.Approved, "2", approval.Session
	case doAlways:
		a.Verdict, a.Code, a.Scope = approval.Approved, "6", approval.Always
	case doNote:
		a.Verdict, a.Code, a.Scope, a.Note = approval.Approved, "4", approval.Once, r.Text
	case doOverride:
		a.Verdict, a.Code, a.Override = approval.Overridden, "5", r.Text
	case doRequestMore:
		a.Verdict, a.Feedback = approval.RequestMore, r.Text
	case doAnswer:
		a.Verdict, a.Text = approval.Answered, r.Text
	case doNone:
		return approval.DecisionInput{}, false
	default:
		a.Verdict, a.Code, a.Feedback = approval.Denied, "3", r.Text
	}
	return a, true
}
