package gate_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
)

// changingConfig changes after it was read n times.
type changingConfig struct {
	*rig
	mu       sync.Mutex
	reads    int
	changeAt int
	change   func()
}

func (c *changingConfig) countRead() {
	c.mu.Lock()
	c.reads++
	now := c.reads == c.changeAt
	c.mu.Unlock()
	if now {
		c.change()
	}
}

// Config is Gate.Config.
func (c *changingConfig) Config() (gate.Settings, gate.Policy) {
	defer c.countRead()
	c.rig.mu.Lock()
	defer c.rig.mu.Unlock()
	m := &configSnapshot{tools: map[string]approval.Tool{}, ws: c.rig}
	for name, tool := range c.tools {
		m.tools[name] = tool
	}
	return m, m
}

// Reserve allows everything.
func (m *configSnapshot) Reserve(approval.Facts, approval.Ruling, bool) (undo func(), refused *approval.Ruling) {
	return func() {}, nil
}

func (m *configSnapshot) JudgeProgram(steps []approval.Facts) (run approval.Ruling, each []approval.Ruling) {
	return approval.Ruling{}, make([]approval.Ruling, len(steps))
}

func (m *configSnapshot) OffersProgram(approval.Facts, []approval.Facts, approval.Ruling) []approval.Offer {
	return nil
}

func (m *configSnapshot) Offers(approval.Facts, approval.Ruling) []approval.Offer { return nil }

func (m *configSnapshot) Recurrence(string, string, string) int { return 0 }

type configSnapshot struct {
	tools map[string]approval.Tool
	ws    *rig
}

func (m *configSnapshot) Workspace(name string) (approval.Workspace, bool) {
	return m.ws.Workspace(name)
}

func (m *configSnapshot) ToolNames() []string { return slices.Sorted(maps.Keys(m.tools)) }

func (m *configSnapshot) Tool(name string) (approval.Tool, bool) {
	t, ok := m.tools[name]
	return t, ok
}

func (m *configSnapshot) Provers() facts.Provers { return nil }

// Judge allows the tool only in this configuration's harmless form.
func (m *configSnapshot) Judge(f approval.Facts) approval.Ruling {
	if t := m.tools[f.Tool]; len(t.Handler.Argv) > 0 && t.Handler.Argv[0] == "/bin/harmless" {
		return approval.Ruling{Outcome: approval.Allow, Rule: "harmless"}
	}
	return approval.Ruling{Outcome: approval.Ask, Rule: "else"}
}

// If the configuration changes during a step, the tool that runs is the tool that was
// evaluated or shown.
func TestConfigurationChangesWithinStep(t *testing.T) {
	form := func(argv0 string) approval.Tool {
		return approval.Tool{Name: "x", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{argv0}}}
	}
	for changeAt := 1; changeAt <= 12; changeAt++ {
		h := newRig(t, options{frozenClock: true, inline: true, tools: map[string]approval.Tool{"x": form("/bin/dangerous")}})
		c := &changingConfig{rig: h}
		h.gate.Config = c.Config

		asked, allowed := key(1), key(2)
		h.ask(asked, request(asked, "x", "")) // shown: dangerous
		h.decide(decision(asked, approval.Approved))
		c.reads, c.changeAt, c.change = 0, changeAt, func() { h.setTool("x", form("/bin/harmless")) }
		h.step(asked)
		for _, job := range h.executor.jobsDone() {
			require.Equal(t, "/bin/dangerous", job.Tool.Handler.Argv[0], "change %d: another tool was approved", changeAt)
		}
		before := len(h.executor.jobsDone())

		h.setTool("x", form("/bin/dangerous"))
		c.reads = 0
		h.writeRequest(allowed, request(allowed, "x", ""))
		h.step(allowed)
		for _, job := range h.executor.jobsDone()[before:] {
			require.Equal(t, "/bin/harmless", job.Tool.Handler.Argv[0], "change %d: another tool was allowed", changeAt)
		}
	}
}

func (x *fakeExecutor) jobsDone() []approval.Job {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]approval.Job(nil), x.jobs...)
}

// New limits apply at once; what is used up stays used up.
func TestReconfigured(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true, limits: approval.Limits{AskPerMinute: 2, Pending: 100}})
	for i := range 3 {
		h.writeRequest(key(i), request(key(i), "run", ""))
		h.step(key(i))
	}
	require.Contains(t, h.outcome(key(2)), "limit_asks n=2")
	h.options.limits.AskPerMinute = 3
	h.gate.Reconfigured()
	h.writeRequest(key(3), request(key(3), "run", ""))
	h.step(key(3))
	require.Contains(t, h.outcome(key(3)), "limit_asks n=3", "two of three are used, and the clock is frozen")
	h.clock.move(21 * time.Second)
	h.writeRequest(key(4), request(key(4), "run", ""))
	h.step(key(4))
	require.True(t, h.has(approval.DocPending, key(4)))
}

// A probe gets through while one workspace hangs, and not when all workers hang.
func TestAlive(t *testing.T) {
	for _, tt := range []struct {
		why   string
		stuck []string
		alive bool
	}{
		{"idle", nil, true},
		{"one workspace hangs", []string{personal}, true},
		{"every worker hangs", []string{personal, other}, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			stuck, hang := map[string]bool{}, make(chan struct{})
			for _, ws := range tt.stuck {
				stuck[ws] = true
			}
			h := newRig(t, options{store: func(s store.Store) store.Store {
				return before(s, "Read", "", func(k approval.Key) {
					if stuck[k.Workspace] {
						<-hang
					}
				})
			}})
			release := sync.OnceFunc(func() { close(hang) })
			t.Cleanup(release)
			h.run(0)
			for _, ws := range tt.stuck {
				for i := range 200 {
					h.gate.Wake(keyIn(ws, i))
				}
			}
			within := 500 * time.Millisecond
			if tt.alive {
				within = time.Minute // it answers at once, also on a busy machine
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			var err error
			for n := 0; err == nil && (n < 5 || !tt.alive); n++ { // the workers block one by one
				err = h.gate.Alive(ctx)
			}
			if tt.alive {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			release()
			require.NoError(t, h.gate.Alive(t.Context()), "alive again")
		})
	}
}
