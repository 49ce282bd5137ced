package ipc

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// OlderThan returns the ids whose document of kind d was last written before a time, with
// its size in bytes. It uses the file's modification time, which is a hint and no proof.
func (s *Store) OlderThan(ctx context.Context, d approval.Doc, ws string, before time.Time) (sizes map[string]int64, err error) {
	suffix := filepath.Ext(s.path(d, approval.Key{Workspace: ws}))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sizes = map[string]int64{}
	err = s.visitOlder(s.dir(d, ws), before, func(name string, size int64) error {
		if id, ok := strings.CutSuffix(name, suffix); ok && approval.ValidDocument(id) {
			sizes[id] = size
		}
		return nil
	})
	return sizes, classify(err)
}

// RefusalsOlderThan counts the descriptions of refused files that were written before a
// time, and removes them if remove is set.
func (s *Store) RefusalsOlderThan(ctx context.Context, ws string, before time.Time, remove bool) (n int, size int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	dir := s.Layout.Errors(ws)
	err = s.visitOlder(dir, before, func(name string, bytes int64) error {
		if strings.HasPrefix(name, tempPrefix) {
			return nil
		}
		if remove {
			if err := s.remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		n, size = n+1, size+bytes
		return nil
	})
	if remove && n > 0 {
		s.mu.Lock()
		delete(s.refusals, ws) // counted again: descriptions can be written again
		s.mu.Unlock()
	}
	return n, size, classify(err)
}

// visitOlder visits the files of a folder that were last written before a time.
func (s *Store) visitOlder(dir string, before time.Time, visit func(name string, size int64) error) error {
	names, err := s.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := s.FS.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.ModTime().Before(before) {
			continue
		}
		if err := visit(name, info.Size()); err != nil {
			return err
		}
	}
	return nil
}
