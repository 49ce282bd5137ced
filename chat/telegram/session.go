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

// session is one life of the channel.
type session struct {
	*Channel
	life      string // no other life is called so
	api       *api
	book      *book
	outbox    *outbox
	journal   *Journal
	intake    intake
	troubles  troubles
	strangers strangers
	choices   choices
	digests   digests
	feeds     feeds
	bots      atomic.Pointer[[]string] // our names, once they are known
	met       chan struct{}            // closed when Telegram has told us our name
	listener  net.Listener             // of the webhook
	heardAt   atomic.Int64             // when the last update came, in Unix seconds
	stirred   chan approval.Key        // requests to look at, from handlers

	// What only the one needs who looks at what waits.
	rounds      int  // of looks
	fresh       bool // nothing was looked at yet in this life
	flood       flood
	nightsKnown map[string]bool // whether a workspace has one to tell of
	nightly     sync.Mutex      // one change of a night at a time
}

// Run asks people and takes their answers until ctx ends. It returns an error where the token is not
// accepted, or the webhook's address is not to be had: whoever starts it again may find that mended.
func (c *Channel) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s, err := c.begin(ctx, stop)
	if err != nil {
		return err
	}
	c.running.Store(s)
	defer c.running.CompareAndSwap(s, nil)
	var wg sync.WaitGroup
	wg.Go(func() { s.introduce(ctx) })
	s.replay(ctx)
	wg.Go(func() {
		if err := s.listen(ctx); err != nil && ctx.Err() == nil {
			stop(err)
		}
	})
	s.watch(ctx)
	wg.Wait()
	s.intake.wait()
	s.outbox.wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Alert passes a sentence on to the people of a workspace. It may be lost.
func (c *Channel) Alert(workspace, text string) {
	s := c.running.Load()
	if s == nil {
		return
	}
	ws, _ := s.workspace(workspace)
	for _, to := range ws.Places {
		s.reply(to.Chat, to.Thread, 0, plain(cut(text, maxText)))
	}
}

// errToken says that Telegram does not know the token.
var errToken = errors.New("Telegram does not accept the token: is it complete, and still that of the bot?") //nolint:staticcheck // it begins with a name

