package web_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/web"
)

// subscriptions is what the pages ask for.
type subscriptions struct {
	users []web.User
	added []web.Subscription
	ended []string
	err   error
}

func (s *subscriptions) Key() string { return "BPublicKey" }

func (s *subscriptions) Subscribe(u web.User, x web.Subscription) error {
	s.users, s.added = append(s.users, u), append(s.added, x)
	return s.err
}

func (s *subscriptions) Unsubscribe(u web.User, endpoint string) error {
	s.users, s.ended = append(s.users, u), append(s.ended, endpoint)
	return s.err
}

func TestSubscribe(t *testing.T) {
	kept := &subscriptions{}
	w := newFixture(t, func(w *fixture) { w.server.Backend.Push = kept })
	b := w.login()
	help := b.page("help")
	require.Equal(t, "BPublicKey", attr(help.find("push"), "data-key"))
	form := url.Values{"endpoint": {"https://push.example.org/1"}, "p256dh": {"BKey"}, "auth": {"secret"}}
	require.Equal(t, http.StatusNoContent, b.post(b.sessionPath+"push/subscribe", form).StatusCode)
	require.Equal(t, []web.Subscription{{Endpoint: "https://push.example.org/1", Key: "BKey", Auth: "secret", Language: "en"}}, kept.added)
	require.Equal(t, http.StatusNoContent, b.post(b.sessionPath+"push/unsubscribe", form).StatusCode)
	require.Equal(t, []string{"https://push.example.org/1"}, kept.ended)
	require.Equal(t, []web.User{ann, ann}, kept.users)

	for _, missing := range []string{"endpoint", "p256dh", "auth"} {
		less := url.Values{"endpoint": {"https://push.example.org/1"}, "p256dh": {"BKey"}, "auth": {"secret"}}
		less.Del(missing)
		require.Equal(t, http.StatusBadRequest, b.post(b.sessionPath+"push/subscribe", less).StatusCode, missing)
	}
	foreign := func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }
	require.Equal(t, http.StatusForbidden, b.do(http.MethodPost, b.sessionPath+"push/subscribe", form.Encode(), foreign).StatusCode)
	require.Equal(t, http.StatusForbidden, w.newBrowser().post(b.sessionPath+"push/subscribe", form).StatusCode, "without a session")
	require.Len(t, kept.added, 1)

	kept.err = errors.New("the endpoint must use https")
	require.Equal(t, http.StatusBadRequest, b.post(b.sessionPath+"push/subscribe", form).StatusCode)
}

func TestWithoutPush(t *testing.T) {
	b := newFixture(t).login()
	require.Nil(t, b.page("help").find("push"))
	form := url.Values{"endpoint": {"https://push.example.org/1"}, "p256dh": {"BKey"}, "auth": {"secret"}}
	require.Equal(t, http.StatusBadRequest, b.post(b.sessionPath+"push/subscribe", form).StatusCode)
}

// A link from a notification may come from anywhere. Its page is the same for every request, known or not.
func TestNotificationLinks(t *testing.T) {
	w := newFixture(t)
	k := w.addRequest(1, nil)
	b := w.newBrowser()
	fromElsewhere := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	known := b.do(http.MethodGet, "/r/"+k.Workspace+"/"+k.ID, "", fromElsewhere)
	require.Equal(t, http.StatusOK, known.StatusCode)
	require.Contains(t, known.text, "data-open")
	require.NotContains(t, known.text, k.ID)
	for _, path := range []string{"/r/elsewhere/0000000000000000", "/open"} {
		require.Equal(t, known.text, b.do(http.MethodGet, path, "", fromElsewhere).text, path)
	}
	s := w.login()
	require.Equal(t, http.StatusForbidden, s.do(http.MethodGet, s.sessionPath+"r/"+k.Workspace+"/"+k.ID, "", fromElsewhere).StatusCode)
}

func TestInstallable(t *testing.T) {
	b := newFixture(t).newBrowser()
	worker := b.get("/worker.js")
	require.Equal(t, http.StatusOK, worker.StatusCode)
	require.True(t, strings.HasPrefix(worker.Header.Get("Content-Type"), "text/javascript"))
	require.Contains(t, worker.text, "showNotification")

	file := b.get("/static/app.webmanifest")
	require.Equal(t, "application/manifest+json", file.Header.Get("Content-Type"))
	var m struct {
		Name, Scope, Display string
		Start                string `json:"start_url"`
		Icons                []struct{ Src, Sizes, Type string }
	}
	require.NoError(t, json.Unmarshal([]byte(file.text), &m))
	require.Equal(t, "permesso", m.Name)
	require.Equal(t, http.StatusOK, b.get(m.Start).StatusCode)
	require.Len(t, m.Icons, 3)
	for _, icon := range m.Icons {
		p := b.get(icon.Src)
		require.Equal(t, http.StatusOK, p.StatusCode, icon.Src)
		require.Equal(t, icon.Type, p.Header.Get("Content-Type"))
		if icon.Type == "image/png" {
			c, err := png.DecodeConfig(bytes.NewReader([]byte(p.text)))
			require.NoError(t, err)
			require.Equal(t, icon.Sizes, fmt.Sprintf("%dx%d", c.Width, c.Height))
		}
	}
}

// A login link may lead to the page of a request, and to nothing else.
func TestLoginLeadsToARequest(t *testing.T) {
	w := newFixture(t)
	k := w.addRequest(1, nil)
	for to, want := range map[string]string{
		"r/" + k.Workspace + "/" + k.ID: "r/" + k.Workspace + "/" + k.ID,
		"":                              "", "grants": "", "//evil.example/x": "", "r/../" + k.ID: "", "r/a/" + k.ID + "/decide": "", "r/personal/1": "", "https://evil.example": "",
	} {
		b := w.newBrowser()
		token := w.token()
		form := b.get("/enter/" + token + "?to=" + url.QueryEscape(to))
		require.Equal(t, http.StatusOK, form.StatusCode)
		require.Equal(t, want != "", strings.Contains(form.text, `name="to" value="`+want+`"`) && want != "", to)
		r := b.post("/enter", url.Values{"token": {token}, "to": {to}})
		require.Equal(t, http.StatusSeeOther, r.StatusCode)
		require.Regexp(t, "^/s/[0-9a-f]{32}/"+want+"$", r.Header.Get("Location"), to)
	}
}
