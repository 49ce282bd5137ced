package watcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is how long a test waits for an expected event.
const timeout = time.Minute

// A recorder records the callbacks of a Watcher.
type recorder struct {
	mu      sync.Mutex
	wakes   map[string]int // "group/kind/name"
	rescans map[string]int
	updated chan struct{} // closed and replaced at every callback
}

func newRecorder() *recorder {
	return &recorder{wakes: make(map[string]int), rescans: make(map[string]int), updated: make(chan struct{})}
}

func (e *recorder) record(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.updated)
	e.updated = make(chan struct{})
}

func (e *recorder) wake(group, kind, name string) {
	e.record(func() { e.wakes[group+"/"+kind+"/"+name]++ })
}

func (e *recorder) rescan(group string, _ bool) { e.record(func() { e.rescans[group]++ }) }

func (e *recorder) woken(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wakes[key]
}

func (e *recorder) rescanned(group string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rescans[group]
}

// until waits for a condition, checking it at every callback.
func (e *recorder) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond) // for conditions without a callback
	defer tick.Stop()
	for {
		e.mu.Lock()
		updated := e.updated
		e.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-updated:
		case <-tick.C:
		case <-limit.C:
			require.FailNow(t, "timeout", what)
		}
	}
}

func (e *recorder) untilWoken(t *testing.T, key string) {
	t.Helper()
	e.until(t, "Wake of "+key, func() bool { return e.woken(key) > 0 })
}

func (e *recorder) untilRescanned(t *testing.T, group string, times int) {
	t.Helper()
	e.until(t, "Rescan of "+group, func() bool { return e.rescanned(group) >= times })
}

// quietWatcher is a Watcher without periodic rescans during a test.
func quietWatcher(e *recorder) *Watcher {
	return &Watcher{Wake: e.wake, Rescan: e.rescan, Interval: 10 * time.Hour, pollEvery: 50 * time.Millisecond}
}

// run starts a Watcher and returns the function that stops it. The end of the test
// also calls it.
func run(t *testing.T, w *Watcher) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(timeout):
			require.FailNow(t, "Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// memoryDir is a folder for tests that create thousands of files, in Linux's shared
// memory if possible, because the tests do not need the disk.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "watcher")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func mkdir(t *testing.T, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	require.NoError(t, os.MkdirAll(path, 0o700))
	return path
}

func write(t *testing.T, elem ...string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(elem...), []byte("x"), 0o600))
}

// A fake is a source whose events the test sends.
type fake struct {
	mu      sync.Mutex
	watched map[string]bool
	refuse  error // the error of Add
	removes int
	adds    func(path string) // called at every Add
	events  chan fsnotify.Event
	errors  chan error
}

func newFake() *fake {
	return &fake{watched: make(map[string]bool), events: make(chan fsnotify.Event), errors: make(chan error)}
}

func (f *fake) open() (*source, error) {
	return &source{watches: f, events: f.events, errors: f.errors}, nil
}

func (f *fake) Add(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.watched[path] = true
	if f.adds != nil {
		f.adds(path)
	}
	return nil
}

func (f *fake) Remove(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watched[path] {
		return fsnotify.ErrNonExistentWatch
	}
	delete(f.watched, path)
	f.removes++
	return nil
}

// A spy is a real source that records its watches.
type spy struct{ *fake }

func (s spy) open() (*source, error) {
	src, err := openSource()
	if err != nil {
		return nil, err
	}
	src.watches = both{real: src.watches, fake: s.fake}
	return src, nil
}

type both struct {
	real watches
	fake *fake
}

func (b both) Add(path string) error { return errors.Join(b.real.Add(path), b.fake.Add(path)) }

func (b both) Remove(path string) error { return errors.Join(b.real.Remove(path), b.fake.Remove(path)) }

func (f *fake) watches(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watched[path]
}

func (f *fake) refuses(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

func (f *fake) removed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.removes
}