func (c *Channel) begin(ctx context.Context, stop context.CancelCauseFunc) (*session, error) {
	s := &session{
		Channel: c, life: nonce(), nightsKnown: map[string]bool{}, book: &book{notebook: c.Notebook},
		stirred: make(chan approval.Key, 256), met: make(chan struct{}), fresh: true, outbox: &outbox{ctx: ctx, first: c.Retry},
	}
	s.troubles.tell, s.outbox.told, s.intake.session = c.Problem, s.sent, s
	s.journal = &Journal{Client: &watchedClient{HTTPClient: c.client(), s: s, stop: stop}, Store: c.Updates, Token: c.Token}
	b, err := c.newBot(ctx, s.journal, s.intake.take, s.heard)
	if err != nil {
		return nil, err
	}
	s.api = &api{bot: b, limiter: &Limiter{}, token: c.Token}
	if s.flood.off = c.eager && !c.calm; c.eager {
		s.api.limiter = nil
	}
	if err := errors.Join(s.book.open(s.names()), s.openDigests()); err != nil {
		s.log(fmt.Errorf("read the notebook: %w", err))
	}
	if name, err := c.Notes.Get(ourName); err == nil {
		s.bots.Store(&[]string{string(name)})
	}
	if c.Webhook != nil {
		if s.listener, err = c.Webhook.listener(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// names are those of the workspaces.
func (s *session) names() []string {
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

// introduce finds out our name, and has Telegram offer our commands.
func (s *session) introduce(ctx context.Context) {
	for tries := 0; ctx.Err() == nil; tries++ {
		me, err := s.api.me(ctx)
		if err == nil {
			s.callUs(me.Username)
			close(s.met)
			s.troubles.anew()
			if err := s.api.commands(ctx); err != nil && ctx.Err() == nil {
				s.log(fmt.Errorf("offer commands: %w", err))
			}
			return
		}
		if pause(ctx, s.outbox.retry(tries, err)) != nil {
			return
		}
	}
}

// ourName is where our name is kept: what was written to us while we were away may begin with it.
const ourName = "name"

func (s *session) callUs(name string) {
	if old := s.ourNames(); len(old) == 1 && old[0] == name {
		return
	}
	s.bots.Store(&[]string{name})
	if err := s.Notes.Put(ourName, []byte(name)); err != nil {
		s.log(fmt.Errorf("note our name: %w", err))
	}
}

func (s *session) ourNames() []string {
	if names := s.bots.Load(); names != nil {
		return *names
	}
	return nil
}

// watch looks at what waits whenever there is a hint, and every few seconds.
func (s *session) watch(ctx context.Context) {
	every := s.Every
	if every <= 0 {
		every = defaultEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	changes := s.Changes
	s.look(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case k, open := <-changes:
			if !open {
				changes = nil
				continue
			}
			s.hint(ctx, k)
		case k := <-s.stirred:
			s.heed(ctx, k)
		case <-tick.C:
			s.look(ctx)
		}
	}
}

// hint looks at one request, or at all where nobody says at which.
func (s *session) hint(ctx context.Context, k approval.Key) {
	if k.ID == "" {
		s.look(ctx)
		return
	}
	s.heed(ctx, k)
}

// stir has a request looked at soon; the tick finds what is lost here.
func (s *session) stir(k approval.Key) {
	select {
	case s.stirred <- k:
	default:
	}
}

// decidedEvery is in which of the looks the decisions are looked up of what still waits.
const decidedEvery = 4

// look compares what waits with the notebook.
func (s *session) look(ctx context.Context) {
	names := s.names()
	if err := s.book.open(names); err != nil { // a workspace may be new
		s.log(fmt.Errorf("read the notebook: %w", err))
	}
	var waiting []approval.Waiting
	if len(names) > 0 {
		var err error
		if waiting, err = s.Viewer.Waiting(ctx, names); err != nil {
			if ctx.Err() == nil {
				s.log(fmt.Errorf("look at what waits: %w", err))
			}
			return
		}
	}
	// What waits has just been read. Whether somebody has decided it meanwhile, where it still runs, is
	// looked up less often: the outcome comes with a hint.
	s.rounds++
	asked := map[approval.Key]bool{}
	for _, w := range waiting {
		k := w.Key()
		asked[k] = true
		if s.rounds%decidedEvery == 0 {
			s.heed(ctx, k)
			continue
		}
		if ws, ok := s.workspace(k.Workspace); ok {
			s.told(k, s.ask(ws, k, scene{Story: Story{Pending: w.Pending, SHA256: w.SHA256}}))
		}
	}
	lingering := map[approval.Key]time.Time{}
	for _, k := range s.book.keys(names) {
		switch p := s.book.page(k); {
		case asked[k] || p == nil:
		case s.lingers(p):
			lingering[k] = p.Began
		default:
			s.heed(ctx, k)
		}
	}
	s.thin(lingering)
	s.fresh = false
	s.forgetChats()
	s.refreshDigests()
	s.nights()
	s.unasked(waiting)
}

// heed brings one request's cards into line with what became of it.
func (s *session) heed(ctx context.Context, k approval.Key) {
	ws, known := s.workspace(k.Workspace)
	if !known {
		return
	}
	sc, err := s.scene(ctx, k)
	switch p := s.book.page(k); {
	case ctx.Err() != nil:
	case err != nil:
		s.log(fmt.Errorf("look at %s: %w", k, err))
	case sc.waits():
		err = s.ask(ws, k, sc)
	case p != nil:
		err = s.settle(k, p, sc)
	default:
		s.feed(ws, k, sc)
	}
	s.told(k, err)
}

func (s *session) told(k approval.Key, err error) {
	if err != nil && s.outbox.ctx.Err() == nil {
		s.log(fmt.Errorf("ask about %s: %w", k, err))
	}
}
