package telegram

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
)

// pollMonitor is the HTTP client below the Journal. It watches getUpdates, because the library would retry at
// once and without end, even if only the operator can fix the cause.
type pollMonitor struct {
	httpClient
	s         *session
	stop      context.CancelCauseFunc
	conflicts int // in a row
}

// Delays after a conflict, which a retry does not fix.
const (
	minConflictDelay = 5 * time.Second
	maxConflictDelay = time.Minute
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
		c.stop(errToken)
	case resp.StatusCode == http.StatusConflict:
		return nil, c.handleConflict(req.Context(), resp)
	case resp.StatusCode == http.StatusOK:
		c.conflicts = 0
		c.s.warnings.clear("conflict")
		c.s.warnings.clear("updates")
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
	c.s.warnings.set("conflict", "another program gets the updates of this Telegram bot",
		"only one program can use a token: stop the other one, or create a bot for each")
	wait := min(minConflictDelay<<min(c.conflicts, 10), maxConflictDelay)
	c.conflicts++
	_ = sleep(ctx, wait/firstRetry*c.s.retryUnit())
	return fmt.Errorf("%w: another program polls for updates", bot.ErrorConflict)
}

// retryUnit is the first retry delay. All other delays are multiples of it.
func (s *session) retryUnit() time.Duration {
	if s.Retry > 0 {
		return s.Retry
	}
	return firstRetry
}

// warnAfter is how long a transient failure lasts before the operator is warned.
const warnAfter = 20 * time.Second

// jobFinished gets the result of every outbox job.
func (s *session) jobFinished(chatID int64, err error) {
	name := chatWarning(chatID)
	switch classify(err) {
	case noError:
		s.warnings.clear(name)
		s.warnings.clear("sending")
	case chatUnreachable:
		s.warnings.set(name, fmt.Sprintf("Telegram chat %d is unreachable: %v", chatID, err), hintFor(err))
	case badToken:
		s.warnings.set("sending", errToken.Error(), tokenHint)
	case rejected:
		s.warnings.set("sending", fmt.Sprintf("Telegram rejected a message: %v", err), "this is a bug in permesso, please report it; decide the pending requests on another channel")
		s.log(fmt.Errorf("send to chat %d: %w", chatID, err))
	default:
		s.reportFailure("sending", err)
	}
}

const chatWarningPrefix = "chat "

func chatWarning(chatID int64) string { return chatWarningPrefix + strconv.FormatInt(chatID, 10) }

const tokenHint = "get the token from @BotFather and write it to the token file"

// reportFailure logs a transient failure, and warns the operator once it has lasted.
func (s *session) reportFailure(name string, err error) {
	if s.warnings.shouldLog(name, s.now()) {
		s.log(fmt.Errorf("%s: %w", name, err))
	}
	if s.warnings.failingFor(name, s.now()) >= warnAfter/firstRetry*s.retryUnit() {
		s.warnings.set(name, fmt.Sprintf("Telegram is unreachable: %v", err), "check the network; pending cards are sent as soon as Telegram is reachable")
	}
}

func hintFor(err error) string {
	var moved *bot.MigrateError
	switch {
	case errors.As(err, &moved):
		return fmt.Sprintf("the group has a new id: configure %d as its chat id", moved.MigrateToChatID)
	case errors.Is(err, bot.ErrorForbidden):
		return "in a private chat write /start to the bot and unblock it; in a group add it again"
	}
	return "check the configured chat id; in a private chat write /start to the bot first"
}
