package web_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/web"
)

func (w *fixture) clearTaints(_ context.Context, _ web.User, workspace, session string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cleared = append(w.cleared, workspace+" "+session)
	return nil
}

func withTaints(p *approval.Pending) {
	p.Ruling.Rule, p.Ruling.Change = "trifecta", []approval.Reason{approval.Because("clear_taints", "workspace", workspace)}
}

// The page of a request that taints stand in the way of has one button that clears them,
// for the operator who may decide there.
func TestClearTaints(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	plain, k := w.addRequest(1, nil), w.addRequest(2, withTaints)
	yes := url.Values{"clear": {"yes"}}
	require.Nil(t, b.get(b.pathOf(plain)).find("clear-taints"))
	require.Equal(t, http.StatusForbidden, b.post(b.pathOf(plain)+"/clear-taints", yes).StatusCode)
	require.NotNil(t, b.get(b.pathOf(k)).find("clear-taints"))
	require.Empty(t, w.cleared)

	done := b.post(b.pathOf(k)+"/clear-taints", yes)
	require.Equal(t, http.StatusSeeOther, done.StatusCode)
	require.Equal(t, []string{workspace + " s1"}, w.cleared)
	require.Contains(t, b.get(done.Header.Get("Location")).text, "Taints cleared.")

	for _, lose := range []func(){func() { w.rights.Operator = false }, func() { w.rights.Decide = nil }} {
		w.mu.Lock()
		before := w.rights
		lose()
		w.mu.Unlock()
		require.Nil(t, b.get(b.pathOf(k)).find("clear-taints"))
		require.Equal(t, http.StatusForbidden, b.post(b.pathOf(k)+"/clear-taints", yes).StatusCode)
		w.mu.Lock()
		w.rights = before
		w.mu.Unlock()
	}
	require.Len(t, w.cleared, 1)

	at := b.pathOf(k) + "/clear-taints"
	foreign := set("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusForbidden, b.do(http.MethodPost, at, yes.Encode(), foreign).StatusCode, "another site")
	require.Equal(t, http.StatusForbidden, b.do(http.MethodPost, at, yes.Encode(), func(r *http.Request) {
		r.Header.Del("Origin")
		r.Header.Del("Sec-Fetch-Site")
	}).StatusCode, "no page of ours")
	require.Equal(t, http.StatusForbidden, w.newBrowser().post(at, yes).StatusCode, "no session")
	require.Equal(t, http.StatusMethodNotAllowed, b.get(at).StatusCode)
	w.settle(k, approval.StatusDenied)
	require.Equal(t, http.StatusForbidden, b.post(at, yes).StatusCode, "nothing waits for it")
	require.Len(t, w.cleared, 1)
}
