package email

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/chat/messagestest"
)

func TestEveryMessageIsReadAndWritten(t *testing.T) {
	messagestest.RequireKeys[catalog](t, "../messages", "email")
	keys := func(pattern string, files ...string) (found []string) {
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1) {
				found = append(found, m[1])
			}
		}
		return found
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(textsFor("en").Doubts)), keys(`(?:addDoubt\(|\.Doubt = )"(\w+)"`, "mail.go", "intake.go"))
	require.ElementsMatch(t, slices.Collect(maps.Keys(textsFor("en").Refusals)), keys(`(?m)^\t(?:refused\w+|\w+ +Doubt) += "(\w+)"`, "refuse.go", "authentic/auth.go"))
}

func TestDoubtsAreInTheLanguageOfTheReply(t *testing.T) {
	m, err := readMail([]byte("From: a@example.com\r\nDate: 1\r\nDate: 2\r\n\r\n1\r\n"))
	require.NoError(t, err)
	require.Equal(t, "it has two Date fields", m.doubtText(textsFor("")))
	require.Equal(t, "ha due campi Date", m.doubtText(textsFor("it")))
}

var ownMarks = regexp.MustCompile(`(?im)^(auto-submitted|x-auto-response-suppress):.*\r?\n`)

// Our own emails decide nothing if they come back from an approver, with a valid token
// and without the fields that mark them as automatic.
func TestOwnEmailsDecideNothing(t *testing.T) { synctest.Test(t, testOwnEmailsDecideNothing) }

func testOwnEmailsDecideNothing(t *testing.T) {
	for _, language := range []string{"en", "it"} {
		w := newRig(t)
		w.people["home"][0].Language = language
		k := w.addPending("home", id1, longLived)
		ask := w.addPending("home", "00000000000000aa", longLived, func(p *approval.Pending) {
			p.Type, p.Options, p.Agent.Title = approval.TypeQuestion, []string{"1", "main"}, "Which?"
		})
		var card parsedEmail
		ours := w.runAndTakeSent()
		require.Len(t, ours, 2)
		for _, m := range ours {
			if o := parseEmail(t, m); strings.Contains(o.subject, k.ID) {
				card = o
			}
		}
		for _, text := range []string{"hm", "2 x", "4", "pending", "?"} {
			_, answers := w.deliver(replyTo(card, annMail, text))
			ours = append(ours, answers...)
		}
		require.Greater(t, len(ours), 5)
		w.Verifier = annVerifier{}
		for i, m := range ours {
			raw := asReplyFromAnn(ownMarks.ReplaceAll(m.raw, nil), card)
			taken, _ := w.deliver(mailbox.Incoming{Name: string(rune('a' + i)), Raw: withCRLF(raw)})
			require.NotEqual(t, Decided, taken.Status, string(raw))
			text := replyTo(card, annMail, parseEmail(t, m).text)
			taken, _ = w.deliver(text)
			require.NotEqual(t, Decided, taken.Status, string(text.Raw))
		}
		require.Nil(t, w.decision(k))
		require.Nil(t, w.decision(ask))
	}
}
