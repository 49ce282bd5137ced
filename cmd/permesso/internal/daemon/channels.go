package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

// channel reaches people from inside the daemon. If run returns before ctx
// ends, the channel is restarted.
type channel struct {
	run   func(ctx context.Context) error
	alert func(workspace, text string) // sends a sentence to a workspace's approvers; nil: it cannot
	mails *email.Adapter               // takes emails from the HTTP API; nil: it does not
	// limited counts a request that a limit refused; nil: it is not told here.
	limited func(workspace string)
}

// kind is one kind of channel. A change of settings restarts the channel; nil
// means that it is not configured. A channel reads all other configuration
// when it needs it.
type kind struct {
	name     string
	settings func(cfg *config.Config) any
	open     func(s *server, changes <-chan approval.Key) (channel, error)
}

// settingsOf is the section of a channel, nil if it is not configured.
func settingsOf[T any](section *T) any {
	if section == nil {
		return nil
	}
	return *section
}

// kinds are the channels that a file may name.
func kinds() []kind {
	return []kind{telegramKind(), emailKind(), ntfyKind()}
}

// channels runs the configured channels.
type channels struct {
	s             *server
	kinds         []kind
	configChanged chan struct{} // signals that the configuration may have changed
	mu            sync.Mutex
	active        map[string]*runningChannel
	begun         bool           // the first configuration is in effect
	refused       map[string]int // requests of each workspace that a limit refused, since the start
	backoff       time.Duration  // first delay after a channel failed; 0: one second
}

// runningChannel is a channel that runs or waits for its restart.
type runningChannel struct {
	settings any
	changes  chan approval.Key
	stop     context.CancelFunc
	done     chan struct{}
	now      channel        // zero while it does not run
	told     map[string]int // as channels.refused: those that the channel has counted
}

// Run starts and stops channels as configured, until ctx ends.
func (c *channels) Run(ctx context.Context) {
	for {
		c.reconcile(ctx)
		select {
		case <-ctx.Done():
			c.reconcile(ctx)
			return
		case <-c.configChanged:
		}
	}
}

// reconcile starts and stops channels so that they match the configuration; after ctx
// none runs.
func (c *channels) reconcile(ctx context.Context) {
	cfg := c.s.Current()
	for _, k := range append(slices.Clone(c.kinds), c.webhookKinds(cfg)...) {
		want, now := k.settings(cfg), c.running(k.name)
		if ctx.Err() != nil {
			want = nil
		}
		if now != nil && reflect.DeepEqual(now.settings, want) {
			continue
		}
		told := c.toldBefore()
		if now != nil {
			c.end(k.name, now)
			told = now.told
		}
		if want != nil {
			c.begin(ctx, k, want, told)
		}
	}
	c.mu.Lock()
	c.begun = true
	c.mu.Unlock()
}

func (c *channels) running(name string) *runningChannel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active[name]
}

// toldBefore returns the refused requests that a new channel need not count: none at the start, all before it was
// configured.
func (c *channels) toldBefore() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := map[string]int{}
	if c.begun {
		maps.Copy(told, c.refused)
	}
	return told
}

func (c *channels) begin(ctx context.Context, k kind, settings any, told map[string]int) {
	inner, stop := context.WithCancel(ctx)
	w := &runningChannel{settings: settings, changes: make(chan approval.Key, 256), stop: stop, done: make(chan struct{}), told: told}
	c.mu.Lock()
	if c.active == nil {
		c.active = map[string]*runningChannel{}
	}
	c.active[k.name] = w
	c.mu.Unlock()
	go func() {
		defer close(w.done)
		c.supervise(inner, k, w.changes)
	}()
}

func (c *channels) end(name string, w *runningChannel) {
	w.stop()
	<-w.done
	c.mu.Lock()
	delete(c.active, name)
	c.mu.Unlock()
	c.s.health.Clear(channelIssue(name))
	c.s.health.Clear(channelNote(name))
}

// The delays between two attempts to start a channel.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
)

// channelIssue names a channel in reports. A webhook is none.
func channelIssue(name string) string {
	if strings.HasPrefix(name, webhookPrefix) {
		return name
	}
	return "channel " + name
}

func channelNote(name string) string { return "note of " + channelIssue(name) }

// supervise runs a channel and restarts it when it fails, so that a broken network
// or a wrong setting does not end the daemon.
func (c *channels) supervise(ctx context.Context, k kind, changes <-chan approval.Key) {
	first := cmp.Or(c.backoff, firstRestart)
	wait := first
	for ctx.Err() == nil {
		began := time.Now()
		err := c.runOnce(ctx, k, changes)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("channel stopped unexpectedly")
		}
		if time.Since(began) > longestRestart {
			wait = first
		}
		c.s.log.Error().Str("via", k.name).Err(err).EmbedObject(console.Advice{Err: err}).Dur("retry_in", wait).Msg("channel failed")
		c.s.health.Set(channelIssue(k.name), fmt.Sprintf("%s is down: %v", channelIssue(k.name), err), console.Hints(console.HintFor(err), "permesso doctor"))
		if home.Sleep(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, longestRestart)
	}
}

