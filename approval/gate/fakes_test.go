package gate_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/security/receipt"
)

// fakeExecutor replaces all handlers: it verifies the receipt and counts runs.
type fakeExecutor struct {
	verifier *receipt.Verifier
	onRun    func()
	do       func(approval.Job) approval.Effect // nil: {"done":true}

	mu   sync.Mutex
	jobs []approval.Job
	args map[approval.Key][]string
}

// Run implements gate.executor.
func (x *fakeExecutor) Run(_ context.Context, job approval.Job) approval.Effect {
	if err := x.verifier.Verify(job.Receipt, job.Workspace, job.RequestID, job.Tool.Name, approval.Digest(job.Args)); err != nil {
		return approval.Effect{Error: "Execution refused: " + err.Error()}
	}
	x.mu.Lock()
	x.jobs = append(x.jobs, job)
	if x.args == nil {
		x.args = map[approval.Key][]string{}
	}
	k := approval.Key{Workspace: job.Workspace, ID: job.RequestID}
	x.args[k] = append(x.args[k], string(job.Args))
	x.mu.Unlock()
	x.onRun()
	switch {
	case x.do != nil:
		return x.do(job)
	case job.Tool.Name == "fails":
		return approval.Effect{Error: "Execution failed: boom"}
	}
	return approval.Effect{Result: approval.Raw(`{"done":true}`)}
}

// argsOf lists the arguments that were run for k.
func (x *fakeExecutor) argsOf(k approval.Key) (args []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.args[k])
}

func (x *fakeExecutor) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.jobs)
}

// clock is the real or a frozen time plus shift.
type clock struct {
	mu    sync.Mutex
	base  time.Time
	shift time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		return time.Now().Add(c.shift)
	}
	return c.base.Add(c.shift)
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift += d
}

func (c *clock) set(shift time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift = shift
}

// logBuffer keeps the log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// hookedStore calls functions around one method of a store, for one kind of document.
type hookedStore struct {
	store.Store
	method string
	doc    approval.Doc             // "": every kind
	before func(approval.Key) error // its error is the method's; may be nil
	after  func(approval.Key)       // may be nil
}

// before calls f right before a method.
func before(s store.Store, method string, d approval.Doc, f func(approval.Key)) hookedStore {
	return hookedStore{Store: s, method: method, doc: d, before: func(k approval.Key) error { f(k); return nil }}
}

// failing fails a method.
func failing(s store.Store, method string, d approval.Doc, err error) hookedStore {
	return hookedStore{Store: s, method: method, doc: d, before: func(approval.Key) error { return err }}
}

func (h hookedStore) call(method string, d approval.Doc, k approval.Key, do func() error) error {
	if method != h.method || h.doc != "" && d != h.doc {
		return do()
	}
	if h.before != nil {
		if err := h.before(k); err != nil {
			return err
		}
	}
	err := do()
	if h.after != nil {
		h.after(k)
	}
	return err
}

func (h hookedStore) Read(ctx context.Context, d approval.Doc, k approval.Key) (b []byte, err error) {
	err = h.call("Read", d, k, func() error { b, err = h.Store.Read(ctx, d, k); return err })
	return b, err
}

func (h hookedStore) Create(ctx context.Context, d approval.Doc, k approval.Key, b []byte, how store.Mode, alongside ...func() error) error {
	return h.call("Create", d, k, func() error { return h.Store.Create(ctx, d, k, b, how, alongside...) })
}

func (h hookedStore) Remove(ctx context.Context, d approval.Doc, k approval.Key) error {
	return h.call("Remove", d, k, func() error { return h.Store.Remove(ctx, d, k) })
}

func (h hookedStore) Confirm(ctx context.Context, d approval.Doc, k approval.Key) error {
	return h.call("Confirm", d, k, func() error { return h.Store.Confirm(ctx, d, k) })
}

func (h hookedStore) Sync(ctx context.Context, d approval.Doc, ws string) error {
	return h.call("Sync", d, approval.Key{Workspace: ws}, func() error { return h.Store.Sync(ctx, d, ws) })
}
