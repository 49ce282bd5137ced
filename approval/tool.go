package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/go-json-experiment/json/jsontext"
)

// Raw is JSON kept byte for byte: numbers are never rounded, strings never
// rewritten.
type Raw = jsontext.Value

// Reversibility says whether an effect can be undone. The empty value is shown and
// treated as irreversible.
type Reversibility string

// The three degrees of reversibility.
const (
	Reversible   Reversibility = "reversible"
	Partial      Reversibility = "partial"
	Irreversible Reversibility = "irreversible"
)

// Property is one of the four trust properties of a tool: "", "true", "false"
// or "forbidden". The empty value counts as true, the strict choice.
type Property string

// Trust holds the four properties of a tool that policy uses.
type Trust struct {
	PublicSource    Property
	SecretData      Property
	PublicSink      Property
	DangerousWrites Property
}

// Tool is an operation that an agent may name, as the operator configured it. The
// zero Tool is the unknown tool: no handler, no capability, strict defaults.
type Tool struct {
	Name          string
	Capability    string // one of Capabilities, or ""
	ActionType    string
	Verb          map[string]string // by language; "en" is the fallback
	Summary       string            // template over request_data
	Target        string            // template over request_data
	Reversibility Reversibility
	Territory     string // none, session, permanent
	Trust         Trust
	Cost          codec.Cost          // of one run
	CostArg       string              // the amount that is the cost instead; "": none
	Secrets       string              // what a secret in a request leads to: allow, deny; else ask
	Args          map[string]Argument // all that request_data may hold, by name; nil: facts.Arguments
	Size          string              // argument whose bytes are the size on a card: a path's file, else the value; "": all arguments
	Reads         bool                // it only reads: a program may look at its result while its plan is made
	Undo          string              // the tool that undoes a run, with arguments from its result and its own; "": none
	Handler       Handler
}

// Argument is what a tool declares of one member of request_data.
type Argument struct {
	Type     string `json:"type"`              // one of facts.ArgTypes; "" is text
	Currency string `json:"currency,omitzero"` // of an amount: an argument, or a code such as EUR; "": none
	Writes   string `json:"writes,omitzero"`   // of a text: the path argument of the file that it replaces; "": none
	Replaces string `json:"replaces,omitzero"` // of a text: the text argument in whose place it comes; "": none
	Optional bool   `json:"optional,omitzero"`
}

// Handler says how an approved action is run.
type Handler struct {
	Kind       string        // one of the Handler constants; "": HandlerNone
	Argv       []string      // never passed to a shell
	Dir        string        // working directory; "": a new empty folder for each run
	Env        []string      // names of the only host variables passed on
	Timeout    time.Duration // 0: 30 s
	MaxOutput  int           // bytes kept of stdout or of a response body; 0: 256 KiB
	Idempotent bool          // may run once more after an interruption
	HTTP       HTTP          // for kinds "http" and "mcp"
	MCP        MCP           // for kind "mcp" only

	MaxMemory    int64 // bytes of all processes of a command; 0: 2 GiB
	MaxProcesses int   // processes and threads of a command at the same time; 0: 1024
}

// MCP is the call that a handler of kind "mcp" makes. The handler's other fields say what its server is: a command with
// its limits, or the URL, headers, allow_private and ca_file of HTTP. None of them is a template.
type MCP struct {
	Server string // its name in the configuration
	Tool   string // as the server calls it
}

// HTTP is the one request that a handler of kind "http" makes.
type HTTP struct {
	Method        string            // GET, HEAD, POST, PUT, PATCH or DELETE
	URL           string            // template over request_data, after a fixed scheme and host
	Body          string            // JSON template over request_data; "": none
	BodyArgs      bool              // the body is request_data, byte for byte
	Headers       map[string]string // sent verbatim
	SecretHeaders map[string]string // "/file", or "Bearer /file": the file's content is the value
	AllowPrivate  []string          // private addresses, or host names that may have one; each with or without a port
	CAFile        string            // PEM certificates that replace the system's roots; "": the system's
	Status        []int             // success codes; empty: 200 to 299
}

// parts lists everything about h, each list preceded by its length.
func (h HTTP) parts() []string {
	ss := []string{h.Method, h.URL, h.Body, strconv.FormatBool(h.BodyArgs), h.CAFile}
	for _, m := range []map[string]string{h.Headers, h.SecretHeaders} {
		ss = append(ss, strconv.Itoa(len(m)))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			ss = append(ss, name, m[name])
		}
	}
	ss = append(append(ss, strconv.Itoa(len(h.AllowPrivate))), h.AllowPrivate...)
	for _, code := range h.Status {
		ss = append(ss, strconv.Itoa(code))
	}
	return ss
}

