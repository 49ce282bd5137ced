package email

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// writeLimit simulates kill -9 before a write: no write succeeds from then on.
type writeLimit struct {
	left int // successful writes before that
}

var errKilled = errors.New("killed")

func (m *writeLimit) write() error {
	if m.left--; m.left < 0 {
		return errKilled
	}
	return nil
}

func (w *rig) write() error {
	w.clock.sync()
	if w.limit == nil {
		return nil
	}
	return w.limit.write()
}

type limitedSentStore struct {
	chat.SentStore
	limit interface{ write() error }
}

func (b limitedSentStore) Save(k approval.Key, page []byte) error {
	if err := b.limit.write(); err != nil {
		return err
	}
	return b.SentStore.Save(k, page)
}

type limitedStateStore struct {
	chat.StateStore
	limit interface{ write() error }
}

func (d limitedStateStore) Put(name string, b []byte) error {
	if err := d.limit.write(); err != nil {
		return err
	}
	return d.StateStore.Put(name, b)
}

// killAt kills the process before its write number n from now, counted from 0.
func (w *rig) killAt(n int) { w.limit = &writeLimit{left: n} }

// A reply is answered once, wherever the process is killed, and the answer counts
// after the restart.
func TestAnsweredOnceAfterKill(t *testing.T) { synctest.Test(t, testAnsweredOnceAfterKill) }

func testAnsweredOnceAfterKill(t *testing.T) {
	for _, row := range []struct {
		why    string
		text   string
		before func(*rig, approval.Key, parsedEmail)
		status Status
	}{
		{"too late", "1", func(w *rig, k approval.Key, _ parsedEmail) {
			w.writeRecord(k, approval.StatusDenied)
			w.runAndTakeSent()
		}, Late},
		{"unclear, the last answered one", "hm", func(w *rig, _ approval.Key, card parsedEmail) {
			for range maxUnclear - 1 {
				_, answers := w.deliver(replyTo(card, annMail, "hm"))
				require.Len(w.t, answers, 1)
			}
		}, Unclear},
		{"it decides", "3", nil, Decided},
	} {
		for n := range 3 {
			w := newRig(t)
			k := w.addPending("home", id1)
			card := w.onlyEmail(w.runAndTakeSent())
			if row.before != nil {
				row.before(w, k, card)
			}
			in := replyTo(card, annMail, row.text)
			w.killAt(n)
			_, _ = w.Take(t.Context(), in)
			w.wait()
			w.restart()
			_, answers := w.deliver(in) // a mailbox passes an email on again if its state was not saved
			w.clock.advance(10 * time.Second)
			answers = append(answers, w.runAndTakeSent()...)
			copies := 1
			if n == 2 { // it was sent, and this was not recorded: it is sent again under its ID
				copies = 2
			}
			require.Len(t, answers, copies, "%s, killed before write %d", row.why, n)
			answer := parseEmail(t, answers[0])
			require.Equal(t, "auto-replied", answer.header.Get("Auto-Submitted"))
			require.Equal(t, answer.header.Get("Message-Id"), parseEmail(t, answers[copies-1]).header.Get("Message-Id"))
			if row.status == Unclear {
				require.Equal(t, maxUnclear, w.count(k, Unclear), "%s, killed before write %d", row.why, n)
				continue
			}
			require.Positive(t, w.count(k, Late)+w.count(k, Decided), "%s, killed before write %d", row.why, n)
			w.restart()
			_, answers = w.deliver(replyTo(card, annMail, row.text))
			if row.status == Late {
				require.Empty(t, answers, "%s, killed before write %d: already answered", row.why, n)
			}
		}
	}
}

// No answer is lost if the disk is full for a while.
func TestAnsweredAfterFullDisk(t *testing.T) { synctest.Test(t, testAnsweredAfterFullDisk) }

