package exec

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

const (
	maxHops   = 5
	maxHeader = 64 << 10
)

// call is one expanded request and its progress.
type call struct {
	handler   approval.Handler
	request   *http.Request
	headers   []approval.Header
	transport *http.Transport
	redactor
	sent atomic.Bool // a connection was made, so data may have been sent
}

func (r *Runner) http(ctx context.Context, job approval.Job) approval.Effect {
	c := &call{handler: job.Tool.Handler}
	if err := c.prepare(job); err != nil {
		return refused(err)
	}
	if r.lifetime().Err() != nil {
		return unstarted("nothing was sent: %v", errStopping)
	}
	ctx, cancel := r.within(ctx, c.handler)
	defer cancel()
	if err := c.loadSecrets(ctx); err != nil {
		return unstarted("nothing was sent: %v", err)
	}
	a, err := c.do(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.sent.Store(true) },
	}))
	if err != nil {
		return c.noResponse(ctx, err)
	}
	return c.effectOf(a)
}

// prepare fills the arguments into the request.
func (c *call) prepare(job approval.Job) error {
	runs, err := fill(job)
	if err != nil {
		return err
	}
	u, err := url.Parse(facts.Join(runs.URL))
	if err != nil {
		return errors.New("the arguments do not fit into the URL")
	}
	var body []byte
	switch {
	case runs.WithArgs:
		body = job.Args
	case runs.Body != nil:
		body = []byte(facts.Join(runs.Body))
	}
	c.request, c.headers = newRequest(runs, u, body), runs.Headers
	if job.Key != "" {
		c.request.Header.Set("Idempotency-Key", job.Key)
	}
	return nil
}

// newRequest leaves GetBody unset, so that net/http cannot send a body twice.
func newRequest(runs approval.Runs, u *url.URL, body []byte) *http.Request {
	req := &http.Request{
		Method: runs.Method, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {"permesso"}, "Accept-Encoding": {"identity"}},
	}
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range runs.Headers {
		req.Header.Set(h.Name, h.Value) // loadSecrets completes secrets
	}
	return req
}

// secure reads secrets and certificates from the host's files.
func (c *call) loadSecrets(ctx context.Context) error {
	h := c.handler.HTTP
	for _, header := range c.headers {
		if header.File == "" {
			continue
		}
		value, secret, err := readSecret(header.Value + header.File)
		if err != nil {
			return fmt.Errorf("secret header %s: %w", header.Name, err)
		}
		c.request.Header.Set(header.Name, value)
		c.add(strings.TrimSuffix(value, " "+secret), secret)
	}
	var err error
	c.transport, err = newTransport(ctx, h, c.request.URL.Hostname())
	return err
}

func rootsOf(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // crypto/tls takes no pool for the system's
	}
	b, err := readSmall(file, maxCA, false)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("ca_file: %s: holds no certificate in PEM", file)
	}
	return pool, nil
}

// newTransport makes a transport for a single run. Only with HTTP/1.1 on a new
// connection does net/http never resend a request. Connections are closed with
// ctx, because the library does not close one that is in its TLS handshake.
func newTransport(ctx context.Context, h approval.HTTP, host string) (*http.Transport, error) {
	roots, err := rootsOf(h.CAFile)
	if err != nil {
		return nil, err
	}
	g, err := facts.NewPrivate(host, h.AllowPrivate)
	if err != nil {
		return nil, err
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return g.Check(address) }}
	return &http.Transport{
		Proxy: nil, // the guard would see only the proxy's address
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &boundConn{conn, context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"http/1.1"}},
		Protocols:              &http1,
		DisableKeepAlives:      true,
		DisableCompression:     true, // a small body cannot expand into a large one
		MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// boundConn is a connection that a context closes.
type boundConn struct {
	net.Conn
	unbind func() bool
}

// Close closes the connection, and lets the context forget it.
func (c *boundConn) Close() error {
	c.unbind()
	return c.Conn.Close()
}

// response is what was read from the server.
type response struct {
	code     int
	header   http.Header
	body     []byte
	note     string // why the body is incomplete, or ""
	redirect string // why a redirect was not followed, or ""
}

// do sends the request and follows safe redirects.
func (c *call) do(ctx context.Context) (response, error) {
	req := c.request.WithContext(ctx)
	for hop := 0; ; hop++ {
		resp, err := c.transport.RoundTrip(req)
		if err != nil {
			return response{}, err
		}
		next, why := follow(req, resp, hop)
		if next == nil {
			defer resp.Body.Close()
			return c.read(ctx, resp, why), nil
		}
		_ = resp.Body.Close()
		req = next
	}
}

