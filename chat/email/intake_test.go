package email

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func TestRepliesDecide(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		text    string
		verdict approval.Verdict
		check   func(d *approval.Decision) string // the part that matters
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
		{"? who else will see it", approval.RequestMore, func(d *approval.Decision) string { return d.Feedback }, "who else will see it"},
	} {
		k := w.asksNext("home")
		card := w.one(w.looks())
		in := letterTo(card, annMail, strings.ReplaceAll(row.text, "a7f3b2c1", approval.ShortID(k.ID))+"\n\nOn Sat, 21 Nov 2026 at 12:00, permesso <permesso@gate.test> wrote:\n\n> "+strings.ReplaceAll(card.text, "\n", "\n> "))
		taken, answers := w.takes(in)
		require.Equal(t, Taken{Decided, k, "proved: relay"}, taken, row.text)
		d := w.decided(k)
		require.NotNil(t, d, row.text)
		require.Equal(t, row.verdict, d.Verdict, row.text)
		require.Equal(t, row.part, row.check(d), row.text)
		require.Equal(t, []string{"ann", "email:" + annMail, "email"}, []string{d.DecidedBy, d.DecidedByID, d.Via})
		answer := w.one(answers)
		require.Equal(t, annMail, answer.to)
		require.Equal(t, "auto-replied", answer.header.Get("Auto-Submitted"))
		require.Equal(t, fmt.Sprintf("<%d@human.test>", mailsWritten), answer.header.Get("In-Reply-To"))
		require.Contains(t, answer.header.Get("References"), card.header.Get("Message-Id"), "one thread")

		taken, answers = w.takes(in)
		require.Equal(t, Duplicate, taken.Status, "the same delivery once more")
		require.Empty(t, answers)
		in.Name = "in another mailbox"
		taken, answers = w.takes(in)
		require.Equal(t, Duplicate, taken.Status, "the same mail in another mailbox")
		require.Empty(t, answers)
		w.restart()
		taken, answers = w.takes(in)
		require.Equal(t, Duplicate, taken.Status, "and after a restart")
		require.Empty(t, answers)
	}
}

func TestRepliesThatDecideNothing(t *testing.T) {
	w := newWorld(t)
	for _, text := range []string{
		"", "ok", "yes", "1 please", "1.", "1)", "one", "2 and 3", "4", "5", "6 ok", "7", "0", "approve it", "approve? no", "please approve",
		"approve 0000000000000001", "deny 00000000 it", "1\n\n2", "answer yes", "???? ???? ??", "? ?? ???", "?!", "?????? OOO ????", "undo 00000000", "１",
		"> 1", "On Sat, 21 Nov 2026 at 12:00, Ann wrote:\n1",
	} {
		k := w.asksNext("home")
		card := w.one(w.looks())
		taken, answers := w.takes(letterTo(card, annMail, text))
		require.Equal(t, Unclear, taken.Status, "%q", text)
		require.Nil(t, w.decided(k), "%q", text)
		answer := w.one(answers)
		require.Regexp(t, `(?i)nothing was decided`, answer.text, "%q", text)
		require.Contains(t, answer.text, "begin with a code of the menu", "%q", text)

		taken, _ = w.takes(letterTo(answer, annMail, "1"))
		require.Equal(t, Decided, taken.Status, "the answer can be replied to")
		require.True(t, w.decided(k).Approved)
	}
}

func TestQuestionsByMail(t *testing.T) {
	ask := func(p *approval.Pending) {
		p.Type, p.ToolName, p.ToolSHA256, p.ActionType, p.Capability, p.Target, p.Summary, p.Verb = approval.TypeQuestion, "", "", "", "", "", "", nil
		p.RequestData, p.Options, p.Agent = approval.Raw(`{}`), []string{"main", "next"}, approval.Prose{Title: "Which branch?"}
	}
	w := newWorld(t)
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
		{"? which ones are there", Decided, approval.RequestMore, ""},
		{"the one of yesterday", Unclear, "", ""}, // what a machine might say
		{"I am back on Monday", Unclear, "", ""},
		{"3", Unclear, "", ""},
		{"answer", Unclear, "", ""},
		{"approve", Unclear, "", ""},
		{"deny everything", Unclear, "", ""},
	} {
		k := w.asksNext("home", ask)
		card := w.one(w.looks())
		require.Contains(t, card.text, `1 "main"`)
		require.Contains(t, card.text, "answer <your words>")
		require.NotContains(t, card.text, "in your own words; reply")
		taken, answers := w.takes(letterTo(card, annMail, row.text))
		require.Equal(t, row.status, taken.Status, row.text)
		require.Len(t, answers, 1, row.text)
		if row.verdict == "" {
			require.Nil(t, w.decided(k), row.text)
			require.Contains(t, open1(t, answers[0]).text, "answer <your words>")
			continue
		}
		require.Equal(t, row.verdict, w.decided(k).Verdict, row.text)
		require.Equal(t, row.answer, w.decided(k).Answer, row.text)
	}
}

