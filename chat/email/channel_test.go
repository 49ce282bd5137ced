package email

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// A card is noted before it is sent, and sent once.
func TestAskedOnce(t *testing.T) {
	w := newWorld(t)
	k := w.asks("office", id1)
	w.post.before = func(to string, raw []byte) error {
		page, err := w.book.Load(k)
		require.NoError(t, err, "the page is durable before the mail goes")
		card := open1(t, sentMail{to, raw})
		require.Contains(t, string(page), TokenDigest(card.token))
		require.Contains(t, string(page), card.header.Get("Message-Id"))
		require.NotContains(t, string(page), card.token, "only the digest is kept")
		return nil
	}
	mails := w.looks()
	require.Len(t, mails, 2, "ann and bob have an address, carl has none, eva is elsewhere")
	require.NotEqual(t, open1(t, mails[0]).token, open1(t, mails[1]).token)
	require.Empty(t, w.looks())
	w.restart()
	require.Empty(t, w.looks(), "nor after a restart")

	w.people["office"] = append(w.people["office"], approval.Approver{Name: "dora", Email: "dora@human.test"})
	require.Equal(t, "dora@human.test", w.one(w.looks()).to, "who may approve from now on is asked, too")
}

func TestOnlyThePrincipalIsAsked(t *testing.T) {
	w := newWorld(t)
	w.asks("office", id1, func(p *approval.Pending) { p.Principal = "bob" })
	require.Equal(t, bobMail, w.one(w.looks()).to)
}

func TestNobodyIsAskedTooLate(t *testing.T) {
	w := newWorld(t)
	w.asks("home", id1)
	w.clock.passes(5 * time.Minute)
	require.Empty(t, w.looks())
}

// What may have been sent when the power went is sent again, as the same mail,
// and a reply to either copy counts.
func TestSentAgainAfterACrash(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	var first opened
	ctx, crash := context.WithCancel(t.Context())
	w.post.before = func(to string, raw []byte) error {
		first = open1(t, sentMail{to, raw})
		crash()
		return context.Canceled
	}
	w.init()
	w.look(ctx)
	w.post.before = nil
	w.restart()
	require.Empty(t, w.looks(), "not at once: something that crashes us would be sent for ever")
	w.clock.passes(10 * time.Second)
	second := w.one(w.looks())
	require.Equal(t, first.header.Get("Message-Id"), second.header.Get("Message-Id"))
	require.NotEqual(t, first.token, second.token)
	taken, _ := w.takes(letterTo(first, annMail, "1"))
	require.Equal(t, Taken{Decided, k, "proved: relay"}, taken)
	require.True(t, w.decided(k).Approved)
}

// A server that is not there is tried again, more and more slowly, and people are
// told; cards then go at once.
func TestServerThatIsNotThere(t *testing.T) {
	w := newWorld(t)
	tries := 0
	w.post.before = func(string, []byte) error {
		tries++
		return &SendError{Stage: "connect", Temporary: true, Err: errors.New("connection refused"), Hint: "is it up?"}
	}
	w.asks("office", id1)
	w.looks()
	require.Equal(t, 1, tries, "what fails for one would fail for the others")
	for range 20 {
		w.looks()
		w.clock.passes(5 * time.Second)
	}
	require.GreaterOrEqual(t, tries, 3)
	require.Less(t, tries, 10, "five, ten, twenty seconds …")
	require.Equal(t, "email: mails cannot be sent: connect: connection refused", w.problem)
	w.restart()
	w.post.before = nil
	w.clock.passes(2 * time.Minute)
	require.Len(t, w.looks(), 2)
	w.asks("home", "0000000000000001")
	w.looks()
	require.Empty(t, w.problem)
}

// Settings that a person must mend hold everything up, and nothing is given up.
func TestServerThatWillNotHaveUs(t *testing.T) {
	w := newWorld(t)
	w.post.before = func(string, []byte) error {
		return &SendError{Stage: "log in", Account: true, Code: 535, Err: errors.New("535 no")}
	}
	w.asks("home", id1)
	w.looks()
	require.Contains(t, w.problem, "log in: 535 no")
	w.post.before = nil
	w.clock.passes(10 * time.Second)
	require.Equal(t, annMail, w.one(w.looks()).to)
	require.Empty(t, w.problem)
}

