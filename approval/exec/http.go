package exec

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/permesso-dev/permesso/approval"
)

const (
	maxHops   = 5
	maxHeader = 64 << 10
)

// call is one request, fully worked out, and how far it came.
type call struct {
	handler  approval.Handler
	request  *http.Request
	trip     *http.Transport
	redactor redactor
	sent     atomic.Bool // there was a connection, so something may have been sent
}

func (r *Runner) http(ctx context.Context, job approval.Job) approval.Effect {
	c := &call{handler: job.Tool.Handler}
	if err := c.prepare(job); err != nil {
		return refused(err)
	}
	if r.lifetime().Err() != nil {
		return failed(false, "nothing was sent: the gate is closing")
	}
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(c.handler))
	defer cancel()
	defer context.AfterFunc(r.lifetime(), cancel)()
	if err := c.secure(ctx); err != nil {
		return failed(false, "nothing was sent: %v", err)
	}
	a, err := c.do(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.sent.Store(true) },
	}))
	if err != nil {
		return c.broke(ctx, err)
	}
	return c.judge(a)
}

// prepare works out everything that the arguments decide.
func (c *call) prepare(job approval.Job) error {
	h := c.handler.HTTP
	fields, err := fieldsOf(job.Args)
	if err != nil {
		return err
	}
	u, err := expandTarget(h.URL, fields)
	if err != nil {
		return err
	}
	var body []byte
	switch {
	case h.BodyArgs:
		body = job.Args
	case h.Body != "":
		if body, err = expandBody(h.Body, fields); err != nil {
			return err
		}
	}
	c.request = newRequest(h, u, body)
	if job.Key != "" {
		c.request.Header.Set("Idempotency-Key", job.Key)
	}
	return nil
}

// newRequest leaves out GetBody, without which nothing can send a body twice.
func newRequest(h approval.HTTP, u *url.URL, body []byte) *http.Request {
	req := &http.Request{
		Method: h.Method, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {"permesso"}, "Accept-Encoding": {"identity"}},
	}
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range h.Headers {
		req.Header.Set(name, value)
	}
	return req
}

// secure adds what the host keeps in files: secrets and certificates.
func (c *call) secure(ctx context.Context) error {
	h := c.handler.HTTP
	for _, name := range slices.Sorted(maps.Keys(h.SecretHeaders)) {
		value, secret, err := readSecret(h.SecretHeaders[name])
		if err != nil {
			return fmt.Errorf("secret header %s: %w", name, err)
		}
		c.request.Header.Set(name, value)
		c.redactor.add(strings.TrimSuffix(value, " "+secret), secret)
	}
	roots, err := rootsOf(h.CAFile)
	if err != nil {
		return fmt.Errorf("ca_file: %w", err)
	}
	c.trip, err = newTransport(ctx, h, c.request.URL.Hostname(), roots)
	return err
}

func rootsOf(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // crypto/tls takes no pool for the system's
	}
	b, err := readSmall(file, maxCA, false)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s: holds no certificate in PEM", file)
	}
	return pool, nil
}

// newTransport makes one for a single run. HTTP/1.1 on a fresh connection is
// the one combination in which net/http never sends a request again by itself.
// Connections are closed with ctx: the library would leave one that is still
// shaking hands to itself.
func newTransport(ctx context.Context, h approval.HTTP, host string, roots *x509.CertPool) (*http.Transport, error) {
	g := guard{host: host}
	for _, s := range h.AllowPrivate {
		a, err := parseAllowance(s)
		if err != nil {
			return nil, err
		}
		g.allowed = append(g.allowed, a)
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	dialer := &net.Dialer{ControlContext: g.control}
	return &http.Transport{
		Proxy: nil, // none from the environment: the guard would see its address only
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"http/1.1"}},
		Protocols:              &http1,
		DisableKeepAlives:      true,
		DisableCompression:     true, // a small answer cannot become a large one
		MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// answer is what a server said, as far as it was read.
type answer struct {
	code     int
	header   http.Header
	body     []byte
	note     string // why the body is not whole, or ""
	redirect string // why a redirect was not followed, or ""
}

// do sends the request and follows redirects as far as that is harmless.
func (c *call) do(ctx context.Context) (answer, error) {
	req := c.request.WithContext(ctx)
	for hop := 0; ; hop++ {
		resp, err := c.trip.RoundTrip(req)
		if err != nil {
			return answer{}, err
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

// follow gives the request that a redirect asks for, or why it is not made.
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
		return nil, "it does not say where to"
	case to.Scheme != req.URL.Scheme || to.Host != req.URL.Host || to.User != nil:
		return nil, "it leads to another host, port or scheme"
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return nil, "a " + req.Method + " is never sent twice"
	case hop == maxHops:
		return nil, fmt.Sprintf("there were %d before it", maxHops)
	}
	next = req.Clone(req.Context())
	next.URL = to
	return next, ""
}

// read takes the body up to the limit. The status is known by now, so whatever
// happens to the rest is a note and no error.
func (c *call) read(ctx context.Context, resp *http.Response, redirect string) answer {
	limit := limitOf(c.handler)
	a := answer{code: resp.StatusCode, header: resp.Header, redirect: redirect}
	var err error
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case len(a.body) > limit:
		a.body, a.note = a.body[:limit], fmt.Sprintf("cut after %d bytes: the answer is longer", limit)
	case err != nil:
		a.note = fmt.Sprintf("cut after %d bytes: %s", len(a.body), c.reason(ctx, err))
	}
	if enc := resp.Header.Get("Content-Encoding"); len(a.body) > 0 && enc != "" && !strings.EqualFold(enc, "identity") {
		a.body, a.note = nil, fmt.Sprintf("left out: %d bytes in an encoding that was not asked for", len(a.body))
	}
	if a.note != "" {
		a.body = c.redactor.end(a.body)
	}
	return a
}

// broke is the effect of a request without an answer. Once there was a
// connection nobody on this side can know how far the request came.
func (c *call) broke(ctx context.Context, err error) approval.Effect {
	why := c.reason(ctx, err)
	if !c.sent.Load() {
		return failed(false, "nothing was sent: %s", why)
	}
	return failed(true, "outcome unknown: %s after the request was sent; check before you ask again", why)
}

// reason has no URL in it and no secret.
func (c *call) reason(ctx context.Context, err error) string {
	var private *privateError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Sprintf("timed out after %s", timeoutOf(c.handler))
	case ctx.Err() != nil:
		return "cancelled"
	case errors.As(err, &private):
		return private.Error()
	case !c.sent.Load():
		return c.plain(err.Error())
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection broke"
	}
	return "the connection broke (" + c.plain(err.Error()) + ")"
}

// plain is text of a stranger's: without secrets, valid, and not long.
func (c *call) plain(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(c.redactor.text(s)), "\uFFFD")
	if len(s) <= tailSize {
		return s
	}
	return strings.ToValidUTF8(s[:tailSize], "") + "…"
}