// Who may not decide does not, and hears of it only if they could have.
func TestWhoMayNotDecide(t *testing.T) {
	w := newWorld(t)
	other := w.asks("shop", "00000000000000aa", lasting)
	for _, row := range []struct {
		why      string
		mail     func(card opened) Incoming
		status   Status
		answered bool
	}{
		{"a stranger", func(c opened) Incoming { return letterTo(c, "eve@elsewhere.test", "1") }, Refused, false},
		{"another approver of the workspace, with ann's token", func(c opened) Incoming { return letterTo(c, bobMail, "1") }, Refused, true},
		{"an approver of another workspace", func(c opened) Incoming { return letterTo(c, evaMail, "1") }, Refused, false},
		{"another part before the @", func(c opened) Incoming { return letterTo(c, "Ann@human.test", "1") }, Refused, false},
		{"a sub-address of ann's", func(c opened) Incoming { return letterTo(c, "ann+1@human.test", "1") }, Refused, false},
		{"a sibling domain", func(c opened) Incoming { return letterTo(c, "ann@human.test.evil.test", "1") }, Refused, false},
		{"two of one From", func(c opened) Incoming { return letterTo(c, annMail+", "+bobMail, "1") }, Refused, false},
		{"two Froms", func(c opened) Incoming {
			return letterTo(c, annMail+"\r\nFrom: "+bobMail, "1")
		}, Refused, false},
		{"without the token, in the thread", func(c opened) Incoming { return letterTo(c, annMail, "1", but("To", "permesso@gate.test")) }, Refused, true},
		{"with another token", func(c opened) Incoming {
			return letterTo(c, annMail, "1", but("To", "permesso+"+NewToken()+"@gate.test"))
		}, Refused, true},
		{"with a token that is not all of it", func(c opened) Incoming {
			return letterTo(c, annMail, "1", but("To", "permesso+"+c.token[:25]+"@gate.test"))
		}, Refused, true},
		{"with the digest for the token", func(c opened) Incoming {
			return letterTo(c, annMail, "1", but("To", "permesso+"+TokenDigest(c.token)[:26]+"@gate.test"))
		}, Refused, true},
		{"a mail about nothing", func(c opened) Incoming {
			return letterTo(c, annMail, "1", but("To", "permesso@gate.test"), but("Subject", "hi"), without("In-Reply-To", "References"))
		}, Ignored, false},
		{"an unknown request", func(c opened) Incoming {
			return letterTo(c, annMail, "1", but("To", "permesso@gate.test"), but("Subject", "[appr_00000000000000ff]"), without("In-Reply-To", "References"))
		}, Ignored, false},
		{"two requests in one subject", func(c opened) Incoming {
			return letterTo(c, annMail, "1", but("To", "permesso@gate.test"), without("In-Reply-To", "References"),
				but("Subject", strings.Replace(c.subject, " ", "", 1)+" [appr_00000000000000ff]"))
		}, Refused, false},
		{"an automatic mail", func(c opened) Incoming {
			return letterTo(c, annMail, "1", but("X", "y\r\nAuto-Submitted: auto-replied"))
		}, Ignored, false},
		{"a list's", func(c opened) Incoming { return letterTo(c, annMail, "1", but("X", "y\r\nList-Id: <l.human.test>")) }, Ignored, false},
		{"a bounce", func(c opened) Incoming { return letterTo(c, annMail, "1", but("X", "y\r\nReturn-Path: <>")) }, Ignored, false},
		{"out of office", func(c opened) Incoming { return letterTo(c, annMail, "1", but("Subject", "Automatic reply: x")) }, Ignored, false},
		{"too large", func(c opened) Incoming { return letterTo(c, annMail, "1\n\n"+strings.Repeat("x\n", MaxMail)) }, Ignored, false},
		{"too many parts", func(c opened) Incoming {
			return letterTo(c, annMail, strings.Repeat("--x\nContent-Type: text/plain\n\n1\n", 30)+"--x--\n", but("Content-Type", "multipart/mixed; boundary=x"))
		}, Ignored, false},
		{"no header", func(opened) Incoming { return Incoming{Name: "junk", Raw: []byte("1\r\n")} }, Ignored, false},
		{"an unknown encoding", func(c opened) Incoming {
			return letterTo(c, annMail, "1", but("Content-Transfer-Encoding", "x-uuencode"))
		}, Unclear, true},
	} {
		t.Run(row.why, func(t *testing.T) {
			w.t = t
			k := w.asksNext("office")
			var card opened
			for _, m := range w.looks() {
				if m.to == annMail {
					card = open1(t, m)
				}
			}
			taken, answers := w.takes(row.mail(card))
			require.Equal(t, row.status, taken.Status, taken.Why)
			require.Nil(t, w.decided(k))
			require.Nil(t, w.decided(other))
			if !row.answered {
				require.Empty(t, answers)
				return
			}
			require.Regexp(t, "(?i)nothing was decided|nulla è stato deciso", w.one(answers).text)
		})
	}
}

