package email

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

func (w *world) drawer(name string) chat.StateStore {
	d, err := w.book.State(name)
	require.NoError(w.t, err)
	return d
}

// awaits polls for what has no event to wait for.
func awaits(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ready(); time.Sleep(2 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "waited in vain for %s", what)
	}
}

// The whole channel at work: it asks, takes what is handed in, and answers.
func TestRun(t *testing.T) {
	w := newWorld(t)
	inbox := w.drawer("inbox")
	hints, changes := make(chan struct{}, 1), make(chan approval.Key, 10)
	w.Boxes = []Mailbox{&InboxQueue{Drawer: inbox, Changes: hints, Report: w.Reports("delivery")}}
	w.Changes, w.Every = changes, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	k := w.asks("home", id1)
	changes <- k
	var cards []sentMail
	awaits(t, "the card", func() bool { cards = append(cards, w.post.take()...); return len(cards) > 0 })
	in := letterTo(w.one(cards), annMail, "1")
	require.NoError(t, (&InboxQueue{Drawer: inbox}).Put("one", strings.NewReader("From ann Sat\n"+strings.ReplaceAll(string(in.Raw), "\r\n", "\n"))))
	hints <- struct{}{}
	awaits(t, "the decision", func() bool { return w.decided(k) != nil })
	var answers []sentMail
	awaits(t, "the answer", func() bool { answers = append(answers, w.post.take()...); return len(answers) > 0 })
	require.Contains(t, w.one(answers).text, "Approved: ")
	awaits(t, "the drawer to be empty", func() bool { names, err := inbox.List(); return err == nil && len(names) == 0 })
	stop()
	require.NoError(t, <-done)
}

type brokenBox struct{}

func (brokenBox) Run(context.Context, func(context.Context, Incoming) error) error {
	return errors.New("settings that cannot work")
}

// A way in that cannot work ends the channel, so that it is said.
func TestRunEndsWithAWayIn(t *testing.T) {
	w := newWorld(t)
	w.Boxes = []Mailbox{&InboxQueue{Drawer: w.drawer("inbox")}, brokenBox{}}
	require.EqualError(t, w.Run(t.Context()), "settings that cannot work")
}

// What cannot be taken now comes again, and keeps no other one waiting.
func TestDrop(t *testing.T) {
	w := newWorld(t)
	d := &InboxQueue{Drawer: w.drawer("inbox"), Now: w.clock.now}
	require.ErrorIs(t, d.Put("x", strings.NewReader("")), ErrNoMail)
	require.NoError(t, d.Put("1", strings.NewReader("Subject: a\n\n1\n")))
	require.NoError(t, d.Put("2", strings.NewReader("From x\nSubject: b\r\n\r\n2\r\n")))
	require.NoError(t, d.Put("3", strings.NewReader("Subject: c\n\n"+strings.Repeat("x\n", MaxMail))))
	var seen []Incoming
	fails := true
	take := func(_ context.Context, in Incoming) error {
		seen = append(seen, in)
		if in.Name == "drop 1" && fails {
			return errors.New("not now")
		}
		return nil
	}
	retries := map[string]retry{}
	require.ErrorContains(t, d.look(t.Context(), take, retries), "not now")
	require.Len(t, seen, 3)
	require.Equal(t, "Subject: a\r\n\r\n1\r\n", string(seen[0].Raw))
	require.Equal(t, "Subject: b\r\n\r\n2\r\n", string(seen[1].Raw), "without the line of the envelope")
	require.Equal(t, "drop 3"+headerOnly, seen[2].Name)
	require.True(t, seen[2].TooLarge)
	require.Less(t, len(seen[2].Raw), 100)
	seen, fails = nil, false
	require.NoError(t, d.look(t.Context(), take, retries))
	require.Empty(t, seen, "not at once")
	w.clock.passes(time.Minute)
	require.NoError(t, d.look(t.Context(), take, retries))
	require.Len(t, seen, 1)
	names, err := d.Drawer.List()
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestShelf(t *testing.T) {
	w := newWorld(t)
	s := MailboxState{Drawer: w.drawer("state"), Name: "imap"}
	b, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, b)
	require.NoError(t, s.Save([]byte("here")))
	b, err = s.Load()
	require.NoError(t, err)
	require.Equal(t, "here", string(b))
	require.ErrorIs(t, func() error { _, err := MailboxState{Drawer: brokenDrawer{}, Name: "imap"}.Load(); return err }(), errFull, "lost is not new")
}

// An answer to a test is laid down, answered by nobody, and decides nothing.
func TestRehearsal(t *testing.T) {
	w := newWorld(t)
	for _, separator := range []string{"+", ""} {
		w.Addressing.Separator = separator
		r := &TestMail{Drawer: w.Tests, Addressing: w.Addressing, Sender: w.post, To: annMail}
		require.NoError(t, r.Send(t.Context()))
		card := w.one(w.post.take())
		require.Equal(t, "auto-generated", card.header.Get("Auto-Submitted"))
		in := letterTo(card, annMail, "1")
		taken, answers := w.takes(in)
		require.Equal(t, Ignored, taken.Status)
		require.Equal(t, "it answers a test", taken.Why)
		require.Empty(t, answers)
		raw, err := r.Await(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, string(in.Raw), string(raw))
		require.NoError(t, r.Drawer.Remove(TokenDigest(r.token)+answerSuffix))
		r.Inbox = w.drawer("inbox")
		require.NoError(t, (&InboxQueue{Drawer: r.Inbox}).Put("other", strings.NewReader("Subject: x\n\n1\n")))
		require.NoError(t, (&InboxQueue{Drawer: r.Inbox}).Put("this", strings.NewReader(string(in.Raw))))
		raw, err = r.Await(t.Context(), nil)
		require.NoError(t, err, "no gate runs: the answer lies in the inbox")
		require.Equal(t, string(in.Raw), string(raw))
		left, err := r.Inbox.List()
		require.NoError(t, err)
		require.Equal(t, []string{"other"}, left, "what is for the gate stays")
		require.NoError(t, r.End())
		names, err := w.Tests.List()
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

func TestExamine(t *testing.T) {
	none := func(context.Context, string) ([]string, error) { return nil, errors.New("no resolver") }
	mail := func(results string) []byte {
		return []byte(results + "From: ann@human.test\r\nSubject: Re: x\r\nDate: Sat, 21 Nov 2026 12:00:00 +0000\r\n\r\n1\r\n")
	}
	f := Examine(t.Context(), mail("Authentication-Results: mx.gate.test;\r\n dmarc=pass header.from=human.test\r\n"), none)
	require.Equal(t, []string{`authserv_id = "mx.gate.test"`, "dkim = false"}, f.Lines())
	require.Equal(t, annMail, f.Sender)
	require.Equal(t, "1", f.Answer)
	require.True(t, f.Clear)
	require.Empty(t, f.Automatic)

	f = Examine(t.Context(), mail("Authentication-Results: mx.gate.test; dmarc=none\r\nAuto-Submitted: auto-replied\r\n"), none)
	require.Equal(t, []string{"dkim = false"}, f.Lines())
	require.Empty(t, f.Sender)
	require.NotEmpty(t, f.Automatic)
	require.Contains(t, f.Stated, "dmarc=none")
	require.NotEmpty(t, f.Signed)
	require.Equal(t, "the server states nothing", Examine(t.Context(), mail(""), none).Stated)
}
