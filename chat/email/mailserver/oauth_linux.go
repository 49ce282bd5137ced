package mailserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// The client that [OAuth] knows, and the only account.
const (
	ClientID     = "gate-client"
	ClientSecret = "not-a-word-7"
)

// OAuth is an authorization server that refuses what real ones refuse. Its tokens are for
// the mailbox of [Gate].
type OAuth struct {
	URL      string
	Rotate   bool          // each refresh replaces the refresh token
	Lifetime time.Duration // of an access token
	CodeLife time.Duration // of a code, and of a device code
	Stolen   bool          // each code was used before it comes back

	mu        sync.Mutex
	codes     map[string]*grantedCode // by code
	devices   map[string]*deviceCode  // by device code
	refresh   map[string]bool         // live refresh tokens
	access    map[string]time.Time    // access tokens, and when they expire
	refreshed int
}

type grantedCode struct {
	challenge, redirect string
	until               time.Time
	used                bool
}

type deviceCode struct {
	user                  string
	until, asked          time.Time
	allowed, denied, used bool
}

// StartOAuth starts a server, which stops at the end of the test.
func StartOAuth(t testing.TB) *OAuth {
	t.Helper()
	o := &OAuth{
		Lifetime: time.Hour, CodeLife: time.Minute,
		codes: map[string]*grantedCode{}, devices: map[string]*deviceCode{}, refresh: map[string]bool{}, access: map[string]time.Time{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", o.authorize)
	mux.HandleFunc("POST /token", o.token)
	mux.HandleFunc("POST /device", o.device)
	mux.HandleFunc("GET /tokeninfo", o.tokenInfo)
	server := httptest.NewUnstartedServer(mux)
	o.URL = "http://" + server.Listener.Addr().String() // before the first call
	server.Start()
	t.Cleanup(server.Close)
	return o
}

// Allow does what a person does who opens the page in a browser and allows it.
func (o *OAuth) Allow(t testing.TB, address string) (status int) { return o.visit(t, address, "yes") }

// Refuse is [OAuth.Allow] of a person who refuses.
func (o *OAuth) Refuse(t testing.TB, address string) (status int) { return o.visit(t, address, "no") }

func (o *OAuth) visit(t testing.TB, address, answer string) int {
	t.Helper()
	resp, err := http.Get(address + "&answer=" + answer) //nolint:noctx // a test
	if err != nil {
		t.Log(err) // the program has what it needs, and its server may have ended
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Type is what a person does who types the code of a device.
func (o *OAuth) Type(user string, allowed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.devices {
		if d.user == user {
			d.allowed, d.denied = allowed, !allowed
		}
	}
}

// Revoke revokes what was authorized. Access tokens end, too.
func (o *OAuth) Revoke() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.refresh)
	clear(o.access)
}

// Refreshed counts the refreshes.
func (o *OAuth) Refreshed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refreshed
}

// Valid says whether an access token is valid now.
func (o *OAuth) Valid(token string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Before(o.access[token])
}

func (o *OAuth) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || back.Scheme != "http" || back.Hostname() != "127.0.0.1" || back.Path != "/" || q.Get("client_id") != ClientID {
		http.Error(w, "this client has no such redirect", http.StatusBadRequest) // never a redirect to it
		return
	}
	answer := url.Values{"state": {q.Get("state")}}
	switch {
	case q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("scope") == "":
		answer.Set("error", "invalid_request")
	case q.Get("answer") != "yes":
		answer.Set("error", "access_denied")
	default:
		code := rand.Text()
		o.mu.Lock()
		o.codes[code] = &grantedCode{challenge: q.Get("code_challenge"), redirect: q.Get("redirect_uri"), until: time.Now().Add(o.CodeLife), used: o.Stolen}
		o.mu.Unlock()
		answer.Set("code", code)
	}
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound) //nolint:gosec // a test server; it is on this machine
}

func (o *OAuth) token(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	form := func(name string) string { return r.PostFormValue(name) }
	if form("client_id") != ClientID || form("client_secret") != ClientSecret {
		fail(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	switch form("grant_type") {
	case "authorization_code":
		c := o.codes[form("code")]
		sum := sha256.Sum256([]byte(form("code_verifier")))
		if c != nil && c.used { // a thief may have it: what it gave ends (RFC 6749, 4.1.2)
			clear(o.refresh)
		}
		if c == nil || c.used || time.Now().After(c.until) || form("redirect_uri") != c.redirect || base64.RawURLEncoding.EncodeToString(sum[:]) != c.challenge {
			fail(w, http.StatusBadRequest, "invalid_grant")
			return
		}
		c.used = true
		o.give(w, "")
	case "urn:ietf:params:oauth:grant-type:device_code":
		o.poll(w, o.devices[form("device_code")])
	case "refresh_token":
		if !o.refresh[form("refresh_token")] {
			fail(w, http.StatusBadRequest, "invalid_grant")
			return
		}
		o.refreshed++
		if o.Rotate {
			delete(o.refresh, form("refresh_token"))
			o.give(w, "")
			return
		}
		o.give(w, form("refresh_token"))
	default:
		fail(w, http.StatusBadRequest, "unsupported_grant_type")
	}
}

const pollInterval = time.Second

func (o *OAuth) poll(w http.ResponseWriter, d *deviceCode) {
	now := time.Now()
	switch {
	case d == nil || d.used:
		fail(w, http.StatusBadRequest, "invalid_grant")
	case now.After(d.until):
		fail(w, http.StatusBadRequest, "expired_token")
	case now.Sub(d.asked) < pollInterval/2:
		fail(w, http.StatusBadRequest, "slow_down")
	case d.denied:
		fail(w, http.StatusBadRequest, "access_denied")
	case !d.allowed:
		d.asked = now
		fail(w, http.StatusBadRequest, "authorization_pending")
	default:
		d.used = true
		o.give(w, "")
	}
}

// give gives an access token and, if that is new, a refresh token.
func (o *OAuth) give(w http.ResponseWriter, refresh string) {
	answer := map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": int(o.Lifetime.Seconds())}
	if refresh == "" {
		refresh = rand.Text()
		o.refresh[refresh] = true
		answer["refresh_token"] = refresh
	}
	o.access[answer["access_token"].(string)] = time.Now().Add(o.Lifetime)
	reply(w, http.StatusOK, answer)
}

func (o *OAuth) device(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("client_id") != ClientID || r.PostFormValue("scope") == "" {
		fail(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	code, user := rand.Text(), rand.Text()[:8]
	o.mu.Lock()
	o.devices[code] = &deviceCode{user: user, until: time.Now().Add(o.CodeLife)}
	o.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": user, "verification_uri": o.URL + "/type",
		"expires_in": int(o.CodeLife.Seconds()), "interval": int(pollInterval.Seconds()),
	})
}

// tokenInfo answers a mail server.
func (o *OAuth) tokenInfo(w http.ResponseWriter, r *http.Request) {
	if !o.Valid(r.URL.Query().Get("access_token")) {
		fail(w, http.StatusBadRequest, "invalid_token")
		return
	}
	reply(w, http.StatusOK, map[string]any{"email": Gate, "active": "true"})
}

func fail(w http.ResponseWriter, status int, code string) {
	reply(w, status, map[string]any{"error": code, "error_description": strings.ReplaceAll(code, "_", " ")})
}

func reply(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
