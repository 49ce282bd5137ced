package email

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// mortal ends a life, as kill -9 does, before a write to the notebook: from then
// on nothing is written.
type mortal struct {
	left int // writes, until then
}

var errDead = errors.New("killed")

func (m *mortal) writes() error {
	if m.left--; m.left < 0 {
		return errDead
	}
	return nil
}

type mortalBook struct {
	chat.SentStore
	*mortal
}

func (b mortalBook) Save(k approval.Key, page []byte) error {
	if err := b.writes(); err != nil {
		return err
	}
	return b.SentStore.Save(k, page)
}

type mortalDrawer struct {
	chat.StateStore
	*mortal
}

func (d mortalDrawer) Put(name string, b []byte) error {
	if err := d.writes(); err != nil {
		return err
	}
	return d.StateStore.Put(name, b)
}

// dies has this life end before its write number n from now, counted from 0.
func (w *world) dies(n int) {
	m := &mortal{left: n}
	w.Notebook, w.Taken = mortalBook{w.Notebook, m}, mortalDrawer{w.Taken, m}
}

// A reply is answered once, wherever the life that takes it ends, and what its
// person heard counts in the next life.
func TestAnsweredInWhicheverLife(t *testing.T) {
	for _, row := range []struct {
		why    string
		text   string
		before func(*world, approval.Key, opened)
		status Status
	}{
		{"too late", "1", func(w *world, k approval.Key, _ opened) { w.ends(k, approval.StatusDenied); w.looks() }, Late},
		{"unclear, for the last time", "hm", func(w *world, _ approval.Key, card opened) {
			for range maxUnclear - 1 {
				_, answers := w.takes(letterTo(card, annMail, "hm"))
				require.Len(w.t, answers, 1)
			}
		}, Unclear},
		{"it decides", "3", nil, Decided},
	} {
		for n := range 3 {
			w := newWorld(t)
			k := w.asks("home", id1)
			card := w.one(w.looks())
			if row.before != nil {
				row.before(w, k, card)
			}
			in := letterTo(card, annMail, row.text)
			w.dies(n)
			_, _ = w.Take(t.Context(), in)
			w.restart()
			_, answers := w.takes(in) // as a box hands out what it may not have taken
			w.clock.passes(10 * time.Second)
			answers = append(answers, w.looks()...)
			require.Len(t, answers, 1, "%s, killed before write %d", row.why, n)
			require.Equal(t, "auto-replied", open1(t, answers[0]).header.Get("Auto-Submitted"))
			c := w.state.pages.notes[k].card(annMail)
			if row.status == Unclear {
				require.Equal(t, maxUnclear, c.Unclear, "%s, killed before write %d", row.why, n)
				continue
			}
			require.True(t, c.Late || c.Used, "%s, killed before write %d", row.why, n)
			w.restart()
			_, answers = w.takes(letterTo(card, annMail, row.text))
			if row.status == Late {
				require.Empty(t, answers, "%s, killed before write %d: it was told", row.why, n)
			}
		}
	}
}

// A disk that is full for a while costs nobody an answer.
func TestAnsweredWhenTheDiskIsNotFull(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	card := w.one(w.looks())
	w.ends(k, approval.StatusDenied)
	w.looks()
	book, drawer := w.Notebook, w.Taken
	in := letterTo(card, annMail, "1")
	w.dies(0)
	for range maxUnclear + 1 {
		_, err := w.Take(t.Context(), in)
		require.ErrorIs(t, err, errDead)
	}
	w.Notebook, w.Taken = book, drawer
	_, answers := w.takes(in)
	require.Len(t, answers, 1)
}

// The mail that decided, handed in again when all is over: its sender is not told
// that nothing was changed.
func TestDecidedInAnEarlierLife(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	card := w.one(w.looks())
	in := letterTo(card, annMail, "3")
	w.dies(0)
	_, err := w.Take(t.Context(), in)
	require.Error(t, err)
	require.NotNil(t, w.decided(k), "and it is not noted")
	w.restart()
	w.endsBy(k, approval.StatusDenied, "ann", "email")
	taken, answers := w.takes(in)
	require.Equal(t, Decided, taken.Status)
	require.Equal(t, "🔐 a7f3b2c1 · denied · by ann (email)\n", w.one(answers[:1]).text)
	taken, answers = w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status, "another one")
	require.Contains(t, w.one(answers).text, "Too late, nothing was changed.")
	taken, _ = w.takes(in)
	require.Equal(t, Duplicate, taken.Status)
}

