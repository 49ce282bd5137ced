package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NewWorkspace is a workspace to add. Zero fields get the defaults.
type NewWorkspace struct {
	Name      string
	Autonomy  string
	Approvers []string
	Timeout   time.Duration
	AgentUIDs []uint
}

func (w NewWorkspace) entries() []entry {
	timeout := ""
	if w.Timeout > 0 {
		timeout = short(w.Timeout)
	}
	return []entry{
		{"autonomy", quoted(w.Autonomy)},
		{"approvers", quotedList(w.Approvers)},
		{"approval_timeout", quoted(timeout)},
		{"agent_uid", strings.ReplaceAll(strings.TrimPrefix(fmt.Sprint(w.AgentUIDs), "[]"), " ", ", ")},
	}
}

// AddWorkspace appends a section to data, the content of the file called name. It
// keeps every existing byte. The result is a configuration that differs only in
// that workspace; otherwise it returns an error. An error about the result is an
// *Error.
func (rd Reader) AddWorkspace(name string, data []byte, w NewWorkspace) ([]byte, error) {
	return rd.edit(name, data, func(f *file, _ *Config) error {
		if f.root.children["workspaces"] == nil {
			// It exists implicitly only while no workspace is configured.
			f.addTable("workspaces."+DefaultWorkspace, nil)
		}
		f.addTable("workspaces."+w.Name, w.entries())
		return nil
	}, func(before, after *Config) bool { return before.differsOnly(after, "workspaces."+w.Name+".") })
}

// RemoveWorkspace removes a section from data: from the line of its header to that
// of its last key. If a blank line follows, it also removes the one before. All
// other bytes stay, also comments before and after. If the workspace is not such a
// section, the error names the lines.
func (rd Reader) RemoveWorkspace(name string, data []byte, ws string) ([]byte, error) {
	var n *node
	var where []string // the removed lines
	out, err := rd.edit(name, data, func(f *file, _ *Config) error {
		n = f.root.at("workspaces", ws)
		for _, t := range n.sections() {
			from, to := f.remove(t)
			where = append(where, fmt.Sprintf("%d to %d", from, to))
		}
		return nil
	}, func(before, after *Config) bool {
		_, still := after.Workspaces[ws]
		return len(where) > 0 && !still && before.differsOnly(after, "workspaces."+ws+".")
	})
	if errors.Is(err, errOtherSettings) {
		return nil, &Error{File: name, Errors: []Issue{removeIssue(n, ws, where)}}
	}
	return out, err
}

// removeIssue tells the operator which lines to edit.
func removeIssue(n *node, ws string, where []string) Issue {
	p := Issue{Message: "workspace " + quote(ws) + " is not a separate section here", Hint: "remove it by hand"}
	if n != nil {
		p.Line, p.Col = n.key.line, n.key.col
	}
	if len(where) > 0 {
		p.Hint = "remove it by hand: lines " + strings.Join(where, " and ") + ", and other lines"
	}
	return p
}

// sections returns the tables with a header, of n and below it, in the order of the file.
func (n *node) sections() (all []*node) {
	if n == nil {
		return nil
	}
	if n.header > 0 {
		all = append(all, n)
	}
	for _, below := range n.children {
		all = append(all, below.sections()...)
	}
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(a.header, b.header) })
	return all
}

// file is a document that is being edited.
type file struct {
	data   []byte
	lines  []int // where they start
	root   *node
	edits  []replacement
	issues []Issue
	tail   string // text to append
}

// replacement replaces the bytes of a range with text.
type replacement struct {
	from, to int
	text     string
}

// entry is a key with its value in TOML; without a value it is left out.
type entry struct{ key, value string }

// errOtherSettings refuses an edit that does not have the expected result.
var errOtherSettings = errors.New("other settings would change, too")

