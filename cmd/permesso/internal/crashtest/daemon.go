package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
)

// grantStore writes grants as the daemon does.
type grantStore struct {
	w     *sim
	store *ipc.Store
}

// AddFromDecision implements gate.grantStore.
func (m grantStore) AddFromDecision(p *approval.Pending, d *approval.Decision) error {
	g := grant.From(p, d)
	if g == nil {
		return nil
	}
	body, err := g.Encode()
	if err != nil {
		return err
	}
	k := grant.Key(g.ID)
	err = m.store.Commit(context.Background(), store.Put(approval.DocGrant, k, m.w.config.key.Seal(approval.DocGrant, k, body)))
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	// Another process wrote it, and may have failed to sync it.
	return m.store.Checkpoint(context.Background())
}

// daemon is the gate as one process.
type daemon struct {
	w     *sim
	proc  *crashfs.Proc
	store *ipc.Store
	gate  *gate.Gate
	keys  []approval.Key
	log   *audit.Log

	locked bool // a prune failed after removals: its keys wait for the next start
	// release releases the lock, like the end of the process.
	release func() error
}

// boot does what serve does, in the same order. If it fails, the process ends and its
// lock is released.
func (w *sim) boot() (d *daemon, err error) {
	proc := w.disk.Process("gate")
	d = &daemon{w: w, proc: proc}
	w.gate = proc
	defer func() {
		if err != nil {
			proc.Kill()
			d = nil
		}
	}()
	d.store = w.store(d.proc)
	if d.release, err = w.lease(d.store); err != nil {
		return nil, fmt.Errorf("open home: %w", err)
	}
	w.endPrunes()
	if w.onOpen != nil && w.onOpen() {
		return nil, errKnownFuture
	}
	if d.log, err = audit.OpenFrom(d.proc, layout.Audit(), w.clock, w.auditKeys(), d.store.LogHead()); err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	d.log.Committer = d.store
	d.store.SetLog(&logFile{Log: d.log, w: w})
	d.gate = &gate.Gate{
		Store: &gateStore{Store: d.store, w: w}, Seal: w.config.key, Receipts: w.config.signer,
		Grants: grantStore{w, d.store}, Executor: d, Planner: planner{}, Audit: d.log, Config: func() (gate.Settings, gate.Policy) { return w, w }, Log: zerolog.Nop(), Now: w.clock, Inline: true,
	}
	d.gate.Accepted = func(k approval.Key) { w.accepted[k.ID] = true }
	if w.flow.pauses() && w.config.Mutant != noPauseCheck {
		d.gate.Pauses = &ipc.PauseGuard{Store: d.store}
	}
	d.keys, err = d.gate.Start(context.Background())
	return d, err
}

func (w *sim) clock() time.Time { return w.now }

// endPrunes is for prunes that a crash interrupted. A start makes durable what is left of
// them: an id is free, or still in use.
func (w *sim) endPrunes() {
	for id := range w.pruned {
		if _, ok := w.disk.File(path.Join(layout.Records(workspace), id+".json")); ok {
			delete(w.pruned, id)
		} else {
			w.resetID(id)
		}
	}
}

// stop is a clean stop of the daemon.
func (d *daemon) stop() error { return errors.Join(d.log.Close(), d.release()) }

// segmentSize is that of the journal's segments, in bytes: the smallest.
const segmentSize = 64 << 10

func (w *sim) store(p *crashfs.Proc) *ipc.Store {
	fsys := simFS{p, w}
	return &ipc.Store{
		FS: fsys, Layout: layout, JournalSize: segmentSize,
		Requests: func(ws string) (ipc.Requests, error) { return trustedRequests{p, layout.Requests(ws)}, nil },
		Verify: func(d approval.Doc, k approval.Key, b []byte) error {
			_, err := w.config.key.Open(d, k, b)
			return err
		},
		RecoverLog: func(head []byte, lines [][]byte) ([]byte, error) {
			return audit.Recover(fsys, layout.Audit(), head, lines)
		},
	}
}

// lease takes the lease.
func (w *sim) lease(s *ipc.Store) (release func() error, err error) {
	w.phase = replaying
	defer func() { w.phase = working }()
	return s.Lease(context.Background())
}

// simFS returns ipc's error for a lock that is held, and implements some mutants.
type simFS struct {
	*crashfs.Proc
	w *sim
}

func (f simFS) TryLock(name string) (ipc.Lock, error) {
	c, err := f.Proc.TryLock(f.lockName(name))
	if errors.Is(err, crashfs.ErrLocked) {
		err = fmt.Errorf("%w: %w", store.ErrLocked, err)
	}
	return c, err
}

func (f simFS) Locked(name string) (bool, error) { return f.Proc.Locked(f.lockName(name)) }

// OpenFile implements the mutants without a sync of one commit.
func (f simFS) OpenFile(name string, flag int, perm fs.FileMode) (afero.File, error) {
	file, err := f.Proc.OpenFile(name, flag, perm)
	if doc := unsyncedDocs[f.w.config.Mutant]; err == nil && doc != "" && path.Dir(name) == layout.Journal() {
		return &unsyncedFile{File: file, doc: doc}, nil
	}
	return file, err
}

// unsyncedFile is a segment of which a group with a document of one kind is not synced.
type unsyncedFile struct {
	afero.File
	doc  approval.Doc
	skip bool
}