// runOnce runs a channel once. A panic is an error.
func (c *channels) runOnce(ctx context.Context, k kind, changes <-chan approval.Key) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("%s panicked: %v", k.name, what)
		}
	}()
	ch, err := k.open(c.s, changes)
	if err != nil {
		return err
	}
	c.setRunning(k.name, ch)
	defer c.setRunning(k.name, channel{})
	return ch.run(ctx)
}

func (c *channels) setRunning(name string, ch channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.active[name]; w != nil {
		w.now = ch
		w.tellLimited(c.refused)
	}
}

// current returns the running channel of a name, zero if it does not run.
func (c *channels) current(name string) channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.active[name]; w != nil {
		return w.now
	}
	return channel{}
}

// changed sends a hint to every channel. A channel with a full buffer finds
// the change by its own polling.
func (c *channels) changed(k approval.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.active {
		select {
		case w.changes <- k:
		default:
		}
	}
}

// alert sends text to a workspace's approvers by every channel but from.
func (c *channels) alert(from, ws, text string) {
	c.s.log.Warn().Str("via", from).Str("ws", ws).Msg(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, w := range c.active {
		if w.now.alert != nil && name != from {
			go w.now.alert(ws, text)
		}
	}
}

// limited tells every channel of a request that a limit refused. A channel that does not run yet hears of it later.
func (c *channels) limited(ws string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[string]int{}
	}
	c.refused[ws]++
	for _, w := range c.active {
		w.tellLimited(c.refused)
	}
}

// tellLimited tells a channel that runs of the refused requests that it has not counted.
func (w *runningChannel) tellLimited(refused map[string]int) {
	if w.now.limited == nil {
		return
	}
	for ws, n := range refused {
		for ; w.told[ws] < n; w.told[ws]++ {
			w.now.limited(ws)
		}
	}
}

// channelEnv is what the daemon gives to a channel.
type channelEnv struct {
	name      string // the channel's
	s         *server
	decider   *gate.Decider
	viewer    *read.Viewer
	sentStore *ipc.SentStore
	serves    func(cfg *config.Config, ws string) bool // nil: the workspaces that list the channel
}

func (s *server) channelEnv(name string) *channelEnv {
	return &channelEnv{name, s, s.gateDecider(), s.Viewer(s.keys), &ipc.SentStore{Store: s.Store, Channel: name}, nil}
}

// workspaces returns the workspaces that use this channel, sorted.
func (r *channelEnv) workspaces() []string {
	cfg := r.s.Current()
	return slices.DeleteFunc(home.WorkspaceNames(cfg), func(ws string) bool {
		if r.serves != nil {
			return !r.serves(cfg, ws)
		}
		return !slices.Contains(cfg.Workspaces[ws].Channels, r.name)
	})
}

// Waiting returns the pending requests to send by this channel.
func (r *channelEnv) Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error) {
	own := r.workspaces()
	asked := slices.DeleteFunc(slices.Clone(workspaces), func(ws string) bool { return !slices.Contains(own, ws) })
	if len(asked) == 0 {
		return nil, nil // an empty list would mean every workspace
	}
	list, err := r.viewer.Waiting(ctx, asked)
	return slices.DeleteFunc(list, func(w approval.StoredPending) bool {
		return !r.asks(w.Pending)
	}), err
}

// asks reports whether a request goes to this channel. Its client may name another.
func (r *channelEnv) asks(p *approval.Pending) bool { return p.AskOn == "" || p.AskOn == r.name }

// Find returns the requests whose id begins with prefix.
func (r *channelEnv) Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error) {
	if len(workspaces) == 0 {
		return nil, nil
	}
	return r.viewer.Find(ctx, workspaces, prefix)
}

// interceptor parses the messages of this channel and applies their decisions.
func (r *channelEnv) interceptor() *chat.Interceptor {
	ic := r.s.interceptor()
	ic.Viewer = r
	return ic
}

// reportIssue reports an issue of this channel to status and doctor; "" clears it.
func (r *channelEnv) reportIssue(what, hint string) {
	if what == "" {
		r.s.health.Clear(channelIssue(r.name))
		return
	}
	if hint == "" && r.name == emailChannel {
		hint = "run permesso email setup to check the login"
	}
	r.s.health.Set(channelIssue(r.name), what, console.Hints(hint, "permesso pending lists what waits"))
}

