package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// trial is one run of an agent with our hook, and what happens to the hook, the gate and the request meanwhile.
type trial struct {
	name    string
	times   int                  // 0: 1
	calls   int                  // that the model asks for in one turn; 0: 1
	ran     int                  // of them all, how many must run
	columns func(a agent) bool   // nil: all
	open    func(a agent) bool   // where calls run that no one allowed; nil: nowhere
	any     bool                 // how many run is not known before: of those that were allowed, at most all
	install []string             // more arguments of hook install
	hooks   int                  // how often the hook is installed; 0: 1
	event   string               // shell: what the hook reads, made of the file $event; "": the event
	full    string               // folder of the home that is a small file system
	clock   bool                 // with programs whose clock jumps
	down    bool                 // no daemon runs at the start
	do      func(*setting) error // starts the agent; nil: starts it and waits for its end
}

// pending is what happens when the request of the only call waits.
func pending(do func(*setting) error) func(*setting) error {
	return func(w *setting) error {
		return w.during(func(r *running) error {
			if err := w.awaitPending(r); err != nil {
				return err
			}
			return do(w)
		})
	}
}

// then does one after the other.
func then(steps ...func(*setting) error) func(*setting) error {
	return func(w *setting) error {
		for _, step := range steps {
			if err := step(w); err != nil {
				return err
			}
		}
		return nil
	}
}

func nothing(*setting) error  { return nil }
func alone(w *setting) error  { return w.during(func(*running) error { return nil }) }
func denyIt(w *setting) error { return w.operator("deny", w.id, denial) }
func isClaude(a agent) bool   { return a.name == "claude-code" }
func notClaude(a agent) bool  { return !isClaude(a) }
func even(effect string) bool { n, err := strconv.Atoi(effect); return err == nil && n%2 == 0 }
func soon(d string) []string  { return []string{"--approval-timeout", d} }
func ignored(f func(*setting) error) func(*setting) error {
	return func(w *setting) error { _ = f(w); return nil }
}

func jump(by time.Duration) func(*setting) error {
	return func(w *setting) error { return w.shift(by) }
}

func fill(folder string) func(*setting) error {
	return func(w *setting) error { return w.fill(folder) }
}

const (
	gateState = ".local/state/permesso"
	hookState = ".local/state/permesso-hooks"
	day       = 24 * time.Hour
)

var trials = []trial{
	{name: "approved", ran: 1, do: pending((*setting).approve)},
	{name: "approved, with two hooks for the call", ran: 1, hooks: 2, do: pending((*setting).approve)},
	{name: "denied", do: pending(denyIt)},
	{name: "another command is written and approved", ran: 1, do: rewrite},
	{name: "no decision in time", install: soon("5s"), do: pending(nothing)},
	{name: "the event is garbage", event: "head -c 4096 /dev/urandom", do: broken},
	{name: "the event is cut in half", event: `head -c $(($(wc -c <$event) / 2)) $event`, do: broken},
	{name: "the event has 17 MiB", event: `cat $event; head -c 17825792 /dev/zero | tr '\0' ' '`, do: broken},
	{name: "the daemon is down", down: true},
	{name: "the daemon is killed while the hook waits, and started again", ran: 1, do: pending(then((*setting).kill, (*setting).serve, (*setting).approve))},
	{name: "the gate's disk is full", full: gateState, install: soon("10s"), do: then(fill(gateState), alone)},
	{name: "the gate's disk becomes full while the hook waits, then denied", full: gateState, install: soon("20s"), do: pending(then(fill(gateState), ignored(denyIt)))},
	{name: "the gate's disk becomes full while the hook waits, then approved", full: gateState, any: true, install: soon("20s"), do: pending(then(fill(gateState), ignored((*setting).approve)))},
	{name: "the hook's own disk is full, one of two approved", full: hookState, calls: 2, ran: 1, do: then(fill(hookState), decideEven)},
	{name: "50 calls at once, half approved", calls: 50, ran: 25, do: decideEven},
	{name: "the clock jumps a day ahead while the hook waits, then approved", clock: true, any: true, install: soon("30s"), do: pending(then(jump(day), ignored((*setting).approve)))},
	{name: "the clock jumps a day back while the hook waits, then approved", clock: true, ran: 1, install: soon("30s"), do: pending(then(jump(-day), (*setting).approve))},
	{name: "the clock jumps a day back while the hook waits, no decision in time", clock: true, install: soon("5s"), do: pending(jump(-day))},
	{name: "the clock jumps a day ahead and back, then denied", clock: true, install: soon("30s"), do: pending(then(jump(day), ignored((*setting).seen), jump(0), ignored(denyIt)))},
	{name: "deferred; daemon and supervisor killed; approved; resumed twice", ran: 1, columns: isClaude, install: []string{"--wait", "defer"}, do: func(w *setting) error { return deferral(w, true) }},
	{name: "deferred; daemon and supervisor killed; denied; resumed twice", columns: isClaude, install: []string{"--wait", "defer"}, do: func(w *setting) error { return deferral(w, false) }},
	{name: "deferred, never approved", columns: isClaude, install: []string{"--wait", "defer"}, do: deferredOnly},
	{name: "three calls in one turn under defer, none approved", calls: 3, columns: isClaude, install: []string{"--wait", "defer"}, do: deferredOnly},
	{name: "three calls in one turn under defer, two approved", calls: 3, ran: 2, columns: isClaude, install: []string{"--wait", "defer"}, do: supervisedEven},
	{name: "the hook is ended by SIGTERM", do: pending(func(w *setting) error { return w.signal(syscall.SIGTERM) })},
	{name: "the hook is killed at a random moment", times: 50, open: notClaude, columns: func(a agent) bool { return a.column != "gemini managed" }, do: killed},
}

