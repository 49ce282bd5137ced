package oauth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

const setup = "permesso email setup"

func clientOf(o *mailserver.OAuth) *Client {
	return &Client{
		AuthURL: o.URL + "/authorize", TokenURL: o.URL + "/token", DeviceURL: o.URL + "/device",
		ID: mailserver.ClientID, Secret: mailserver.ClientSecret, Scopes: []string{"mail"}, Account: mailserver.Gate, Setup: setup,
	}
}

func waitingContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// authorized is a source with a token of the server.
func authorized(t *testing.T, o *mailserver.OAuth) *Source {
	t.Helper()
	c := clientOf(o)
	token, err := c.AuthorizeCode(waitingContext(t), func(address string) { go o.Allow(t, address) })
	require.NoError(t, err)
	s := &Source{Client: func() (*Client, error) { return c, nil }, File: filepath.Join(t.TempDir(), "token.json"), Setup: setup}
	require.NoError(t, s.Save(token))
	return s
}

// requireFailure requires an error that names its cause and says what to do, and quotes no secret.
func requireFailure(t *testing.T, err error, cause, help string, temporary bool) {
	t.Helper()
	var e *mailbox.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, e.Error(), cause)
	require.Contains(t, e.Hint(), help)
	require.Equal(t, temporary, e.Temporary, e)
	require.NotContains(t, e.Error()+e.Hint(), mailserver.ClientSecret)
}

func TestAuthorizeWithCode(t *testing.T) {
	o := mailserver.StartOAuth(t)
	s := authorized(t, o)
	token, err := s.AccessToken(t.Context())
	require.NoError(t, err)
	require.True(t, o.Valid(token))
	info, err := os.Stat(s.File)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(s.File))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")
}

// The page carries a challenge of the verifier and an unguessable state, and asks for offline access.
func TestPageOfAuthorization(t *testing.T) {
	o := mailserver.StartOAuth(t)
	seen := map[string]bool{}
	for range 2 {
		_, err := clientOf(o).AuthorizeCode(waitingContext(t), func(address string) {
			u, err := url.Parse(address)
			require.NoError(t, err)
			q := u.Query()
			require.Equal(t, "S256", q.Get("code_challenge_method"))
			require.Len(t, q.Get("code_challenge"), 43)
			require.GreaterOrEqual(t, len(q.Get("state")), 26)
			require.Regexp(t, `^http://127\.0\.0\.1:\d+/$`, q.Get("redirect_uri"))
			require.Equal(t, "offline", q.Get("access_type"))
			require.Equal(t, mailserver.Gate, q.Get("login_hint"))
			require.NotContains(t, address, mailserver.ClientSecret)
			require.False(t, seen[q.Get("state")] || seen[q.Get("code_challenge")])
			seen[q.Get("state")], seen[q.Get("code_challenge")] = true, true
			go o.Allow(t, address)
		})
		require.NoError(t, err)
	}
}

// An answer with another state, as a page of a stranger could send it, is not taken.
func TestAnswerOfStranger(t *testing.T) {
	o := mailserver.StartOAuth(t)
	token, err := clientOf(o).AuthorizeCode(waitingContext(t), func(address string) {
		u, err := url.Parse(address)
		require.NoError(t, err)
		for _, query := range []string{"code=stolen", "code=stolen&state=", "code=stolen&state=guess", "error=access_denied&state=x"} {
			resp, err := http.Get(u.Query().Get("redirect_uri") + "?" + query) //nolint:noctx // a test
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, query)
		}
		go o.Allow(t, address)
	})
	require.NoError(t, err)
	require.True(t, o.Valid(token.AccessToken))
}

