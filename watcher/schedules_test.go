package watcher

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// 1,000 schedules of dropped, doubled, late and reordered events, with replaced
// folders and overflows. Every file must be seen within one interval, although unchanged
// folders are not read. The folders are real, the events are fake, and the clock is
// synctest's. The folders have its times, in steps of two seconds, the coarsest there are.
func TestSchedules(t *testing.T) {
	top := memoryDir(t)
	var files, byEvent, skipped int
	for seed := range uint64(1000) {
		dir := mkdir(t, top, strconv.FormatUint(seed, 10))
		synctest.Test(t, func(t *testing.T) {
			s := &scenario{fake: newFake(), rng: rand.New(rand.NewPCG(seed, 2)), top: dir, born: map[string]time.Time{}, seen: map[string]time.Time{}}
			s.play(t)
			files += len(s.born)
			byEvent += s.events
			skipped += s.skipped
			for key, born := range s.born {
				seen, ok := s.seen[key]
				require.True(t, ok, "seed %d: %s was never seen", seed, key)
				require.LessOrEqual(t, seen.Sub(born), defaultInterval, "seed %d: %s was seen late", seed, key)
			}
		})
		require.NoError(t, os.RemoveAll(dir))
	}
	require.Greater(t, files, 10_000)
	require.Greater(t, byEvent, files/10, "the schedules must deliver some events")
	require.Less(t, byEvent, files*9/10, "and drop some")
	require.Greater(t, skipped, 1000, "some folders must be unchanged")
}

const (
	scenarioGroups = 3
	scenarioFiles  = 12
)

// A scenario is one schedule.
type scenario struct {
	*fake
	rng *rand.Rand
	top string

	mu      sync.Mutex
	born    map[string]time.Time // "group/name"
	seen    map[string]time.Time
	events  int // files first seen by an event
	skipped int // rescans of unchanged folders
}

func (s *scenario) play(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &Watcher{Wake: s.wake, Rescan: s.rescan, open: s.open}
	for i := range scenarioGroups {
		group := strconv.Itoa(i)
		require.NoError(t, w.Add(Folder{Path: mkdir(t, s.top, group), Group: group, Kind: "k"}))
		s.stamp(t, group)
	}
	var all sync.WaitGroup
	all.Go(func() { require.NoError(t, w.Run(ctx)) })
	for i := range scenarioFiles {
		time.Sleep(time.Duration(s.rng.Int64N(int64(1500 * time.Millisecond))))
		group := strconv.Itoa(s.rng.IntN(scenarioGroups))
		switch s.rng.IntN(12) {
		case 0:
			s.exchange(t, group)
		case 1:
			all.Go(func() { s.overflow(ctx) })
		}
		name := fmt.Sprintf("f%d", i)
		s.mu.Lock()
		s.born[group+"/"+name] = time.Now()
		write(t, s.top, group, name)
		s.stamp(t, group)
		s.mu.Unlock()
		for range s.rng.IntN(3) { // dropped, delivered or doubled
			delay := time.Duration(s.rng.Int64N(int64(3 * time.Second)))
			if s.rng.IntN(2) == 0 {
				delay = 0
			}
			all.Go(func() { s.deliver(ctx, filepath.Join(s.top, group, name), delay) })
		}
	}
	time.Sleep(defaultInterval + time.Second)
	cancel()
	all.Wait()
}

func (s *scenario) deliver(ctx context.Context, path string, delay time.Duration) {
	time.Sleep(delay)
	select {
	case s.fake.events <- fsnotify.Event{Name: path, Op: fsnotify.Create}:
	case <-ctx.Done():
	}
}

func (s *scenario) overflow(ctx context.Context) {
	select {
	case s.errors <- fsnotify.ErrEventOverflow:
	case <-ctx.Done():
	}
}

// exchange replaces a group's folder by another with the same content, without an
// event.
func (s *scenario) exchange(t *testing.T, group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.top, group)
	old := path + "-old"
	require.NoError(t, os.Rename(path, old))
	mkdir(t, path)
	entries, err := os.ReadDir(old)
	require.NoError(t, err)
	for _, entry := range entries {
		require.NoError(t, os.Rename(filepath.Join(old, entry.Name()), filepath.Join(path, entry.Name())))
	}
	require.NoError(t, os.Remove(old))
	s.stamp(t, group)
}

// stamp gives a changed folder the time of a coarse file system.
func (s *scenario) stamp(t *testing.T, group string) {
	now := time.Now().Truncate(2 * time.Second)
	require.NoError(t, os.Chtimes(filepath.Join(s.top, group), now, now))
}

func (s *scenario) wake(group, _, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.see(group, name) {
		s.events++
	}
}

// rescan reads the folder if it has changed, as the caller of a Watcher does.
func (s *scenario) rescan(group string, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !changed {
		s.skipped++
		return
	}
	entries, err := os.ReadDir(filepath.Join(s.top, group))
	if err != nil {
		return
	}
	for _, entry := range entries {
		s.see(group, entry.Name())
	}
}

func (s *scenario) see(group, name string) (first bool) {
	key := group + "/" + name
	if _, ok := s.seen[key]; ok {
		return false
	}
	s.seen[key] = time.Now()
	return true
}

// An idle watcher of 1,000 workspaces rescans each within 50 s, and never all of
// them at once, not even after an overflow caused a common rescan.
func TestIdleRescansAreSpread(t *testing.T) {
	const groups = 1000
	top := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var mu sync.Mutex
		last := make(map[string]time.Time)
		var longest time.Duration
		perSecond := make(map[int64]int)
		w := &Watcher{Wake: func(_, _, _ string) {}, open: f.open}
		w.Rescan = func(group string, _ bool) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			if then, ok := last[group]; ok {
				longest = max(longest, now.Sub(then))
			}
			last[group] = now
			perSecond[now.Unix()]++
		}
		for i := range groups {
			group := strconv.Itoa(i)
			for _, kind := range []string{"requests", "responses", "pending", "decisions"} {
				require.NoError(t, w.Add(Folder{Path: mkdir(t, top, group, kind), Group: group, Kind: kind}))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		mu.Lock()
		require.Len(t, last, groups, "all at once at the start")
		mu.Unlock()
		for round := range 2 {
			mu.Lock()
			clear(perSecond)
			mu.Unlock()
			time.Sleep(3 * time.Minute)
			mu.Lock()
			for second, n := range perSecond {
				require.Less(t, n, 60, "round %d, second %d", round, second)
			}
			mu.Unlock()
			f.errors <- fsnotify.ErrEventOverflow
			synctest.Wait()
		}
		mu.Lock()
		require.LessOrEqual(t, longest, 50*time.Second)
		require.Greater(t, longest, 10*time.Second)
		mu.Unlock()
		cancel()
		require.NoError(t, <-done)
	})
}
