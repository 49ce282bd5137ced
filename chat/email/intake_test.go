package email

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/chat/messagestest"
)

func TestRepliesDecide(t *testing.T) { synctest.Test(t, testRepliesDecide) }

func testRepliesDecide(t *testing.T) {
	w := newRig(t)
	for _, row := range []struct {
		text    string
		verdict approval.Verdict
		check   func(d *approval.Decision) string // the relevant field
		part    string
	}{
		{"1", approval.Approved, func(d *approval.Decision) string { return string(d.Scope) }, "once"},
		{"2", approval.Approved, func(d *approval.Decision) string { return string(d.Scope) }, "session"},
		{"3", approval.Denied, func(d *approval.Decision) string { return d.Code }, "3"},
		{"3 not today", approval.Denied, func(d *approval.Decision) string { return d.Feedback }, "not today"},
		{"4 keep it\nshort", approval.Approved, func(d *approval.Decision) string { return d.Note }, "keep it\nshort"},
		{"5 post it\ntomorrow", approval.Overridden, func(d *approval.Decision) string { return d.Override }, "post it\ntomorrow"},
		{"6", approval.Approved, func(d *approval.Decision) string { return string(d.Scope) }, "always"},
		{"approve", approval.Approved, func(d *approval.Decision) string { return string(d.Scope) }, "once"},
		{"Approve", approval.Approved, func(d *approval.Decision) string { return string(d.Scope) }, "once"},
		{"approve a7f3b2c1", approval.Approved, func(d *approval.Decision) string { return string(d.Scope) }, "once"},
		{"deny", approval.Denied, func(d *approval.Decision) string { return d.Feedback }, ""},
		{"Deny because of\nthe hour", approval.Denied, func(d *approval.Decision) string { return d.Feedback }, "because of\nthe hour"},
		{"reject it is late", approval.Denied, func(d *approval.Decision) string { return d.Feedback }, "it is late"},
		{"deny a7f3b2c1 it is late", approval.Denied, func(d *approval.Decision) string { return d.Feedback }, "it is late"},
		{"? agent, who else will see it", approval.RequestMore, func(d *approval.Decision) string { return d.Feedback }, "who else will see it"},
	} {
		k := w.addNextPending("home")
		card := w.onlyEmail(w.runAndTakeSent())
		in := replyTo(card, annMail, strings.ReplaceAll(row.text, "a7f3b2c1", approval.ShortID(k.ID))+"\n\nOn Sat, 21 Nov 2026 at 12:00, permesso <permesso@gate.test> wrote:\n\n> "+strings.ReplaceAll(card.text, "\n", "\n> "))
		taken, answers := w.deliver(in)
		require.Equal(t, Taken{Decided, k, "proved: relay"}, taken, row.text)
		d := w.decision(k)
		require.NotNil(t, d, row.text)
		require.Equal(t, row.verdict, d.Verdict, row.text)
		require.Equal(t, row.part, row.check(d), row.text)
		require.Equal(t, []string{"ann", "email:" + annMail, "email"}, []string{d.DecidedBy, d.DecidedByID, d.Via})
		answer := w.onlyEmail(answers)
		require.Equal(t, annMail, answer.to)
		require.Equal(t, "auto-replied", answer.header.Get("Auto-Submitted"))
		require.Equal(t, fmt.Sprintf("<%d@human.test>", repliesWritten), answer.header.Get("In-Reply-To"))
		require.Contains(t, answer.header.Get("References"), card.header.Get("Message-Id"), "one thread")

		taken, answers = w.deliver(in)
		require.Equal(t, Duplicate, taken.Status, "the same delivery again")
		require.Empty(t, answers)
		in.Name = "in another mailbox"
		taken, answers = w.deliver(in)
		require.Equal(t, Duplicate, taken.Status, "the same email in another mailbox")
		require.Empty(t, answers)
		w.restart()
		taken, answers = w.deliver(in)
		require.Equal(t, Duplicate, taken.Status, "and after a restart")
		require.Empty(t, answers)
	}
}

func TestRepliesThatDecideNothing(t *testing.T) { synctest.Test(t, testRepliesThatDecideNothing) }

