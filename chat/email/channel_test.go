package email

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// A card is recorded before it is sent, and sent once.
func TestAskedOnce(t *testing.T) { synctest.Test(t, testAskedOnce) }

func testAskedOnce(t *testing.T) {
	w := newRig(t)
	k := w.addPending("office", id1)
	w.outbox.before = func(to string, raw []byte) error {
		page, err := w.sentStore.Load(k)
		require.NoError(t, err, "the record is saved before the email is sent")
		card := parseEmail(t, sentMail{to, raw})
		require.Contains(t, string(page), tokenDigest(card.token))
		require.Contains(t, string(page), strings.Trim(card.header.Get("Message-Id"), "<>"))
		require.NotContains(t, string(page), card.token, "only the digest is saved")
		return nil
	}
	mails := w.runAndTakeSent()
	require.Len(t, mails, 2, "ann and bob have an address, carl has none, eva is in another workspace")
	require.NotEqual(t, parseEmail(t, mails[0]).token, parseEmail(t, mails[1]).token)
	require.Empty(t, w.runAndTakeSent())
	w.restart()
	require.Empty(t, w.runAndTakeSent(), "not again after a restart")

	w.people["office"] = append(w.people["office"], approval.Approver{Name: "dora", IDs: map[string]string{"email": "dora@human.test"}})
	require.Equal(t, "dora@human.test", w.onlyEmail(w.runAndTakeSent()).to, "a new approver is asked, too")
}

func TestOnlyThePrincipalIsAsked(t *testing.T) { synctest.Test(t, testOnlyThePrincipalIsAsked) }

func testOnlyThePrincipalIsAsked(t *testing.T) {
	w := newRig(t)
	w.addPending("office", id1, func(p *approval.Pending) { p.Principal = "bob" })
	require.Equal(t, bobMail, w.onlyEmail(w.runAndTakeSent()).to)
}

func TestExpiredRequestIsNotSent(t *testing.T) { synctest.Test(t, testExpiredRequestIsNotSent) }

func testExpiredRequestIsNotSent(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1)
	w.clock.advance(5 * time.Minute)
	require.Empty(t, w.runAndTakeSent())
}

// A card that may have been sent before a crash is sent again, as the same email, and
// a reply to either copy counts.
func TestSentAgainAfterACrash(t *testing.T) { synctest.Test(t, testSentAgainAfterACrash) }

func testSentAgainAfterACrash(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	var first parsedEmail
	ctx, crash := context.WithCancel(t.Context())
	w.outbox.before = func(to string, raw []byte) error {
		first = parseEmail(t, sentMail{to, raw})
		crash()
		return context.Canceled
	}
	w.stop()
	require.NoError(t, w.Run(ctx))
	w.outbox.before = nil
	w.restart()
	require.Empty(t, w.runAndTakeSent(), "not at once: an email that crashes the daemon would be sent forever")
	w.clock.advance(10 * time.Second)
	second := w.onlyEmail(w.runAndTakeSent())
	require.Equal(t, first.header.Get("Message-Id"), second.header.Get("Message-Id"))
	require.NotEqual(t, first.token, second.token)
	taken, _ := w.deliver(replyTo(first, annMail, "1"))
	require.Equal(t, Taken{Decided, k, "proved: relay"}, taken)
	require.True(t, w.decision(k).Approved)
}

// If the server is down, attempts get rarer and the operator is told. When it is back,
// cards are sent at once.
func TestServerDown(t *testing.T) { synctest.Test(t, testServerDown) }

func testServerDown(t *testing.T) {
	w := newRig(t)
	tries := 0
	w.outbox.before = func(string, []byte) error {
		tries++
		return &mailbox.Error{Stage: "connect", Temporary: true, Err: errors.New("connection refused"), Help: "is it up?"}
	}
	w.addPending("office", id1)
	w.runAndTakeSent()
	require.Equal(t, 1, tries, "one failed connection is enough for all cards")
	for range 20 {
		w.runAndTakeSent()
		w.clock.advance(5 * time.Second)
	}
	require.GreaterOrEqual(t, tries, 3)
	require.Less(t, tries, 10, "delays of 5, 10, 20 seconds …")
	require.Equal(t, "email: cannot send: connect: connection refused", w.problem())
	w.restart()
	w.outbox.before = nil
	w.clock.advance(2 * time.Minute)
	require.Len(t, w.runAndTakeSent(), 2)
	w.addPending("home", "0000000000000001")
	w.runAndTakeSent()
	require.Empty(t, w.problem())
}

