package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// A daemon's decider accepts only the script that it serves with, and only in
// configured workspaces. Serving with a script opens nothing for people.
func TestDeciderAcceptsOnlyItsScript(t *testing.T) {
	sc, err := config.ParseScript("answers.toml", []byte("[[rules]]\ndo = \"approve\""))
	require.NoError(t, err)
	other, err := config.ParseScript("answers.toml", []byte("[[rules]]\ndo = \"deny\""))
	require.NoError(t, err)
	cfg := config.Default()
	serving := func(sc *config.Script) *gate.Decider {
		return (&server{Home: &home.Home{Config: cfg}, keys: &home.Keys{}, gate: &gate.Gate{}, script: sc}).gateDecider()
	}
	for _, row := range []struct {
		why    string
		script *config.Script
		ws     string
		by     approval.Person
		ok     bool
	}{
		{"the script itself", sc, "default", scriptedApprover(sc), true},
		{"in an unknown workspace", sc, "other", scriptedApprover(sc), false},
		{"another script", sc, "default", scriptedApprover(other), false},
		{"its name alone", sc, "default", approval.Person{Channel: "script", Name: "script:answers.toml"}, false},
		{"the operator's name for a script", sc, "default", approval.Person{Channel: "script", ID: home.Operator().ID, Name: home.Operator().Name}, false},
		{"no person", sc, "default", approval.Person{}, false},
		{"a gate without a script", nil, "default", scriptedApprover(sc), false},
	} {
		t.Run(row.why, func(t *testing.T) {
			name, ok := serving(row.script).May(row.ws, nil, row.by)
			require.Equal(t, row.ok, ok)
			require.Equal(t, row.ok, name == "script:answers.toml")
		})
	}
	_, ok := (&home.Home{Config: cfg}).Decider(&home.Keys{}).May("default", nil, scriptedApprover(sc))
	require.False(t, ok, "other deciders accept no script")
}

// failingDecider fails once, then succeeds.
type failingDecider struct {
	err    error
	inputs []decide.Input
}

func (f *failingDecider) Decide(_ context.Context, a decide.Input) (*approval.Decision, error) {
	f.inputs = append(f.inputs, a)
	err := f.err
	f.err = nil
	return nil, err
}

func TestAnswererRetriesOnlyTransientErrors(t *testing.T) {
	sc, err := config.ParseScript("a.toml", []byte("[[rules]]\ndo = \"approve\"\ntimes = 1\ndelay = \"1m\"\n[[rules]]\ndo = \"session\""))
	require.NoError(t, err)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	waiting := func(id string) approval.StoredPending {
		return approval.StoredPending{Pending: &approval.Pending{SourceGroup: "w", RequestID: id, Timestamp: now}, SHA256: "sha " + id}
	}
	for _, row := range []struct {
		why  string
		err  error
		want []approval.Verdict
	}{
		{"done", nil, []approval.Verdict{approval.Approved}},
		{"already decided", &decide.Refusal{Reason: decide.ErrDecided}, []approval.Verdict{approval.Approved}},
		{"the disk failed", errors.New("no space"), []approval.Verdict{approval.Approved, approval.Approved}},
		{"not applicable: deny", &decide.Refusal{Reason: decide.ErrNotApplicable}, []approval.Verdict{approval.Approved, approval.Denied}},
	} {
		t.Run(row.why, func(t *testing.T) {
			d := &failingDecider{err: row.err}
			x := &answerer{script: sc, decider: d, log: zerolog.Nop(), used: make([]int, 2), replies: map[approval.Key]*reply{}}
			x.plan(waiting("1"))
			require.Equal(t, time.Second, x.answerDue(t.Context(), now), "not before its time")
			require.Equal(t, 500*time.Millisecond, x.answerDue(t.Context(), now.Add(59500*time.Millisecond)))
			require.Empty(t, d.inputs)
			for range 3 {
				x.plan(waiting("1"))
				x.answerDue(t.Context(), now.Add(time.Minute))
			}
			var verdicts []approval.Verdict
			for _, a := range d.inputs {
				require.Equal(t, "sha 1", a.PendingSHA256, "the decision is on the matched request")
				require.Equal(t, "script", a.Via)
				verdicts = append(verdicts, a.Verdict)
			}
			require.Equal(t, row.want, verdicts)

			x.plan(waiting("2"))
			x.answerDue(t.Context(), now)
			require.Equal(t, approval.Session, d.inputs[len(d.inputs)-1].Scope, "the first rule has used up its times")
		})
	}
}
