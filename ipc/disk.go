package ipc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is what the system says of the mount that holds a path.
type Mount struct {
	Point   string   // where it is mounted
	Type    string   // ext4, tmpfs …
	Options []string // the mount's own and the file system's
}

// MountOf finds the mount of a path. Where there is no /proc/self/mountinfo
// the error is fs.ErrNotExist.
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

// findMount reads mountinfo, whose format is in proc_pid_mountinfo(5). Of
// several mounts on one point the last is the one that is seen.
func findMount(mountinfo io.Reader, path string) (Mount, error) {
	var best Mount
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20) // overlays list their folders
	for lines.Scan() {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 3 {
			continue
		}
		point := unescapeMount(l[4])
		if !below(path, point) || len(point) < len(best.Point) {
			continue
		}
		best = Mount{Point: point, Type: r[0], Options: slices.Concat(strings.Split(l[5], ","), strings.Split(r[2], ","))}
	}
	if err := lines.Err(); err != nil {
		return Mount{}, fmt.Errorf("find mount: %w", err)
	}
	if best.Point == "" {
		return Mount{}, fmt.Errorf("find mount: %s lies on none", path)
	}
	return best, nil
}

func below(path, folder string) bool {
	return path == folder || folder == "/" || strings.HasPrefix(path, folder+"/")
}

// unescapeMount undoes the kernel's octal escapes: \040 is a blank.
func unescapeMount(s string) string {
	for _, c := range []string{" ", "\t", "\n", `\`} {
		s = strings.ReplaceAll(s, fmt.Sprintf(`\%03o`, c[0]), c)
	}
	return s
}

// Loses says why nothing that is written here outlives the machine's next
// start, or a power cut: an fsync does nothing here. Nil where it should work.
func (m Mount) LosesData() error {
	switch {
	case slices.Contains([]string{"tmpfs", "ramfs", "rootfs"}, m.Type):
		return fmt.Errorf("%s is a %s: its files are gone at the next start of the machine, decisions and records with them\n"+
			"hint: move the home to a disk: permesso --home DIR", m.Point, m.Type)
	case m.Type == "overlay" && m.has("volatile"):
		return fmt.Errorf("%s is a volatile overlay, which leaves out every fsync\nhint: put the home on a volume of its own", m.Point)
	}
	for _, o := range []string{"nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier"} {
		if m.has(o) {
			return fmt.Errorf("%s is mounted with %s: what was synced may be lost in a power cut\nhint: mount -o remount,barrier %s, "+
				"and take %s out of /etc/fstab", m.Point, o, shellQuote(m.Point), o)
		}
	}
	return nil
}

// Doubts says what makes it less sure than it could be.
func (m Mount) Warnings() error {
	switch {
	case m.Type == "overlay":
		return fmt.Errorf("%s is an overlay, as a container's own files are: it goes away with the container\n"+
			"hint: put the home on a volume", m.Point)
	case m.has("data=writeback"):
		return fmt.Errorf("%s is mounted with data=writeback: after a crash new files may hold old data\n"+
			"hint: take data=writeback out of /etc/fstab", m.Point)
	}
	return nil
}

func (m Mount) has(option string) bool { return slices.Contains(m.Options, option) }

// Memory says that there is no disk below, which would take its time.
func (m Mount) Memory() bool { return m.Type == "tmpfs" || m.Type == "ramfs" || m.Type == "rootfs" }

// Room is what is left on the file system that holds a path, for somebody who
// is not root.
type FreeSpace struct {
	Device   string // where it is mounted, or the path where that is not known
	Bytes    uint64
	Files    uint64 // how many more it can hold
	Counted  bool   // false: as many as fit, as on btrfs
	ReadOnly bool
}

// FreeSpaceOf asks the file system.
func FreeSpaceOf(path string) (FreeSpace, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(path, &st) }); err != nil {
		return FreeSpace{}, fmt.Errorf("look at disk of %s: %w", path, err)
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

// The marks below which space is short, and below which the gate may have to
// refuse work.
const (
	shortBytes, leastBytes = 256 << 20, 16 << 20
	shortFiles, leastFiles = 10_000, 1_000
)

// Refuses says that there is too little room to take new work, or none.
func (r FreeSpace) Refuses() error {
	switch {
	case r.ReadOnly:
		return fmt.Errorf("%s is mounted read-only\nhint: after a disk error look at dmesg first, then: mount -o remount,rw %s",
			r.Device, shellQuote(r.Device))
	case r.Bytes < leastBytes:
		return fmt.Errorf("%s has %d KiB left\nhint: make room there: the gate refuses work that it cannot record", r.Device, r.Bytes>>10)
	case r.Counted && r.Files < leastFiles:
		return fmt.Errorf("%s has room for %d more files\nhint: remove files there (df -i): the gate refuses work that it cannot record",
			r.Device, r.Files)
	}
	return nil
}

// Low says that it is time to make room.
func (r FreeSpace) Low() error {
	switch {
	case r.Bytes < shortBytes:
		return fmt.Errorf("%s has %d MiB left\nhint: make room there", r.Device, r.Bytes>>20)
	case r.Counted && r.Files < shortFiles:
		return fmt.Errorf("%s has room for %d more files\nhint: remove files there (df -i)", r.Device, r.Files)
	}
	return nil
}

// CheckOneDisk says which folders lie on another file system than HOME. A
// start makes durable what lies on that of HOME. The requests may lie where
// they like.
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
			wrong = append(wrong, fmt.Errorf("%s lies on another file system than the home: after a kill, what was written there "+
				"may not be durable\nhint: unmount it, and move its files into the home", f.path))
		}
	}
	return wrong
}

func deviceOf(path string) (uint64, error) {
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Lstat(path, &st) }); err != nil {
		return 0, fmt.Errorf("look at disk of %s: %w", path, err)
	}
	return uint64(st.Dev), nil
}

// suspicious is what no disk can do: a write to flash, or to a cache that
// survives a power cut, and back.
const suspicious = 20 * time.Microsecond

// SyncTime measures how long it takes to write a small file in dir and sync
// it: the median of that many rounds. It leaves nothing behind. TooFast says
// that no disk was asked.
func SyncTime(dir string, rounds int) (median time.Duration, err error) {
	f, err := os.CreateTemp(dir, tempPrefix+"sync-")
	if err != nil {
		return 0, fmt.Errorf("measure fsync: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	times := make([]time.Duration, rounds)
	for i := range times {
		start := time.Now()
		if _, err := f.WriteAt([]byte(strconv.Itoa(i)), 0); err != nil {
			return 0, fmt.Errorf("measure fsync: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("measure fsync: %w", err)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[rounds/2], nil
}

// TooFast says why such a time is not to be believed, where there is a disk.
func (m Mount) TooFast(median time.Duration) error {
	if m.Memory() || median >= suspicious {
		return nil
	}
	return fmt.Errorf("an fsync takes %s, faster than any disk: something between here and the disk leaves it out\n"+
		"hint: look at the cache mode of the virtual disk (unsafe?), sync=disabled of ZFS, and the mount options", median)
}
