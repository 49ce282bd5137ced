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
)

// # Offers
//
// A door inside the daemon has no file to leave a request in. It offers the
// bytes, and the key is stepped as for every other request: intake finds the
// offer where Q would lie. The offer is accepted once P, R or C is durable, and
// not before: until then it is only in memory, and a crash takes it away as if
// it had never been made. Whoever gives a request the same id again gets the
// same request.

// offer is a request that waits in memory to be taken in. Its fields are
// guarded by the offers' lock, but for those that never change.
type submission struct {
	key  approval.Key
	q    []byte
	from approval.Origin
	done chan struct{} // closed once it is answered

	waiting     int  // callers of Submit
	loadedFresh bool // it was looked at without reading what lies beside it
	result      approval.SubmitResult
	err         error
	resolved    bool
}

// offers are those that nobody has answered yet.
type submissions struct {
	mu     sync.Mutex
	byKey  map[approval.Key]*submission
	closed bool // the gate has stopped
}

// Submit takes a request in that no file holds: the gate's door for others
// inside the daemon. It returns once the request is durable as a pending, a claim
// or a record, and says what it has become. What is in flight under the same key is
// waited for, not doubled.
//
// Its errors are those of approval.ErrBusy's list. When ctx ends first, the error
// wraps approval.ErrHeld: then it is not known whether the request was accepted,
// and the same request under the same key finds out.
func (g *Gate) Submit(ctx context.Context, k approval.Key, request []byte, from approval.Origin) (t approval.SubmitResult, err error) {
	ws, known := g.Settings.Workspace(k.Workspace)
	switch limit := ws.Limits.WithDefaults().RequestSize; {
	case !approval.ValidID(k.ID):
		return t, fmt.Errorf("submit %s: not a request id", k)
	case !known:
		return t, fmt.Errorf("%w: workspace '%s' is not configured", approval.ErrWorkspaceRefused, k.Workspace)
	case len(request) > limit:
		return t, fmt.Errorf("%w: a request may have %d bytes here", approval.ErrRefused, limit)
	}
	o, err := g.submissions.join(k, request, from)
	if err != nil {
		return t, err
	}
	if g.Inline {
		_, _ = g.Step(k) // what went wrong before it was accepted, the offer tells
		return g.submissions.leave(o)
	}
	g.Wake(k)
	select {
	case <-o.done:
	case <-ctx.Done():
	}
	t, err = g.submissions.leave(o)
	if errors.Is(err, approval.ErrPaused) {
		g.Wake(k) // to forget that it was ever seen
	}
	return t, err
}

