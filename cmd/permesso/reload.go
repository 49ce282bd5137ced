package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/watcher"
)

// settings answers from one configuration, which nobody changes.
type settings struct {
	cfg    *config.Config
	policy gate.Policy // nil: for looking things up only
}

// settingsOf looks things up in a configuration.
func settingsOf(cfg *config.Config) *settings { return &settings{cfg: cfg} }

// judging are settings with policy by the same configuration.
func (s *server) judging(cfg *config.Config) (*settings, error) {
	view, err := s.memory.View(cfg.PolicyConfig())
	if err != nil {
		return nil, err
	}
	return &settings{cfg, &judge{s.memory, view}}, nil
}

// judge is policy by one configuration.
type judge struct {
	*memory
	view *policy.View
}

func (j *judge) Judge(f approval.Facts) approval.Ruling { return j.view.Judge(f) }

// Reserve reads the grant that a ruling rests on once more: what was revoked a
// moment ago holds no more, whoever did it.
func (j *judge) Reserve(f approval.Facts, r approval.Ruling, human bool) (undo func(), refused *approval.Ruling) {
	if r.Grant != "" && !human {
		j.fresh(r.Grant)
	}
	return j.view.Reserve(f, r, human)
}

func (s *settings) Workspace(name string) (approval.Workspace, bool) {
	ws, ok := s.cfg.Workspaces[name]
	return ws, ok
}

func (s *settings) Tool(name string) (approval.Tool, bool) {
	t, ok := s.cfg.Tools[name]
	return t, ok
}

// Provers implements the gate's Believer.
func (s *settings) Provers() approval.Provers { return s.cfg.Provers }

// live is the settings that hold now: the one pointer that a reload swaps.
type live struct{ now atomic.Pointer[settings] }

func (l *live) Workspace(name string) (approval.Workspace, bool) { return l.now.Load().Workspace(name) }
func (l *live) Tool(name string) (approval.Tool, bool)           { return l.now.Load().Tool(name) }

// Provers implements the gate's Believer.
func (l *live) Provers() approval.Provers { return l.now.Load().Provers() }

// The gate's Policy: what holds now.
func (l *live) Judge(f approval.Facts) approval.Ruling { return l.now.Load().policy.Judge(f) }

func (l *live) Reserve(f approval.Facts, r approval.Ruling, human bool) (undo func(), refused *approval.Ruling) {
	return l.now.Load().policy.Reserve(f, r, human)
}

func (l *live) Recurrence(ws, capability, tool, target string) int {
	return l.now.Load().policy.Recurrence(ws, capability, tool, target)
}

// Moment implements the gate's Moment.
func (l *live) Snapshot() (gate.Settings, gate.Policy) {
	now := l.now.Load()
	return now, now.policy
}

// conf is the configuration as it is now; in anything but a daemon, as it was
// read.
func (h *house) conf() *config.Config {
	if now := h.live.now.Load(); now != nil {
		return now.cfg
	}
	return h.cfg
}

// configGroup is the watcher's group of the folders that lead to the
// configuration: no workspace can be called so.
const configGroup = ".config"

// afresh makes a decider for each decision, with what holds then.
type afresh func() *gate.Decider

func (f afresh) Decide(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error) {
	return f().Decide(ctx, a)
}

// Standing says what Decide would refuse.
func (f afresh) Standing(ctx context.Context, a approval.DecisionInput) error {
	return f().CanDecide(ctx, a)
}

// watchConfig watches every folder in which a change can put another file in
// the configuration's place: its own, and, where it is a symbolic link as in
// containers, that of each link and of what the links lead to.
func (s *server) watchConfig() {
	file := s.conf().File
	if file == "" {
		return // it is looked for at every rescan
	}
	dirs := wayTo(file)
	if slices.Equal(dirs, s.confDirs) {
		return
	}
	s.confDirs = dirs
	s.watcher.Remove(configGroup)
	for _, dir := range dirs {
		if err := s.watcher.Add(watcher.Folder{Path: dir, Group: configGroup, Kind: "config", Trusted: true}); err != nil {
			s.log.Warn().Err(err).Msg("the configuration is not watched, but looked at every few seconds")
		}
	}
}

// wayTo lists the real folders that hold file and every link on the way to it.
func wayTo(file string) (dirs []string) {
	for range 40 { // as many links as a kernel follows
		dir, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			return dirs
		}
		if dir, err = filepath.Abs(dir); err == nil && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		to, err := os.Readlink(filepath.Join(dir, filepath.Base(file)))
		if err != nil {
			// The file itself; a link among its folders may be exchanged, too.
			if up := filepath.Dir(filepath.Dir(file)); filepath.Dir(file) != dir && up != "" {
				if up, err = filepath.EvalSymlinks(up); err == nil && !slices.Contains(dirs, up) {
					dirs = append(dirs, up)
				}
			}
			return dirs
		}
		if !filepath.IsAbs(to) {
			// Not joined to the resolved folder: what is exchanged may be that one.
			to = filepath.Join(filepath.Dir(file), to)
		}
		file = to
	}
	return dirs
}

// settleTime is how long a file must have stayed the same: an editor that writes
// in place empties it first, and nothing is a valid configuration too.
const settleTime = 100 * time.Millisecond