// One agent may choose the id of another's request: the token tells them apart.
func TestOneIDInTwoWorkspaces(t *testing.T) {
	w := newWorld(t)
	home, shop := w.asks("home", id1), w.asks("shop", id1)
	var card opened
	for _, m := range w.looks() {
		if m.to == annMail {
			card = open1(t, m)
		}
	}
	taken, _ := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, home, taken.Key)
	require.NotNil(t, w.decided(home))
	require.Nil(t, w.decided(shop))
}

// The reply address counts before the thread, the thread before the subject.
func TestWhichRequest(t *testing.T) {
	w := newWorld(t)
	a, b := w.asks("home", id1), w.asks("home", "00000000000000bb")
	mails := w.looks()
	first, second := open1(t, mails[0]), open1(t, mails[1])
	if strings.Contains(first.subject, b.ID) {
		first, second = second, first
	}
	taken, _ := w.takes(letterTo(second, annMail, "1", but("To", first.header.Get("Reply-To")), but("Subject", second.subject)))
	require.Equal(t, Taken{Decided, a, "proved: relay"}, taken, "the address says the first")
	taken, _ = w.takes(letterTo(first, annMail, "1", but("To", "permesso@gate.test"), but("Subject", SubjectTag(b.ID, second.token))))
	require.Equal(t, Refused, taken.Status, "the thread says the first, the token opens the second")
	require.Nil(t, w.decided(b))
	taken, _ = w.takes(letterTo(second, annMail, "1", but("To", "permesso@gate.test"), but("Subject", "hm"), but("Content-Type", "text/plain; charset=utf-8"),
		without("In-Reply-To", "References")))
	require.Equal(t, Ignored, taken.Status)
	taken, _ = w.takes(letterTo(second, annMail, "1\n\n> "+SubjectTag(b.ID, second.token), but("To", "permesso@gate.test"), but("Subject", "hm"),
		without("In-Reply-To", "References")))
	require.Equal(t, Decided, taken.Status, "at last the body")
}

// It is told once that it is too late, whatever else comes.
func TestLate(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	card := w.one(w.looks())
	w.ends(k, approval.StatusDenied)
	w.looks()
	taken, answers := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Equal(t, "🔐 Too late, nothing was changed. a7f3b2c1 · denied · by bob (terminal)\n", w.one(answers).text)
	for range 3 {
		taken, answers = w.takes(letterTo(card, annMail, "6"))
		require.Equal(t, Late, taken.Status)
		require.Empty(t, answers)
	}
	w.restart()
	_, answers = w.takes(letterTo(card, annMail, "6"))
	require.Empty(t, answers)
}

// Who thanks for the news is told once that there is nothing to decide.
func TestThanks(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	w.looks()
	w.ends(k, approval.StatusDenied)
	news := w.one(w.looks())
	w.looks()
	taken, answers := w.takes(letterTo(news, annMail, "thank you"))
	require.Equal(t, Late, taken.Status)
	require.Len(t, answers, 1)
	taken, answers = w.takes(letterTo(news, annMail, "undo a7f3b2c1"))
	require.Equal(t, Late, taken.Status, "without a token nothing is undone")
	require.Empty(t, answers)
}