// join adds a caller to the offer of a key, and makes it where there is none.
func (x *submissions) join(k approval.Key, q []byte, from approval.Origin) (*submission, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, fmt.Errorf("%w: it is about to stop", approval.ErrDegraded)
	}
	if o := x.byKey[k]; o != nil {
		if !bytes.Equal(o.q, q) || o.from != from {
			return nil, approval.ErrIDTaken
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

// leave gives the answer to an offer; the last caller who waited in vain takes
// the offer away.
func (x *submissions) leave(o *submission) (t approval.SubmitResult, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o.waiting--
	if o.resolved {
		return o.result, o.err
	}
	if o.waiting == 0 {
		delete(x.byKey, o.key)
	}
	return t, approval.ErrPaused
}

// at is the offer of a key that nobody has answered, if there is one.
func (x *submissions) at(k approval.Key) *submission {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byKey[k]
}

// answer closes an offer; the first answer counts. It takes nil.
func (x *submissions) resolve(o *submission, t approval.SubmitResult, err error) {
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

// accept says that what was offered is durable; p is what somebody is asked, nil
// where nobody is.
func (g *Gate) accept(o *submission, p *approval.Pending) {
	if o != nil && g.Accepted != nil {
		g.Accepted(o.key)
	}
	g.submissions.resolve(o, approval.SubmitResult{Pending: p}, nil)
}

// reject says that it is not, and why.
func (g *Gate) reject(o *submission, why error) {
	g.submissions.resolve(o, approval.SubmitResult{}, why)
}

func (g *Gate) rejectDegraded(o *submission) {
	if o == nil {
		return
	}
	p, _ := g.Degraded()
	g.reject(o, fmt.Errorf("%w: %s", approval.ErrDegraded, p.What))
}

// dismiss turns everybody away once no worker is left.
func (g *Gate) rejectAll() {
	g.submissions.mu.Lock()
	g.submissions.closed = true
	remaining := slices.Collect(maps.Values(g.submissions.byKey))
	g.submissions.mu.Unlock()
	for _, o := range remaining {
		g.reject(o, fmt.Errorf("%w: it is about to stop", approval.ErrDegraded))
	}
}

// loadSubmission lets an offer be the request, where nothing else has the key.
func (g *Gate) loadSubmission(s *state) bool {
	if s.Record || s.Claim || s.Pending != approval.Absent {
		return false
	}
	o := g.submissions.at(s.key)
	if o == nil {
		return false
	}
	s.useSubmission(o)
	return true
}

// loadFreshSubmission lets an offer be all there is, once: under an id that was drawn a
// moment ago, and of which the index knows not even the first digits, there is
// nothing to be read.
func (g *Gate) loadFreshSubmission(s *state) bool {
	if g.index.hasShortID(s.key) {
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
	s.submission, s.q, s.Request = o, o.q, approval.Valid
	s.request, s.parseErr = approval.ParseRequest(o.q, s.key.ID)
}

// origin is where the request of this look came from.
func (s *state) origin() approval.Origin {
	if s.submission == nil {
		return approval.Origin{}
	}
	return s.submission.from
}

// meet answers an offer whose key is in use already: whoever offers the same
// once more is told so, anybody else that the id is taken.
func (g *Gate) deliverResult(s *state) error {
	o := g.submissions.at(s.key)
	if o == nil || o == s.submission {
		return nil
	}
	p, client, sha := s.pending, "", ""
	switch {
	case s.Record:
		p, client, sha = g.embeddedPending(s.key, s.record.Pending), s.record.ClientID, s.record.RequestSHA256
	case s.Claim:
		c, err := g.readClaim(s)
		if err != nil {
			return err
		}
		p, client, sha = g.embeddedPending(s.key, c.Pending), c.ClientID, c.RequestSHA256
	case s.Pending != approval.Valid:
		return nil // what lies there is looked at first
	}
	// Where nobody was asked, nobody was asked on another channel.
	here, askOn := approval.Origin{ClientID: client}, o.from.AskOn
	if p != nil {
		here.ClientID, sha, askOn = p.ClientID, p.RequestSHA256, p.AskOn
	}
	if sha != approval.Digest(o.q) || here.Client(s.key.Workspace) != o.from.Client(s.key.Workspace) || askOn != o.from.AskOn {
		g.reject(o, approval.ErrIDTaken)
	} else {
		g.submissions.resolve(o, approval.SubmitResult{Repeated: true}, nil)
	}
	return nil
}

// asked is the pending that a claim or record holds, nil where nobody was asked.
func (g *Gate) embeddedPending(k approval.Key, raw approval.Raw) *approval.Pending {
	p, err := openPending(g.Seal, k, raw)
	if err != nil {
		return nil
	}
	return p
}

// readClaim is the claim of a key, also while it runs.
func (g *Gate) readClaim(s *state) (*approval.Claim, error) {
	if s.claim != nil {
		return s.claim, nil
	}
	b, err := g.Store.Read(approval.DocClaim, s.key)
	if err != nil {
		return nil, fmt.Errorf("read receipt: %w", err)
	}
	return openClaim(g.Seal, s.key, b)
}

// removeRequest takes the request's file away, where it came in one.
func (g *Gate) removeRequest(k approval.Key, o *submission) error {
	if o != nil {
		return nil
	}
	return g.Store.Remove(approval.DocRequest, k)
}

// Cancel is an agent's cancel for a request that it submitted: it takes the
// slot as a person's answer does, so that the first of them counts. It returns
// when that is durable. A refusal is an *approval.Refusal; to everybody but the
// client that asked, the request does not exist.
func (g *Gate) Cancel(ctx context.Context, k approval.Key, from approval.Origin) (*approval.Decision, error) {
	d := &Decider{
		Store: g.Store, Seal: g.Seal, Now: g.Now, Daemon: true, Decided: g.Wake, isCancel: true,
		May: func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
			return by.Name, p == nil || p.ClientID == from.Client(ws)
		},
		Free: func(ctx context.Context, k approval.Key) error {
			g.Wake(k)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(minTick):
				return nil
			}
		},
	}
	return d.Decide(ctx, approval.DecisionInput{
		Key: k, Verdict: approval.Cancelled, Via: "rest",
		By: approval.Person{Channel: "client", ID: from.Client(k.Workspace), Name: "agent"},
	})
}
