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

// patience is how long a test waits for something that should come soon.
const patience = time.Minute

// An ear remembers what a Watcher said.
type ear struct {
	mu      sync.Mutex
	wakes   map[string]int // "group/kind/name"
	rescans map[string]int
	heard   chan struct{} // closed and replaced whenever something is said
}

func newEar() *ear {
	return &ear{wakes: make(map[string]int), rescans: make(map[string]int), heard: make(chan struct{})}
}

func (e *ear) say(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.heard)
	e.heard = make(chan struct{})
}

func (e *ear) wake(group, kind, name string) {
	e.say(func() { e.wakes[group+"/"+kind+"/"+name]++ })
}

func (e *ear) rescan(group string) { e.say(func() { e.rescans[group]++ }) }

func (e *ear) woken(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wakes[key]
}

func (e *ear) rescanned(group string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rescans[group]
}

// until waits for a condition, looking again whenever something is said.
func (e *ear) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond) // for conditions that are not said aloud
	defer tick.Stop()
	for {
		e.mu.Lock()
		heard := e.heard
		e.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-heard:
		case <-tick.C:
		case <-limit.C:
			require.FailNow(t, "waited in vain", what)
		}
	}
}

func (e *ear) untilWoken(t *testing.T, key string) {
	t.Helper()
	e.until(t, "Wake of "+key, func() bool { return e.woken(key) > 0 })
}

func (e *ear) untilRescanned(t *testing.T, group string, times int) {
	t.Helper()
	e.until(t, "Rescan of "+group, func() bool { return e.rescanned(group) >= times })
}

// quiet is a Watcher that rescans by itself so rarely that a test sees only what
// it provoked.
func quiet(e *ear) *Watcher {
	return &Watcher{Wake: e.wake, Rescan: e.rescan, Interval: 10 * time.Hour, pollEvery: 50 * time.Millisecond}
}

// run starts a Watcher and returns the function that stops it, which the end of
// the test calls too.
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
		case <-time.After(patience):
			require.FailNow(t, "Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// memoryDir is a folder for tests that make thousands of files: on the shared
// memory of Linux where there is one, because what is tested is not the disk.
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

// A fake is a source that says what it is told to say.
type fake struct {
	mu      sync.Mutex
	watched map[string]bool
	refuse  error // what Add says
	removes int
	adds    func(path string) // told of every Add
	events  chan fsnotify.Event
	errors  chan error
}

func newFake() *fake {
	return &fake{watched: make(map[string]bool), events: make(chan fsnotify.Event), errors: make(chan error)}
}

func (f *fake) open() (*source, error) {
	return &source{watches: f, events: f.events, errors: f.errors}, nil
}

// Add is for source.
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

// Remove is for source.
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

// A spy is a real source that remembers its watches.
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

// Add is for source.
func (b both) Add(path string) error { return errors.Join(b.real.Add(path), b.fake.Add(path)) }

// Remove is for source.
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
