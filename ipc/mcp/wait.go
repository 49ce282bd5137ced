package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/wholefile"
)

// Gate is what a server asks: client.Files, *client.REST, or a Local.
type Gate interface {
	client.Client
	// CancelBecause cancels a pending request, and returns how it has ended.
	CancelBecause(ctx context.Context, s client.Submitted, reason string) (approval.Status, error)
	// Look says what is known of a request, without waiting.
	Look(ctx context.Context, s client.Submitted) (client.View, error)
}

// Waiter asks the gate for one client, and waits in the ways that the client knows.
type Waiter struct {
	Gate Gate
	Book *Book
	Hold time.Duration    // how long a call is held; 0: DefaultHold
	Now  func() time.Time // nil: time.Now
}

// DefaultHold is shorter than the time-out of most clients, a minute.
const DefaultHold = 50 * time.Second

const (
	prompt    = time.Second     // in which policy answers
	maxRounds = 2               // without a question: after the third the SDK of Go gives up
	freshEnd  = 24 * time.Hour  // how long the end of a request waits for a caller
	tick      = 5 * time.Second // between two messages about the progress
)

// Call is a call that has to be approved.
type Call struct {
	// Action is what the call does, by which it is recognized when it comes again. It does not depend on the order of
	// members and on white space.
	Action  approval.Raw
	Request approval.Request // without an id
	Sole    bool             // the caller's agent executes it: its approval is for one caller
	Run     bool             // the caller executes it: see Answer.Run. One that policy allows joins no other
	Rounds  bool             // the client speaks 2026-07-28
	Tasks   bool             // it declares the extension for tasks
	State   string           // the requestState that it brings back; "": none
	// Waits is called once if the request waits for a person, before the call is held. If it returns true, the call is not
	// held, and the answer has a State. nil: nothing is done.
	Waits func(ctx context.Context, id string) bool
	// Progress tells the client how it stands; nil: it does not want to know.
	Progress func(ctx context.Context, seconds float64, text string)
}

// Answer is how far a call has come.
type Answer struct {
	ID    string             // of the request
	Tool  string             // that it asks for; "": none
	Ended *approval.Response // nil: it waits for a person
	State string             // requestState for another round; "": the client is not to come back with one
	Task  string             // handle; "": none
	Text  string             // why there is no end yet

	Offered bool // Call.Waits has returned true
	program bool // it asks for a program

	// Of an approved Call.Run. The caller executes it, once, and says with Finish how that ended.
	Run    bool
	Result approval.Raw // what another caller has given to Finish; empty: none
	Lost   bool         // another caller has begun to execute it, and has not come to an end

	name    string
	book    *Book
	running *os.File
}

// Finish keeps the result of what the caller has executed, for a caller that makes the same call because this one did not
// get it.
func (a *Answer) Finish(result approval.Raw) error {
	if a.running == nil {
		return nil // policy has allowed it: who makes it again is allowed again, or not
	}
	defer a.running.Close()
	return wholefile.Put((&asked{book: a.book, name: a.name}).mark(markResult), result)
}

// NotBegun gives an approval back that was not used after all, and whose Finish has failed.
func (a *Answer) NotBegun() error {
	if a.running == nil {
		return nil
	}
	return os.Remove((&asked{book: a.book, name: a.name}).mark(markUsed))
}

// Sending says that the caller is about to get the end. Until Received or Lost the same call of a caller in this process
// waits: it comes after the result if the caller has it.
func (a *Answer) Sending() { a.book.leave(a.name) }

// Received says that the caller has got the end: the same call is a new one from here on.
func (a *Answer) Received() error {
	defer a.book.arrive(a.name)
	return (&asked{book: a.book, name: a.name}).done()
}

// NotReceived says that the caller may not have got the end.
func (a *Answer) NotReceived() { a.book.arrive(a.name) }

func (w *Waiter) now() time.Time {
	if w.Now == nil {
		return time.Now()
	}
	return w.Now()
}