// A refused login delays every card and drops none.
func TestServerRefusesLogin(t *testing.T) { synctest.Test(t, testServerRefusesLogin) }

func testServerRefusesLogin(t *testing.T) {
	w := newRig(t)
	w.outbox.before = func(string, []byte) error {
		return &mailbox.Error{Stage: "log in", Account: true, Code: 535, Err: errors.New("535 no")}
	}
	w.addPending("home", id1)
	w.runAndTakeSent()
	require.Contains(t, w.problem(), "log in: 535 no")
	w.outbox.before = nil
	w.clock.advance(10 * time.Second)
	require.Equal(t, annMail, w.onlyEmail(w.runAndTakeSent()).to)
	require.Empty(t, w.problem())
}

// A permanently refused address is not tried again. The operator and the other channels
// are told, and the other approvers are asked.
func TestAddressRefused(t *testing.T) { synctest.Test(t, testAddressRefused) }

func testAddressRefused(t *testing.T) {
	w := newRig(t)
	tries := 0
	w.outbox.before = func(to string, _ []byte) error {
		if to != annMail {
			return nil
		}
		tries++
		return &mailbox.Error{Stage: "name the recipient", Code: 550, Err: errors.New("550 no such user")}
	}
	w.addPending("office", id1)
	require.Equal(t, bobMail, w.onlyEmail(w.runAndTakeSent()).to)
	for range 20 {
		w.clock.advance(10 * time.Second)
		require.Empty(t, w.runAndTakeSent())
	}
	require.Equal(t, 1, tries)
	require.Equal(t, "email: card a7f3b2c1 to ann@human.test was refused: name the recipient: 550 no such user", w.problem())
	require.Len(t, w.alerts, 1)
	w.outbox.before = nil
	w.addPending("home", "0000000000000001")
	w.runAndTakeSent()
	require.Empty(t, w.problem(), "cleared by the next success")
}

// A temporary refusal delays only the email that was refused.
func TestGreylisting(t *testing.T) { synctest.Test(t, testGreylisting) }

func testGreylisting(t *testing.T) {
	w := newRig(t)
	left := 3
	w.outbox.before = func(to string, _ []byte) error {
		if to == annMail && left > 0 {
			left--
			return &mailbox.Error{Stage: "name the recipient", Temporary: true, Code: 451, Err: errors.New("451 later")}
		}
		return nil
	}
	k := w.addPending("office", id1)
	require.Equal(t, bobMail, w.onlyEmail(w.runAndTakeSent()).to)
	require.Empty(t, w.runAndTakeSent())
	w.restart()
	var got []sentMail
	for range 12 {
		w.clock.advance(5 * time.Second)
		got = append(got, w.runAndTakeSent()...)
	}
	require.Equal(t, annMail, w.onlyEmail(got).to)
	require.Empty(t, w.problem())
	stored, _ := w.storedCard(k, annMail)
	require.Len(t, stored.Secrets, 1, "the token of an email that certainly did not arrive is removed")
}

// The outcome is sent in the thread of the card.
func TestFollowUp(t *testing.T) { synctest.Test(t, testFollowUp) }

func testFollowUp(t *testing.T) {
	w := newRig(t)
	k := w.addPending("office", id1)
	cards := w.runAndTakeSent()
	w.writeRecord(k, approval.StatusDenied)
	mails := w.runAndTakeSent()
	require.Len(t, mails, 2)
	for i, m := range mails {
		card, after := parseEmail(t, cards[i]), parseEmail(t, m)
		require.Equal(t, card.to, after.to)
		require.Equal(t, card.header.Get("Message-Id"), after.header.Get("In-Reply-To"))
		require.Equal(t, card.header.Get("Message-Id"), after.header.Get("References"))
		require.Equal(t, "auto-generated", after.header.Get("Auto-Submitted"))
		require.Equal(t, []string{"Denied: ", "Negato: "}[i]+card.subject, after.subject)
		require.Empty(t, after.header.Get("Reply-To"), "the outcome takes no reply")
	}
	require.Equal(t, "🔐 a7f3b2c1 · denied · by bob (terminal)\n", parseEmail(t, mails[0]).text)
	require.Equal(t, "🔐 a7f3b2c1 · negato · da bob (terminal)\n", parseEmail(t, mails[1]).text)
	require.Empty(t, w.runAndTakeSent())
	w.restart()
	require.Empty(t, w.runAndTakeSent())
}