// The first answer wins; whoever is second hears who was first.
func TestSecondAnswer(t *testing.T) {
	w := newWorld(t)
	k := w.asks("office", id1)
	mails := w.looks()
	ann, bob := open1(t, mails[0]), open1(t, mails[1])
	taken, _ := w.takes(letterTo(ann, annMail, "3"))
	require.Equal(t, Decided, taken.Status)
	taken, answers := w.takes(letterTo(bob, bobMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Contains(t, w.one(answers).text, "negato da ann", "in the language of who reads it")
	require.False(t, w.decided(k).Approved)
}

func TestExpiredByMail(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	card := w.one(w.looks())
	w.clock.passes(5 * time.Minute)
	taken, answers := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Len(t, answers, 1)
	require.Nil(t, w.decided(k))
}

// Answers of ours end, whoever goes on writing.
func TestAnswersAreFew(t *testing.T) {
	w := newWorld(t)
	w.asks("home", id1)
	card := w.one(w.looks())
	n := 0
	for range 20 {
		_, answers := w.takes(letterTo(card, annMail, "hello there"))
		n += len(answers)
	}
	require.Equal(t, maxUnclear, n, "of one card")
	for i := range 20 {
		w.asks("home", fmt.Sprintf("%016x", i+1))
	}
	for _, m := range w.looks() {
		_, answers := w.takes(letterTo(open1(t, m), annMail, "hello there"))
		n += len(answers)
	}
	require.Equal(t, answersAnHour, n, "to one sender")
	taken, answers := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Decided, taken.Status, "what is clear decides all the same")
	require.Empty(t, answers)
	w.clock.passes(61 * time.Minute)
	_, answers = w.takes(letterTo(card, annMail, "1"))
	require.Len(t, answers, 1, "an hour later")
}

// A mail that comes by two ways at once decides once and is answered once.
func TestTwiceAtOnce(t *testing.T) {
	w := newWorld(t)
	w.asks("home", id1)
	in := letterTo(w.one(w.looks()), annMail, "1")
	var wait sync.WaitGroup
	var mu sync.Mutex
	count := map[Status]int{}
	for i := range 8 {
		again := in
		again.Name = fmt.Sprint("way ", i)
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
	require.Len(t, w.looks(), 1)
}

// A proof that cannot be looked up is waited for, and not for ever.
func TestProofThatMustWait(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	in := letterTo(w.one(w.looks()), annMail, "1")
	real := w.Prover
	w.Prover = undecided{}
	_, err := w.Take(t.Context(), in)
	require.Error(t, err)
	w.Prover = real
	again := in
	again.Name = "another"
	w.Prover = undecided{}
	_, err = w.Take(t.Context(), again)
	require.Error(t, err)
	w.clock.passes(doubtFor + time.Minute)
	taken, err := w.Take(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, Refused, taken.Status)
	require.Nil(t, w.decided(k))
}

type undecided struct{}

func (undecided) Sender(context.Context, []byte) (string, string, error) {
	return "", "", &AuthError{Reason: "no resolver answers", Undecided: true}
}

func TestNobodyProvesAnything(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	card := w.one(w.looks())
	for _, p := range []SenderVerifier{nil, &Authenticator{}} {
		w.Prover = p
		taken, answers := w.takes(letterTo(card, annMail, "1"))
		require.Equal(t, Refused, taken.Status)
		require.Empty(t, answers)
		require.Nil(t, w.decided(k))
	}
}

// Consent can be taken back by a reply, also when all is settled.
func TestUndoByMail(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	card := w.one(w.looks())
	_, answers := w.takes(letterTo(card, annMail, "6"))
	confirmed := w.one(answers)
	w.ends(k, approval.StatusApproved)
	w.looks()
	taken, answers := w.takes(letterTo(confirmed, annMail, "undo a7f3b2c1"))
	require.Equal(t, Answered, taken.Status)
	require.Contains(t, w.one(answers).text, "permesso revoke a7f3b2c1", "there is no revoker here")
	taken, _ = w.takes(letterTo(confirmed, annMail, "undo 00000001"))
	require.Equal(t, Late, taken.Status, "only its own")
}