func decideEven(w *setting) error {
	return w.during(func(r *running) error { return w.decideAll(r, even) })
}

// seen lets the daemon look at its clock.
func (w *setting) seen() error { return w.operator("pending") }

// rewrite answers the first request with another command, which is asked, and approved.
func rewrite(w *setting) error {
	return w.during(func(r *running) error {
		if err := w.awaitPending(r); err != nil {
			return err
		}
		first := w.id
		if err := w.operator("change", "--run", first, w.makes("other")); err != nil {
			return err
		}
		if err := r.until("a second request", func() bool { return w.awaitPending(r) == nil && w.id != first }); err != nil {
			return err
		}
		return w.approve()
	})
}

// broken makes sure that the hook was called with the broken event, and that it denied.
func broken(w *setting) error {
	if err := alone(w); err != nil {
		return err
	}
	codes, err := w.codes()
	for _, code := range strings.Fields(codes) {
		if code != "2" {
			return fmt.Errorf("the hook ended with %s", code)
		}
	}
	return err
}

func killed(w *setting) error {
	return w.during(func(r *running) error {
		if err := r.until("a hook", func() bool { return w.signal(0) == nil }); err != nil {
			return err
		}
		time.Sleep(rand.N(400 * time.Millisecond))
		return w.signal(syscall.SIGKILL)
	})
}

// supervise starts the agent by permesso hook run.
func (w *setting) supervise(agent []string) (*running, error) {
	return w.start(append([]string{w.program, "hook", "run", "--"}, agent...)...)
}

func supervisedEven(w *setting) error {
	r, err := w.supervise(w.agentLine())
	if err != nil {
		return err
	}
	defer r.end()
	return w.decideAll(r, even)
}

// again is the command line with which a supervisor says that its work is taken up.
func (r *running) again() (argv []string, err error) {
	const head = "If this ends before: permesso hook run -- "
	err = r.until("a deferral", func() bool { return strings.Contains(r.out.String(), head) })
	_, rest, _ := strings.Cut(r.out.String(), head)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line), err
}

// deferredOnce starts the agent, and kills its supervisor when it waits.
func deferredOnce(w *setting, argv []string) (again []string, err error) {
	r, err := w.supervise(argv)
	if err != nil {
		return nil, err
	}
	defer r.end()
	again, err = r.again()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, r.out.String())
	}
	return again, nil
}

func deferredOnly(w *setting) error {
	again, err := deferredOnce(w, w.agentLine())
	if err == nil {
		_, err = deferredOnce(w, again)
	}
	return err
}

// deferral restarts all of it before the decision, and takes it up again after it, too.
func deferral(w *setting, allow bool) error {
	again, err := deferredOnce(w, w.agentLine())
	if err != nil {
		return err
	}
	if err := then((*setting).kill, (*setting).serve)(w); err != nil {
		return err
	}
	r, err := w.supervise(again)
	if err != nil {
		return err
	}
	defer r.end()
	if again, err = r.again(); err != nil {
		return err
	}
	want := 0
	if allow {
		err, want = w.approve(), 1
	} else if err = w.awaitPending(r); err == nil {
		err = denyIt(w)
	}
	if err != nil {
		return err
	}
	<-r.ended
	if made, err := w.effects(); err != nil || made["0"] != want {
		return errors.Join(err, fmt.Errorf("after the decision it ran %d times: %s", made["0"], r.out.String()))
	}
	r2, err := w.supervise(again) // a second one, of the same deferral
	if err != nil {
		return err
	}
	defer r2.end()
	<-r2.ended
	return nil
}