// What a real server refuses ends in an error that says what to do.
func TestRefusedCodes(t *testing.T) {
	change := func(t *testing.T, address, name, value string) string {
		u, err := url.Parse(address)
		require.NoError(t, err)
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
		return u.String()
	}
	const again = "run permesso email setup again"
	for why, tc := range map[string]struct {
		prepare     func(c *Client, o *mailserver.OAuth)
		visit       func(t *testing.T, o *mailserver.OAuth, page string)
		cause, help string
	}{
		"wrong verifier": {
			visit: func(t *testing.T, o *mailserver.OAuth, page string) {
				o.Allow(t, change(t, page, "code_challenge", strings.Repeat("A", 43)))
			},
			cause: "revoked, or has expired (invalid_grant)", help: again,
		},
		"wrong redirect": {
			visit: func(t *testing.T, o *mailserver.OAuth, page string) {
				u, err := url.Parse(page)
				require.NoError(t, err)
				on := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					http.Redirect(w, r, u.Query().Get("redirect_uri")+"?"+r.URL.RawQuery, http.StatusFound)
				}))
				defer on.Close()
				o.Allow(t, change(t, page, "redirect_uri", on.URL+"/"))
			},
			cause: "invalid_grant", help: again,
		},
		"no challenge": {
			visit: func(t *testing.T, o *mailserver.OAuth, page string) {
				o.Allow(t, change(t, page, "code_challenge", ""))
			},
			cause: "invalid_request",
		},
		"refused":      {visit: func(t *testing.T, o *mailserver.OAuth, page string) { o.Refuse(t, page) }, cause: "access_denied", help: again},
		"expired code": {prepare: func(_ *Client, o *mailserver.OAuth) { o.CodeLife = -time.Minute }, cause: "invalid_grant", help: again},
		"reused code":  {prepare: func(_ *Client, o *mailserver.OAuth) { o.Stolen = true }, cause: "invalid_grant", help: again},
		"wrong secret": {prepare: func(c *Client, _ *mailserver.OAuth) { c.Secret = "guess" }, cause: "invalid_client", help: "client_secret_file"},
	} {
		t.Run(why, func(t *testing.T) {
			o := mailserver.StartOAuth(t)
			c := clientOf(o)
			if tc.prepare != nil {
				tc.prepare(c, o)
			}
			var visits sync.WaitGroup
			_, err := c.AuthorizeCode(waitingContext(t), func(page string) {
				if tc.visit == nil {
					tc.visit = func(t *testing.T, o *mailserver.OAuth, page string) { o.Allow(t, page) }
				}
				visits.Go(func() { tc.visit(t, o, page) })
			})
			visits.Wait()
			requireFailure(t, err, tc.cause, tc.help, false)
		})
	}
}

// A redirect to another machine gets no code.
func TestRedirectToAnotherMachine(t *testing.T) {
	o := mailserver.StartOAuth(t)
	_, err := clientOf(o).AuthorizeCode(waitingContext(t), func(page string) {
		require.Equal(t, http.StatusBadRequest, o.Allow(t, strings.Replace(page, "127.0.0.1%3A", "192.0.2.1%3A", 1)))
		go o.Allow(t, page)
	})
	require.NoError(t, err)
}

func TestAuthorizeWithDevice(t *testing.T) {
	o := mailserver.StartOAuth(t)
	token, err := clientOf(o).AuthorizeDevice(waitingContext(t), func(address, code string) {
		require.Equal(t, o.URL+"/type", address)
		o.Type(code, true)
	})
	require.NoError(t, err)
	require.True(t, o.Valid(token.AccessToken))
	require.NotEmpty(t, token.RefreshToken)
}

func TestRefusedDevices(t *testing.T) {
	for why, tc := range map[string]struct {
		change func(c *Client, o *mailserver.OAuth)
		cause  string
		help   string
	}{
		"denied":         {cause: "access_denied", help: "run permesso email setup again"},
		"expired":        {change: func(_ *Client, o *mailserver.OAuth) { o.CodeLife = time.Second }, cause: "", help: "run permesso email setup again"},
		"unknown client": {change: func(c *Client, _ *mailserver.OAuth) { c.ID = "x" }, cause: "invalid_client", help: "client_id"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			o := mailserver.StartOAuth(t)
			c := clientOf(o)
			if tc.change != nil {
				tc.change(c, o)
			}
			_, err := c.AuthorizeDevice(waitingContext(t), func(_, code string) {
				if why == "denied" {
					o.Type(code, false)
				}
			})
			requireFailure(t, err, tc.cause, tc.help, false)
		})
	}
}