// follow returns the request of a redirect, or why it is not followed.
func follow(req *http.Request, resp *http.Response, hop int) (next *http.Request, why string) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, ""
	}
	to, err := resp.Location()
	switch {
	case err != nil:
		return nil, "no valid Location"
	case to.Scheme != req.URL.Scheme || to.Host != req.URL.Host || to.User != nil:
		return nil, "it points to another host, port or scheme"
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return nil, "a " + req.Method + " is never sent twice"
	case hop == maxHops:
		return nil, fmt.Sprintf("more than %d redirects", maxHops)
	}
	next = req.Clone(req.Context())
	next.URL = to
	return next, ""
}

// read reads the body up to the limit. The status is known by then, so errors only
// add a note.
func (c *call) read(ctx context.Context, resp *http.Response, redirect string) response {
	limit := limitOf(c.handler)
	a := response{code: resp.StatusCode, header: resp.Header, redirect: redirect}
	var err error
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case len(a.body) > limit:
		a.body, a.note = a.body[:limit], fmt.Sprintf("cut after %d bytes: the response is longer", limit)
	case err != nil:
		a.note = fmt.Sprintf("cut after %d bytes: %s", len(a.body), c.reason(ctx, err))
	}
	if enc := resp.Header.Get("Content-Encoding"); len(a.body) > 0 && enc != "" && !strings.EqualFold(enc, "identity") {
		a.body, a.note = nil, fmt.Sprintf("left out: %d bytes in an unsupported encoding", len(a.body))
	}
	if a.note != "" {
		a.body = c.end(a.body)
	}
	return a
}

// noResponse is the effect of a request without a response.
func (c *call) noResponse(ctx context.Context, err error) approval.Effect {
	why := c.reason(ctx, err)
	if !c.sent.Load() {
		return unstarted("nothing was sent: %s", why)
	}
	return failed("outcome unknown: %s after the request was sent; check before you ask again", why)
}

// reason describes err without the URL and without secrets.
func (c *call) reason(ctx context.Context, err error) string {
	var private *facts.PrivateError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Sprintf("timed out after %s", timeoutOf(c.handler))
	case ctx.Err() != nil:
		return "cancelled"
	case errors.As(err, &private):
		return private.Error()
	case !c.sent.Load():
		return c.sanitize(err.Error())
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was lost"
	}
	return "the connection was lost (" + c.sanitize(err.Error()) + ")"
}

// effectOf turns a server's response into an effect.
func (c *call) effectOf(a response) approval.Effect {
	if c.isSuccess(a.code) {
		return approval.Effect{Result: c.result(a)}
	}
	message := "status " + strconv.Itoa(a.code)
	if text := http.StatusText(a.code); text != "" {
		message += " " + text
	}
	if a.redirect != "" {
		message += ", a redirect that is not followed: " + a.redirect
	}
	// After these codes the server may have acted, or may act later.
	if a.code >= 500 || a.code == http.StatusRequestTimeout {
		message += "; outcome unknown: the server may have acted, check before you ask again"
	}
	if body := c.sanitize(string(a.body)); body != "" {
		message += ": " + body
	}
	return failed("%s", message)
}

func isJSON(b []byte) bool {
	return codec.CheckDepth(b, codec.MaxDepth) == nil && approval.Raw(b).IsValid()
}

func (c *call) isSuccess(code int) bool {
	if list := c.handler.HTTP.Status; len(list) > 0 {
		return slices.Contains(list, code)
	}
	return code >= 200 && code <= 299
}

// result is {"status":…,"body":…}, with "location" and "note" if present.
func (c *call) result(a response) approval.Raw {
	head := `{"status":` + strconv.Itoa(a.code)
	if to := a.header.Get("Location"); to != "" {
		head += `,"location":` + c.quote(to)
	}
	foot := "}"
	if a.note != "" {
		foot = `,"note":` + c.quote(a.note) + foot
	}
	if body, ok := c.jsonBody(a); ok {
		if complete := approval.Raw(head + `,"body":` + string(body) + foot); isJSON(complete) {
			return complete
		}
	}
	return approval.Raw(head + `,"body":` + c.quote(string(a.body)) + foot)
}

// jsonBody returns the body verbatim if the server declares it as JSON and it is
// valid JSON.
func (c *call) jsonBody(a response) ([]byte, bool) {
	if a.note != "" || !declaresJSON(a.header) {
		return nil, false
	}
	body := []byte(strings.Trim(string(a.body), " \t\r\n"))
	if !isJSON(body) {
		return nil, false
	}
	return c.json(body)
}

func declaresJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// quote returns s as a JSON string, valid and without secrets.
func (c *call) quote(s string) string { return string(codec.Quote(c.text(s))) }
