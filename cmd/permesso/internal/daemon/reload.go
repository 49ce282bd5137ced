package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/watcher"
)

// configGroup is the watcher's group of the configuration's folders. No
// workspace can have this name.
const configGroup = ".config"

// watchConfig watches every folder in which a change can replace the
// configuration: its own and, for symbolic links as in containers, that of each
// link and each target.
func (s *server) watchConfig() {
	file := s.Current().File
	if file == "" {
		return // every rescan looks for it
	}
	dirs := linkFolders(file)
	if slices.Equal(dirs, s.configDirs) {
		return
	}
	s.configDirs = dirs
	s.watcher.Remove(configGroup)
	for _, dir := range dirs {
		if err := s.watcher.Add(watcher.Folder{Path: dir, Group: configGroup, Kind: "config", Trusted: true}); err != nil {
			s.log.Warn().Err(err).EmbedObject(console.Advice{Err: err}).Msg("watch configuration failed, polling every few seconds")
		}
	}
}

// linkFolders returns the real folders of file and of every link on its path.
func linkFolders(file string) (dirs []string) {
	for range 40 { // the kernel's limit of links
		dir, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			return dirs
		}
		if dir, err = filepath.Abs(dir); err == nil && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		to, err := os.Readlink(filepath.Join(dir, filepath.Base(file)))
		if err != nil {
			// The file itself; a link among its folders may be replaced, too.
			if up := filepath.Dir(filepath.Dir(file)); filepath.Dir(file) != dir && up != "" {
				if up, err = filepath.EvalSymlinks(up); err == nil && !slices.Contains(dirs, up) {
					dirs = append(dirs, up)
				}
			}
			return dirs
		}
		if !filepath.IsAbs(to) {
			// Join with the unresolved folder: that link may be replaced too.
			to = filepath.Join(filepath.Dir(file), to)
		}
		file = to
	}
	return dirs
}

// settleTime is how long a file must stay unchanged. An editor that writes in
// place truncates it first, and an empty file is a valid configuration.
const settleTime = 100 * time.Millisecond

// reload reads the configuration again if it changed, and applies all of it or
// nothing. An error keeps the old configuration and is reported once.
func (s *server) reload() {
	file, err := config.Locate(s.app.ConfigFlag, s.app.Env)
	if err == nil && file == "" && s.Current().File != "" {
		err = fmt.Errorf("%s: configuration file was removed", s.Current().File)
	}
	var data []byte
	if err == nil && file != "" { // otherwise there was no file and still is none
		data, err = readSettled(file, s.seenConfig)
	}
	seen := contentID(file, data)
	if err != nil {
		seen = err.Error()
	}
	if seen == s.seenConfig {
		return
	}
	s.seenConfig = seen
	s.notifyReloading()
	defer s.notifyReady()
	if err == nil {
		err = s.applyConfig(file, data)
	}
	if err != nil {
		s.refuseConfig(err)
		return
	}
	s.health.Clear("config")
}

// contentID identifies a file with its content; " " means no file.
func contentID(file string, data []byte) string {
	if file == "" {
		return " "
	}
	return file + " " + approval.Digest(data)
}

// readSettled reads a file when no process is writing it. It does not wait if
// the content is the one in seen.
func readSettled(file, seen string) (data []byte, err error) {
	for range 50 {
		if data, err = os.ReadFile(file); err != nil || contentID(file, data) == seen {
			return data, err
		}
		time.Sleep(settleTime)
		again, err := os.ReadFile(file)
		if err == nil && bytes.Equal(data, again) {
			break
		}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: configuration file is empty", file)
	}
	return data, nil
}