// digest names a call.
func digest(action approval.Raw) (string, error) {
	v := action.Clone()
	if err := v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return "", fmt.Errorf("the arguments cannot be read: %w", err)
	}
	return approval.Digest(v), nil
}

// Do asks about a call, or joins the one that was asked, and waits for a while.
func (w *Waiter) Do(ctx context.Context, c Call) (*Answer, error) {
	call, rounds, err := w.begin(c)
	if err != nil {
		return nil, err
	}
	for {
		answer, err := w.attempt(ctx, c, call, rounds)
		if !errors.Is(err, errGone) {
			return answer, err
		}
	}
}

// attempt asks about a call and waits. The error wraps errGone if it has to be tried again.
func (w *Waiter) attempt(ctx context.Context, c Call, call string, rounds int) (*Answer, error) {
	a, fresh, err := w.ask(ctx, c, call)
	if err != nil {
		return nil, err
	}
	defer a.close()
	answer, err := w.wait(ctx, c, a, call, rounds)
	if err == nil && c.Run && answer.Ended != nil {
		err = w.run(ctx, a, fresh, answer)
	}
	switch {
	case errors.Is(err, errGone):
		return nil, cmp.Or(a.done(), err)
	case err != nil && ctx.Err() != nil && answer == nil:
		w.leave(ctx, a)
	}
	return answer, err
}

// begin names a call, and takes up its state if it has one.
func (w *Waiter) begin(c Call) (call string, rounds int, err error) {
	if call, err = digest(c.Action); err == nil && c.State != "" {
		_, rounds, err = w.takeUp(c.State, call)
	}
	return call, rounds, err
}

// TakeUp checks the state of a call, which is good once, and returns the id of its request.
func (w *Waiter) TakeUp(c Call) (id string, err error) {
	call, err := digest(c.Action)
	if err == nil {
		id, _, err = w.takeUp(c.State, call)
	}
	return id, err
}

// takeUp returns, too, how many rounds there were.
func (w *Waiter) takeUp(state, call string) (id string, rounds int, err error) {
	r, err := w.Book.unseal(state, call, w.now())
	if err != nil {
		return "", 0, err
	}
	a, err := w.Book.find(r.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, errState
	}
	if err != nil {
		return "", 0, err
	}
	defer a.close()
	if a.is(markDone) {
		return "", 0, errState
	}
	err = a.once(markRound+"-"+r.Nonce, nil)
	if errors.Is(err, fs.ErrExist) {
		return "", 0, errState
	}
	return r.ID, r.Number, err
}

// ask finds the request of a call, or makes one.
func (w *Waiter) ask(ctx context.Context, c Call, call string) (a *asked, fresh bool, err error) {
	request, err := c.Request.Encode()
	if err != nil {
		return nil, false, err
	}
	a, fresh, err = w.join(ctx, call, request, c.Sole)
	if err != nil {
		return nil, false, err
	}
	if err := w.submit(ctx, c, a, fresh); err != nil {
		if errors.Is(err, client.ErrInvalid) || errors.Is(err, client.ErrKey) {
			err = errors.Join(err, a.done()) // it will not be accepted later
		}
		a.close()
		return nil, false, err
	}
	return a, fresh, nil
}

