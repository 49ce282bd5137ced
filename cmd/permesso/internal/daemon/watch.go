package daemon

import (
	"context"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/watcher"
)

// settledEvery is how many rescans of a workspace pass between two thorough ones, which
// look at unchanged folders too and compare the responses with the records.
const settledEvery = 12

// watch adds all folders to the watcher, which turns files into keys.
func (s *server) watch() error {
	s.watcher = &watcher.Watcher{Wake: s.wake, Rescan: s.rescan, Log: s.log}
	if err := s.watcher.Add(watcher.Folder{Path: s.Layout.IPC(), Kind: "ipc", Trusted: true}); err != nil {
		return err
	}
	s.watchConfig()
	names, err := s.Store.Workspaces(context.Background())
	if err != nil {
		return err
	}
	for _, ws := range names {
		if err := s.watchWorkspace(ws); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) watchWorkspace(ws string) error {
	s.mu.Lock()
	_, known := s.rounds[ws]
	if !known {
		s.rounds[ws] = 0
	}
	s.mu.Unlock()
	if known {
		return nil
	}
	for _, f := range []watcher.Folder{
		{Path: s.Layout.Requests(ws), Kind: string(approval.DocRequest), Suffixes: []string{".json", ".cancel"}, IgnoreRemovals: true},
		{Path: s.Layout.Pendings(ws), Kind: string(approval.DocPending), Suffixes: []string{".json"}, Trusted: true},
		{Path: s.Layout.Decisions(ws), Kind: string(approval.DocDecision), Suffixes: []string{".json"}, Trusted: true},
		{Path: s.Layout.Responses(ws), Kind: string(approval.DocResponse), Suffixes: []string{".json"}, Trusted: true},
	} {
		f.Group = ws
		if err := s.watcher.Add(f); err != nil {
			return err
		}
	}
	return nil
}

// wake runs in the watcher's loop and only forwards hints. Names that are not
// request ids are left to the next rescan.
func (s *server) wake(ws, kind, name string) {
	switch ws {
	case configGroup:
		hint(s.configHint) // not here, in the watcher's loop
		return
	case mailGroup:
		hint(s.mails[kind])
		return
	case "":
		return // a new workspace folder: the rescan that follows finds it
	}
	id, _, _ := strings.Cut(name, ".")
	k := approval.Key{Workspace: ws, ID: id}
	if kind == string(approval.DocDecision) {
		s.ui.Changed(k) // a decision, by any process
	}
	if kind == string(approval.DocRequest) {
		s.gate.Wake(k)
	} else {
		s.gate.Hint(k, approval.Doc(kind))
	}
}

func (s *server) rescan(ws string, changed bool) {
	if !s.Store.Held() {
		s.quit(errHomeGone)
		return
	}
	switch ws {
	case "":
		if err := s.audit.Checkpoint(); err != nil {
			s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("sign audit log failed")
		}
		if err := s.memory.ApplyChanges(time.Now()); err != nil {
			s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("apply grants failed")
		}
		s.findWorkspaces()
		hint(s.pauseHint)  // an operator may write or remove its files by hand
		hint(s.configHint) // also if no folder of it can be watched
		return
	case configGroup:
		hint(s.configHint)
		return
	case mailGroup:
		hint(s.mails[StoreInbox])
		hint(s.mails[kindMaildir])
		return
	}
	thorough := s.countRound(ws)
	if !changed && !thorough {
		return // no new name, and what the known ones wait for wakes them
	}
	err := s.gate.Rescan(context.Background(), ws)
	if err == nil && thorough {
		err = s.gate.RescanSettled(context.Background(), ws)
	}
	if err != nil {
		s.setThorough(ws)
		s.log.Error().Str("ws", ws).Err(err).EmbedObject(console.Advice{Err: err}).Msg("rescan workspace failed")
	}
}

// countRound reports whether a rescan of a workspace is a thorough one.
func (s *server) countRound(ws string) (thorough bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds[ws]++
	return s.rounds[ws]%settledEvery == 0
}

// setThorough makes the next rescan of a workspace a thorough one.
func (s *server) setThorough(ws string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds[ws] = -1
}

// hint wakes the reader of a channel with room for one signal, once for many hints.
func hint(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default: // a signal is pending already, or to is nil
	}
}

// runReloads runs the requested checks until ctx ends.
func (s *server) runReloads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pauseHint:
			s.refreshPauses()
		case <-s.configHint:
			s.reload()
		case <-s.hangup:
			s.seenConfig = "" // reload it even if unchanged
			s.reload()
		}
	}
}

// findWorkspaces adds workspace folders that were created at run time. Requests
// of an unconfigured workspace are refused.
func (s *server) findWorkspaces() {
	names, err := s.Store.Workspaces(context.Background())
	if err != nil {
		s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("list workspaces failed")
		return
	}
	for _, ws := range names {
		s.mu.Lock()
		_, known := s.rounds[ws]
		s.mu.Unlock()
		if known {
			continue
		}
		if err := s.Layout.Prepare(s.FS, ws); err != nil {
			s.log.Error().Str("ws", ws).Err(err).EmbedObject(console.Advice{Err: err}).Msg("prepare workspace failed")
			continue
		}
		if _, ok := s.Current().Workspaces[ws]; !ok {
			s.log.Warn().Str("ws", ws).Msg("workspace not configured: its requests are refused")
		}
		if err := s.watchWorkspace(ws); err != nil {
			s.log.Error().Str("ws", ws).Err(err).EmbedObject(console.Advice{Err: err}).Msg("watch workspace failed")
		}
	}
}
