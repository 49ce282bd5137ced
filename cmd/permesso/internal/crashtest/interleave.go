package crashtest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// operationLock lets one actor at a time use the disk.
type operationLock struct {
	arrive  chan arrival // an actor waits before its next operation
	finish  chan result
	next    map[string]chan struct{}
	current string // the actor that runs
}

type arrival struct {
	who string
	op  crashfs.Op
}

type result struct {
	who string
	err error
}

func (l *operationLock) wait(who string, op crashfs.Op) {
	l.arrive <- arrival{who, op}
	<-l.next[who]
}

// interleave plays a flow with several actors. Random numbers choose the actor of the
// next operation and when the gate is killed. A power cut may come before every
// operation.
func (x *worker) interleave(w *sim, actions map[string][]action, boot bool) error {
	rng := x.rng
	l := &operationLock{arrive: make(chan arrival), finish: make(chan result), next: map[string]chan struct{}{}}
	s := &env{w: w, yield: func() { l.wait(l.current, crashfs.Op{}) }}
	s.clearSlot = func(context.Context, approval.Key) error { return nil } // the next attempt yields by itself
	if boot {
		if err := s.boot(); err != nil {
			return err
		}
	}
	actors := sortedKeys(actions)
	for _, name := range actors {
		l.next[name] = make(chan struct{})
	}
	w.disk.Before = func(op crashfs.Op) { l.wait(l.current, op) }
	w.disk.BeforeRead = w.disk.Before
	for _, name := range actors {
		go func() {
			l.wait(name, crashfs.Op{})
			l.finish <- result{name, s.runActions(actions[name], name == "gate")}
		}()
	}
	killAt := rng.IntN(200) // often after the end: then there is no kill
	return x.schedule(s, l, len(actors), killAt)
}

func (s *env) runActions(actions []action, isGate bool) error {
	for _, do := range actions {
		err := do(s)
		if errors.Is(err, crashfs.ErrKilled) && isGate {
			// It was killed alone, and is started again. A command that is killed is run again.
			s.w.trace = append(s.w.trace, "gate starts again")
			if err = s.boot(); err == nil {
				err = s.daemon.settle()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// schedule waits until every actor waits or has finished, then lets one continue.
func (x *worker) schedule(s *env, l *operationLock, running, killAt int) error {
	rng := x.rng
	killCommandAt := rng.IntN(400)
	waiting := []arrival{}
	var failed error
	for n := 0; running > 0; n++ {
		for len(waiting) < running {
			select {
			case a := <-l.arrive:
				waiting = append(waiting, a)
			case r := <-l.finish:
				running--
				if r.err != nil && !errors.Is(r.err, crashfs.ErrKilled) {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", r.who, r.err))
				}
			case <-time.After(time.Minute):
				return fmt.Errorf("%s does not go on: it waits for a lock that another actor has at %v", l.current, waiting)
			}
		}
		if running == 0 {
			break
		}
		s.w.observe()
		if rng.IntN(6) == 0 {
			x.cutNow(s.w)
		}
		if n == killCommandAt && s.w.command != nil {
			s.w.command.Kill()
			s.w.trace = append(s.w.trace, fmt.Sprintf("kill of a command at %d", n))
		}
		if n == killAt && s.w.gate != nil {
			s.w.gate.Kill()
			s.w.trace = append(s.w.trace, fmt.Sprintf("kill at %d", n))
		}
		slices.SortFunc(waiting, func(a, b arrival) int { return strings.Compare(a.who, b.who) })
		ready := eligible(waiting)
		a := ready[rng.IntN(len(ready))]
		waiting = slices.DeleteFunc(waiting, func(b arrival) bool { return a.who == b.who })
		l.current = a.who
		l.next[a.who] <- struct{}{}
	}
	s.w.disk.Before, s.w.disk.BeforeRead = nil, nil
	if s.w.gate != nil {
		s.w.gate.Kill()
	}
	if failed == nil {
		x.start(s.w, s.w.disk.Kill(), "end of run", 0)
	}
	return failed
}

// eligible returns the actors that may go on. One that is about to use the log or the journal
// has its lock: others of its process could only wait for it.
func eligible(waiting []arrival) (list []arrival) {
	most := map[string]int{}
	for _, a := range waiting {
		most[a.op.Proc] = max(most[a.op.Proc], locked(a.op))
	}
	for _, a := range waiting {
		between := a.op.Proc == "" && most["gate"] == 0 // it may be about to use the daemon
		if between || a.op.Proc != "" && locked(a.op) == most[a.op.Proc] {
			list = append(list, a)
		}
	}
	return list
}

// locked ranks the lock that an operation needs: the log's is taken while the journal's is held.
func locked(op crashfs.Op) int {
	switch path.Dir(op.Path) {
	case layout.Audit():
		return 2
	case layout.Journal():
		return 1
	}
	return 0
}

// cutNow is a power cut, or a kill of all processes, at this point.
func (x *worker) cutNow(w *sim) {
	rng := x.rng
	ways := append(crashfs.Ways(), crashfs.Seeded(rng.Uint64()))
	way, depth := ways[rng.IntN(len(ways))], 1
	if x.beside {
		depth = 0 // it is the second crash already
	}
	if rng.IntN(4) == 0 {
		x.start(w, w.disk.Kill(), "kill all", depth)
		return
	}
	x.start(w, w.disk.Cut(way), way.String(), depth)
}
