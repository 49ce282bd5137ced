package email

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
)

// An email from a forwarding service needs the token, and counts as written by the
// approver of the service's key.
func TestForwarded(t *testing.T) { synctest.Test(t, testForwarded) }

func testForwarded(t *testing.T) {
	w := newRig(t)
	w.Addressing.Separator = ""
	k := w.addPending("office", id1)
	var ann parsedEmail
	for _, m := range w.runAndTakeSent() {
		if m.to == annMail {
			ann = parseEmail(t, m)
		}
	}
	person := func(mail string) approval.Person { return approval.Person{Channel: "email", ID: mail} }
	forward := func(subject, body string, p approval.Person) Status {
		taken, err := w.TakeForwarded(t.Context(), Forwarded{Subject: subject, Body: body}, p)
		require.NoError(t, err)
		return taken.Status
	}
	require.Equal(t, Refused, forward("Re: "+strings.Replace(ann.subject, " ", "", 1), "1", person(bobMail)), "ann's token")
	require.Equal(t, Refused, forward("Re: [appr_"+id1+"]", "1", person(annMail)), "no token")
	require.Equal(t, Refused, forward("Re: "+ann.subject, "1", person("eve@elsewhere.test")))
	require.Equal(t, Refused, forward("Re: "+ann.subject, "1", approval.Person{Channel: "telegram", ID: annMail}))
	require.Equal(t, Refused, forward("Re: "+ann.subject, "1", approval.Person{}))
	require.Nil(t, w.decision(k))
	require.Equal(t, Unclear, forward("Re: "+ann.subject, "fine, but wait", person(annMail)))
	require.Equal(t, Decided, forward("Re: "+ann.subject, "4 fine\n\n> "+strings.ReplaceAll(ann.text, "\n", "\n> "), person(annMail)))
	require.Equal(t, "fine", w.decision(k).Note)
	require.Equal(t, Duplicate, forward("Re: "+ann.subject, "4 fine\n\n> "+strings.ReplaceAll(ann.text, "\n", "\n> "), person(annMail)))
}

// Without a token the tag counts only from a caller that authenticates senders, and only as
// an answer of the approver of its key.
func TestAuthenticatedSender(t *testing.T) { synctest.Test(t, testAuthenticatedSender) }

func testAuthenticatedSender(t *testing.T) {
	w := newRig(t)
	k := w.addPending("office", id1)
	w.runAndTakeSent()
	forward := func(f Forwarded, mail string) Status {
		f.Body = "4 add logs\n\nOn Tue..."
		taken, err := w.TakeForwarded(t.Context(), f, approval.Person{Channel: "email", ID: mail})
		require.NoError(t, err)
		return taken.Status
	}
	tag := "Run command [appr_" + id1 + "]"
	for why, f := range map[string]Forwarded{
		"nothing is authenticated": {Subject: tag},
		"another's address":        {Subject: tag, From: bobMail, Authenticated: true},
		"no address":               {Subject: tag, From: "ann", Authenticated: true},
		"a wrong token":            {Subject: "Run command [appr_" + id1 + " " + strings.Repeat("a", 26) + "]", Authenticated: true},
		"another request":          {Subject: "Run command [appr_" + strings.Repeat("0", 32) + "]", Authenticated: true},
		"no tag":                   {Subject: "Run command", Authenticated: true},
		"a forwarded email":        {Subject: "Fwd: " + tag, Authenticated: true},
	} {
		require.Equal(t, Refused, forward(f, annMail), why)
		require.Nil(t, w.decision(k), why)
	}
	require.Equal(t, Refused, forward(Forwarded{Subject: tag, Authenticated: true}, "eve@elsewhere.test"), "no approver")
	require.Equal(t, Decided, forward(Forwarded{Subject: tag, From: strings.ToUpper(annMail), Authenticated: true}, annMail))
	require.Equal(t, "add logs", w.decision(k).Note)
	require.Equal(t, approval.Approved, w.decision(k).Verdict)
}

// A complete email from an API caller must be written by the approver of the caller's
// key.
func TestRawEmailByCaller(t *testing.T) { synctest.Test(t, testRawEmailByCaller) }

func testRawEmailByCaller(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	in := replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "1")
	for _, p := range []approval.Person{{Channel: "email", ID: bobMail}, {}, {Channel: "local", ID: annMail}} {
		taken, err := w.TakeRaw(t.Context(), in, p)
		require.NoError(t, err)
		require.Equal(t, Refused, taken.Status)
	}
	require.Nil(t, w.decision(k))
	taken, err := w.TakeRaw(t.Context(), in, approval.Person{Channel: "email", ID: "ann@HUMAN.test"})
	require.NoError(t, err)
	require.Equal(t, Decided, taken.Status)
	w.restart()
	taken, err = w.TakeRaw(t.Context(), in, approval.Person{Channel: "email", ID: annMail})
	require.NoError(t, err)
	require.Equal(t, Taken{Status: Duplicate, Key: k}, taken, "the caller gets the request's key again")
}

// If the result cannot be saved, the retry finds the decision.
func TestFullDisk(t *testing.T) { synctest.Test(t, testFullDisk) }

func testFullDisk(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	in := replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "1")
	complete := w.Taken
	w.restartWith(brokenStore{})
	_, err := w.Take(t.Context(), in)
	require.Error(t, err, "so that the caller retries")
	w.restartWith(complete)
	taken, answers := w.deliver(in)
	require.Equal(t, Late, taken.Status, "the first delivery had decided")
	require.Contains(t, w.onlyEmail(answers).text, "Already approved by ann")
	require.True(t, w.decision(k).Approved)
}

func (w *rig) restartWith(taken interface {
	Put(string, []byte) error
	Get(string) ([]byte, error)
	List() ([]string, error)
	Remove(string) error
},
) {
	w.restart()
	w.Taken = taken
}

type brokenStore struct{}

var errFull = errors.New("no space left")

func (brokenStore) Put(string, []byte) error   { return errFull }
func (brokenStore) Get(string) ([]byte, error) { return nil, errFull }
func (brokenStore) List() ([]string, error)    { return nil, nil }
func (brokenStore) Remove(name string) error   { return errFull }

// brokenDecider cannot write. Whether it left a decision is unknown.
type brokenDecider struct{}

func (brokenDecider) Decide(context.Context, decide.Input) (*approval.Decision, error) {
	return nil, errFull
}

// A decision that could not be written is retried, as if the email had not come.
func TestDecisionThatCannotBeWritten(t *testing.T) { synctest.Test(t, testDecisionThatCannotBeWritten) }

func testDecisionThatCannotBeWritten(t *testing.T) {
	w := newRig(t)
	k := w.addPending("home", id1)
	in := replyTo(w.onlyEmail(w.runAndTakeSent()), annMail, "1")
	complete := w.Interceptor.Decider
	w.Interceptor.Decider = brokenDecider{}
	_, err := w.Take(t.Context(), in)
	require.ErrorIs(t, err, errFull)
	require.Empty(t, w.runAndTakeSent())
	w.Interceptor.Decider = complete
	taken, _ := w.deliver(in)
	require.Equal(t, Decided, taken.Status)
	require.True(t, w.decision(k).Approved)
}