func (f *unsyncedFile) WriteAt(b []byte, at int64) (int, error) {
	f.skip = strings.Contains(string(b), "\x01"+string(rune(len(f.doc)))+string(f.doc))
	return f.File.WriteAt(b, at)
}

func (f *unsyncedFile) Sync() error {
	if f.skip {
		return nil
	}
	return f.File.Sync()
}

// logFile records the entries that are committed.
type logFile struct {
	*audit.Log
	w     *sim
	lines map[int64]string // numbered, and not committed
}

func (l *logFile) Next(e event.Entry) (line []byte, seq int64, err error) {
	if line, seq, err = l.Log.Next(e); err == nil {
		if l.lines == nil {
			l.lines = map[int64]string{}
		}
		l.lines[seq] = string(line)
	}
	return line, seq, err
}

func (l *logFile) Durable(seq int64) error {
	for i, line := range l.lines {
		if i <= seq {
			l.w.committed[i] = line
			delete(l.lines, i)
		}
	}
	return l.Log.Durable(seq)
}

// settle steps every key until no move is left.
func (d *daemon) settle() error {
	if d.locked {
		return nil
	}
	keys := d.keys
	d.keys = nil
	for _, id := range d.w.flow.ids() {
		k := approval.Key{Workspace: workspace, ID: id}
		if !slices.Contains(keys, k) && (d.w.config.Mutant != leftoversOnly || d.w.hasLeftovers(id)) {
			keys = append(keys, k)
		}
	}
	var errs []error
	for _, k := range keys {
		if err := d.step(k); err != nil {
			errs = append(errs, fmt.Errorf("step %s: %w", k, err))
		}
	}
	return errors.Join(errs...)
}

// maxSteps is more than the journal is full in one flow.
const maxSteps = 12

// step steps a key, and once more after a checkpoint because the journal was full.
func (d *daemon) step(k approval.Key) error {
	retryAt, err := d.gate.Step(context.Background(), k)
	for range maxSteps {
		if err != nil || retryAt.IsZero() || retryAt.Sub(d.w.now) >= 100*time.Millisecond {
			break
		}
		if d.w.flow.script() != nil && retryAt.After(d.w.now) {
			d.w.now = retryAt
		}
		retryAt, err = d.gate.Step(context.Background(), k)
		if d.w.flow.script() == nil {
			break
		}
	}
	return err
}

// hasLeftovers reports that a request has documents that its record makes harmless.
func (w *sim) hasLeftovers(id string) bool {
	return slices.ContainsFunc([]string{
		layout.Requests(workspace), layout.Pendings(workspace), layout.Decisions(workspace), layout.Receipts(workspace),
	}, func(dir string) bool {
		_, ok := w.disk.File(path.Join(dir, id+".json"))
		return ok
	})
}

// Run implements gate.executor.
func (d *daemon) Run(ctx context.Context, job approval.Job) approval.Effect {
	if job.Tool.Name == taskTool {
		return d.withRunner(job, func(r *exec.Runner) approval.Effect { return r.Run(ctx, job) })
	}
	verifier, err := d.w.config.signer.Verifier()
	if err != nil {
		return approval.Effect{Error: err.Error()}
	}
	verifier.Now = d.w.clock
	if err := verifier.Verify(job.Receipt, job.Workspace, job.RequestID, job.Tool.Name, approval.Digest(job.Args)); err != nil {
		return approval.Effect{Error: err.Error()}
	}
	if err := d.effect(job); err != nil {
		return approval.Effect{Error: err.Error()}
	}
	if job.Tool.Name == "fails" || d.w.flow.generated != nil && strings.Contains(string(job.Args), "!") {
		return approval.Effect{Error: "Execution failed: boom"}
	}
	return approval.Effect{Result: approval.Raw(`{"done":true,` + string(job.Args[1:]))}
}

// effect is the effect of a job: it cannot be undone. A killed process does nothing. A crash right before the effect
// differs from one right after it.
func (d *daemon) effect(job approval.Job) error {
	d.w.checkRunTime(approval.Key{Workspace: job.Workspace, ID: job.RequestID})
	if err := d.w.exposePoint(d.proc, "effect"); err != nil {
		return err
	}
	d.w.effects = append(d.w.effects, effect{job.RequestID, approval.Digest(job.Args), job.Key})
	if job.Tool.Name == taskTool {
		d.w.tasks[job.RequestID] = serverTask{}
	}
	return d.w.exposePoint(d.proc, "after effect")
}

// Resume implements gate.executor.
func (d *daemon) Resume(ctx context.Context, job approval.Job) approval.Effect {
	return d.withRunner(job, func(r *exec.Runner) approval.Effect { return r.Resume(ctx, job) })
}

func (d *daemon) withRunner(job approval.Job, do func(*exec.Runner) approval.Effect) approval.Effect {
	r, err := d.runner(job)
	if err != nil {
		return approval.Effect{Error: err.Error()}
	}
	e := do(r)
	if err := r.Close(); err != nil {
		return approval.Effect{Error: err.Error()}
	}
	return e
}

// exposePoint makes a point between two operations visible to the disk's hooks. The
// file does not exist, and Stat changes nothing.
func (w *sim) exposePoint(p *crashfs.Proc, name string) error {
	if w.disk.Before != nil {
		w.disk.Before(crashfs.Op{Proc: "gate", Kind: crashfs.OpStat, Path: name})
	}
	if _, err := p.Stat(path.Join("/", name)); errors.Is(err, crashfs.ErrKilled) {
		return err
	}
	return nil
}