// An address that is refused for good is not tried again; people hear of it here
// and elsewhere, and the others are asked all the same.
func TestAddressThatIsRefused(t *testing.T) {
	w := newWorld(t)
	tries := 0
	w.post.before = func(to string, _ []byte) error {
		if to != annMail {
			return nil
		}
		tries++
		return &SendError{Stage: "name the recipient", Code: 550, Err: errors.New("550 no such user")}
	}
	w.asks("office", id1)
	require.Equal(t, bobMail, w.one(w.looks()).to)
	for range 20 {
		w.clock.passes(10 * time.Second)
		require.Empty(t, w.looks())
	}
	require.Equal(t, 1, tries)
	require.Equal(t, "email: the mail about a7f3b2c1 to ann@human.test was refused: name the recipient: 550 no such user", w.problem)
	require.Len(t, w.alerts, 1)
	w.post.before = nil
	w.asks("home", "0000000000000001")
	w.looks()
	require.Empty(t, w.problem, "until one gets through")
}

// A server that wants us to come back later gets us back, for this mail only.
func TestGreylisting(t *testing.T) {
	w := newWorld(t)
	left := 3
	w.post.before = func(to string, _ []byte) error {
		if to == annMail && left > 0 {
			left--
			return &SendError{Stage: "name the recipient", Temporary: true, Code: 451, Err: errors.New("451 later")}
		}
		return nil
	}
	k := w.asks("office", id1)
	require.Equal(t, bobMail, w.one(w.looks()).to)
	require.Empty(t, w.looks())
	w.restart()
	var got []sentMail
	for range 12 {
		w.clock.passes(5 * time.Second)
		got = append(got, w.looks()...)
	}
	require.Equal(t, annMail, w.one(got).to)
	require.Empty(t, w.problem)
	require.Len(t, w.state.pages.notes[k].card(annMail).Tokens, 1, "what surely did not arrive opens nothing")
}

// How it ended stands in the thread of the card.
func TestFollowUp(t *testing.T) {
	w := newWorld(t)
	k := w.asks("office", id1)
	cards := w.looks()
	w.ends(k, approval.StatusDenied)
	mails := w.looks()
	require.Len(t, mails, 2)
	for i, m := range mails {
		card, after := open1(t, cards[i]), open1(t, m)
		require.Equal(t, card.to, after.to)
		require.Equal(t, card.header.Get("Message-Id"), after.header.Get("In-Reply-To"))
		require.Equal(t, card.header.Get("Message-Id"), after.header.Get("References"))
		require.Equal(t, "auto-generated", after.header.Get("Auto-Submitted"))
		require.True(t, strings.HasPrefix(after.subject, "Re: 🔐 a7f3b2c1"), after.subject)
		require.Empty(t, after.header.Get("Reply-To"), "there is nothing to answer")
	}
	require.Equal(t, "🔐 a7f3b2c1 · denied · by bob (terminal)\n", open1(t, mails[0]).text)
	require.Equal(t, "🔐 a7f3b2c1 · negato · da bob (terminal)\n", open1(t, mails[1]).text)
	require.Empty(t, w.looks())
	w.restart()
	require.Empty(t, w.looks())
}

func TestFollowUpThatNobodyWants(t *testing.T) {
	w := newWorld(t)
	w.FollowUp = false
	k := w.asks("home", id1)
	card := w.one(w.looks())
	w.ends(k, approval.StatusDenied)
	require.Empty(t, w.looks())
	taken, answers := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Late, taken.Status)
	require.Len(t, answers, 1)
}

// Who has decided by mail was told so, and hears more only when it went wrong.
func TestDecidersHearOnce(t *testing.T) {
	for status, more := range map[approval.Status]int{approval.StatusApproved: 0, approval.StatusFailed: 1, approval.StatusInterrupted: 1, approval.StatusExpired: 1} {
		w := newWorld(t)
		k := w.asks("office", id1)
		cards := w.looks()
		_, answers := w.takes(letterTo(open1(t, cards[0]), annMail, "1"))
		require.Contains(t, w.one(answers).text, "Approved: post ")
		w.ends(k, status)
		mails := w.looks()
		require.Len(t, mails, 1+more, status)
	}
}

