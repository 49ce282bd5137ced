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
