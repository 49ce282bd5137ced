package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxBody is larger than any message, in bytes.
const maxBody = 64 << 20

const (
	listenPause = time.Second // between two streams
	maxPause    = 30 * time.Second
)

// throughHTTP adds to the SDK's transport for HTTP what its own client does by methods that are not exported.
func (c *Conn) throughHTTP(t mcp.Transport) mcp.Transport {
	h, ok := t.(*mcp.StreamableClientTransport)
	if !ok {
		return t
	}
	c.http = true
	own := *h
	var client http.Client
	if own.HTTPClient != nil {
		client = *own.HTTPClient
	}
	next := client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	client.Transport = &roundTripper{next, c.Version}
	if client.CheckRedirect == nil {
		client.CheckRedirect = sameHost
	}
	own.HTTPClient = &client
	if own.MaxEventSize == 0 {
		own.MaxEventSize = maxBody
	}
	return &own
}

// sameHost refuses to carry messages and credentials to another host.
func sameHost(r *http.Request, via []*http.Request) error {
	if first := via[0].URL; r.URL.Scheme != first.Scheme || r.URL.Host != first.Host {
		return fmt.Errorf("the server redirects to another host, %s", r.URL.Host)
	}
	if len(via) > 3 {
		return errors.New("the server redirects more than three times")
	}
	return nil
}

// asStream in a context makes a GET of the request.
type asStream struct{}

type roundTripper struct {
	next    http.RoundTripper
	version func() string
}

func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	r = r.Clone(r.Context())
	if r.Context().Value(asStream{}) != nil && r.Method == http.MethodPost {
		_ = body.Close()
		r.Method, r.Body, r.GetBody, r.ContentLength = http.MethodGet, nil, nil, 0
		r.Header.Del("Content-Type")
		r.Header.Set("Accept", "text/event-stream")
	}
	const header = "Mcp-Protocol-Version"
	if v := t.version(); v != "" && r.Header.Get(header) == "" {
		r.Header.Set(header, v)
	}
	params, _ := r.Context().Value(headersKey{}).(http.Header)
	for name, values := range params {
		r.Header[name] = values
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		resp.Body = &limited{resp.Body, maxBody}
	}
	return refusal(resp)
}

// refusal gives a message that the server has refused without JSON-RPC an error of JSON-RPC: for the SDK's transport it
// would be the end of the connection. The status codes that the transport acts on stay.
func refusal(resp *http.Response) (*http.Response, error) {
	switch code := resp.StatusCode; {
	case code < 400 || code >= 500:
		return resp, nil
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusTooManyRequests:
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	if m, err := jsonrpc.DecodeMessage(body); err != nil || !isError(m) {
		text := fmt.Sprintf("HTTP %d: %.300s", resp.StatusCode, strings.ToValidUTF8(string(body), "?"))
		id, _ := jsonrpc.MakeID("") // it is not read
		body, err = jsonrpc.EncodeMessage(&jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: text}})
		if err != nil {
			return nil, err
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

func isError(m jsonrpc.Message) bool {
	r, ok := m.(*jsonrpc.Response)
	return ok && r.Error != nil
}

// limited fails after so many bytes.
type limited struct {
	io.ReadCloser
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= n; l.left < 0 {
		return 0, fmt.Errorf("a message is larger than %d MiB", maxBody>>20)
	}
	return n, err
}

// listen reads the stream on which an old server speaks without being asked, over HTTP. To the SDK it is a request that
// never has an answer, so that its reader serves here, too. The name is one for which the SDK takes a refusal as no error
// of the connection.
func (c *Conn) listen() {
	if !c.http {
		return
	}
	go func() {
		for pause := listenPause; ; pause = min(2*pause, maxPause) {
			began := time.Now()
			_, _, err := c.exchange(context.WithValue(c.ctx, asStream{}, true), "subscriptions/listen", nil, func(ID) {})
			var unsent *notSentError
			var refused *jsonrpc.Error
			var network *url.Error
			if err == nil || c.ctx.Err() != nil || (errors.As(err, &unsent) || errors.As(err, &refused)) && !errors.As(err, &network) {
				return // or the server has no such stream
			}
			if time.Since(began) > maxPause {
				pause = listenPause
			}
			select {
			case <-time.After(pause):
			case <-c.ctx.Done():
				return
			}
		}
	}()
}
