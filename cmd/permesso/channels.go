package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

// channel reaches people from inside the daemon. Run ends with ctx, or with an
// error after which it is started again.
type channel interface {
	Run(ctx context.Context) error
}

// kind is one kind of channel. settings is what it is to be started anew for
// when it changes; nil where the configuration does not name it. All else it
// asks for when it needs it, as the configuration has it then.
type kind struct {
	name     string
	settings func(cfg *config.Config) any
	open     func(s *server, changes <-chan approval.Key) (channel, error)
}

// kinds are the channels that there are.
func kinds() []kind {
	return []kind{telegramKind(), emailKind()}
}

// channels keeps the configured channels at work.
type channels struct {
	s       *server
	kinds   []kind
	knock   chan struct{} // the configuration may have changed
	mu      sync.Mutex
	at      map[string]*atWork
	backoff time.Duration // the first wait after a channel failed; 0: a second
}

// atWork is a channel that runs, or waits to be started again.
type atWork struct {
	settings any
	changes  chan approval.Key
	stop     context.CancelFunc
	done     chan struct{}
	now      channel // nil: it is not up
}

// Run starts and stops channels as the configuration names them, until ctx ends.
func (c *channels) Run(ctx context.Context) {
	defer c.stopAll()
	for {
		c.match(ctx)
		select {
		case <-ctx.Done():
			return
		case <-c.knock:
		}
	}
}

// match brings what runs into line with the configuration.
func (c *channels) match(ctx context.Context) {
	cfg := c.s.conf()
	for _, k := range c.kinds {
		want, now := k.settings(cfg), c.running(k.name)
		if now != nil && reflect.DeepEqual(now.settings, want) {
			continue
		}
		if now != nil {
			c.end(k.name, now)
		}
		if want != nil && ctx.Err() == nil {
			c.begin(ctx, k, want)
		}
	}
}

func (c *channels) running(name string) *atWork {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[name]
}

func (c *channels) begin(ctx context.Context, k kind, settings any) {
	inner, stop := context.WithCancel(ctx)
	w := &atWork{settings: settings, changes: make(chan approval.Key, 256), stop: stop, done: make(chan struct{})}
	c.mu.Lock()
	if c.at == nil {
		c.at = map[string]*atWork{}
	}
	c.at[k.name] = w
	c.mu.Unlock()
	go func() {
		defer close(w.done)
		c.keep(inner, k, w.changes)
	}()
}

func (c *channels) end(name string, w *atWork) {
	w.stop()
	<-w.done
	c.mu.Lock()
	delete(c.at, name)
	c.mu.Unlock()
	c.s.health.Clear(channelProblem(name))
}

func (c *channels) stopAll() {
	for _, k := range c.kinds {
		if w := c.running(k.name); w != nil {
			c.end(k.name, w)
		}
	}
}

// The waits between two attempts to start a channel that fails.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
)

func channelProblem(name string) string { return "channel " + name }

// keep runs a channel, and starts it again where it fails: a network that is
// down, or a mistake in the settings, must not end the gate.
func (c *channels) keep(ctx context.Context, k kind, changes <-chan approval.Key) {
	first := c.backoff
	if first <= 0 {
		first = firstRestart
	}
	wait := first
	for ctx.Err() == nil {
		began := time.Now()
		err := c.attempt(ctx, k, changes)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it stopped by itself")
		}
		if time.Since(began) > longestRestart {
			wait = first
		}
		c.s.log.Error().Str("via", k.name).Err(err).EmbedObject(advice{err}).Dur("again_in", wait).Msg("channel")
		c.s.health.Set(channelProblem(k.name), fmt.Sprintf("%s reaches nobody: %v", k.name, err), hints(hintFor(err), "permesso doctor"))
		if pauseFor(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, longestRestart)
	}
}

// attempt is one life of a channel. A channel that panics is one that fails.
func (c *channels) attempt(ctx context.Context, k kind, changes <-chan approval.Key) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("%s panicked: %v", k.name, what)
		}
	}()
	ch, err := k.open(c.s, changes)
	if err != nil {
		return err
	}
	c.is(k.name, ch)
	defer c.is(k.name, nil)
	return ch.Run(ctx)
}

// is notes which channel is up under a name.
func (c *channels) is(name string, ch channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.at[name]; w != nil {
		w.now = ch
	}
}

// up is the channel that is up under a name, nil where none is.
func (c *channels) up(name string) channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.at[name]; w != nil {
		return w.now
	}
	return nil
}

