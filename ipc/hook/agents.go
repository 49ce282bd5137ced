package hook

import (
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Agent is a program with hooks. A new one is a row here, and its fixtures.
type Agent struct {
	Name    string
	timeout time.Duration              // its default for a hook
	parse   func([]byte) (Call, error) // its form of an event; nil: that of Claude Code, which Codex and Gemini CLI share
	asks    map[string]reply           // by the name of the event
	informs map[string]bool            // events before which nothing is decided
	tools   map[string]shape           // what is known of its tools

	deferral func(c Call, reason string) []byte // ends the agent until the decision; nil: it cannot
	denies   denial                             // nil: exit 2 with a line on standard error, and nothing else
	shares   bool                               // its settings are read by other agents, too: the event says which one calls
}

// read returns the call in an event, and the agent that it is from.
func (a Agent) read(event []byte) (Agent, Call, error) {
	if a.shares {
		a = sender(event, a)
	}
	read := parse
	if a.parse != nil {
		read = a.parse
	}
	c, err := read(event)
	return a, c, err
}

// refuse is the answer for a call that is not approved. c is what is known of the call.
func (a Agent) refuse(c Call, why error) Answer {
	x := Answer{Reason: oneLine(why.Error()), Exit: Deny}
	if a.denies != nil {
		x.Out, x.Exit = a.denies(c, x.Reason)
	}
	return x
}

// reply is how an event is answered.
type reply struct {
	form  form
	edits bool // the answer can carry a call as a person has written it
}

// form is what standard output gets for an approved call; nil: nothing. It has only members that the agent knows: an
// unknown one makes Codex discard all of it, and run the call.
type form func(Verdict) []byte

// denial is what standard output gets for a call that is not approved, and the exit after it. The exit is Allow only if
// the agent reads a deny from the output alone; if that cannot be written it is Deny all the same.
type denial func(c Call, reason string) (out []byte, exit int)

var agents = []Agent{
	{
		Name: "claude-code", timeout: 10 * time.Minute,
		asks: map[string]reply{"PreToolUse": {claudePreTool, true}, "PermissionRequest": {permission, true}},
		informs: events("PostToolUse", "PostToolUseFailure", "Notification", "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop",
			"PreCompact", "SessionStart", "SessionEnd", "PermissionDenied"),
		deferral: claudeDefer, shares: true,
		tools: map[string]shape{
			"Bash": shell, "Monitor": shell, "Read": file, "Write": file, "Edit": file, "MultiEdit": file,
			"NotebookEdit": {files: []string{"notebook_path"}},
			"Glob":         {files: []string{"path"}, globs: []string{"pattern"}},
			"Grep":         {files: []string{"path"}, globs: []string{"glob"}},
			"LS":           {files: []string{"path"}},
			"WebFetch":     {edit: "url"}, "WebSearch": {edit: "query"},
		},
	},
	{
		Name: "codex", timeout: 10 * time.Minute,
		asks:    map[string]reply{"PreToolUse": {codexPreTool, true}, "PermissionRequest": {permission, false}},
		informs: events("PostToolUse", "UserPromptSubmit", "Stop", "SessionStart", "PreCompact", "PostCompact", "SubagentStart", "SubagentStop"),
		tools:   map[string]shape{"Bash": shell, "apply_patch": {patch: "command"}, "view_image": {files: []string{"path"}}},
	},
	{
		Name: "gemini", timeout: time.Minute,
		asks: map[string]reply{"BeforeTool": {geminiBeforeTool, true}},
		informs: events("AfterTool", "BeforeAgent", "AfterAgent", "BeforeModel", "AfterModel", "BeforeToolSelection", "Notification",
			"SessionStart", "SessionEnd", "PreCompress"),
		tools: map[string]shape{
			"run_shell_command": {shell: true, folder: "dir_path", edit: "command"},
			"read_file":         file, "write_file": file, "replace": file,
			"list_directory":  {files: []string{"dir_path"}},
			"glob":            {files: []string{"dir_path"}, globs: []string{"pattern"}},
			"grep_search":     {files: []string{"dir_path"}, globs: []string{"include_pattern"}},
			"read_many_files": {globs: []string{"include"}},
			"web_fetch":       {edit: "prompt"}, "google_web_search": {edit: "query"},
		},
	},

	// Written from the agents' documents, not tried. Of their tools only what a document shows is known: a wrong name of an
	// argument would tell a rule that a call works where it does not.
	{
		Name: "copilot", timeout: 30 * time.Second, parse: copilotEvent, denies: copilotDeny, shares: true,
		asks: map[string]reply{
			copilotTool: {copilotPreTool, true}, copilotPermission: {copilotPermit, false},
			"PreToolUse": {copilotCompatible, false}, // of hooks under Claude Code's names
		},
		informs: events("postToolUse", "postToolUseFailure", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop",
			"SessionStart", "SessionEnd", "SubagentStop", "PreCompact", "Notification", "ErrorOccurred"),
		tools: map[string]shape{"bash": shell, "powershell": shell, "Bash": shell},
	},
	{
		Name: "vscode", timeout: 30 * time.Second, parse: vscodeEvent, shares: true,
		asks:    map[string]reply{"PreToolUse": {claudePreTool, false}}, // an input that it does not expect is ignored, and the call runs as it was
		informs: events("PostToolUse", "UserPromptSubmit", "SessionStart", "Stop", "SubagentStart", "SubagentStop", "PreCompact"),
	},
	{
		Name: "cursor", timeout: 30 * time.Second, parse: cursorEvent, denies: cursorDeny,
		asks: map[string]reply{
			"preToolUse": {cursorAllow, false}, cursorShell: {cursorAllow, false}, cursorMCP: {cursorAllow, false},
		},
		informs: events("postToolUse", "postToolUseFailure", "afterShellExecution", "afterMCPExecution", "afterFileEdit", "afterAgentResponse",
			"afterAgentThought", "sessionStart", "sessionEnd", "preCompact", "stop", "subagentStop"),
	},
	{
		Name: "opencode", timeout: 10 * time.Minute, parse: opencodeEvent, // through the plugin that hook install writes
		asks:    map[string]reply{opencodeTool: {opencodeOnce, false}, opencodePermission: {opencodeOnce, false}},
		informs: events("tool.execute.after"),
	},
}

var (
	shell = shape{shell: true, edit: "command"}
	file  = shape{files: []string{"file_path"}}
)

func events(names ...string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// Agents lists the names of the agents.
func Agents() (names []string) {
	for _, a := range agents {
		names = append(names, a.Name)
	}
	return names
}

// AgentNamed is the agent of this name.
func AgentNamed(name string) (Agent, bool) {
	i := slices.IndexFunc(agents, func(a Agent) bool { return a.Name == name })
	if i < 0 {
		return Agent{}, false
	}
	return agents[i], true
}

// edit is the call as a person has written it, for an answer that can carry it; nil: it is the agent's own.
func (v Verdict) edit() approval.Raw {
	if !v.Edited {
		return nil
	}
	return v.Call.Input
}

// codexPreTool prints nothing for a call as it was: allow goes only with updatedInput, and that only with a command.
func codexPreTool(v Verdict) []byte {
	if !v.Edited {
		return nil
	}
	command, ok := field(v.Call.Input, "command")
	if !ok {
		panic("an edited call without a command") // exit 2
	}
	input := codec.Object([]codec.Field{command})
	return specific(claudeDecision{Event: v.Call.Event, Verdict: "allow", Reason: v.Reason, Input: input})
}

type claudeDecision struct {
	Event   string       `json:"hookEventName"`
	Verdict string       `json:"permissionDecision"`
	Reason  string       `json:"permissionDecisionReason"`
	Input   approval.Raw `json:"updatedInput,omitzero"`
	Context string       `json:"additionalContext,omitzero"`
}

func claudePreTool(v Verdict) []byte {
	d := claudeDecision{Event: v.Call.Event, Verdict: "allow", Reason: v.Reason, Input: v.edit()}
	if v.Note != "" {
		d.Context = "The approver's note: " + v.Note
	}
	return specific(d)
}

func claudeDefer(c Call, reason string) []byte {
	return specific(claudeDecision{Event: c.Event, Verdict: "defer", Reason: reason})
}

// permission answers the event PermissionRequest. What is remembered is remembered by the gate, so it changes none of the
// agent's own rules.
func permission(v Verdict) []byte {
	type behavior struct {
		Behavior string       `json:"behavior"`
		Input    approval.Raw `json:"updatedInput,omitzero"`
	}
	return specific(struct {
		Event    string   `json:"hookEventName"`
		Decision behavior `json:"decision"`
	}{v.Call.Event, behavior{"allow", v.edit()}})
}

// geminiBeforeTool is no objection: the agent's own rules decide then.
func geminiBeforeTool(v Verdict) []byte {
	if !v.Edited {
		return []byte(`{"decision":"allow"}`)
	}
	type input struct {
		Input approval.Raw `json:"tool_input"`
	}
	return encoded(struct {
		Decision string `json:"decision"`
		Output   input  `json:"hookSpecificOutput"`
	}{"allow", input{v.edit()}})
}

func specific(output any) []byte {
	return encoded(struct {
		Output any `json:"hookSpecificOutput"`
	}{output})
}

func encoded(doc any) []byte {
	b, err := codec.Encode(doc)
	if err != nil {
		panic(err) // exit 2: texts are always encoded, and the rest was read as JSON
	}
	return b
}