// What was never sent has no end to tell of.
func TestSettledBeforeItWasSent(t *testing.T) {
	w := newWorld(t)
	w.post.before = func(string, []byte) error {
		return &SendError{Stage: "connect", Temporary: true, Err: errors.New("refused")}
	}
	k := w.asks("home", id1)
	w.looks()
	w.ends(k, approval.StatusExpired)
	w.post.before = nil
	w.clock.passes(time.Hour)
	require.Empty(t, w.looks())
}

// Pages are kept as long as a late reply may come.
func TestPagesAreForgotten(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	card := w.one(w.looks())
	w.ends(k, approval.StatusDenied)
	w.looks()
	w.looks() // it is told, then closed
	w.clock.passes(29 * 24 * time.Hour)
	w.looks()
	_, err := w.book.Load(k)
	require.NoError(t, err)
	w.clock.passes(2 * 24 * time.Hour)
	w.looks()
	_, err = w.book.Load(k)
	require.Error(t, err)
	taken, answers := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Ignored, taken.Status)
	require.Empty(t, answers)
}

// Who takes a workspace out of the configuration for a while has nothing asked
// twice.
func TestWorkspaceThatIsOutForAWhile(t *testing.T) {
	w := newWorld(t)
	w.asks("home", id1)
	card := w.one(w.looks())
	all := w.Workspaces
	w.Workspaces = func() []string { return []string{"shop"} }
	for range 3 {
		w.clock.passes(time.Minute)
		require.Empty(t, w.looks())
	}
	w.Workspaces = all
	require.Empty(t, w.looks())
	taken, _ := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Decided, taken.Status)
}

// What the gate took back, and never recorded, is forgotten.
func TestTakenBack(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	w.looks()
	require.NoError(t, w.store.Remove(approval.DocPending, k))
	w.looks()
	_, err := w.book.Load(k)
	require.NoError(t, err, "the record may be about to come")
	w.clock.passes(2 * time.Minute)
	require.Empty(t, w.looks())
	_, err = w.book.Load(k)
	require.Error(t, err)
}

// A request that the gate took back and asks anew is another card.
func TestAskedAnew(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1)
	old := w.one(w.looks())
	require.NoError(t, w.store.Remove(approval.DocPending, k))
	w.asks("home", id1, func(p *approval.Pending) { p.Summary = "another thing" })
	taken, answers := w.takes(letterTo(old, annMail, "1"))
	require.Equal(t, Refused, taken.Status, "nobody was shown this one yet")
	require.Nil(t, w.decided(k))
	var card opened
	for _, m := range answers {
		if o := open1(t, m); o.header.Get("Auto-Submitted") == "auto-generated" {
			card = o
		}
	}
	require.Contains(t, card.subject, "another thing")
	taken, _ = w.takes(letterTo(old, annMail, "1"))
	require.Equal(t, Refused, taken.Status, "its token is of what is no longer asked")
	require.Nil(t, w.decided(k))
	taken, _ = w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Decided, taken.Status)
}

func TestCardMail(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1, func(p *approval.Pending) { p.Agent.Rationale = "see <a href=http://evil.test>here</a>" })
	m := w.one(w.looks())
	require.Equal(t, `🔐 a7f3b2c1 · home · x_post · "Meeting at 5" -> x.com/ricardo · 12:05 UTC [appr_a7f3b2c1d4e5f6a7]`, m.subject)
	require.Equal(t, "permesso <permesso@gate.test>", m.header.Get("From"))
	require.Equal(t, annMail, m.header.Get("To"))
	require.Equal(t, "auto-generated", m.header.Get("Auto-Submitted"))
	require.Equal(t, "permesso+"+m.token+"@gate.test", m.header.Get("Reply-To"))
	require.Len(t, m.token, TokenLength)
	id, ok := ParseMessageID(m.header.Get("Message-Id"))
	require.True(t, ok)
	require.Equal(t, k.ID, id)
	for _, part := range []string{m.text, m.page} {
		for _, fact := range []string{"Approval required", "May I post?", "irreversible | class: channel:out", "text: Meeting at 5", "1 once", "until 12:05 UTC", "log 1042 9f3c", "deny", "reply to this mail"} {
			require.Contains(t, part, fact)
		}
	}
	require.True(t, strings.HasPrefix(m.text, "🔐"), "so that a quotation is known as one")
	require.NotContains(t, m.text, m.token, "it stands in the address")
	require.NotRegexp(t, `(?i)<(a|img|link|script|iframe|form|base)\b|\b(src|href|url)\s*[=(]`, strings.ReplaceAll(m.page, "&lt;a href=http://evil.test&gt;", ""), "nothing to follow, nothing to fetch")
	require.Contains(t, m.page, "&lt;a href=http://evil.test&gt;")
	require.Contains(t, m.page, "In the agent&#39;s own words")
	require.NotEmpty(t, Automatic(m.raw), "should it ever come back")
	for line := range strings.SplitSeq(string(m.raw), "\n") {
		require.LessOrEqual(t, len(line), 200)
		require.NotRegexp(t, `[^\x09\x0d\x20-\x7e]`, line, "no server has to know more than ASCII")
	}
}

