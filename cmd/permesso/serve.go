package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	terminalchat "github.com/permesso-dev/permesso/chat/terminal"
	"github.com/permesso-dev/permesso/chat/web"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/watcher"
)

func (a *app) serveCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Stand at the gate: take requests in, ask, run what was approved",
		Long: "Stand at the gate: take requests in, ask, run what was approved, until SIGTERM or Ctrl-C.\n\n" +
			"On a terminal it shows what waits and takes answers: approve ID, deny ID, pending, help, or a code for\n" +
			"the card shown last. Elsewhere permesso approve and permesso deny do that. The log goes to standard error.\n\n" +
			scriptHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Env("GOGC") == "" {
				thrift()
			}
			if a.Env("GOMAXPROCS") == "" {
				runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0)) // what comes back from the disk need not wait for what computes
			}
			return a.serve(cmd.Context(), a.Err)
		},
	}
	c.Flags().StringVar(&a.scriptFlag, "script", "", "let a script answer instead of people, for tests of agents; `file` in TOML")
	_ = c.MarkFlagFilename("script", "toml") // fails only for flags that are not there
	return c
}

// server is the daemon, wired.
type server struct {
	*house
	app     *app
	keys    *keys
	gate    *gate.Gate
	audit   *audit.Log
	memory  *memory
	runner  *exec.Runner
	watcher *watcher.Watcher
	feed    *feed
	census  *census
	rest    *httpapi.Server
	ui      *web.Server
	script  *config.Script // answers instead of people; nil: people do
	log     zerolog.Logger
	logTo   *logTo
	pending []approval.Key
	changes chan approval.Key
	reach   *channels
	grants  chan struct{} // a knock: something moved in grants/
	mails   mailHints
	release func() error
	quit    context.CancelCauseFunc // ends run

	health                *health
	pauseHint, configHint chan struct{} // see look
	reloading             sync.Mutex
	confSeen              string   // the content, or the error, that was looked at last
	confDirs              []string // the folders that are watched for it

	pausing sync.Mutex // held while pauses are looked at
	minutes minutes
	paused  map[string]bool // ids of pauses that the log has told of

	mu     sync.Mutex
	rounds map[string]int // rescans of each workspace
}

// serve runs the gate until ctx ends.
func (a *app) serve(ctx context.Context, to io.Writer) error {
	a.serving = true
	h, err := a.house()
	if err != nil {
		return err
	}
	s := &server{
		house: h, app: a, rounds: map[string]int{}, changes: make(chan approval.Key, 256),
		pauseHint: make(chan struct{}, 1), configHint: make(chan struct{}, 1), grants: make(chan struct{}, 1),
		mails: mailHints{drawerInbox: make(chan struct{}, 1), kindMaildir: make(chan struct{}, 1)},
	}
	s.reach = &channels{s: s, kinds: kinds(), knock: make(chan struct{}, 1)}
	if s.script, err = a.readScript(h.cfg); err != nil {
		return err
	}
	s.confSeen = h.cfg.File + " " + h.cfg.SHA256
	s.log, s.logTo = newLog(to, h.cfg.LogLevel, h.cfg.LogFormat)
	if err := s.open(); err != nil {
		return err
	}
	defer s.heedHangup()()
	s.greet()
	err = s.run(ctx)
	if errors.Is(err, errHomeGone) {
		// Nothing is finished or written any more: what lies there now is not
		// ours. Handlers die with us, and their claims say so wherever they are.
		return &exit{codeError, err, "put " + s.layout.Home + " back, or start permesso serve again"}
	}
	return errors.Join(err, s.close())
}

// heedHangup reads the configuration anew; a closed terminal does not end the
// gate. The signal is caught,
// not ignored, because what is ignored stays ignored in the handlers.
func (s *server) heedHangup() (stop func()) {
	hangup, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-hangup:
				s.reloading.Lock()
				s.confSeen = "" // look at it whether or not it changed
				s.reloading.Unlock()
				s.look(configGroup)
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(hangup); close(done) }
}

