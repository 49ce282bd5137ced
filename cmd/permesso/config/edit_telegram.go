package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// NewTelegram are settings to add, so that an approver is asked through Telegram.
type NewTelegram struct {
	TokenFile string // "": that of the file or the environment
	ServerURL string // "": that of the file, or Telegram's
	Workspace string
	Approver  string
	ID        int64        // of the approver
	Chat      TelegramChat // of the workspace; zero: unchanged
}

// AddTelegram adds the settings to data, the content of the file called name. It
// changes no other setting and keeps comments. A conflict with an existing setting
// is an error, except for the workspace's chat, which is replaced. An error about
// the result is an *Error.
func (rd Reader) AddTelegram(name string, data []byte, t NewTelegram) ([]byte, error) {
	before, err := rd.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if err := t.check(before); err != nil {
		return nil, err
	}
	f := &file{name: name, data: data}
	f.outline()
	f.channel(before, t)
	f.approver(before, t)
	f.workspace(before, t)
	out, err := f.edited()
	if err != nil {
		return nil, err
	}
	after, err := rd.Parse(name, out)
	if err != nil {
		return nil, err
	}
	if !t.addedTo(before, after) {
		return nil, fmt.Errorf("edit %s: other settings would change, too", name)
	}
	return out, nil
}

// CheckServerURL checks a server_url; "" is valid.
func CheckServerURL(address string) error {
	if address == "" {
		return nil
	}
	_, err := Parse("server_url", []byte("[channels.telegram]\nserver_url = "+strconv.QuoteToASCII(address)))
	if bad := (*Error)(nil); errors.As(err, &bad) && len(bad.Errors) > 0 {
		return errors.New(bad.Errors[0].Message)
	}
	return err
}

// check refuses settings that would replace existing ones.
func (t NewTelegram) check(c *Config) error {
	w, exists := c.Workspaces[t.Workspace]
	id := strconv.FormatInt(t.ID, 10)
	switch old := c.Approvers[t.Approver].IDs[channelTelegram]; {
	case !exists:
		return fmt.Errorf("there is no workspace %s", quote(t.Workspace))
	case !namePattern().MatchString(t.Approver):
		return fmt.Errorf("%s: an approver's name is %s", quote(t.Approver), nameRule)
	case old != "" && old != id:
		return fmt.Errorf("approver %s already has the Telegram id %s, not %s", quote(t.Approver), old, id)
	case w.Principal != "" && w.Principal != t.Approver:
		return fmt.Errorf("only the principal %s may decide in workspace %s", quote(w.Principal), quote(t.Workspace))
	}
	for name, a := range c.Approvers {
		if a.IDs[channelTelegram] == id && name != t.Approver {
			return fmt.Errorf("the id %s already belongs to approver %s", id, quote(name))
		}
	}
	if old := c.Telegram; old != nil {
		if old.TokenFile != "" && t.TokenFile != "" && old.TokenFile != t.TokenFile {
			return fmt.Errorf("[channels.telegram] already has another token_file")
		}
		if old.ServerURL != "" && t.ServerURL != "" && old.ServerURL != t.ServerURL {
			return fmt.Errorf("[channels.telegram] already has another server_url")
		}
	}
	return nil
}

// addedTo reports whether after is before with these settings, and no other change.
func (t NewTelegram) addedTo(before, after *Config) bool {
	ws, person := "workspaces."+t.Workspace+".", "approvers."+t.Approver+"."
	if _, known := before.Approvers[t.Approver]; known {
		person += channelTelegram
	}
	w, was := after.Workspaces[t.Workspace], before.Workspaces[t.Workspace]
	return before.differsOnly(after, "channels.telegram.", person, ws+"approvers", ws+"channels", ws+channelTelegram+".") &&
		after.Telegram != nil && after.Telegram.TokenFile == cmp.Or(t.TokenFile, before.telegram().TokenFile) &&
		after.Telegram.ServerURL == cmp.Or(t.ServerURL, before.telegram().ServerURL) && after.Telegram.Feed == before.telegram().Feed &&
		after.Approvers[t.Approver].IDs[channelTelegram] == strconv.FormatInt(t.ID, 10) &&
		slices.Equal(w.Approvers, withName(was.Approvers, t.Approver)) && slices.Equal(w.Channels, withName(was.Channels, channelTelegram)) &&
		after.TelegramChats[t.Workspace] == cmp.Or(t.Chat, before.TelegramChats[t.Workspace])
}

