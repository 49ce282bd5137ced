package email

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// An email that is no answer to the gate, or older than the card, decides nothing. Its sender
// is told why.
func TestEmailsThatAreNoAnswers(t *testing.T) { synctest.Test(t, testEmailsThatAreNoAnswers) }

func testEmailsThatAreNoAnswers(t *testing.T) {
	w := newRig(t)
	to := func(value string) func(parsedEmail) []func(map[string]string) {
		return func(c parsedEmail) []func(map[string]string) {
			return []func(map[string]string){withHeader("To", strings.ReplaceAll(value, "TOKEN", c.token)), withHeader("X", "y\r\nDelivered-To: permesso+"+c.token+"@gate.test")}
		}
	}
	subject := func(before, after string) func(parsedEmail) []func(map[string]string) {
		return func(c parsedEmail) []func(map[string]string) {
			return []func(map[string]string){withHeader("Subject", "=?utf-8?b?"+b64(before+c.subject+after)+"?=")}
		}
	}
	header := func(name, value string) func(parsedEmail) []func(map[string]string) {
		return func(parsedEmail) []func(map[string]string) { return []func(map[string]string){withHeader(name, value)} }
	}
	date := func(d time.Duration) func(parsedEmail) []func(map[string]string) {
		return func(parsedEmail) []func(map[string]string) {
			return []func(map[string]string){withHeader("Date", time.Now().Add(d).Format(time.RFC1123Z))}
		}
	}
	for _, row := range []struct {
		why  string
		edit func(parsedEmail) []func(map[string]string)
		says string // "": it decides
	}{
		{"to the gate", to("permesso+TOKEN@gate.test"), ""},
		{"in capitals", to("<PERMESSO+TOKEN@GATE.test>"), ""},
		{"among others", to("bob@human.test, Gate <permesso+TOKEN@gate.test>, x@y.test"), ""},
		{"in a group", to("Team: bob@human.test, permesso+TOKEN@gate.test;"), ""},
		{"in Cc", func(c parsedEmail) []func(map[string]string) {
			return []func(map[string]string){withHeader("To", bobMail+"\r\nCc: permesso+"+c.token+"@gate.test")}
		}, ""},
		{"a sub-address of another kind, and the token in the text", to("permesso+x@gate.test"), "only in a field that is not signed"},
		{"to another person", to(bobMail), "is addressed to others: neither To nor Cc names permesso@gate.test"},
		{"an address as a name", to(`"permesso+TOKEN@gate.test" <bob@human.test>`), "is addressed to others"},
		{"an address as an encoded name", to(`=?utf-8?q?permesso=40gate.test?= <bob@human.test>`), "is addressed to others"},
		{"an address in a comment", to(`bob@human.test (permesso+TOKEN@gate.test)`), "is addressed to others"},
		{"an address as a local part", to(`"permesso+TOKEN@gate.test"@human.test`), "is addressed to others"},
		{"an encoded word as the address", to(`=?utf-8?q?permesso=2BTOKEN=40gate.test?=`), "is addressed to others"},
		{"another domain", to("permesso+TOKEN@gate.test.human.test"), "is addressed to others"},
		{"another name", to("permesso-TOKEN@gate.test"), "is addressed to others"},
		{"an empty group", to("undisclosed-recipients:;"), "is addressed to others"},
		{"the token in Delivered-To only", to("permesso@gate.test"), "only in a field that is not signed"},
		{"resent", header("X", "y\r\nResent-From: bob@human.test\r\nResent-To: permesso@gate.test"), "it has Resent fields"},
		{"on behalf of another", header("X", "y\r\nSender: bob@human.test"), "a Sender field that differs"},
		{"the same sender", header("X", "y\r\nSender: Ann <Ann@human.test>"), ""},
		{"without a subject", header("Subject", ""), "has no subject"},
		{"two To fields", to("permesso+TOKEN@gate.test\r\nTo: bob@human.test"), "has two To fields, or two of another field"},
		{"a To field before it", to("bob@human.test\r\nTo: permesso+TOKEN@gate.test"), "has two To fields"},
		{"two subjects", header("X", "y\r\nSubject: x"), "has two To fields, or two of another field"},
		{"without a date", header("Date", ""), "has no date"},
		{"with a date of its own", header("Date", "yesterday"), "a date that cannot be read"},
		{"four minutes early", date(-4 * time.Minute), ""},
		{"six minutes early", date(-6 * time.Minute), "written before the card was sent"},
		{"half an hour ahead", date(30 * time.Minute), ""},
		{"two hours ahead", date(2 * time.Hour), "a date that is more than an hour in the future"},
		{"next year", date(365 * 24 * time.Hour), "in the future"},
		{"yesterday", date(-24 * time.Hour), "written before the card was sent"},
		{"Fwd", subject("Fwd: ", ""), "the subject of a forwarded email"},
		{"FW", subject("FW: ", ""), "forwarded"},
		{"WG", subject("WG: ", ""), "forwarded"},
		{"Tr", subject("Tr : ", ""), "forwarded"},
		{"I", subject("I: ", ""), "forwarded"},
		{"i after R", subject("R: i: ", ""), "forwarded"},
		{"Re and Fwd", subject("Re: AW: fwd: ", ""), "forwarded"},
		{"counted", subject("Re[2]: Fw(3): ", ""), "forwarded"},
		{"in brackets", subject("[Fwd: Re: ", "]"), "forwarded"},
		{"after a mark of the server", subject("[EXTERN] WG: ", ""), "forwarded"},
		{"Chinese", subject("转发：", ""), "forwarded"},
		{"Turkish", subject("İLT: ", ""), "forwarded"},
		{"replies", subject("RE: Aw: SV: R: Rif: Antw: VS: 回复：", ""), ""},
		{"words around the title", subject("Re: [EXT] urgent, for the board: ", " thanks, final answer"), ""},
		{"a mark after the title", subject("Re: ", " Fwd: x"), "forwarded"},
		{"in brackets at the end", subject("", " (Fwd)"), "forwarded"},
		{"in brackets after a reply", subject("Re: ", " [fwd]"), "forwarded"},
		{"after a dash", subject("Re: ", " - Fw"), "forwarded"},
		{"in brackets at the start", subject("(Fwd) ", ""), "forwarded"},
		{"in other brackets", subject("【转发】", ""), "forwarded"},
		{"without a colon", subject("FWD ", ""), "forwarded"},
		{"full width", subject("ＦＷ：", ""), "forwarded"},
		{"full width, in brackets", subject("Re: （Ｆｗｄ） ", ""), "forwarded"},
		{"Inoltra", subject("Inoltra: ", ""), "forwarded"},
		{"Inoltrato", subject("Inoltrato: ", ""), "forwarded"},
		{"FYI", subject("FYI: ", ""), "forwarded"},
		{"FYI after a reply", subject("Re: fyi - ", ""), "forwarded"},
		{"Per conoscenza", subject("Per conoscenza: ", ""), "forwarded"},
		{"p.c.", subject("R: p.c.: ", ""), "forwarded"},
		{"R and Fwd", subject("R: Fwd: ", ""), "forwarded"},
		{"Zur Kenntnis", subject("Zur Kenntnis: ", ""), "forwarded"},
		{"without a colon before a reply", subject("Fw Re: ", ""), "forwarded"},
		{"F", subject("F: ", ""), "forwarded"},
		{"Transféré", subject("Transféré: ", ""), "forwarded"},
		{"Videresendt", subject("Videresendt: ", ""), "forwarded"},
		{"PTI", subject("PTI: ", ""), "forwarded"},
		{"Da inoltrare", subject("Da inoltrare: ", ""), "forwarded"},
		{"for your information", subject("For your information: ", ""), "forwarded"},
	} {
		k := w.addNextPending("home")
		card := w.onlyEmail(w.runAndTakeSent())
		taken, answers := w.deliver(replyTo(card, annMail, "1", row.edit(card)...))
		require.Equal(t, row.says == "", w.decision(k) != nil, "%s: %s", row.why, taken.Why)
		answer := w.onlyEmail(answers)
		if row.says == "" {
			continue
		}
		require.Equal(t, Refused, taken.Status, row.why)
		require.Contains(t, answer.text, "Nothing was decided: this email ", row.why)
		require.Contains(t, strings.ReplaceAll(answer.text, "\n", " "), row.says, row.why)
		taken, _ = w.deliver(replyTo(answer, annMail, "1"))
		require.Equal(t, Decided, taken.Status, "%s: the answer can be replied to", row.why)
	}
}