func TestFollowUpSwitchedOff(t *testing.T) { synctest.Test(t, testFollowUpSwitchedOff) }

func testFollowUpSwitchedOff(t *testing.T) {
	w := newRig(t)
	w.stop()
	w.FollowUp = false
	w.start()
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	w.writeRecord(k, approval.StatusDenied)
	require.Empty(t, w.runAndTakeSent())
	taken, answers := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Len(t, answers, 1)
}

// The approver who decided by email gets the outcome only after a failure.
func TestDeciderGetsOneAnswer(t *testing.T) { synctest.Test(t, testDeciderGetsOneAnswer) }

func testDeciderGetsOneAnswer(t *testing.T) {
	for status, more := range map[approval.Status]int{approval.StatusApproved: 0, approval.StatusFailed: 1, approval.StatusInterrupted: 1, approval.StatusExpired: 1} {
		w := newRig(t)
		k := w.addPending("office", id1)
		cards := w.runAndTakeSent()
		_, answers := w.deliver(replyTo(parseEmail(t, cards[0]), annMail, "1"))
		require.Contains(t, w.onlyEmail(answers).text, "Approved: post ")
		w.writeRecord(k, status)
		mails := w.runAndTakeSent()
		require.Len(t, mails, 1, "the answer comes before the outcome")
		w.clock.advance(time.Second)
		mails = append(mails, w.runAndTakeSent()...)
		require.Len(t, mails, 1+more, status)
	}
}

// A card that was never sent has no follow-up.
func TestSettledBeforeItWasSent(t *testing.T) { synctest.Test(t, testSettledBeforeItWasSent) }

func testSettledBeforeItWasSent(t *testing.T) {
	w := newRig(t)
	w.outbox.before = func(string, []byte) error {
		return &mailbox.Error{Stage: "connect", Temporary: true, Err: errors.New("refused")}
	}
	k := w.addPending("home", id1)
	w.runAndTakeSent()
	w.writeRecord(k, approval.StatusExpired)
	w.outbox.before = nil
	w.clock.advance(time.Hour)
	require.Empty(t, w.runAndTakeSent())
}

// Sent records are kept as long as a late reply may come.
func TestSentRecordsArePruned(t *testing.T) { synctest.Test(t, testSentRecordsArePruned) }

func testSentRecordsArePruned(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	w.writeRecord(k, approval.StatusDenied)
	w.runAndTakeSent()
	w.runAndTakeSent() // first the outcome is sent, then the record is closed
	w.clock.advance(29 * 24 * time.Hour)
	w.runAndTakeSent()
	_, err := w.sentStore.Load(k)
	require.NoError(t, err)
	w.clock.advance(2 * 24 * time.Hour)
	w.runAndTakeSent()
	_, err = w.sentStore.Load(k)
	require.Error(t, err)
	taken, answers := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Ignored, taken.Status)
	require.Empty(t, answers)
}

// A workspace that is missing in the configuration for a while gets no card twice.
func TestWorkspaceRemovedAndAddedAgain(t *testing.T) {
	synctest.Test(t, testWorkspaceRemovedAndAddedAgain)
}

func testWorkspaceRemovedAndAddedAgain(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	all := w.names
	w.names = []string{"shop"}
	for range 3 {
		w.clock.advance(time.Minute)
		require.Empty(t, w.runAndTakeSent())
	}
	w.names = all
	require.Empty(t, w.runAndTakeSent())
	taken, _ := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Decided, taken.Status)
}

// A request that the gate withdrew without a record is dropped.
func TestWithdrawnRequest(t *testing.T) { synctest.Test(t, testWithdrawnRequest) }

func testWithdrawnRequest(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	w.runAndTakeSent()
	require.NoError(t, w.store.Remove(context.Background(), approval.DocPending, k))
	w.runAndTakeSent()
	_, err := w.sentStore.Load(k)
	require.NoError(t, err, "the record may still be written")
	w.clock.advance(2 * time.Minute)
	require.Empty(t, w.runAndTakeSent())
	_, err = w.sentStore.Load(k)
	require.Error(t, err)
}

