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

// watchedClient is the client below the journal. It sees how getting updates goes: the library would try
// again at once, without end, where only a person can help.
type watchedClient struct {
	HTTPClient
	s        *session
	stop     context.CancelCauseFunc
	conflict int // in a row
}

// The waits after answers that trying again does not mend.
const (
	firstConflict   = 5 * time.Second
	longestConflict = time.Minute
)

// Do implements HTTPClient.
func (c *watchedClient) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.HTTPClient.Do(req)
	if !strings.EqualFold(path.Base(req.URL.Path), "getUpdates") {
		return resp, err
	}
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusNotFound:
		c.stop(errToken)
	case resp.StatusCode == http.StatusConflict:
		return nil, c.conflicts(req.Context(), resp)
	case resp.StatusCode == http.StatusOK:
		c.conflict = 0
		c.s.troubles.clear("conflict")
		c.s.troubles.clear("updates")
	}
	return resp, err
}

// conflicts waits, the longer the more often it happens: whoever asks again at once only throws the other
// one out.
func (c *watchedClient) conflicts(ctx context.Context, resp *http.Response) error {
	defer resp.Body.Close()
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if strings.Contains(string(why), "webhook") {
		c.s.dropWebhook(ctx)
	}
	c.s.troubles.set("conflict", "somebody else gets the messages of this Telegram bot",
		"two gates, or a gate and something else, use one token: stop one, or make each its own bot")
	wait := min(firstConflict<<min(c.conflict, 10), longestConflict)
	c.conflict++
	_ = pause(ctx, wait/firstRetry*c.s.unit())
	return fmt.Errorf("%w: somebody else asks for updates", bot.ErrorConflict)
}

// unit is the first wait after a failure, which all others are measured by.
func (s *session) unit() time.Duration {
	if s.Retry > 0 {
		return s.Retry
	}
	return firstRetry
}

// patience is how long a failure that may pass is nobody's business.
const patience = 20 * time.Second

// sent is told how every job in a chat went.
func (s *session) sent(chatID int64, err error) {
	name := chatTrouble(chatID)
	switch troubleOf(err) {
	case noTrouble:
		s.troubles.clear(name)
		s.troubles.clear("sending")
	case unreached:
		s.troubles.set(name, fmt.Sprintf("Telegram chat %d cannot be written to: %v", chatID, err), hintFor(err))
	case tokenWrong:
		s.troubles.set("sending", errToken.Error(), tokenHint)
	case refused:
		s.troubles.set("sending", fmt.Sprintf("Telegram does not take a message: %v", err), "this is a mistake of permesso's: please report it; permesso pending lists what waits")
		s.log(fmt.Errorf("send to chat %d: %w", chatID, err))
	default:
		s.lost("sending", err)
	}
}

const chatTroubles = "chat "

func chatTrouble(chatID int64) string { return chatTroubles + strconv.FormatInt(chatID, 10) }

const tokenHint = "ask @BotFather for it, and write it into the token file"

// lost notes a failure that may pass: in the log, and before people's eyes once it has lasted.
func (s *session) lost(name string, err error) {
	if s.troubles.worth(name, s.now()) {
		s.log(fmt.Errorf("%s: %w", name, err))
	}
	if s.troubles.failing(name, s.now()) >= patience/firstRetry*s.unit() {
		s.troubles.set(name, fmt.Sprintf("Telegram is not reached: %v", err), "is this machine online? what waits is sent as soon as it is")
	}
}

func hintFor(err error) string {
	var moved *bot.MigrateError
	switch {
	case errors.As(err, &moved):
		return fmt.Sprintf("the group became another one: chat_id = %d", moved.MigrateToChatID)
	case errors.Is(err, bot.ErrorForbidden):
		return "write /start to the bot in a private chat, or add it to the group, and do not block it"
	}
	return "is chat_id right? permesso telegram setup finds it; in a private chat write /start to the bot first"
}
