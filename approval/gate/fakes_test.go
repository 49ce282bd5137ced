package gate_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	starlark "github.com/permesso-dev/permesso/approval/program"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/security/receipt"
)

// fakeExecutor replaces all handlers: it verifies the receipt and counts runs.
type fakeExecutor struct {
	verifier *receipt.Verifier
	onRun    func()
	do       func(approval.Job) approval.Effect // nil: {"done":true}

	resume func(approval.Job) approval.Effect

	mu   sync.Mutex
	jobs []approval.Job
	args map[approval.Key][]string
}

// Resume implements gate.executor.
func (x *fakeExecutor) Resume(_ context.Context, job approval.Job) approval.Effect {
	return x.resume(job)
}

// Run implements gate.executor.
func (x *fakeExecutor) Run(_ context.Context, job approval.Job) approval.Effect {
	if err := x.verifier.Verify(job.Receipt, job.Workspace, job.RequestID, job.Tool.Name, approval.Digest(job.Args)); err != nil {
		return approval.Effect{Error: "Execution refused: " + err.Error()}
	}
	if p := job.Program; p != nil {
		if err := x.verifier.Verify(p.Receipt, job.Workspace, p.RequestID, "", p.SHA256); err != nil {
			return approval.Effect{Error: "Execution refused: " + err.Error()}
		}
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

// Commit calls the functions for the first document of the kind.
func (h hookedStore) Commit(ctx context.Context, ops ...store.Op) error {
	op := ops[0]
	if i := slices.IndexFunc(ops, func(op store.Op) bool { return op.Doc == h.doc }); h.doc != "" && i >= 0 {
		op = ops[i]
	}
	return h.call("Commit", op.Doc, op.Key, func() error { return h.Store.Commit(ctx, ops...) })
}

func (h hookedStore) Checkpoint(ctx context.Context) error {
	return h.call("Checkpoint", "", approval.Key{}, func() error { return h.Store.Checkpoint(ctx) })
}

func (h hookedStore) Remove(ctx context.Context, d approval.Doc, k approval.Key) error {
	return h.call("Remove", d, k, func() error { return h.Store.Remove(ctx, d, k) })
}

// volatile is a document that other programs write.
func volatile(d approval.Doc, k approval.Key, b []byte) store.Op {
	op := store.Put(d, k, b)
	op.Mode = store.Volatile
	return op
}

// fakePlanner evaluates in this process.
type fakePlanner struct {
	evaluations int
	custom      func(call func(approval.Call) (approval.Answer, error)) (approval.Evaluation, error) // instead of a program; may be nil
	change      func(evaluation int, job *approval.ProgramJob)                                       // may change the program; may be nil
}

// Evaluate implements gate.planner.
func (p *fakePlanner) Evaluate(ctx context.Context, job approval.ProgramJob, call func(approval.Call) (approval.Answer, error)) (approval.Evaluation, error) {
	p.evaluations++
	if p.custom != nil {
		return p.custom(call)
	}
	if p.change != nil {
		p.change(p.evaluations, &job)
	}
	return starlark.Evaluate(ctx, job, call)
}
