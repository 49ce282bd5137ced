package hook

import (
	"bytes"
	"cmp"
	"errors"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// The forms of the agents that are written from their documents.
//
// Sources: GitHub's "Copilot hooks reference" and its versions since the CLI had hooks; "Hooks reference" of Visual Studio
// Code; cursor.com/docs/reference/hooks; opencode.ai/docs/plugins, and the types of its plugins.

// sender is the agent that an event is from, of those that read each other's settings. Claude Code's events have no time,
// Copilot's no transcript.
func sender(event []byte, named Agent) Agent {
	var e struct {
		CamelTool  string       `json:"toolName"`
		Tool       string       `json:"tool_name"`
		Time       approval.Raw `json:"timestamp"`
		Transcript approval.Raw `json:"transcript_path"`
	}
	if codec.DecodeOuter(event, &e) != nil {
		return named
	}
	name := named.Name
	switch {
	case e.Tool == "" && e.CamelTool == "":
	case e.Tool == "", e.Time != nil && e.Transcript == nil:
		name = "copilot"
	case e.Time != nil:
		name = "vscode"
	default:
		name = "claude-code"
	}
	a, _ := AgentNamed(name)
	return a
}

// Copilot's events. Their payload has no name but in that for permissions, so these are ours.
const (
	copilotTool       = "preToolUse"
	copilotPermission = "permissionRequest"
)

// copilotEvent reads Copilot's own form, and its form for hooks under Claude Code's names.
func copilotEvent(event []byte) (Call, error) {
	var e struct {
		Name    string       `json:"hookName"`
		Session string       `json:"sessionId"`
		Tool    string       `json:"toolName"`
		Args    approval.Raw `json:"toolArgs"`
		Input   approval.Raw `json:"toolInput"`
		Result  approval.Raw `json:"toolResult"`
		Error   approval.Raw `json:"error"`
	}
	c, err := parseWith(event, &e)
	if err != nil {
		return c, err
	}
	c.Input = unquoted(c.Input)
	if e.Tool == "" {
		return c, nil
	}
	if c.Tool != "" {
		return c, errors.New("it names its tool twice")
	}
	c.Session, c.Tool = cmp.Or(c.Session, e.Session), e.Tool
	switch {
	case e.Name != "":
		c.Event, c.Input = e.Name, unquoted(e.Input)
	case e.Result != nil:
		c.Event = "postToolUse"
	case e.Error != nil:
		c.Event = "postToolUseFailure"
	default:
		c.Event, c.Input = copilotTool, unquoted(e.Args)
	}
	return c, nil
}

// unquoted is the object in a text, for arguments that come as JSON in a text.
func unquoted(v approval.Raw) approval.Raw {
	text, ok := codec.Field{Value: v}.Text()
	if !ok {
		return v
	}
	if _, err := codec.Fields(approval.Raw(text)); err != nil || !approval.Raw(text).IsValid() {
		return v
	}
	return approval.Raw(strings.TrimSpace(text))
}

type copilotDecision struct {
	Decision string          `json:"permissionDecision"`
	Reason   string          `json:"permissionDecisionReason"`
	Args     approval.Raw    `json:"modifiedArgs,omitzero"`
	Specific *claudeDecision `json:"hookSpecificOutput,omitzero"`
}

func copilotPreTool(v Verdict) []byte {
	return encoded(copilotDecision{Decision: "allow", Reason: v.Reason, Args: v.edit()})
}

// copilotCompatible answers under Claude Code's names, where Copilot's reference has its own form and hooks written for
// Claude Code have that one: it gets both.
func copilotCompatible(v Verdict) []byte {
	return encoded(copilotCompatibleDecision(v.Call, "allow", v.Reason))
}

func copilotCompatibleDecision(c Call, decision, reason string) copilotDecision {
	return copilotDecision{Decision: decision, Reason: reason, Specific: &claudeDecision{Event: c.Event, Verdict: decision, Reason: reason}}
}

type copilotBehavior struct {
	Behavior string `json:"behavior"`
	Message  string `json:"message,omitzero"`
}

func copilotPermit(Verdict) []byte { return encoded(copilotBehavior{Behavior: "allow"}) }

// copilotDeny denies by JSON and exit 0: the references of all months read that as a deny, and earlier ones let a call
// through on any other exit. An event that is not known gets both.
func copilotDeny(c Call, reason string) ([]byte, int) {
	switch c.Event {
	case copilotPermission:
		return encoded(copilotBehavior{"deny", reason}), Allow
	case copilotTool:
		return encoded(copilotDecision{Decision: "deny", Reason: reason}), Allow
	case "PreToolUse":
		return encoded(copilotCompatibleDecision(c, "deny", reason)), Allow
	}
	return encoded(copilotDecision{Decision: "deny", Reason: reason}), Deny
}

// vscodeEvent is Claude Code's form. In the documents of some months the members that all events have are in camel case.
func vscodeEvent(event []byte) (Call, error) {
	var camel struct {
		Event   string `json:"hookEventName"`
		Session string `json:"sessionId"`
	}
	c, err := parseWith(event, &camel)
	if err != nil {
		return c, err
	}
	if c.Event != "" && camel.Event != "" && c.Event != camel.Event {
		return c, errors.New("it has two names")
	}
	c.Event, c.Session = cmp.Or(c.Event, camel.Event), cmp.Or(c.Session, camel.Session)
	return c, nil
}

// Cursor's events for one kind of call, which come besides preToolUse.
const (
	cursorShell = "beforeShellExecution"
	cursorMCP   = "beforeMCPExecution"
)

func cursorEvent(event []byte) (Call, error) {
	event = bytes.TrimPrefix(event, []byte("\xef\xbb\xbf")) // on some systems it begins with the mark of UTF-8
	var e struct {
		Conversation string   `json:"conversation_id"`
		Roots        []string `json:"workspace_roots"`
	}
	c, err := parseWith(event, &e)
	if err != nil {
		return c, err
	}
	c.Session = cmp.Or(c.Session, e.Conversation)
	if c.Folder == "" && len(e.Roots) == 1 {
		c.Folder = e.Roots[0]
	}
	c.Input = unquoted(c.Input)
	switch c.Event {
	case cursorShell: // as preToolUse has it
		c.Tool, c.Input = "Shell", members(event, "command", "cwd", "sandbox")
	case cursorMCP:
		c.Tool = "MCP:" + c.Tool // as preToolUse names it: no server can call its tool Shell
		c.Server = members(event, "url", "command")
	}
	return c, nil
}

// members is an object with some members of another.
func members(event []byte, names ...string) approval.Raw {
	var some []codec.Field
	for _, name := range names {
		if f, ok := field(event, name); ok {
			some = append(some, f)
		}
	}
	return codec.Object(some)
}

type cursorPermission struct {
	Permission string `json:"permission"`
	User       string `json:"user_message,omitzero"`
	Agent      string `json:"agent_message,omitzero"`
}

// cursorAllow says so: with failClosed an empty answer is a failure.
func cursorAllow(Verdict) []byte { return encoded(cursorPermission{Permission: "allow"}) }

// cursorDeny is both of the forms that Cursor documents: its versions differ in which of them carries the reason.
func cursorDeny(_ Call, reason string) ([]byte, int) {
	return encoded(cursorPermission{"deny", reason, reason}), Deny
}

// The events of our plugin for opencode.
const (
	opencodeTool       = "tool.execute.before"
	opencodePermission = "permission.asked"
)

func opencodeEvent(event []byte) (Call, error) {
	var e struct {
		Event   string       `json:"event"`
		Session string       `json:"sessionID"`
		Folder  string       `json:"directory"`
		Tool    string       `json:"tool"`
		CallID  string       `json:"callID"`
		Args    approval.Raw `json:"args"`
	}
	err := codec.DecodeOuter(event, &e)
	return Call{Event: e.Event, Session: e.Session, Folder: e.Folder, Tool: e.Tool, UseID: e.CallID, Input: e.Args, event: event}, err
}

// opencodeOnce is what the plugin lets a call through on; it takes everything else for a deny.
func opencodeOnce(Verdict) []byte { return []byte(`{"reply":"once"}`) }
