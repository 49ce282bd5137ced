package gate_test

import (
	"context"
	"errors"
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

// A refusal writes nothing: the request stays pending, and an approver can still
// decide it.
func TestDecideRefuses(t *testing.T) {
	yes := func(k approval.Key) decide.Input { return decision(k, approval.Approved) }
	question := func(k approval.Key) string {
		return `{"request_id":"` + k.ID + `","type":"question","title":"Which?","options":["a","b"]}`
	}
	exec := func(k approval.Key) string {
		return `{"request_id":"` + k.ID + `","action_type":"exec_cmd","request_data":{"command":"go test ./a"}}`
	}
	patterns := func(d *gate.Decider) { d.Pattern = policy.Pattern }
	pattern := func(line, code string) func(approval.Key) decide.Input {
		return func(k approval.Key) decide.Input {
			a := decide.ByCode(code, "")
			a.Key, a.Commands, a.By, a.Via = k, line, person("ann"), "cli"
			return a
		}
	}
	for name, c := range map[string]struct {
		body   func(approval.Key) string // nil: an action that asks
		change func(*gate.Decider)
		late   time.Duration
		answer func(approval.Key) decide.Input
		reason error
		want   string
	}{
		"an unknown person": {
			answer: func(k approval.Key) decide.Input {
				a := yes(k)
				a.By = approval.Person{Channel: "telegram", ID: "666", Name: "ann"} // a name proves nothing
				return a
			},
			reason: decide.ErrNotAuthorized, want: "nothing here for you",
		},
		"May is not set": {
			change: func(d *gate.Decider) { d.May = nil },
			answer: yes, reason: decide.ErrNotAuthorized, want: "nothing here for you",
		},
		"the pending differs from the one shown": {
			answer: func(k approval.Key) decide.Input {
				a := yes(k)
				a.PendingSHA256 = approval.Digest([]byte("what was shown"))
				return a
			},
			reason: decide.ErrChanged, want: "the request changed since it was shown: look at it again",
		},
		"at the deadline": {
			late: time.Hour, answer: yes, reason: decide.ErrTooLate, want: "too late: it expired at 2026-01-02T04:04:05Z",
		},
		"after the deadline": {
			late: 2 * time.Hour, answer: yes, reason: decide.ErrTooLate, want: "too late: it expired at 2026-01-02T04:04:05Z",
		},
		"a question is not approved": {
			body: question, answer: yes, reason: decide.ErrNotApplicable, want: "not possible here: it is a question: answer it",
		},
		"an action is not answered": {
			answer: func(k approval.Key) decide.Input {
				a := decision(k, approval.Answered)
				a.Text = "b"
				return a
			},
			reason: decide.ErrNotApplicable, want: "not possible here: it is not a question: approve or deny it",
		},
		"an empty answer": {
			body:   question,
			answer: func(k approval.Key) decide.Input { return decision(k, approval.Answered) },
			reason: decide.ErrNotApplicable, want: "not possible here: the answer is empty",
		},
		"an empty override": {
			answer: func(k approval.Key) decide.Input { return decision(k, approval.Overridden) },
			reason: decide.ErrNotApplicable, want: "not possible here: the override is empty: write the change",
		},
		"a request for more without a question": {
			answer: func(k approval.Key) decide.Input { return decision(k, approval.RequestMore) },
			reason: decide.ErrNotApplicable, want: "not possible here: the feedback is empty: write your question",
		},
		"a session scope without a session": {
			answer: func(k approval.Key) decide.Input {
				a := yes(k)
				a.Scope = approval.Session
				return a
			},
			reason: decide.ErrNotApplicable, want: "not possible here: no_session: allow it once",
		},
		"always, for a command that opens a shell": {
			body: func(k approval.Key) string {
				return `{"request_id":"` + k.ID + `","action_type":"exec_cmd","request_data":{"argv":["sh"]}}`
			},
			answer: func(k approval.Key) decide.Input {
				a := yes(k)
				a.Scope = approval.Always
				return a
			},
			reason: decide.ErrNotApplicable, want: "not possible here: command_interprets program=sh: allow it once",
		},
		"a pattern that does not cover the command": {
			body: exec, change: patterns, answer: pattern("go vet ...", "6"),
			reason: decide.ErrNotApplicable, want: "not possible here: pattern_other",
		},
		"a pattern for a shell": {
			body: exec, change: patterns, answer: pattern("sh ...", "6"),
			reason: decide.ErrNotApplicable, want: "not possible here: command_interprets program=sh",
		},
		"a pattern with code 1": {
			body: exec, change: patterns, answer: pattern("go test ...", "1"),
			reason: decide.ErrNotApplicable, want: "not possible here: only code 6 has a command pattern",
		},
		"a pattern where there is no command": {
			change: patterns, answer: pattern("go test ...", "6"),
			reason: decide.ErrNotApplicable, want: "not possible here: command_none",
		},
		"a pattern from a chat": {
			body: exec,
			change: func(d *gate.Decider) {
				patterns(d)
				d.May = func(string, *approval.Pending, approval.Person) (string, bool) { return "ann", true }
			},
			answer: func(k approval.Key) decide.Input {
				a := pattern("go test ...", "6")(k)
				a.By = approval.Person{Channel: "telegram", ID: "1", Name: "ann"}
				return a
			},
			reason: decide.ErrNotApplicable,
			want:   "not possible here: a command pattern is given on the daemon's host",
		},
		"only the agent cancels": {
			answer: func(k approval.Key) decide.Input { return decision(k, approval.Cancelled) },
			reason: decide.ErrNotApplicable, want: "not possible here: the verdict must be approved, denied, answered, overridden or request_more",
		},
		"only the deadline expires": {
			answer: func(k approval.Key) decide.Input { return decision(k, approval.Expired) },
			reason: decide.ErrNotApplicable, want: "not possible here: the verdict must be approved, denied, answered, overridden or request_more",
		},
		"no verdict": {
			answer: func(k approval.Key) decide.Input { return decision(k, "") },
			reason: decide.ErrNotApplicable, want: "not possible here: the verdict must be approved, denied, answered, overridden or request_more",
		},
		"an unknown verdict": {
			answer: func(k approval.Key) decide.Input { return decision(k, "perhaps") },
			reason: decide.ErrNotApplicable, want: "not possible here: the verdict must be approved, denied, answered, overridden or request_more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := newRig(t, options{frozenClock: true, inline: true}), key(1)
			body := request(k, "run", "")
			if c.body != nil {
				body = c.body(k)
			}
			h.ask(k, body)
			h.clock.move(c.late)
			d := h.decider()
			if c.change != nil {
				c.change(d)
			}
			_, err := d.Decide(context.Background(), c.answer(k))
			requireRefusal(t, err, c.reason, c.want)
			require.False(t, h.has(approval.DocDecision, k), "the slot is free")
			h.clock.move(-c.late)
			h.decide(decision(k, approval.Denied))
			h.step(k)
			require.Equal(t, "denied: Denied by user", h.outcome(k))
			require.Zero(t, h.executor.count())
		})
	}
}

