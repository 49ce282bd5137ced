package ipc

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval/store"
)

// stored counts what workspaces take on the disk, from the moment a workspace was counted.
type stored struct {
	mu      sync.Mutex
	bytes   map[string]int64  // by workspace
	folders map[string]string // of the counted workspaces, with their workspace
}

// Stored implements store.Store: it counts once, and follows the files from then on. What other
// processes write there (a redeemed receipt) counts from the next start.
func (s *Store) Stored(ctx context.Context, ws string) (bytes int64, err error) {
	defer func() { err = classify(err) }()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	c := &s.stored
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes, ok := c.bytes[ws]; ok {
		return bytes, nil
	}
	dirs := []string{s.Layout.Records(ws), s.Layout.Responses(ws), s.Layout.Errors(ws)}
	for _, dir := range dirs {
		if err := s.visitOlder(dir, endOfTime, func(name string, size int64) error {
			if !strings.HasPrefix(name, tempPrefix) {
				bytes += store.OnDisk(size)
			}
			return nil
		}); err != nil {
			return 0, err
		}
	}
	if c.bytes == nil {
		c.bytes, c.folders = map[string]int64{}, map[string]string{}
	}
	for _, dir := range dirs {
		c.folders[dir] = ws
	}
	c.bytes[ws] = bytes
	return bytes, nil
}

// endOfTime is after the modification time of every file.
var endOfTime = time.Unix(1<<50, 0)

// storedAt is what a file takes that may be replaced or removed: 0 if it is not counted.
func (s *Store) storedAt(name string) int64 {
	s.stored.mu.Lock()
	_, counted := s.stored.folders[filepath.Dir(name)]
	s.stored.mu.Unlock()
	if !counted {
		return 0
	}
	info, err := lstat(s.FS, name)
	if err != nil {
		return 0
	}
	return store.OnDisk(info.Size())
}

// resized notes that a file took before bytes on the disk, and takes after. One without its name
// yet is not counted.
func (s *Store) resized(name string, before, after int64) {
	if strings.HasPrefix(filepath.Base(name), tempPrefix) {
		return
	}
	c := &s.stored
	c.mu.Lock()
	defer c.mu.Unlock()
	if ws, counted := c.folders[filepath.Dir(name)]; counted {
		c.bytes[ws] += after - before
	}
}
