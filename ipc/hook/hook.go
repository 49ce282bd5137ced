// Package hook asks the gate before a call of an agent that people already run: Claude Code, Codex, Gemini CLI. Such an
// agent starts a program for each call, its hook, gives it the call on standard input, and lets the call through if the
// hook breaks. So
//
//   - a deny is exit 2 with one line on standard error, the form that each of these agents blocks on,
//   - exit 0 is only for a call that the gate has approved, after the whole answer went out in one write,
//   - every other end of the process is exit 2 with a sentence, also a panic of Go's runtime.
//
// The agents that are written from their documents, and not tried, get a deny in the form that all months of these agree
// on: see their rows in agents.go. Where that is JSON with exit 0, exit 2 stays the end of everything else.
//
// What stays open, because the agent does not wait for the hook or does not start it, is in README.md.
//
// A call is a request with execution "agent": judged, typed and tainting like any other. The agent executes it, the gate
// runs nothing. The same call, in two hooks or in a repeated event, is one request.
//
// Source: the agents' programs, as tried, and the documents of those that were not; README.md has the versions.
package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/client"
)

// Exit codes of a hook. No other is ever used: the agents let a call through on exit 1.
const (
	Allow = 0
	Deny  = 2
)

const (
	maxEvent = 16 << 20 // bytes
	// margin is how long before the agent's time-out the hook denies: a late hook denies nothing.
	margin = 5 * time.Second
	notice = 30 * time.Second
	// Spare is what hook install adds to the approval time-out for that of the agent, so that a person's time is over first.
	Spare = 30 * time.Second
)

// Answer is what the process of the hook does at its end.
type Answer struct {
	Out    []byte // in one write, before the exit; if that fails, the exit is Deny
	Reason string // why the call is denied, one line for standard error if Exit is Deny; "": it is approved
	Exit   int
}

// Wait is how a hook waits for a person.
type Wait string

// The ways to wait.
const (
	Hold     Wait = "hold"      // the hook waits: the default
	Defer    Wait = "defer"     // the agent ends, and is started again after the decision: see permesso hook run
	HandBack Wait = "hand-back" // the call is denied at once, and its next one gets the answer
)

// Waits lists the ways to wait.
func Waits() []string { return []string{string(Hold), string(Defer), string(HandBack)} }

// Hook is one process of an agent's hook.
type Hook struct {
	Agent   Agent
	Gate    client.Client
	Timeout time.Duration // after which the agent goes on without an answer; 0: the agent's default
	Notice  time.Duration // how long a gate may take to notice a request; 0: 30 s, in which a daemon starts again
	Wait    Wait          // "": Hold
	State   string        // folder of this user's hooks; "": none
	Check   string        // folder of a check, see Checking: the call is recorded and denied, and no gate is asked; "": none
}

// Run reads one event and asks the gate about its call.
func (h Hook) Run(ctx context.Context, in io.Reader) Answer {
	ctx, cancel := context.WithTimeout(ctx, h.hold())
	defer cancel()
	c, err := h.read(ctx, in)
	if err != nil {
		return h.Agent.refuse(c, err)
	}
	out, err := h.run(ctx, c)
	if err != nil {
		return h.Agent.refuse(c, err)
	}
	return Answer{Out: out, Exit: Allow}
}

// Refuse answers an event for which the gate cannot be asked.
func (h Hook) Refuse(ctx context.Context, in io.Reader, why error) Answer {
	if h.Agent.denies == nil && !h.Agent.shares {
		return h.Agent.refuse(Call{}, why)
	}
	ctx, cancel := context.WithTimeout(ctx, h.hold())
	defer cancel()
	c, _ := h.read(ctx, in) // denied either way
	return h.Agent.refuse(c, why)
}

// hold is how long the hook waits.
func (h Hook) hold() time.Duration {
	return max(cmp.Or(h.Timeout, h.Agent.timeout)-margin, time.Second)
}

// decideWithin is how long a person has: what hook install was told, if it has made the time-out.
func (h Hook) decideWithin() time.Duration {
	if t := cmp.Or(h.Timeout, h.Agent.timeout) - Spare; t >= margin {
		return t
	}
	return h.hold()
}

// read returns the call in the event. From then on the hook is one of the agent that has sent it.
func (h *Hook) read(ctx context.Context, in io.Reader) (c Call, err error) {
	event, err := readAll(ctx, in)
	if err != nil {
		return c, err
	}
	h.Agent, c, err = h.Agent.read(event)
	if err != nil {
		return Call{}, fmt.Errorf("the event of %s cannot be read: %w", h.Agent.Name, err) // half of it is not known
	}
	return c, nil
}

func (h Hook) run(ctx context.Context, c Call) ([]byte, error) {
	reply, asks := h.Agent.asks[c.Event]
	switch {
	case !asks && h.Agent.informs[c.Event]:
		return nil, nil
	case !asks:
		return nil, fmt.Errorf("event %q of %s is not known: remove this hook from it", c.Event, h.Agent.Name)
	case c.Tool == "":
		return nil, fmt.Errorf("the event of %s names no tool", h.Agent.Name)
	}
	if h.Check != "" {
		return nil, h.checked(c)
	}
	switch h.Wait {
	case "", Hold:
		v, err := h.wait(ctx, c)
		if err != nil {
			return nil, err
		}
		return reply.form(v), nil
	case Defer, HandBack:
		return h.later(ctx, c, reply.form)
	}
	return nil, fmt.Errorf("%q is no way to wait", h.Wait)
}

