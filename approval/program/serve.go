package program

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// A program is evaluated in a process of its own, which gets a job, sends calls, gets an answer to each, and sends how it
// ended. A message is its length in four bytes and a JSON object.
const (
	maxFromChild = 2 << 20 // bytes of a message; all calls together have at most approval.MaxTrace of arguments
	maxToChild   = 64 << 20
)

// message is one message. Each kind has its members.
type message struct {
	Kind string `json:"kind"`

	Source string                                  `json:"source,omitzero"` // job
	Tools  map[string]map[string]approval.Argument `json:"tools,omitempty"`

	Tool   string               `json:"tool,omitzero"` // call
	Data   approval.Raw         `json:"data,omitzero"`
	Opaque []approval.ResultRef `json:"opaque,omitempty"`
	Line   int                  `json:"line,omitzero"` // of fault, too
	Try    bool                 `json:"try,omitzero"`

	Known  bool         `json:"known,omitzero"` // answer
	Result approval.Raw `json:"result,omitzero"`
	Failed string       `json:"failed,omitzero"`

	Guarantees []approval.Guarantee `json:"guarantees,omitempty"` // end
	Needs      *approval.Needs      `json:"needs,omitzero"`

	Text string `json:"text,omitzero"` // fault
}

const (
	kindJob    = "job"
	kindCall   = "call"
	kindAnswer = "answer"
	kindEnd    = "end"
	kindFault  = "fault"
)

func send(w io.Writer, m message) error {
	body, err := codec.Encode(&m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// receive reads a message. Those of a child are strict.
func receive(r io.Reader, limit int, strict bool) (m message, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return m, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if int64(n) > int64(limit) {
		return m, fmt.Errorf("a message of %d bytes", n)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(n))) // it grows as the bytes arrive
	if err == nil && len(body) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return m, err
	}
	if strict {
		return m, codec.Decode(body, &m)
	}
	return m, codec.DecodeOuter(body, &m)
}

// Serve is the side of the process that evaluates: it evaluates the one job that r has, and asks for answers on w.
func Serve(r io.Reader, w io.Writer) error {
	job, err := receive(r, maxToChild, false)
	if err != nil {
		return err
	}
	ev, err := evaluate(context.Background(), approval.ProgramJob{Source: job.Source, Tools: job.Tools}, func(c approval.Call) (approval.Answer, error) {
		if err := send(w, message{Kind: kindCall, Tool: c.Tool, Data: c.Data, Opaque: c.Opaque, Line: c.Line, Try: c.Try}); err != nil {
			return approval.Answer{}, err
		}
		m, err := receive(r, maxToChild, false)
		return approval.Answer{Known: m.Known, Result: m.Result, Failed: m.Failed}, err
	})
	if fault, ok := errors.AsType[*approval.ProgramError](err); ok {
		return send(w, message{Kind: kindFault, Line: fault.Line, Text: fault.Text})
	}
	if err != nil {
		return err
	}
	return send(w, message{Kind: kindEnd, Guarantees: ev.Guarantees, Needs: ev.Needs})
}

// Client is the other side: Evaluate by the process that reads w and writes r. It believes nothing that it reads: every
// call and guarantee is one that the job permits, or it ends with an error. It checks the guarantees itself.
func Client(r io.Reader, w io.Writer, job approval.ProgramJob, call func(approval.Call) (approval.Answer, error)) (ev approval.Evaluation, err error) {
	c := client{job: job}
	if err := send(w, message{Kind: kindJob, Source: job.Source, Tools: job.Tools}); err != nil {
		return ev, err
	}
	for {
		m, err := receive(r, maxFromChild, true)
		if err != nil {
			return ev, fmt.Errorf("read from the evaluation: %w", err)
		}
		switch m.Kind {
		case kindFault:
			return ev, &approval.ProgramError{Line: max(m.Line, 0), Text: Shown(m.Text)}
		case kindEnd:
			if err := c.checkEnd(&m); err != nil {
				return ev, fmt.Errorf("the evaluation sent a wrong end: %w", err)
			}
			return approval.Evaluation{Guarantees: Check(c.steps, m.Needs != nil, m.Guarantees), Needs: m.Needs}, nil
		case kindCall:
			step := approval.Call{Tool: m.Tool, Data: m.Data, Line: m.Line, Try: m.Try}
			if len(m.Opaque) > 0 {
				step.Opaque = m.Opaque
			}
			if err := c.checkCall(&step); err != nil {
				return ev, fmt.Errorf("the evaluation sent a wrong call: %w", err)
			}
			c.steps = append(c.steps, approval.Step{Call: step, Declared: job.Tools[step.Tool]})
			answer, err := call(step)
			if err == nil && answer.Failed != "" && !step.Try {
				err = failedStep(len(c.steps), step.Line, answer)
			}
			if err != nil {
				return ev, err
			}
			c.known = append(c.known, answer.Known)
			if err := send(w, message{Kind: kindAnswer, Known: answer.Known, Result: answer.Result, Failed: answer.Failed}); err != nil {
				return ev, fmt.Errorf("write to the evaluation: %w", err)
			}
		default:
			return ev, errors.New("the evaluation sent a message of an unknown kind")
		}
	}
}

