package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// SentStore is what one channel remembers across restarts: a sent record for each
// request, and state that belongs to no request. Only the channel reads it. If it is
// lost, a card may be sent twice; no decision is lost.
type SentStore struct {
	Store   *Store
	Channel string // telegram, email …; a name like a workspace's
}

// Load reads a sent record; the error wraps fs.ErrNotExist if there is none.
func (n *SentStore) Load(k approval.Key) ([]byte, error) {
	name, err := n.path(k)
	if err != nil {
		return nil, err
	}
	return n.Store.readSentFile(name)
}

// Save writes or replaces a sent record. The next checkpoint makes it durable: a power cut
// may cost a card sent twice.
func (n *SentStore) Save(k approval.Key, b []byte) error {
	name, err := n.path(k)
	if err != nil {
		return err
	}
	if err := n.Store.Layout.PrepareSent(n.Store.FS, n.Channel, k.Workspace); err != nil {
		return err
	}
	if err := n.Store.replace(name, b, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	return nil
}

// Remove removes a sent record. A missing one is no error. The removal is not synced: a
// record that a power cut brings back is removed again.
func (n *SentStore) Remove(k approval.Key) error {
	name, err := n.path(k)
	if err != nil {
		return err
	}
	return n.Store.removeFile(name)
}

// List lists the ids in a workspace that have a sent record.
func (n *SentStore) List(ws string) ([]string, error) {
	if err := errors.Join(n.check(), checkWorkspace(ws)); err != nil {
		return nil, err
	}
	names, err := n.Store.names(n.Store.Layout.Sent(n.Channel, ws))
	if err != nil {
		return nil, fmt.Errorf("list sent records of %s: %w", n.Channel, err)
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, docSuffix); ok && approval.ValidID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// State is a store for files that belong to no request. Its name follows the rules for
// workspaces.
func (n *SentStore) State(name string) (*StateStore, error) {
	if err := errors.Join(n.check(), checkWorkspace(name)); err != nil {
		return nil, err
	}
	dir := n.Store.Layout.ChannelState(n.Channel, name)
	err := prepareFolders(n.Store.FS, "state of "+n.Channel,
		folder{filepath.Dir(dir), 0o700, othersWrite}, folder{dir, 0o700, othersWrite})
	return &StateStore{n.Store, dir}, err
}

func (n *SentStore) check() error {
	if !ValidWorkspace(n.Channel) {
		return fmt.Errorf("channel %q: not a valid name", n.Channel)
	}
	return nil
}

func (n *SentStore) path(k approval.Key) (string, error) {
	if err := errors.Join(n.check(), checkWorkspace(k.Workspace)); err != nil {
		return "", err
	}
	if !approval.ValidID(k.ID) {
		return "", fmt.Errorf("sent record of %s: invalid key", k)
	}
	return filepath.Join(n.Store.Layout.Sent(n.Channel, k.Workspace), k.ID+docSuffix), nil
}

// StateStore holds small files of a channel. Their names have 1 to 100 letters, digits
// and any of ". _ -", and do not begin with a dot.
type StateStore struct {
	store *Store
	dir   string
}

// Put writes or replaces a file, durably.
func (d *StateStore) Put(name string, b []byte) error {
	if !validStateName(name) {
		return fmt.Errorf("put %q: not a valid name", name)
	}
	return d.store.save(filepath.Join(d.dir, name), b, store.Replace)
}

// Get reads a file; the error wraps fs.ErrNotExist if there is none.
func (d *StateStore) Get(name string) ([]byte, error) {
	if !validStateName(name) {
		return nil, fmt.Errorf("get %q: %w", name, fs.ErrNotExist)
	}
	return d.store.readSentFile(filepath.Join(d.dir, name))
}

// List returns the names, sorted.
func (d *StateStore) List() ([]string, error) {
	all, err := d.store.names(d.dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", filepath.Base(d.dir), err)
	}
	var names []string
	for _, name := range all {
		if validStateName(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Remove removes a file. A missing one is no error. The removal is not synced.
func (d *StateStore) Remove(name string) error {
	if !validStateName(name) {
		return fmt.Errorf("remove %q: not a valid name", name)
	}
	return d.store.removeFile(filepath.Join(d.dir, name))
}

func validStateName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return name != "" && len(name) <= 100 && name[0] != '.' && strings.Trim(name, letters) == ""
}

// maxSentFile limits a file of a sent store, such as an update or a mail.
const maxSentFile = 16 << 20

func (s *Store) readSentFile(name string) ([]byte, error) {
	b, err := s.FS.ReadFile(name, maxSentFile)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Base(name), err)
	}
	return b, nil
}

func (s *Store) removeFile(name string) error {
	if err := s.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", filepath.Base(name), err)
	}
	return nil
}
