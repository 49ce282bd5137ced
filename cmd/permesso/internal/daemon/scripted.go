package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// readScript reads the script of --script; nil without one. The home and the
// configuration must be given explicitly, so that a script never decides in a
// production home.
func readScript(a *console.Console, file string, cfg *config.Config) (*config.Script, error) {
	switch {
	case file == "":
		return nil, nil
	case a.HomeFlag == "" && a.Env("PERMESSO_HOME") == "":
		return nil, console.Fail(console.ExitUsage, "set --home to a new folder", "--script needs its own home")
	case cfg.File != "" && a.ConfigFlag == "" && a.Env("PERMESSO_CONFIG") == "":
		return nil, console.Fail(console.ExitUsage, "set --config to a file for tests; its tools are really run", "--script needs an explicit --config, not the default %s", cfg.File)
	}
	sc, err := config.LoadScript(file)
	if err != nil {
		return nil, err
	}
	return sc, (&server{script: sc}).scriptAllows(cfg)
}

// scriptAllows refuses a configuration in which people would be asked besides
// the script: they could take its decisions for another person's.
func (s *server) scriptAllows(cfg *config.Config) error {
	if s.script == nil {
		return nil
	}
	for _, name := range home.WorkspaceNames(cfg) {
		if ws := cfg.Workspaces[name]; len(ws.Channels) > 0 {
			return console.Fail(console.ExitError, "remove channels from [workspaces."+name+"]", "workspace '%s' has channels %s: not allowed with --script", name, strings.Join(ws.Channels, ", "))
		}
	}
	for _, k := range kinds() {
		if k.settings(cfg) != nil {
			return console.Fail(console.ExitError, "remove channels."+k.name+" from the configuration", "channel %s is configured: not allowed with --script", k.name)
		}
	}
	if cfg.Socket != "" {
		return console.Fail(console.ExitError, "remove socket from the configuration", "socket %s is configured: not allowed with --script", cfg.Socket)
	}
	return nil
}

// markScripted separates homes in which scripts decide from all others, forever:
// a script's grant must never allow anything in production. The caller holds the
// home's lock.
func (s *server) markScripted() error {
	by, err := s.Scripted()
	switch {
	case err != nil:
		return fmt.Errorf("read script marker: %w", err)
	case s.script == nil && by != "":
		return console.Fail(console.ExitError, "use another --home, or --script", "%s decided in %s: this home cannot be served without --script", by, s.Layout.Home)
	case s.script == nil:
		return nil
	case by == "":
		// A home with keys has documents that people decided.
		keys, err := os.ReadDir(s.Layout.Keys())
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			return console.Fail(console.ExitError, "set --home to a new folder", "people decide in %s: this home cannot be served with --script", s.Layout.Home)
		}
	}
	return s.writeMark()
}

