package exec

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// pattern compiles a regular expression on first use: most commands need none.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// keyError is an error of Check about one setting of a handler. It never quotes
// values: the operator may have written a secret there.
type keyError struct {
	Key string // as in the configuration: "url", "headers.Accept"
	Err error
}

func (e *keyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns the error without the key.
func (e *keyError) Unwrap() error { return e.Err }

// ConfigKey returns the setting's name, for the configuration's position.
func (e *keyError) ConfigKey() string { return e.Key }

func methods() []string { return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} }

// checkHTTP refuses a request whose destination or form the operator did not fix.
func checkHTTP(h approval.HTTP) error {
	bad := func(key string, err error) error { return &keyError{key, err} }
	if !slices.Contains(methods(), h.Method) {
		return bad("method", fmt.Errorf("must be one of %s", strings.Join(methods(), ", ")))
	}
	if err := facts.CheckURL(h.URL); err != nil {
		return bad("url", err)
	}
	hasBody := h.Body != "" || h.BodyArgs
	switch {
	case h.Body != "" && h.BodyArgs:
		return bad("body", errors.New("only one body is possible: remove body or body_args"))
	case hasBody && (h.Method == "GET" || h.Method == "HEAD"):
		return bad("method", fmt.Errorf("%s has no body", h.Method))
	}
	if h.Body != "" {
		if err := facts.CheckBody(h.Body); err != nil {
			return bad("body", err)
		}
	}
	for _, code := range h.Status {
		if code < 200 || code > 599 {
			return bad("status", errors.New("must contain codes from 200 to 599"))
		}
	}
	return checkHTTPServer(h)
}

// checkMCPServer refuses a server of MCP whose destination the operator did not fix.
func checkMCPServer(h approval.HTTP) error {
	if err := facts.CheckURL(h.URL); err != nil {
		return &keyError{"url", err}
	}
	if len(facts.NamesIn(h.URL)) > 0 {
		return &keyError{"url", errors.New("a placeholder is not allowed in the URL of a server")}
	}
	return checkHTTPServer(h)
}

// checkHTTPServer checks what is the same for every request.
func checkHTTPServer(h approval.HTTP) error {
	if h.CAFile != "" && !cleanPath(h.CAFile) {
		return &keyError{"ca_file", errors.New("must be an absolute path")}
	}
	if err := checkHeaders(h); err != nil {
		return err
	}
	return checkPrivate(h)
}

func checkHeaders(h approval.HTTP) error {
	seen := map[string]bool{}
	for name, value := range h.Headers {
		if err := checkHeaderName(name, seen); err != nil {
			return &keyError{"headers." + name, err}
		}
		switch {
		case isCredential(name):
			return &keyError{"headers." + name, errors.New(`put the secret into a file: secret_headers = { ` + name + ` = "/path" }`)}
		case !validValue(value):
			return &keyError{"headers." + name, errors.New("must be printable ASCII without blanks at its ends")}
		case len(facts.NamesIn(value)) > 0:
			return &keyError{"headers." + name, errors.New("a placeholder is not allowed in a header")}
		}
	}
	for name, value := range h.SecretHeaders {
		if err := checkHeaderName(name, seen); err != nil {
			return &keyError{"secret_headers." + name, err}
		}
		if _, _, err := secretFile(value); err != nil {
			return &keyError{"secret_headers." + name, err}
		}
	}
	return nil
}

var headerPattern = pattern(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// reservedHeaders are the headers that frame or route a message, and those that the daemon sets.
var reservedHeaders = []string{
	"Host", "Connection", "Keep-Alive", "Content-Length", "Transfer-Encoding", "Te", "Trailer",
	"Upgrade", "Expect", "Accept-Encoding", "Idempotency-Key",
}

func checkHeaderName(name string, seen map[string]bool) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !headerPattern().MatchString(name):
		return errors.New("not a valid header name")
	case slices.Contains(reservedHeaders, canonical) || strings.HasPrefix(canonical, "Proxy-"):
		return errors.New("the daemon sets this header")
	case seen[canonical]:
		return errors.New("duplicate header")
	}
	seen[canonical] = true
	return nil
}

// isCredential guesses from a header's name that its value is a secret.
func isCredential(name string) bool {
	for word := range strings.FieldsFuncSeq(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' }) {
		switch word {
		case "authorization", "auth", "cookie", "token", "secret", "password", "key", "apikey", "credential", "credentials":
			return true
		}
	}
	return false
}

func validValue(v string) bool {
	return v != "" && strings.TrimSpace(v) == v && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' })
}

func cleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && p != "/" && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' })
}

// checkPrivate also refuses secrets over plain http, unless allow_private names
// the host.
func checkPrivate(h approval.HTTP) error {
	u, err := url.Parse(facts.BaseURL(h.URL))
	if err != nil {
		return &keyError{"url", err}
	}
	g, err := facts.NewPrivate(u.Hostname(), h.AllowPrivate)
	if err != nil {
		return &keyError{"allow_private", err}
	}
	if u.Scheme == "http" && len(h.SecretHeaders) > 0 && !g.Names(u.Hostname()) {
		return &keyError{"secret_headers", errors.New("secrets require https, unless allow_private names the host")}
	}
	return nil
}