// A card's own title may begin or end like the subject of a forwarded email, and may be cut.
func TestTitleLikeAForward(t *testing.T) { synctest.Test(t, testTitleLikeAForward) }

func testTitleLikeAForward(t *testing.T) {
	for subject, forwarded := range map[string]bool{
		"Re: I: ask": false, "I: ask [appr_x]": false, "Fwd: I: ask": true, "I: I: ask": true, "I: as": true, "RE: I:  ASK": false, "Re: I: a… [appr_x]": false,
		"Fwd: I: a… [appr_x]": true, "Re: I: a… [appr_x] (fwd)": true, "another subject": false, "another one (fwd)": true, "fwd": true, "Re: I see": false, "Re: other Fwd:  · words": true,
	} {
		require.Equal(t, forwarded, (&inboundMail{Subject: subject}).forwards("I: ask"), subject)
	}
	w := newRig(t)
	for _, target := range []string{"Fwd: x", "(Fwd)", "x (fwd)", "ＦＷ: a", "I:", "FYI", "i", "…", "Per conoscenza: a  b", "tr\u00a0: c", strings.Repeat("轉寄: ", 60)} {
		for before, decides := range map[string]bool{"": true, "Re: ": true, "R: [EXT] ": true, "Fwd: ": false, "I: ": false} {
			k := w.addNextPending("home", func(p *approval.Pending) {
				p.Verb, p.Summary, p.Target = map[string]string{"en": "fwd:"}, target, target
			})
			card := w.onlyEmail(w.runAndTakeSent())
			taken, answers := w.deliver(replyTo(card, annMail, "1", withHeader("Subject", "=?utf-8?b?"+b64(before+card.subject)+"?=")))
			require.Len(t, answers, 1)
			require.Equal(t, decides, w.decision(k) != nil, "%s%s: %s", before, card.subject, taken.Why)
		}
	}
}

