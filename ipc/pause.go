package ipc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Everything is the name under which all workspaces are paused at once. No
// workspace can have it.
const Everything = "_all"

// Pause is one pause: while its file lies in HOME/pause, nothing is started in
// that workspace. The presence of the file is the whole order; what stands in
// it is for people.
type Pause struct {
	ID        string    `json:"id"` // tells two pauses of one workspace apart
	Workspace string    `json:"workspace"`
	By        string    `json:"by"`
	Via       string    `json:"via,omitzero"` // "": the command line
	At        time.Time `json:"at"`
	Reason    string    `json:"reason,omitzero"`
}

// Resumed is a pause that is over, kept until the audit log has both ends.
type Resumed struct {
	Pause Pause     `json:"pause"`
	By    string    `json:"by"`
	Via   string    `json:"via,omitzero"` // "": the command line
	At    time.Time `json:"at"`
}

// Pauses is the folder of pauses: WORKSPACE.json each, or _all.json, and
// WORKSPACE.lock, which is held while a claim is being made.
func (l Layout) Pauses() string { return l.path("pause") }

// EndedPauses is the folder of pauses that are over and not yet in the log.
func (l Layout) EndedPauses() string { return l.path("pause", "ended") }

func (l Layout) pause(name string) string    { return l.path("pause", name+docSuffix) }
func (l Layout) claimLock(ws string) string  { return l.path("pause", ws+".lock") }
func (l Layout) endedPause(id string) string { return l.path("pause", "ended", id+docSuffix) }

func validPause(name string) bool { return name == Everything || ValidWorkspace(name) }

