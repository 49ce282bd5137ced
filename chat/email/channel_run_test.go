package email

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

func (w *rig) stateStore(name string) chat.StateStore {
	d, err := w.sentStore.State(name)
	require.NoError(w.t, err)
	return d
}

// waitFor polls for a condition that has no event.
func waitFor(t testing.TB, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ready(); time.Sleep(2 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "timeout waiting for %s", what)
	}
}

// The complete channel: it asks, takes a delivered email, and answers.
func TestRun(t *testing.T) { synctest.Test(t, testRun) }

func testRun(t *testing.T) {
	w := newRig(t)
	inbox := w.stateStore("inbox")
	w.stop()
	hints, changes := make(chan struct{}, 1), make(chan approval.Key, 10)
	w.Mailboxes = []mailbox.Mailbox{&mailbox.InboxQueue{Store: inbox, Changes: hints, Report: w.Reports("delivery")}}
	w.Changes, w.Every = changes, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	k := w.addPending("home", id1)
	changes <- k
	var cards []sentMail
	waitFor(t, "the card", func() bool { cards = append(cards, w.outbox.take()...); return len(cards) > 0 })
	in := replyTo(w.onlyEmail(cards), annMail, "1")
	require.NoError(t, (&mailbox.InboxQueue{Store: inbox}).Put("one", strings.NewReader("From ann Sat\n"+strings.ReplaceAll(string(in.Raw), "\r\n", "\n"))))
	hints <- struct{}{}
	waitFor(t, "the decision", func() bool { return w.decision(k) != nil })
	var answers []sentMail
	waitFor(t, "the answer", func() bool { answers = append(answers, w.outbox.take()...); return len(answers) > 0 })
	require.Contains(t, w.onlyEmail(answers).text, "Approved: ")
	waitFor(t, "the queue to be empty", func() bool { names, err := inbox.List(); return err == nil && len(names) == 0 })
	stop()
	require.NoError(t, <-done)
}

type brokenMailbox struct{}

func (brokenMailbox) Run(context.Context, func(context.Context, mailbox.Incoming) error) error {
	return errors.New("unusable settings")
}

// A mailbox with unusable settings ends Run with its error.
func TestRunEndsWithMailbox(t *testing.T) { synctest.Test(t, testRunEndsWithMailbox) }

func testRunEndsWithMailbox(t *testing.T) {
	w := newRig(t)
	w.stop()
	w.Mailboxes = []mailbox.Mailbox{&mailbox.InboxQueue{Store: w.stateStore("inbox")}, brokenMailbox{}}
	require.EqualError(t, w.Run(t.Context()), "unusable settings")
}

// A reply to a test card is saved, is not answered, and decides nothing.
func TestTestMail(t *testing.T) { synctest.Test(t, testTestMail) }

func testTestMail(t *testing.T) {
	w := newRig(t)
	for _, separator := range []string{"+", ""} {
		w.Addressing.Separator = separator
		r := &TestMail{Store: w.Tests, Addressing: w.Addressing, Sender: w.outbox, To: annMail}
		require.NoError(t, r.Send(t.Context()))
		card := w.onlyEmail(w.outbox.take())
		require.Equal(t, "auto-generated", card.header.Get("Auto-Submitted"))
		in := replyTo(card, annMail, "1")
		taken, answers := w.deliver(in)
		require.Equal(t, Ignored, taken.Status)
		require.Equal(t, "reply to a test card", taken.Why)
		require.Empty(t, answers)
		raw, err := r.Await(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, string(in.Raw), string(raw))
		require.NoError(t, r.Store.Remove(tokenDigest(r.token)+answerSuffix))
		r.Inbox = w.stateStore("inbox")
		require.NoError(t, (&mailbox.InboxQueue{Store: r.Inbox}).Put("other", strings.NewReader("Subject: x\n\n1\n")))
		require.NoError(t, (&mailbox.InboxQueue{Store: r.Inbox}).Put("this", strings.NewReader(string(in.Raw))))
		raw, err = r.Await(t.Context(), nil)
		require.NoError(t, err, "no daemon runs: the reply is in the inbox")
		require.Equal(t, string(in.Raw), string(raw))
		left, err := r.Inbox.List()
		require.NoError(t, err)
		require.Equal(t, []string{"other"}, left, "emails for the daemon stay")
		require.NoError(t, r.End())
		names, err := w.Tests.List()
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

func TestExamine(t *testing.T) {
	none := &authentic.Authenticator{DKIM: true, Lookup: func(context.Context, string) ([]string, error) { return nil, errors.New("no resolver") }}
	var r TestMail
	mail := func(results string) []byte {
		return []byte(results + "From: ann@human.test\r\nSubject: Re: x\r\nDate: Sat, 21 Nov 2026 12:00:00 +0000\r\n\r\n1\r\n")
	}
	f := r.Examine(t.Context(), mail("Authentication-Results: mx.gate.test;\r\n dmarc=pass header.from=human.test\r\n"), none)
	require.Equal(t, []string{`authserv_id = "mx.gate.test"`, "dkim = false"}, f.Lines())
	require.Equal(t, annMail, f.Sender)
	require.Equal(t, "1", f.Answer)
	require.True(t, f.Clear)
	require.Contains(t, f.Refused, "its sender is not proved")

	f = r.Examine(t.Context(), mail("Authentication-Results: mx.gate.test; dmarc=none\r\nAuto-Submitted: auto-replied\r\n"), none)
	require.Equal(t, []string{"dkim = false"}, f.Lines())
	require.Empty(t, f.Sender)
	require.Contains(t, f.Refused, "a program seems to have written it")
	require.Contains(t, f.Stated, "dmarc=none")
	require.NotEmpty(t, f.Signed)
	require.Equal(t, "no Authentication-Results field", r.Examine(t.Context(), mail(""), none).Stated)

	f = r.Examine(t.Context(), mail("Authentication-Results: spf=none smtp.mailfrom=x;dmarc=pass action=none header.from=human.test\r\n"), none)
	require.Equal(t, []string{"authserv_unnamed = true", "dkim = false"}, f.Lines(), "the server writes no name")
	require.Equal(t, annMail, f.Sender)
}