// open takes the home: the lock comes before anything is believed.
func (s *server) open() (err error) {
	if err := s.layout.PrepareHome(s.fs); err != nil {
		return err
	}
	if s.release, err = lockPatiently(s.store); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if err := s.markScripted(); err != nil {
		return err
	}
	for name := range s.cfg.Workspaces {
		if err := s.layout.Prepare(s.fs, name); err != nil {
			return err
		}
	}
	names, err := s.store.Workspaces()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := errors.Join(s.layout.Prepare(s.fs, name), s.layout.CheckPrivate(s.fs, name)); err != nil {
			return err
		}
	}
	if s.keys, err = s.makeKeys(); err != nil {
		return err
	}
	if s.audit, err = s.openAudit(s.keys); err != nil {
		return err
	}
	if err := s.completeAudit(); err != nil {
		return err
	}
	if s.memory, err = s.newMemory(s.keys, s.log); err != nil {
		return err
	}
	s.feed = newFeed(s.house, s.audit)
	if s.census, err = s.newCensus(); err != nil {
		return err
	}
	s.audit.Heard = func(e approval.Entry) {
		s.memory.learn(e)
		s.census.hear(e)
		s.feed.hear(e)
	}
	if err := s.memory.heed(time.Now(), s.audit.Append); err != nil {
		return err
	}
	verifier, err := s.keys.signer.Verifier()
	if err != nil {
		return err
	}
	s.runner = &exec.Runner{Verifier: verifier, TempDir: s.layout.Run(), Log: s.log, Supervisor: &exec.Supervisor{Log: s.log}}
	s.minutes = minutes{store: s.store, log: s.audit}
	now, err := s.judging(s.cfg)
	if err != nil {
		return err
	}
	s.live.now.Store(now)
	s.health = s.newHealth()
	s.gate = s.newGate()
	if s.rest, err = s.newRest(); err != nil {
		return err
	}
	s.ui = s.newUI()
	s.pending, err = s.gate.Start()
	return err
}