// client is what the other side knows of an evaluation.
type client struct {
	job   approval.ProgramJob
	steps []approval.Step
	known []bool // of each step: its result
	size  int
}

func (c *client) checkCall(call *approval.Call) error {
	declared, ok := c.job.Tools[call.Tool]
	c.size += len(call.Data)
	switch {
	case !ok:
		return errors.New("unknown tool")
	case len(c.steps) == approval.MaxSteps || c.size > approval.MaxTrace:
		return errors.New("too many, or too large")
	case !c.isLine(call.Line):
		return errors.New("not a line of the program")
	}
	fields, err := codec.Fields(call.Data)
	if err != nil {
		return err
	}
	if err := codec.CheckDepth(call.Data, maxDepth+1); err != nil {
		return err
	}
	byName := func(a, b codec.Field) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(fields, byName) || string(codec.Object(fields)) != string(call.Data) {
		return errors.New("arguments that are not in order")
	}
	rest := map[string]approval.Argument{}
	for name, a := range declared {
		rest[name] = a
	}
	last := ""
	for i, ref := range call.Opaque {
		a, ok := rest[ref.Arg]
		switch {
		case !ok || a.Type != "" && a.Type != facts.TypeText || i > 0 && ref.Arg <= last:
			return errors.New("a result where none can be")
		case ref.Step < 1 || ref.Step > len(c.known) || c.known[ref.Step-1] || !isPointer(ref.At):
			return errors.New("a result that there is not")
		}
		last = ref.Arg
		delete(rest, ref.Arg)
	}
	return wrongArgs(call.Tool, facts.CheckArgs(rest, call.Data))
}

func (c *client) isLine(n int) bool { return n > 0 && n <= strings.Count(c.job.Source, "\n")+1 }

func isPointer(at string) bool {
	if at == "" {
		return true
	}
	rest := strings.NewReplacer("~0", "", "~1", "").Replace(at)
	return at[0] == '/' && len(at) <= maxPointer && !strings.Contains(rest, "~")
}

func (c *client) checkEnd(m *message) error {
	if n := m.Needs; n != nil && (n.Step < 1 || n.Step > len(c.known) || c.known[n.Step-1] || !c.isLine(n.Line)) {
		return errors.New("it needs a result that there is not")
	}
	for _, g := range m.Guarantees {
		if err := c.checkGuarantee(g); err != nil {
			return err
		}
	}
	return tooMany(m.Guarantees)
}

func (c *client) checkGuarantee(g approval.Guarantee) error {
	declared, ok := c.job.Tools[g.Tool]
	a, hasArg := declared[g.Arg]
	switch g.Kind {
	case approval.GuaranteeNone, approval.GuaranteeAtMost:
		ok = ok && g.Max >= 0
	case approval.GuaranteeOnly, approval.GuaranteeUnique:
		ok = ok && hasArg
	case approval.GuaranteeSum:
		limit, is := decimal(g.Sum)
		ok = ok && isNumber(a.Type) && is && limit.Sign() >= 0 && (g.Currency == "" || facts.IsCurrency(g.Currency))
	case approval.GuaranteeOnlyUnder:
		ok = g.Tool == "" && len(g.Values) > 0
	default:
		ok = false
	}
	if !ok || !c.isLine(g.Line) {
		return errors.New("a guarantee that says nothing")
	}
	return nil
}
