package telegram

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// session is one run of the channel.
type session struct {
	*Channel
	id           string // unique
	api          *api
	sent         *sentIndex
	outbox       *outbox
	journal      *Journal
	dispatcher   dispatcher
	warnings     warnings
	refusals     refusals
	listButtons  listButtons
	digests      digests
	feeds        feeds
	names        atomic.Pointer[[]string] // the bot's name, once known
	nameKnown    chan struct{}            // closed when Telegram has returned the bot's name
	listener     net.Listener             // of the webhook
	lastUpdateAt atomic.Int64             // Unix seconds
	touched      chan approval.Key        // requests that handlers changed

	// Only the watch loop uses the fields below.
	passes     int  // of reconcileAll
	firstPass  bool // no pass has been completed in this session
	flood      flood
	quietKnown map[string]bool // whether a workspace may need a morning message
	quietMu    sync.Mutex      // serializes updates of quietPeriod
}

// Run asks approvers and takes their decisions until ctx ends. It returns an error if Telegram rejects the
// token or the webhook's address is in use. The caller may run it again later.
func (c *Channel) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s, err := c.newSession(ctx, stop)
	if err != nil {
		return err
	}
	c.running.Store(s)
	defer c.running.CompareAndSwap(s, nil)
	var wg sync.WaitGroup
	wg.Go(func() { s.fetchName(ctx) })
	s.replay(ctx)
	wg.Go(func() {
		if err := s.listen(ctx); err != nil && ctx.Err() == nil {
			stop(err)
		}
	})
	s.watch(ctx)
	wg.Wait()
	s.dispatcher.wait()
	s.outbox.wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Alert sends a text to the places of a workspace. It may be lost.
func (c *Channel) Alert(workspace, text string) {
	s := c.running.Load()
	if s == nil {
		return
	}
	ws, _ := s.workspace(workspace)
	for _, to := range ws.Places {
		s.reply(to.Chat, to.Thread, 0, plainMessage(truncate(text, maxText)))
	}
}

// errToken says that Telegram rejected the token.
var errToken = errors.New("Telegram does not accept the token: check that it is complete and still valid") //nolint:staticcheck // it begins with a name