// An access token is refreshed before it expires, and a new refresh token is kept.
func TestRefresh(t *testing.T) {
	for _, rotate := range []bool{false, true} {
		o := mailserver.StartOAuth(t)
		o.Rotate, o.Lifetime = rotate, 4*time.Minute // less than the five minutes that a login may need
		s := authorized(t, o)
		first, err := s.AccessToken(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, o.Refreshed())
		o.Lifetime = time.Hour
		second, err := s.AccessToken(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, first, second)
		for range 3 {
			other := &Source{Client: s.Client, File: s.File} // another process
			third, err := other.AccessToken(t.Context())
			require.NoError(t, err)
			require.Equal(t, second, third, "it is valid for an hour")
		}
		require.Equal(t, 2, o.Refreshed())
	}
}

// Logins at once refresh once.
func TestRefreshAtOnce(t *testing.T) {
	o := mailserver.StartOAuth(t)
	o.Rotate, o.Lifetime = true, time.Minute
	s := authorized(t, o)
	o.Lifetime = time.Hour
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			token, err := s.AccessToken(t.Context())
			if err != nil || !o.Valid(token) {
				t.Error(token, err)
			}
		})
	}
	wait.Wait()
	require.Equal(t, 1, o.Refreshed())
}

func TestUnusableAuthorization(t *testing.T) {
	o := mailserver.StartOAuth(t)
	s := authorized(t, o)
	require.NoError(t, os.Chmod(s.File, 0o640))
	_, err := s.AccessToken(t.Context())
	requireFailure(t, err, "readable by other users", "chmod 600", false)
	require.NoError(t, os.WriteFile(s.File, []byte("{}"), 0o600))
	require.NoError(t, os.Chmod(s.File, 0o600))
	_, err = s.AccessToken(t.Context())
	requireFailure(t, err, "holds no refresh token", "run permesso email setup again", false)
	require.NoError(t, os.Remove(s.File))
	_, err = s.AccessToken(t.Context())
	requireFailure(t, err, "not authorized yet", "run permesso email setup", false)

	o.Lifetime = time.Minute
	s = authorized(t, o)
	o.Revoke()
	_, err = s.AccessToken(t.Context())
	requireFailure(t, err, "the authorization was revoked", "run permesso email setup again", false)
	c := clientOf(o)
	s.Client = func() (*Client, error) { return c, nil }
	c.TokenURL = "http://127.0.0.1:1/token"
	_, err = s.AccessToken(t.Context())
	requireFailure(t, err, "refresh the access token", "reaches the authorization server", true)
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer busy.Close()
	c.TokenURL = busy.URL
	_, err = s.AccessToken(t.Context())
	requireFailure(t, err, "answered 503", "", true)
	s.Client = func() (*Client, error) { return nil, errors.New("no secret") }
	_, err = s.AccessToken(t.Context())
	requireFailure(t, err, "no secret", "", false)
}

// A token that ends with the hour is refused at once: the daemon would stop then.
func TestNoRefreshToken(t *testing.T) {
	_, err := (&Client{Setup: setup}).lasting(&Token{AccessToken: "a"}, nil)
	requireFailure(t, err, "the server gave no refresh token", "allow offline access", false)
}

// A redirect of the authorization server is not followed: the other server would get the refresh token.
func TestNoRedirect(t *testing.T) {
	o := mailserver.StartOAuth(t)
	o.Lifetime = time.Minute
	s := authorized(t, o)
	var got atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	c := clientOf(o)
	c.TokenURL = first.URL
	s.Client = func() (*Client, error) { return c, nil }
	_, err := s.AccessToken(t.Context())
	requireFailure(t, err, "answered 307", "", false)
	require.Zero(t, got.Load())
}
