package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/ipc/webhook"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func endpoint(t *testing.T, address string, allow ...string) webhook.Endpoint {
	t.Helper()
	key, err := webhook.ParseKey(secret)
	require.NoError(t, err)
	u, err := url.Parse(address)
	require.NoError(t, err)
	private, err := facts.NewPrivate(u.Hostname(), allow)
	require.NoError(t, err)
	return webhook.Endpoint{URL: address, Key: key, Private: private}
}

func TestPost(t *testing.T) {
	at := time.Unix(1614265330, 0)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost && string(body) == `{"test": 2432232314}` && r.Header.Get("webhook-id") == "msg_p5jXN8AQM9LWM0D4loKWxJek" &&
			r.Header.Get("webhook-timestamp") == "1614265330" && r.Header.Get("Content-Type") == "application/json" &&
			r.Header.Get("webhook-signature") == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, strings.Repeat("long", 10_000))
	}))
	defer s.Close()
	e := endpoint(t, s.URL+"/hook", "127.0.0.1")
	resp, err := e.Post(t.Context(), "msg_p5jXN8AQM9LWM0D4loKWxJek", at, []byte(`{"test": 2432232314}`))
	require.NoError(t, err)
	require.Equal(t, webhook.Response{Status: http.StatusAccepted}, resp)
	require.True(t, resp.Delivered())
	resp, err = e.Post(t.Context(), "msg_1", at, []byte(`{}`))
	require.NoError(t, err)
	require.False(t, resp.Delivered())
	require.Equal(t, 7*time.Second, resp.RetryAfter)
	require.Len(t, resp.Body, 4096)
}

func TestPostFollowsNoRedirect(t *testing.T) {
	var other atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other.Add(1) }))
	defer target.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	resp, err := endpoint(t, s.URL, "127.0.0.1").Post(t.Context(), "msg_1", time.Now(), []byte("{}"))
	require.NoError(t, err)
	require.Equal(t, http.StatusTemporaryRedirect, resp.Status)
	require.False(t, resp.Delivered())
	require.Zero(t, other.Load())
}

// The address of the connection counts, whatever name leads there; a proxy of the environment is not used.
func TestPostRefusesPrivateAddresses(t *testing.T) {
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer s.Close()
	t.Setenv("HTTP_PROXY", s.URL)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	const path = "/secret-in-the-path"
	for why, e := range map[string]webhook.Endpoint{
		"an address":                     endpoint(t, s.URL+path),
		"a name that leads to loopback":  endpoint(t, "http://localhost:"+u.Port()+path),
		"another host is allowed":        endpoint(t, s.URL+path, "other.example.org", "10.0.0.1"),
		"allowed with another port only": endpoint(t, s.URL+path, "127.0.0.1:1"),
		"the metadata service":           endpoint(t, "http://169.254.169.254"+path),
		"carrier-grade NAT":              endpoint(t, "http://100.64.0.1"+path),
		"private":                        endpoint(t, "http://10.0.0.1"+path),
	} {
		_, err := e.Post(t.Context(), "msg_1", time.Now(), []byte("{}"))
		require.ErrorContains(t, err, "is not a public address", why)
		require.NotContains(t, err.Error(), path, why)
	}
	require.Zero(t, calls.Load())
	resp, err := endpoint(t, "http://localhost:"+u.Port(), "localhost").Post(t.Context(), "msg_1", time.Now(), []byte("{}"))
	require.NoError(t, err)
	require.True(t, resp.Delivered())
	require.Equal(t, int32(1), calls.Load())
}
