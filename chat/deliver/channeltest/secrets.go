package channeltest

import (
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

// scanner redacts with what it holds, which may be learned later.
type scanner struct{ atomic.Pointer[chat.Redactor] }

func (x *scanner) now() chat.Redactor {
	if known := x.Load(); known != nil {
		return *known
	}
	return nothing{}
}

// For implements chat.Redactor.
func (x *scanner) For(p *approval.Pending) chat.Redactor { return x.now().For(p) }

// Secrets implements chat.Redactor.
func (x *scanner) Secrets(text string) []chat.Span { return x.now().Secrets(text) }

// Tokens implements chat.Redactor.
func (x *scanner) Tokens(value string) []chat.Span { return x.now().Tokens(value) }

// Withheld implements chat.Redactor.
func (x *scanner) Withheld(value string) string { return x.now().Withheld(value) }

// Unmaskable implements chat.Redactor.
func (x *scanner) Unmaskable() []string { return x.now().Unmaskable() }

// nothing finds no secret.
type nothing struct{}

func (x nothing) For(*approval.Pending) chat.Redactor { return x }
func (nothing) Secrets(string) []chat.Span            { return nil }
func (nothing) Tokens(string) []chat.Span             { return nil }
func (nothing) Withheld(string) string                { return "" }
func (nothing) Unmaskable() []string                  { return nil }

// learnSecrets makes the channel redact with the real scanner.
func (r *rig) learnSecrets() {
	x := cardtest.Style(r.T, false).Redact
	r.redact.Store(&x)
}

// keyed is a text with a secret that no mask may hide.
func keyed() string { return "use this:\n" + cardtest.PrivateKey() + "\n" }

// requireNoSecret fails if a message has a line of the secret.
func (r *rig) requireNoSecret() {
	r.Helper()
	for _, m := range r.Shown() {
		for _, line := range strings.Split(cardtest.PrivateKey(), "\n") {
			require.NotContains(r, m.Text, line)
		}
	}
}

// noApproval is how every refusal begins.
const noApproval = "cannot be approved here: it has what looks like a secret (private key)"

// requireRefused writes an answer and waits for the refusal, which names where the request can be approved.
func (r *rig) requireRefused(k approval.Key, text string, card Shown) {
	r.Helper()
	before := len(r.Shown())
	r.Say(r.Approver, text, card.ID)
	r.await("the refusal of "+text, func() bool { return len(r.Shown()) > before })
	refusal := r.Shown()[before].Text
	require.Contains(r, refusal, noApproval, text)
	require.Contains(r, refusal, "Approve in the terminal, in the browser", text)
	require.Contains(r, refusal, approval.ShortID(k.ID), text)
	require.Nil(r, r.gate.decision(k), text)
}

// withheld: what no mask may hide leaves the host in no message, and is approved by nothing that is said here.
func (r *rig) withheld() {
	r.learnSecrets()
	k := r.gate.ask(1, keyed())
	m := r.card(k)
	require.Contains(r, m.Text, noApproval)
	require.Contains(r, m.Text, "‹withheld: private key›")
	for label := range m.Buttons {
		approves := slices.ContainsFunc([]string{"✅", "📄", "Note"}, func(s string) bool { return strings.Contains(label, s) })
		require.False(r, approves, "button %q", label)
	}
	if r.traits().Buttons {
		require.Contains(r, m.Buttons, "❌ Deny")
	}
	short := approval.ShortID(k.ID)
	for _, text := range []string{"1", "2", "4 fine", "6", "approve " + short} {
		r.requireRefused(k, text, m)
	}
	if !r.letters() {
		r.requireRefused(k, "approve "+short, Shown{})
	}
	r.Say(r.Approver, "3 not with a key", m.ID)
	r.await("the decision", func() bool { return r.gate.decision(k) != nil })
	require.Equal(r, approval.Denied, r.gate.decision(k).Verdict)
	r.awaitMessage("the confirmation", func(m Shown) bool { return strings.HasPrefix(m.Text, "Denied") })
	if !r.letters() {
		r.awaitOutcome(m, "❌ Denied by ann")
	}
	r.requireNoSecret()
}

// lateSecret: a card was sent before its secret was known. Its buttons approve nothing any more.
func (r *rig) lateSecret() {
	r.await("the adapter", func() bool { return r.traits().Service != "" })
	long := ""
	if limit := r.traits().MaxText; limit > 0 {
		long = strings.Repeat("x ", limit)
	}
	k, short := r.gate.ask(1, long+keyed()), r.gate.ask(2, keyed())
	cut, m := r.card(k), r.card(short)
	r.learnSecrets()
	before := len(r.Shown())
	if r.traits().Buttons {
		require.Contains(r, r.Tap(r.Approver, m.ID, m.Buttons["✅ Once"]), noApproval)
		require.Nil(r, r.gate.decision(short))
		if long != "" {
			require.Contains(r, r.Tap(r.Approver, cut.ID, cut.Buttons["📄 Show all"]), noApproval)
		}
	}
	require.Len(r, r.Shown(), before, "no file")
	r.requireRefused(short, "1", m)
	r.requireRefused(k, "1", cut)
	r.Say(r.Approver, "3", m.ID)
	r.await("the decision", func() bool { return r.gate.decision(short) != nil })
	require.Equal(r, approval.Denied, r.gate.decision(short).Verdict)
}

// secretsInLists: neither a digest nor a list nor its cards have a secret.
func (r *rig) secretsInLists() {
	r.learnSecrets()
	for n := range 6 {
		r.gate.ask(n, keyed())
	}
	if r.letters() {
		r.await("a card for each", func() bool { return len(r.Shown()) == 6 })
		r.requireNoSecret()
		return
	}
	r.awaitMessage("the digest", func(m Shown) bool { return strings.HasPrefix(m.Text, "📋") })
	r.await("all pendings", func() bool {
		waiting, err := r.gate.Waiting(r.Context(), []string{workspace})
		return err == nil && len(waiting) == 6
	})
	r.Say(r.Approver, "/pending", "")
	list := r.awaitMessage("the list", func(m Shown) bool { return strings.HasPrefix(m.Text, "Pending: 6") })
	require.Contains(r, list.Text, "private key")
	r.requireNoSecret()
}

// sameBeginning: the first digits of an ID may be another request's. All messages name a request by the short ID
// of its card.
func (r *rig) sameBeginning() {
	first := r.gate.askAs("a7f3b2c1d4e5f6a7", "hello")
	one := r.awaitNamed("a7f3b2c1")
	second := r.gate.askAs("a7f3b2c1deadbeef", "hello")
	other := r.awaitNamed("deadbeef")
	r.await("the records", func() bool { return r.sent.has(string(one.ID)) && r.sent.has(string(other.ID)) })
	if r.letters() {
		r.Say(r.Approver, "3", other.ID)
	} else {
		r.Say(r.Approver, "/pending", "")
		list := r.awaitMessage("the list", func(m Shown) bool { return strings.HasPrefix(m.Text, "Pending: 2") })
		require.Equal(r, []string{"a7f3b2c1", "deadbeef"}, idsIn(list.Text))
		r.Say(r.Approver, "deny deadbeef", "")
	}
	r.await("the decision", func() bool { return r.gate.decision(second) != nil })
	r.awaitMessage("the confirmation", func(m Shown) bool { return strings.HasPrefix(m.Text, "Denied") })
	require.Nil(r, r.gate.decision(first))
	r.awaitOutcome(other, "❌ Denied by ann")
	for _, m := range r.Shown() {
		if named := idsIn(m.Text); !strings.HasPrefix(m.Text, "Pending") && m.ID != one.ID && len(named) > 0 {
			require.Equal(r, []string{"deadbeef"}, named, m.Text)
		}
	}
}

// awaitNamed waits for the card of a short ID.
func (r *rig) awaitNamed(label string) Shown {
	r.Helper()
	return r.awaitMessage("the card "+label, func(m Shown) bool {
		return strings.HasPrefix(m.Text, "🔐") && slices.Contains(idsIn(m.Text), label)
	})
}

var sameIDs = regexp.MustCompile(`a7f3b2c1[0-9a-f]*|deadbeef`)

// idsIn lists the different IDs in a text.
func idsIn(text string) []string {
	all := sameIDs.FindAllString(text, -1)
	slices.Sort(all)
	return slices.Compact(all)
}