// telegram returns [channels.telegram], zero without one.
func (c *Config) telegram() Telegram {
	if c.Telegram == nil {
		return Telegram{}
	}
	return *c.Telegram
}

func withName(all []string, name string) []string {
	if slices.Contains(all, name) {
		return all
	}
	return append(slices.Clone(all), name)
}

// file is a document that is being edited, with its tables and their keys.
type file struct {
	name   string
	data   []byte
	tables []*tableBlock
	edits  []edit
	issues []Issue
	tail   string // text to append
}

// tableBlock is a table with its own header.
type tableBlock struct {
	name string
	end  int // end of the line of its last key, or of its header
	keys map[string]value
}

// value is the position of a key with its value.
type value struct {
	from, to int
	array    bool
	last     int // end of the array's last item; 0: empty
}

// edit replaces a range with text.
type edit struct {
	from, to int
	text     string
}

// outline finds the tables of a valid document.
func (f *file) outline() {
	b := &builder{lines: lineStarts(f.data)}
	b.parser.Reset(f.data)
	open := &tableBlock{keys: map[string]value{}} // the top of the file, which is not edited
	for b.parser.NextExpression() {
		switch e := b.parser.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			key, line := b.header(e)
			open = &tableBlock{name: strings.Join(key, "\x00"), end: f.lineEnd(b.lines[line]), keys: map[string]value{}}
			if e.Kind == unstable.Table {
				f.tables = append(f.tables, open)
			}
		case unstable.KeyValue:
			v := value{from: int(e.Raw.Offset), to: int(e.Raw.Offset + e.Raw.Length), array: e.Value().Kind == unstable.Array}
			for it := e.Value().Children(); v.array && it.Next(); {
				if n := it.Node(); n.Kind == unstable.String {
					v.last = int(n.Raw.Offset + n.Raw.Length)
				}
			}
			if key := e.Key(); key.Next() && key.IsLast() {
				open.keys[string(key.Node().Data)] = v
			}
			open.end = f.lineEnd(v.to)
		}
	}
}

