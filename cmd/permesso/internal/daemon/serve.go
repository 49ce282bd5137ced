// Package daemon is the approval daemon: the gate with its store, policy,
// executor, API, socket, web UI and channels, from start to stop.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	terminalchat "github.com/permesso-dev/permesso/chat/terminal"
	"github.com/permesso-dev/permesso/chat/web"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/watcher"
)

// server is the daemon with all its parts.
type server struct {
	*home.Home
	app         *console.Console
	keys        *home.Keys
	gate        *gate.Gate
	audit       *audit.Log
	memory      *home.Memory
	runner      *exec.Runner
	planner     exec.Planner
	watcher     *watcher.Watcher
	feed        *feed
	metrics     *requestMetrics
	api         *httpapi.Server
	control     *control.Service
	ui          *web.Server
	push        *pushes
	refusals    rateLimited    // of local people, in the audit log
	script      *config.Script // decides instead of people; nil: people decide
	log         zerolog.Logger
	logWriter   *LogWriter
	pending     []approval.Key
	changes     chan approval.Key
	channels    *channels
	mails       mailHints
	localErrors rateLimited
	release     func() error
	screen      Screen                  // nil: none
	quit        context.CancelCauseFunc // ends run

	health                *home.Health
	pauseHint, configHint chan struct{} // see runReloads
	hangup                chan os.Signal
	seenConfig            string   // content or error of the last check
	configDirs            []string // watched folders

	pausing    sync.Mutex // serializes refreshPauses
	pauseAudit pauseAudit
	paused     map[string]bool // ids of the logged pauses

	mu     sync.Mutex
	rounds map[string]int // rescans per workspace
}

// ErrStop is the error of a Screen at which the person has told the daemon to stop.
var ErrStop = errors.New("stop the daemon")

// Screen takes the terminal that started the daemon, until the person leaves it or ctx ends. Then the terminal has what
// it has without one.
type Screen func(ctx context.Context) error

// Serve runs the daemon until ctx ends. screen may be nil.
func Serve(ctx context.Context, a *console.Console, script string, to io.Writer, screen Screen) error {
	if err := home.CheckNew(a); err != nil {
		return err
	}
	a.Serving = true
	h, err := home.Load(a)
	if err != nil {
		return err
	}
	s := &server{
		Home: h, app: a, rounds: map[string]int{}, changes: make(chan approval.Key, 256),
		pauseHint: make(chan struct{}, 1), configHint: make(chan struct{}, 1), hangup: make(chan os.Signal, 1),
		screen: screen,
		mails:  mailHints{StoreInbox: make(chan struct{}, 1), kindMaildir: make(chan struct{}, 1)},
	}
	s.channels = &channels{s: s, kinds: append(kinds(), pushKind()), configChanged: make(chan struct{}, 1)}
	if s.script, err = readScript(a, script, h.Config); err != nil {
		return err
	}
	s.seenConfig = h.Config.File + " " + h.Config.SHA256
	s.log, s.logWriter = NewLog(to, h.Config.LogLevel, h.Config.LogFormat)
	defer takeStandardLog(s.log)()
	if err := s.open(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // it was told to stop while it started
		}
		return err
	}
	// SIGHUP reloads the configuration. A closed terminal does not end the daemon. The
	// signal is caught, not ignored, because handlers would inherit an ignored signal.
	signal.Notify(s.hangup, syscall.SIGHUP)
	defer signal.Stop(s.hangup)
	s.logStart()
	err = s.run(ctx)
	if errors.Is(err, errHomeGone) {
		// Write nothing any more: the files there are not ours. Handlers die with
		// the daemon, and their claims show it.
		return console.Wrap(console.ExitError, err, "put "+s.Layout.Home+" back, or start permesso serve again")
	}
	return errors.Join(err, s.close())
}