// edit changes data, the content of the file called name. The result is a
// configuration that passes check.
func (rd Reader) edit(name string, data []byte, change func(*file, *Config) error, check func(before, after *Config) bool) ([]byte, error) {
	before, err := rd.Parse(name, data)
	if err != nil {
		return nil, err
	}
	f := &file{data: data, lines: lineStarts(data)}
	f.root, _ = parseTree(data) // Parse read it
	if err := change(f, before); err != nil {
		return nil, err
	}
	if len(f.issues) > 0 {
		return nil, &Error{File: name, Errors: f.issues}
	}
	out := f.edited()
	after, err := rd.Parse(name, out)
	if err != nil {
		return nil, err
	}
	if !check(before, after) {
		return nil, fmt.Errorf("edit %s: %w", name, errOtherSettings)
	}
	return out, nil
}

// edited returns the data with all edits.
func (f *file) edited() []byte {
	slices.SortStableFunc(f.edits, func(a, b replacement) int { return a.from - b.from })
	var out bytes.Buffer
	at := 0
	for _, e := range f.edits {
		out.Write(f.data[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(f.data[at:])
	if f.tail != "" && out.Len() > 0 && !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		out.WriteByte('\n')
	}
	out.WriteString(f.tail)
	return out.Bytes()
}

func (f *file) replace(from, to int, text string) {
	f.edits = append(f.edits, replacement{from, to, text})
}

// addTable appends a table at the end, after a blank line.
func (f *file) addTable(name string, entries []entry) { f.tail += "\n" + tableText(name, entries) }

// add writes keys into a table. If it does not exist, add creates it.
func (f *file) add(entries []entry, path ...string) {
	name, added := strings.Join(path, "."), lines(entries)
	switch n := f.root.at(path...); {
	case n == nil:
		f.addTable(name, entries)
	case len(added) == 0:
	case n.header == 0:
		f.manualEdit("["+name+"] has no header of its own here", entries)
	default:
		at, text := f.start(n.end+1), strings.Join(added, "\n")+"\n"
		if f.data[at-1] != '\n' {
			text = "\n" + text
		}
		f.replace(at, at, text)
	}
}

// appendTo adds a text to an array.
func (f *file) appendTo(n *node, text string) {
	if last := len(n.items) - 1; last >= 0 {
		end := n.items[last].to
		f.replace(end, end, ", "+quoted(text))
		return
	}
	end := n.from + bytes.LastIndexByte(f.data[n.from:n.to], ']')
	f.replace(end, end, quoted(text))
}

// addName adds a name to the list of a table, unless it has it. It returns the entry to add
// if the table does not have the list.
func (f *file) addName(n *node, key, name string, has []string) (entries []entry) {
	switch list := n.written(key); {
	case slices.Contains(has, name):
	case list != nil && list.kind == array:
		f.appendTo(list, name)
	default:
		entries = []entry{{key, quotedList([]string{name})}}
	}
	return entries
}

// removeFrom removes a text from an array, with its comma.
func (f *file) removeFrom(n *node, text string) {
	i := slices.IndexFunc(n.items, func(item *node) bool { return item.text == text })
	if i < 0 {
		return
	}
	from, to := n.items[i].from, n.items[i].to
	rest := bytes.TrimLeft(f.data[to:], " \t")
	switch {
	case bytes.HasPrefix(rest, []byte(",")):
		to = len(f.data) - len(bytes.TrimLeft(rest[1:], " \t"))
	case i > 0 && !bytes.Contains(f.data[n.items[i-1].to:from], []byte("\n")):
		from = n.items[i-1].to
	}
	f.replace(from, to, "")
}

// remove removes the lines of a table. If a blank line or the end of the file follows,
// it also removes a blank line before.
func (f *file) remove(n *node) (from, to int) {
	from, to = n.header, n.end
	if from > 1 && f.blank(from-1) && f.blank(to+1) {
		from--
	}
	f.replace(f.start(from), f.start(to+1), "")
	return from, to
}

// start returns where a line starts, from 1; after the last line: the end of the file.
func (f *file) start(line int) int {
	if line > len(f.lines) {
		return len(f.data)
	}
	return f.lines[line-1]
}

func (f *file) blank(line int) bool {
	return len(bytes.TrimSpace(f.data[f.start(line):f.start(line+1)])) == 0
}

func (f *file) manualEdit(what string, entries []entry) {
	f.issues = append(f.issues, Issue{Message: what, Hint: "add by hand: " + strings.Join(lines(entries), "; ")})
}

// lines formats entries as TOML.
func lines(entries []entry) (all []string) {
	for _, e := range entries {
		if e.value != "" {
			all = append(all, e.key+" = "+e.value)
		}
	}
	return all
}

// tableText formats a table.
func tableText(name string, entries []entry) string {
	return strings.Join(append([]string{"[" + name + "]"}, lines(entries)...), "\n") + "\n"
}

func inlineTable(entries []entry) string { return "{ " + strings.Join(lines(entries), ", ") + " }" }

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

// NewEmail is [channels.email] to add. Zero fields get the defaults.
type NewEmail struct {
	From                string
	SMTP, IMAP          MailServer
	OAuth               OAuth
	Maildir, AuthservID string
	DNS                 string
	SubAddressing       bool
}

// Section formats it as TOML.
func (e NewEmail) Section() string {
	sub := ""
	if e.SubAddressing {
		sub = "true"
	}
	return tableText("channels.email", []entry{
		{"from", quoted(e.From)},
		{"smtp", e.SMTP.inline()},
		{"imap", e.IMAP.inline()},
		{"oauth", e.OAuth.inline()},
		{"maildir", quoted(e.Maildir)},
		{"authserv_id", quoted(e.AuthservID)},
		{"sub_addressing", sub},
		{"dns", quoted(e.DNS)},
	})
}

func (m MailServer) inline() string {
	if m.Address == "" {
		return ""
	}
	return inlineTable([]entry{
		{"address", quoted(m.Address)},
		{"security", quoted(m.Security)},
		{"username", quoted(m.Username)},
		{"password_file", quoted(m.PasswordFile)},
		{"ca_file", quoted(m.CAFile)},
		{"mailbox", quoted(m.Mailbox)},
	})
}

func (o OAuth) inline() string {
	if o.Provider == "" {
		return ""
	}
	return inlineTable([]entry{
		{"provider", quoted(o.Provider)},
		{"client_id", quoted(o.ClientID)},
		{"client_secret_file", quoted(o.ClientSecretFile)},
		{"auth_url", quoted(o.AuthURL)},
		{"token_url", quoted(o.TokenURL)},
		{"device_url", quoted(o.DeviceURL)},
		{"scope", quoted(o.Scope)},
	})
}

// AddEmail appends the section to data, the content of the file called name. It
// keeps every existing byte. An error about the result is an *Error.
func (rd Reader) AddEmail(name string, data []byte, e NewEmail) ([]byte, error) {
	return rd.addText(name, data, e.Section(), "channels.email.", func(before *Config) error {
		if before.Email != nil {
			return fmt.Errorf("%s already has a section [channels.email]", name)
		}
		return nil
	})
}

// addText appends a text after a blank line, unless check refuses the configuration. Only
// keys with this beginning may change.
func (rd Reader) addText(name string, data []byte, text, beginning string, check func(before *Config) error) ([]byte, error) {
	return rd.edit(name, data, func(f *file, before *Config) error {
		if err := check(before); err != nil {
			return err
		}
		f.tail += "\n" + text
		return nil
	}, func(before, after *Config) bool { return before.differsOnly(after, beginning) })
}

// AddRules appends the lines of rules to data, the content of the file called name. It
// keeps every existing byte. An error about the result is an *Error.
func (rd Reader) AddRules(name string, data []byte, lines string) ([]byte, error) {
	return rd.addText(name, data, strings.TrimRight(lines, "\n")+"\n", "rules", func(before *Config) error {
		rules, err := before.RulesOf(lines) // and nothing else
		if err == nil && len(rules) == 0 {
			err = errors.New("there is no rule to add")
		}
		return err
	})
}