func testRepliesThatDecideNothing(t *testing.T) {
	w := newRig(t)
	for _, text := range []string{
		"", "ok?", "yes, if it is free", "1 or 2", "1.5", "one", "2 and 3", "4", "5", "6 ok", "7", "0", "approve them", "approve? no", "4 people will be mailed, so no",
		"approve 0000000000000001", "deny 00000000 it", "1\n\n2", "answer yes", "???? ???? ??", "? ?? ???", "?!", "?????? OOO ????", "undo 00000000", "4 days holiday",
		"> 1", "On Sat, 21 Nov 2026 at 12:00, Ann wrote:\n1",
	} {
		k := w.addNextPending("home")
		card := w.onlyEmail(w.runAndTakeSent())
		taken, answers := w.deliver(replyTo(card, annMail, text))
		require.Equal(t, Unclear, taken.Status, "%q", text)
		require.Nil(t, w.decision(k), "%q", text)
		answer := w.onlyEmail(answers)
		require.Regexp(t, `(?i)nothing was decided`, answer.text, "%q", text)
		require.Contains(t, answer.text, "Start the reply with a code that the card lists", "%q", text)

		taken, _ = w.deliver(replyTo(answer, annMail, "1"))
		require.Equal(t, Decided, taken.Status, "the answer can be replied to")
		require.True(t, w.decision(k).Approved)
	}
}

// What people write in reply to a card, above its quotation.
func TestPhrases(t *testing.T) { synctest.Test(t, testPhrases) }

func testPhrases(t *testing.T) {
	deciding, other := messagestest.Phrases(t, "../..")
	w := newRig(t)
	var missed []string
	some := messagestest.Sample(t, deciding)
	for _, p := range append(some, messagestest.Sample(t, other)...) {
		k := w.addNextPending("home")
		card := w.onlyEmail(w.runAndTakeSent())
		_, _ = w.deliver(replyTo(card, annMail, p.Text+"\n\nOn Sat, 21 Nov 2026 at 12:00, permesso <permesso@gate.test> wrote:\n\n> "+strings.ReplaceAll(card.text, "\n", "\n> ")))
		d := w.decision(k)
		switch {
		case p.Verdict == "":
			require.Nil(t, d, "%q", p.Text)
		case d == nil:
			missed = append(missed, p.Text)
		default:
			require.Equal(t, p.Verdict != "deny", d.Verdict == approval.Approved, "%q", p.Text)
			require.Equal(t, p.Verdict == "note", d.Note != "", "%q", p.Text)
		}
	}
	t.Logf("%d of %d not understood: %q", len(missed), len(some), missed)
	require.LessOrEqual(t, len(missed)*20, len(some)+40, "one of twenty, two more in a sample")
}

func TestQuestionsByMail(t *testing.T) { synctest.Test(t, testQuestionsByMail) }

func testQuestionsByMail(t *testing.T) {
	ask := func(p *approval.Pending) {
		p.Type, p.ToolName, p.ToolSHA256, p.ActionType, p.Capability, p.Target, p.Summary, p.Verb = approval.TypeQuestion, "", "", "", "", "", "", nil
		p.RequestData, p.Options, p.Agent = approval.Raw(`{}`), []string{"main", "next"}, approval.Prose{Title: "Which branch?"}
	}
	w := newRig(t)
	for _, row := range []struct {
		text    string
		status  Status
		verdict approval.Verdict
		answer  string
	}{
		{"2", Decided, approval.Answered, "next"},
		{"answer the one of yesterday", Decided, approval.Answered, "the one of yesterday"},
		{"Answer main\nand next", Decided, approval.Answered, "main\nand next"},
		{"deny", Decided, approval.Denied, ""},
		{"? agent, which ones are there", Decided, approval.RequestMore, ""},
		{"the one of yesterday", Unclear, "", ""}, // a mail program could write this
		{"I am back on Monday", Unclear, "", ""},
		{"3", Unclear, "", ""},
		{"answer", Unclear, "", ""},
		{"approve", Unclear, "", ""},
		{"deny everything", Unclear, "", ""},
	} {
		k := w.addNextPending("home", ask)
		card := w.onlyEmail(w.runAndTakeSent())
		require.Contains(t, card.text, `1 "main"`)
		require.Contains(t, card.text, "answer <your words>")
		require.NotContains(t, card.text, "in your own words; reply")
		taken, answers := w.deliver(replyTo(card, annMail, row.text))
		require.Equal(t, row.status, taken.Status, row.text)
		require.Len(t, answers, 1, row.text)
		if row.verdict == "" {
			require.Nil(t, w.decision(k), row.text)
			require.Contains(t, parseEmail(t, answers[0]).text, "answer <your words>")
			continue
		}
		require.Equal(t, row.verdict, w.decision(k).Verdict, row.text)
		require.Equal(t, row.answer, w.decision(k).Answer, row.text)
	}
}