// lockPatiently gives somebody who only looks whether the gate is locked the
// moment that takes.
func lockPatiently(store *ipc.Store) (release func() error, err error) {
	for range 20 {
		if release, err = store.Open(); !errors.Is(err, ipc.ErrLocked) {
			return release, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, fmt.Errorf("another permesso serves this home: %w", err)
}

// illness passes on that the gate takes no new work, or that it does again.
func (s *server) illness(p gate.Degradation, present bool) {
	if present {
		s.health.Set("disk", "no new work is taken: "+p.What, p.Hint)
	} else {
		s.health.Clear("disk")
	}
}

func (s *server) newGate() *gate.Gate {
	return &gate.Gate{
		Store: s.store, Workspaces: s.store, Seal: s.keys.seal, Receipts: s.keys.signer,
		Policy: &s.live, Grants: s.memory, Executor: s.runner, Audit: s.audit,
		Settings: &s.live, Pauses: &ipc.PauseGuard{Store: s.store}, Words: chat.Words{}, Log: s.log, Changed: s.changed,
		Retention: s.cfg.Retention.Responses, Records: s.cfg.Retention.Records, Health: s.illness,
	}
}

// changed passes a hint on; a channel that does not keep up looks by itself.
func (s *server) changed(k approval.Key) {
	s.rest.Changed(k)
	s.ui.Changed(k)
	select {
	case s.changes <- k:
	default:
	}
	if s.reach != nil { // nobody is reached by a sweep
		s.reach.changed(k)
	}
}

// decider is Decide for this home; in says that we are its daemon.
func (h *house) decider(k *keys, in *server) *gate.Decider {
	d := &gate.Decider{
		Store: h.store, Seal: k.seal, RunBefore: h.conf().RunBefore, Words: chat.Words{},
		May: func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
			name, ok := h.conf().MayDecide(ws, by)
			if ok && p != nil && p.Principal != "" && name != p.Principal && !strings.HasPrefix(name, "operator:") {
				return "", false
			}
			return name, ok
		},
	}
	if in != nil {
		d.Daemon = true
		d.Decided = func(k approval.Key) {
			in.gate.Wake(k)
			in.ui.Changed(k) // the gate tells when it has ended, and that may take long
		}
		d.Free = func(ctx context.Context, k approval.Key) error {
			in.gate.Wake(k)
			return pauseFor(ctx, 20*time.Millisecond)
		}
		d.Refused = func(k approval.Key, by approval.Person, via string) {
			in.audit.Note(approval.Entry{
				Time: time.Now().UTC(), Event: approval.EventRefusedDecider, Workspace: k.Workspace, RequestID: k.ID,
				By: by.Channel + ":" + by.ID, Via: via,
			})
		}
	} else {
		d.Free = func(ctx context.Context, k approval.Key) error { return h.free(ctx, d, k) }
	}
	return d
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// free clears an invalid decision out of the slot while no daemon does: only
// the holder of the lock may.
func (h *house) free(ctx context.Context, d *gate.Decider, k approval.Key) error {
	lock, err := h.fs.TryLock(h.layout.Lock())
	if errors.Is(err, ipc.ErrLocked) {
		return pauseFor(ctx, 20*time.Millisecond) // its daemon is about to
	}
	if err != nil {
		return err
	}
	err = d.ClearInvalid(k, func() error {
		return h.store.Refuse(k.Workspace, k.ID+".decision", "decision is not valid for the pending request")
	})
	return errors.Join(err, lock.Close())
}

func (s *server) greet() {
	s.warn(s.cfg)
	s.greetScripted()
	s.log.Warn().Msg("an agent that runs as this very user is not held back by any gate: give it a container or another uid")
	if os.Getuid() == 0 {
		s.log.Warn().Msg("serving as root: what is approved runs as root")
	}
	for name := range s.cfg.Workspaces {
		if note := s.store.Notes(name); note != "" {
			s.log.Warn().Str("ws", name).Msg(note)
		}
	}
	s.audit.Note(approval.Entry{Time: time.Now().UTC(), Event: approval.EventStarted, Detail: version})
	if s.cfg.SHA256 != "" {
		s.audit.Note(approval.Entry{Time: time.Now().UTC(), Event: approval.EventConfigured, Detail: "sha256 " + s.cfg.SHA256})
	}
	if err := s.audit.Sync(); err != nil { // with it the log exists, for everybody who reads it
		s.log.Error().Err(err).Msg("audit log")
	}
	s.log.Info().Str("home", s.layout.Home).Int("workspaces", len(s.cfg.Workspaces)).Int("keys", len(s.pending)).Msg("serving")
}

// errHomeGone says that the home is no longer the one that we locked.
var errHomeGone = errors.New("the home was removed or replaced while it was served")

// run lets every part run, and ends them in order: first nothing new is heard,
// then the gate finishes what it has started.
func (s *server) run(ctx context.Context) error {
	if err := s.startSupervisor(s.cfg); err != nil {
		return err
	}
	if err := s.watch(); err != nil {
		return err
	}
	socket, err := s.listen()
	if err != nil {
		return err
	}
	defer socket.close()
	door, err := s.openDoor()
	if err != nil {
		return err
	}
	defer door.close()
	pages, err := s.openPages()
	if err != nil {
		return err
	}
	defer pages.close()
	var wg sync.WaitGroup
	errs := make(chan error, 6)
	inner, quit := context.WithCancelCause(ctx)
	s.quit = quit
	stop := func() { quit(nil) }
	defer stop()
	wg.Go(func() {
		defer stop()
		errs <- s.watcher.Run(inner)
	})
	wg.Go(func() { s.prunes(inner) })
	wg.Go(func() { s.lookAround(inner) })
	wg.Go(func() { s.beat(inner) })
	wg.Go(func() { s.heedGrants(inner) })
	wg.Go(func() { s.feed.run(inner) })
	if len(door.listeners) > 0 {
		wg.Go(func() {
			defer stop()
			errs <- door.run(inner)
		})
	}
	if pages != nil {
		wg.Go(func() {
			defer stop()
			errs <- pages.run(inner)
		})
	}
	if s.script == nil { // a script answers alone, whatever is configured later
		wg.Go(func() { s.reach.Run(inner) })
	}
	switch {
	case s.script != nil:
		wg.Go(func() { s.answers().run(inner) })
	case terminal(s.app.In):
		wg.Go(func() { errs <- s.terminal(inner) })
	}
	if socket != nil {
		wg.Go(func() {
			defer stop()
			errs <- socket.run(inner)
		})
	}
	for _, note := range s.watcher.Notes() {
		s.log.Warn().Msg(note)
	}
	done := make(chan error, 1)
	go func() { done <- s.gate.Run(inner, s.pending) }()
	s.health.Beat()
	s.notifyReady()
	<-inner.Done()
	s.notify(sd.SdNotifyStopping)
	if errors.Is(context.Cause(inner), errHomeGone) {
		return errHomeGone
	}
	err = <-done
	wg.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

// startSupervisor starts the parent of all commands before the first one needs
// it, if any tool runs one.
func (s *server) startSupervisor(cfg *config.Config) error {
	for _, t := range cfg.Tools {
		if t.Handler.Kind == approval.HandlerCommand {
			return s.runner.Supervisor.Start()
		}
	}
	return nil
}

func (s *server) close() error {
	s.pausing.Lock()
	err := s.minutes.take()
	s.pausing.Unlock()
	s.audit.Note(approval.Entry{Time: time.Now().UTC(), Event: approval.EventStopped})
	if e := s.memory.saveSnapshot(); e != nil {
		s.log.Warn().Err(e).Msg("policy's snapshot was not written: the next start reads the whole log")
	}
	err = errors.Join(err, s.runner.Close(), s.audit.Close())
	if s.runner.Supervisor != nil {
		err = errors.Join(err, s.runner.Supervisor.Close())
	}
	s.log.Info().Msg("stopped")
	return errors.Join(err, s.release())
}

// terminal is the channel of whoever started the daemon by hand.
func (s *server) terminal(ctx context.Context) error {
	names, style := s.local()
	decider := afresh(func() *gate.Decider { return s.decider(s.keys, s) })
	c := &terminalchat.Channel{
		In: s.app.In, Out: s.app.Out, Viewer: s.viewer(s.keys), Records: s.viewer(s.keys),
		Interceptor: &chat.Interceptor{
			Decider: decider, Viewer: s.viewer(s.keys), Zone: time.Local,
			Redact: style.Redact, Revoker: revoker{s.memory, decider},
			CanDecide: decider.Standing, Paused: s.pausedIn,
		},
		Changes: s.changes, Person: operator(), Workspaces: names,
		Style: style, Refresh: s.local,
		Foot:  func() string { return auditFoot(s.audit.Newest()) },
		Color: terminal(s.app.Out) && s.app.Env("NO_COLOR") == "",
		Log:   func(err error) { s.log.Error().Err(err).Msg("terminal") },
	}
	return c.Run(ctx)
}

// local is what the terminal shows, as the configuration has it now.
func (s *server) local() (workspaces []string, style chat.Style) {
	cfg := s.conf()
	for _, name := range sortedNames(cfg) {
		if cfg.Workspaces[name].LocalDecisions {
			workspaces = append(workspaces, name)
		}
	}
	style = s.style()
	style.WouldAllow, style.Earlier = s.memory.wouldAllow, earlier(s.viewer(s.keys))
	return workspaces, style
}
