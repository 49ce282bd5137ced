package email

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// What a forwarding service hands over needs the token, and counts as the one
// person's whose key it has.
func TestForwarded(t *testing.T) {
	w := newWorld(t)
	w.Addressing.Separator = ""
	k := w.asks("office", id1)
	var ann opened
	for _, m := range w.looks() {
		if m.to == annMail {
			ann = open1(t, m)
		}
	}
	person := func(mail string) approval.Person { return approval.Person{Channel: "email", ID: mail} }
	forward := func(subject, body string, p approval.Person) Status {
		taken, err := w.TakeForwarded(t.Context(), subject, body, p)
		require.NoError(t, err)
		return taken.Status
	}
	require.Equal(t, Refused, forward("Re: "+strings.Replace(ann.subject, " ", "", 1), "1", person(bobMail)), "ann's token")
	require.Equal(t, Refused, forward("Re: [appr_"+id1+"]", "1", person(annMail)), "no token")
	require.Equal(t, Refused, forward("Re: "+ann.subject, "1", person("eve@elsewhere.test")))
	require.Equal(t, Refused, forward("Re: "+ann.subject, "1", approval.Person{Channel: "telegram", ID: annMail}))
	require.Equal(t, Refused, forward("Re: "+ann.subject, "1", approval.Person{}))
	require.Nil(t, w.decided(k))
	require.Equal(t, Unclear, forward("Re: "+ann.subject, "fine", person(annMail)))
	require.Equal(t, Decided, forward("Re: "+ann.subject, "4 fine\n\n> "+strings.ReplaceAll(ann.text, "\n", "\n> "), person(annMail)))
	require.Equal(t, "fine", w.decided(k).Note)
	require.Equal(t, Duplicate, forward("Re: "+ann.subject, "4 fine\n\n> "+strings.ReplaceAll(ann.text, "\n", "\n> "), person(annMail)))
}

// A whole mail that is handed over must be by the one whose key it comes with.
func TestHandedOver(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	in := letterTo(w.one(w.looks()), annMail, "1")
	for _, p := range []approval.Person{{Channel: "email", ID: bobMail}, {}, {Channel: "local", ID: annMail}} {
		taken, err := w.TakeRaw(t.Context(), in, p)
		require.NoError(t, err)
		require.Equal(t, Refused, taken.Status)
	}
	require.Nil(t, w.decided(k))
	taken, err := w.TakeRaw(t.Context(), in, approval.Person{Channel: "email", ID: "ann@HUMAN.test"})
	require.NoError(t, err)
	require.Equal(t, Decided, taken.Status)
	w.restart()
	taken, err = w.TakeRaw(t.Context(), in, approval.Person{Channel: "email", ID: annMail})
	require.NoError(t, err)
	require.Equal(t, Taken{Status: Duplicate, Key: k}, taken, "whoever brings it again hears what it was about")
}

// A notebook that cannot be written decides nothing that is not found again.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	in := letterTo(w.one(w.looks()), annMail, "1")
	whole := w.Taken
	w.Taken = brokenDrawer{}
	w.restartWith(brokenDrawer{})
	_, err := w.Take(t.Context(), in)
	require.Error(t, err, "so that it is handed in again")
	w.restartWith(whole)
	taken, answers := w.takes(in)
	require.Equal(t, Late, taken.Status, "it had decided already")
	require.Contains(t, w.one(answers).text, "Already approved by ann")
	require.True(t, w.decided(k).Approved)
}

func (w *world) restartWith(taken interface {
	Put(string, []byte) error
	Get(string) ([]byte, error)
	List() ([]string, error)
	Remove(string) error
},
) {
	w.restart()
	w.Taken = taken
}

type brokenDrawer struct{}

var errFull = errors.New("no space left")

func (brokenDrawer) Put(string, []byte) error   { return errFull }
func (brokenDrawer) Get(string) ([]byte, error) { return nil, errFull }
func (brokenDrawer) List() ([]string, error)    { return nil, nil }
func (brokenDrawer) Remove(name string) error   { return errFull }

// brokenDecider cannot write; what it left behind nobody knows.
type brokenDecider struct{}

func (brokenDecider) Decide(context.Context, approval.DecisionInput) (*approval.Decision, error) {
	return nil, errFull
}

// A decision that could not be written is tried again, as if the mail had not come.
func TestDecisionThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	in := letterTo(w.one(w.looks()), annMail, "1")
	whole := w.Interceptor.Decider
	w.Interceptor.Decider = brokenDecider{}
	_, err := w.Take(t.Context(), in)
	require.ErrorIs(t, err, errFull)
	require.Empty(t, w.looks())
	w.Interceptor.Decider = whole
	taken, _ := w.takes(in)
	require.Equal(t, Decided, taken.Status)
	require.True(t, w.decided(k).Approved)
}