// changed passes a hint on to every channel; one that does not keep up looks by
// itself.
func (c *channels) changed(k approval.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.at {
		select {
		case w.changes <- k:
		default:
		}
	}
}

// alerter is a channel that passes a sentence on to a workspace's people.
type alerter interface {
	Alert(workspace, text string)
}

// alert tells a workspace's people by every channel but one.
func (c *channels) alert(from, ws, text string) {
	c.s.log.Warn().Str("via", from).Str("ws", ws).Msg(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, w := range c.at {
		if a, ok := w.now.(alerter); ok && name != from {
			go a.Alert(ws, text)
		}
	}
}

// reconfigured has the channels look at the configuration again.
func (c *channels) reconfigured() {
	select {
	case c.knock <- struct{}{}:
	default: // somebody has knocked already
	}
}

// room is what a channel inside the daemon is furnished with.
type room struct {
	name     string // of the channel
	s        *server
	decider  *gate.Decider
	viewer   *gate.Viewer
	notebook *ipc.SentStore
}

func (s *server) room(name string) *room {
	return &room{name, s, s.decider(s.keys, s), s.viewer(s.keys), &ipc.SentStore{Store: s.store, Channel: name}}
}

// workspaces are those whose people are asked here, sorted.
func (r *room) workspaces() []string {
	cfg := r.s.conf()
	return slices.DeleteFunc(sortedNames(cfg), func(ws string) bool {
		return !slices.Contains(cfg.Workspaces[ws].Channels, r.name)
	})
}

// Waiting implements chat.Viewer: what waits and is to be asked here.
func (r *room) Waiting(ctx context.Context, workspaces []string) ([]approval.Waiting, error) {
	own := r.workspaces()
	asked := slices.DeleteFunc(slices.Clone(workspaces), func(ws string) bool { return !slices.Contains(own, ws) })
	if len(asked) == 0 {
		return nil, nil // not nil, which means every workspace
	}
	list, err := r.viewer.Waiting(ctx, asked)
	return slices.DeleteFunc(list, func(w approval.Waiting) bool {
		return !r.asks(w.Pending)
	}), err
}

// asks says whether a request is asked here: its client may want it asked elsewhere alone.
func (r *room) asks(p *approval.Pending) bool { return p.AskOn == "" || p.AskOn == r.name }

// Find implements chat.Finder.
func (r *room) Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error) {
	if len(workspaces) == 0 {
		return nil, nil
	}
	return r.viewer.Find(ctx, workspaces, prefix)
}

// style is how people are shown things here, in a language.
func (r *room) style(language string) chat.Style {
	style := r.s.style()
	style.WouldAllow, style.Earlier = r.s.memory.wouldAllow, earlier(r.viewer)
	if language != "" {
		style.Language = language
	}
	return style
}

// interceptor understands what people write here and has it decided.
func (r *room) interceptor() *chat.Interceptor {
	decider := afresh(func() *gate.Decider { return r.s.decider(r.s.keys, r.s) })
	return &chat.Interceptor{
		Decider: decider, Viewer: r, Zone: time.Local, Redact: newRedaction(), Revoker: revoker{r.s.memory, decider},
		CanDecide: decider.Standing, Paused: r.s.pausedIn,
	}
}

// problem notes what people should see to, in status and doctor; "" ends it.
func (r *room) problem(what, hint string) {
	if what == "" {
		r.s.health.Clear(channelProblem(r.name))
		return
	}
	if hint == "" && r.name == emailChannel {
		hint = "run permesso email setup to check the login"
	}
	r.s.health.Set(channelProblem(r.name), what, hints(hint, "permesso pending lists what waits"))
}

// alert has people told, by the other channels, what this one cannot tell them.
func (r *room) alert(ws, text string) { r.s.reach.alert(r.name, ws, text) }

// foot is what a card ends with.
func (r *room) foot() string { return auditFoot(r.s.audit.Newest()) }

// peopleOf are those who may decide in a workspace.
func peopleOf(cfg *config.Config, ws string) []approval.Approver {
	var all []approval.Approver
	for _, name := range cfg.Workspaces[ws].Approvers {
		if p, ok := cfg.Approvers[name]; ok && (cfg.Workspaces[ws].Principal == "" || cfg.Workspaces[ws].Principal == name) {
			all = append(all, p)
		}
	}
	return all
}

var (
	_ chat.Viewer     = (*room)(nil)
	_ chat.Finder     = (*room)(nil)
	_ chat.SentStore  = (*ipc.SentStore)(nil)
	_ chat.StateStore = (*ipc.StateStore)(nil)
)
