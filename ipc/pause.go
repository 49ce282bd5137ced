package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/store"
)

// AllWorkspaces is the name under which all workspaces are paused at once. No workspace
// can have it.
const AllWorkspaces = "_all"

// Pause is one pause: while its file is in HOME/pause, nothing is started in that
// workspace. Only the presence of the file counts; its content is for people.
type Pause struct {
	ID        string    `json:"id"` // tells two pauses of one workspace apart
	Workspace string    `json:"workspace"`
	By        string    `json:"by"`
	Via       string    `json:"via,omitzero"` // "" or cli: the command line
	At        time.Time `json:"at"`
	Reason    string    `json:"reason,omitzero"`
}

// Resumed is an ended pause. It is kept until the audit log has both entries.
type Resumed struct {
	Pause Pause     `json:"pause"`
	By    string    `json:"by"`
	Via   string    `json:"via,omitzero"` // "" or cli: the command line
	At    time.Time `json:"at"`
}

// Pauses is the folder of pauses: WORKSPACE.json each, or _all.json.
func (l Layout) Pauses() string { return l.path("pause") }

// EndedPauses is the folder of ended pauses that are not yet in the log.
func (l Layout) EndedPauses() string { return l.path("pause", "ended") }

func (l Layout) pause(name string) string    { return l.path("pause", name+docSuffix) }
func (l Layout) endedPause(id string) string { return l.path("pause", "ended", id+docSuffix) }

func validPause(name string) bool { return name == AllWorkspaces || ValidWorkspace(name) }

