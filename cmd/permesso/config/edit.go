package config

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/permesso-dev/permesso/approval"
)

// NewWorkspace is a section to be added; what is zero is left to the defaults.
type NewWorkspace struct {
	Name      string
	Autonomy  string
	Approvers []string
	Timeout   time.Duration
	AgentUIDs []uint
}

func (w NewWorkspace) section() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[workspaces.%s]\n", w.Name)
	if w.Autonomy != "" {
		fmt.Fprintf(&b, "autonomy = %s\n", strconv.QuoteToASCII(w.Autonomy))
	}
	if len(w.Approvers) > 0 {
		quoted := make([]string, len(w.Approvers))
		for i, name := range w.Approvers {
			quoted[i] = strconv.QuoteToASCII(name)
		}
		fmt.Fprintf(&b, "approvers = [%s]\n", strings.Join(quoted, ", "))
	}
	if w.Timeout > 0 {
		fmt.Fprintf(&b, "approval_timeout = %q\n", short(w.Timeout))
	}
	if len(w.AgentUIDs) > 0 {
		fmt.Fprintf(&b, "agent_uid = %s\n", strings.ReplaceAll(fmt.Sprint(w.AgentUIDs), " ", ", "))
	}
	return b.String()
}

// AddWorkspace appends a section to data, the content of the file called name.
// Every byte that was there stays. The result is a configuration that differs
// in nothing but that workspace, or there is none. An error about the result is
// an *Error.
func (rd Reader) AddWorkspace(name string, data []byte, w NewWorkspace) ([]byte, error) {
	before, err := rd.Parse(name, data)
	if err != nil {
		return nil, err
	}
	out := bytes.Clone(data)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	if root, issue := parseTree(data); issue == nil && root.children["workspaces"] == nil {
		// It was there as long as no other one was named.
		out = append(out, "\n[workspaces."+DefaultWorkspace+"]\n"...)
	}
	out = append(out, "\n"+w.section()...)
	after, err := rd.Parse(name, out)
	if err != nil {
		return nil, err
	}
	if !before.equalWithout(after, w.Name) {
		return nil, fmt.Errorf("add workspace %s: the file would mean something else besides", w.Name)
	}
	return out, nil
}

// RemoveWorkspace takes a section out of data: its header's line to its last
// key's, and the blank line before it where one follows too. Comments before
// and behind stay, and so does every other byte. Where it is not as plain as
// that, the error names the lines.
func (rd Reader) RemoveWorkspace(name string, data []byte, ws string) ([]byte, error) {
	before, err := rd.Parse(name, data)
	if err != nil {
		return nil, err
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	var out []byte
	var where []string
	at := 0
	for _, s := range sections(data, ws, lines) {
		out = append(out, bytes.Join(lines[at:s.from], nil)...)
		at = s.to
		where = append(where, fmt.Sprintf("%d to %d", s.from+1, s.to))
	}
	out = append(out, bytes.Join(lines[at:], nil)...)
	after, err := rd.Parse(name, out)
	if err != nil {
		return nil, err
	}
	if len(where) == 0 || !after.equalWithout(before, ws) {
		return nil, &Error{File: name, Errors: []Issue{removeIssue(data, ws, where)}}
	}
	return out, nil
}

// place says where a person has to look.
func removeIssue(data []byte, ws string, where []string) Issue {
	p := Issue{Message: "workspace " + quote(ws) + " is not a section of its own here", Hint: "take it out by hand"}
	if root, issue := parseTree(data); issue == nil && root.children["workspaces"] != nil {
		if n := root.children["workspaces"].children[ws]; n != nil {
			p.Line, p.Col = n.key.line, n.key.col
		}
	}
	if len(where) > 0 {
		p.Hint = "take it out by hand: it stands in the lines " + strings.Join(where, " and ") + ", and elsewhere"
	}
	return p
}

// span is lines, from 0, the last one excluded.
type lineRange struct{ from, to int }

// sections are the tables of one workspace, as they stand in the file: its own
// and those below it.
func sections(data []byte, ws string, lines [][]byte) []lineRange {
	b := &builder{lines: lineStarts(data)}
	b.parser.Reset(data)
	var found []lineRange
	open := false
	for b.parser.NextExpression() {
		e := b.parser.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
			continue
		}
		key, line := b.header(e)
		if open {
			found[len(found)-1].to = line
		}
		if open = len(key) > 1 && key[0] == "workspaces" && key[1] == ws; open {
			found = append(found, lineRange{line, len(lines)})
		}
	}
	for i := range found {
		found[i].to = trimTail(lines, found[i])
		found[i].from = trimGap(lines, found[i])
	}
	return found
}

// trimGap takes a blank line before a section along where there would be two
// or, at the end of the file, one without a use.
func trimGap(lines [][]byte, s lineRange) int {
	blank := func(i int) bool { return len(bytes.TrimSpace(lines[i])) == 0 }
	if s.from > 0 && blank(s.from-1) && (s.to == len(lines) || blank(s.to)) {
		return s.from - 1
	}
	return s.from
}

// header is a table's name and its line, from 0.
func (b *builder) header(e *unstable.Node) (key []string, line int) {
	for it := e.Key(); it.Next(); {
		key = append(key, string(it.Node().Data))
		line = b.at(it.Node().Raw).line - 1
	}
	return key, line
}

// trimTail leaves the blank lines and comments at a section's end to what
// comes next: no value ends with one.
func trimTail(lines [][]byte, s lineRange) int {
	to := s.to
	for to > s.from+1 {
		line := bytes.TrimSpace(lines[to-1])
		if len(line) > 0 && line[0] != '#' {
			break
		}
		to--
	}
	return to
}

// equalWithout says whether c is other without the workspace ws.
func (c *Config) equalWithout(other *Config, ws string) bool {
	if _, ok := other.Workspaces[ws]; !ok {
		return false
	}
	o := *other
	o.Workspaces = map[string]approval.Workspace{}
	o.AgentUIDs = map[string][]string{}
	o.Limits = maps.Clone(other.Limits)
	o.EmailCeiling = maps.Clone(other.EmailCeiling)
	delete(o.Limits, ws)
	o.TelegramChats = maps.Clone(other.TelegramChats)
	delete(o.TelegramChats, ws)
	delete(o.EmailCeiling, ws)
	for name, w := range other.Workspaces {
		if name != ws {
			o.Workspaces[name] = w
		}
	}
	for name, uids := range other.AgentUIDs {
		if name != ws {
			o.AgentUIDs[name] = uids
		}
	}
	mine := *c
	mine.Warnings, o.Warnings = nil, nil // they name lines
	mine.Settings, o.Settings = nil, nil // what was said and what was not, one by one
	mine.SHA256, o.SHA256 = "", ""
	return reflect.DeepEqual(mine, o)
}