// writeMark makes the marker durable before keys are created.
func (s *server) writeMark() error {
	text := fmt.Sprintf("script:%s\nA script decides in this home instead of people. Use it only for tests.\n", s.script.Name)
	file, err := s.FS.OpenFile(s.Layout.Scripted(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write script marker: %w", err)
	}
	_, err = file.Write([]byte(text))
	if err := errors.Join(err, file.Sync(), file.Close(), s.FS.SyncDir(s.Layout.Home)); err != nil {
		return fmt.Errorf("write script marker: %w", err)
	}
	return nil
}

// warnScripted prints a banner that is hard to overlook.
func (s *server) warnScripted() {
	if s.script == nil {
		return
	}
	name := scriptedName(s.script)
	bar := strings.Repeat("!", 78)
	fmt.Fprintf(s.app.Out, "%s\n!!  NO APPROVER: %s decides.\n!!  Use this daemon only to test agents.\n%[1]s\n", bar, name)
	s.log.Warn().Str("by", name).Str("sha256", s.script.SHA256).Msg("NO APPROVER: a script decides; use this daemon only for tests")
	s.health.Set("script", name+" decides instead of people", "for tests only; otherwise serve another home without --script")
	s.audit.Note(event.Entry{Time: time.Now().UTC(), Event: event.Configured, Detail: "script sha256 " + s.script.SHA256})
}

const scriptChannel = "script"

func scriptedName(sc *config.Script) string { return scriptChannel + ":" + sc.Name }

// scriptedApprover is the script as a person. No configuration knows this person:
// only the authorizer of a daemon with this script accepts it.
func scriptedApprover(sc *config.Script) approval.Person {
	return approval.Person{Channel: scriptChannel, ID: sc.SHA256[:16], Name: scriptedName(sc)}
}

func (s *server) newAnswerer() *answerer {
	return &answerer{
		script: s.script, viewer: s.Viewer(s.keys), decider: s.gateDecider(), changes: s.changes, log: s.log,
		used: make([]int, len(s.script.Rules)), replies: map[approval.Key]*reply{},
	}
}

// answerer decides pending requests by a script. Its state is in memory: a
// restarted daemon starts the script again.
type answerer struct {
	script  *config.Script
	viewer  *read.Viewer
	decider chat.Decider
	changes <-chan approval.Key // hints, which may be lost
	log     zerolog.Logger

	used    []int // how often each rule was used
	replies map[approval.Key]*reply
}

// reply is the planned decision on one request.
type reply struct {
	sha  string // digest of the pending request
	rule config.ScriptRule
	name string
	due  time.Time
	done bool
}

// checkInterval is the longest interval between two checks of all pending requests.
const checkInterval = time.Second

func (x *answerer) run(ctx context.Context) {
	for {
		x.checkAll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-x.changes:
			for len(x.changes) > 0 {
				<-x.changes // one check answers for all
			}
		case <-time.After(x.answerDue(ctx, time.Now())):
		}
	}
}

func (x *answerer) checkAll(ctx context.Context) {
	list, err := x.viewer.Waiting(ctx, nil)
	if err != nil {
		x.log.Error().Err(err).Str("via", scriptChannel).Msg("list pending requests failed")
		return
	}
	for k := range x.replies {
		if !slices.ContainsFunc(list, func(w approval.StoredPending) bool { return w.Key() == k }) {
			delete(x.replies, k)
		}
	}
	for _, w := range list {
		x.plan(w)
	}
}

func (x *answerer) plan(w approval.StoredPending) {
	k := w.Key()
	if old := x.replies[k]; old != nil && old.sha == w.SHA256 {
		return
	}
	p := &reply{sha: w.SHA256, rule: x.script.Default, name: "otherwise"}
	for i, r := range x.script.Rules {
		if r.Matches(w.Pending) && (r.Times == 0 || x.used[i] < r.Times) {
			x.used[i]++
			p.rule, p.name = r, fmt.Sprintf("rule %d", i+1)
			break
		}
	}
	p.due = w.Pending.Timestamp.Add(p.rule.Delay)
	x.replies[k] = p
}

// answerDue applies what is due, and returns the time until the next.
func (x *answerer) answerDue(ctx context.Context, now time.Time) (next time.Duration) {
	next = checkInterval
	for k, p := range x.replies {
		if wait := p.due.Sub(now); !p.done && wait > 0 {
			next = min(next, wait)
		} else if !p.done {
			p.done = x.answer(ctx, k, p)
		}
	}
	return next
}

// answer applies a planned decision. If it is not applicable to the request, the
// script denies it with that reason.
func (x *answerer) answer(ctx context.Context, k approval.Key, p *reply) (done bool) {
	a, speaks := p.rule.Decision(k)
	if !speaks {
		return true
	}
	a.PendingSHA256, a.By, a.Via = p.sha, scriptedApprover(x.script), scriptChannel
	_, err := x.decider.Decide(ctx, a)
	if errors.Is(err, decide.ErrNotApplicable) {
		no := decide.Input{Key: k, PendingSHA256: p.sha, By: a.By, Via: a.Via, Verdict: approval.Denied, Code: "3"}
		no.Feedback = fmt.Sprintf("%s of the script is not applicable: %s", p.name, err)
		_, err = x.decider.Decide(ctx, no)
	}
	if _, refused := errors.AsType[*decide.Refusal](err); refused || err == nil {
		return true // already decided or expired
	}
	x.log.Error().Err(err).Str("ws", k.Workspace).Str("id", k.ID).Str("via", scriptChannel).Msg("decide by script failed")
	return false
}
