package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc/client"
)

// gate keeps requests as a gate does: the same id with the same request is one request, with another one a conflict.
type gate struct {
	mu        sync.Mutex
	asked     map[string]string // by id: the request
	ends      map[string]*approval.Response
	changed   chan struct{}
	asks      chan string // the ids of new requests
	submitted int
	cancelled []string
}

func newGate() *gate {
	return &gate{asked: map[string]string{}, ends: map[string]*approval.Response{}, changed: make(chan struct{}), asks: make(chan string, 1000)}
}

func (g *gate) Ask(_ context.Context, r approval.Request) (client.Submitted, error) {
	b, err := r.Encode()
	if err != nil {
		return client.Submitted{}, err
	}
	if _, err := approval.ParseRequest(b, r.RequestID); err != nil {
		return client.Submitted{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.submitted++
	if before, ok := g.asked[r.RequestID]; ok && before != string(b) {
		return client.Submitted{}, client.ErrIDConflict
	}
	g.asked[r.RequestID] = string(b)
	select {
	case g.asks <- r.RequestID:
	default:
	}
	return client.Submitted{ID: r.RequestID, Tool: r.ToolName}, nil
}

func (g *gate) Await(ctx context.Context, s client.Submitted) (*approval.Response, error) {
	for {
		g.mu.Lock()
		r, changed := g.ends[s.ID], g.changed
		g.mu.Unlock()
		if r != nil {
			return r, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (g *gate) Look(_ context.Context, s client.Submitted) (client.View, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.asked[s.ID]; !ok {
		return client.View{}, client.ErrNotFound
	}
	return client.View{Response: g.ends[s.ID], Until: time.Now().Add(time.Hour), Approvers: []string{"ann"}}, nil
}

func (g *gate) Cancel(_ context.Context, s client.Submitted) error {
	g.mu.Lock()
	g.cancelled = append(g.cancelled, s.ID)
	g.mu.Unlock()
	g.end(s.ID, approval.StatusCancelled)
	return nil
}

func (g *gate) CancelBecause(ctx context.Context, s client.Submitted, _ string) (approval.Status, error) {
	return approval.StatusCancelled, g.Cancel(ctx, s)
}

func (g *gate) end(id string, st approval.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	by := "ann"
	g.ends[id] = &approval.Response{RequestID: id, Status: st, Decision: approval.ResponseDecision{By: &by}, RespondedAt: time.Now()}
	close(g.changed)
	g.changed = make(chan struct{})
}

// requests is how many different requests there were.
func (g *gate) requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.asked)
}

func newWaiter(t *testing.T, g *gate) *Waiter {
	t.Helper()
	b, err := OpenBook(t.TempDir())
	require.NoError(t, err)
	return &Waiter{Gate: g, Book: b}
}

// restarted is the waiter of another process.
func (w *Waiter) restarted(t *testing.T) *Waiter {
	t.Helper()
	b, err := OpenBook(w.Book.dir)
	require.NoError(t, err)
	return &Waiter{Gate: w.Gate, Book: b, Hold: w.Hold}
}

func callOf(text string) Call {
	return Call{Action: approval.Raw(text), Request: approval.Request{ActionType: "write_file", RequestData: approval.Raw(`{"x":1}`)}}
}

// do makes a call that must not fail.
func (w *Waiter) do(t *testing.T, c Call) *Answer {
	t.Helper()
	a, err := w.Do(t.Context(), c)
	require.NoError(t, err)
	return a
}

// send makes a call, and sends its answer, or an error's text.
func (w *Waiter) send(t *testing.T, c Call, answers chan<- *Answer) {
	a, err := w.Do(t.Context(), c)
	if err != nil {
		a = &Answer{Text: err.Error()}
	}
	answers <- a
}

// A client of 2026-07-28 comes back twice, and then waits in its own way. The person is asked once.
func TestRounds(t *testing.T) {
	for _, run := range []bool{false, true} {
		t.Run(fmt.Sprint("run by the caller: ", run), func(t *testing.T) { testRounds(t, run) })
	}
}

func testRounds(t *testing.T, run bool) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["post",{"a":1,"b":12345678901234567890}]`)
		c.Rounds, c.Run = true, run
		began := time.Now()
		first := w.do(t, c)
		require.NotEmpty(t, first.State)
		require.Equal(t, DefaultHold, time.Since(began), "each round holds: a client that comes back at once does not spin")
		c.State = first.State
		c.Action = approval.Raw(`["post", {"b": 12345678901234567890, "a": 1}]`) // the order of members is not the call
		second := w.restarted(t).do(t, c)
		require.NotEmpty(t, second.State)
		require.NotEqual(t, first.State, second.State)
		c.State = second.State
		third := w.do(t, c)
		require.Empty(t, third.State, "the SDK of Go gives up after the third answer without a question")
		require.Nil(t, third.Ended)
		require.Contains(t, third.Text, "waiting for a person, request "+approval.ShortID(first.ID)+" (asked: ann; 1h0m0s left)")
		c.State = ""
		go func() { time.Sleep(time.Second); g.end(first.ID, approval.StatusApproved) }()
		last := w.restarted(t).do(t, c)
		require.Equal(t, approval.StatusApproved, last.Ended.Status)
		require.Equal(t, first.ID, last.ID)
		if run {
			require.True(t, last.Run)
			require.NoError(t, last.Finish(approval.Raw(`{}`)))
			require.False(t, w.do(t, c).Run)
		} else {
			require.Equal(t, last, w.do(t, c), "it is there until a caller has received it")
		}
		require.NoError(t, last.Received())
		require.Equal(t, 1, g.submitted)

		go func() { time.Sleep(time.Second); g.end("0", approval.StatusApproved) }()
		next := w.do(t, c)
		require.NotEqual(t, first.ID, next.ID, "a call after that is a new one")
		require.Equal(t, 2, g.requests())
	})
}

// What a client brings back is good for its call, once, and for an hour.
func TestRequestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["post",{"a":1}]`)
		c.Rounds = true
		state := w.do(t, c).State
		require.NotEmpty(t, state)
		refused := func(w *Waiter, c Call, state, why string) {
			t.Helper()
			c.State = state
			_, err := w.Do(t.Context(), c)
			require.ErrorIs(t, err, errState, why)
		}
		refused(w, callOf(`["post",{"a":2}]`), state, "another call")
		refused(newWaiter(t, g), c, state, "another client")
		refused(w, c, "x", "no state")
		refused(w, c, state[:9]+"\n"+state[9:], "another spelling")
		refused(w, c, w.Book.handle(g.ids()[0]), "a handle")

		rounds := 500
		if os.Getenv("PERMESSO_SOAK") != "" {
			rounds = 10_000
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		for range rounds {
			if bad := mutate(r, state); bad != state && bad != "" { // without a state it is the same call, made again
				refused(w, c, bad, bad)
			}
			handle := w.Book.handle(g.ids()[0])
			if bad := mutate(r, handle); bad != handle {
				_, err := w.Task(bad)
				require.ErrorIs(t, err, fs.ErrNotExist, bad)
			}
		}
		c.State = state
		second := w.do(t, c)
		refused(w, c, state, "it was taken up")
		refused(w.restarted(t), c, state, "also for another process")
		time.Sleep(keepRound + time.Second)
		refused(w, c, second.State, "too late")
		require.Equal(t, 1, g.requests())

		c = callOf(`["post",{"a":3}]`)
		c.Rounds = true
		state = w.do(t, c).State
		g.end(w.do(t, c).ID, approval.StatusApproved)
		require.NoError(t, w.do(t, c).Received())
		refused(w, c, state, "another call has got the result")
		require.Equal(t, 2, g.requests())
	})
}

