package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
	"github.com/permesso-dev/permesso/ipc/wholefile"
)

// Login is the file of what a person's login to a remote server has given: tokens, and where they are renewed. The server's
// client, which is the agent's, gets nothing of it.
type Login struct {
	file string
	to   string // scheme and host of the server

	mu sync.Mutex
}

// loggedIn is the document in the file.
type loggedIn struct {
	Version  int           `json:"version"`
	Server   string        `json:"server"` // the tokens are for no other
	ID       string        `json:"client_id"`
	Secret   string        `json:"client_secret,omitempty"`
	TokenURL string        `json:"token_url"` // of the one that has issued them
	Style    int           `json:"auth_style"`
	Token    *oauth2.Token `json:"token"`
}

// ErrLogin says that a server wants a login that there is not.
var ErrLogin = errors.New("the server wants a login: a person logs in to it on the machine of the agent")

// OpenLogin names the file of a server in a folder.
func OpenLogin(folder, address string) (*Login, error) {
	u, err := origin(address)
	if err != nil {
		return nil, err
	}
	to := u.Scheme + "://" + u.Host
	return &Login{file: filepath.Join(folder, approval.Digest([]byte(to))[:24]+".json"), to: to}, nil
}

func (l *Login) read() (*loggedIn, error) {
	b, err := os.ReadFile(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrLogin
	}
	d := &loggedIn{}
	if err == nil {
		err = json.Unmarshal(b, d)
	}
	if err == nil && (d.Version != 1 || d.Server != l.to || d.Token == nil || d.TokenURL == "") {
		err = errors.New("it is for another server or of another version")
	}
	if err != nil {
		return nil, fmt.Errorf("the login in %s: %w; log in again", l.file, err)
	}
	return d, nil
}

func (l *Login) save(d *loggedIn) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.file), 0o700); err != nil {
		return err
	}
	return wholefile.Replace(l.file, b, 0o600) // an old token may be of no use any more
}

// Held returns the handler of a gateway: it has the tokens of the file, renews them, and asks no one.
func (l *Login) Held() auth.OAuthHandler { return tokens{l} }

type tokens struct{ *Login }

// TokenSource implements auth.OAuthHandler.
func (h tokens) TokenSource(ctx context.Context) (oauth2.TokenSource, error) {
	if _, err := h.read(); errors.Is(err, ErrLogin) {
		return nil, nil // many servers want none
	} else if err != nil {
		return nil, err
	}
	return h, nil
}

// Authorize implements auth.OAuthHandler.
func (h tokens) Authorize(_ context.Context, _ *http.Request, resp *http.Response) error {
	_ = resp.Body.Close()
	return ErrLogin
}

// Token implements oauth2.TokenSource. Another gateway may have renewed it.
func (h tokens) Token() (*oauth2.Token, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, err := h.read()
	if err != nil || d.Token.Valid() {
		if d == nil {
			return nil, err
		}
		return d.Token, err
	}
	c := &oauth2.Config{ClientID: d.ID, ClientSecret: d.Secret, Endpoint: oauth2.Endpoint{TokenURL: d.TokenURL, AuthStyle: oauth2.AuthStyle(d.Style)}}
	ctx, cancel := context.WithTimeout(context.Background(), renewTimeout)
	defer cancel()
	fresh, err := c.TokenSource(ctx, d.Token).Token()
	if err != nil {
		return nil, fmt.Errorf("%w: the one that there is was not renewed", ErrLogin) // the answer may hold what it should not
	}
	d.Token = fresh
	return fresh, h.save(d)
}

const renewTimeout = 30 * time.Second

// Client is a client that the server's issuer knows; the zero value: it is registered when needed.
type Client struct{ ID, Secret string }

// LogIn connects to the server and lets a person log in if it wants that: show gets the address to open in a browser on
// this machine. wanted says whether it did.
func (l *Login) LogIn(ctx context.Context, address string, c Client, show func(address string)) (wanted bool, err error) {
	h, done, err := l.person(ctx, c, func(address string) {
		wanted = true
		show(address)
	})
	if err != nil {
		return false, err
	}
	defer done()
	connect, err := Remote(address, http.DefaultClient, h)
	if err != nil {
		return false, err
	}
	t, err := connect(ctx)
	if err != nil {
		return wanted, err
	}
	conn, err := wire.Connect(ctx, t, wire.Options{})
	if err != nil {
		return wanted, err
	}
	return wanted, conn.Close()
}

// person returns the handler of a login, and what ends it.
func (l *Login) person(ctx context.Context, c Client, show func(address string)) (h auth.OAuthHandler, done func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	back := &redirect{codes: make(chan *auth.AuthorizationResult, 1)}
	web := &http.Server{Handler: back, ReadHeaderTimeout: renewTimeout}
	go func() { _ = web.Serve(listener) }()
	to := "http://" + listener.Addr().String() + "/callback"
	config := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: to, RequestRefreshToken: true, AcceptUnadvertisedIss: true,
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			show(args.URL)
			select {
			case r := <-back.codes:
				return r, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		NewTokenSource: func(ctx context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			d := &loggedIn{Version: 1, Server: l.to, ID: c.ClientID, Secret: c.ClientSecret, TokenURL: c.Endpoint.TokenURL, Style: int(c.Endpoint.AuthStyle), Token: t}
			return tokens{l}, l.save(d)
		},
	}
	if c.ID != "" {
		config.PreregisteredClient = &oauthex.ClientCredentials{ClientID: c.ID}
		if c.Secret != "" {
			config.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: c.Secret}
		}
	} else {
		config.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "permesso", RedirectURIs: []string{to}, GrantTypes: []string{"authorization_code", "refresh_token"}, TokenEndpointAuthMethod: "none",
		}}
	}
	h, err = auth.NewAuthorizationCodeHandler(config)
	if err != nil {
		_ = web.Close()
		return nil, nil, err
	}
	return h, func() { _ = web.Close() }, nil
}

// redirect takes the person's browser back from the issuer.
type redirect struct {
	codes chan *auth.AuthorizationResult
}

func (r *redirect) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	v := q.URL.Query()
	if q.URL.Path != "/callback" || v.Get("state") == "" || v.Get("code") == "" {
		http.Error(w, "This is not the end of a login. Look at the terminal.", http.StatusBadRequest)
		return
	}
	select {
	case r.codes <- &auth.AuthorizationResult{Code: v.Get("code"), State: v.Get("state"), Iss: v.Get("iss")}:
		_, _ = w.Write([]byte("You are logged in. You may close this page."))
	default:
		http.Error(w, "The login was ended before.", http.StatusConflict)
	}
}