// A request that the gate withdrew and asks again gets a new card.
func TestAskedAgain(t *testing.T) { synctest.Test(t, testAskedAgain) }

func testAskedAgain(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	old := w.onlyEmail(w.runAndTakeSent())
	require.NoError(t, w.store.Remove(context.Background(), approval.DocPending, k))
	w.addPending("home", id1, func(p *approval.Pending) { p.Summary = "another thing" })
	taken, answers := w.deliver(replyTo(old, annMail, "1"))
	require.Equal(t, Refused, taken.Status, "no approver has seen the new request yet")
	require.Nil(t, w.decision(k))
	var card parsedEmail
	for _, m := range answers {
		if o := parseEmail(t, m); o.header.Get("Auto-Submitted") == "auto-generated" {
			card = o
		}
	}
	require.Contains(t, card.subject, "another thing")
	taken, _ = w.deliver(replyTo(old, annMail, "1"))
	require.Equal(t, Refused, taken.Status, "its token belongs to the old request")
	require.Nil(t, w.decision(k))
	taken, _ = w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Decided, taken.Status)
}

func TestCardMail(t *testing.T) { synctest.Test(t, testCardMail) }

func testCardMail(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1, func(p *approval.Pending) { p.Agent.Rationale = "see <a href=http://evil.test>here</a>" })
	m := w.onlyEmail(w.runAndTakeSent())
	require.Equal(t, `Post "Meeting at 5" -> x.com/ricardo? · home [appr_a7f3b2c1d4e5f6a7]`, m.subject)
	require.Equal(t, "permesso <permesso@gate.test>", m.header.Get("From"))
	require.Equal(t, annMail, m.header.Get("To"))
	require.Equal(t, "auto-generated", m.header.Get("Auto-Submitted"))
	require.Equal(t, "permesso+"+m.token+"@gate.test", m.header.Get("Reply-To"))
	require.Len(t, m.token, tokenLength)
	id, ok := parseMessageID(m.header.Get("Message-Id"))
	require.True(t, ok)
	require.Equal(t, k.ID, id)
	for _, part := range []string{m.text, flatten(m.page).text} {
		for _, fact := range []string{"🔐 May I post?", "home · x_post · until", "irreversible | class: channel:out", "text: Meeting at 5", "1 allow once (runs)", "until 12:05 UTC", "log 1042 9f3c", "deny", "reply to this email"} {
			require.Contains(t, part, fact)
		}
	}
	require.True(t, strings.HasPrefix(m.text, "🔐"), "so that a quotation is recognized")
	require.NotContains(t, m.text, m.token, "only the reply address has it")
	require.NotRegexp(t, `(?i)<(img|link|script|iframe|form|base)\b|\b(src|url)\s*[=(]|https?:`, strings.ReplaceAll(m.page, "&lt;a href=http://evil.test&gt;", ""), "nothing to load or to follow")
	require.Contains(t, m.page, "&lt;a href=http://evil.test&gt;")
	require.Contains(t, m.page, "In the agent&#39;s own words")
	require.NotEmpty(t, automaticReason(m.raw), "a copy that comes back is ignored")
	for line := range strings.SplitSeq(string(m.raw), "\n") {
		require.LessOrEqual(t, len(line), 200)
		require.NotRegexp(t, `[^\x09\x0d\x20-\x7e]`, line, "ASCII only, for every server")
	}
}

// Without sub-addresses the token is in the subject and in the body.
func TestCardMailWithoutSubAddresses(t *testing.T) { synctest.Test(t, testCardMailWithoutSubAddresses) }

func testCardMailWithoutSubAddresses(t *testing.T) {
	w := newRig(t)
	w.Addressing.Separator = ""
	k := w.addPending("home", id1)
	m := w.onlyEmail(w.runAndTakeSent())
	require.Empty(t, m.header.Get("Reply-To"))
	tag := regexp.MustCompile(`\[appr_a7f3b2c1d4e5f6a7 ([a-z2-7]{26})\]$`).FindStringSubmatch(m.subject)
	require.NotNil(t, tag)
	require.Contains(t, m.text, tag[0])
	taken, _ := w.deliver(replyTo(m, annMail, "1", withoutHeaders("In-Reply-To", "References")))
	require.Equal(t, Decided, taken.Status)
	require.True(t, w.decision(k).Approved)
}