// A card whose life ended while it was handed in may have arrived: its person
// hears how it ended.
func TestFollowUpOfACardThatMayHaveArrived(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	var card opened
	w.post.before = func(to string, raw []byte) error {
		card = open1(t, sentMail{to, raw})
		w.dies(0) // accepted, and never noted
		return nil
	}
	require.Len(t, w.looks(), 1)
	w.post.before = nil
	w.restart()
	w.ends(k, approval.StatusDenied)
	after := w.one(w.looks())
	require.Equal(t, card.header.Get("Message-Id"), after.header.Get("In-Reply-To"))
	taken, answers := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Len(t, answers, 1)
}

// Whoever decides by mail hears it once, also where the gate is faster than the
// note of it.
func TestTheGateIsFaster(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	card := w.one(w.looks())
	w.Interceptor.Decider = faster{w.Interceptor.Decider, func() {
		w.endsBy(k, approval.StatusDenied, "ann", "email")
		require.Empty(t, w.looks())
	}}
	taken, answers := w.takes(letterTo(card, annMail, "3"))
	require.Equal(t, Decided, taken.Status)
	require.Equal(t, "auto-replied", w.one(answers).header.Get("Auto-Submitted"))
	require.Empty(t, w.looks())
	require.False(t, w.state.pages.notes[k].Closed.IsZero())
}

type faster struct {
	chat.Decider
	settles func()
}

func (f faster) Decide(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error) {
	d, err := f.Decider.Decide(ctx, a)
	f.settles()
	return d, err
}

// Who cannot be asked is told of in the next life, too, and also where the first
// one ended before it could.
func TestRefusedAddressInALaterLife(t *testing.T) {
	w := newWorld(t)
	w.post.before = func(string, []byte) error {
		return &SendError{Stage: "name the recipient", Code: 550, Err: errors.New("550 no such user")}
	}
	w.asks("home", id1)
	w.Problem, w.Alert = nil, nil // it ends before anybody hears
	w.looks()
	w.restart()
	for range 3 {
		w.looks()
		w.clock.passes(10 * time.Second)
	}
	require.Equal(t, "email: the mail about a7f3b2c1 to ann@human.test was refused: name the recipient: 550 no such user", w.problem)
	require.Len(t, w.alerts, 1)
}

// What is due and cannot be sent, since its workspace is gone for a while, does
// not keep the channel busy.
func TestDueAndNotWaiting(t *testing.T) {
	w := newWorld(t)
	w.asks("home", id1)
	w.post.before = func(string, []byte) error {
		return &SendError{Stage: "name the recipient", Temporary: true, Code: 451, Err: errors.New("451 later")}
	}
	w.looks()
	w.Workspaces = func() []string { return []string{"shop"} }
	w.clock.passes(time.Minute)
	w.init()
	require.GreaterOrEqual(t, w.look(t.Context()), time.Second)
}

// The answer to a test that cannot be laid down comes again.
func TestRehearsalOnAFullDisk(t *testing.T) {
	w := newWorld(t)
	sent := &TestMail{Drawer: w.drawer("tests"), Addressing: w.Addressing, Sender: w.post, To: annMail}
	require.NoError(t, sent.Send(t.Context()))
	in := letterTo(w.one(w.post.take()), annMail, "1")
	whole := w.Tests
	w.Tests = mortalDrawer{whole, &mortal{}}
	_, err := w.Take(t.Context(), in)
	require.ErrorIs(t, err, errDead)
	w.Tests = whole
	taken, _ := w.takes(in)
	require.Equal(t, Ignored, taken.Status)
	raw, err := sent.Await(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, in.Raw, raw)
}
