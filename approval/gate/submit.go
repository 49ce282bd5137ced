package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/move"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// # Submissions
//
// A caller inside the daemon (HTTP API, MCP, hooks) writes no request file. It
// submits the bytes, and the key is stepped like any other: intake finds the
// submission instead of Q. The submission is accepted when P, R or C is durable.
// Before that it exists only in memory, and a crash removes it. A caller that submits
// the same request under the same id again gets the same request.

// submission is a request in memory that is not accepted yet. The lock of submissions
// guards the fields that change.
type submission struct {
	key  approval.Key
	q    []byte
	from submit.Origin
	done chan struct{} // closed when resolved

	waiting     int  // callers of Submit
	loadedFresh bool // it was loaded once without reading documents
	result      submit.Result
	err         error
	resolved    bool
}

// submissions are those without a result.
type submissions struct {
	mu     sync.Mutex
	byKey  map[approval.Key]*submission
	closed bool // the gate has stopped
}

// Submit takes in a request without a file, from a caller inside the daemon. It
// returns when the request is durable as a pending, a claim or a record. If the same
// request is already being submitted, Submit waits for that one.
//
// Its errors are listed at approval.ErrBusy. If ctx ends first, the error wraps
// submit.ErrPaused: the request may have been accepted. Submitting it again under
// the same key finds out.
func (g *Gate) Submit(ctx context.Context, k approval.Key, request []byte, from submit.Origin) (t submit.Result, err error) {
	ws, known := g.settings().Workspace(k.Workspace)
	switch limit := ws.Limits.WithDefaults().RequestSize; {
	case !approval.ValidID(k.ID):
		return t, fmt.Errorf("submit %s: invalid request ID", k)
	case !known:
		return t, fmt.Errorf("%w: workspace '%s' is not configured", submit.ErrWorkspaceRefused, k.Workspace)
	case len(request) > limit:
		return t, fmt.Errorf("%w: the limit is %d bytes", store.ErrRefused, limit)
	}
	o, err := g.submissions.join(k, request, from)
	if err != nil {
		return t, err
	}
	if g.Inline {
		_, _ = g.Step(ctx, k) // the submission has the error
		return g.submissions.leave(o)
	}
	g.Wake(k)
	select {
	case <-o.done:
	case <-ctx.Done():
	}
	t, err = g.submissions.leave(o)
	if errors.Is(err, submit.ErrPaused) {
		g.Wake(k) // to forget its first-seen time
	}
	return t, err
}

// join adds a caller to the submission of a key, or creates one.
func (x *submissions) join(k approval.Key, q []byte, from submit.Origin) (*submission, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, fmt.Errorf("%w: the gate is stopping", submit.ErrDegraded)
	}
	if o := x.byKey[k]; o != nil {
		if !bytes.Equal(o.q, q) || o.from != from {
			return nil, submit.ErrIDTaken
		}
		o.waiting++
		return o, nil
	}
	o := &submission{key: k, q: q, from: from, done: make(chan struct{}), waiting: 1}
	if x.byKey == nil {
		x.byKey = map[approval.Key]*submission{}
	}
	x.byKey[k] = o
	return o, nil
}

// leave returns the result of a submission. If there is none and no caller is left,
// the submission is removed.
func (x *submissions) leave(o *submission) (t submit.Result, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o.waiting--
	if o.resolved {
		return o.result, o.err
	}
	if o.waiting == 0 {
		delete(x.byKey, o.key)
	}
	return t, submit.ErrPaused
}

// at returns the submission of a key, nil if there is none.
func (x *submissions) at(k approval.Key) *submission {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byKey[k]
}

// resolve sets the result of a submission; the first result counts. o may be nil.
func (x *submissions) resolve(o *submission, t submit.Result, err error) {
	if o == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if o.resolved {
		return
	}
	o.result, o.err, o.resolved = t, err, true
	close(o.done)
	if x.byKey[o.key] == o {
		delete(x.byKey, o.key)
	}
}

// accept resolves a submission that is durable. The result is empty if no person is asked.
func (g *Gate) accept(o *submission, r submit.Result) {
	if o == nil {
		return
	}
	g.seen.remove(o.key) // it may have waited for room
	if g.Accepted != nil {
		g.Accepted(o.key)
	}
	g.submissions.resolve(o, r, nil)
}

// reject resolves a submission with an error.
func (g *Gate) reject(o *submission, why error) {
	g.submissions.resolve(o, submit.Result{}, why)
}

func (g *Gate) rejectDegraded(o *submission) {
	if o == nil {
		return
	}
	p, _ := g.Degraded()
	g.reject(o, fmt.Errorf("%w: %s", submit.ErrDegraded, p.Reason))
}

