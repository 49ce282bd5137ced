package audit_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/afero"
)

// memFS is a read-only folder in memory, fast enough for a million logs.
type memFS struct {
	afero.Fs
	files map[string][]byte
}

func newMemFS(files map[string][]byte) *memFS {
	m := &memFS{files: map[string][]byte{}}
	for name, b := range files {
		m.files[name] = slices.Clone(b)
	}
	return m
}

func (m *memFS) Open(name string) (afero.File, error) {
	if name == dir {
		return &memFile{m: m}, nil
	}
	b, ok := m.files[filepath.Base(name)]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{Reader: bytes.NewReader(b), m: m}, nil
}

type memFile struct {
	afero.File
	*bytes.Reader
	m *memFS
}

func (f *memFile) Read(b []byte) (int, error)                { return f.Reader.Read(b) }
func (f *memFile) Seek(off int64, whence int) (int64, error) { return f.Reader.Seek(off, whence) }
func (f *memFile) ReadAt(b []byte, off int64) (int, error)   { return f.Reader.ReadAt(b, off) }
func (f *memFile) Close() error                              { return nil }
func (f *memFile) Stat() (os.FileInfo, error)                { return memInfo(f.Size()), nil }

func (f *memFile) Readdirnames(int) ([]string, error) {
	names := make([]string, 0, len(f.m.files))
	for name := range f.m.files {
		if strings.HasPrefix(name, "log") {
			names = append(names, name)
		}
	}
	return names, nil
}

type memInfo int64

func (i memInfo) Name() string     { return "" }
func (i memInfo) Size() int64      { return int64(i) }
func (memInfo) Mode() fs.FileMode  { return 0o600 }
func (memInfo) ModTime() time.Time { return time.Time{} }
func (memInfo) IsDir() bool        { return false }
func (memInfo) Sys() any           { return nil }