// join is Book.join for a call that comes after the results that are on the way to callers.
func (w *Waiter) join(ctx context.Context, call string, request approval.Raw, sole bool) (a *asked, fresh bool, err error) {
	for {
		a, fresh, err := w.Book.join(call, request, sole, w.now())
		if err != nil {
			return nil, false, fmt.Errorf("the folder for what is asked: %w", err)
		}
		sent := w.Book.onTheWay(a.name)
		if sent == nil && !a.is(markDone) {
			return a, fresh, nil
		}
		a.close()
		if sent == nil {
			continue // it has arrived since
		}
		select {
		case <-sent:
		case <-time.After(maxSending): // the caller does not take it
			w.Book.arrive(a.name)
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// maxSending is how long a caller may take for a result before the same call does not wait for that.
const maxSending = 2 * time.Second

// submit submits the request of a call, unless that was done.
func (w *Waiter) submit(ctx context.Context, c Call, a *asked, fresh bool) error {
	if a.readSent() {
		return nil
	}
	if c.Run && !fresh {
		if known, err := a.learn(ctx); known || err != nil {
			return err
		}
	}
	var r approval.Request
	if err := codec.Decode(a.Request, &r); err != nil {
		return err
	}
	if r.RequestID = a.Key; r.Continues != "" {
		r.RequestID = approval.ContinuationID(r.Continues)
	}
	sent, err := w.Gate.Ask(ctx, r)
	switch {
	case errors.Is(err, client.ErrNoFolder):
		return fmt.Errorf("the gate cannot be asked: %w; the daemon makes it when it starts on the host", err)
	case err != nil:
		return fmt.Errorf("the gate cannot be asked: %w", err)
	}
	a.sent = sent
	if c.Run {
		return nil // see wait
	}
	return a.keep()
}

// learn waits for what another caller hears of the call: that a person is asked, or that policy has allowed it, which is
// errGone. Many callers would else submit each other's requests again and again. If that caller has ended, neither comes.
func (a *asked) learn(ctx context.Context) (known bool, err error) {
	ticker := time.NewTicker(learnPoll)
	defer ticker.Stop()
	for end := time.Now().Add(prompt); time.Now().Before(end); {
		switch {
		case a.is(markDone):
			return false, errGone
		case a.readSent():
			return true, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

const learnPoll = 10 * time.Millisecond

// errGone says that the end of a request is of no use to a new caller.
var errGone = errors.New("the request has ended long ago")

// wait waits for the end of a request in the best way that the client knows.
func (w *Waiter) wait(ctx context.Context, c Call, a *asked, call string, rounds int) (*Answer, error) {
	answer := a.answer()
	var resp *approval.Response
	err, hold := errHeld, max(cmp.Or(w.Hold, DefaultHold), time.Second)
	if !a.kept { // what policy allows needs no more files
		hold -= prompt
		if resp, err = w.await(ctx, Call{}, a, prompt); err != nil {
			if failed := a.keep(); failed != nil {
				return nil, failed
			}
		}
	}
	first := errors.Is(err, errHeld) && (c.Tasks || c.Waits != nil && c.State == "")
	if first {
		resp, err = w.soon(ctx, a)
	}
	if first && !c.Tasks && errors.Is(err, errHeld) {
		if answer.Offered = c.Waits(ctx, a.sent.ID); answer.Offered {
			answer.State, err = w.Book.seal(round{ID: a.sent.ID, Call: call, Nonce: newNonce(), Expires: w.now().Add(keepRound)})
			return answer, err
		}
		first = false
	}
	if !first && errors.Is(err, errHeld) {
		resp, err = w.await(ctx, c, a, hold)
	}
	switch {
	case err == nil && w.now().Sub(resp.RespondedAt) > freshEnd:
		return nil, errGone
	case err == nil && c.Sole:
		// Before it is answered: what happens in between, another caller does not get it.
		if err := a.once(markUsed, nil); errors.Is(err, fs.ErrExist) {
			return nil, errGone
		} else if err != nil {
			return nil, err
		}
		answer.Ended = resp
		return answer, a.done()
	case err == nil:
		answer.Ended = resp
		return answer, nil
	case errors.Is(err, client.ErrIDConflict) && resp != nil && resp.Status == approval.StatusMalformed: // such as one that is too large
		return nil, errors.Join(&client.NotApproved{Response: resp}, a.done())
	case errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrIDConflict):
		return nil, errors.Join(err, a.done())
	case !errors.Is(err, errHeld):
		return nil, err
	}
	answer.Text = w.status(ctx, a)
	switch {
	case c.Tasks:
		answer.Task = w.Book.handle(a.sent.ID)
	case c.Rounds && rounds < maxRounds:
		answer.State, err = w.Book.seal(round{ID: a.sent.ID, Call: call, Number: rounds + 1, Nonce: newNonce(), Expires: w.now().Add(keepRound)})
		if err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// errHeld says that a request has not ended in the time for which a call is held.
var errHeld = errors.New("no end yet")

// run finds out who executes an approved call.
func (w *Waiter) run(ctx context.Context, a *asked, fresh bool, answer *Answer) error {
	switch {
	case client.Approved(answer.Ended) != nil:
		return nil
	case answer.Ended.Decision.Auto && !fresh:
		return errGone // it is the one that made it, or was
	case answer.Ended.Decision.Auto:
		answer.Run = true
		return a.done()
	}
	f, err := os.OpenFile(a.mark(markRun), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return errGone // the folder was removed: without it, a call is asked again
	}
	if err != nil {
		return err
	}
	for {
		if err = wholefile.TryLock(f, true); !errors.Is(err, wholefile.ErrLocked) { // else another caller executes it now
			break
		}
		select {
		case <-time.After(runPoll):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), f.Close())
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if answer.Result, err = os.ReadFile(a.mark(markResult)); err == nil {
		return f.Close()
	}
	switch err := a.once(markUsed, nil); {
	case errors.Is(err, fs.ErrExist):
		answer.Lost = true
		return f.Close()
	case err != nil:
		return errors.Join(err, f.Close())
	}
	answer.Run, answer.running = true, f
	return nil
}

// runPoll is how often a caller looks whether another one has executed its call.
const runPoll = 200 * time.Millisecond

// soon is the end of a request that waits for no person.
func (w *Waiter) soon(ctx context.Context, a *asked) (*approval.Response, error) {
	v, err := w.Gate.Look(ctx, a.sent)
	switch {
	case err == nil && v.Response != nil:
		return v.Response, nil
	case err == nil && !v.Until.IsZero():
		return nil, errHeld
	}
	return w.await(ctx, Call{}, a, prompt) // policy may still be about to answer
}

// await is the end of a request. The client hears now and then that it is still waited for.
func (w *Waiter) await(ctx context.Context, c Call, a *asked, hold time.Duration) (*approval.Response, error) {
	holding, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	if c.Progress != nil {
		told := make(chan struct{})
		defer func() { cancel(); <-told }() // nothing is told after the answer
		go func() {
			defer close(told)
			began, ticker := time.Now(), time.NewTicker(tick)
			defer ticker.Stop()
			for text := ""; ; {
				select {
				case <-holding.Done():
					return
				case <-ticker.C:
				}
				if text == "" {
					text = w.status(holding, a)
				}
				if holding.Err() == nil {
					c.Progress(holding, time.Since(began).Seconds(), text)
				}
			}
		}()
	}
	resp, err := w.Gate.Await(holding, a.sent)
	if err != nil && holding.Err() != nil && ctx.Err() == nil {
		return nil, errHeld
	}
	return resp, err
}

// status says whom a request waits for.
func (w *Waiter) status(ctx context.Context, a *asked) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*prompt)
	defer cancel()
	v, err := w.Gate.Look(ctx, a.sent)
	if err != nil {
		return statusText(a.sent.ID, v, w.now()) + " (the gate does not answer now)"
	}
	return statusText(a.sent.ID, v, w.now())
}

// leave cancels the request of a caller that has cancelled its call, unless another one waits for it. The end of a
// connection cancels nothing: the caller may come back.
func (w *Waiter) leave(ctx context.Context, a *asked) {
	if !errors.Is(context.Cause(ctx), ErrCancelled) || !a.alone() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*prompt)
	defer cancel()
	if st, _ := w.Gate.CancelBecause(ctx, a.sent, ""); st == approval.StatusCancelled {
		_ = a.done() // else it was too late, and the same call gets how it ended
	}
}

// ErrCancelled is the cause of the end of a context whose caller has cancelled its call.
var ErrCancelled = errors.New("the caller has cancelled its call")