// lineEnd returns the end of the line at an offset, after its newline.
func (f *file) lineEnd(at int) int {
	if i := bytes.IndexByte(f.data[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(f.data)
}

func (f *file) table(path ...string) *tableBlock {
	name := strings.Join(path, "\x00")
	for _, t := range f.tables {
		if t.name == name {
			return t
		}
	}
	return nil
}

// entry is a key with its value in TOML.
type entry struct{ key, value string }

func (e entry) String() string { return e.key + " = " + e.value + "\n" }

// add writes keys into a table. If it does not exist, add creates it.
func (f *file) add(exists bool, entries []entry, path ...string) {
	if len(entries) == 0 {
		return
	}
	var text strings.Builder
	for _, e := range entries {
		text.WriteString(e.String())
	}
	switch t := f.table(path...); {
	case t != nil:
		f.insert(t.end, text.String())
	case !exists:
		f.tail += "\n[" + strings.Join(path, ".") + "]\n" + text.String()
	default:
		f.manualEdit("["+strings.Join(path, ".")+"] has no header of its own here", entries)
	}
}

// insert adds lines after the line that ends at an offset.
func (f *file) insert(at int, lines string) {
	if at > 0 && f.data[at-1] != '\n' {
		lines = "\n" + lines
	}
	f.edits = append(f.edits, edit{at, at, lines})
}

func (f *file) manualEdit(what string, entries []entry) {
	var lines []string
	for _, e := range entries {
		lines = append(lines, strings.TrimSpace(e.String()))
	}
	f.issues = append(f.issues, Issue{Message: what, Hint: "add by hand: " + strings.Join(lines, "; ")})
}

func (f *file) channel(c *Config, t NewTelegram) {
	old := c.telegram()
	var entries []entry
	if old.TokenFile == "" && t.TokenFile != "" {
		entries = append(entries, entry{"token_file", strconv.QuoteToASCII(t.TokenFile)})
	}
	if old.ServerURL == "" && t.ServerURL != "" {
		entries = append(entries, entry{"server_url", strconv.QuoteToASCII(t.ServerURL)})
	}
	if c.Telegram == nil && len(entries) == 0 {
		f.tail += "\n[channels.telegram]\n"
	}
	f.add(c.Telegram != nil, entries, "channels", channelTelegram)
}

func (f *file) approver(c *Config, t NewTelegram) {
	a, exists := c.Approvers[t.Approver]
	if a.IDs[channelTelegram] == "" {
		f.add(exists, []entry{{channelTelegram, strconv.FormatInt(t.ID, 10)}}, "approvers", t.Approver)
	}
}

func (f *file) workspace(c *Config, t NewTelegram) {
	w := c.Workspaces[t.Workspace]
	table := f.table("workspaces", t.Workspace)
	var entries []entry
	list := func(key string, has []string, name string) {
		switch v, written := table.key(key); {
		case slices.Contains(has, name):
		case written && v.array:
			f.append(v, name)
		default:
			entries = append(entries, entry{key, "[" + strconv.QuoteToASCII(name) + "]"})
		}
	}
	list("approvers", w.Approvers, t.Approver)
	list("channels", w.Channels, channelTelegram)
	if old, exists := c.TelegramChats[t.Workspace]; t.Chat != (TelegramChat{}) && t.Chat != old {
		e := entry{channelTelegram, t.Chat.String()}
		switch v, written := table.key(channelTelegram); {
		case written:
			f.edits = append(f.edits, edit{v.from, v.to, strings.TrimSpace(e.String())})
		case exists:
			f.manualEdit("the chat of workspace "+quote(t.Workspace)+" is not on one line here", []entry{e})
		default:
			entries = append(entries, e)
		}
	}
	f.add(len(f.childKeys("workspaces")) > 0, entries, "workspaces", t.Workspace)
}

// childKeys returns the keys below a top-level key.
func (f *file) childKeys(key string) []string {
	root, issue := parseTree(f.data)
	if issue != nil || root.children[key] == nil {
		return nil
	}
	return root.children[key].order
}

func (t *tableBlock) key(name string) (value, bool) {
	if t == nil {
		return value{}, false
	}
	v, ok := t.keys[name]
	return v, ok
}

// append adds a text to an array.
func (f *file) append(v value, name string) {
	if v.last > 0 {
		f.edits = append(f.edits, edit{v.last, v.last, ", " + strconv.QuoteToASCII(name)})
		return
	}
	end := v.from + bytes.LastIndexByte(f.data[v.from:v.to], ']')
	f.edits = append(f.edits, edit{end, end, strconv.QuoteToASCII(name)})
}

// edited returns the file with all edits.
func (f *file) edited() ([]byte, error) {
	if len(f.issues) > 0 {
		return nil, &Error{File: f.name, Errors: f.issues}
	}
	slices.SortStableFunc(f.edits, func(a, b edit) int { return a.from - b.from })
	var out bytes.Buffer
	at := 0
	for _, e := range f.edits {
		out.Write(f.data[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(f.data[at:])
	if f.tail != "" && out.Len() > 0 && out.Bytes()[out.Len()-1] != '\n' {
		out.WriteByte('\n')
	}
	out.WriteString(f.tail)
	return out.Bytes(), nil
}

// String formats the chat as TOML.
func (t TelegramChat) String() string {
	s := "{ chat_id = " + strconv.FormatInt(t.ChatID, 10)
	if t.ThreadID != 0 {
		s += ", thread_id = " + strconv.Itoa(t.ThreadID)
	}
	return s + " }"
}