// Job is what the gate hands to an executor.
type Job struct {
	Workspace string
	RequestID string
	Tool      Tool
	Args      []byte // request_data, verbatim
	Receipt   string // the signed note; an executor verifies it first
	Key       string // idempotency key; "": none

	// Program is the program whose step this is; nil: none. An executor verifies its receipt, too.
	Program *ProgramReceipt

	// Task is what KeepTask was given: a JSON object by which an executor finds a task that goes on without the daemon. It
	// is set for Resume only. KeepTask makes it durable, at most once in a run; nil: it cannot be kept.
	Task     []byte
	KeepTask func(task []byte) error
}

// ProgramReceipt is the receipt of a program, for each of its steps.
type ProgramReceipt struct {
	RequestID string
	Receipt   string
	SHA256    string // of the Plan
}

// Effect is the result of a Job.
type Effect struct {
	Result    Raw    // nil on failure, unless it says what ran before that
	Error     string // "" on success
	Unstarted bool   // nothing started and nothing was sent, so nothing was read
	Left      bool   // a task that was kept goes on: there is no outcome yet, and the next daemon awaits it
	Unknown   bool   // of a task that a daemon before this one started: its outcome cannot be learned
}

// SHA256 digests everything that determines what the tool does and how it is shown,
// as lower-case hex. If the digest changed since the pending was shown, an approval
// does not run.
func (t Tool) SHA256() string {
	h := sha256.New()
	put := func(ss ...string) {
		for _, s := range ss {
			h.Write([]byte(strconv.Itoa(len(s))))
			h.Write([]byte{':'})
			h.Write([]byte(s))
		}
	}
	put(t.Name, t.Capability, t.ActionType, t.Summary, t.Target, string(t.Reversibility), t.Territory, strconv.Itoa(len(t.Verb)))
	for _, lang := range slices.Sorted(maps.Keys(t.Verb)) {
		put(lang, t.Verb[lang])
	}
	put(string(t.Trust.PublicSource), string(t.Trust.SecretData), string(t.Trust.PublicSink), string(t.Trust.DangerousWrites))
	if t.Cost != 0 {
		put("cost", t.Cost.String())
	}
	if t.CostArg != "" {
		put("cost_arg", t.CostArg)
	}
	if t.Secrets != "" {
		put("secrets", t.Secrets)
	}
	put(t.argParts()...)
	a := t.Handler
	put(a.Kind, strconv.Itoa(len(a.Argv)))
	put(a.Argv...)
	put(a.Dir, strconv.Itoa(len(a.Env)))
	put(a.Env...)
	put(a.Timeout.String(), strconv.Itoa(a.MaxOutput), strconv.FormatBool(a.Idempotent))
	// Left out if empty, so that existing digests stay the same.
	if parts := a.HTTP.parts(); !slices.Equal(parts, HTTP{}.parts()) {
		put(parts...)
	}
	if a.MCP != (MCP{}) {
		put("mcp", a.MCP.Server, a.MCP.Tool)
	}
	if a.MaxMemory != 0 || a.MaxProcesses != 0 {
		put("limits", strconv.FormatInt(a.MaxMemory, 10), strconv.Itoa(a.MaxProcesses))
	}
	if t.Reads || t.Undo != "" {
		put("program", strconv.FormatBool(t.Reads), t.Undo)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// argParts lists what is declared of arguments. It is empty if nothing is, so that existing
// digests stay the same.
func (t Tool) argParts() []string {
	if t.Args == nil && t.Size == "" {
		return nil
	}
	ss := []string{"args", t.Size, strconv.FormatBool(t.Args != nil), strconv.Itoa(len(t.Args))}
	for _, name := range slices.Sorted(maps.Keys(t.Args)) {
		a := t.Args[name]
		ss = append(ss, name, a.Type, a.Currency, a.Writes, strconv.FormatBool(a.Optional))
		if a.Replaces != "" {
			ss = append(ss, "replaces", a.Replaces)
		}
	}
	return ss
}

// Runs says whether the gate runs something on this host.
func (t Tool) Runs() bool {
	switch t.Handler.Kind {
	case HandlerCommand, HandlerHTTP, HandlerMCP, HandlerProgram:
		return true
	}
	return false
}

// ByAgent says whether the agent itself executes what is approved.
func (t Tool) ByAgent() bool { return t.Handler.Kind == HandlerAgent }

// ByGateway says whether a tool is named as the MCP gateway names those of its server, whose calls it makes for the agent:
// mcp.SERVER.TOOL.
func ByGateway(tool string) bool { return strings.HasPrefix(tool, "mcp.") }

// AgentTool is the tool of a call that the agent itself executes, and that no table names.
func AgentTool(name string) Tool { return Tool{Name: name, Handler: Handler{Kind: HandlerAgent}} }

// The kinds of handler.
const (
	HandlerCommand = "command"
	HandlerHTTP    = "http"
	HandlerMCP     = "mcp"   // a tool of an MCP server that the host runs or reaches
	HandlerAgent   = "agent" // the agent runs it; the gate runs nothing
	HandlerNone    = "none"  // nothing runs, the agent gets the receipt
)
