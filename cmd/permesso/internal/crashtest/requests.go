package crashtest

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/ipc"
)

// trustedRequests reads a folder of requests through an FS and trusts it: a simulated
// file system has no openat2 and no untrusted agent.
type trustedRequests struct {
	fsys ipc.FS
	dir  string
}

func (p trustedRequests) Read(name string, limit int64) ([]byte, error) {
	return p.fsys.ReadFile(filepath.Join(p.dir, name), limit)
}

func (p trustedRequests) Stat(name string) (exists bool, err error) {
	_, err = p.fsys.Stat(filepath.Join(p.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (p trustedRequests) Names(limit int) (names []string, more bool, err error) {
	f, err := p.fsys.Open(p.dir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	names, err = f.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") })
	return names[:min(limit, len(names))], len(names) > limit, err
}

func (p trustedRequests) Remove(name string) error { return p.fsys.Remove(filepath.Join(p.dir, name)) }

func (p trustedRequests) SetAside(name string) error { return p.Remove(name) }
func (p trustedRequests) Stale() bool                { return false }
func (p trustedRequests) Warning() string            { return "" }
func (p trustedRequests) Close() error               { return nil }