// Background runs a daemon inside of another command, and calls ended when it ends. stop
// ends it; its error holds the daemon's log.
func Background(ctx context.Context, a *console.Console, ended func()) (stop func() error) {
	ctx, quit := context.WithCancel(ctx)
	var log bytes.Buffer
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, a, "", zerolog.SyncWriter(&log), nil)
		ended()
	}()
	return func() error {
		quit()
		if err := <-served; err != nil {
			return fmt.Errorf("daemon: %w\n%s", err, chat.Escape(log.String()))
		}
		return nil
	}
}

// open takes the home's lock before it reads any document.
func (s *server) open(ctx context.Context) (err error) {
	if err := s.checkFileSystem(); err != nil {
		return err
	}
	if err := s.Layout.PrepareHome(s.FS); err != nil {
		return err
	}
	if s.release, err = s.Lock(ctx); err != nil {
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
	if err := s.prepare(home.WorkspaceNames(s.Config)); err != nil {
		return err
	}
	names, err := s.Store.Workspaces(context.Background())
	if err == nil {
		err = s.prepare(names)
	}
	if err != nil {
		return err
	}
	s.admitAgents(s.Config)
	s.writeFilter()
	if s.keys, err = s.MakeKeys(); err != nil {
		return err
	}
	if s.audit, err = s.OpenAudit(s.keys); err != nil {
		return err
	}
	if err := s.CheckLog(ctx, s.keys, s.audit); err != nil {
		return err
	}
	if s.memory, err = s.NewMemory(s.keys, s.log); err != nil {
		return err
	}
	s.feed = newFeed(s.Home, s.audit)
	waiting, err := s.Viewer(s.keys).Waiting(ctx, nil)
	if err != nil {
		return err
	}
	s.metrics = newRequestMetrics(waiting)
	s.audit.OnEntry = func(e event.Entry) {
		s.memory.Observe(e)
		s.metrics.observe(e)
		s.feed.add(e)
	}
	s.audit.OnWritten = s.feed.written
	s.memory.Audit = s.audit.Append
	if err := s.memory.ApplyChanges(time.Now()); err != nil {
		return err
	}
	verifier, err := s.keys.Signer.Verifier()
	if err != nil {
		return err
	}
	s.runner = &exec.Runner{Verifier: verifier, TempDir: s.Layout.Run(), Log: s.log, MCP: mcpDialer{s.app.Version}, Supervisor: exec.Supervisor{Log: s.log}}
	s.pauseAudit = pauseAudit{store: s.Store, once: s.memory.AuditOnce}
	now, err := s.memory.Settings(s.Config)
	if err != nil {
		return err
	}
	s.Live.Set(now)
	s.health = s.NewHealth(s.app.Version)
	s.gate = s.newGate()
	if s.api, err = s.newAPI(); err != nil {
		return err
	}
	s.push = &pushes{server: s}
	s.ui = s.newUI()
	s.pending, err = s.gate.Start(context.Background())
	return err
}

// TuneRuntime sets what the environment leaves open.
func TuneRuntime(a *console.Console) {
	if a.Env("GOGC") == "" {
		tuneGC()
	}
	if a.Env("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0)) // disk I/O need not wait for computation
	}
}

// setDegraded reports to health whether the gate accepts new requests.
func (s *server) setDegraded(p gate.Degradation, present bool) {
	if present {
		s.health.Set("disk", "no new requests are accepted: "+p.Reason, console.Hints(p.Hint, "permesso doctor checks HOME"))
	} else {
		s.health.Clear("disk")
	}
}

// storageChanged tells the operator, and the approvers, that a workspace has used most of its
// budget on the disk, or all of it.
func (s *server) storageChanged(ws string, st gate.Storage) {
	issue, what := "storage of "+ws, "workspace '"+ws+"': "+st.String()
	switch {
	case st.Full:
		s.health.Set(issue, what, console.StorageHint)
	case st.Low:
		s.health.Note(issue, what, console.StorageHint)
	default:
		s.health.Clear(issue)
		return
	}
	if s.channels == nil { // as in changed
		s.log.Warn().Str("ws", ws).Str("hint", console.StorageHint).Msg(what)
		return
	}
	s.channels.alert("", ws, what+". "+console.StorageHint)
}

func (s *server) newGate() *gate.Gate {
	return &gate.Gate{
		Store: s.Store, Seal: s.keys.Seal, Receipts: s.keys.Signer,
		Grants: s.memory, Executor: s.runner, Planner: &s.planner, Audit: s.audit,
		Config: s.Live.Config, Pauses: &ipc.PauseGuard{Store: s.Store}, Words: chat.Words{}, Log: s.log, Changed: s.changed, Limited: s.limited,
		Host: home.NewHostFiles(s.Home), HoldsSecret: home.HoldsSecret, Head: s.logHead,
		ResponseRetention: s.Config.Retention.Responses, RecordRetention: s.Config.Retention.Records, Health: s.setDegraded, StorageChanged: s.storageChanged,
	}
}

// changed sends a hint. A channel with a full buffer finds the change by polling.
func (s *server) changed(k approval.Key) {
	s.api.Changed(k)
	s.ui.Changed(k)
	select {
	case s.changes <- k:
	default:
	}
	if s.channels != nil { // sweep has no channels
		s.channels.changed(k)
	}
}

func (s *server) limited(ws string) {
	if s.channels != nil { // as in changed
		s.channels.limited(ws)
	}
}

func (s *server) logStart() {
	s.warn(s.Config)
	s.warnScripted()
	s.log.Warn().Msg("agents running as this user can bypass the gate; run them in a container or under another UID")
	if os.Getuid() == 0 {
		s.log.Warn().Msg("running as root: approved requests run as root")
	}
	for name := range s.Config.Workspaces {
		if note := s.Store.RequestsWarning(name); note != "" {
			s.log.Warn().Str("ws", name).Msg(note)
		}
	}
	s.audit.Note(event.Entry{Time: time.Now().UTC(), Event: event.Started, Detail: s.app.Version})
	s.logAlarm()
	if s.Config.SHA256 != "" {
		s.audit.Note(event.Entry{Time: time.Now().UTC(), Event: event.Configured, Detail: "sha256 " + s.Config.SHA256})
	}
	if err := s.audit.Sync(); err != nil { // creates the log for readers
		s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("sync audit log failed")
	}
}

// errHomeGone means that the home is no longer the one that we locked.
var errHomeGone = errors.New("home removed or replaced while the daemon runs")

// run runs all parts and ends them in order: first the inputs, then the gate,
// which finishes what it has started.
func (s *server) run(ctx context.Context) error {
	if err := s.startSupervisor(s.Config); err != nil {
		return err
	}
	if err := s.watch(); err != nil {
		return err
	}
	parts, err := s.listen()
	if err != nil {
		return err
	}
	defer closeAll(parts)
	s.log.Info().Str("home", s.Layout.Home).Int("workspaces", len(s.Config.Workspaces)).Int("unfinished", len(s.pending)).Msg("serving")
	parts = append(parts, part{run: s.watcher.Run})
	var wg sync.WaitGroup
	errs := make(chan error, len(parts)+1)
	inner, quit := context.WithCancelCause(ctx)
	s.quit = quit
	stop := func() { quit(nil) }
	defer stop()
	for _, p := range parts {
		wg.Go(func() {
			defer stop()
			errs <- p.run(inner)
		})
	}
	wg.Go(func() { s.runPruner(inner) })
	wg.Go(func() { s.runReloads(inner) })
	wg.Go(func() { s.runWatchdog(inner) })
	wg.Go(func() { s.runNotes(inner) })
	if s.script == nil { // never channels with a script, even if configured later
		wg.Go(func() { s.channels.Run(inner) })
	}
	var terminal sync.WaitGroup // when it is done, the terminal has its old mode again
	switch {
	case s.script != nil:
		wg.Go(func() { s.newAnswerer().run(inner) })
	case console.IsTerminal(s.app.In):
		terminal.Go(func() { errs <- s.takeTerminal(inner) })
	}
	for _, note := range s.watcher.Notes() {
		s.log.Warn().EmbedObject(console.Advice{Err: note}).Msg(note.Error())
	}
	done := make(chan error, 1)
	go func() { done <- s.gate.Run(inner, s.pending) }()
	s.health.Refresh()
	s.notifyReady()
	<-inner.Done()
	s.notify(sd.SdNotifyStopping)
	if errors.Is(context.Cause(inner), errHomeGone) {
		terminal.Wait()
		return errHomeGone
	}
	s.runner.Leave()
	err = <-done
	wg.Wait()
	terminal.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

// startSupervisor starts the parent process of all commands, if a tool runs one.
func (s *server) startSupervisor(cfg *config.Config) error {
	runs := func(t approval.Tool) bool { return len(t.Handler.Argv) > 0 }
	if !slices.ContainsFunc(slices.Collect(maps.Values(cfg.Tools)), runs) {
		return nil
	}
	if err := s.runner.Supervisor.Start(); err != nil {
		return err
	}
	s.health.Update(func(r *home.HealthReport) {
		r.HandlerLimits, r.HandlerLimitsReason = s.runner.Supervisor.Limits()
	})
	return nil
}

func (s *server) close() error {
	s.pausing.Lock()
	err := s.pauseAudit.recordNew()
	s.pausing.Unlock()
	s.audit.Note(event.Entry{Time: time.Now().UTC(), Event: event.Stopped})
	if e := s.memory.SaveSnapshot(); e != nil {
		s.log.Warn().Err(e).Msg("write policy snapshot failed, the next start reads the whole log")
	}
	err = errors.Join(err, s.runner.Close(), s.audit.Close())
	s.log.Info().Msg("stopped")
	return errors.Join(err, s.release())
}

// terminalInput is what an approver types. A dumb terminal cannot show what is being typed
// below a new card, so nothing is read there.
func (s *server) terminalInput() io.Reader {
	if s.app.Dumb() {
		return nil
	}
	return s.app.In
}

// takeTerminal shows the screen, if there is one, and then the channel.
func (s *server) takeTerminal(ctx context.Context) error {
	if s.screen != nil {
		show := s.logWriter.hold()
		err := s.screen(ctx)
		show()
		switch {
		case errors.Is(err, ErrStop):
			s.quit(nil)
			return nil
		case err != nil:
			s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("terminal UI failed")
		}
	}
	return s.terminal(ctx)
}

// terminal runs the channel on the terminal that started the daemon.
func (s *server) terminal(ctx context.Context) error {
	names, style := s.local()
	c := &terminalchat.Channel{
		In: s.terminalInput(), Out: s.app.Out, Viewer: s.Viewer(s.keys), Records: s.Viewer(s.keys), Interceptor: s.interceptor(),
		Changes: s.changes, Person: home.Operator(), Workspaces: names,
		Style: style, Refresh: s.local,
		Foot: s.foot,
		Reveal: func(ctx context.Context, k approval.Key) (*approval.StoredPending, error) {
			c := &httpapi.Caller{Person: home.Operator(), Via: "terminal", Operator: true}
			return s.control.Reveal(ctx, c, k)
		},
		ProposeRule: func(ctx context.Context, k approval.Key) (chat.Proposal, error) {
			return s.control.ProposeRule(ctx, &httpapi.Caller{Person: home.Operator(), Via: "terminal", Operator: true}, k)
		},
		Color: s.app.Colors(),
		Wrap:  func(text string) string { return console.WrapText(text, console.Width(s.app.Out)) },
		Log: func(err error) {
			s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("terminal channel failed")
		},
	}
	if console.IsTerminal(s.logWriter.out) && console.IsTerminal(s.app.Out) {
		s.logWriter.above.Store(c)
		defer s.logWriter.above.Store(nil)
	}
	return c.Run(ctx)
}

// local returns workspaces and style of the terminal by the current configuration.
func (s *server) local() (workspaces []string, style chat.Style) {
	cfg := s.Current()
	for _, name := range home.WorkspaceNames(cfg) {
		if cfg.Workspaces[name].LocalDecisions {
			workspaces = append(workspaces, name)
		}
	}
	style = s.style("")
	style.Local = true
	return workspaces, style
}