// An email without permission decides nothing. It is answered only if the sender is an
// approver of the workspace.
func TestRefusedEmails(t *testing.T) { synctest.Test(t, testRefusedEmails) }

func testRefusedEmails(t *testing.T) {
	w := newRig(t)
	other := w.addPending("shop", "00000000000000aa", longLived)
	for _, row := range []struct {
		why      string
		mail     func(card parsedEmail) mailbox.Incoming
		status   Status
		answered bool
	}{
		{"a stranger", func(c parsedEmail) mailbox.Incoming { return replyTo(c, "eve@elsewhere.test", "1") }, Refused, false},
		{"another approver of the workspace, with ann's token", func(c parsedEmail) mailbox.Incoming { return replyTo(c, bobMail, "1") }, Refused, true},
		{"an approver of another workspace", func(c parsedEmail) mailbox.Incoming { return replyTo(c, evaMail, "1") }, Refused, false},
		{"a sub-address of ann", func(c parsedEmail) mailbox.Incoming { return replyTo(c, "ann+1@human.test", "1") }, Refused, false},
		{"a sibling domain", func(c parsedEmail) mailbox.Incoming { return replyTo(c, "ann@human.test.evil.test", "1") }, Refused, false},
		{"two addresses in one From", func(c parsedEmail) mailbox.Incoming { return replyTo(c, annMail+", "+bobMail, "1") }, Refused, false},
		{"two Froms", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail+"\r\nFrom: "+bobMail, "1")
		}, Refused, false},
		{"without the token, in the thread", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("To", "permesso@gate.test"))
		}, Refused, true},
		{"with another token", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("To", "permesso+"+NewToken()+"@gate.test"))
		}, Refused, true},
		{"with an incomplete token", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("To", "permesso+"+c.token[:25]+"@gate.test"))
		}, Refused, true},
		{"with the digest instead of the token", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("To", "permesso+"+tokenDigest(c.token)[:26]+"@gate.test"))
		}, Refused, true},
		{"an email without any reference", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("To", "permesso@gate.test"), withHeader("Subject", "hi"), withoutHeaders("In-Reply-To", "References"))
		}, Ignored, false},
		{"an unknown request", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("To", "permesso@gate.test"), withHeader("Subject", "[appr_00000000000000ff]"), withoutHeaders("In-Reply-To", "References"))
		}, Ignored, false},
		{"two requests in one subject", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("To", "permesso@gate.test"), withoutHeaders("In-Reply-To", "References"),
				withHeader("Subject", strings.Replace(c.subject, " ", "", 1)+" [appr_00000000000000ff]"))
		}, Refused, false},
		{"an automatic email", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("X", "y\r\nAuto-Submitted: auto-replied"))
		}, Ignored, false},
		{"from a mailing list", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("X", "y\r\nList-Id: <l.human.test>"))
		}, Ignored, false},
		{"a bounce", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("X", "y\r\nReturn-Path: <>"))
		}, Ignored, false},
		{"out of office", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("Subject", "Automatic reply: x"))
		}, Ignored, false},
		{"too large", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1\n\n"+strings.Repeat("x\n", mailbox.MaxMail))
		}, Ignored, false},
		{"too many parts", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, strings.Repeat("--x\nContent-Type: text/plain\n\n1\n", 30)+"--x--\n", withHeader("Content-Type", "multipart/mixed; boundary=x"))
		}, Unclear, true},
		{"no header", func(parsedEmail) mailbox.Incoming { return mailbox.Incoming{Name: "junk", Raw: []byte("1\r\n")} }, Ignored, false},
		{"an unknown encoding", func(c parsedEmail) mailbox.Incoming {
			return replyTo(c, annMail, "1", withHeader("Content-Transfer-Encoding", "x-uuencode"))
		}, Unclear, true},
	} {
		func() {
			k := w.addNextPending("office")
			var card parsedEmail
			for _, m := range w.runAndTakeSent() {
				if m.to == annMail {
					card = parseEmail(t, m)
				}
			}
			taken, answers := w.deliver(row.mail(card))
			require.Equal(t, row.status, taken.Status, "%s: %s", row.why, taken.Why)
			require.Nil(t, w.decision(k), row.why)
			require.Nil(t, w.decision(other))
			if !row.answered {
				require.Empty(t, answers, row.why)
				return
			}
			require.Regexp(t, "(?i)nothing was decided|nulla è stato deciso", w.onlyEmail(answers).text, row.why)
		}()
	}
}