// applyConfig applies the configuration in file.
func (s *server) applyConfig(file string, data []byte) error {
	next, err := home.Reader(s.app).Load(file)
	if err != nil {
		return err
	}
	if err := s.scriptAllows(next); err != nil {
		return err
	}
	before := s.Current()
	if file != "" && next.SHA256 != approval.Digest(data) {
		s.seenConfig = "" // it changed again: the next check reads it
		return fmt.Errorf("%s: changed while it was read", file)
	}
	if next.SHA256 == before.SHA256 && next.File == before.File {
		s.log.Info().Str("file", file).Msg("configuration unchanged")
		return nil // an error was reverted, or a reload was requested without a change
	}
	for _, key := range before.RestartNeeded(next) {
		s.log.Warn().Msg(key + ": change takes effect after a restart")
	}
	next.GateName = before.GateName // it signs receipts and checkpoints
	if err = s.prepare(home.WorkspaceNames(next)); err == nil {
		err = s.startSupervisor(next)
	}
	if err != nil {
		return err
	}
	now, err := s.memory.Settings(next)
	if err != nil {
		return err
	}
	s.Live.Set(now)
	s.runner.Use(next.Tools)
	s.logWriter.set(next.LogLevel, next.LogFormat)
	s.watchConfig()
	s.gate.Reconfigured()
	s.findWorkspaces()
	s.admitAgents(next)
	s.health.Use(next)
	s.audit.Note(event.Entry{Time: time.Now().UTC(), Event: event.Configured, Detail: "sha256 " + next.SHA256})
	s.warn(next)
	for name := range before.Workspaces {
		if _, ok := next.Workspaces[name]; !ok {
			s.log.Warn().Str("ws", name).Msg("workspace no longer configured: requests are refused, folders are kept")
		}
	}
	s.log.Info().Str("file", file).Str("sha256", next.SHA256).Int("workspaces", len(next.Workspaces)).Msg("configuration reloaded")
	hint(s.channels.configChanged)
	s.changed(approval.Key{})
	return nil
}

// prepare creates the folders of workspaces, and checks that they are private.
func (s *server) prepare(names []string) error {
	for _, name := range names {
		if err := errors.Join(s.Layout.Prepare(s.FS, name), s.Layout.CheckPrivate(s.FS, name)); err != nil {
			return err
		}
	}
	return nil
}

// admitAgents lets the agents of agent_uid, and no longer those of before, reach their
// folders. An agent that cannot reach them is an error of the log: the daemon serves the
// others.
func (s *server) admitAgents(cfg *config.Config) {
	names, err := s.Store.Workspaces(context.Background())
	agents := map[string][]uint32{}
	for _, ws := range names {
		agents[ws] = cfg.AgentsOf(ws)
	}
	if err = errors.Join(err, s.Layout.AdmitAgents(agents)); err != nil {
		s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("admit agents failed")
		return
	}
	for ws, uids := range agents {
		for _, uid := range uids {
			if err := s.Layout.CheckAgentPath(ws, uid); err != nil {
				s.log.Warn().Str("ws", ws).EmbedObject(console.Advice{Err: err}).Msg(err.Error())
			}
		}
	}
}

// writeFilter writes the filter of the agents' sandboxes. Without it none of them starts, and
// the daemon goes on.
func (s *server) writeFilter() {
	if err := sandbox.WriteFilter(s.Layout); err != nil {
		s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("write the filter failed")
	}
}

// refuseConfig reports every error of a refused configuration.
func (s *server) refuseConfig(err error) {
	const refused = "configuration change refused, the old one stays active: "
	all := hints.Split(err)
	if issues, ok := errors.AsType[*config.Error](err); ok {
		all = nil
		for _, p := range issues.Errors {
			all = append(all, p.Format(issues.File))
		}
	}
	for _, e := range all {
		s.log.Error().EmbedObject(console.Advice{Err: e}).Msg(refused + e.Error())
	}
	what := refused + all[0].Error()
	if len(all) > 1 {
		what += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	s.health.Set("config", what, console.Hints(console.HintFor(all[0]), "permesso config check"))
}

func (s *server) warn(cfg *config.Config) {
	for _, w := range cfg.Warnings {
		issue := w.Format(cfg.File)
		s.log.Warn().EmbedObject(console.Advice{Err: issue}).Msg(issue.Error())
	}
}
