package oauth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// Client is what an authorization server knows of the gate.
type Client struct {
	AuthURL   string // "": only DeviceURL
	TokenURL  string
	DeviceURL string // "": only AuthURL
	ID        string
	Secret    string // "": the server needs none
	Scopes    []string
	Account   string // whose mailbox it is
	Setup     string // the command that authorizes the gate, for advice
}

// Token is what the authorization server gave: the access token, when it expires, and the
// refresh token.
type Token = oauth2.Token

// timeout limits each request to the authorization server.
const timeout = 30 * time.Second

// config is the client for one flow, in a context with our HTTP client: no redirect is followed.
func (c *Client) config(ctx context.Context) (context.Context, *oauth2.Config) {
	plain := &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return context.WithValue(ctx, oauth2.HTTPClient, plain), &oauth2.Config{
		ClientID: c.ID, ClientSecret: c.Secret, Scopes: c.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: c.AuthURL, TokenURL: c.TokenURL, DeviceAuthURL: c.DeviceURL, AuthStyle: oauth2.AuthStyleInParams},
	}
}

// AuthorizeCode shows the address of a page, waits until a person has authorized the gate
// there, and exchanges the code that the browser brings back. Its error is a *mailbox.Error.
func (c *Client) AuthorizeCode(ctx context.Context, show func(address string)) (*Token, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, &mailbox.Error{Stage: authorize, Err: err}
	}
	ctx, config := c.config(ctx)
	config.RedirectURL = "http://" + listener.Addr().String() + "/"
	state, verifier := rand.Text(), oauth2.GenerateVerifier()
	back := &redirect{state: state, came: make(chan url.Values, 1)}
	server := &http.Server{Handler: back, ReadHeaderTimeout: timeout}
	go func() { _ = server.Serve(listener) }() // ends when it is closed
	defer server.Close()
	show(config.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier), oauth2.AccessTypeOffline,
		oauth2.SetAuthURLParam("prompt", "consent"), oauth2.SetAuthURLParam("login_hint", c.Account)))
	select {
	case <-ctx.Done():
		return nil, c.explain(authorize, ctx.Err())
	case answer := <-back.came:
		if answer.Get("code") == "" {
			return nil, c.explain(authorize, &oauth2.RetrieveError{ErrorCode: cmp.Or(answer.Get("error"), "no code"), ErrorDescription: answer.Get("error_description")})
		}
		t, err := config.Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(verifier))
		return c.lasting(t, err)
	}
}

const authorize = "authorize the gate"

// redirect takes the answer that the browser brings back: the first with our state.
type redirect struct {
	state string
	came  chan url.Values
}

// ServeHTTP implements http.Handler.
func (r *redirect) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	answer := q.URL.Query()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(r.state)) != 1 {
		http.Error(w, "This is not the answer that permesso waits for.", http.StatusBadRequest)
		return
	}
	select {
	case r.came <- answer:
	default:
	}
	fmt.Fprintln(w, "permesso has the answer. You can close this page and go back to the terminal.")
}

// AuthorizeDevice shows a page and a code, and waits until a person has typed the code there.
// Its error is a *mailbox.Error.
func (c *Client) AuthorizeDevice(ctx context.Context, show func(address, code string)) (*Token, error) {
	ctx, config := c.config(ctx)
	device, err := config.DeviceAuth(ctx)
	if err != nil {
		return nil, c.explain(authorize, err)
	}
	show(device.VerificationURI, device.UserCode)
	return c.lasting(config.DeviceAccessToken(ctx, device))
}

// lasting refuses a token that could not be refreshed.
func (c *Client) lasting(t *Token, err error) (*Token, error) {
	switch {
	case err != nil:
		return nil, c.explain(authorize, err)
	case t.RefreshToken == "":
		return nil, &mailbox.Error{
			Stage: authorize, Account: true, Err: errors.New("the server gave no refresh token"),
			Help: "allow offline access for this client at the provider",
		}
	}
	return t, nil
}

// explain says what failed and what to do. It quotes no token.
func (c *Client) explain(stage string, err error) *mailbox.Error {
	e, again := &mailbox.Error{Stage: stage, Err: err}, "run "+c.Setup+" again"
	var refused *oauth2.RetrieveError
	switch {
	case stage == authorize && errors.Is(err, context.DeadlineExceeded):
		e.Err, e.Help = errors.New("timeout: no authorization came"), again
		return e
	case !errors.As(err, &refused):
		e.Temporary, e.Help = true, "check that this machine reaches the authorization server"
		return e
	case refused.ErrorCode == "":
		e.Err = errors.New("the authorization server answered without an error code")
		if refused.Response != nil {
			e.Err = fmt.Errorf("the authorization server answered %d", refused.Response.StatusCode)
			e.Temporary = refused.Response.StatusCode >= 500 || refused.Response.StatusCode == http.StatusTooManyRequests
		}
		e.Account = !e.Temporary
		return e
	}
	e.Account = true
	e.Err = fmt.Errorf("the authorization server answered %s", quote(refused.ErrorCode+": "+refused.ErrorDescription))
	switch refused.ErrorCode {
	case "invalid_grant", "interaction_required", "consent_required":
		e.Err = fmt.Errorf("the authorization was revoked, or has expired (%s)", quote(refused.ErrorCode))
		e.Help = again
	case "invalid_client", "unauthorized_client":
		e.Help = "check client_id and client_secret_file"
	case "access_denied", "expired_token":
		e.Help = again
	case "temporarily_unavailable", "server_error":
		e.Temporary, e.Account = true, false
	}
	return e
}

func quote(s string) string {
	s = strings.TrimRight(strings.Join(strings.Fields(s), " "), ": ")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return chat.Escape(s)
}
