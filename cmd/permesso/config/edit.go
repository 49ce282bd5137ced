package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
)

// NewWorkspace is a workspace to add. Zero fields get the defaults.
type NewWorkspace struct {
	Name      string
	Autonomy  string
	Approvers []string
	Timeout   time.Duration
	AgentUIDs []uint
}

func (w NewWorkspace) section() string {
	return tableText("workspaces."+w.Name, []entry{
		{"autonomy", quoted(w.Autonomy)},
		{"approvers", quotedList(w.Approvers)},
		{"approval_timeout", quoted(positive(w.Timeout))},
		{"agent_uid", strings.ReplaceAll(strings.TrimPrefix(fmt.Sprint(w.AgentUIDs), "[]"), " ", ", ")},
	})
}

// tableText formats a table. Entries without a value are left out.
func tableText(name string, entries []entry) string {
	text := "[" + name + "]\n"
	for _, e := range entries {
		if e.value != "" {
			text += e.String()
		}
	}
	return text
}

// quoted formats a text as TOML, "" if it is empty.
func quoted(v string) string {
	if v == "" {
		return ""
	}
	return strconv.QuoteToASCII(v)
}

func quotedList(all []string) string {
	var items []string
	for _, v := range all {
		items = append(items, strconv.QuoteToASCII(v))
	}
	if items == nil {
		return ""
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func positive(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return short(d)
}

// appended returns data with a section at its end, after a blank line.
func appended(data []byte, text string) []byte {
	out := bytes.Clone(data)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return append(append(out, '\n'), text...)
}

// AddWorkspace appends a section to data, the content of the file called name. It
// keeps every existing byte. The result is a configuration that differs only in
// that workspace; otherwise it returns an error. An error about the result is an
// *Error.
func (rd Reader) AddWorkspace(name string, data []byte, w NewWorkspace) ([]byte, error) {
	before, err := rd.Parse(name, data)
	if err != nil {
		return nil, err
	}
	out := data
	if root, issue := parseTree(data); issue == nil && root.children["workspaces"] == nil {
		// It exists implicitly only while no workspace is configured.
		out = appended(out, "[workspaces."+DefaultWorkspace+"]\n")
	}
	out = appended(out, w.section())
	after, err := rd.Parse(name, out)
	if err != nil {
		return nil, err
	}
	if !before.differsOnly(after, "workspaces."+w.Name+".") {
		return nil, fmt.Errorf("add workspace %s: other settings would change, too", w.Name)
	}
	return out, nil
}

// RemoveWorkspace removes a section from data: from the line of its header to that
// of its last key. If a blank line follows, it also removes the one before. All
// other bytes stay, also comments before and after. If the workspace is not such a
// section, the error names the lines.
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
	if _, still := after.Workspaces[ws]; len(where) == 0 || still || !before.differsOnly(after, "workspaces."+ws+".") {
		return nil, &Error{File: name, Errors: []Issue{removeIssue(data, ws, where)}}
	}
	return out, nil
}

// removeIssue tells the operator which lines to edit.
func removeIssue(data []byte, ws string, where []string) Issue {
	p := Issue{Message: "workspace " + quote(ws) + " is not a separate section here", Hint: "remove it by hand"}
	if root, issue := parseTree(data); issue == nil && root.children["workspaces"] != nil {
		if n := root.children["workspaces"].children[ws]; n != nil {
			p.Line, p.Col = n.key.line, n.key.col
		}
	}
	if len(where) > 0 {
		p.Hint = "remove it by hand: lines " + strings.Join(where, " and ") + ", and other lines"
	}
	return p
}

// lineRange is a range of lines, from 0, without line to.
type lineRange struct{ from, to int }

// sections returns the tables of one workspace in the file: its own and those
// below it.
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

// trimGap extends a section by the blank line before it, if a blank line or the end
// of the file follows.
func trimGap(lines [][]byte, s lineRange) int {
	blank := func(i int) bool { return len(bytes.TrimSpace(lines[i])) == 0 }
	if s.from > 0 && blank(s.from-1) && (s.to == len(lines) || blank(s.to)) {
		return s.from - 1
	}
	return s.from
}

// header returns the key of a table and its line, from 0.
func (b *builder) header(e *unstable.Node) (key []string, line int) {
	for it := e.Key(); it.Next(); {
		key = append(key, string(it.Node().Data))
		line = b.at(it.Node().Raw).line - 1
	}
	return key, line
}

// trimTail excludes blank lines and comments at the end of a section: they belong
// to what follows.
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
