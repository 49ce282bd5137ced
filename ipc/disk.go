package ipc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval/hints"
)

// Mount describes the mount that holds a path.
type Mount struct {
	Point   string   // mount point
	Type    string   // ext4, tmpfs …
	Options []string // the mount's own and the file system's
}

// MountOf finds the mount of a path. Without /proc/self/mountinfo the error is
// fs.ErrNotExist.
func MountOf(path string) (Mount, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Mount{}, fmt.Errorf("find mount: %w", err)
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Mount{}, fmt.Errorf("find mount: %w", err)
	}
	defer f.Close()
	return findMount(f, real)
}

// MountOfNew finds the mount of a path, or of its nearest parent that exists.
func MountOfNew(path string) (Mount, error) {
	for {
		m, err := MountOf(path)
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return m, err
		}
		path = filepath.Dir(path)
	}
}

// findMount reads mountinfo; proc_pid_mountinfo(5) has its format. Of several mounts on
// one point the last is visible.
func findMount(mountinfo io.Reader, path string) (Mount, error) {
	var best Mount
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20) // the options of an overlay list its folders
	for lines.Scan() {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 3 {
			continue
		}
		point := unescapeMount(l[4])
		if !isBelow(path, point) || len(point) < len(best.Point) {
			continue
		}
		best = Mount{Point: point, Type: r[0], Options: slices.Concat(strings.Split(l[5], ","), strings.Split(r[2], ","))}
	}
	if err := lines.Err(); err != nil {
		return Mount{}, fmt.Errorf("find mount: %w", err)
	}
	if best.Point == "" {
		return Mount{}, fmt.Errorf("find mount: %s is on no mount", path)
	}
	return best, nil
}

func isBelow(path, folder string) bool {
	return path == folder || folder == "/" || strings.HasPrefix(path, folder+"/")
}

