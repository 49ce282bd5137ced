package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What the limits should leave to others: editors, other gates.
const (
	spareWatches  = 64
	leastQueue    = 4096
	leastInstance = 8
)

// CheckLimits says which limits of inotify are too low to watch that many
// folders, each with its hint on a line of its own. The system must not have
// such limits.
func CheckLimits(folders int) []error { return checkLimits("/proc/sys", folders) }

// checkLimits looks at the limits of the host and at those of the user
// namespace, of which the lower one counts.
func checkLimits(sys string, folders int) []error {
	var wrong []error
	for _, l := range []struct {
		file  string
		least int
		why   string
	}{
		{"fs/inotify/max_user_watches", folders + spareWatches, "folders that get no watch are only looked at every second"},
		{"user/max_inotify_watches", folders + spareWatches, "folders that get no watch are only looked at every second"},
		{"fs/inotify/max_user_instances", leastInstance, "without one, every folder is only looked at every second"},
		{"user/max_inotify_instances", leastInstance, "without one, every folder is only looked at every second"},
		{"fs/inotify/max_queued_events", leastQueue, "a busy moment overflows it, and everything must be looked at again"},
	} {
		b, err := os.ReadFile(filepath.Join(sys, l.file))
		if err != nil {
			continue // another system, or an older kernel
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil || n >= l.least {
			continue
		}
		name := strings.ReplaceAll(l.file, "/", ".")
		wrong = append(wrong, fmt.Errorf("%s is %d, for %d folders it should be %d: %s\nhint: sysctl -w %s=%d, and a line in /etc/sysctl.d",
			name, n, folders, l.least, l.why, name, max(l.least, 8192)))
	}
	return wrong
}

// CheckReach says that events do not tell everything that happens at path,
// because of the file system.
func CheckReach(path string) error {
	if kind := unreached(path); kind != "" {
		return fmt.Errorf("%s lies on %s, where changes from elsewhere make no event: it is looked at every few seconds\n"+
			"hint: nothing is lost; for speed, move it to a local disk", path, kind)
	}
	return nil
}

// Try watches dir, which must be the caller's own, makes a file there and waits
// for the event. It says why none came.
func Try(dir string) error {
	src, err := openSource()
	if err != nil {
		return refused(err)
	}
	defer func() { _ = src.close() }()
	if err := src.Add(dir); err != nil {
		return refused(err)
	}
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return fmt.Errorf("try inotify: %w", err)
	}
	defer func() { f.Close(); os.Remove(f.Name()) }()
	select {
	case <-src.events:
		return nil
	case <-time.After(time.Second):
		return fmt.Errorf("a file was made in %s, and no event came: it is looked at every few seconds\n"+
			"hint: nothing is lost; look what kind of file system that is", dir)
	}
}

// refused is explain with its hint on a line of its own.
func refused(err error) error {
	why, hint, ok := strings.Cut(strings.TrimSuffix(explain(err), ")"), " (hint: ")
	if !ok {
		return fmt.Errorf("try inotify: %s", explain(err))
	}
	return fmt.Errorf("try inotify: %s\nhint: %s", why, hint)
}