// validPauseID keeps an id that somebody wrote by hand fit for a file name.
func validPauseID(id string) bool {
	return id != "" && len(id) <= 100 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// Pause makes a pause durable. Its error wraps fs.ErrExist when that workspace
// is paused already. Claims that have begun may still be made: AwaitClaims.
func (s *Store) Pause(p Pause) error {
	if !validPause(p.Workspace) {
		return checkWorkspace(p.Workspace)
	}
	if p.ID == "" {
		p.ID = randomHex()
	}
	return s.createPause(s.Layout.pause(p.Workspace), p)
}

// createPause writes v once, durably.
func (s *Store) createPause(name string, v any) error {
	b, err := json.Marshal(v)
	for attempt := 1; err == nil; attempt++ {
		err = s.createFile(name, append(b, '\n'))
		// As in Create: a daemon that starts may have swept the temporary name.
		if !errors.Is(err, fs.ErrNotExist) || attempt == createAttempts {
			return err
		}
		err = nil
	}
	return fmt.Errorf("write %s: %w", filepath.Base(name), err)
}

func (s *Store) createFile(name string, b []byte) error {
	dir := filepath.Dir(name)
	f, temp, err := s.writeTemp(dir, b, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	err = errors.Join(s.syncs.file(f, s.syncAll), f.Close())
	if err == nil {
		err = s.FS.RenameNoReplace(temp, name)
	}
	if err != nil {
		_ = s.FS.Remove(temp)
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	return s.syncDir(dir)
}

// AwaitClaims returns when every claim in the workspace that began before it
// was paused is made. From then on none is begun: not by this daemon, nor by
// any that starts later. again is called between two looks and gives up by an
// error.
func (s *Store) AwaitClaims(name string, again func() error) error {
	workspaces := []string{name}
	if name == Everything {
		var err error
		if workspaces, err = s.Workspaces(); err != nil {
			return err
		}
	}
	for _, ws := range workspaces {
		lock, err := s.FS.TryLock(s.Layout.claimLock(ws))
		for ; errors.Is(err, ErrLocked); lock, err = s.FS.TryLock(s.Layout.claimLock(ws)) {
			if err := again(); err != nil {
				return err
			}
		}
		if err == nil {
			err = lock.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Paused gives the pause that holds a workspace: its own, or that of
// everything. What cannot be looked at counts as a pause.
func (s *Store) Paused(ws string) (p Pause, ok bool) {
	for _, name := range []string{ws, Everything} {
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
		return Pause{ID: name, Workspace: name, By: "unknown", Reason: "its file cannot be looked at"}, true
	}
	p := Pause{}
	if !info.Mode().IsRegular() || s.readJSON(path, &p) != nil || !validPauseID(p.ID) {
		// It is no less a pause: touch HOME/pause/_all.json is one.
		id := fmt.Sprintf("%s-%d", name, info.ModTime().UnixNano())
		return Pause{ID: id, Workspace: name, By: "unknown", At: info.ModTime()}, true
	}
	p.Workspace = name
	return p, true
}

// maxPause bounds what is read of a pause.
const maxPause = 64 << 10

func (s *Store) readJSON(path string, v any) error {
	f, err := s.FS.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPause))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// Pauses lists what is paused, Everything first.
func (s *Store) Pauses() ([]Pause, error) {
	names, err := s.names(s.Layout.Pauses())
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	slices.Sort(names)
	var list []Pause
	if p, ok := s.paused(Everything); ok {
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

// Resume ends a pause, durably: first it is written down who did it, then the
// file goes. The error wraps fs.ErrNotExist when nothing of that name is
// paused.
func (s *Store) Resume(name, by string, at time.Time) (Pause, error) {
	return s.ResumeVia(name, by, "", at)
}

// ResumeVia is Resume by somebody who is not at the command line.
func (s *Store) ResumeVia(name, by, via string, at time.Time) (Pause, error) {
	if !validPause(name) {
		return Pause{}, checkWorkspace(name)
	}
	p, ok := s.paused(name)
	if !ok {
		return p, fmt.Errorf("resume %s: %w", name, fs.ErrNotExist)
	}
	err := s.createPause(s.Layout.endedPause(p.ID), Resumed{Pause: p, By: by, Via: via, At: at})
	if err != nil && !errors.Is(err, fs.ErrExist) { // somebody began to, and was killed
		return p, err
	}
	if err := s.FS.Remove(s.Layout.pause(name)); err != nil {
		return p, fmt.Errorf("resume %s: %w", name, err)
	}
	return p, s.syncDir(s.Layout.Pauses())
}

// Ended lists the pauses that are over. One whose file is still there is not:
// whoever wanted to end it was killed.
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

// Forget removes an ended pause that the log knows.
func (s *Store) Forget(id string) error { return s.FS.Remove(s.Layout.endedPause(id)) }

// PauseGuard implements the gate's PauseGuard with the folder of pauses: it looks there
// before every claim, so that a pause holds from the moment it is there,
// however late the news of it comes.
//
// While a claim is being made, its workspace's lock is held. Whoever pauses
// writes the file first and then waits for the lock: then every claim that saw
// no pause is made, and every later one sees it.
type PauseGuard struct {
	Store *Store

	mu      sync.Mutex
	claims  map[string]*claims
	trouble error // why Enter last said no, if not for a pause
}

type claims struct {
	n    int
	lock io.Closer
}

// Enter says whether a claim may begin in ws. After a yes, Leave must follow
// once the claim is made or given up.
func (b *PauseGuard) Enter(ws string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.claims[ws]
	if c == nil {
		lock, err := b.lock(ws)
		b.trouble = nil
		if err != nil {
			if !errors.Is(err, ErrLocked) {
				b.trouble = err
			}
			return false
		}
		c = &claims{lock: lock}
	}
	if _, paused := b.Store.Paused(ws); paused {
		if c.n == 0 {
			_ = c.lock.Close()
		}
		return false
	}
	if b.claims == nil {
		b.claims = map[string]*claims{}
	}
	b.claims[ws] = c
	c.n++
	return true
}

// Trouble is why Enter last said no where that was not a pause: a disk that
// cannot be written, say.
func (b *PauseGuard) Failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trouble
}

// lock takes a workspace's lock from those who wait for it: they give it back
// at once.
func (b *PauseGuard) lock(ws string) (lock io.Closer, err error) {
	for range 50 {
		lock, err = b.Store.FS.TryLock(b.Store.Layout.claimLock(ws))
		if !errors.Is(err, ErrLocked) {
			return lock, err
		}
		time.Sleep(time.Millisecond)
	}
	return nil, err
}

// Leave ends what Enter began.
func (b *PauseGuard) Leave(ws string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.claims[ws]
	if c.n--; c.n == 0 {
		delete(b.claims, ws)
		_ = c.lock.Close() // it may be taken anew, whatever this says
	}
}
