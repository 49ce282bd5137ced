package watcher

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// watches is the part of fsnotify that places watches. Add on a watched path renews
// the watch; on an unchanged folder it changes nothing.
type watches interface {
	Add(path string) error
	Remove(path string) error
}

// A source provides events. Tests use one that drops, doubles, delays and reorders
// them.
type source struct {
	watches
	events <-chan fsnotify.Event
	errors <-chan error
	close  func() error
}

// openSource opens one inotify instance. All folders share it, because instances
// are limited (128 per user on many systems).
func openSource() (*source, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &source{watches: w, events: w.Events, errors: pump(w.Errors), close: w.Close}, nil
}

// pump always receives from the channel and keeps one error. fsnotify may report an
// error (a watched folder renamed and deleted at once) while it holds the lock that
// Add needs: if the goroutine that calls Add had to receive the error, both would
// block. One error is enough, because each means "rescan all".
func pump(in <-chan error) <-chan error {
	out := make(chan error, 1)
	go func() {
		for err := range in {
			select {
			case out <- err:
			default:
			}
		}
	}()
	return out
}

// reason says why folders are not watched, or not well. It is an error with a hint.
type reason struct{ what, hint string }

func (r reason) Error() string { return r.what }

// Hint is what the operator can do; "": nothing is known.
func (r reason) Hint() string { return r.hint }

// explain says why inotify failed.
func explain(err error) reason {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return reason{"no inotify watches left", "raise sysctl fs.inotify.max_user_watches"}
	case errors.Is(err, syscall.EMFILE):
		return reason{"no inotify instances left", "another program of the same user may hold them, also an agent; raise sysctl fs.inotify.max_user_instances, or the limit on open files"}
	case errors.Is(err, syscall.ENOENT):
		return reason{what: whyMissing}
	case errors.Is(err, fsnotify.ErrClosed):
		return reason{what: "inotify was closed"}
	}
	return reason{what: fmt.Sprintf("inotify: %v", err)}
}