// validPauseID checks an id, which a user may have written by hand, before it becomes a
// file name.
func validPauseID(id string) bool {
	return id != "" && len(id) <= 100 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// Pause creates a pause, durably. Its error wraps fs.ErrExist if that workspace is
// already paused. Claims that have begun may still be made: AwaitClaims.
func (s *Store) Pause(p Pause) error {
	if !validPause(p.Workspace) {
		return checkWorkspace(p.Workspace)
	}
	if p.ID == "" {
		p.ID = randomHex()
	}
	name := s.Layout.pause(p.Workspace)
	err := s.createPause(name, p)
	if errors.Is(err, syscall.ENOSPC) && !errors.Is(err, store.ErrRestart) {
		if empty := s.createEmpty(name, p); empty == nil || errors.Is(empty, fs.ErrExist) {
			return empty
		}
	}
	return explain("nothing was paused", err)
}

// emptyPauseID is the id of a pause whose file has none.
func emptyPauseID(name string, info fs.FileInfo) string {
	return fmt.Sprintf("%s-%d", name, info.ModTime().UnixNano())
}

// createEmpty pauses on a full disk: an empty file needs no space, only a name. This process
// remembers the text, from before the file is visible and as long as it runs: the log and status
// say who paused.
func (s *Store) createEmpty(name string, p Pause) error {
	temp := filepath.Join(filepath.Dir(name), tempPrefix+randomHex())
	f, err := s.FS.OpenFile(temp, writeNew, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	others := false // another pause has the same time
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		p.ID = emptyPauseID(p.Workspace, info)
		_, others = s.pauseTexts.LoadOrStore(p.ID, p)
		err = s.FS.RenameNoReplace(temp, name)
	}
	if err != nil {
		if !others {
			s.pauseTexts.Delete(p.ID)
		}
		s.discard(temp)
		return err
	}
	return s.syncDir(filepath.Dir(name))
}

// createPause writes v durably. It never replaces a file.
func (s *Store) createPause(name string, v any) error {
	b, err := json.Marshal(v, codec.Times())
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	return s.save(name, append(b, '\n'), store.Durable)
}

// AwaitClaims returns when every claim that began before the pause is made: from then on this
// process begins none. Only the process with the lease makes claims. wait is called between
// two attempts; its error ends AwaitClaims.
func (s *Store) AwaitClaims(name string, wait func() error) error {
	for s.claims.under(name) > 0 {
		if err := wait(); err != nil {
			return err
		}
	}
	return nil
}

// Paused returns the pause of a workspace: its own, or that of all workspaces. A file
// that cannot be read counts as a pause.
func (s *Store) Paused(ws string) (p Pause, ok bool) {
	for _, name := range []string{ws, AllWorkspaces} {
		if p, ok = s.paused(name); ok {
			return p, true
		}
	}
	return Pause{}, false
}

func (s *Store) paused(name string) (Pause, bool) {
	path := s.Layout.pause(name)
	info, err := lstat(s.FS, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Pause{}, false
	case err != nil:
		return Pause{ID: name, Workspace: name, By: "unknown", Reason: "its file cannot be read"}, true
	}
	p := Pause{}
	if !info.Mode().IsRegular() || s.readJSON(path, &p) != nil || !validPauseID(p.ID) {
		// An empty file is a pause too, as from: touch HOME/pause/_all.json
		id := emptyPauseID(name, info)
		if p, ok := s.pauseTexts.Load(id); ok {
			return p.(Pause), true
		}
		return Pause{ID: id, Workspace: name, By: "unknown", At: info.ModTime()}, true
	}
	p.Workspace = name
	return p, true
}

// maxPause limits what is read of a pause file.
const maxPause = 64 << 10

func (s *Store) readJSON(path string, v any) error {
	b, err := s.FS.ReadFile(path, maxPause)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// Pauses lists the pauses, that of AllWorkspaces first.
func (s *Store) Pauses() ([]Pause, error) {
	names, err := s.names(s.Layout.Pauses())
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	slices.Sort(names)
	var list []Pause
	if p, ok := s.paused(AllWorkspaces); ok {
		list = append(list, p)
	}
	for _, file := range names {
		name, ok := strings.CutSuffix(file, docSuffix)
		if !ok || !ValidWorkspace(name) {
			continue
		}
		if p, ok := s.paused(name); ok {
			list = append(list, p)
		}
	}
	return list, nil
}

// Resume ends a pause, durably: it first writes who resumed, then removes the pause. The
// error wraps fs.ErrNotExist if name is not paused. via is "" for the command line.
func (s *Store) Resume(name, by, via string, at time.Time) (Pause, error) {
	if !validPause(name) {
		return Pause{}, checkWorkspace(name)
	}
	p, ok := s.paused(name)
	if !ok {
		return p, fmt.Errorf("resume %s: %w", name, fs.ErrNotExist)
	}
	err := s.createPause(s.Layout.endedPause(p.ID), Resumed{Pause: p, By: by, Via: via, At: at})
	if err != nil && !errors.Is(err, fs.ErrExist) { // a process began to, and was killed
		return p, explain("nothing was resumed", err)
	}
	if err := s.FS.Remove(s.Layout.pause(name)); err != nil {
		return p, fmt.Errorf("resume %s: %w", name, err)
	}
	s.pauseTexts.Delete(p.ID)
	return p, s.syncDir(s.Layout.Pauses())
}

// Ended lists the ended pauses. A pause whose file still exists is not ended: the process
// that resumed it was killed.
func (s *Store) Ended() ([]Resumed, error) {
	names, err := s.names(s.Layout.EndedPauses())
	if err != nil {
		return nil, fmt.Errorf("list ended pauses: %w", err)
	}
	var list []Resumed
	for _, file := range names {
		id, ok := strings.CutSuffix(file, docSuffix)
		if !ok || strings.HasPrefix(file, tempPrefix) {
			continue
		}
		r := Resumed{}
		if err := s.readJSON(s.Layout.endedPause(id), &r); err != nil || r.Pause.ID != id {
			r = Resumed{Pause: Pause{ID: id, By: "unknown"}, By: "unknown"}
		}
		if p, ok := s.paused(r.Pause.Workspace); !ok || p.ID != id {
			list = append(list, r)
		}
	}
	return list, nil
}

// Forget removes an ended pause that is in the log.
func (s *Store) Forget(id string) error { return s.FS.Remove(s.Layout.endedPause(id)) }

// PauseGuard implements gate.pauseGuard with the folder of pauses. It checks that folder
// before every claim, so that a pause holds as soon as its file exists.
//
// A claim counts before that check. A process that pauses writes the file first and then
// waits until none counts: by then every claim that saw no pause is made, and every later one
// sees it.
type PauseGuard struct{ Store *Store }

// Enter reports whether a claim may begin in ws. After true, Leave must follow once the
// claim is made or given up.
func (b *PauseGuard) Enter(ws string) bool {
	b.Store.claims.add(ws, 1)
	_, paused := b.Store.Paused(ws)
	if paused {
		b.Leave(ws)
	}
	return !paused
}

// Leave ends what Enter began.
func (b *PauseGuard) Leave(ws string) { b.Store.claims.add(ws, -1) }

// claims counts the claims that are being made, by workspace.
type claims struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *claims) add(ws string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[ws] += n
}

// under counts the claims that a pause of this name would stop.
func (c *claims) under(name string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ws, m := range c.n {
		if name == ws || name == AllWorkspaces {
			n += m
		}
	}
	return n
}