// ids are those of the requests.
func (g *gate) ids() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.asked {
		ids = append(ids, id)
	}
	return ids
}

// mutate changes a text: a bit, a character, its length, or the order of its parts.
func mutate(r *rand.Rand, s string) string {
	b := []byte(s)
	i := r.IntN(len(b))
	switch r.IntN(6) {
	case 0:
		b[i] ^= 1 << r.IntN(8)
	case 1:
		b[i] = "ABCxyz019-_.=+/ \x00é"[r.IntN(18)]
	case 2:
		b = b[:i]
	case 3:
		b = append(b, b[i])
	case 4:
		b = append(b[i:], b[:i]...)
	case 5:
		j := r.IntN(len(b))
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

// A task is the request: its handle is good after a restart, for its client only.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["post",{}]`)
		c.Rounds, c.Tasks = true, true
		began := time.Now()
		a := w.do(t, c)
		require.NotEmpty(t, a.Task)
		require.Equal(t, 1, g.requests(), "the request is there before the handle is given out")
		require.Zero(t, time.Since(began), "at once")
		_, err := newWaiter(t, g).Task(a.Task)
		require.ErrorIs(t, err, fs.ErrNotExist, "another client")

		w = w.restarted(t)
		task, err := w.Task(a.Task)
		require.NoError(t, err)
		look, err := w.Look(t.Context(), task)
		require.NoError(t, err)
		require.Nil(t, look.Ended)
		require.Contains(t, look.Text, "asked: ann")
		g.end(a.ID, approval.StatusDenied)
		look, err = w.Look(t.Context(), task)
		require.NoError(t, err)
		require.Equal(t, approval.StatusDenied, look.Ended.Status)
		require.NoError(t, look.Received())
		look, err = w.restarted(t).Look(t.Context(), task)
		require.NoError(t, err)
		require.Equal(t, approval.StatusDenied, look.Ended.Status, "it can be asked for again")
	})
}

