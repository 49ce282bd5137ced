package web_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

// Nothing of what would run is hidden on the page of a request with an approve button.
func TestHostilePairsOnThePages(t *testing.T) {
	css, err := os.ReadFile("static/style.css")
	require.NoError(t, err)
	style := cardtest.Style(t, true)
	w := newFixture(t, func(w *fixture) {
		w.now = time.Date(2026, 11, 23, 12, 0, 1, 0, time.UTC)
		w.server.Style = func(string) chat.Style { return style }
	})
	b := w.login()
	cardtest.Run(t, style, func(_ chat.Style, p *approval.Pending) (forms []string, approvable bool) {
		k := approval.Key{Workspace: p.SourceGroup, ID: p.RequestID}
		w.mu.Lock() // without an event: nothing but this page renders the request
		w.waiting[k] = approval.StoredPending{Pending: p, SHA256: "shown"}
		w.mu.Unlock()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+b.sessionPath+"r/"+k.Workspace+"/"+k.ID, nil)
		require.NoError(t, err)
		resp, err := b.client.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return []string{cardtest.VisibleHTML(string(page), string(css))}, bytes.Contains(page, []byte(`id="code-1"`))
	})
}
