package hook

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Call is what an agent is about to do.
type Call struct {
	Event     string       `json:"hook_event_name"`
	Session   string       `json:"session_id"`
	Folder    string       `json:"cwd"`
	Tool      string       `json:"tool_name"`
	Input     approval.Raw `json:"tool_input"`
	UseID     string       `json:"tool_use_id"` // "": the agent gives none
	AgentID   string       `json:"agent_id"`    // of a subagent; "": none
	AgentType string       `json:"agent_type"`
	Server    approval.Raw `json:"mcp_server"` // where an MCP tool comes from

	event  []byte
	edits  int    // how often a person has written it anew
	before string // the request of the call before that
}

func parse(event []byte) (Call, error) {
	c := Call{event: event}
	if err := codec.DecodeOuter(event, &c); err != nil {
		return c, err
	}
	return c, nil
}

// parseWith reads what an event of an agent has besides, too.
func parseWith(event []byte, more any) (Call, error) {
	c, err := parse(event)
	if err == nil {
		err = codec.DecodeOuter(event, more)
	}
	return c, err
}

// id is the same for the same call: two hooks for one call ask once. Without an id of the call it is that of the event.
func (c Call) id(agent string) string {
	last := []byte(c.UseID)
	if c.UseID == "" {
		last = c.event
	}
	return digest([]byte(agent), []byte(c.Session), last, []byte(c.Folder), []byte(c.Tool), c.Input)
}

// same is equal for calls that do the same, whichever they are.
func (c Call) same(agent string) string {
	return digest([]byte("same"), []byte(agent), []byte(c.Session), []byte(c.AgentID), []byte(c.Folder), []byte(c.Tool), c.Input)
}

func digest(parts ...[]byte) string { return approval.DigestAll(parts...)[:32] }

const (
	otherTool   = "other-call" // for a name that no tool can have
	maxSession  = 128          // bytes; see approval.Request
	maxTitle    = 300
	maxSubagent = 64
	maxClient   = 64
)

// shape is what is known of a tool of an agent, so that a rule can tell where it works.
type shape struct {
	files  []string // arguments with the path of a file or folder; where none is given, the folder of the call
	globs  []string // arguments with a pattern of paths, which is one of the files as it is written
	patch  string   // argument with a patch in Codex's form
	shell  bool     // works in the folder of the call
	folder string   // argument with another folder for it
	edit   string   // the one plain text that a person may write anew
}

// What the hook adds to the arguments of a call whose tool it knows. All three are absolute or the agent's own words.
const (
	addedFolder = "cwd"        // of a command
	addedFiles  = "files"      // that a call names, in the folder in which it would look for them
	addedServer = "mcp_server" // where a tool comes from
)

// request is the call as the gate judges it.
func (c Call) request(a Agent, hold time.Duration) (approval.Request, error) {
	r := approval.Request{
		RequestID: c.id(a.Name), ToolName: c.Tool, RequestData: c.Input, Execution: approval.ExecutionAgent,
		SessionID: clip(c.Session, maxSession), Title: c.title(a.Name), ExpiresInSec: int64(hold / time.Second),
	}
	if c.AgentID != "" {
		r.Subagent = clip(oneLine(cmp.Or(c.AgentType, c.AgentID)), maxSubagent)
	}
	switch kind := c.Input.Kind(); {
	case kind == 0 || kind == 'n':
		r.RequestData = approval.Raw("{}")
	case kind != '{':
		r.RequestData = approval.Raw(`{"input":` + string(c.Input) + `}`)
	}
	var err error
	if !approval.ValidToolName(c.Tool) {
		r.ToolName = otherTool
		r.RequestData, err = codec.Encode(struct {
			Tool  string       `json:"tool"`
			Input approval.Raw `json:"input"`
		}{c.Tool, r.RequestData})
		return r, err
	}
	shape := a.tools[c.Tool]
	if f, ok := field(r.RequestData, shape.edit); ok && a.asks[c.Event].edits {
		if _, isText := f.Text(); isText {
			r.Editable = shape.edit
		}
	}
	if r.RequestData, err = c.add(r.RequestData, shape); err != nil {
		return r, err
	}
	return r, nil
}

// PermissionPrompt is a call of a tool of Claude Code's as the gate judges it, for its --permission-prompt-tool. client is
// what the program that sends it calls itself, folder is where Claude Code works; "": not known.
func PermissionPrompt(client, tool string, input approval.Raw, folder string) (approval.Request, error) {
	a, _ := AgentNamed("claude-code")
	c := Call{Tool: tool, Input: input, Folder: folder}
	r, err := c.request(a, 0)
	r.RequestID, r.Title = "", c.title(cmp.Or(clip(client, maxClient), a.Name))
	return r, err
}