// readAll is the whole event. An agent that does not close the pipe has no answer.
func readAll(ctx context.Context, in io.Reader) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(in, maxEvent+1))
		done <- result{b, err}
	}()
	select {
	case <-ctx.Done():
		return nil, errors.New("no complete event came on standard input in time")
	case r := <-done:
		if r.err == nil && len(r.b) > maxEvent {
			r.err = fmt.Errorf("it is larger than %d MiB", maxEvent>>20)
		}
		if r.err != nil {
			return nil, fmt.Errorf("read the event: %w", r.err)
		}
		return r.b, nil
	}
}

// Verdict is the gate's approval of a call.
type Verdict struct {
	Call   Call
	Reason string // who has approved it, under which number
	Note   string // the approver's, for the agent; "": none
	Edited bool   // Call.Input is as a person has written it
	person bool   // a person has approved it
}

// wait asks, and waits for the end. A call that is asked already is not asked again, and one approval is for one call.
func (h Hook) wait(ctx context.Context, c Call) (Verdict, error) {
	r, err := c.request(h.Agent, h.decideWithin())
	if err != nil {
		return Verdict{}, err
	}
	known := calls(h.State)
	if c.UseID == "" {
		r.RequestID = nextID(r.RequestID, known)
	}
	other, release := known.sole(c.same(h.Agent.Name), &r)
	defer release()
	if other == "" {
		v, err := h.ask(ctx, c, r)
		if c.UseID != "" && !v.person {
			return v, err
		}
		known.prune(time.Now())
		given := known.give(r.RequestID, c.taker())
		if err == nil && v.person && errors.Is(given, errGiven) { // else the folder is full or not there
			err = fmt.Errorf("request %s %w", approval.ShortID(r.RequestID), given)
		}
		return v, err
	}
	resp, err := h.await(ctx, client.Submitted{ID: other})
	if err != nil {
		return Verdict{}, h.unanswered(ctx, other, err) // it is the other call's to cancel
	}
	v, err := c.verdict(other, resp)
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{}, fmt.Errorf("the same call was asked at the same time: %s, for one of them; make it again if it is to run twice", v.Reason)
}

// ask returns the approval of a call, or an error that says why there is none. What a person has written in its place is
// a request of its own.
func (h Hook) ask(ctx context.Context, c Call, r approval.Request) (Verdict, error) {
	asked, err := h.submit(ctx, &r)
	if err != nil {
		return Verdict{}, err
	}
	resp, err := h.await(ctx, asked)
	if err != nil {
		// The request must not be approved for a call that was denied.
		_ = h.Gate.Cancel(context.WithoutCancel(ctx), asked)
		return Verdict{}, h.unanswered(ctx, asked.ID, err)
	}
	next, edited, err := c.edited(h.Agent, r, resp)
	switch {
	case err != nil:
		return Verdict{}, err
	case edited:
		r, err := next.request(h.Agent, time.Duration(r.ExpiresInSec)*time.Second)
		if err != nil {
			return Verdict{}, err
		}
		r.Resubmits = asked.ID
		return h.ask(ctx, next, r)
	}
	return c.verdict(asked.ID, resp)
}

func (h Hook) submit(ctx context.Context, r *approval.Request) (client.Submitted, error) {
	asked, err := h.Gate.Ask(ctx, *r)
	if err != nil {
		return asked, fmt.Errorf("the gate cannot be asked: %w", err)
	}
	return asked, nil
}

// unanswered says why there is no end of a request.
func (h Hook) unanswered(ctx context.Context, id string, err error) error {
	short := approval.ShortID(id)
	if silence, ok := errors.AsType[*client.Silence](err); ok {
		return fmt.Errorf("no answer from the gate: %s", silence.Tried)
	}
	if errors.Is(err, client.ErrIDConflict) {
		return fmt.Errorf("request %s was asked before with another time-out", short)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("interrupted before request %s was decided", short)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("request %s had no decision in time", short)
	}
	return fmt.Errorf("request %s: %w", short, err)
}

// verdict is the approval in a response, or an error that says why it is none.
func (c Call) verdict(id string, resp *approval.Response) (Verdict, error) {
	short := approval.ShortID(id)
	if err := client.Approved(resp); err != nil {
		return Verdict{}, fmt.Errorf("request %s: %w", short, err)
	}
	if resp.Execution != approval.ExecutionAgent {
		return Verdict{}, fmt.Errorf("request %s was approved for the host to run, not for the agent", short)
	}
	v := Verdict{Call: c, Reason: "request " + short + ": allowed by a rule or a grant", Edited: c.edits > 0}
	if by := resp.Decision.By; by != nil {
		v.Reason, v.person = "request "+short+": approved by "+oneLine(*by), true
	}
	if resp.Decision.Note != nil {
		v.Note = *resp.Decision.Note
	}
	return v, nil
}

// await waits for the end of a request, but only for a while for a gate that does not take it.
func (h Hook) await(ctx context.Context, asked client.Submitted) (*approval.Response, error) {
	first, cancel := context.WithTimeout(ctx, cmp.Or(h.Notice, notice))
	defer cancel()
	resp, err := h.Gate.Await(first, asked)
	if _, silent := errors.AsType[*client.Silence](err); err == nil || silent || first.Err() == nil || ctx.Err() != nil {
		return resp, err
	}
	return h.Gate.Await(ctx, asked)
}