// A call that its caller cancels cancels the request, if no other one waits for it. The end of a connection does not.
func TestCancelledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["post",{}]`)
		call := func(w *Waiter) (end func(error)) {
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { _, err := w.Do(ctx, c); done <- err }()
			synctest.Wait()
			return func(why error) {
				cancel(why)
				require.Error(t, <-done)
			}
		}
		one, two := call(w), call(w.restarted(t))
		require.Equal(t, 1, g.requests(), "the second joins the first")
		one(ErrCancelled)
		require.Empty(t, g.cancelled, "another caller waits")
		two(context.Canceled)
		require.Empty(t, g.cancelled, "a lost connection")
		three := call(w)
		require.Equal(t, 1, g.requests())
		three(ErrCancelled)
		require.Len(t, g.cancelled, 1)
		call(w)(context.Canceled)
		require.Equal(t, 2, g.requests(), "what was cancelled is over")
	})
}

// An approval for which the caller executes the call itself is for one caller.
func TestSoleCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["permission_prompt","Bash",{}]`)
		c.Sole = true
		answers := make(chan *Answer, 2)
		for range 2 {
			go w.send(t, c, answers)
		}
		synctest.Wait()
		require.Equal(t, 2, g.requests(), "two calls at the same time are two requests")
		for _, id := range g.ids() {
			g.end(id, approval.StatusApproved)
		}
		one, two := <-answers, <-answers
		require.NotEqual(t, one.ID, two.ID)

		// The caller is killed while it waits, and comes back.
		ctx, kill := context.WithCancel(t.Context())
		go func() { _, _ = w.Do(ctx, c) }()
		synctest.Wait()
		require.Equal(t, 3, g.requests())
		kill()
		synctest.Wait()
		for _, id := range g.ids() {
			g.end(id, approval.StatusApproved)
		}
		a := w.restarted(t).do(t, c)
		require.NotNil(t, a.Ended)
		require.Equal(t, 3, g.requests(), "it joins the request that no one waits for any more")
		go func() { _, _ = w.Do(t.Context(), c) }()
		synctest.Wait()
		require.Equal(t, 4, g.requests(), "the approval was used")

		// A caller is killed just after its approval was used, before that is said.
		c = callOf(`["permission_prompt","Write",{}]`)
		c.Sole = true
		name, err := digest(c.Action)
		require.NoError(t, err)
		file := filepath.Join(w.Book.folder(name), name+".1")
		go func() { _, _ = w.Do(t.Context(), c) }()
		synctest.Wait()
		for _, id := range g.ids() {
			g.end(id, approval.StatusApproved)
		}
		synctest.Wait()
		require.NoError(t, os.Rename(file+markDone, file))
		w = w.restarted(t)
		go func() { _, _ = w.Do(t.Context(), c) }()
		synctest.Wait()
		require.Equal(t, 6, g.requests(), "it is not used twice")
	})
}