// reload reads the configuration anew if it changed. All of it is taken over or
// nothing: a mistake keeps what holds, and is told once.
func (s *server) reload() {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	file, err := config.Locate(s.app.configFlag, s.app.Env)
	if err == nil && file == "" && s.conf().File != "" {
		err = fmt.Errorf("%s: the file is gone", s.conf().File)
	}
	var data []byte
	if err == nil && file != "" { // otherwise there was none, and there is none
		data, err = readSettled(file, s.confSeen)
	}
	seen := confName(file, data)
	if err != nil {
		seen = err.Error()
	}
	if seen == s.confSeen {
		return
	}
	s.confSeen = seen
	s.notifyReloading()
	defer s.notifyReady()
	if err == nil {
		err = s.takeOver(file, data)
	}
	if err != nil {
		s.refuseConfig(err)
		return
	}
	s.health.Clear("config")
}

// confName tells one content of one file from every other; " " is that of none.
func confName(file string, data []byte) string {
	if file == "" {
		return " "
	}
	return file + " " + approval.Digest(data)
}

// readSettled reads a file that nobody is writing just now. Where it is the one
// that was seen before, there is no need to wait.
func readSettled(file, seen string) (data []byte, err error) {
	for range 50 {
		if data, err = os.ReadFile(file); err != nil || confName(file, data) == seen {
			return data, err
		}
		time.Sleep(settleTime)
		again, err := os.ReadFile(file)
		if err == nil && bytes.Equal(data, again) {
			break
		}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: the file is empty", file)
	}
	return data, nil
}

// takeOver makes the configuration in file the one that holds.
func (s *server) takeOver(file string, data []byte) error {
	next, err := s.app.reader().Load(file)
	if err != nil {
		return err
	}
	if err := s.scriptAllows(next); err != nil {
		return err
	}
	before := s.conf()
	if file != "" && next.SHA256 != approval.Digest(data) {
		s.confSeen = "" // it changed once more: the next look finds it
		return fmt.Errorf("%s: it changes while it is read", file)
	}
	if next.SHA256 == before.SHA256 && next.File == before.File {
		s.log.Info().Str("file", file).Msg("the configuration is as it was")
		return nil // a mistake was taken back, or somebody only asked
	}
	if next.GateName != before.GateName {
		s.log.Warn().Msg("gate: the name that signs receipts cannot change while it runs; restart permesso serve")
		next.GateName = before.GateName
	}
	for what, changed := range map[string]bool{
		"retention": next.Retention != before.Retention, "socket": next.Socket != before.Socket,
		"ui":     next.UI != before.UI || next.UIStated != before.UIStated,
		"listen": !slices.Equal(next.Listen, before.Listen), "listen_hosts": !slices.Equal(next.ListenHosts, before.ListenHosts),
	} {
		if changed {
			s.log.Warn().Msg(what + ": what changed there holds from the next start on")
		}
	}
	if err := s.furnish(next); err != nil {
		return err
	}
	now, err := s.judging(next)
	if err != nil {
		return err
	}
	s.live.now.Store(now)
	s.logTo.set(next.LogLevel, next.LogFormat)
	s.watchConfig()
	s.gate.Reconfigured()
	s.findWorkspaces()
	s.health.configured(next.SHA256)
	s.audit.Note(approval.Entry{Time: time.Now().UTC(), Event: approval.EventConfigured, Detail: "sha256 " + next.SHA256})
	s.warn(next)
	for name := range before.Workspaces {
		if _, ok := next.Workspaces[name]; !ok {
			s.log.Warn().Str("ws", name).Msg("no longer configured: its requests are refused, its folders stay")
		}
	}
	s.log.Info().Str("file", file).Str("sha256", next.SHA256).Int("workspaces", len(next.Workspaces)).Msg("the configuration was read anew")
	s.reach.reconfigured()
	s.changed(approval.Key{})
	return nil
}

// furnish makes what a configuration needs before anybody may rely on it.
func (s *server) furnish(cfg *config.Config) error {
	for _, name := range sortedNames(cfg) {
		if err := errors.Join(s.layout.Prepare(s.fs, name), s.layout.CheckPrivate(s.fs, name)); err != nil {
			return err
		}
	}
	return s.startSupervisor(cfg)
}

// refuseConfig tells what is wrong and where, and that the old one holds.
func (s *server) refuseConfig(err error) {
	const refused = "the configuration was changed and is refused, the one before it holds: "
	lines := []string{err.Error()}
	if all, ok := errors.AsType[*config.Error](err); ok {
		lines = nil
		for _, p := range all.Errors {
			lines = append(lines, strings.ReplaceAll(p.In(all.File), "\n", "; "))
		}
	}
	for _, line := range lines {
		s.log.Error().Msg(refused + line)
	}
	what := refused + lines[0]
	if len(lines) > 1 {
		what += fmt.Sprintf(" (and %d more)", len(lines)-1)
	}
	s.health.Set("config", what, "permesso config check")
}

func (s *server) warn(cfg *config.Config) {
	for _, w := range cfg.Warnings {
		s.log.Warn().Msg(strings.ReplaceAll(w.In(cfg.File), "\n", "; "))
	}
}