// reportNote shows in status and doctor what is no fault of this channel; "" clears it.
func (r *channelEnv) reportNote(what, hint string) {
	if what == "" {
		r.s.health.Clear(channelNote(r.name))
		return
	}
	r.s.health.Note(channelNote(r.name), what, hint)
}

// alert sends text by the other channels, because this one cannot.
func (r *channelEnv) alert(ws, text string) { r.s.channels.alert(r.name, ws, text) }

// foot returns the last line of a message.
func (s *server) foot() string { return home.AuditFoot(s.audit.Newest()) }

// logHead is what a response says of the audit log.
func (s *server) logHead() *approval.LogHead {
	c := s.audit.Newest()
	if c == nil {
		return nil
	}
	return &approval.LogHead{Size: c.Size, Root: c.Root.String()}
}

// peopleOf returns the approvers who may decide in a workspace.
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
	_ chat.SentStore  = (*ipc.SentStore)(nil)
	_ chat.StateStore = (*ipc.StateStore)(nil)
)

// deliver returns the channel of an adapter. places returns the chats of a workspace.
func (r *channelEnv) deliver(
	a deliver.Adapter, state chat.StateStore, changes <-chan approval.Key, places func(cfg *config.Config, ws string) []deliver.Place, feed func() bool,
) *deliver.Channel {
	return &deliver.Channel{
		Name: r.name, Adapter: a, State: state, Sent: r.sentStore,
		Viewer: r, Interceptor: r.interceptor(), Guard: r, Pauser: r, History: r,
		Workspaces: func() (all []deliver.Workspace) {
			cfg := r.s.Current()
			for _, name := range r.workspaces() {
				w := cfg.Workspaces[name]
				all = append(all, deliver.Workspace{Name: name, Language: w.Language, Quiet: w.QuietHours, Places: places(cfg, name)})
			}
			return all
		},
		Feed: feed, Tool: r.tool, Style: r.s.style, Foot: r.s.foot, Changes: changes,
		Problem: r.reportIssue, Note: r.reportNote, Elsewhere: r.alert, Approve: "permesso approve",
		Configure: func(ws string, chat deliver.ID) string {
			return fmt.Sprintf("write into permesso.toml, under [workspaces.%s]: %s = { chat_id = %s }", ws, r.name, chat)
		},
		Log: func(err error) {
			r.s.log.Error().Str("via", r.name).Err(err).EmbedObject(console.Advice{Err: err}).Msg(r.name + " channel failed")
		},
	}
}

// tool is a tool of the current configuration.
func (r *channelEnv) tool(name string) (approval.Tool, bool) {
	t, ok := r.s.Current().Tools[name]
	return t, ok
}

// Story implements deliver.Channel.
func (r *channelEnv) Story(ctx context.Context, k approval.Key) (read.Story, error) {
	st, err := r.viewer.Story(ctx, k)
	if st.SHA256 != "" && !r.asks(st.Pending) {
		return read.Story{}, err // not for this channel, even if a hint names it
	}
	return st, err
}

// May implements deliver.Channel.
func (r *channelEnv) May(ws string, p *approval.Pending, by approval.Person) (string, bool) {
	return r.decider.May(ws, p, by)
}

// Refused implements deliver.Channel.
func (r *channelEnv) Refused(k approval.Key, by approval.Person) {
	r.decider.Refused(k, by, r.name)
}

// Pause implements deliver.Channel.
func (r *channelEnv) Pause(ctx context.Context, ws string, by approval.Person, reason string) (changed bool, err error) {
	p, err := r.s.control.Pause(ctx, pauser(ws, by, r.name), ws, reason)
	return !p.Already, err
}

// Resume implements deliver.Channel.
func (r *channelEnv) Resume(ctx context.Context, ws string, by approval.Person) (changed bool, err error) {
	was, err := r.s.control.Resume(ctx, pauser(ws, by, r.name), ws)
	return was.Paused, err
}

// Last implements deliver.Channel.
func (r *channelEnv) Last(_ context.Context, workspaces []string, n int) ([]approval.Key, error) {
	if len(workspaces) == 0 {
		return nil, nil // an empty list would mean every workspace
	}
	found, _, err := r.viewer.Requests(read.Query{Workspaces: workspaces, Limit: n, Match: func(x *read.Request) bool {
		refused := x.Status == approval.StatusAutoRejected || x.Status == approval.StatusMalformed
		return x.Ended() && !refused // a flood of refusals would hide the decisions
	}})
	var keys []approval.Key
	for _, x := range found {
		keys = append(keys, x.Key)
	}
	return keys, err
}
