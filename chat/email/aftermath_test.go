package email

import (
	"fmt"
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
	require.Equal(t, "In pausa: "+parseEmail(t, cards[1]).subject, told.subject)
	require.Contains(t, told.text, "⏸ in pausa (carl, 12:00 UTC): si esegue dopo la ripresa, oppure scade (12:10 UTC)")
	require.Equal(t, parseEmail(t, cards[1]).header.Get("Message-Id"), told.header.Get("In-Reply-To"))
}

// An approver who approved by email hears that it did not run, also where outcomes are switched off. The subject says
// what happened, the verb and the target, in this order.
func TestFailureIsToldWithoutFollowUp(t *testing.T) {
	synctest.Test(t, testFailureIsToldWithoutFollowUp)
}

func testFailureIsToldWithoutFollowUp(t *testing.T) {
	w := newRig(t)
	w.stop()
	w.FollowUp = false
	w.start()
	for i, status := range []approval.Status{approval.StatusFailed, approval.StatusInterrupted, approval.StatusExpired, approval.StatusCancelled} {
		k := w.addPending("home", fmt.Sprintf("%016x", i+1))
		card := w.onlyEmail(w.runAndTakeSent())
		_, answers := w.deliver(replyTo(card, annMail, "1"))
		w.onlyEmail(answers)
		w.writeRecord(k, status)
		w.runAndTakeSent()
		w.clock.advance(time.Second)
		told := w.onlyEmail(w.runAndTakeSent())
		require.Equal(t, annMail, told.to)
		require.Contains(t, told.text, string(status))
		require.Equal(t, chat.Style{}.HeadlineOf(string(status), card.subject), told.subject)
		require.Regexp(t, `^(Failed|Interrupted|Expired|Cancelled): Post "Meeting`, told.subject)
	}
}
