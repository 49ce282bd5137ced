package telegram

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/go-telegram/bot"
)

// pollMonitor is the HTTP client below the Journal. It watches getUpdates, because the library would retry at
// once and without end, even if only the operator can fix the cause.
type pollMonitor struct {
	httpClient
	s         *session
	conflicts int // in a row
}

// The delays after a conflict, which a retry does not fix, in first retry delays.
const (
	minConflictUnits = 5
	maxConflictUnits = 60
)

// Do implements httpClient.
func (c *pollMonitor) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.httpClient.Do(req)
	if !strings.EqualFold(path.Base(req.URL.Path), "getUpdates") {
		return resp, err
	}
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusNotFound:
		c.s.stop(errToken)
	case resp.StatusCode == http.StatusConflict:
		return nil, c.handleConflict(req.Context(), resp)
	case resp.StatusCode == http.StatusOK:
		c.conflicts = 0
		c.s.in.Clear("conflict")
		c.s.in.Clear("updates")
	}
	return resp, err
}

// handleConflict delays the next poll, longer each time: an immediate retry would only interrupt the other
// poller.
func (c *pollMonitor) handleConflict(ctx context.Context, resp *http.Response) error {
	defer resp.Body.Close()
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if strings.Contains(string(why), "webhook") {
		c.s.deleteWebhook(ctx)
	}
	c.s.in.Warn("conflict", "another program gets the updates of this Telegram bot",
		"only one program can use a token: stop the other one, or create a bot for each")
	wait := min(minConflictUnits<<min(c.conflicts, 10), maxConflictUnits)
	c.conflicts++
	_ = sleep(ctx, time.Duration(wait)*c.s.in.RetryUnit())
	return fmt.Errorf("%w: another program polls for updates", bot.ErrorConflict)
}