// add returns the arguments with what the hook adds. None of the agent's own may have such a name: a rule would take it
// for ours.
func (c Call) add(data approval.Raw, s shape) (approval.Raw, error) {
	fields, err := codec.Fields(data)
	if err != nil {
		return nil, fmt.Errorf("the arguments cannot be read: %w", err)
	}
	added := map[string]any{}
	if s.shell {
		folder, err := texts(fields, s.folder)
		if err != nil || len(folder) > 1 {
			return nil, cmp.Or(err, errors.New("the call names more than one folder"))
		}
		added[addedFolder] = c.inFolder(strings.Join(folder, ""))
	}
	if s.files != nil || s.globs != nil || s.patch != "" {
		files, err := c.files(fields, s)
		if err != nil {
			return nil, err
		}
		if added[addedFiles] = files; len(files) == 1 {
			added[addedFiles] = files[0] // a target can be one file, and a grant for it
		}
	}
	if c.Server != nil {
		added[addedServer] = c.Server
	}
	for _, name := range []string{addedFolder, addedFiles, addedServer} {
		value, ok := added[name]
		if !ok {
			continue
		}
		if _, taken := field(data, name); taken {
			return nil, fmt.Errorf("the call has an argument %s, which permesso adds to calls of %s: leave it out", name, c.Tool)
		}
		b, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fields = append(fields, codec.Field{Name: name, Value: b})
	}
	return codec.Object(fields), nil
}

// inFolder is a path as the call would look for it. It is not cleaned: a rule sees where links lead.
func (c Call) inFolder(name string) string {
	if path.IsAbs(name) || name == "" || !path.IsAbs(c.Folder) || strings.HasPrefix(name, "~") {
		return cmp.Or(name, c.Folder)
	}
	return strings.TrimRight(c.Folder, "/") + "/" + name
}

// files are those that a call names.
func (c Call) files(fields []codec.Field, s shape) (all []string, err error) {
	if s.patch != "" {
		patch, err := texts(fields, s.patch)
		if err != nil {
			return nil, err
		}
		if all = patchFiles(strings.Join(patch, "\n")); len(all) == 0 {
			return nil, errors.New("the patch names no file: it cannot be judged")
		}
	}
	for _, name := range s.files {
		named, err := texts(fields, name)
		if err != nil {
			return nil, err
		}
		all = append(all, named...)
	}
	if len(all) == 0 && s.files != nil {
		all = []string{c.Folder}
	}
	for _, name := range s.globs {
		globs, err := texts(fields, name)
		if err != nil {
			return nil, err
		}
		for _, glob := range globs {
			some, err := alternatives(glob)
			if err != nil {
				return nil, fmt.Errorf("the argument %s: %w", name, err)
			}
			all = append(all, some...)
		}
	}
	for i, x := range all {
		all[i] = c.inFolder(x)
	}
	if len(all) == 0 {
		all = []string{c.Folder}
	}
	return all, nil
}

const maxAlternatives = 64

// alternatives are the patterns that one with braces stands for.
func alternatives(glob string) ([]string, error) {
	all := []string{glob}
	for i := 0; i < len(all); {
		x := all[i]
		outer := max(strings.IndexByte(x, '{'), 0)
		end := outer + max(strings.IndexByte(x[outer:], '}'), 0)
		start := strings.LastIndexByte(x[:end], '{') // the innermost
		if start < 0 {
			i++
			continue
		}
		all = slices.Delete(all, i, i+1)
		for some := range strings.SplitSeq(x[start+1:end], ",") {
			if some = x[:start] + some + x[end+1:]; !slices.Contains(all, some) {
				all = append(all, some)
			}
		}
		if len(all) > maxAlternatives {
			return nil, fmt.Errorf("a pattern for more than %d cannot be judged", maxAlternatives)
		}
	}
	return all, nil
}

// patchFiles are the files that a patch in Codex's form names: those that it adds, changes, deletes, and moves to. A line of
// a text that looks like it counts, too.
func patchFiles(patch string) (files []string) {
	for line := range strings.Lines(patch) {
		line = strings.TrimSpace(line)
		for _, mark := range []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "} {
			if name, ok := strings.CutPrefix(line, mark); ok {
				files = append(files, strings.TrimSpace(name))
			}
		}
	}
	return files
}

func field(data approval.Raw, name string) (codec.Field, bool) {
	fields := codec.FirstFields(data)
	i := slices.IndexFunc(fields, func(f codec.Field) bool { return f.Name == name })
	if name == "" || i < 0 {
		return codec.Field{}, false
	}
	return fields[i], true
}

// texts are those of an argument that is a text or a list of them. Anything else could be read in ways that no rule sees.
func texts(fields []codec.Field, name string) (all []string, err error) {
	for _, f := range fields {
		if f.Name != name || f.Value.Kind() == 'n' {
			continue
		}
		if s, ok := f.Text(); ok {
			return []string{s}, nil
		}
		items, err := codec.Items(f.Value)
		if err != nil {
			return nil, fmt.Errorf("the argument %s is neither a text nor a list of texts", name)
		}
		for _, item := range items {
			s, ok := (codec.Field{Value: item}).Text()
			if !ok {
				return nil, fmt.Errorf("the argument %s is neither a text nor a list of texts", name)
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// title is the agent's prose: who calls, and where.
func (c Call) title(agent string) string {
	if c.Folder != "" {
		agent += " in " + c.Folder
	}
	return clip(oneLine(agent), maxTitle)
}

// oneLine keeps a text from being anything else than a line of text to who reads it.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "�")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	return strings.TrimSpace(s)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
