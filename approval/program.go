package approval

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval/codec"
)

// Limits of programs.
const (
	MaxProgram = 64 << 10  // bytes of a program
	MaxSteps   = 256       // calls of one program
	MaxTrace   = 512 << 10 // bytes of the arguments of all its calls
)

// ProgramTool is what a program's request has for a tool.
func ProgramTool() Tool {
	return Tool{ActionType: ActionProgram, Handler: Handler{Kind: HandlerProgram}}
}

// ActionProgram stands in documents as the action type of a program's request, which has no tool.
const ActionProgram = "program"

// HandlerProgram is the kind of Runs that a program has: its Plan says what runs.
const HandlerProgram = "program"

// Plan is what a program does: its calls in their order, as an evaluation without effects found them. A person approves the
// program and its plan together, and the daemon runs nothing that is not the plan's next step.
type Plan struct {
	Source     string      `json:"source"` // in Starlark, as the agent wrote it
	Steps      []Step      `json:"steps"`
	Guarantees []Guarantee `json:"guarantees,omitempty"`
	Needs      *Needs      `json:"needs,omitzero"`     // nil: the plan is whole
	Continues  string      `json:"continues,omitzero"` // the request whose program goes on here; "": none
}

// Step is one call of a plan, with what the host says of it.
type Step struct {
	Call
	ToolSHA256    string              `json:"tool_sha256"` // the tool's definition
	Declared      map[string]Argument `json:"declared"`    // the types of the arguments
	Capability    string              `json:"capability,omitzero"`
	Target        string              `json:"target,omitzero"`
	Reversibility Reversibility       `json:"reversibility,omitzero"`
	Ruling        Ruling              `json:"ruling"`
	// Of a step that has run: a read that policy allowed while the plan was made, or a step of an earlier part.
	Of           string `json:"of,omitzero"`            // the request whose step it was; "": it has not run
	ResultSHA256 string `json:"result_sha256,omitzero"` // of its result
	Failed       string `json:"failed,omitzero"`        // why it failed; only of a step with Try
}

// Done reports whether the step has run, and runs no more.
func (s *Step) Done() bool { return s.Of != "" }

// Call is one call of a tool by a program.
type Call struct {
	Tool string `json:"tool"`
	Data Raw    `json:"data"` // the arguments whose values are known, an object, in the order of their names
	// Opaque are the other arguments: results, or parts of results, of earlier steps. In the order of their names.
	Opaque []ResultRef `json:"opaque,omitempty"`
	Line   int         `json:"line"`         // of the source, from 1
	Try    bool        `json:"try,omitzero"` // the program goes on if it fails
}

// ResultRef is an argument whose value is not known before the step that gives it has run.
type ResultRef struct {
	Arg  string `json:"arg"`
	Step int    `json:"step"` // from 1
	At   string `json:"at"`   // a JSON pointer (RFC 6901) into that step's result; "": the result
}

// Needs says where a plan ends because the program looks at the result of a step that has not run.
type Needs struct {
	Step int `json:"step"` // from 1
	Line int `json:"line"` // of the source, where it looks
}

// The kinds of guarantee.
const (
	GuaranteeOnly      = "only"       // the argument of every call of the tool has only these values
	GuaranteeOnlyUnder = "only_under" // every path in the argument, of every tool, is below one of the folders
	GuaranteeAtMost    = "at_most"    // the tool is called at most Max times
	GuaranteeSum       = "sum"        // the sum of an amount is at most Sum in Currency
	GuaranteeNone      = "none"       // the tool is not called
	GuaranteeUnique    = "unique"     // no value of the argument occurs twice in calls of the tool
)

// The states of a guarantee.
const (
	GuaranteeProved  = "proved"
	GuaranteeRefuted = "refuted"
	GuaranteeUnknown = "unknown" // an opaque value may break it, or the plan does not reach the program's end
)

// Guarantee is what a program promises of all its calls, and what its plan says of that.
type Guarantee struct {
	Kind     string   `json:"kind"`
	Tool     string   `json:"tool,omitzero"` // "": every tool
	Arg      string   `json:"arg,omitzero"`
	Values   []string `json:"values,omitempty"`
	Max      int64    `json:"max,omitzero"`
	Sum      string   `json:"sum,omitzero"` // decimal
	Currency string   `json:"currency,omitzero"`
	Line     int      `json:"line"`
	State    string   `json:"state"`
	Step     int      `json:"step,omitzero"` // that refutes it, or of which it is not known; 0: none
}

// Answer is what a program gets for a call.
type Answer struct {
	Known  bool   // the program may look at the result; else it is opaque
	Result Raw    // of a known one
	Failed string // of a known one with Try: why it failed
}