// An agent's text cannot add a header, a tag or an encoded word to the subject.
func TestSubjectInjection(t *testing.T) { synctest.Test(t, testSubjectInjection) }

func testSubjectInjection(t *testing.T) {
	w := newRig(t)
	for _, evil := range []string{
		"x\r\nBcc: eva@human.test\r\n\r\n1", "x\nReply-To: eve@elsewhere.test", "=?utf-8?q?approve?= me", "=?UTF-8?B?MQ==?=",
		"see [appr_0000000000000001] and [APPR_0000000000000002 abcdefghijklmnopqrstuvwx23]", "\u202eevil\u2066", "a\x00b\x1b[31m",
		strings.Repeat("long ", 300), strings.Repeat("é", 400),
	} {
		k := w.addNextPending("home", func(p *approval.Pending) { p.Summary, p.Target = evil, evil })
		m := w.onlyEmail(w.runAndTakeSent())
		require.Empty(t, m.header.Get("Bcc"))
		require.Equal(t, "permesso+"+m.token+"@gate.test", m.header.Get("Reply-To"))
		require.NotRegexp(t, `[\x00-\x1f\x{202e}\x{2066}]`, m.subject)
		require.NotContains(t, m.subject, "=?")
		require.LessOrEqual(t, len(m.subject), 400)
		read, err := readMail(m.raw)
		require.NoError(t, err)
		var ids []string
		for _, ref := range read.Refs(w.Addressing) {
			if ref.Where == inSubject {
				ids = append(ids, ref.ID)
			}
		}
		require.Equal(t, []string{k.ID}, ids, "%q", evil)
		taken, _ := w.deliver(replyTo(m, annMail, "1"))
		require.Equal(t, Decided, taken.Status)
	}
}

// After any number of unclear replies the card itself can still be answered.
func TestCardTokenIsKept(t *testing.T) { synctest.Test(t, testCardTokenIsKept) }

func testCardTokenIsKept(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1, longLived)
	card := w.onlyEmail(w.runAndTakeSent())
	for range 3 * 12 {
		w.clock.advance(2 * time.Hour)
		w.forgetUnclear()
		_, answers := w.deliver(replyTo(card, annMail, "hm"))
		require.Len(t, answers, 1)
	}
	taken, _ := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Decided, taken.Status)
}

// A card that does not fit cannot be approved.
func TestCardThatDoesNotFit(t *testing.T) { synctest.Test(t, testCardThatDoesNotFit) }

func testCardThatDoesNotFit(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1, func(p *approval.Pending) {
		p.RequestData = approval.Raw(`{"text":"` + strings.Repeat("é", 150<<10) + `"}`)
	})
	card := w.onlyEmail(w.runAndTakeSent())
	require.Less(t, len(card.text), 210<<10)
	require.Contains(t, card.text, "You cannot approve this by email (codes 1, 2, 4 and 6), because the email does not show the complete request")
	require.Contains(t, card.page, "You cannot approve this by email")
	require.Contains(t, card.text, "Delete the quoted text from your reply")
	for _, code := range []string{"1", "2", "4 fine", "6", "approve", "approve a7f3b2c1"} {
		taken, answers := w.deliver(replyTo(card, annMail, code))
		require.Equal(t, Refused, taken.Status, code)
		require.Contains(t, w.onlyEmail(answers).text, "does not show the complete request")
		require.Nil(t, w.decision(k))
	}
	taken, _ := w.deliver(replyTo(card, annMail, "5 shorter"))
	require.Equal(t, Decided, taken.Status, "code 5 runs nothing")
}

func TestCeiling(t *testing.T) { synctest.Test(t, testCeiling) }

