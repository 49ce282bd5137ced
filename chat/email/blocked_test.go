package email

import (
	"html"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

// unmaskable finds a private key in every request, and masks nothing.
type unmaskable struct{}

func (u unmaskable) For(*approval.Pending) chat.Redactor { return u }
func (unmaskable) Secrets(string) []chat.Span            { return nil }
func (unmaskable) Tokens(string) []chat.Span             { return nil }
func (unmaskable) Withheld(string) string                { return "" }
func (unmaskable) Unmaskable() []string                  { return []string{"private-key"} }

// What has a secret that no mask may hide is not approved by email, whatever the reply says.
func TestSecretThatCannotBeMasked(t *testing.T) { synctest.Test(t, testSecretThatCannotBeMasked) }

func testSecretThatCannotBeMasked(t *testing.T) {
	w := newRig(t)
	style := w.Style
	w.Style = func(language string) chat.Style {
		s := style(language)
		s.Redact = unmaskable{}
		return s
	}
	k := w.addPending("home", id1)
	card := w.onlyEmail(w.runAndTakeSent())
	require.Contains(t, card.text, "cannot be approved here")
	require.Contains(t, card.page, "cannot be approved here")
	require.NotContains(t, card.text, "approve a7f3b2c1  /")
	require.Contains(t, card.text, "permesso approve a7f3b2c1")
	for _, part := range []string{card.text, card.page} {
		require.Contains(t, html.UnescapeString(part), textsFor("").HowToDeny)
		require.NotContains(t, html.UnescapeString(part), textsFor("").HowTo)
	}
	for _, text := range []string{"1", "2", "4 fine", "6", "approve", "approve a7f3b2c1"} {
		taken, answers := w.deliver(replyTo(card, annMail, text))
		require.Equal(t, Refused, taken.Status, text)
		require.Contains(t, w.onlyEmail(answers).text, "cannot be approved here")
		require.Nil(t, w.decision(k))
	}
	_, answers := w.deliver(replyTo(card, annMail, "perhaps"))
	require.True(t, strings.HasSuffix(w.onlyEmail(answers).text, textsFor("").HowToDeny+"\n"))
	taken, _ := w.deliver(replyTo(card, annMail, "5 without the key"))
	require.Equal(t, Decided, taken.Status, "code 5 runs nothing")
}

// No part of a secret is in a mail: not in its subject, and in neither of its parts.
func TestNoSecretLeavesByMail(t *testing.T) {
	style := cardtest.Style(t, false)
	for _, s := range cardtest.SecretiveRequests() {
		m := &cardMail{pending: s.Pending, style: style, texts: textsFor("")}
		letter, err := m.render()
		require.NoError(t, err)
		s.RequireHidden(t, "the text", letter.Text())
		s.RequireHidden(t, "the page", letter.Page)
		s.RequireHidden(t, "the subject", headline(style, s.Pending))
		require.Equal(t, style.Card(s.Pending).Blocked == "", letter.Complete, s.Name)
	}
}
