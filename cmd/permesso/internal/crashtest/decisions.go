package crashtest

import (
	"cmp"
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// decision lets a person decide, and retries while the request is unknown.
func decision(v approval.Verdict, where func(s *env, who string, v approval.Verdict) error) action {
	return func(s *env) error {
		name := cmp.Or(map[approval.Verdict]string{approval.Approved: "ann"}[v], "bob")
		for range 12 {
			s.letOthersRun()
			err := where(s, name, v)
			switch {
			case errors.Is(err, decide.ErrUnknown), errors.Is(err, store.ErrLocked), errors.Is(err, errNoDaemon),
				s.yield != nil && (errors.Is(err, crashfs.ErrKilled) || errors.Is(err, store.ErrUnavailable)):
			default:
				return unlessRefused(err)
			}
		}
		return nil // nothing was asked
	}
}

var (
	keyA        = approval.Key{Workspace: workspace, ID: idA}
	errNoDaemon = errors.New("no daemon runs")
)

// inside is a person who decides through the daemon: a channel, or a command over its socket.
func inside(s *env, _ string, v approval.Verdict) error {
	if s.daemon == nil {
		return errNoDaemon
	}
	return s.w.decideOn(&deciderStore{Store: s.daemon.store, w: s.w}, keyA, v, s.clearSlot)
}

// outside is a person who decides in another process.
func outside(s *env, who string, v approval.Verdict) error {
	p := s.w.disk.Process(who)
	s.w.command = p
	defer p.Kill() // it ends, and with it its locks
	return s.w.decide(p, keyA, v, s.clearSlot)
}

// decideTooLate checks in time and writes too late: in between, the deadline passes
// and the gate settles.
func decideTooLate(s *env) error {
	p := s.w.disk.Process("ann")
	store := &deciderStore{Store: s.w.store(p), w: s.w, delay: func() error {
		s.w.now = s.w.now.Add(2 * time.Hour)
		return s.settle()
	}}
	return unlessRefused(s.w.decideOn(store, keyA, approval.Approved, nil))
}

// unlessRefused drops refusals: they are valid results.
func unlessRefused(err error) error {
	if _, refused := errors.AsType[*decide.Refusal](err); refused {
		return nil
	}
	return err
}

// decide decides in another process. If no daemon is ready, it takes the lease.
func (w *sim) decide(p *crashfs.Proc, k approval.Key, v approval.Verdict, clearSlot func(context.Context, approval.Key) error) error {
	s := w.store(p)
	if s.Ready() {
		return w.decideOn(&deciderStore{Store: s, w: w}, k, v, clearSlot)
	}
	lease := w.lease
	if w.config.Mutant == noCommandReplay {
		lease = func(*ipc.Store) (func() error, error) {
			lock, err := s.FS.TryLock(layout.Lock())
			if err != nil {
				return nil, err
			}
			return lock.Close, nil
		}
	}
	release, err := lease(s)
	if err != nil {
		return err
	}
	return errors.Join(w.decideOn(&deciderStore{Store: s, w: w, leased: true}, k, v, clearSlot), release())
}

func (w *sim) decideOn(store *deciderStore, k approval.Key, v approval.Verdict, clearSlot func(context.Context, approval.Key) error) error {
	d := &gate.Decider{
		Store: store, Seal: w.config.key, Now: w.clock, ClearSlot: clearSlot,
		May: func(ws string, _ *approval.Pending, by approval.Person) (string, bool) {
			return by.Name, ws == workspace
		},
	}
	if store.leased { // no gate can run: it clears the slot itself, as home.ClearSlot does
		d.ClearSlot = func(ctx context.Context, k approval.Key) error {
			return d.ClearInvalid(ctx, k, func() error {
				return store.Refuse(ctx, k.Workspace, k.ID+".decision", "decision does not match the pending request")
			})
		}
	}
	if w.config.Mutant != noGrantFirst {
		d.Grants = grantStore{w, store.Store}
	}
	if w.config.Mutant == noRecheck {
		d.RunBefore = func() time.Duration { return 24 * time.Hour } // otherwise RunBefore would detect the late decision, too
	}
	a := decide.Input{
		Key: k, Verdict: v, By: approval.Person{Channel: "local", ID: "1", Name: "ann"}, Via: "cli",
	}
	switch {
	case v == approval.Overridden:
		a.Override = "do it otherwise"
	case v == approval.Answered:
		a.Text = "a"
	case v == approval.Approved && w.flow.remembers():
		a.Scope, a.Code = approval.Always, "6"
	}
	_, err := d.Decide(context.Background(), a)
	if err == nil {
		w.acknowledged = append(w.acknowledged, acknowledged{k.ID, v})
	}
	return err
}

// deciderStore is the store of a decider in another process.
type deciderStore struct {
	*ipc.Store
	w      *sim
	leased bool
	delay  func() error // right before the decision is written; may be nil
	asked  []byte       // the pending as first read, for noRecheck
}

func (s *deciderStore) Read(ctx context.Context, doc approval.Doc, k approval.Key) ([]byte, error) {
	if s.w.config.Mutant == noRecheck && doc == approval.DocRecord {
		return nil, store.ErrMissing
	}
	if s.w.config.Mutant != noRecheck || doc != approval.DocPending {
		return s.Store.Read(ctx, doc, k)
	}
	if s.asked == nil {
		b, err := s.Store.Read(ctx, doc, k)
		if err != nil {
			return nil, err
		}
		s.asked = b
	}
	return s.asked, nil
}

// Commit records the approved arguments before it writes an approval: from then on
// the effect is legitimate, acknowledged or not.
func (s *deciderStore) Commit(ctx context.Context, ops ...store.Op) error {
	if s.delay != nil {
		if err := s.delay(); err != nil {
			return err
		}
	}
	for i, op := range ops {
		if s.w.config.Mutant == noRecheck {
			ops[i].Check = nil
		}
		if !strings.Contains(string(op.Bytes), `"verdict":"approved"`) {
			continue
		}
		p, ok := s.w.disk.File(path.Join(layout.Pendings(workspace), op.Key.ID+".json"))
		if !ok {
			p, _ = s.Store.Read(ctx, approval.DocPending, op.Key) // committed, and not visible yet
		}
		if p != nil {
			s.w.approvedArgs[op.Key.ID] = append(s.w.approvedArgs[op.Key.ID], argsOf(p))
		}
	}
	return s.Store.Commit(ctx, ops...)
}

func argsOf(doc []byte) string {
	fields, err := codec.Fields(doc)
	if err != nil {
		return "unreadable"
	}
	for _, f := range fields {
		if f.Name == "request_data" {
			return approval.Digest(f.Value)
		}
	}
	return "none"
}
