package home

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
)

// HostFiles shows the gate files of this host: see gate.Host. It never shows HOME, the
// files of secrets that the configuration names, or files that the kernel makes up.
type HostFiles struct {
	home    string          // "": none
	secrets func() []string // nil: none
	reads   chan struct{}   // those under way
}

const (
	// readLimit is how long a file system may take. A network file system may not answer
	// at all.
	readLimit = time.Second
	// maxReads is how many files are examined at once, those without an answer included.
	maxReads = 8
)

// NewHostFiles returns the files of this host, except those of h.
func NewHostFiles(h *Home) *HostFiles {
	return &HostFiles{h.Layout.Home, func() []string { return h.Current().SecretFiles() }, make(chan struct{}, maxReads)}
}

// Ready implements gate.Host.
func (*HostFiles) Ready(h approval.Handler) error { return exec.Ready(h) }

// Size implements gate.Host.
func (f *HostFiles) Size(path string) (int64, error) {
	return inTime(f, func() (int64, error) {
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() {
			err = notRegular(path)
		}
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	})
}

// Text implements gate.Host.
func (f *HostFiles) Text(path string, limit int) (string, error) {
	return inTime(f, func() (string, error) { return f.text(path, int64(limit)) })
}

func notRegular(path string) error { return fmt.Errorf("%s: not a regular file", path) }

// inTime calls read, and gives up when the file system does not answer.
func inTime[T any](f *HostFiles, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	timer := time.NewTimer(readLimit)
	defer timer.Stop()
	select {
	case f.reads <- struct{}{}:
	case <-timer.C:
		return none, errors.New("too many files are being read")
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		<-f.reads
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		return none, errors.New("the file system does not answer")
	}
}

// text examines the name before it opens it, because opening a device may have an effect,
// and the open file again, because the name may have been changed in between.
func (f *HostFiles) text(path string, limit int64) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return "", fmt.Errorf("%s: not a regular file of at most %d bytes", path, limit)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return "", notRegular(path)
	}
	if err := f.checkShown(path, info); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(file, info.Size()+1))
	if err != nil {
		return "", err
	}
	if int64(len(b)) != info.Size() || !utf8.Valid(b) {
		return "", fmt.Errorf("%s: changing, or not UTF-8", path)
	}
	return string(b), nil
}

// checkShown refuses an open file that people must not be sent. Its name must lead to it: then
// no link hides where it is.
func (f *HostFiles) checkShown(path string, info fs.FileInfo) error {
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	now, err := os.Lstat(at)
	if err != nil {
		return err
	}
	if at, err = filepath.Abs(at); err != nil || !os.SameFile(info, now) {
		return fmt.Errorf("%s: replaced while it was read", path)
	}
	for _, dir := range []string{f.home, "/proc", "/sys"} {
		if dir != "" && isBelow(at, dir) {
			return fmt.Errorf("%s: in %s", path, dir)
		}
	}
	if f.secrets != nil && slices.ContainsFunc(f.secrets(), func(secret string) bool {
		s, err := os.Stat(secret)
		return err == nil && os.SameFile(info, s)
	}) {
		return fmt.Errorf("%s: a secret of the configuration", path)
	}
	return nil
}

// isBelow reports whether a file without links in its path is in dir.
func isBelow(file, dir string) bool {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/")
}