func requireRefusal(t testing.TB, err, reason error, want string) {
	t.Helper()
	var ref *decide.Refusal
	require.ErrorAs(t, err, &ref)
	require.ErrorIs(t, err, reason)
	require.Equal(t, want, err.Error())
}

func TestDecideRefusesUnknownRequest(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	_, err := h.decider().Decide(context.Background(), decision(key(404), approval.Approved))
	requireRefusal(t, err, decide.ErrUnknown, "no such request: no pending request has this ID")

	d := h.decider()
	d.May = nil
	_, err = d.Decide(context.Background(), decision(key(404), approval.Approved))
	requireRefusal(t, err, decide.ErrNotAuthorized, "nothing here for you")

	// A host program's document is not a pending before the gate has evaluated it.
	k := key(1)
	require.NoError(t, h.store.Commit(context.Background(), volatile(approval.DocPending, k, []byte(request(k, "run", "")))))
	_, err = h.decider().Decide(context.Background(), decision(k, approval.Approved))
	requireRefusal(t, err, decide.ErrUnknown, "no such request: no pending request has this ID")
	require.False(t, h.has(approval.DocDecision, k))
}

// The second decider gets the first decision, its decider and its time: before the
// request is settled and after.
func TestDecideReportsFirstDecision(t *testing.T) {
	h, k := newRig(t, options{frozenClock: true, inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	h.decide(decision(k, approval.Approved))

	second := decision(k, approval.Denied)
	second.By = person("bob")
	const first = "already decided: approved by ann at 2026-01-02T03:04:05Z"
	_, err := h.decider().Decide(context.Background(), second)
	requireRefusal(t, err, decide.ErrDecided, first)

	h.clock.move(2 * time.Hour) // also after the deadline
	_, err = h.decider().Decide(context.Background(), second)
	requireRefusal(t, err, decide.ErrDecided, first)
	h.clock.move(-2 * time.Hour)

	h.step(k)
	require.Equal(t, "approved", h.outcome(k))
	_, err = h.decider().Decide(context.Background(), second)
	requireRefusal(t, err, decide.ErrDecided, first)
	_, err = h.decider().Decide(context.Background(), decision(k, approval.Approved)) // the same person, twice
	requireRefusal(t, err, decide.ErrDecided, first)
	require.Len(t, h.executor.argsOf(k), 1)

	// Without a decision, the refusal names the status.
	h.writeRequest(key(2), request(key(2), "auto", ""))
	h.step(key(2))
	_, err = h.decider().Decide(context.Background(), decision(key(2), approval.Denied))
	requireRefusal(t, err, decide.ErrDecided, "already decided: it ended as auto_approved")
}

func TestRefusedDeciderIsReported(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	var tried []string
	d := h.decider()
	d.Refused = func(k approval.Key, by approval.Person, via string) {
		tried = append(tried, k.ID+" "+by.Channel+":"+by.ID+" "+via)
	}
	a := decision(k, approval.Approved)
	a.By, a.Via = approval.Person{Channel: "telegram", ID: "666"}, "telegram"
	_, err := d.Decide(context.Background(), a)
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
	require.Equal(t, []string{k.ID + " telegram:666 telegram"}, tried)
}

func TestCanDecideWritesNothing(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	d, a := h.decider(), decision(k, "")
	require.NoError(t, d.CanDecide(context.Background(), a))
	require.False(t, h.has(approval.DocDecision, k))
	unauthorized, unknown, shown := a, decision(key(2), ""), a
	unauthorized.By = approval.Person{Channel: "telegram", ID: "666"}
	shown.PendingSHA256 = strings.Repeat("0", 64)
	require.ErrorIs(t, d.CanDecide(context.Background(), unauthorized), decide.ErrNotAuthorized)
	require.ErrorIs(t, d.CanDecide(context.Background(), unknown), decide.ErrUnknown)
	require.ErrorIs(t, d.CanDecide(context.Background(), shown), decide.ErrChanged)
	h.decide(decision(k, approval.Denied))
	require.ErrorIs(t, d.CanDecide(context.Background(), a), decide.ErrDecided, "decided, not yet settled")
	h.step(k)
	require.ErrorIs(t, d.CanDecide(context.Background(), a), decide.ErrDecided)
}

// A cancel by the operator competes for the slot like every other decision.
func TestOperatorCancels(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	d := h.decider()
	unauthorized := decision(k, "")
	unauthorized.By = approval.Person{Channel: "telegram", ID: "666"}
	_, err := d.Cancel(context.Background(), unauthorized)
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
	dec, err := d.Cancel(context.Background(), decision(k, approval.Approved))
	require.NoError(t, err)
	require.Equal(t, approval.Cancelled, dec.Verdict, "whatever verdict was passed")
	require.False(t, dec.Approved)
	_, err = d.Decide(context.Background(), decision(k, approval.Approved))
	require.ErrorIs(t, err, decide.ErrDecided)
	h.step(k)
	require.True(t, h.isSettled(k))
	require.Zero(t, h.executor.count())
	require.Equal(t, "cancelled: Cancelled before a decision", h.outcome(k))
	require.Contains(t, h.history(k), event.Cancelled)
	_, err = d.Cancel(context.Background(), decision(k, ""))
	require.ErrorIs(t, err, decide.ErrDecided)
	_, err = d.Cancel(context.Background(), decision(key(2), ""))
	require.ErrorIs(t, err, decide.ErrUnknown)
}

// The request is settled between the slot check and the write. The late decision is
// refused and removed.
func TestDecideWithdrawsLateDecision(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	d := h.decider()
	d.Store = before(d.Store.(store.Store), "Commit", approval.DocDecision, func(approval.Key) {
		h.cancel(k)
		h.step(k)
	})
	_, err := d.Decide(context.Background(), decision(k, approval.Approved))
	var ref *decide.Refusal
	require.ErrorAs(t, err, &ref)
	require.ErrorIs(t, err, decide.ErrDecided, "the loser hears how it ended")
	require.Regexp(t, "^already decided: cancelled by agent at ", err.Error())
	require.Equal(t, "agent", ref.By)
	require.Equal(t, approval.Cancelled, ref.Verdict)
	h.step(k)
	require.True(t, h.isSettled(k))
	require.Zero(t, h.executor.count())
	require.Equal(t, "cancelled: Cancelled before a decision", h.outcome(k))
}

// A late decision is in the slot until it is withdrawn. A second decider must get the
// decision that counts, not the late one.
func TestDecideIgnoresLateDecisionInSlot(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	pending := h.read(approval.DocPending, k)
	late := decision(k, approval.Approved)
	late.By = person("late")
	h.decide(late)
	lateDecision := h.read(approval.DocDecision, k)
	require.NoError(t, h.store.Remove(context.Background(), approval.DocDecision, k))

	d := h.decider()
	d.Store = before(d.Store.(store.Store), "Commit", approval.DocDecision, func(approval.Key) {
		h.cancel(k)
		h.step(k)
		h.writeDoc(approval.DocDecision, k, string(lateDecision))
	})
	_, err := d.Decide(context.Background(), decision(k, approval.Denied))
	require.ErrorIs(t, err, decide.ErrDecided)
	require.Regexp(t, "^already decided: cancelled by agent at ", err.Error())

	// The same if the second decider read the pending before the settlement.
	h.writeDoc(approval.DocPending, k, string(pending))
	_, err = h.decider().Decide(context.Background(), decision(k, approval.Denied))
	require.Regexp(t, "^already decided: cancelled by agent at ", err.Error())
	h.step(k)
	require.True(t, h.isSettled(k))
	require.Zero(t, h.executor.count())
}

// A disk error is not a refusal. The decision is not acknowledged, and a retry works.
func TestDecideOnFailingDisk(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	boom := errors.New("no space left")
	d, healthy := h.decider(), h.decider()
	d.Store = failing(d.Store.(store.Store), "Commit", approval.DocDecision, boom)
	_, err := d.Decide(context.Background(), decision(k, approval.Approved))
	require.ErrorIs(t, err, boom)
	require.False(t, h.has(approval.DocDecision, k))
	_, err = healthy.Decide(context.Background(), decision(k, approval.Approved))
	require.NoError(t, err)
}

// The slot holds an invalid decision. Without ClearSlot the error says what to do; with
// ClearSlot the decision succeeds.
func TestDecideWithBlockedSlot(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	junk := []byte(`{"request_id":"` + k.ID + `","approved":true,"decided_by":"mallory"}`)
	require.NoError(t, h.store.Commit(context.Background(), volatile(approval.DocDecision, k, junk)))
	_, err := h.decider().Decide(context.Background(), decision(k, approval.Denied))
	require.ErrorContains(t, err, "the slot holds an invalid decision: start the daemon")

	d := h.decider()
	d.ClearSlot = func(context.Context, approval.Key) error {
		return d.ClearInvalid(context.Background(), k, func() error { return h.store.Refuse(context.Background(), k.Workspace, k.ID+".decision", "not valid") })
	}
	_, err = d.Decide(context.Background(), decision(k, approval.Denied))
	require.NoError(t, err)
	require.Contains(t, h.refusals(personal), "not valid")

	// ClearInvalid keeps a valid decision.
	require.NoError(t, d.ClearInvalid(context.Background(), k, func() error { return errors.New("described") }))
	require.True(t, h.has(approval.DocDecision, k))
	h.step(k)
	require.Equal(t, "denied: Denied by user", h.outcome(k))
}

// An input whose parts contradict each other decides nothing.
func TestContradictionsDecideNothing(t *testing.T) {
	for _, in := range []decide.Input{
		{Verdict: approval.Approved, Code: "3"},
		{Verdict: approval.Approved, Code: "5", Override: "do X"},
		{Verdict: approval.Approved, Code: "8"},
		{Code: "8"},
		{Code: "6"},
		{Scope: approval.Always},
		{Verdict: approval.Approved, Code: "2", Scope: approval.Always},
		{Verdict: approval.Approved, Code: "1", Scope: approval.Session},
		{Verdict: approval.Approved, Scope: "galaxy"},
		{Verdict: approval.Approved, Feedback: "no"},
		{Verdict: approval.Approved, Text: "yes"},
		{Verdict: approval.Denied, Code: "1"},
		{Verdict: approval.Denied, Scope: approval.Once},
		{Verdict: approval.Denied, Note: "fine"},
		{Verdict: approval.Denied, Override: "do X"},
		{Verdict: approval.Overridden, Code: "3", Override: "do X"},
		{Verdict: approval.RequestMore, Feedback: "who?", Text: "ann"},
	} {
		h := newRig(t, options{frozenClock: true, inline: true})
		h.ask(key(1), request(key(1), "run", ""))
		in.Key, in.By, in.Via = key(1), decision(key(1), approval.Approved).By, "cli"
		_, err := h.decider().Decide(t.Context(), in)
		require.ErrorIs(t, err, decide.ErrNotApplicable, "%+v", in)
		if in.Code == "8" {
			require.ErrorContains(t, err, "the code must be 1 to 7")
		}
		require.False(t, h.has(approval.DocDecision, key(1)))
	}
}

// A program may send a code without its scope, or a scope without a code. The code is its
// scope, also where the scope is refused.
func TestCodesMeanTheirScope(t *testing.T) {
	inSession := []string{`"session_id":"s1"`}
	for _, c := range []struct {
		code    string
		scope   approval.Scope
		more    []string // members of the request
		want    approval.Scope
		refused bool
	}{
		{want: approval.Once},
		{code: "1", want: approval.Once},
		{code: "2", more: inSession, want: approval.Session},
		{code: "2", refused: true}, // the request has no session
		{code: "4", want: approval.Once},
		{code: "6", want: approval.Always},
		{scope: approval.Session, more: inSession, want: approval.Session},
		{scope: approval.Session, refused: true},
	} {
		h, k := newRig(t, options{frozenClock: true, inline: true}), key(1)
		h.ask(k, request(k, "run", "", c.more...))
		a := decision(k, approval.Approved)
		a.Code, a.Scope = c.code, c.scope
		d, err := h.decider().Decide(t.Context(), a)
		if c.refused {
			require.ErrorIs(t, err, decide.ErrNotApplicable, "%+v", c)
			require.False(t, h.has(approval.DocDecision, k))
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, d.Scope, "%+v", c)
		require.Equal(t, c.code, d.Code)
	}
}