// An agent may choose the id of another workspace's request: the token decides.
func TestOneIDInTwoWorkspaces(t *testing.T) { synctest.Test(t, testOneIDInTwoWorkspaces) }

func testOneIDInTwoWorkspaces(t *testing.T) {
	w := newRig(t)
	home, shop := w.addPending("home", id1), w.addPending("shop", id1)
	var card parsedEmail
	for _, m := range w.runAndTakeSent() {
		if m.to == annMail {
			card = parseEmail(t, m)
		}
	}
	taken, _ := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, home, taken.Key)
	require.NotNil(t, w.decision(home))
	require.Nil(t, w.decision(shop))
}

// The reply address has priority over the thread, and the thread over the subject.
func TestWhichRequest(t *testing.T) { synctest.Test(t, testWhichRequest) }

func testWhichRequest(t *testing.T) {
	w := newRig(t)
	a, b := w.addPending("home", id1), w.addPending("home", "00000000000000bb")
	mails := w.runAndTakeSent()
	first, second := parseEmail(t, mails[0]), parseEmail(t, mails[1])
	if strings.Contains(first.subject, b.ID) {
		first, second = second, first
	}
	taken, _ := w.deliver(replyTo(second, annMail, "1", withHeader("To", first.header.Get("Reply-To")), withHeader("Subject", second.subject)))
	require.Equal(t, Taken{Decided, a, "proved: relay"}, taken, "the address names the first request")
	taken, _ = w.deliver(replyTo(first, annMail, "1", withHeader("To", "permesso@gate.test"), withHeader("Subject", SubjectTag(b.ID, second.token))))
	require.Equal(t, Refused, taken.Status, "the thread names the first request, the token belongs to the second")
	require.Nil(t, w.decision(b))
	taken, _ = w.deliver(replyTo(second, annMail, "1", withHeader("To", "permesso@gate.test"), withHeader("Subject", "hm"), withHeader("Content-Type", "text/plain; charset=utf-8"),
		withoutHeaders("In-Reply-To", "References")))
	require.Equal(t, Ignored, taken.Status)
	taken, _ = w.deliver(replyTo(second, annMail, "1\n\n> "+SubjectTag(b.ID, second.token), withHeader("To", "permesso@gate.test"), withHeader("Subject", "hm"),
		withoutHeaders("In-Reply-To", "References")))
	require.Equal(t, Decided, taken.Status, "the body comes last")
}

// The answer "too late" is sent once, whatever the sender writes next.
func TestLate(t *testing.T) { synctest.Test(t, testLate) }

func testLate(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	w.writeRecord(k, approval.StatusDenied)
	w.runAndTakeSent()
	taken, answers := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Equal(t, "🔐 Too late, nothing was changed. a7f3b2c1 · denied · by bob (terminal)\n", w.onlyEmail(answers).text)
	for range 3 {
		taken, answers = w.deliver(replyTo(card, annMail, "6"))
		require.Equal(t, Late, taken.Status)
		require.Empty(t, answers)
	}
	w.restart()
	_, answers = w.deliver(replyTo(card, annMail, "6"))
	require.Empty(t, answers)
}

// A reply to the outcome is answered once with "too late".
func TestReplyToOutcome(t *testing.T) { synctest.Test(t, testReplyToOutcome) }

func testReplyToOutcome(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	w.runAndTakeSent()
	w.writeRecord(k, approval.StatusDenied)
	news := w.onlyEmail(w.runAndTakeSent())
	w.runAndTakeSent()
	taken, answers := w.deliver(replyTo(news, annMail, "thank you"))
	require.Equal(t, Late, taken.Status)
	require.Len(t, answers, 1)
	taken, answers = w.deliver(replyTo(news, annMail, "undo a7f3b2c1"))
	require.Equal(t, Late, taken.Status, "without a token nothing is undone")
	require.Empty(t, answers)
}

// The first answer wins. The second sender is told who was first.
func TestSecondAnswer(t *testing.T) { synctest.Test(t, testSecondAnswer) }

