package main

import (
	"context"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/watcher"
)

// settledEvery is how many rescans of a workspace pass between two comparisons
// of its responses with its records.
const settledEvery = 12

// pauseGroup is the watcher's group of the folder of pauses: no workspace can
// be called so.
const pauseGroup = ".pause"

// watch turns files into keys.
func (s *server) watch() error {
	s.watcher = &watcher.Watcher{Wake: s.wake, Rescan: s.rescan, Log: s.log}
	if err := s.watcher.Add(watcher.Folder{Path: s.layout.IPC(), Kind: "ipc", Trusted: true}); err != nil {
		return err
	}
	if err := s.watcher.Add(watcher.Folder{Path: s.layout.Pauses(), Group: pauseGroup, Kind: "pause", Suffixes: []string{".json"}, Trusted: true}); err != nil {
		return err
	}
	s.watchConfig()
	names, err := s.store.Workspaces()
	if err != nil {
		return err
	}
	for _, ws := range names {
		if err := s.watchWorkspace(ws); err != nil {
			return err
		}
	}
	return s.watcher.Add(watcher.Folder{Path: s.layout.Grants(), Kind: kindGrants, Suffixes: []string{".json", ".clear"}, Trusted: true})
}

// kindGrants is the watcher's word for what other processes leave in grants/.
const kindGrants = "grants"

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
		{Path: s.layout.Requests(ws), Kind: string(approval.DocRequest), Suffixes: []string{".json", ".cancel"}},
		{Path: s.layout.Pendings(ws), Kind: string(approval.DocPending), Suffixes: []string{".json"}, Trusted: true},
		{Path: s.layout.Decisions(ws), Kind: string(approval.DocDecision), Suffixes: []string{".json"}, Trusted: true},
		{Path: s.layout.Responses(ws), Kind: string(approval.DocResponse), Suffixes: []string{".json"}, Trusted: true},
	} {
		f.Group = ws
		if err := s.watcher.Add(f); err != nil {
			return err
		}
	}
	return nil
}

// wake runs in the watcher's loop: it only takes note. Names that are no
// request's are left to the next rescan.
func (s *server) wake(ws, kind, name string) {
	if kind == kindGrants {
		select {
		case s.grants <- struct{}{}:
		default: // somebody has knocked already
		}
		return
	}
	switch ws {
	case pauseGroup, configGroup:
		s.look(ws) // not here: this is the watcher's loop
		return
	case mailGroup:
		s.mails.knock(kind)
		return
	case "":
		return // a new workspace folder: the rescan that follows finds it
	}
	id, _, _ := strings.Cut(name, ".")
	k := approval.Key{Workspace: ws, ID: id}
	if kind == string(approval.DocDecision) {
		s.ui.Changed(k) // somebody has decided, in whatever process
	}
	if kind == string(approval.DocRequest) {
		s.gate.Wake(k)
	} else {
		s.gate.Hint(k, approval.Doc(kind))
	}
}

func (s *server) rescan(ws string) {
	if !s.store.Held() {
		s.quit(errHomeGone)
		return
	}
	switch ws {
	case "":
		if err := s.audit.Checkpoint(); err != nil {
			s.log.Error().Err(err).EmbedObject(advice{err}).Msg("sign the audit log")
		}
		s.heed()
		s.findWorkspaces()
		return
	case pauseGroup, configGroup:
		s.look(pauseGroup)
		s.look(configGroup) // also where no folder of it can be watched
		return
	case mailGroup:
		s.mails.knock(drawerInbox)
		s.mails.knock(kindMaildir)
		return
	}
	s.mu.Lock()
	s.rounds[ws]++
	thorough := s.rounds[ws]%settledEvery == 0
	s.mu.Unlock()
	err := s.gate.Rescan(ws)
	if err == nil && thorough {
		err = s.gate.RescanSettled(ws)
	}
	if err != nil {
		s.log.Error().Str("ws", ws).Err(err).EmbedObject(advice{err}).Msg("rescan")
	}
}

// heed takes in what other processes left in grants/.
func (s *server) heed() {
	if err := s.memory.heed(time.Now(), s.audit.Append); err != nil {
		s.log.Error().Err(err).EmbedObject(advice{err}).Msg("look at grants")
	}
}

// heedGrants does so as soon as something moves there.
func (s *server) heedGrants(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.grants:
			s.heed()
		}
	}
}

// look has the pauses or the configuration looked at soon, once for many hints.
func (s *server) look(group string) {
	wanted := s.pauseHint
	if group == configGroup {
		wanted = s.configHint
	}
	select {
	case wanted <- struct{}{}:
	default:
	}
}

// lookAround does what look asks for, until ctx ends.
func (s *server) lookAround(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pauseHint:
			s.lookAtPauses()
		case <-s.configHint:
			s.reload()
		}
	}
}

// findWorkspaces takes up folders that somebody made while we run. One that the
// configuration does not know asks nobody: its requests are refused.
func (s *server) findWorkspaces() {
	names, err := s.store.Workspaces()
	if err != nil {
		s.log.Error().Err(err).EmbedObject(advice{err}).Msg("list workspaces")
		return
	}
	for _, ws := range names {
		s.mu.Lock()
		_, known := s.rounds[ws]
		s.mu.Unlock()
		if known {
			continue
		}
		if err := s.layout.Prepare(s.fs, ws); err != nil {
			s.log.Error().Str("ws", ws).Err(err).EmbedObject(advice{err}).Msg("prepare workspace")
			continue
		}
		if _, ok := s.conf().Workspaces[ws]; !ok {
			s.log.Warn().Str("ws", ws).Msg("a workspace that the configuration does not know: its requests are refused")
		}
		if err := s.watchWorkspace(ws); err != nil {
			s.log.Error().Str("ws", ws).Err(err).EmbedObject(advice{err}).Msg("watch workspace")
		}
	}
}
