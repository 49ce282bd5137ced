package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval/facts"
)

const (
	timeout       = 20 * time.Second // of one attempt; the specification suggests 15 to 30 seconds
	maxResponse   = 4 << 10
	maxRetryAfter = time.Hour
)

// Endpoint is where messages go, and how they are signed.
type Endpoint struct {
	URL     string
	Key     Key
	Private facts.Private // for the URL's host
}

// Response is what a receiver answered.
type Response struct {
	Status     int
	Body       string        // the beginning
	RetryAfter time.Duration // 0: the receiver asked for none
}

// Delivered reports whether the receiver has taken the message.
func (r Response) Delivered() bool { return r.Status >= 200 && r.Status < 300 }

// Post signs a message and sends it once. An error means that there was no response. It never quotes the URL, which may
// hold a secret.
func (e Endpoint) Post(ctx context.Context, id string, at time.Time, body []byte) (Response, error) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return Response{}, errors.New("the URL is not valid")
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "permesso", "webhook-id": id,
		"webhook-timestamp": strconv.FormatInt(at.Unix(), 10), "webhook-signature": e.Key.Sign(id, at, body),
	} {
		r.Header.Set(name, value)
	}
	resp, err := e.client().Do(r)
	if err != nil {
		return Response{}, reason(ctx, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponse)) // the status counts
	return Response{resp.StatusCode, string(text), retryAfter(resp)}, nil
}

// reason leaves out the URL.
func reason(ctx context.Context, err error) error {
	if call, ok := errors.AsType[*url.Error](err); ok {
		err = call.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no response within %s", timeout)
	}
	return err
}

func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxRetryAfter)
}

// client connects anew for each message, without a proxy, which would connect without the check, and follows no
// redirect: another server must not get the message.
func (e Endpoint) client() *http.Client {
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return e.Private.Check(address) }}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