// A field that a provider adds makes no machine of a person.
func TestFieldsOfProviders(t *testing.T) { synctest.Test(t, testFieldsOfProviders) }

func testFieldsOfProviders(t *testing.T) {
	w := newRig(t)
	for _, field := range []string{
		"Feedback-ID: i1:fm:fastmail", "X-Auto-Response-Suppress: All", "X-Auto-Response-Suppress: OOF, AutoReply", "List-Unsubscribe: <mailto:x@human.test>",
		"List-Unsubscribe-Post: List-Unsubscribe=One-Click", "X-Loop: ann@human.test", "X-AutoReply: no", "X-Autorespond: NO",
	} {
		k := w.addNextPending("home")
		taken, _ := w.deliver(replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "1", withHeader("X", "y\r\n"+field)))
		require.Equal(t, Decided, taken.Status, "%s: %s", field, taken.Why)
		require.NotNil(t, w.decision(k), field)
	}
}

// The part before the @ is compared without case, also with the configuration's.
func TestLocalPartsWithoutCase(t *testing.T) { synctest.Test(t, testLocalPartsWithoutCase) }

func testLocalPartsWithoutCase(t *testing.T) {
	w := newRig(t)
	for _, configured := range []string{"ann@human.test", "Ann.B@human.test"} {
		w.people["home"][0].IDs["email"] = configured
		k := w.addNextPending("home")
		card := w.onlyEmail(w.runAndTakeSent())
		require.Equal(t, configured, card.to)
		taken, answers := w.deliver(replyTo(card, strings.ToUpper(configured[:3])+configured[3:], "1"))
		require.Equal(t, Decided, taken.Status, taken.Why)
		require.Equal(t, "email:"+configured, w.decision(k).DecidedByID)
		require.Equal(t, configured, w.onlyEmail(answers).to)
	}
}

// An email that a program sent is not answered. If its token is valid and its sender proved,
// the status tells of it, and the next card.
func TestUnansweredIsTold(t *testing.T) { synctest.Test(t, testUnansweredIsTold) }