func testAnsweredAfterFullDisk(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	w.writeRecord(k, approval.StatusDenied)
	w.runAndTakeSent()
	in := replyTo(card, annMail, "1")
	w.killAt(0)
	for range maxUnclear + 1 {
		_, err := w.Take(t.Context(), in)
		require.ErrorIs(t, err, errKilled)
	}
	w.limit = nil
	_, answers := w.deliver(in)
	require.Len(t, answers, 1)
}

// If the email that decided is delivered again after the end, its sender is not told
// that nothing was changed.
func TestDecidedBeforeRestart(t *testing.T) { synctest.Test(t, testDecidedBeforeRestart) }

func testDecidedBeforeRestart(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	in := replyTo(card, annMail, "3")
	w.killAt(0)
	_, err := w.Take(t.Context(), in)
	require.Error(t, err)
	require.NotNil(t, w.decision(k), "and no record of the reply was saved")
	w.restart()
	w.writeRecordBy(k, approval.StatusDenied, "ann", "email")
	taken, answers := w.deliver(in)
	require.Equal(t, Decided, taken.Status)
	require.Equal(t, "🔐 a7f3b2c1 · denied · by ann (email)\n", w.onlyEmail(answers[:1]).text)
	taken, answers = w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status, "another reply")
	require.Contains(t, w.onlyEmail(answers).text, "Too late, nothing was changed.")
	taken, _ = w.deliver(in)
	require.Equal(t, Duplicate, taken.Status)
}

// A card may have arrived if the process was killed while sending it: its approver gets
// the outcome.
func TestFollowUpOfACardThatMayHaveArrived(t *testing.T) {
	synctest.Test(t, testFollowUpOfACardThatMayHaveArrived)
}

func testFollowUpOfACardThatMayHaveArrived(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	var card parsedEmail
	w.outbox.before = func(to string, raw []byte) error {
		card = parseEmail(t, sentMail{to, raw})
		w.killAt(0) // accepted by the server, but not recorded
		return nil
	}
	require.Len(t, w.runAndTakeSent(), 1)
	w.outbox.before = nil
	w.restart()
	w.writeRecord(k, approval.StatusDenied)
	after := w.onlyEmail(w.runAndTakeSent())
	require.Equal(t, card.header.Get("Message-Id"), after.header.Get("In-Reply-To"))
	taken, answers := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Len(t, answers, 1)
}

// An approver who decides by email is told once, also if the gate settles the request
// before the reply is recorded.
func TestSettledBeforeReplyIsRecorded(t *testing.T) {
	synctest.Test(t, testSettledBeforeReplyIsRecorded)
}

func testSettledBeforeReplyIsRecorded(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	w.Interceptor.Decider = settlingDecider{w.Interceptor.Decider, func() {
		w.writeRecordBy(k, approval.StatusDenied, "ann", "email")
		require.Empty(t, w.runAndTakeSent())
	}}
	taken, answers := w.deliver(replyTo(card, annMail, "3"))
	require.Equal(t, Decided, taken.Status)
	require.Equal(t, "auto-replied", w.onlyEmail(answers).header.Get("Auto-Submitted"))
	require.Empty(t, w.runAndTakeSent())
	w.clock.advance(time.Second)
	_, closed := w.storedCard(k, annMail)
	require.True(t, closed)
}

type settlingDecider struct {
	chat.Decider
	settles func()
}

func (f settlingDecider) Decide(ctx context.Context, a decide.Input) (*approval.Decision, error) {
	d, err := f.Decider.Decide(ctx, a)
	f.settles()
	return d, err
}

// A refused address is reported after a restart, too, also if the first process ended
// before it could report.
func TestRefusedAddressAfterRestart(t *testing.T) { synctest.Test(t, testRefusedAddressAfterRestart) }