// Where the server has no sub-addresses the token stands in the subject and in
// the body.
func TestCardMailWithoutSubAddresses(t *testing.T) {
	w := newWorld(t)
	w.Addressing.Separator = ""
	k := w.asks("home", id1)
	m := w.one(w.looks())
	require.Empty(t, m.header.Get("Reply-To"))
	tag := regexp.MustCompile(`\[appr_a7f3b2c1d4e5f6a7 ([a-z2-7]{26})\]$`).FindStringSubmatch(m.subject)
	require.NotNil(t, tag)
	require.Contains(t, m.text, tag[0])
	taken, _ := w.takes(letterTo(m, annMail, "1", without("In-Reply-To", "References")))
	require.Equal(t, Decided, taken.Status)
	require.True(t, w.decided(k).Approved)
}

// An agent's words never become a header, a tag, or letters that a mail program
// would decode.
func TestSubjectsHoldNoSurprise(t *testing.T) {
	w := newWorld(t)
	for _, evil := range []string{
		"x\r\nBcc: eva@human.test\r\n\r\n1", "x\nReply-To: eve@elsewhere.test", "=?utf-8?q?approve?= me", "=?UTF-8?B?MQ==?=",
		"see [appr_0000000000000001] and [APPR_0000000000000002 abcdefghijklmnopqrstuvwx23]", "\u202eevil\u2066", "a\x00b\x1b[31m",
		strings.Repeat("long ", 300), strings.Repeat("é", 400),
	} {
		k := w.asksNext("home", func(p *approval.Pending) { p.Summary, p.Target = evil, evil })
		m := w.one(w.looks())
		require.Empty(t, m.header.Get("Bcc"))
		require.Equal(t, "permesso+"+m.token+"@gate.test", m.header.Get("Reply-To"))
		require.NotRegexp(t, `[\x00-\x1f\x{202e}\x{2066}]`, m.subject)
		require.NotContains(t, m.subject, "=?")
		require.LessOrEqual(t, len(m.subject), 400)
		read, err := Read(m.raw)
		require.NoError(t, err)
		var ids []string
		for _, ref := range read.Refs(w.Addressing) {
			if ref.Where == InSubject {
				ids = append(ids, ref.ID)
			}
		}
		require.Equal(t, []string{k.ID}, ids, "%q", evil)
		taken, _ := w.takes(letterTo(m, annMail, "1"))
		require.Equal(t, Decided, taken.Status)
	}
}

// However often people write what is unclear, the card itself can be answered.
func TestTheCardOutlivesOurAnswers(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1, lasting)
	card := w.one(w.looks())
	for range 3 * maxTokens {
		w.clock.passes(2 * time.Hour)
		w.state.pages.notes[k].Cards[0].Unclear = 0
		_, answers := w.takes(letterTo(card, annMail, "hm"))
		require.Len(t, answers, 1)
	}
	taken, _ := w.takes(letterTo(card, annMail, "1"))
	require.Equal(t, Decided, taken.Status)
}