func testUnansweredIsTold(t *testing.T) {
	w := newRig(t)
	w.people["home"][0].Language = "it"
	k := w.addNextPending("home")
	card := w.onlyEmail(w.runAndTakeSent())
	listed := replyTo(card, annMail, "1", withHeader("X", "y\r\nList-Id: <l.human.test>"))
	for range 2 {
		taken, answers := w.deliver(listed)
		require.NotEqual(t, Decided, taken.Status)
		require.Empty(t, answers)
	}
	_, answers := w.deliver(replyTo(card, annMail, "1", withHeader("X", "y\r\nList-Id: <l.human.test>"), withHeader("To", "permesso@gate.test")))
	require.Empty(t, answers)
	require.Nil(t, w.decision(k))
	require.Equal(t, "email: an email by ann@human.test about "+approval.ShortID(k.ID)+" was not taken, and not answered: field of a program (list-id)", w.note())
	w.restart()
	w.runAndTakeSent()
	require.Contains(t, w.note(), "was not taken", "also after a restart")

	require.Empty(t, w.problem(), "it is no fault of the channel")
	first := k
	w.next++
	k = w.addPending("home", fmt.Sprintf("a7f3%04x00000000", w.next))
	next := w.onlyEmail(w.runAndTakeSent())
	line := "La tua email precedente su " + approval.ShortID(first.ID) + " non ha avuto risposta. Nulla è stato deciso: questa email è stata inviata da un programma"
	require.Equal(t, 1, strings.Count(next.text, line), next.text)
	require.Equal(t, 1, strings.Count(next.page, line), next.page)
	w.next++
	w.addPending("home", fmt.Sprintf("a7f3%04x00000000", w.next))
	require.NotContains(t, w.onlyEmail(w.runAndTakeSent()).text, line, "once")
	taken, _ := w.deliver(replyTo(next, annMail, "1\n\n> "+strings.ReplaceAll(next.text, "\n", "\n> ")))
	require.Equal(t, Decided, taken.Status)
	require.Equal(t, k, taken.Key)
	require.Empty(t, w.note(), "a reply decided")
}

// The same holds for the answers above the limit. A day later the status is clear.
func TestAnswersAboveTheLimitAreTold(t *testing.T) { synctest.Test(t, testAnswersAboveTheLimitAreTold) }

func testAnswersAboveTheLimitAreTold(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	for range maxUnclear {
		_, answers := w.deliver(replyTo(card, annMail, "hm"))
		require.Len(t, answers, 1)
		require.Empty(t, w.problem(), "an email that is not understood is no fault of the channel")
		require.Empty(t, w.note())
	}
	_, answers := w.deliver(replyTo(card, annMail, "hm"))
	require.Empty(t, answers)
	require.Contains(t, w.note(), "an email by ann@human.test about a7f3b2c1 was not taken, and not answered: ")
	require.Empty(t, w.problem())
	w.clock.advance(26 * time.Hour)
	require.Empty(t, w.note())
	w.addPending("home", "00000000000000aa")
	require.Contains(t, w.onlyEmail(w.runAndTakeSent()).text, "Your earlier email about a7f3b2c1 got no answer. Not understood, nothing was decided.")
}

// Confirmations do not count against the limit of answers.
func TestConfirmationsAreNotLimited(t *testing.T) { synctest.Test(t, testConfirmationsAreNotLimited) }

func testConfirmationsAreNotLimited(t *testing.T) {
	w := newRig(t)
	for i := range maxAnswersPerHour + 2 {
		w.addPending("home", fmt.Sprintf("%016x", i+1))
		_, answers := w.deliver(replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "1"))
		require.Len(t, answers, 1)
	}
	w.addPending("home", id1)
	_, answers := w.deliver(replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "hm"))
	require.Len(t, answers, 1, "an unclear reply after them is still answered")
}

// A caller of the API may post a text that was refused before: it is another reply.
func TestForwardedAgain(t *testing.T) { synctest.Test(t, testForwardedAgain) }

func testForwardedAgain(t *testing.T) {
	w := newRig(t)
	w.Addressing.Separator = ""
	w.ceilings["home"] = approval.Reversible
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	post := func(subject string) Taken {
		taken, err := w.TakeForwarded(t.Context(), Forwarded{Subject: subject + card.subject, Body: "1"}, approval.Person{Channel: "email", ID: annMail})
		require.NoError(t, err)
		return taken
	}
	require.Equal(t, Refused, post("Re: ").Status, "above the ceiling")
	require.Equal(t, Refused, post("Re: ").Status)
	delete(w.ceilings, "home")
	require.Equal(t, Refused, post("Fwd: ").Status)
	require.Nil(t, w.decision(k))
	require.Equal(t, Taken{Status: Decided, Key: k}, post("Re: "))
	require.Equal(t, Duplicate, post("Re: ").Status)
}