// rejectAll rejects what is left when all workers have stopped.
func (g *Gate) rejectAll() {
	g.submissions.mu.Lock()
	g.submissions.closed = true
	remaining := slices.Collect(maps.Values(g.submissions.byKey))
	g.submissions.mu.Unlock()
	for _, o := range remaining {
		g.reject(o, fmt.Errorf("%w: the gate is stopping", submit.ErrDegraded))
	}
}

// loadSubmission uses the submission as the request, if no document has the key.
func (g *Gate) loadSubmission(s *state) bool {
	if s.Record || s.Claim || s.Pending != move.Absent {
		return false
	}
	o := g.submissions.at(s.key)
	if o == nil {
		return false
	}
	s.useSubmission(o)
	return true
}

// loadFreshSubmission skips reading, once, if the id was just generated and the index
// does not know its first digits: there can be no documents.
func (g *Gate) loadFreshSubmission(s *state) bool {
	if g.index.isKnown(s.key) {
		return false
	}
	x := &g.submissions
	x.mu.Lock()
	o := x.byKey[s.key]
	fresh := o != nil && o.from.Fresh && !o.loadedFresh
	if fresh {
		o.loadedFresh = true
	}
	x.mu.Unlock()
	if fresh {
		s.useSubmission(o)
	}
	return fresh
}

func (s *state) useSubmission(o *submission) {
	s.submission, s.q, s.Request = o, o.q, move.Valid
	s.request, s.parseErr = approval.ParseRequest(o.q, s.key.ID)
}

// origin is where the request came from.
func (s *state) origin() submit.Origin {
	if s.submission == nil {
		return submit.Origin{}
	}
	return s.submission.from
}

// deliverResult resolves a submission whose key is in use: the same request from the
// same client is a repetition, any other gets ErrIDTaken.
func (g *Gate) deliverResult(ctx context.Context, s *state) error {
	o := g.submissions.at(s.key)
	if o == nil || o == s.submission {
		return nil
	}
	p, client, sha := s.pending, "", ""
	switch {
	case s.Record:
		p, client, sha = g.embeddedPending(s.key, s.record.Pending), s.record.ClientID, s.record.RequestSHA256
	case s.Claim:
		c, err := g.readClaim(ctx, s)
		if err != nil {
			return err
		}
		p, client, sha = g.embeddedPending(s.key, c.Pending), c.ClientID, c.RequestSHA256
	case s.Pending != move.Valid:
		return nil // the existing document is handled first
	}
	// Without a pending there is no other channel to compare.
	here, askOn := submit.Origin{ClientID: client}, o.from.AskOn
	if p != nil {
		here.ClientID, sha, askOn = p.ClientID, p.RequestSHA256, p.AskOn
	}
	if sha != approval.Digest(o.q) || here.Client(s.key.Workspace) != o.from.Client(s.key.Workspace) || askOn != o.from.AskOn {
		g.reject(o, submit.ErrIDTaken)
	} else {
		g.submissions.resolve(o, submit.Result{Repeated: true}, nil)
	}
	return nil
}

// embeddedPending opens the pending in a claim or record; nil if it holds none.
func (g *Gate) embeddedPending(k approval.Key, raw approval.Raw) *approval.Pending {
	p, _ := approval.OpenPending(g.Seal, k, raw)
	return p
}

// readClaim returns the claim of a key, also while it runs.
func (g *Gate) readClaim(ctx context.Context, s *state) (*approval.Claim, error) {
	if s.claim != nil {
		return s.claim, nil
	}
	b, err := g.Store.Read(ctx, approval.DocClaim, s.key)
	if err != nil {
		return nil, fmt.Errorf("read claim: %w", err)
	}
	return approval.OpenClaim(g.Seal, s.key, b)
}

// Cancel cancels a request for the client that submitted it, with its reason or "". It competes for the slot
// like a person's decision, and returns when that is durable. A refusal is an
// *decide.Refusal. For any other client the request does not exist.
func (g *Gate) Cancel(ctx context.Context, k approval.Key, from submit.Origin, reason string) (*approval.Decision, error) {
	d := &Decider{
		Store: g.Store, Seal: g.Seal, Now: g.Now, Decided: g.Decided, isCancel: true,
		May: func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
			return by.Name, p == nil || p.ClientID == from.Client(ws)
		},
		ClearSlot: func(ctx context.Context, k approval.Key) error {
			g.Wake(k)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(minTick):
				return nil
			}
		},
	}
	return d.Decide(ctx, decide.Input{
		Key: k, Verdict: approval.Cancelled, Feedback: approval.CancelReason(reason), Via: "rest",
		By: approval.Person{Channel: "client", ID: from.Client(k.Workspace), Name: "agent"},
	})
}