func testRefusedAddressAfterRestart(t *testing.T) {
	w := newRig(t)
	w.outbox.before = func(string, []byte) error {
		return &mailbox.Error{Stage: "name the recipient", Code: 550, Err: errors.New("550 no such user")}
	}
	w.addPending("home", id1)
	w.Problem, w.Elsewhere = nil, nil // the process ends before it reports
	w.runAndTakeSent()
	w.restart()
	for range 3 {
		w.runAndTakeSent()
		w.clock.advance(10 * time.Second)
	}
	require.Equal(t, "email: card a7f3b2c1 to ann@human.test was refused: name the recipient: 550 no such user", w.problem())
	require.Len(t, w.alerts, 1)
}

// An outcome that is too old is given up durably: the next process does not try it again.
func TestOutdatedFollowUpIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, testOutdatedFollowUpIsNotTriedAgain)
}

func testOutdatedFollowUpIsNotTriedAgain(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	w.onlyEmail(w.runAndTakeSent())
	w.writeRecord(k, approval.StatusApproved)
	w.outbox.before = func(string, []byte) error {
		return &mailbox.Error{Stage: "connect", Temporary: true, Err: errors.New("connection refused")}
	}
	w.runAndTakeSent()
	w.clock.advance(25 * time.Hour)
	w.outbox.before = nil
	w.clock.advance(time.Hour)
	require.Empty(t, w.runAndTakeSent())
	card, closed := w.storedCard(k, annMail)
	require.Equal(t, "over", card.Phase)
	require.True(t, closed)
	w.restart()
	require.Empty(t, w.runAndTakeSent())
}

// An email that is due but not sendable, because its workspace is missing for a while,
// does not keep the channel busy.
func TestDueAndNotWaiting(t *testing.T) { synctest.Test(t, testDueAndNotWaiting) }

func testDueAndNotWaiting(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1, longLived)
	tries := 0
	w.outbox.before = func(string, []byte) error {
		tries++
		return &mailbox.Error{Stage: "name the recipient", Temporary: true, Code: 451, Err: errors.New("451 later")}
	}
	w.runAndTakeSent()
	w.names = []string{"shop"}
	w.clock.advance(time.Hour)
	w.runAndTakeSent()
	require.Equal(t, 1, tries)
	w.names = []string{"home"}
	w.outbox.before = nil
	require.Len(t, w.runAndTakeSent(), 1)
}

// The reply to a test card that cannot be saved is retried.
func TestTestMailOnFullDisk(t *testing.T) { synctest.Test(t, testTestMailOnFullDisk) }

func testTestMailOnFullDisk(t *testing.T) {
	w := newRig(t)
	sent := &TestMail{Store: w.stateStore("tests"), Addressing: w.Addressing, Sender: w.outbox, To: annMail}
	require.NoError(t, sent.Send(t.Context()))
	in := replyTo(w.onlyEmail(w.outbox.take()), annMail, "1")
	complete := w.Tests
	w.Tests = limitedStateStore{complete, &writeLimit{}}
	_, err := w.Take(t.Context(), in)
	require.ErrorIs(t, err, errKilled)
	w.Tests = complete
	taken, _ := w.deliver(in)
	require.Equal(t, Ignored, taken.Status)
	raw, err := sent.Await(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, in.Raw, raw)
}

// An answer that is older than an hour is given up durably.
func TestOldAnswerIsNotSent(t *testing.T) { synctest.Test(t, testOldAnswerIsNotSent) }

func testOldAnswerIsNotSent(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	w.outbox.before = func(string, []byte) error {
		return &mailbox.Error{Stage: "connect", Temporary: true, Err: errors.New("connection refused")}
	}
	_, answers := w.deliver(replyTo(card, annMail, "3"))
	require.Empty(t, answers)
	w.clock.advance(62 * time.Minute)
	w.outbox.before = nil
	w.clock.advance(2 * time.Minute)
	require.Empty(t, w.runAndTakeSent())
	w.restart()
	w.clock.advance(time.Minute)
	require.Empty(t, w.runAndTakeSent())
	names, err := w.Taken.List()
	require.NoError(t, err)
	b, err := w.Taken.Get(names[0])
	require.NoError(t, err)
	require.Contains(t, string(b), `"state":"failed"`)
}
