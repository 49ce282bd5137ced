package web_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// streamOf opens the stream that a page names, and returns its first event: what changed since the page was written.
func (b *browser) streamOf(p *page) (*stream, streamEvent) {
	for n := range p.tree.Descendants() {
		if n.Type == html.ElementNode && n.Data == "body" {
			_, query, ok := strings.Cut(attr(n, "data-stream"), "?")
			require.True(b.t, ok)
			s := b.listen(query)
			return s, s.next()
		}
	}
	b.t.Fatal("no body")
	return nil, streamEvent{}
}

func hasNote(e streamEvent) bool { return strings.Contains(e.HTML, `id="note"`) }

// What goes wrong after an approval changes the note about it: by an event, and on the page when it is loaded.
func TestNoteTellsWhatWentWrong(t *testing.T) {
	for status, want := range map[approval.Status]string{
		approval.StatusFailed:      "⚠ Approved, but it failed: run x_post Meeting at 5",
		approval.StatusInterrupted: "⚠ Approved, but it was interrupted: run x_post Meeting at 5",
		approval.StatusExpired:     "⌛ Approved, but it did not run in time: run x_post Meeting at 5",
	} {
		t.Run(string(status), func(t *testing.T) {
			w := newFixture(t)
			b := w.login()
			k := w.addRequest(1, nil)
			p := b.follow(b.decide(k, url.Values{"code": {"6"}}))
			require.Contains(t, innerText(p.find("note")), "Approved: run x_post Meeting at 5")
			s, _ := b.streamOf(p)
			w.settle(k, status)
			e := s.until(hasNote)
			require.Contains(t, e.HTML, want)
			require.Contains(t, e.HTML, `role="alert"`)
			require.Contains(t, e.HTML, b.pathOf(k), "the link to its page")
			require.Contains(t, e.HTML, k.ID[:8], "how it ended")
			p = b.page("?said=1")
			require.Contains(t, innerText(p.find("note")), want)
			require.NotContains(t, innerText(p.find("note")), "will not start after")
			require.Contains(t, innerText(p.find("note")), "Always", "what Undo takes back")
			require.Equal(t, b.pathOf(k), attr(p.find("decided"), "href"))
			require.NotNil(t, p.find("undo"))

			_, first := b.streamOf(p)
			require.False(t, hasNote(first), "the page shows it already")
		})
	}
}

func TestNoteOfASuccessStays(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k, denied := w.addRequest(1, nil), w.addRequest(2, nil)
	p := b.follow(b.decide(k, url.Values{"code": {"1"}}))
	s, _ := b.streamOf(p)
	w.settle(k, approval.StatusApproved)
	b.decide(denied, url.Values{"code": {"3"}})
	w.settle(denied, approval.StatusFailed)
	w.addRequest(3, nil)
	require.False(t, hasNote(s.until(func(e streamEvent) bool { return e.Waiting == 1 || hasNote(e) })))
	require.Contains(t, innerText(b.page("?said=1").find("note")), "Approved: run x_post Meeting at 5")
	require.Contains(t, innerText(b.page("?said=2").find("note")), "Denied")
}

// A pause that holds an approved request is told on the note, and no longer when it has ended.
func TestNoteTellsAPause(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	w.setPause(&chat.Pause{By: "bea<b>", Since: w.clock()})
	p := b.follow(b.decide(k, url.Values{"code": {"1"}}))
	for _, part := range []string{"⏸ Approved, but it waits for the end of a pause: run x_post", "bea<b>: it runs after resume, or expires at"} {
		require.Contains(t, innerText(p.find("note")), part)
	}
	s, _ := b.streamOf(p)
	w.setPause(nil)
	e := s.until(hasNote)
	require.Contains(t, e.HTML, "Approved: run x_post")
	require.NotContains(t, e.HTML, "⏸")
	require.NotContains(t, e.HTML, "alert")
	w.setPause(&chat.Pause{By: "bea<b>", Since: w.clock()})
	e = s.until(hasNote)
	require.Contains(t, e.HTML, "it runs after resume")
	require.NotContains(t, e.HTML, "<b>")
	w.settle(k, approval.StatusExpired)
	e = s.until(hasNote)
	require.Contains(t, e.HTML, "⌛ Approved, but it did not run in time")
	require.NotContains(t, e.HTML, "it runs after resume")
}

// Hostile text of the agent is on the changed note as everywhere.
func TestNoteEscapes(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, func(p *approval.Pending) { p.Summary = "<script>x</script> \u202egnp" })
	s, _ := b.streamOf(b.follow(b.decide(k, url.Values{"code": {"1"}})))
	w.settle(k, approval.StatusFailed)
	e := s.until(hasNote)
	require.NotContains(t, e.HTML, "<script")
	require.NotContains(t, e.HTML, "\u202e")
	require.Contains(t, e.HTML, "&lt;script&gt;")
}

// The page of an approved request says that a pause holds it and until when, also live.
func TestRequestPageTellsThatAPauseHoldsIt(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	b.decide(k, url.Values{"code": {"1"}})
	w.setPause(&chat.Pause{By: "bea", Since: w.clock()})
	p := b.get(b.pathOf(k))
	result := innerText(p.find("result"))
	require.Contains(t, result, "Approved by ann via web at ")
	require.Contains(t, result, "by bea: it runs after resume, or expires at ")
	s, _ := b.streamOf(p)
	isState := func(e streamEvent) bool { return strings.Contains(e.HTML, `id="result"`) }
	w.setPause(nil)
	require.NotContains(t, s.until(isState).HTML, "it runs after resume")
	w.setPause(&chat.Pause{By: "bea", Since: w.clock()})
	require.Contains(t, s.until(isState).HTML, "it runs after resume")

	denied := w.addRequest(2, nil)
	b.decide(denied, url.Values{"code": {"3"}})
	require.NotContains(t, innerText(b.get(b.pathOf(denied)).find("result")), "resume")
}
