package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

// otherMail is an email by ann that is no answer to the gate, though it reaches it with a token.
type otherMail struct {
	why    string
	to     string            // signed; "": bob
	before string            // fields that were added after signing
	edit   map[string]string // other signed fields
	title  string            // before the subject
	text   string
}

const attachedAnswer = "--b\r\nContent-Type: text/plain\r\n\r\n%s\r\n--b\r\nContent-Type: message/rfc822\r\n\r\nFrom: ann@human.test\r\nTo: permesso@gate.test\r\nSubject: Re: x\r\n\r\n1\r\n--b--\r\n"

// othersMails are the emails about a card. ADDRESS is its reply address, TAG its tag with the
// token.
func othersMails() []otherMail {
	const gate = "permesso@gate.test"
	multipart := map[string]string{"Content-Type": "multipart/mixed; boundary=b"}
	ago := func(d time.Duration) map[string]string {
		return map[string]string{"Date": time.Now().Add(-d).Format(time.RFC1123Z)}
	}
	return []otherMail{
		{why: "sent on as it is"},
		{why: "sent on as it is: approve", text: "Approve"},
		{why: "sent on with a Cc", before: "Cc: ADDRESS"},
		{why: "sent on with a Cc to the plain address", before: "Cc: " + gate, text: "1\n\n> TAG"},
		{why: "sent on with a Bcc", before: "Bcc: ADDRESS"},
		{why: "sent on with another To", before: "To: ADDRESS"},
		{why: "sent on, as the server delivered it", before: "Delivered-To: ADDRESS"},
		{why: "sent on with X-Original-To", before: "X-Original-To: ADDRESS"},
		{why: "sent on with Envelope-To", before: "Envelope-To: ADDRESS"},
		{why: "sent on with Apparently-To", before: "Apparently-To: ADDRESS"},
		{why: "sent on with a forged result", before: "Authentication-Results: mx.gate.test; spf=pass smtp.mailfrom=ann@human.test; dmarc=pass header.from=human.test"},
		{why: "redirected", before: "Resent-From: bob@human.test\r\nResent-To: ADDRESS"},
		{why: "redirected, in Cc", before: "Resent-From: bob@human.test\r\nResent-Cc: ADDRESS\r\nCc: ADDRESS"},
		{why: "redirected, in Bcc", before: "Resent-From: bob@human.test\r\nResent-Bcc: ADDRESS"},
		{why: "an answer of hers, redirected", to: "ADDRESS", before: "Resent-From: bob@human.test\r\nResent-To: ADDRESS"},
		{why: "to several others", to: "bob@human.test, eve@elsewhere.test"},
		{why: "to a group of others", to: "Team: bob@human.test, eve@elsewhere.test;"},
		{why: "the address as a name", to: `"ADDRESS" <bob@human.test>`},
		{why: "the address as an encoded name", to: "=?utf-8?q?permesso=40gate.test?= <bob@human.test>"},
		{why: "the address in a comment", to: "bob@human.test (ADDRESS)"},
		{why: "the address as a local part", to: `"ADDRESS"@human.test`},
		{why: "a domain below hers", to: "ADDRESS.human.test"},
		{why: "the local part at her domain", to: "permesso@human.test", text: "1\n\n> TAG"},
		{why: "another local part", to: "permesso-team@gate.test", text: "1\n\n> TAG"},
		{why: "Cc to another", edit: map[string]string{"Cc": "eve@elsewhere.test"}},
		{why: "Bcc to the gate, the token in the text", text: "1\n\n> TAG"},
		{why: "Bcc to the gate, the token in the subject", title: "TAG "},
		{why: "only Bcc", to: "undisclosed-recipients:;", text: "1\n\n> TAG"},
		{why: "forwarded to the gate: Fwd", to: "ADDRESS", title: "Fwd: "},
		{why: "FW", to: "ADDRESS", title: "FW: "},
		{why: "WG", to: "ADDRESS", title: "Re: WG: "},
		{why: "Tr", to: "ADDRESS", title: "TR : "},
		{why: "I", to: "ADDRESS", title: "I: R: "},
		{why: "in brackets", to: "ADDRESS", title: "[Fwd: "},
		{why: "in full width", to: "ADDRESS", title: "ＦＷ： "},
		{why: "Inoltrato", to: "ADDRESS", title: "R: Inoltrato: "},
		{why: "FYI", to: "ADDRESS", title: "FYI: "},
		{why: "two To fields", to: "ADDRESS", before: "To: bob@human.test"},
		{why: "forwarded with a forwarded text", to: "ADDRESS", title: "Fwd: ", text: "1\n\n---------- Forwarded message ---------\nFrom: permesso\n\nTAG"},
		{why: "an attached answer", to: "ADDRESS", edit: multipart, text: strings.ReplaceAll(attachedAnswer, "%s", "see attached")},
		{why: "only an attached answer", to: "ADDRESS", edit: multipart, text: strings.ReplaceAll(attachedAnswer, "%s", "")},
		{why: "to another, with an attached answer", edit: multipart, text: strings.ReplaceAll(attachedAnswer, "%s", "1")},
		{why: "written ten minutes before", to: "ADDRESS", edit: ago(10 * time.Minute)},
		{why: "written yesterday", to: "ADDRESS", edit: ago(24 * time.Hour)},
		{why: "written last year", to: "ADDRESS", edit: ago(365 * 24 * time.Hour), text: "approve"},
		{why: "dated tomorrow", to: "ADDRESS", edit: ago(-24 * time.Hour)},
		{why: "no date", to: "ADDRESS", edit: map[string]string{"Date": "now"}},
	}
}

