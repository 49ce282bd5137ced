package hook

import (
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"
)

// Agent is a program with hooks. A new one is a row here, and its fixtures.
type Agent struct {
	Name    string
	timeout time.Duration   // its default for a hook
	asks    map[string]form // by the name of the event
	informs map[string]bool // events before which nothing is decided
}

// form is what standard output gets for an approved call; nil: nothing. It has only members that the agent knows: an
// unknown one makes Codex discard all of it, and run the call.
type form func(Verdict) []byte

var agents = []Agent{
	{
		Name: "claude-code", timeout: 10 * time.Minute,
		asks: map[string]form{"PreToolUse": claudePreTool, "PermissionRequest": permission},
		informs: events("PostToolUse", "PostToolUseFailure", "Notification", "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop",
			"PreCompact", "SessionStart", "SessionEnd", "PermissionDenied"),
	},
	{
		Name: "codex", timeout: 10 * time.Minute,
		asks:    map[string]form{"PreToolUse": nothing, "PermissionRequest": permission}, // allow goes only with updatedInput
		informs: events("PostToolUse", "UserPromptSubmit", "Stop", "SessionStart", "PreCompact", "PostCompact", "SubagentStart", "SubagentStop"),
	},
	{
		Name: "gemini", timeout: time.Minute,
		asks: map[string]form{"BeforeTool": geminiBeforeTool},
		informs: events("AfterTool", "BeforeAgent", "AfterAgent", "BeforeModel", "AfterModel", "BeforeToolSelection", "Notification",
			"SessionStart", "SessionEnd", "PreCompress"),
	},
}

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

// nothing is Codex's form of an allowed call in PreToolUse.
func nothing(Verdict) []byte { return nil }

type claudeDecision struct {
	Event   string `json:"hookEventName"`
	Verdict string `json:"permissionDecision"`
	Reason  string `json:"permissionDecisionReason"`
	Context string `json:"additionalContext,omitzero"`
}

func claudePreTool(v Verdict) []byte {
	d := claudeDecision{Event: v.Call.Event, Verdict: "allow", Reason: v.Reason}
	if v.Note != "" {
		d.Context = "The approver's note: " + v.Note
	}
	return specific(d)
}

// permission answers the event PermissionRequest, alike for Claude Code and Codex. What is remembered is remembered by the
// gate, so it changes none of the agent's own rules.
func permission(v Verdict) []byte {
	type behavior struct {
		Behavior string `json:"behavior"`
	}
	return specific(struct {
		Event    string   `json:"hookEventName"`
		Decision behavior `json:"decision"`
	}{v.Call.Event, behavior{"allow"}})
}

// geminiBeforeTool is no objection: the agent's own rules decide then.
func geminiBeforeTool(Verdict) []byte { return []byte(`{"decision":"allow"}`) }

func specific(output any) []byte {
	b, err := codec.Encode(struct {
		Output any `json:"hookSpecificOutput"`
	}{output})
	if err != nil {
		panic(err) // exit 2: texts alone are always encoded
	}
	return b
}
