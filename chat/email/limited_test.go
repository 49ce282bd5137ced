package email

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The number of requests that a limit refused is told to each approver in one email, at most once an hour, for all
// workspaces. It is kept over a restart.
func TestRefusedByLimitIsTold(t *testing.T) { synctest.Test(t, testRefusedByLimitIsTold) }

func testRefusedByLimitIsTold(t *testing.T) {
	w := newRig(t)
	told := func() (mails map[string]parsedEmail) {
		mails = map[string]parsedEmail{}
		for range 2 { // one pass stores that the mails were sent
			for _, m := range w.runAndTakeSent() {
				require.NotContains(t, mails, m.to)
				mails[m.to] = parseEmail(t, m)
			}
		}
		return mails
	}
	for range 37 {
		w.Limited("home")
	}
	w.Limited("office")
	require.Empty(t, told(), "a burst is one number")
	w.clock.advance(time.Minute)
	mails := told()
	require.Len(t, mails, 2)
	ann := mails[annMail]
	require.Equal(t, "🚫 home: requests refused by a limit, without asking you: 37", ann.subject)
	require.Equal(t, "A limit refused requests, so no person was asked. They did not run, and their agent was told why. This message needs no answer.\n\n"+ann.subject+"\n🚫 office: requests refused by a limit, without asking you: 1\n", ann.text)
	require.Equal(t, "auto-generated", ann.header.Get("Auto-Submitted"))
	require.Equal(t, "🚫 office: richieste rifiutate per un limite, senza chiedertelo: 1", mails[bobMail].subject)

	for range 5 {
		w.Limited("home")
	}
	w.Limited("shop")
	w.clock.advance(50 * time.Minute)
	require.Empty(t, told(), "at most once an hour")
	w.restart()
	require.Empty(t, told(), "also after a restart")
	w.clock.advance(10 * time.Minute)
	mails = told()
	require.Contains(t, mails[annMail].text, "without asking you: 5\n")
	require.NotContains(t, mails[annMail].text, "office")
	require.Contains(t, mails[evaMail].text, "shop: ")
	w.clock.advance(2 * time.Hour)
	require.Empty(t, told(), "nothing is told twice")
	taken, answers := w.deliver(replyTo(ann, annMail, "1"))
	require.Equal(t, Ignored, taken.Status)
	require.Empty(t, answers)
}
