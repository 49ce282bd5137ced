package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

// instance is one HOME with its configuration.
type instance struct {
	cfg    *config.Config
	layout ipc.Layout
	store  *ipc.Store
	fs     ipc.FS
	live   live // the daemon's configuration after reloads
}

// loadHome reads the configuration and locates the state folder.
func loadHome(a *console) (*instance, error) {
	file, err := config.Locate(a.configFlag, a.Env)
	if err != nil {
		return nil, err
	}
	cfg, err := configReader(a).Load(file, a.Env)
	if err != nil {
		return nil, err
	}
	home, err := config.LocateHome(a.homeFlag, a.Env)
	if err != nil {
		return nil, err
	}
	return newInstance(cfg, home), nil
}

// newInstance returns the instance in a folder. cfg may be nil for what needs no configuration.
func newInstance(cfg *config.Config, dir string) *instance {
	h := &instance{cfg: cfg, layout: ipc.Layout{Home: dir}, fs: ipc.OS()}
	h.store = &ipc.Store{FS: h.fs, Layout: h.layout}
	if cfg != nil {
		h.store.RequestSize = h.requestSize
	}
	return h
}

func (h *instance) requestSize(ws string) int64 {
	return int64(h.conf().Workspaces[ws].Limits.WithDefaults().RequestSize)
}

// openHome is instance for a home that has keys.
func openHome(a *console) (*instance, *keys, error) {
	h, err := loadHome(a)
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(h.layout.Keys()); err != nil {
		return nil, nil, fail(exitError, "run permesso init, then permesso serve; or name another home: --home, or sudo -u permesso for the system's daemon", "no daemon for this user in %s", h.layout.Home)
	}
	if err := h.actAsOwner(); err != nil {
		return nil, nil, err
	}
	k, err := h.loadKeys()
	return h, k, err
}

// actAsOwner drops root's privileges to those of the home's owner: the daemon
// could not read files that root writes. The decision's author stays root.
func (h *instance) actAsOwner() error {
	info, err := os.Stat(h.layout.Home)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	operator() // read our UID before it changes
	uid, gid := int(owner.Uid), int(owner.Gid)
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return fmt.Errorf("act as the owner of %s: %w", h.layout.Home, err)
	}
	return nil
}

func (h *instance) viewer(k *keys) *gate.Viewer {
	return &gate.Viewer{Store: h.store, Workspaces: h.store, Seal: k.seal}
}

// operator is the local user, identified by UID.
var operator = sync.OnceValue(func() approval.Person {
	return personOf(strconv.Itoa(os.Getuid()))
})

// personOf returns the local person of a UID.
func personOf(uid string) approval.Person {
	name := uid
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	return approval.Person{Channel: "local", ID: uid, Name: "operator:" + name}
}

// served reports whether a daemon holds the home's lock.
func (h *instance) served() (bool, error) {
	if _, err := os.Lstat(h.layout.Lock()); errors.Is(err, fs.ErrNotExist) {
		return false, nil // TryLock would create it, owned by our user
	}
	lock, err := h.fs.TryLock(h.layout.Lock())
	if errors.Is(err, ipc.ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, lock.Close()
}

// lockWithRetry retries for a second, because other commands take the lock for a
// moment.
func lockWithRetry(store *ipc.Store) (release func() error, err error) {
	for range 20 {
		if release, err = store.Open(); !errors.Is(err, ipc.ErrLocked) {
			return release, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, fmt.Errorf("another daemon serves this home: %w", err)
}

func configReader(a *console) config.Reader {
	r := config.Reader{CheckHandler: exec.Check}
	if a.serving {
		r.ServedBy = os.Getuid()
	}
	return r
}

func (h *instance) prepare() error {
	if err := h.layout.PrepareHome(h.fs); err != nil {
		return err
	}
	for name := range h.cfg.Workspaces {
		if err := h.layout.Prepare(h.fs, name); err != nil {
			return err
		}
	}
	return nil
}

func firstWorkspace(c *config.Config) string {
	names := make([]string, 0, len(c.Workspaces))
	for name := range c.Workspaces {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[0]
}

func sortedNames(c *config.Config) []string {
	var names []string
	for name := range c.Workspaces {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