// An email that was refused does not decide later, in another delivery. But a copy that another
// person has changed does not block the original.
func TestRefusedOnce(t *testing.T) { synctest.Test(t, testRefusedOnce) }

func testRefusedOnce(t *testing.T) {
	w := newRig(t)
	w.ceilings["home"] = approval.Reversible
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	in := replyTo(card, annMail, "1")
	again := func(field string) (Taken, []sentMail) {
		in.Name += "again"
		return w.deliver(mailbox.Incoming{Name: in.Name, Raw: append([]byte(field), in.Raw...)})
	}
	taken, _ := w.deliver(in)
	require.Equal(t, Refused, taken.Status)
	delete(w.ceilings, "home")
	taken, _ = again("")
	require.Equal(t, Duplicate, taken.Status)

	in = replyTo(card, annMail, "1")
	taken, _ = again("Resent-From: bob@human.test\r\n")
	require.Equal(t, Refused, taken.Status)
	taken, answers := again("Resent-From: bob@human.test\r\n")
	require.Equal(t, Duplicate, taken.Status)
	require.Empty(t, answers)
	taken, _ = again("List-Id: x\r\n")
	require.Equal(t, Ignored, taken.Status)
	require.Nil(t, w.decision(k))
	taken, _ = again("")
	require.Equal(t, Decided, taken.Status)
}

// Of an email that is too large the header is enough to tell its sender.
func TestTooLargeIsTold(t *testing.T) { synctest.Test(t, testTooLargeIsTold) }

func testTooLargeIsTold(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	in := replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "1")
	head, _, _ := strings.Cut(string(in.Raw), "\r\n\r\n")
	taken, answers := w.deliver(mailbox.Incoming{Name: "large", Raw: []byte(head + "\r\n"), TooLarge: true})
	require.Equal(t, Unclear, taken.Status)
	require.Contains(t, strings.ReplaceAll(w.onlyEmail(answers).text, "\n", " "), "it is larger than 512 KiB; delete the quoted text.")
	require.Nil(t, w.decision(k))
}

// An email with a valid token that names two requests is told, too. One whose sender is no approver
// any more is not.
func TestSeveralRequestsAreTold(t *testing.T) { synctest.Test(t, testSeveralRequestsAreTold) }

func testSeveralRequestsAreTold(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	reply := func() mailbox.Incoming {
		return replyTo(card, annMail, "1", withHeader("To", "permesso@gate.test"), withoutHeaders("In-Reply-To", "References"),
			withHeader("Subject", SubjectTag(k.ID, card.token)+" "+SubjectTag("00000000000000ff", "")))
	}
	taken, answers := w.deliver(reply())
	require.Equal(t, Refused, taken.Status)
	require.Contains(t, w.onlyEmail(answers).text, "names more than one request")
	require.Nil(t, w.decision(k))
	w.people["home"] = nil
	for _, in := range []mailbox.Incoming{reply(), replyTo(card, annMail, "1"), replyTo(card, annMail, "1", withHeader("X", "y\r\nList-Id: x"))} {
		taken, answers = w.deliver(in)
		require.Contains(t, []Status{Refused, Ignored}, taken.Status)
		require.Empty(t, answers)
	}
	require.Nil(t, w.decision(k))
	require.Empty(t, w.note())
}

func TestLikely(t *testing.T) {
	sub := Addressing{Local: "Permesso", Separator: "+", Domain: "gate.test"}
	for header, likely := range map[string]bool{
		"To: PERMESSO+abc@gate.test\r\n": true, "In-Reply-To: <APPR_a7f3@gate.test>\r\n": true, "Subject: Re: x [appr_a7f3]\r\n": true,
		"To: permesso@gate.test\r\nSubject: news\r\n": false, "": false,
	} {
		require.Equal(t, likely, sub.Likely([]byte(header)), header)
	}
	require.False(t, Addressing{Local: "permesso", Domain: "gate.test"}.Likely([]byte("To: permesso@gate.test")))
}