// A card that does not fit is no ground for an approval.
func TestCardThatDoesNotFit(t *testing.T) {
	w := newWorld(t)
	k := w.asks("home", id1, func(p *approval.Pending) {
		p.RequestData = approval.Raw(`{"text":"` + strings.Repeat("é", 150<<10) + `"}`)
	})
	card := w.one(w.looks())
	require.Less(t, len(card.text), 210<<10)
	require.Contains(t, card.text, "By mail this cannot be approved (codes 1, 2, 4 and 6), because the mail does not show all of it")
	require.Contains(t, card.page, "By mail this cannot be approved")
	require.Contains(t, card.text, "take the quotation out of your reply")
	for _, code := range []string{"1", "2", "4 fine", "6", "approve", "approve a7f3b2c1"} {
		taken, answers := w.takes(letterTo(card, annMail, code))
		require.Equal(t, Refused, taken.Status, code)
		require.Contains(t, w.one(answers).text, "does not show all of it")
		require.Nil(t, w.decided(k))
	}
	taken, _ := w.takes(letterTo(card, annMail, "5 shorter"))
	require.Equal(t, Decided, taken.Status, "nothing runs by that")
}

func TestCeiling(t *testing.T) {
	w := newWorld(t)
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
		{"", approval.Partial, true}, // what is unknown cannot be taken back
	} {
		for _, code := range []string{"1", "2", "4 fine", "6", "approve"} {
			w.ceil["home"] = row.ceiling
			k := w.asksNext("home", func(p *approval.Pending) { p.Reversibility, p.Capability = row.is, "fs:write" })
			card := w.one(w.looks())
			require.Equal(t, row.refused, strings.Contains(card.text, "By mail this cannot be approved"))
			taken, answers := w.takes(letterTo(card, annMail, code))
			if !row.refused {
				require.Equal(t, Decided, taken.Status, "%v %s", row, code)
				continue
			}
			require.Equal(t, Refused, taken.Status, "%v %s", row, code)
			require.Contains(t, w.one(answers).text, "By mail this cannot be approved")
			require.Nil(t, w.decided(k))
			taken, _ = w.takes(letterTo(open1(t, answers[0]), annMail, "deny"))
			require.Equal(t, Decided, taken.Status, "mail may always deny")
			require.False(t, w.decided(k).Approved)
		}
	}
}

// A cancelled request is told of to everybody who was asked, with who did it.
func TestFollowUpOfACancel(t *testing.T) {
	w := newWorld(t)
	k := w.asks("office", id1)
	require.Len(t, w.looks(), 2)
	w.ends(k, approval.StatusCancelled)
	mails := w.looks()
	require.Len(t, mails, 2)
	require.Equal(t, "🔐 a7f3b2c1 · cancelled · by bob (terminal)\n", open1(t, mails[0]).text)
	require.Equal(t, "🔐 a7f3b2c1 · annullato · da bob (terminal)\n", open1(t, mails[1]).text)
}

// A question by mail is answered from facts where they suffice, with the mark in
// front of it or without, and the request waits on; of one that does not, the
// person hears what happened.
func TestQuestionsAboutFactsByMail(t *testing.T) {
	w := newWorld(t)
	known := func(p *approval.Pending) {
		p.Facts.Host = []approval.HostFact{{Domain: approval.DomainMail, Op: "send", Name: "recipient", Values: []string{"bob@example.com"}, From: approval.FromArgument}}
	}
	k := w.asks("home", id1, known)
	card := w.one(w.looks())
	for _, text := range []string{"? who will be emailed", "Who will be emailed?", "a chi\nsarà inviata la mail?"} {
		taken, answers := w.takes(letterTo(card, annMail, text))
		require.Equal(t, Answered, taken.Status, text)
		require.Contains(t, w.one(answers).text, "From the request: mail send recipient: bob@example.com", text)
		require.Nil(t, w.decided(k), "it waits on")
	}
	taken, answers := w.takes(letterTo(card, annMail, "what files will be written?"))
	require.Equal(t, Decided, taken.Status)
	require.Contains(t, w.one(answers).text, "the gate's facts do not answer it")
	require.Equal(t, approval.RequestMore, w.decided(k).Verdict)
	w.ends(k, approval.StatusRequestMore)
	_, answers = w.takes(letterTo(card, annMail, "who will be emailed?"))
	require.Contains(t, w.one(answers).text, "Too late, nothing was changed. a7f3b2c1 · sent back")
}