// The end of a request waits a day for its caller.
func TestOldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			after time.Duration
			same  bool
		}{{23 * time.Hour, true}, {25 * time.Hour, false}} {
			g := newGate()
			w := newWaiter(t, g)
			c := callOf(`["post",{}]`)
			id := w.do(t, c).ID
			g.end(id, approval.StatusApproved)
			time.Sleep(row.after)
			a := w.do(t, c)
			require.Equal(t, row.same, a.ID == id, row.after)
			require.Equal(t, row.same, a.Ended != nil)
		}
	})
}

// A client that gives up at once, and makes the same call again, costs the gate one request.
func TestImpatientClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := w.Do(ctx, callOf(`["post",{}]`))
			require.Error(t, err)
			cancel()
		}
		require.Equal(t, 1, g.submitted)
	})
}

// The folder of a client keeps nothing for ever, and what is torn in it is forgotten.
func TestBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["post",{}]`)
		a := w.do(t, c)
		g.end(a.ID, approval.StatusApproved)
		require.NoError(t, os.WriteFile(filepath.Join(w.Book.folder(a.name), a.name), []byte(`{"key":`), 0o600))
		a = w.do(t, c)
		require.Equal(t, 2, g.requests(), "it is asked again")
		g.end(a.ID, approval.StatusApproved)
		require.NoError(t, os.WriteFile(filepath.Join(w.Book.folder(a.name), a.name), []byte(`{}`), 0o600))
		require.NotEqual(t, a.ID, w.do(t, c).ID, "this, too")
		require.Equal(t, 3, g.requests())

		w = newWaiter(t, g)
		a = w.do(t, c)
		g.end(a.ID, approval.StatusApproved)
		require.NoError(t, w.do(t, c).Received())
		w.Book.prune(time.Now().Add(keepDone - time.Minute))
		_, err := w.find(a.ID)
		require.NoError(t, err, "its handle is good for a day")
		again := &asked{book: w.Book, name: a.name}
		require.ErrorIs(t, again.create(false), fs.ErrExist, "what is done is not asked under its name")
		require.False(t, again.is(""))

		a = w.do(t, c) // which waits long
		long := time.Now().Add(-3 * keepDone)
		require.NoError(t, os.Chtimes(filepath.Join(w.Book.folder(a.name), a.name), long, long))
		g.end(a.ID, approval.StatusApproved)
		require.NoError(t, w.do(t, c).Received())
		w.Book.prune(time.Now().Add(keepDone - time.Minute))
		_, err = w.find(a.ID)
		require.NoError(t, err, "a day from then on")
		w.Book.prune(time.Now().Add(keepDone + time.Minute))
		_, err = w.find(a.ID)
		require.ErrorIs(t, err, fs.ErrNotExist)
		for _, dir := range []string{"ids", "calls"} {
			left, err := os.ReadDir(w.Book.path(dir))
			require.NoError(t, err)
			require.Empty(t, left)
		}
		require.NoError(t, os.WriteFile(w.Book.path("secret"), []byte("short"), 0o600))
		_, err = OpenBook(w.Book.dir)
		require.ErrorContains(t, err, "damaged")
		require.Contains(t, hints.Of(err), "remove it")
		_, err = w.find("../calls")
		require.ErrorIs(t, err, fs.ErrNotExist)

		w = newWaiter(t, g)
		a = w.do(t, c)
		other := client.NewID()
		require.NoError(t, os.WriteFile(w.Book.path("ids", other), []byte(a.name), 0o600))
		_, err = w.find(other)
		require.ErrorIs(t, err, fs.ErrNotExist, "the call is another request's")

		call := strings.Repeat("ab", 32)
		for _, n := range []int{10, 2} {
			require.NoError(t, (&asked{book: w.Book, name: fmt.Sprint(call, ".", n)}).done())
			require.NoError(t, os.MkdirAll(w.Book.folder(call), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(w.Book.folder(call), fmt.Sprint(call, ".", n)), nil, 0o600))
		}
		times, last, err := w.Book.times(call)
		require.NoError(t, err)
		require.Equal(t, []int{2, 10}, times, "the oldest first")
		require.Equal(t, 10, last)
	})
}

// A client that waits hears what is known of whom it waits for.
func TestStatusText(t *testing.T) {
	now := time.Now()
	for want, v := range map[string]client.View{
		"waiting for a person, request 01234567":                                                                      {},
		"waiting for a person, request 01234567 (asked: ann, ben; 1m0s left)":                                         {Approvers: []string{"ann", "ben"}, Until: now.Add(time.Minute)},
		"waiting for a person, request 01234567 (no daemon has taken it yet: is permesso serve running on the host?)": {Untaken: true},
	} {
		require.Equal(t, want, statusText("0123456789abcdef", v, now))
	}
}

// A gate that refuses is not asked again for the same call; one that cannot be reached is.
func TestRefusals(t *testing.T) {
	g := newGate()
	w := newWaiter(t, g)
	broken := &refusing{gate: g, err: client.ErrUnreachable}
	w.Gate = broken
	_, err := w.Do(t.Context(), callOf(`["post",{}]`))
	require.ErrorContains(t, err, "the gate cannot be asked")
	broken.err = fmt.Errorf("%w: too large", client.ErrInvalid)
	_, err = w.Do(t.Context(), callOf(`["post",{}]`))
	require.ErrorContains(t, err, "too large")
	waiting, err := w.Pending(t.Context())
	require.NoError(t, err)
	require.Empty(t, waiting)
	_, err = w.Do(t.Context(), Call{Action: approval.Raw(`{`)})
	require.ErrorContains(t, err, "cannot be read")
}

type refusing struct {
	*gate
	err error
}

func (r *refusing) Ask(context.Context, approval.Request) (client.Submitted, error) {
	return client.Submitted{}, r.err
}

// The schemas of the tools are what their arguments are read by.
func TestSchemas(t *testing.T) {
	names := ""
	for _, tool := range tools() {
		require.Less(t, names, tool.name, "sorted")
		names = tool.name
		for _, text := range []string{tool.input, tool.output} {
			var schema map[string]any
			if text == "" && tool.name == "permission_prompt" {
				continue // its form is Claude Code's: one text block
			}
			require.NoError(t, json.Unmarshal([]byte(text), &schema), tool.name)
			require.Equal(t, "object", schema["type"])
		}
	}
}

// A call that its caller executes runs once, however many wait for it; who comes late gets the result.
func TestRunCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["proxy","s","t",{}]`)
		c.Run = true
		answers := make(chan *Answer, 2)
		wait := func(w *Waiter) { w.send(t, c, answers) }
		other := w.restarted(t)
		go wait(w)
		go wait(other)
		synctest.Wait()
		require.Equal(t, 1, g.requests())
		g.end(g.ids()[0], approval.StatusApproved)
		one := <-answers
		require.True(t, one.Run)
		require.Empty(t, answers, "the other one waits for the first")
		require.NoError(t, one.Finish(approval.Raw(`{"content":[]}`)))
		two := <-answers
		require.False(t, two.Run)
		reply, err := two.Reply()
		require.NoError(t, err)
		require.Equal(t, approval.Raw(`{"content":[]}`), reply)
		three := w.do(t, c)
		require.False(t, three.Run, "no caller has received it")
		require.NoError(t, three.Received())

		// The one that executes it is killed.
		go wait(w)
		synctest.Wait()
		require.Equal(t, 2, g.requests())
		for _, id := range g.ids() {
			g.end(id, approval.StatusApproved)
		}
		four := <-answers
		require.True(t, four.Run)
		require.NoError(t, four.running.Close())
		five := w.restarted(t).do(t, c)
		require.False(t, five.Run)
		require.True(t, five.Lost)
		reply, err = five.Reply()
		require.NoError(t, err)
		require.Contains(t, string(reply), "its end is not known, and it is not made again: check what it has done")
		require.Contains(t, string(reply), `"isError":true`)
		require.NoError(t, five.Received())

		// What policy allows joins no other.
		w.Gate = quick{g}
		six, seven := w.do(t, c), w.do(t, c)
		require.True(t, six.Run)
		require.True(t, seven.Run)
		require.NotEqual(t, six.ID, seven.ID)
		require.Equal(t, 4, g.requests())
	})
}