func testSecondAnswer(t *testing.T) {
	w := newRig(t)
	k := w.addPending("office", id1)
	mails := w.runAndTakeSent()
	ann, bob := parseEmail(t, mails[0]), parseEmail(t, mails[1])
	taken, _ := w.deliver(replyTo(ann, annMail, "3"))
	require.Equal(t, Decided, taken.Status)
	taken, answers := w.deliver(replyTo(bob, bobMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Contains(t, w.onlyEmail(answers).text, "negato da ann", "in the sender's language")
	require.False(t, w.decision(k).Approved)
}

func TestExpiredByMail(t *testing.T) { synctest.Test(t, testExpiredByMail) }

func testExpiredByMail(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	w.clock.advance(5 * time.Minute)
	taken, answers := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Len(t, answers, 1)
	require.Nil(t, w.decision(k))
}

// Our answers are limited, so that a loop ends.
func TestAnswersAreLimited(t *testing.T) { synctest.Test(t, testAnswersAreLimited) }

func testAnswersAreLimited(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	n := 0
	for range 20 {
		_, answers := w.deliver(replyTo(card, annMail, "hello there"))
		n += len(answers)
	}
	require.Equal(t, maxUnclear, n, "of one card")
	for i := range 20 {
		w.addPending("home", fmt.Sprintf("%016x", i+1))
	}
	for _, m := range w.runAndTakeSent() {
		_, answers := w.deliver(replyTo(parseEmail(t, m), annMail, "hello there"))
		n += len(answers)
	}
	require.Equal(t, maxAnswersPerHour, n, "to one sender")
	taken, answers := w.deliver(replyTo(card, annMail, "1"))
	require.Equal(t, Decided, taken.Status, "a clear reply still decides")
	require.Len(t, answers, 1, "and is confirmed: a card is decided once")
	w.clock.advance(61 * time.Minute)
	_, answers = w.deliver(replyTo(card, annMail, "1"))
	require.Len(t, answers, 1, "an hour later")
}

// An email that comes from several mailboxes at once decides and is answered once.
func TestSameEmailInParallel(t *testing.T) { synctest.Test(t, testSameEmailInParallel) }

func testSameEmailInParallel(t *testing.T) {
	w := newRig(t)
	w.addPending("home", id1)
	in := replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "1")
	var wait sync.WaitGroup
	var mu sync.Mutex
	count := map[Status]int{}
	for i := range 8 {
		again := in
		again.Name = fmt.Sprint("mailbox ", i)
		wait.Go(func() {
			taken, err := w.Take(context.Background(), again)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				count[taken.Status]++
			}
		})
	}
	wait.Wait()
	require.Equal(t, map[Status]int{Decided: 1, Duplicate: 7}, count)
	require.Len(t, w.runAndTakeSent(), 1)
}

// A proof that cannot be looked up is retried for a limited time.
func TestProofIsRetried(t *testing.T) { synctest.Test(t, testProofIsRetried) }

func testProofIsRetried(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	in := replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "1")
	real := w.Verifier
	w.Verifier = undecidedVerifier{}
	_, err := w.Take(t.Context(), in)
	require.Error(t, err)
	w.Verifier = real
	again := in
	again.Name = "another"
	w.Verifier = undecidedVerifier{}
	_, err = w.Take(t.Context(), again)
	require.Error(t, err)
	w.clock.advance(proofRetryTime + time.Minute)
	taken, err := w.Take(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, Refused, taken.Status)
	require.Nil(t, w.decision(k))
}

type undecidedVerifier struct{}

func (undecidedVerifier) Prove(context.Context, []byte) (authentic.Proof, error) {
	return authentic.Proof{}, &authentic.Error{Reason: "no resolver answers", Undecided: true}
}

func TestNoVerifierNoDecision(t *testing.T) { synctest.Test(t, testNoVerifierNoDecision) }

func testNoVerifierNoDecision(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	for _, p := range []senderVerifier{nil, &authentic.Authenticator{}} {
		w.Verifier = p
		taken, answers := w.deliver(replyTo(card, annMail, "1"))
		require.Equal(t, Refused, taken.Status)
		require.Empty(t, answers)
		require.Nil(t, w.decision(k))
	}
}

// A reply can undo a grant, also after the request is settled.
func TestUndoByMail(t *testing.T) { synctest.Test(t, testUndoByMail) }

func testUndoByMail(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	_, answers := w.deliver(replyTo(card, annMail, "6"))
	confirmed := w.onlyEmail(answers)
	w.writeRecord(k, approval.StatusApproved)
	w.runAndTakeSent()
	taken, answers := w.deliver(replyTo(confirmed, annMail, "undo a7f3b2c1"))
	require.Equal(t, Answered, taken.Status)
	require.Contains(t, w.onlyEmail(answers).text, "permesso revoke a7f3b2c1", "the rig has no revoker")
	taken, _ = w.deliver(replyTo(confirmed, annMail, "undo 00000001"))
	require.Equal(t, Late, taken.Status, "only the grant of its own request")
}