// TestMailsToOthers: with real servers and real signatures, no email that ann wrote to another person
// decides, however that person sends it on. An answer of hers does. Such emails are no fault of the channel. Meanwhile
// she is told of a request that a limit refused.
func TestMailsToOthers(t *testing.T) {
	t.Parallel()
	w := newMailRig(t, "{ pending = 100,", "{ pending = 1,")
	id := w.submitFromSandbox("count", "--arg", "what=sheep")
	card := w.mailTo(mailserver.Ann, id, autoGenerated)
	address := card.header.Get("Reply-To")
	_, token, _ := strings.Cut(strings.TrimSuffix(address, "@gate.test"), "+")
	w.submitFromSandbox("count", "--arg", "what=goats")
	fill := strings.NewReplacer("ADDRESS", address, "TAG", email.SubjectTag(id, token)).Replace
	all := othersMails()
	require.GreaterOrEqual(t, len(all), 40)
	handled := func() int { return strings.Count(w.daemon.logged(), `"message":"email handled"`) }
	for i, m := range all {
		r := replyTo(card, fill(m.text))
		if r.Text == "" {
			r.Text = "1"
		}
		r.To, r.Subject, r.Header = mailserver.Bob, fill(m.title)+card.subject, m.edit
		if m.to != "" {
			r.To = fill(m.to)
		}
		raw := w.servers.SignedReply(t, r)
		if m.before != "" {
			raw = append([]byte(fill(m.before)+"\r\n"), raw...)
		}
		if strings.Contains(m.before, "Delivered-To") {
			w.servers.Drop(t, mailserver.Gate, raw) // OpenSMTPD would see a loop
		} else {
			w.servers.Deliver(t, raw, address)
		}
		await(t, w.daemon.log, func() bool { return handled() == i+1 })
		require.FileExists(t, filepath.Join(w.layout.Pendings("work"), id+".json"), m.why)
		require.NoFileExists(t, filepath.Join(w.layout.Decisions("work"), id+".json"), m.why)
	}
	code, status, errs := w.run("", "status")
	require.Zero(t, code, errs)
	require.Contains(t, status, "daemon  running\n")
	require.Contains(t, status, "note    email: an email by ann@human.test about "+id[:8]+" was not taken, and not answered", "above the limit of answers")
	require.Contains(t, w.mailTo(mailserver.Ann, id, autoReplied).body, "this email is addressed to others")
	w.deliverSigned(replyTo(card, "1\n"))
	require.Equal(t, approval.StatusApproved, w.response(id).Status)
	require.Equal(t, 1, w.ran(id))
	for told := ""; !strings.HasPrefix(told, "🚫"); {
		if told = parseMail(t, w.inboxes[mailserver.Ann].Next(t)).subject; strings.HasPrefix(told, "🚫") {
			require.Equal(t, "🚫 work: requests refused by a limit, without asking you: 1", told)
		}
	}
}

// TestAnswerBehindRecentMails: while the daemon is down, thousands of emails arrive, and an answer
// behind them. It counts within ten seconds after the start (measured by make soak), and none of the others
// is taken before it. One that arrives then does not wait for the others either.
func TestAnswerBehindRecentMails(t *testing.T) {
	w := newMailRig(t, `approval_timeout = "10m"`, `approval_timeout = "2h"`)
	var cards []mailCopy
	var ids []string
	for range 2 {
		id := w.submitFromSandbox("count", "--arg", "what=sheep")
		ids, cards = append(ids, id), append(cards, w.mailTo(mailserver.Ann, id, autoGenerated))
	}
	w.daemon.stop()
	n := mailserver.Recent()
	w.servers.Fill(t, mailserver.Gate, n)
	w.servers.Drop(t, mailserver.Gate, w.servers.SignedReply(t, replyTo(cards[0], "1\n")))
	decides := func(i int, start time.Time) {
		require.Equal(t, approval.StatusApproved, w.response(ids[i]).Status)
		t.Logf("decided behind %d emails: %v", n, time.Since(start).Round(time.Millisecond))
		if os.Getenv("PERMESSO_SOAK") != "" {
			require.Less(t, time.Since(start), 10*time.Second)
		}
	}
	w.daemon = w.serve()
	w.daemon.awaitLog(`"serving"`)
	decides(0, time.Now())
	start := time.Now()
	w.servers.Drop(t, mailserver.Gate, w.servers.SignedReply(t, replyTo(cards[1], "1\n")))
	decides(1, start)
	w.daemon.stop()
	var first string
	for line := range strings.Lines(w.daemon.logged()) {
		if strings.Contains(line, `"message":"email handled"`) {
			first = line
			break
		}
	}
	require.Contains(t, first, `"id":"`+ids[0]+`"`, "the answer is taken before the others")
}
