package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// issuer is an authorization server with an MCP server beside it that wants its tokens.
type issuer struct {
	*httptest.Server
	token     atomic.Int32 // the number of the token that is good
	renewed   atomic.Int32
	challenge string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	mux := http.NewServeMux()
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "registration_endpoint": i.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
			"authorization_response_iss_parameter_supported": true,
		})
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"resource": i.URL, "authorization_servers": []string{i.URL}})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var of map[string]any
		_ = json.NewDecoder(r.Body).Decode(&of)
		of["client_id"] = "client-1"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(of)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		i.challenge = q.Get("code_challenge")
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"the-code"}, "state": {q.Get("state")}, "iss": {i.URL}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("grant_type") == "refresh_token" {
			i.renewed.Add(1)
		} else if r.FormValue("code") != "the-code" || r.FormValue("code_verifier") == "" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		n := i.token.Add(1)
		answer(w, map[string]any{"access_token": fmt.Sprintf("secret-token-%d", n), "token_type": "Bearer", "refresh_token": "secret-refresh", "expires_in": 3600})
	})
	s := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "hello", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil
	})
	guarded := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer secret-token-%d", i.token.Load()) || i.token.Load() == 0 {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+i.URL+`/.well-known/oauth-protected-resource"`)
			http.Error(w, "log in", http.StatusUnauthorized)
			return
		}
		guarded.ServeHTTP(w, r)
	})
	return i
}

func (i *issuer) connect(t *testing.T, h auth.OAuthHandler) (*wire.Conn, error) {
	t.Helper()
	connect, err := Remote(i.URL+"/mcp", http.DefaultClient, h)
	require.NoError(t, err)
	transport, err := connect(t.Context())
	require.NoError(t, err)
	c, err := wire.Connect(t.Context(), transport, wire.Options{Client: approval.Raw(`{"name":"t","version":"1"}`), Capabilities: approval.Raw("{}")})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// A person logs in once. The gateway has the tokens and renews them; they are for that server only.
func TestLogin(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	dir := t.TempDir()
	l, err := OpenLogin(dir, i.URL+"/mcp")
	require.NoError(t, err)
	_, err = i.connect(t, l.Held())
	require.ErrorIs(t, err, ErrLogin, "without a login")
	connect, err := Remote(i.URL+"/mcp", http.DefaultClient, l.Held())
	require.NoError(t, err)
	r := newRig(t, connect, nil)
	require.Contains(t, r.request("tools/list", `{`+newMeta+`}`), ErrLogin.Error(), "the agent hears what a person has to do")
	rejected := fmt.Errorf("%w: %w", ErrLogin, &jsonrpc.Error{Code: codeRejected})
	require.Equal(t, rejected, r.g.errorFor(&session{}, rejected), "in a call, too")

	browser := func(address string) {
		require.True(t, strings.HasPrefix(address, i.URL+"/authorize?"), address)
		go func() {
			r, err := http.Get(address)
			if err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
			}
		}()
	}
	wanted, err := l.LogIn(t.Context(), i.URL+"/mcp", Client{}, browser)
	require.NoError(t, err)
	require.True(t, wanted)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	c, err := i.connect(t, l.Held())
	require.NoError(t, err)
	result, err := c.Call(t.Context(), "tools/call", approval.Raw(`{"name":"hello","arguments":{}}`))
	require.NoError(t, err)
	require.Contains(t, string(result), "hello")
	require.NotContains(t, string(result), "secret")
	wanted, err = l.LogIn(t.Context(), i.URL+"/mcp", Client{}, browser)
	require.NoError(t, err)
	require.True(t, wanted, "who logs in again, logs in again")

	// An expired token is renewed, once for all gateways.
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var d map[string]any
	require.NoError(t, json.Unmarshal(text, &d))
	d["token"].(map[string]any)["expiry"] = "2020-01-01T00:00:00Z"
	text, err = json.Marshal(d)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(files[0], text, 0o600))
	c, err = i.connect(t, l.Held())
	require.NoError(t, err)
	_, err = c.Call(t.Context(), "tools/list", approval.Raw(`{}`))
	require.NoError(t, err)
	require.Equal(t, int32(1), i.renewed.Load())
	other, err := OpenLogin(dir, i.URL+"/mcp")
	require.NoError(t, err)
	_, err = i.connect(t, other.Held())
	require.NoError(t, err)
	require.Equal(t, int32(1), i.renewed.Load())

	// Another server gets nothing of it.
	elsewhere, err := OpenLogin(dir, "https://example.org/mcp")
	require.NoError(t, err)
	source, err := elsewhere.Held().TokenSource(t.Context())
	require.NoError(t, err)
	require.Nil(t, source)
	require.NoError(t, os.Rename(files[0], elsewhere.file))
	_, err = elsewhere.Held().TokenSource(t.Context())
	require.ErrorContains(t, err, "for another server")
	require.NotErrorIs(t, err, ErrLogin)
}