// Many callers make a call that policy allows: each submits one request, its own.
func TestAllowedCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		w.Gate = quick{g}
		c := callOf(`["proxy","s","t",{}]`)
		c.Run = true
		const callers = 60
		answers := make(chan *Answer, callers)
		began := time.Now()
		for n, other := 0, w.restarted(t); n < callers; n++ {
			go []*Waiter{w, other}[n%2].send(t, c, answers)
		}
		ids := map[string]bool{}
		for range callers {
			a := <-answers
			require.True(t, a.Run, a.Text)
			ids[a.ID] = true
		}
		require.Len(t, ids, callers)
		require.Equal(t, callers, g.submitted, "no one submits another's request")
		require.Less(t, time.Since(began), callers*learnPoll, "each looks at most so often at another's")
	})
}

// The folder is removed while a call waits: without it the call is asked again, and goes on.
func TestRemovedBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["proxy","s","t",{}]`)
		c.Run = true
		answers := make(chan *Answer, 1)
		go w.send(t, c, answers)
		time.Sleep(2 * prompt)
		require.NoError(t, os.RemoveAll(w.Book.dir))
		first := g.ids()[0]
		g.end(first, approval.StatusApproved)
		time.Sleep(2 * prompt)
		require.Empty(t, answers)
		require.Equal(t, 2, g.requests(), "what was approved before is not known any more")
		for _, id := range g.ids() {
			g.end(id, approval.StatusApproved)
		}
		a := <-answers
		require.True(t, a.Run, a.Text)
		require.NotEqual(t, first, a.ID)
		require.NoError(t, a.Finish(approval.Raw(`{}`)))
		require.NoError(t, a.Received())
	})
}

// An approval that could not be used, on a full disk for instance, is not lost.
func TestNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["proxy","s","t",{}]`)
		c.Run = true
		go func() { time.Sleep(time.Second); g.end(g.ids()[0], approval.StatusApproved) }()
		a := w.do(t, c)
		require.True(t, a.Run)
		result := filepath.Join(w.Book.folder(a.name), a.name+markResult)
		require.NoError(t, os.Mkdir(result, 0o700)) // nothing can be written there
		require.Error(t, a.Finish(approval.Raw(`{}`)))
		require.NoError(t, a.NotBegun())
		require.NoError(t, os.Remove(result))
		again := w.restarted(t).do(t, c)
		require.Equal(t, a.ID, again.ID)
		require.True(t, again.Run)
		require.False(t, again.Lost)
	})
}

