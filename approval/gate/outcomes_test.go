package gate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/security/policy"
)

// Every way a decided request can end: what the agent reads, how often the handler
// ran, what the audit log says.
func TestOutcomes(t *testing.T) {
	const question = `{"request_id":"0000000100000000abcdef01","type":"question","title":"Which?"}`
	code := func(c string) func(*decide.Input) { return func(a *decide.Input) { a.Code = c } }
	for name, c := range map[string]struct {
		tool    string
		verdict approval.Verdict
		fill    func(*decide.Input)
		between func(*rig, approval.Key) // after the decision, before the gate sees it
		want    string
		ran     int
		history []event.Kind // after approval_requested
		check   func(*testing.T, *approval.Response)
	}{
		"approve": {
			tool: "run", verdict: approval.Approved, fill: code("1"), want: "approved", ran: 1,
			history: []event.Kind{event.Approved, event.Executed},
			check: func(t *testing.T, r *approval.Response) {
				require.JSONEq(t, `{"done":true}`, string(r.Result))
				require.Equal(t, "1", *r.Decision.Code)
				require.Equal(t, "ann", *r.Decision.By)
				require.Equal(t, "cli", *r.Decision.Via)
				require.False(t, r.Decision.Auto)
				require.NotNil(t, r.Receipt)
			},
		},
		"approve with a note": {
			tool: "run", verdict: approval.Approved, want: "approved", ran: 1,
			fill:    func(a *decide.Input) { a.Code, a.Note = "4", "mind the\ntime zone" },
			history: []event.Kind{event.Approved, event.Executed},
			check:   func(t *testing.T, r *approval.Response) { require.Equal(t, "mind the\ntime zone", *r.Decision.Note) },
		},
		"approve without a handler": {
			tool: "receipt", verdict: approval.Approved, want: "approved", ran: 1,
			history: []event.Kind{event.Approved, event.Released},
			check:   func(t *testing.T, r *approval.Response) { require.NotNil(t, r.Receipt) },
		},
		"the handler fails": {
			tool: "fails", verdict: approval.Approved, want: "failed: Execution failed: boom", ran: 1,
			history: []event.Kind{event.Approved, event.Failed},
		},
		"deny with a reason": {
			tool: "run", verdict: approval.Denied, want: "denied: Denied by user",
			fill:    func(a *decide.Input) { a.Code, a.Feedback = "3", "not on a Sunday" },
			history: []event.Kind{event.DeniedByUser},
			check: func(t *testing.T, r *approval.Response) {
				require.Equal(t, "not on a Sunday", *r.Feedback)
				require.Nil(t, r.Receipt)
			},
		},
		"override": {
			tool: "run", verdict: approval.Overridden,
			fill:    func(a *decide.Input) { a.Code, a.Override = "5", "at six, not at five" },
			want:    "overridden: Not run: the approver asks for a change, see decision.override",
			history: []event.Kind{event.Overridden},
			check: func(t *testing.T, r *approval.Response) {
				require.Equal(t, "at six, not at five", *r.Decision.Override)
			},
		},
		"request_more": {
			tool: "run", verdict: approval.RequestMore,
			fill:    func(a *decide.Input) { a.Feedback = "to whom?" },
			want:    "request_more: Not run: the approver asks for more, see feedback",
			history: []event.Kind{event.RequestMore},
			check: func(t *testing.T, r *approval.Response) {
				require.Equal(t, "to whom?", *r.Feedback)
				require.Equal(t, "answer_from_facts_or_resubmit", *r.RequiredResponse)
			},
		},
		"a question is answered": {
			verdict: approval.Answered, fill: func(a *decide.Input) { a.Text = "the \"second\"" }, want: "answered",
			history: []event.Kind{event.Answered},
			check: func(t *testing.T, r *approval.Response) {
				require.JSONEq(t, `{"answer":"the \"second\""}`, string(r.Result))
			},
		},
		"the tool is gone": {
			tool: "run", verdict: approval.Approved, want: "failed: Approved but tool 'run' is no longer available",
			between: func(h *rig, _ approval.Key) { h.setTool("run", approval.Tool{}) },
			history: []event.Kind{event.Failed},
		},
		"the tool changed": {
			tool: "run", verdict: approval.Approved, want: "failed: the tool changed, ask again",
			between: func(h *rig, _ approval.Key) {
				h.setTool("run", approval.Tool{Name: "run", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/other"}}})
			},
			history: []event.Kind{event.Failed},
		},
		"at run_before": {
			tool: "run", verdict: approval.Approved, want: "approved", ran: 1,
			between: func(h *rig, _ approval.Key) { h.clock.move(gate.DefaultRunBefore) },
			history: []event.Kind{event.Approved, event.Executed},
		},
		"run_before has passed": {
			tool: "run", verdict: approval.Approved, want: "expired: approved in time, not run: the gate was down",
			between: func(h *rig, _ approval.Key) { h.clock.move(gate.DefaultRunBefore + time.Nanosecond) },
			history: []event.Kind{event.Expired},
		},
		"approved after the client gave up": {
			// The client's timeout does not affect the gate: the response is there
			// when the client returns.
			tool: "run", verdict: approval.Approved, want: "approved", ran: 1,
			between: func(h *rig, k approval.Key) {
				ctx, giveUp := context.WithTimeout(context.Background(), time.Millisecond)
				defer giveUp()
				<-ctx.Done()
				require.False(h.t, h.has(approval.DocResponse, k), "not yet")
			},
			history: []event.Kind{event.Approved, event.Executed},
		},
		"cancelled too late": {
			tool: "run", verdict: approval.Approved, want: "approved", ran: 1,
			between: func(h *rig, k approval.Key) { h.cancel(k) },
			history: []event.Kind{event.Approved, event.Executed},
		},
		"approved in time, seen after the deadline": {
			tool: "run", verdict: approval.Approved, want: "approved", ran: 1,
			between: func(h *rig, _ approval.Key) { h.clock.move(9 * time.Minute) }, // the request's timeout is 5 minutes
			history: []event.Kind{event.Approved, event.Executed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := newRig(t, options{frozenClock: true, inline: true, timeout: 5 * time.Minute}), key(1)
			if c.tool == "" {
				k.ID = "0000000100000000abcdef01"
				h.ask(k, question)
			} else {
				h.ask(k, request(k, c.tool, `{"n":1}`))
			}
			a := decision(k, c.verdict)
			if c.fill != nil {
				c.fill(&a)
			}
			h.decide(a)
			if c.between != nil {
				c.between(h, k)
			}
			h.step(k)
			require.Equal(t, c.want, h.outcome(k))
			require.Len(t, h.executor.argsOf(k), c.ran)
			require.True(t, h.isSettled(k))
			require.Equal(t, append([]event.Kind{event.Requested}, c.history...), h.history(k))
			rec := h.record(k)
			require.Equal(t, string(h.read(approval.DocResponse, k)), string(rec.Response), "the record holds the response's bytes")
			require.NotEmpty(t, rec.Decision)
			if c.check != nil {
				c.check(t, h.response(k))
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	h, k := newRig(t, options{frozenClock: true, inline: true}), key(1)
	h.ask(k, request(k, "run", "", `"expires_in_sec":60`))
	h.clock.move(time.Minute - time.Nanosecond)
	h.step(k)
	require.Equal(t, "none", h.outcome(k), "one nanosecond before")
	h.clock.move(time.Nanosecond)
	h.step(k)
	require.Equal(t, "expired: Approval expired (no response within timeout)", h.outcome(k))
	require.Equal(t, []event.Kind{event.Requested, event.Expired}, h.history(k))
	_, err := h.decider().Decide(context.Background(), decision(k, approval.Approved))
	require.ErrorIs(t, err, decide.ErrDecided)
	h.step(k)
	require.Zero(t, h.executor.count())
}

// The ticker keeps the deadline without an event. Start does the same for what
// expired while no daemon ran.
func TestDeadlineNeedsNoEvent(t *testing.T) {
	h := newRig(t, options{timeout: 300 * time.Millisecond})
	h.run(0)
	began := time.Now()
	h.writeRequest(key(1), request(key(1), "run", ""))
	h.gate.Wake(key(1))
	h.waitResponse(key(1), 5*time.Second)
	require.Greater(t, time.Since(began), 300*time.Millisecond)
	require.Equal(t, "expired: Approval expired (no response within timeout)", h.outcome(key(1)))

	h.writeRequest(key(2), request(key(2), "run", ""))
	h.gate.Wake(key(2))
	h.waitFor(5*time.Second, "pending", func() bool { return h.has(approval.DocPending, key(2)) })
	h.close()
	h.clock.move(time.Hour)
	h.open()
	h.run(0)
	h.waitResponse(key(2), 5*time.Second)
	require.Equal(t, "expired: Approval expired (no response within timeout)", h.outcome(key(2)))
}

func TestCancel(t *testing.T) {
	h := newRig(t, options{inline: true})
	h.ask(key(1), request(key(1), "run", ""))
	h.cancel(key(1))
	h.step(key(1))
	require.Equal(t, "cancelled: Cancelled before a decision", h.outcome(key(1)))
	require.Equal(t, []event.Kind{event.Requested, event.Cancelled}, h.history(key(1)))

	h.cancel(key(2)) // there is no such request
	h.step(key(2))
	require.Equal(t, "none", h.outcome(key(2)))
	names, err := os.ReadDir(h.layout.Requests(personal))
	require.NoError(t, err)
	require.Empty(t, names)
}

// The cancel file may have a reason. Whatever the file is, it cancels.
func TestCancelReason(t *testing.T) {
	h := newRig(t, options{inline: true})
	for i, tc := range []struct{ why, file, want string }{
		{"an empty file", "", ""},
		{"a text", " the branch\nis gone\u202e \n", "the branch\nis gone\u202e"},
		{"no UTF-8", "a\xffb", "a\ufffdb"},
		{"longer than the limit", strings.Repeat("é", 200), strings.Repeat("é", 150) + "…"},
		{"larger than what is read", strings.Repeat("x", 5000), ""},
	} {
		k := key(i + 1)
		h.ask(k, request(k, "run", ""))
		require.NoError(t, os.WriteFile(filepath.Join(h.layout.Requests(personal), k.ID+".cancel"), []byte(tc.file), 0o644))
		h.step(k)
		r := h.waitResponse(k, 5*time.Second)
		require.Equal(t, approval.StatusCancelled, r.Status, tc.why)
		if tc.want == "" {
			require.Nil(t, r.Feedback, tc.why)
			continue
		}
		require.Equal(t, tc.want, *r.Feedback, tc.why)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("not the agent's"), 0o644))
	for i, link := range []func(name string) error{
		func(name string) error { return os.Symlink(secret, name) },
		func(name string) error { return os.Mkdir(name, 0o755) },
	} {
		k := key(100 + i)
		h.ask(k, request(k, "run", ""))
		require.NoError(t, link(filepath.Join(h.layout.Requests(personal), k.ID+".cancel")))
		h.step(k)
		r := h.waitResponse(k, 5*time.Second)
		require.Equal(t, approval.StatusCancelled, r.Status)
		require.Nil(t, r.Feedback, "no file of the host is read")
	}
}

// Start recovers everything that a crash leaves, and a second recovery changes
// nothing.
func TestCrashSweep(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	waits, decided, late, orphan, claimed, rerun, dropped := key(1), key(2), key(3), key(4), key(5), key(6), key(7)
	for _, k := range []approval.Key{waits, decided, late} {
		h.ask(k, request(k, "run", ""))
	}
	h.decide(decision(decided, approval.Approved))
	h.crashAtClaim(claimed, "run")
	h.crashAtClaim(rerun, "again")
	h.writeRequest(dropped, request(dropped, "auto", ""))
	require.NoError(t, h.store.Commit(context.Background(), volatile(approval.DocDecision, orphan, []byte(`{}`))))
	temp := filepath.Join(h.layout.Decisions(personal), ".tmp-1234")
	require.NoError(t, os.WriteFile(temp, []byte("half"), 0o600))

	h.reopen()
	h.step(h.keys...)
	require.Equal(t, "none", h.outcome(waits), "still pending")
	require.Equal(t, "approved", h.outcome(decided))
	require.Equal(t, "none", h.outcome(late))
	require.Equal(t, "none", h.outcome(orphan))
	require.False(t, h.has(approval.DocDecision, orphan))
	require.Equal(t, "interrupted: Interrupted: the tool was started and its outcome is unknown; check before retrying", h.outcome(claimed))
	require.Empty(t, h.executor.argsOf(claimed), "never silently run again")
	require.Equal(t, "approved", h.outcome(rerun))
	require.Len(t, h.executor.argsOf(rerun), 1, "one rerun")
	require.Equal(t, "auto_approved", h.outcome(dropped))
	require.NoFileExists(t, temp)

	before := h.files()
	h.reopen()
	h.step(h.keys...)
	require.Equal(t, before, h.files(), "a second recovery changes nothing")
	h.clock.move(time.Hour)
	h.step(late)
	require.Equal(t, "expired: Approval expired (no response within timeout)", h.outcome(late))
}

// crashAtClaim leaves the files of a gate that crashed between claim and effect.
func (h *rig) crashAtClaim(k approval.Key, tool string) {
	h.ask(k, request(k, tool, ""))
	h.decide(decision(k, approval.Approved))
	healthy := h.gate.Executor
	h.gate.Executor = crashingExecutor{}
	require.PanicsWithValue(h.t, errCrash, func() { _, _ = h.gate.Step(context.Background(), k) })
	h.gate.Executor = healthy
	require.True(h.t, h.has(approval.DocClaim, k))
}

var errCrash = errors.New("power cut")

type crashingExecutor struct{}

func (crashingExecutor) Run(context.Context, approval.Job) approval.Effect { panic(errCrash) }

func (crashingExecutor) Resume(context.Context, approval.Job) approval.Effect { panic(errCrash) }

// files are all documents, without the logs.
func (h *rig) files() map[string]string {
	all := map[string]string{}
	for _, dir := range []string{"ipc", "receipts", "records"} {
		require.NoError(h.t, filepath.Walk(filepath.Join(h.layout.Home, dir), func(path string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			all[path] = string(b)
			return err
		}))
	}
	return all
}

// An idempotent tool runs once more after an interruption, with the same key, and
// never a third time.
func TestIdempotentRerun(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.crashAtClaim(k, "again")
	h.reopen()
	h.gate.Executor = crashingExecutor{}
	require.PanicsWithValue(t, errCrash, func() { h.step(k) })
	require.True(t, h.has(approval.DocAgain, k))
	h.reopen()
	h.step(h.keys...)
	require.Empty(t, h.executor.argsOf(k), "no third run")
	require.Equal(t, approval.StatusInterrupted, h.response(k).Status)
	require.True(t, h.isSettled(k))

	// A tool that is no longer idempotent, or was replaced, is not run again.
	for n, tool := range []approval.Tool{
		{Name: "again", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/again"}}},
		{Name: "again", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/else"}, Idempotent: true}},
		{},
	} {
		h, k := newRig(t, options{inline: true}), key(n)
		h.crashAtClaim(k, "again")
		h.setTool("again", tool)
		h.reopen()
		h.step(h.keys...)
		require.Empty(t, h.executor.argsOf(k))
		require.Equal(t, approval.StatusInterrupted, h.response(k).Status)
	}
}

func TestIdempotentRerunCarriesItsKey(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.crashAtClaim(k, "again")
	h.reopen()
	h.step(h.keys...)
	require.Len(t, h.executor.jobs, 1)
	require.Equal(t, k.ID, h.executor.jobs[0].Key)
	require.Equal(t, "approved", h.outcome(k))
}

// If the claim cannot be committed, nothing runs. It is tried again until the approval has
// expired; then the outcome says that nothing ran.
func TestNothingRunsWithoutClaim(t *testing.T) {
	boom := errors.New("no space left on device")
	for _, inline := range []bool{true, false} {
		t.Run(fmt.Sprintf("inline %v", inline), func(t *testing.T) {
			h := newRig(t, options{inline: inline, frozenClock: true, store: func(s store.Store) store.Store {
				return failing(s, "Commit", approval.DocClaim, boom)
			}})
			h.ask(key(1), request(key(1), "run", ""))
			h.decide(decision(key(1), approval.Approved))
			h.writeRequest(key(2), request(key(2), "auto", ""))
			for range 3 {
				for _, k := range []approval.Key{key(1), key(2)} {
					_, err := h.gate.Step(context.Background(), k)
					require.ErrorIs(t, err, boom)
					require.Equal(t, "none", h.outcome(k))
				}
			}
			h.clock.move(gate.DefaultRunBefore + time.Second)
			h.step(key(1))
			require.Equal(t, "expired: approved in time, not run: the gate was down", h.outcome(key(1)))
			require.Zero(t, h.executor.count())
		})
	}
}

// The second claim of an idempotent tool fails: nothing runs before it is committed.
func TestUnclaimedRerunWaits(t *testing.T) {
	boom := errors.New("no space left on device")
	h, k := newRig(t, options{inline: true}), key(1)
	h.crashAtClaim(k, "again")
	h.reopen()
	healthy := h.gate.Store
	h.gate.Store = failing(healthy, "Commit", approval.DocAgain, boom)
	_, err := h.gate.Step(context.Background(), k)
	require.ErrorIs(t, err, boom)
	require.Zero(t, h.executor.count())
	require.Equal(t, "none", h.outcome(k))
	h.gate.Store = healthy
	h.step(k)
	require.Equal(t, 1, h.executor.count())
	require.Equal(t, "approved", h.outcome(k))
}

// An outcome that cannot be written stays in memory, and is written later without a
// second run.
func TestOutcomeWaitsForDisk(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.writeRequest(k, request(k, "auto", ""))
	healthy := h.gate.Store
	h.gate.Store = failing(healthy, "Commit", approval.DocRecord, errors.New("no space left"))
	for range 3 {
		_, err := h.gate.Step(context.Background(), k)
		require.ErrorContains(t, err, "no space left")
		require.False(t, h.has(approval.DocResponse, k), "the record comes first")
	}
	h.gate.Store = healthy
	h.step(k)
	require.Equal(t, "auto_approved", h.outcome(k))
	require.Len(t, h.executor.argsOf(k), 1)
	require.True(t, h.isSettled(k))
}

// A deny, an allow, and an allow for a tool that does not exist.
func TestRulings(t *testing.T) {
	h := newRig(t, options{inline: true, rules: []policy.Rule{{Name: "any", Tool: policy.Names{"ghost"}, Outcome: approval.Allow}}})
	h.writeRequest(key(1), request(key(1), "never", ""))
	h.writeRequest(key(2), request(key(2), "ghost", ""))
	h.writeRequest(key(3), request(key(3), "auto", ""))
	h.step(key(1), key(2), key(3))
	require.Equal(t, `auto_rejected: Denied by policy: rule_deny rule=never words=no`, h.outcome(key(1)))
	require.Equal(t, "auto_rejected: tool_unknown tool=ghost", h.outcome(key(2)), "a rule's allow configures no tool")
	require.Equal(t, "auto_approved", h.outcome(key(3)))
	require.True(t, h.response(key(3)).Decision.Auto)
	require.Equal(t, []event.Kind{event.AutoApproved, event.Executed}, h.history(key(3)))
	require.Equal(t, []event.Kind{event.AutoRejected}, h.history(key(1)))
}
