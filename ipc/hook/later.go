package hook

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// prompt is how long a call that need not wait for a person waits for the gate.
const prompt = 3 * time.Second

// Deferring says, in the environment of an agent, that it was started by permesso hook run, which waits for what is deferred
// and starts it again. Elsewhere a deferral would not be joined, and the agent's own dialog could come instead.
const Deferring = "PERMESSO_HOOK_RUN"

// later asks, and does not wait for a person. The call, when the agent makes it again, gets the answer, once.
func (h Hook) later(ctx context.Context, c Call, form form) ([]byte, error) {
	if h.Wait == Defer && (h.Agent.deferral == nil || c.UseID == "") {
		return nil, fmt.Errorf("%s cannot defer this call: use --wait hold", h.Agent.Name)
	}
	known := calls(h.State)
	known.prune(time.Now())
	taker, first := c.taker(), ""
	for {
		r, err := c.request(h.Agent, 0)
		if err != nil {
			return nil, err
		}
		if h.Wait == HandBack {
			r.RequestID = nextID(c.same(h.Agent.Name), known)
		}
		if c.before != "" {
			r.Resubmits = c.before
		}
		asked, err := h.submit(ctx, &r)
		if err != nil {
			return nil, err
		}
		short := approval.ShortID(asked.ID)
		first = cmp.Or(first, asked.ID)
		soon, cancel := context.WithTimeout(ctx, prompt)
		resp, err := h.Gate.Await(soon, asked)
		tooSoon := soon.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err != nil && !tooSoon:
			return nil, h.unanswered(ctx, asked.ID, err)
		case err != nil && h.Wait == HandBack:
			return nil, fmt.Errorf("asked, number %s: make the same call again when you are told that it was decided", short)
		case err != nil:
			if err := known.note(c.waits(h.Agent.Name), asked.ID); err != nil {
				return nil, err
			}
			return h.Agent.deferral(c, "asked, number "+short), nil
		}
		next, edited, err := c.edited(h.Agent, r, resp)
		if err != nil {
			return nil, err
		}
		if edited {
			c = next
			continue
		}
		v, err := c.verdict(asked.ID, resp)
		if given := known.give(first, taker); given != nil {
			if err == nil {
				err = fmt.Errorf("request %s %w", short, given)
			}
		}
		if err != nil {
			return nil, err
		}
		return form(v), nil
	}
}

// nextID is the request of a call without an id of the agent's: the first one whose end no call has got.
func nextID(call string, known calls) string {
	id := call
	for n := 0; known.isGiven(id); n++ {
		id = digest([]byte(call), []byte(strconv.Itoa(n)))
	}
	return id
}

// waits names the call for the one who waits for it.
func (c Call) waits(agent string) string { return WaitsFor(agent, c.Session, c.UseID) }

// WaitsFor names a call that an agent has deferred.
func WaitsFor(agent, session, useID string) string {
	return digest([]byte("waits"), []byte(agent), []byte(session), []byte(useID))
}

// Waiting is the request of a deferred call, "" if there is none.
func Waiting(state, name string) string { return calls(state).noted(name) }
