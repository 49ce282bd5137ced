package email

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// An approval by email that a pause holds up: its answer says so, and the other approvers get one letter.
func TestApprovalDuringPause(t *testing.T) { synctest.Test(t, testApprovalDuringPause) }

func testApprovalDuringPause(t *testing.T) {
	w := newRig(t)
	since := time.Now()
	w.Interceptor.Paused = func(string) *chat.Pause { return &chat.Pause{By: "carl", Since: since} }
	style := w.Style
	w.Style = func(language string) chat.Style {
		s := style(language)
		s.Paused = w.Interceptor.Paused
		return s
	}
	w.clock.advance(time.Second)
	w.addPending("office", id1)
	cards := w.runAndTakeSent()
	require.Len(t, cards, 2)
	_, answers := w.deliver(replyTo(parseEmail(t, cards[0]), annMail, "1"))
	require.Contains(t, w.onlyEmail(answers).text, "it runs after resume, or expires at 12:10 UTC")
	var mails []sentMail
	for range 8 {
		mails = append(mails, w.runAndTakeSent()...)
	}
	told := w.onlyEmail(mails)
	require.Equal(t, bobMail, told.to)
	require.Contains(t, told.text, "⏸ in pausa (carl, 12:00 UTC): si esegue dopo la ripresa, oppure scade (12:10 UTC)")
	require.Equal(t, parseEmail(t, cards[1]).header.Get("Message-Id"), told.header.Get("In-Reply-To"))
}

// An approver who approved by email hears of a failure also where outcomes are switched off.
func TestFailureIsToldWithoutFollowUp(t *testing.T) {
	synctest.Test(t, testFailureIsToldWithoutFollowUp)
}

func testFailureIsToldWithoutFollowUp(t *testing.T) {
	w := newRig(t)
	w.stop()
	w.FollowUp = false
	w.start()
	k := w.addPending("office", id1)
	cards := w.runAndTakeSent()
	_, answers := w.deliver(replyTo(parseEmail(t, cards[0]), annMail, "1"))
	w.onlyEmail(answers)
	w.writeRecord(k, approval.StatusFailed)
	w.runAndTakeSent()
	w.clock.advance(time.Second)
	told := w.onlyEmail(w.runAndTakeSent())
	require.Equal(t, annMail, told.to)
	require.Contains(t, told.text, "failed")
}
