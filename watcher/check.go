package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Reserve for other programs, such as editors and other gates.
const (
	spareWatches  = 64
	leastQueue    = 4096
	leastInstance = 8
)

// CheckLimits returns an error for each limit of inotify that is too low to watch
// that many folders. Each has a hint, by its method Hint.
func CheckLimits(folders int) []error { return checkLimits("/proc/sys", folders) }

// checkLimits checks the limits of the host and of the user namespace. The lower
// one applies.
func checkLimits(sys string, folders int) []error {
	var wrong []error
	for _, l := range []struct {
		file  string
		least int
		why   string
	}{
		{"fs/inotify/max_user_watches", folders + spareWatches, "folders without a watch are polled only every second"},
		{"user/max_inotify_watches", folders + spareWatches, "folders without a watch are polled only every second"},
		{"fs/inotify/max_user_instances", leastInstance, "without an instance all folders are polled only every second"},
		{"user/max_inotify_instances", leastInstance, "without an instance all folders are polled only every second"},
		{"fs/inotify/max_queued_events", leastQueue, "a burst of events overflows it, and all folders are rescanned"},
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
		wrong = append(wrong, reason{
			fmt.Sprintf("%s is %d, but %d folders need %d: %s", name, n, folders, l.least, l.why),
			fmt.Sprintf("run sysctl -w %s=%d, and add it to /etc/sysctl.d", name, max(l.least, 8192)),
		})
	}
	return wrong
}

// CheckFileSystem returns an error if the file system of path does not report all
// changes by events.
func CheckFileSystem(path string) error {
	if kind := remoteFileSystem(path); kind != "" {
		return reason{fmt.Sprintf("%s is on %s, where inotify does not report changes by other hosts: it is polled every few seconds",
			path, kind), "nothing is lost; for faster reactions move it to a local disk"}
	}
	return nil
}

// TryInotify watches dir, a folder that only the caller uses, creates a file there and
// waits for the event. It returns an error if there is none.
func TryInotify(dir string) error {
	src, err := openSource()
	if err != nil {
		return fmt.Errorf("try inotify: %w", explain(err))
	}
	defer func() { _ = src.close() }()
	if err := src.Add(dir); err != nil {
		return fmt.Errorf("try inotify: %w", explain(err))
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
		return reason{
			fmt.Sprintf("creating a file in %s caused no inotify event: folders there are polled every few seconds", dir),
			"nothing is lost; check which file system that is",
		}
	}
}