// unescapeMount undoes the kernel's octal escapes: \040 is a blank.
func unescapeMount(s string) string {
	for _, c := range []string{" ", "\t", "\n", `\`} {
		s = strings.ReplaceAll(s, fmt.Sprintf(`\%03o`, c[0]), c)
	}
	return s
}

// LosesData says why files here do not survive a reboot or a power cut: fsync has no
// effect. It is nil if fsync should work.
func (m Mount) LosesData() error {
	switch {
	case slices.Contains([]string{"tmpfs", "ramfs", "rootfs"}, m.Type):
		return hints.Add(fmt.Errorf("%s is a %s: a reboot deletes its files, with all decisions and records",
			m.Point, m.Type), "move HOME to a disk")
	case m.Type == "overlay" && m.has("volatile"):
		return hints.Add(fmt.Errorf("%s is a volatile overlay, which skips every fsync", m.Point), "put HOME on its own volume")
	}
	for _, o := range []string{"nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier"} {
		if m.has(o) {
			return hints.Add(fmt.Errorf("%s is mounted with %s: a power cut may lose synced data", m.Point, o),
				fmt.Sprintf("mount -o remount,barrier %s, and remove %s from /etc/fstab", shellQuote(m.Point), o))
		}
	}
	return nil
}

// Warnings says what makes this mount less reliable.
func (m Mount) Warnings() error {
	switch {
	case m.Type == "overlay":
		return hints.Add(fmt.Errorf("%s is an overlay, the file system of a container: its files are deleted with the container",
			m.Point), "put HOME on a volume")
	case m.has("data=writeback"):
		return hints.Add(fmt.Errorf("%s is mounted with data=writeback: after a crash new files may hold old data", m.Point),
			"remove data=writeback from /etc/fstab")
	}
	return nil
}

func (m Mount) has(option string) bool { return slices.Contains(m.Options, option) }

// inMemory reports whether the file system is in memory, so that a fast fsync is no sign of
// a fault.
func (m Mount) inMemory() bool { return m.Type == "tmpfs" || m.Type == "ramfs" || m.Type == "rootfs" }

// FreeSpace is the free space of a file system for users other than root.
type FreeSpace struct {
	Device   string // mount point, or the path if that is unknown
	Bytes    uint64
	Files    uint64 // free inodes
	Counted  bool   // false: no inode limit, as on btrfs
	ReadOnly bool
}

// FreeSpaceOf asks the file system that holds path.
func FreeSpaceOf(path string) (FreeSpace, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(path, &st) }); err != nil {
		return FreeSpace{}, fmt.Errorf("check file system of %s: %w", path, err)
	}
	r := FreeSpace{Device: path, Bytes: uint64(st.Bavail) * uint64(st.Bsize), Files: uint64(st.Ffree), Counted: st.Files > 0}
	r.ReadOnly = uint64(st.Flags)&readOnlyMount != 0
	if m, err := MountOf(path); err == nil {
		r.Device = m.Point
	}
	return r, nil
}

// readOnlyMount is ST_RDONLY, the same on Linux and the BSDs.
const readOnlyMount = 1

// Below low the gate warns. Below min it may have to refuse work.
const (
	lowBytes, minBytes = 256 << 20, 16 << 20
	lowFiles, minFiles = 10_000, 1_000
)

// Critical says why there is too little space for new work.
func (r FreeSpace) Critical() error {
	switch {
	case r.ReadOnly:
		return hints.Add(fmt.Errorf("%s is mounted read-only", r.Device),
			"after a disk error check dmesg first, then: mount -o remount,rw "+shellQuote(r.Device))
	case r.Bytes < minBytes:
		return hints.Add(fmt.Errorf("%s has %d KiB left", r.Device, r.Bytes>>10),
			"free some space: the gate refuses work that it cannot record")
	case r.Counted && r.Files < minFiles:
		return hints.Add(fmt.Errorf("%s has %d inodes left", r.Device, r.Files),
			"remove files there (df -i): the gate refuses work that it cannot record")
	}
	return nil
}

// Low says why space should be freed.
func (r FreeSpace) Low() error {
	switch {
	case r.Bytes < lowBytes:
		return hints.Add(fmt.Errorf("%s has %d MiB left", r.Device, r.Bytes>>20), "free some space")
	case r.Counted && r.Files < lowFiles:
		return hints.Add(fmt.Errorf("%s has %d inodes left", r.Device, r.Files), "remove files there (df -i)")
	}
	return nil
}

// CheckOneDisk returns an error for each folder on another file system than HOME: a start
// syncs only that of HOME. The requests may be on any file system.
func (l Layout) CheckOneDisk(workspaces ...string) []error {
	home, err := deviceOf(l.Home)
	if err != nil {
		return []error{err}
	}
	folders := l.homeFolders()
	for _, ws := range workspaces {
		folders = append(folders, l.workspaceFolders(ws)...)
	}
	var wrong []error
	for _, f := range folders {
		d, err := deviceOf(f.path)
		if err == nil && d != home && f.refuse != 0 {
			wrong = append(wrong, hints.Add(fmt.Errorf("%s is on another file system than HOME: after a kill, files written there "+
				"may not be durable", f.path), "unmount it, and move its files into HOME"))
		}
	}
	return wrong
}

func deviceOf(path string) (uint64, error) {
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Lstat(path, &st) }); err != nil {
		return 0, fmt.Errorf("check file system of %s: %w", path, err)
	}
	return uint64(st.Dev), nil
}

// minSyncTime is less than any disk needs: to write to flash, or to a cache that survives
// a power cut.
const minSyncTime = 20 * time.Microsecond

// SyncTime measures the time to write a small file in dir and sync it: the median of that
// many rounds. It removes the file. Mount.TooFast checks the result.
func SyncTime(dir string, rounds int) (median time.Duration, err error) {
	return timeSyncs(dir, rounds, func(f *os.File, i int) error {
		_, err := f.WriteAt([]byte(strconv.Itoa(i)), 0)
		return errors.Join(err, f.Sync())
	})
}

// JournalTime measures a commit to a journal in dir in the same way: a block of a file that
// was written before, and fdatasync.
func JournalTime(dir string, rounds int) (median time.Duration, err error) {
	block := make([]byte, 4<<10)
	return timeSyncs(dir, rounds, func(f *os.File, i int) error {
		if i == 0 {
			_, err := f.Write(make([]byte, rounds*len(block)))
			if err = errors.Join(err, f.Sync()); err != nil {
				return err
			}
		}
		_, err := f.WriteAt(block, int64(i*len(block)))
		return errors.Join(err, OS().Datasync(f))
	})
}

func timeSyncs(dir string, rounds int, write func(f *os.File, i int) error) (median time.Duration, err error) {
	f, err := os.CreateTemp(dir, tempPrefix+"sync-")
	if err != nil {
		return 0, fmt.Errorf("measure sync: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	times := make([]time.Duration, rounds)
	for i := range times {
		start := time.Now()
		if err := write(f, i); err != nil {
			return 0, fmt.Errorf("measure sync: %w", err)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[rounds/2], nil
}

// TooFast says why such a time is implausible for a disk.
func (m Mount) TooFast(median time.Duration) error {
	if m.inMemory() || median >= minSyncTime {
		return nil
	}
	return hints.Add(fmt.Errorf("a sync takes %s, faster than any disk: a layer above the disk skips it", median),
		"check the cache mode of the virtual disk (unsafe?), ZFS sync=disabled, and the mount options")
}
