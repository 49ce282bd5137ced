package deliver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
)

// session is one run of the channel.
type session struct {
	*Channel
	id          string // unique
	ctx         context.Context
	traits      Traits
	sent        *sentIndex
	outbox      *outbox
	dispatcher  dispatcher
	warnings    warnings
	notes       warnings // of what is no fault of the channel
	refusals    refusals
	answering   answering
	listButtons listButtons
	digests     digests
	feeds       feeds
	searches    searches
	moves       moves
	reached     sync.Once              // a message got through
	name        atomic.Pointer[string] // the bot's, once known
	nameKnown   chan struct{}          // closed when the adapter has set it in this session
	nameOnce    sync.Once
	opened      chan struct{}     // closed when traits are set
	touched     chan approval.Key // requests that handlers changed

	// Only the watch loop uses the fields below.
	passes     int  // of reconcileAll
	firstPass  bool // no pass has been completed in this session
	flood      flood
	turns      turns
	quietKnown map[string]bool // whether a workspace may need a morning message
	quietMu    sync.Mutex      // serializes updates of quietPeriod
	// missingSince is since when a request is neither pending nor recorded; reported, which refused letters the
	// operator knows of.
	missingSince map[approval.Key]time.Time
	reported     map[ID]bool
}

func (c *Channel) newSession(ctx context.Context) (*session, error) {
	s := &session{
		Channel: c, id: nonce(), ctx: ctx, firstPass: true, quietKnown: map[string]bool{}, sent: newSentIndex(c.Sent),
		touched: make(chan approval.Key, 256), nameKnown: make(chan struct{}), opened: make(chan struct{}),
		outbox:      &outbox{ctx: ctx, retryUnit: cmp.Or(c.Retry, firstRetry), queues: map[ID]*queue{}},
		warnings:    warnings{report: c.Problem, current: map[string][2]string{}},
		notes:       warnings{report: c.Note, current: map[string][2]string{}},
		turns:       turns{window: cmp.Or(c.Turn, turnWindow), recent: map[turnKey][]newCard{}},
		flood:       flood{most: cmp.Or(c.MaxCards, maxCards), cards: map[floodKey][]newCard{}},
		refusals:    refusals{at: map[ID][]time.Time{}},
		listButtons: listButtons{buttons: map[string]listButton{}},
		feeds:       feeds{open: map[string]*feed{}},

		missingSince: map[approval.Key]time.Time{}, reported: map[ID]bool{},
	}
	s.outbox.onDone, s.outbox.delay = s.jobFinished, s.limitDelay
	s.warnings.since, s.warnings.logged = map[string]time.Time{}, map[string]time.Time{}
	s.dispatcher.session, s.dispatcher.queues = s, map[string][]func(){}
	s.dispatcher.idle = sync.NewCond(&s.dispatcher.mu)
	if err := errors.Join(s.loadMoves(), s.sent.load(s.workspaceNames()), s.loadDigests()); err != nil {
		s.log(fmt.Errorf("read sent records: %w", err))
	}
	if name, err := c.State.Get(nameFile); err == nil {
		s.name.Store(new(string(name)))
	}
	var err error
	if s.traits, err = c.Adapter.Open(ctx, &Inbox{s}); err != nil {
		return nil, fmt.Errorf("open %s: %w", c.Name, err)
	}
	close(s.opened)
	if s.traits.Letters != nil {
		s.warnings.publishAgain() // others wait until the service is reachable
	}
	s.notes.publishAgain()
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

// nameFile holds the bot's name for the next session: replayed texts may begin with it.
const nameFile = "name"

func (s *session) setName(name string) {
	defer s.nameOnce.Do(func() { close(s.nameKnown) })
	if old := s.name.Swap(&name); old != nil && *old == name {
		return
	}
	if err := s.State.Put(nameFile, []byte(name)); err != nil {
		s.log(fmt.Errorf("write bot name: %w", err))
	}
}

func (s *session) botNames() []string {
	if name := s.name.Load(); name != nil {
		return []string{*name}
	}
	return nil
}

const defaultEvery = 5 * time.Second

// watch reconciles at every hint, and every few seconds.
func (s *session) watch(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(s.Every, defaultEvery))
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
			s.handleHint(ctx, k)
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

// touchAll asks for all requests to be reconciled soon.
func (s *session) touchAll() { s.touch(approval.Key{}) }

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
			s.logAskError(k, s.ask(ws, k, status{Story: read.Story{Pending: w.Pending, SHA256: w.SHA256}}))
		}
	}
	late := map[approval.Key]time.Time{}
	for _, k := range s.sent.keys(names) {
		switch p := s.sent.record(k); {
		case asked[k] || p == nil || s.keptLetters(p):
		case s.keptForLateTap(p) && !s.toSearch(p):
			late[k] = p.CreatedAt
		default:
			s.reconcile(ctx, k)
		}
	}
	s.removeOldest(late)
	s.remind(ctx, waiting)
	s.firstPass = false
	s.clearChatWarnings()
	s.warnMoved()
	s.refreshDigests()
	s.sendMorningMessages()
	s.tellLimited()
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
	case isPending(st.Story):
		err = s.ask(ws, k, st)
	case p != nil:
		err = s.settle(k, p, st)
	default:
		s.feed(ctx, ws, k, st)
	}
	s.logAskError(k, err)
}

func (s *session) logAskError(k approval.Key, err error) {
	if err != nil && s.outbox.ctx.Err() == nil {
		s.log(fmt.Errorf("ask about %s: %w", k, err))
	}
}
