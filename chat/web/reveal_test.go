package web_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
)

// oneSecret finds one word.
type oneSecret struct{}

const secretWord = "sesame"

// Secrets implements chat.Redactor.
func (oneSecret) Secrets(text string) (list []chat.Span) {
	if i := strings.Index(text, secretWord); i >= 0 {
		list = append(list, chat.Span{Start: i, End: i + len(secretWord), Kind: "password"})
	}
	return list
}

// Tokens implements chat.Redactor.
func (s oneSecret) Tokens(value string) []chat.Span { return s.Secrets(value) }

// Withheld implements chat.Redactor.
func (oneSecret) Withheld(string) string { return "" }

// Unmaskable implements chat.Redactor.
func (oneSecret) Unmaskable() []string { return nil }

// For implements chat.Redactor.
func (s oneSecret) For(*approval.Pending) chat.Redactor { return s }

func maskWord(w *fixture) {
	w.server.Style = func(language string) chat.Style {
		return chat.Style{Language: language, Redact: oneSecret{}, Local: true}
	}
}

func withSecret(p *approval.Pending) {
	p.RequestData, p.Summary = approval.Raw(`{"text":"open `+secretWord+`"}`), "open "+secretWord
}

// A secret in the text of a program is masked as everywhere.
func TestMaskedProgram(t *testing.T) {
	w := newFixture(t, maskWord)
	k := w.addRequest(1, func(p *approval.Pending) {
		p.Facts.Proof = &approval.Proof{Program: "run(x)\n\topen=" + secretWord}
	})
	b := w.login()
	require.Contains(t, textOf(b.get(b.pathOf(k)), "source"), "\topen=‹password, 6 characters›")
}

func TestReveal(t *testing.T) {
	w := newFixture(t, maskWord)
	b := w.login()
	k := w.addRequest(1, withSecret)
	plain := w.addRequest(2, nil)
	require.Nil(t, b.get(b.pathOf(plain)).find("reveal"), "nothing is masked")
	p := b.get(b.pathOf(k))
	require.NotNil(t, p.find("reveal"))
	require.NotContains(t, p.text, secretWord)

	shown := b.post(b.pathOf(k)+"/reveal", url.Values{"reveal": {"yes"}})
	require.Equal(t, http.StatusSeeOther, shown.StatusCode)
	require.Equal(t, []approval.Key{k}, w.reveals)
	at := shown.Header.Get("Location")
	p = b.get(at)
	require.Contains(t, p.text, secretWord)
	title, _, _ := strings.Cut(p.text, "</title>")
	require.NotContains(t, title, secretWord, "a browser keeps titles")
	require.NotNil(t, p.find("revealed"))
	require.Nil(t, p.find("reveal"))
	require.Equal(t, "no-store", p.Header.Get("Cache-Control"))

	require.NotContains(t, b.get(at).text, secretWord, "a reload hides it again")
	require.NotContains(t, b.get(b.pathOf(k)).text, secretWord)
	require.Len(t, w.reveals, 1)

	at = b.post(b.pathOf(k)+"/reveal", url.Values{"reveal": {"yes"}}).Header.Get("Location")
	other := w.addRequest(3, withSecret)
	_, query, _ := strings.Cut(at, "?")
	require.NotContains(t, b.get(b.pathOf(other)+"?"+query).text, secretWord, "the page of another request")
	another := w.login()
	require.NotContains(t, another.get(another.pathOf(k)+"?"+query).text, secretWord, "another session")
	require.NotContains(t, b.get(b.pathOf(k)+"?revealed=").text, secretWord)
}

// Without an entry in the log, and for a person who may not decide, nothing is shown.
func TestRevealRefused(t *testing.T) {
	w := newFixture(t, maskWord)
	b := w.login()
	k := w.addRequest(1, withSecret)
	for want, err := range map[int]error{
		http.StatusInternalServerError: errors.New("disk full"),
		http.StatusNotFound:            &decide.Refusal{Reason: decide.ErrNotAuthorized},
		http.StatusSeeOther:            &decide.Refusal{Reason: decide.ErrNotApplicable},
	} {
		w.revealErr = err
		p := b.post(b.pathOf(k)+"/reveal", url.Values{"reveal": {"yes"}})
		require.Equal(t, want, p.StatusCode)
		require.NotContains(t, p.Header.Get("Location"), "revealed")
		require.NotContains(t, p.text, secretWord)
	}
	w.revealErr = nil
	foreign := set("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusForbidden, b.do(http.MethodPost, b.pathOf(k)+"/reveal", "reveal=yes", foreign).StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, b.get(b.pathOf(k)+"/reveal").StatusCode)
	require.Empty(t, w.reveals)
	at := b.post(b.pathOf(k)+"/reveal", url.Values{"reveal": {"yes"}}).Header.Get("Location")
	w.mu.Lock()
	w.rights.Decide = nil
	w.mu.Unlock()
	require.NotContains(t, b.get(at).text, secretWord, "the right was lost meanwhile")
	require.Nil(t, b.get(b.pathOf(k)).find("reveal"), "who may not decide may not see it")
}

func (b *browser) pathOf(k approval.Key) string {
	return b.sessionPath + "r/" + k.Workspace + "/" + k.ID
}