func (c *Channel) newSession(ctx context.Context, stop context.CancelCauseFunc) (*session, error) {
	s := &session{
		Channel: c, id: nonce(), quietKnown: map[string]bool{}, sent: &sentIndex{store: c.Sent},
		touched: make(chan approval.Key, 256), nameKnown: make(chan struct{}), firstPass: true, outbox: &outbox{ctx: ctx, retryUnit: c.Retry},
	}
	s.warnings.report, s.outbox.onDone, s.dispatcher.session = c.Problem, s.jobFinished, s
	s.journal = &Journal{Client: &pollMonitor{httpClient: c.client(), s: s, stop: stop}, Store: c.Updates, Token: c.Token}
	b, err := c.newBot(ctx, s.journal, s.dispatcher.dispatch, s.pollFailed)
	if err != nil {
		return nil, err
	}
	s.api = &api{bot: b, limiter: &Limiter{}, token: c.Token}
	if s.flood.disabled = c.noLimits && !c.floodLimit; c.noLimits {
		s.api.limiter = nil
	}
	if err := errors.Join(s.sent.load(s.workspaceNames()), s.loadDigests()); err != nil {
		s.log(fmt.Errorf("read sent records: %w", err))
	}
	if name, err := c.State.Get(nameFile); err == nil {
		s.names.Store(&[]string{string(name)})
	}
	if c.Webhook != nil {
		if s.listener, err = c.Webhook.listener(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *session) workspaceNames() []string {
	var all []string
	for _, ws := range s.Workspaces() {
		all = append(all, ws.Name)
	}
	return all
}

func (s *session) workspace(name string) (Workspace, bool) {
	for _, ws := range s.Workspaces() {
		if ws.Name == name {
			return ws, true
		}
	}
	return Workspace{}, false
}

// fetchName gets the bot's name from Telegram, and sets the command menu.
func (s *session) fetchName(ctx context.Context) {
	for tries := 0; ctx.Err() == nil; tries++ {
		me, err := s.api.me(ctx)
		if err == nil {
			s.setName(me.Username)
			close(s.nameKnown)
			s.warnings.publishAgain()
			if err := s.api.setCommands(ctx); err != nil && ctx.Err() == nil {
				s.log(fmt.Errorf("set command menu: %w", err))
			}
			return
		}
		if sleep(ctx, s.outbox.retryDelay(tries, err)) != nil {
			return
		}
	}
}

// nameFile holds the bot's name for the next session: updates in the journal may begin with it.
const nameFile = "name"

func (s *session) setName(name string) {
	if old := s.botNames(); len(old) == 1 && old[0] == name {
		return
	}
	s.names.Store(&[]string{name})
	if err := s.State.Put(nameFile, []byte(name)); err != nil {
		s.log(fmt.Errorf("write bot name: %w", err))
	}
}

func (s *session) botNames() []string {
	if names := s.names.Load(); names != nil {
		return *names
	}
	return nil
}

// watch reconciles at every hint, and every few seconds.
func (s *session) watch(ctx context.Context) {
	every := s.Every
	if every <= 0 {
		every = defaultEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	changes := s.Changes
	s.reconcileAll(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case k, open := <-changes:
			if !open {
				changes = nil
				continue
			}
			s.handleHint(ctx, k)
		case k := <-s.touched:
			s.reconcile(ctx, k)
		case <-tick.C:
			s.reconcileAll(ctx)
		}
	}
}

// handleHint reconciles one request, or all if the hint names none.
func (s *session) handleHint(ctx context.Context, k approval.Key) {
	if k.ID == "" {
		s.reconcileAll(ctx)
		return
	}
	s.reconcile(ctx, k)
}

// touch asks for a request to be reconciled soon. If the channel is full, the next tick does it.
func (s *session) touch(k approval.Key) {
	select {
	case s.touched <- k:
	default:
	}
}

// Every decisionPasses passes, the decisions of pending requests are read as well.
const decisionPasses = 4

// reconcileAll compares the pending requests with the sent records.
func (s *session) reconcileAll(ctx context.Context) {
	names := s.workspaceNames()
	if err := s.sent.load(names); err != nil { // the configuration may have a new workspace
		s.log(fmt.Errorf("read sent records: %w", err))
	}
	var waiting []approval.StoredPending
	if len(names) > 0 {
		var err error
		if waiting, err = s.Viewer.Waiting(ctx, names); err != nil {
			if ctx.Err() == nil {
				s.log(fmt.Errorf("list pending requests: %w", err))
			}
			return
		}
	}
	// The pending requests were just read. Their decisions are read less often: the outcome comes with a hint.
	s.passes++
	asked := map[approval.Key]bool{}
	for _, w := range waiting {
		k := w.Key()
		asked[k] = true
		if s.passes%decisionPasses == 0 {
			s.reconcile(ctx, k)
			continue
		}
		if ws, ok := s.workspace(k.Workspace); ok {
			s.logAskError(k, s.ask(ws, k, status{Story: Story{Pending: w.Pending, SHA256: w.SHA256}}))
		}
	}
	late := map[approval.Key]time.Time{}
	for _, k := range s.sent.keys(names) {
		switch p := s.sent.record(k); {
		case asked[k] || p == nil:
		case s.keptForLateTap(p):
			late[k] = p.CreatedAt
		default:
			s.reconcile(ctx, k)
		}
	}
	s.removeOldest(late)
	s.firstPass = false
	s.clearChatWarnings()
	s.refreshDigests()
	s.sendMorningMessages()
	s.warnUnasked(waiting)
}

// reconcile updates the cards of one request to its status.
func (s *session) reconcile(ctx context.Context, k approval.Key) {
	ws, known := s.workspace(k.Workspace)
	if !known {
		return
	}
	st, err := s.status(ctx, k)
	switch p := s.sent.record(k); {
	case ctx.Err() != nil:
	case err != nil:
		s.log(fmt.Errorf("read status of %s: %w", k, err))
	case st.isPending():
		err = s.ask(ws, k, st)
	case p != nil:
		err = s.settle(k, p, st)
	default:
		s.feed(ws, k, st)
	}
	s.logAskError(k, err)
}

func (s *session) logAskError(k approval.Key, err error) {
	if err != nil && s.outbox.ctx.Err() == nil {
		s.log(fmt.Errorf("ask about %s: %w", k, err))
	}
}
