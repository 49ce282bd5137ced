package telegram

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// Adapter reaches Telegram as one bot, for a deliver.Channel. Set the fields. Those without a comment are
// required.
type Adapter struct {
	Token     string
	ServerURL string          // of a Bot API server; "": Telegram's own
	Client    httpClient      // nil: one with timeouts
	Webhook   *Webhook        // nil: long polling
	Updates   chat.StateStore // the journal of updates

	noLimits bool     // for tests: no rate limits
	current  *session // set by Open
}

// session is one run of the adapter.
type session struct {
	*Adapter
	in           *deliver.Inbox
	api          *api
	journal      *Journal
	listener     net.Listener // of the webhook
	lastUpdateAt atomic.Int64 // Unix seconds
	ctx          context.Context
	stop         context.CancelCauseFunc // ends Listen
	naming       sync.WaitGroup
}

// Via marks decisions made through Telegram; it is also the channel of their deciders.
const Via = "telegram"

// The timeouts of a request, and of one that waits for updates.
const (
	pollTimeout    = 30 * time.Second
	requestTimeout = 40 * time.Second
	sendTimeout    = 20 * time.Second
)

var tokenForm = regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]{20,}$`)

// ValidToken reports whether a text has the form of a token, so that no other secret is sent to Telegram as
// one.
func ValidToken(token string) bool { return tokenForm.MatchString(token) }

// Open implements deliver.Adapter.
func (c *Adapter) Open(ctx context.Context, in *deliver.Inbox) (deliver.Traits, error) {
	s := &session{Adapter: c, in: in}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.journal = &Journal{Client: &pollMonitor{httpClient: clientOr(c.Client), s: s}, Store: c.Updates, Token: c.Token}
	b, err := c.newBot(s.ctx, s.journal, s.dispatch, s.pollFailed)
	if err != nil {
		return deliver.Traits{}, err
	}
	if s.api = (&api{bot: b, limiter: &Limiter{}, token: c.Token, moved: in.Moved}); c.noLimits {
		s.api.limiter = nil
	}
	if c.Webhook != nil {
		if s.listener, err = c.Webhook.listener(ctx); err != nil {
			return deliver.Traits{}, err
		}
	}
	c.current = s
	s.naming.Go(s.fetchName) // replayed texts may wait for the name
	s.replay()
	return deliver.Traits{Service: "Telegram", MaxText: maxText, Buttons: true, Edits: true, Named: true, Delay: s.api.delay, Disarm: s.api.disarm}, nil
}

// Listen implements deliver.Adapter. Its error says that Telegram rejected the token.
func (c *Adapter) Listen(context.Context) error {
	s := c.current
	defer s.naming.Wait()
	defer s.stop(nil)
	if err := s.listen(s.ctx); err != nil {
		return err
	}
	if err := context.Cause(s.ctx); errors.Is(err, errToken) {
		return err
	}
	return nil
}

// Send implements deliver.Adapter.
func (c *Adapter) Send(ctx context.Context, to deliver.Address, m deliver.Message) (deliver.ID, error) {
	return c.current.api.send(ctx, to, m)
}

// Edit implements deliver.Adapter.
func (c *Adapter) Edit(ctx context.Context, to deliver.Address, id deliver.ID, m deliver.Message) error {
	return c.current.api.edit(ctx, to.Chat.Number(), id, m)
}

// errToken says that Telegram rejected the token.
var errToken = errors.New("Telegram does not accept the token: check that it is complete and still valid") //nolint:staticcheck // it begins with a name

// fetchName gets the bot's name from Telegram, and sets the command menu.
func (s *session) fetchName() {
	for tries := 0; s.ctx.Err() == nil; tries++ {
		me, err := s.api.me(s.ctx)
		if err == nil {
			s.in.SetName(me.Username)
			if err := s.api.setCommands(s.ctx); err != nil && s.ctx.Err() == nil {
				s.log(fmt.Errorf("set command menu: %w", err))
			}
			return
		}
		if sleep(s.ctx, s.in.RetryDelay(tries, err)) != nil {
			return
		}
	}
}

// clientOr returns the given client, or one with timeouts.
func clientOr(given httpClient) httpClient {
	if given != nil {
		return given
	}
	return &http.Client{Timeout: requestTimeout}
}

func (s *session) log(err error) { s.in.Log(Redact(s.Token, err)) }