func testCeiling(t *testing.T) {
	w := newRig(t)
	for _, row := range []struct {
		is, ceiling approval.Reversibility
		refused     bool
	}{
		{approval.Irreversible, "", false},
		{approval.Irreversible, approval.Irreversible, false},
		{approval.Irreversible, approval.Partial, true},
		{approval.Partial, approval.Partial, false},
		{approval.Partial, approval.Reversible, true},
		{approval.Reversible, approval.Reversible, false},
		{"", approval.Partial, true}, // unknown counts as irreversible
	} {
		for _, code := range []string{"1", "2", "4 fine", "6", "approve"} {
			w.ceilings["home"] = row.ceiling
			k := w.addNextPending("home", func(p *approval.Pending) { p.Reversibility, p.Capability = row.is, "fs:write" })
			card := w.onlyEmail(w.runAndTakeSent())
			require.Equal(t, row.refused, strings.Contains(card.text, "You cannot approve this by email"))
			taken, answers := w.deliver(replyTo(card, annMail, code))
			if !row.refused {
				require.Equal(t, Decided, taken.Status, "%v %s", row, code)
				continue
			}
			require.Equal(t, Refused, taken.Status, "%v %s", row, code)
			require.Contains(t, w.onlyEmail(answers).text, "You cannot approve this by email")
			require.Nil(t, w.decision(k))
			taken, _ = w.deliver(replyTo(parseEmail(t, answers[0]), annMail, "deny"))
			require.Equal(t, Decided, taken.Status, "email may always deny")
			require.False(t, w.decision(k).Approved)
		}
	}
}

// After a cancellation, all approvers who were asked are told who canceled.
func TestFollowUpOfACancel(t *testing.T) { synctest.Test(t, testFollowUpOfACancel) }

func testFollowUpOfACancel(t *testing.T) {
	w := newRig(t)
	k := w.addPending("office", id1)
	require.Len(t, w.runAndTakeSent(), 2)
	w.writeRecord(k, approval.StatusCancelled)
	mails := w.runAndTakeSent()
	require.Len(t, mails, 2)
	require.Equal(t, "🔐 a7f3b2c1 · cancelled · by bob (terminal)\n", parseEmail(t, mails[0]).text)
	require.Equal(t, "🔐 a7f3b2c1 · annullato · da bob (terminal)\n", parseEmail(t, mails[1]).text)
}

// A question by email is answered from facts if they suffice, with or without the
// question mark in front, and the request stays pending. Otherwise the sender is told
// what happened.
func TestQuestionsAboutFactsByMail(t *testing.T) { synctest.Test(t, testQuestionsAboutFactsByMail) }

func testQuestionsAboutFactsByMail(t *testing.T) {
	w := newRig(t)
	known := func(p *approval.Pending) {
		p.Facts.Host = []approval.HostFact{{Domain: facts.Mail, Op: "send", Name: "recipient", Values: []string{"bob@example.com"}, From: facts.FromArgument}}
	}
	k := w.addPending("home", id1, known)
	card := w.onlyEmail(w.runAndTakeSent())
	for _, text := range []string{"? who will be emailed", "Who will be emailed?", "a chi\nsarà inviata la mail?"} {
		taken, answers := w.deliver(replyTo(card, annMail, text))
		require.Equal(t, Answered, taken.Status, text)
		require.Contains(t, w.onlyEmail(answers).text, "From the request: mail send recipient: bob@example.com", text)
		require.Nil(t, w.decision(k), "still pending")
	}
	taken, answers := w.deliver(replyTo(card, annMail, "what files will be written?"))
	require.Equal(t, Answered, taken.Status)
	require.Contains(t, w.onlyEmail(answers).text, "The gate's facts do not answer that. Sending the question to the agent ends a7f3b2c1")
	require.Nil(t, w.decision(k), "the approver is asked again")
	taken, _ = w.deliver(replyTo(card, annMail, "? agent, what files will be written?"))
	require.Equal(t, Decided, taken.Status)
	require.Equal(t, approval.RequestMore, w.decision(k).Verdict)
	w.writeRecord(k, approval.StatusRequestMore)
	_, answers = w.deliver(replyTo(card, annMail, "who will be emailed?"))
	require.Contains(t, w.onlyEmail(answers).text, "Too late, nothing was changed. a7f3b2c1 · sent back")
}

// A request that is settled while the server is down says nothing about the server.
func TestServerIsStillDown(t *testing.T) { synctest.Test(t, testServerIsStillDown) }

func testServerIsStillDown(t *testing.T) {
	w := newRig(t)
	w.outbox.before = func(string, []byte) error {
		return &mailbox.Error{Stage: "connect", Temporary: true, Err: errors.New("connection refused")}
	}
	k := w.addPending("home", id1)
	w.runAndTakeSent()
	w.writeRecord(k, approval.StatusDenied)
	w.runAndTakeSent()
	w.clock.advance(time.Hour)
	require.Empty(t, w.runAndTakeSent())
	require.Equal(t, "email: cannot send: connect: connection refused", w.problem())
}