// ProgramJob is a program to evaluate.
type ProgramJob struct {
	Source string
	Tools  map[string]map[string]Argument // the arguments of each tool that it may call
}

// Evaluation is what an evaluation of a program found besides its calls.
type Evaluation struct {
	Guarantees []Guarantee
	Needs      *Needs // nil: main has returned
}

// ProgramError says why a program cannot be evaluated. Its text is for the agent, and has words of the program in it.
type ProgramError struct {
	Line int // of the source; 0: none
	Text string
}

func (e *ProgramError) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return "line " + strconv.Itoa(e.Line) + ": " + e.Text
}

// Size is about how many bytes the plan has in a document; 0 for none.
func (p *Plan) Size() (n int) {
	if p == nil {
		return 0
	}
	n = 2 * len(p.Source)
	for i := range p.Steps {
		n += 2*len(p.Steps[i].Data) + 2<<10
	}
	return n
}

// Reversibility is that of the step that has not run and can be undone least; reversible if there is none.
func (p *Plan) Reversibility() Reversibility {
	least := Reversible
	for i := range p.Steps {
		switch s := &p.Steps[i]; {
		case s.Done() || s.Reversibility == Reversible:
		case s.Reversibility != Partial:
			return Irreversible
		default:
			least = Partial
		}
	}
	return least
}

// String is the guarantee as a program writes it.
func (g Guarantee) String() string {
	tool := "tools." + g.Tool
	switch g.Kind {
	case GuaranteeOnly:
		return fmt.Sprintf("%s.only(%s = %s)", tool, g.Arg, quoted(g.Values))
	case GuaranteeOnlyUnder:
		return fmt.Sprintf("only_under(%q, %s)", g.Arg, strings.Trim(quoted(g.Values), "[]"))
	case GuaranteeAtMost:
		return fmt.Sprintf("at_most(%s, %d)", tool, g.Max)
	case GuaranteeSum:
		return fmt.Sprintf("at_most(%s, %d, sum_of(%q, %s, %q))", tool, g.Max, g.Arg, g.Sum, g.Currency)
	case GuaranteeUnique:
		return fmt.Sprintf("unique(%s, %q)", tool, g.Arg)
	}
	return g.Kind + "(" + tool + ")"
}

func quoted(values []string) string {
	list := make([]string, 0, len(values))
	for _, v := range values {
		list = append(list, strconv.Quote(v))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// SHA256 digests the program and its trace: source, calls, the tools' definitions and the results that are known. What
// policy says of the steps is not in it, and neither are the ids of requests: the same program with the same plan has the
// same digest when it is asked again.
func (p *Plan) SHA256() string {
	parts := [][]byte{[]byte(p.Source)}
	for i := range p.Steps {
		s := &p.Steps[i]
		call, err := codec.Encode(&s.Call)
		if err != nil {
			call = []byte(s.Tool + string(s.Data)) // cannot happen: its data was read as JSON
		}
		parts = append(parts, call, []byte(s.ToolSHA256), []byte(strconv.FormatBool(s.Done())), []byte(s.ResultSHA256), []byte(s.Failed))
	}
	if p.Needs != nil {
		parts = append(parts, fmt.Appendf(nil, "needs %d %d", p.Needs.Step, p.Needs.Line))
	}
	return DigestAll(parts...)
}

// Equal reports whether two calls are the same, byte for byte.
func (c *Call) Equal(d *Call) bool {
	a, err := codec.Encode(c)
	b, err2 := codec.Encode(d)
	return err == nil && err2 == nil && string(a) == string(b)
}

// stepInfix is between the id of a request and the number of its step.
const stepInfix = ".step-"

// StepKey names step n, from 1, of the program of a request. No agent can choose such an id.
func (k Key) StepKey(n int) Key {
	return Key{Workspace: k.Workspace, ID: k.ID + stepInfix + strconv.Itoa(n)}
}

// CutStep is the request and the number of a step that StepKey has named; n is 0 if id is no step's.
func CutStep(id string) (request string, n int) {
	request, digits, ok := strings.Cut(id, stepInfix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > MaxSteps || strconv.Itoa(n) != digits || !ValidID(request) {
		return id, 0
	}
	return request, n
}

// ValidDocument reports whether the daemon stores documents under a name: ValidName, or that of a step.
func ValidDocument(name string) bool {
	_, n := CutStep(name)
	return n > 0 || ValidName(name)
}

// ContinuationID is the id of the request that goes on with the program of another one. There is one, so that a program
// goes on once.
func ContinuationID(id string) string { return Digest([]byte("continues " + id))[:32] }