// A caller that is killed while policy allows its call leaves nothing that the next one could run.
func TestAllowedCallOfADeadCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		w.Gate = quick{g}
		c := callOf(`["proxy","s","t",{}]`)
		c.Run = true
		call, err := digest(c.Action)
		require.NoError(t, err)
		dead, fresh, err := w.ask(t.Context(), c, call)
		require.NoError(t, err)
		require.True(t, fresh)
		dead.close()
		a := w.restarted(t).do(t, c)
		require.True(t, a.Run)
		require.NotEqual(t, dead.sent.ID, a.ID)
		require.Equal(t, 2, g.requests())
	})
}

// A result that its caller does not take holds the same call up for two seconds, and is given again then.
func TestResultThatIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["post",{}]`)
		g.end(w.do(t, c).ID, approval.StatusApproved)
		a := w.do(t, c)
		a.Sending()
		began := time.Now()
		require.Equal(t, a.ID, w.do(t, c).ID)
		require.Equal(t, maxSending, time.Since(began))
		require.Equal(t, 1, g.requests())
	})
}

// The end of a request of two days ago is no end of a call that follows it, and what has ended can be cancelled in vain.
func TestEndedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWaiter(t, g)
		c := callOf(`["post",{}]`)
		id := w.do(t, c).ID
		g.end(id, approval.StatusApproved)
		for _, known := range []error{client.ErrNotPending, decide.ErrDecided} {
			w.Gate = decided{g, known}
			a, err := w.Cancel(t.Context(), id, "")
			require.NoError(t, err)
			require.Equal(t, approval.StatusApproved, a.Ended.Status, "it says how it stands")
		}
		w.Gate = decided{g, client.ErrKey}
		_, err := w.Cancel(t.Context(), id, "")
		require.ErrorIs(t, err, client.ErrKey)
		w.Gate = g
		time.Sleep(2 * freshEnd)
		_, err = w.Follow(t.Context(), callOf(`["wait",{}]`), id)
		require.ErrorIs(t, err, errUnknown)
	})
}

// Where no daemon has made the folders, a call says so, and is not kept.
func TestNoFolders(t *testing.T) {
	w := newWaiter(t, newGate())
	w.Gate = client.Files{Requests: filepath.Join(t.TempDir(), "requests"), Responses: t.TempDir()}
	_, err := w.Do(t.Context(), callOf(`["post",{}]`))
	require.ErrorIs(t, err, client.ErrNoFolder)
	require.ErrorContains(t, err, "the daemon makes it when it starts on the host")
}

// decided is a gate that cancels nothing.
type decided struct {
	*gate
	why error
}

func (d decided) CancelBecause(context.Context, client.Submitted, string) (approval.Status, error) {
	return "", d.why
}

// What a result says of its approval is ours; all else keeps its bytes.
func TestAnnotate(t *testing.T) {
	receipt := "receipt"
	a := &Answer{ID: "0123456789abcdef", Ended: &approval.Response{Status: approval.StatusApproved, Receipt: &receipt, Log: &approval.LogHead{Size: 7, Root: "x="}}}
	const ours = `"dev.permesso/decision":{"auto":false,"status":"approved"},"dev.permesso/log":{"root":"x=","size":7},"dev.permesso/receipt":"receipt","dev.permesso/request":"0123456789abcdef"`
	for _, row := range []struct{ result, want string }{
		{`{}`, `{"_meta":{` + ours + `}}`},
		{`{"content":[{"n":1.50, "u":"\u00e9"}],"x":12345678901234567890}`, `{"content":[{"n":1.50, "u":"\u00e9"}],"x":12345678901234567890,"_meta":{` + ours + `}}`},
		{`{"_meta":{"dev.permesso/receipt":"forged","z":[1, 2]},"isError":true}`, `{"_meta":{` + ours + `,"z":[1,2]},"isError":true}`},
	} {
		got, err := a.Annotate(approval.Raw(row.result))
		require.NoError(t, err)
		require.Equal(t, []byte(row.want), []byte(got))
		require.Equal(t, a.ID, requestIn(got))
	}
	_, err := a.Annotate(approval.Raw(`[]`))
	require.Error(t, err)
	require.Empty(t, requestIn(approval.Raw(`{`)))
}
