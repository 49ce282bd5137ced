package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// Probe is what doctor runs in a sandbox. It reads a probeInput and writes what
// it could do that an agent must not. It undoes its changes.
func Probe(c *console.Console) error {
	b, err := io.ReadAll(c.In)
	if err != nil {
		return err
	}
	var q probeInput
	if err := json.Unmarshal(b, &q); err != nil {
		return fmt.Errorf("parse probe input: %w", err)
	}
	if os.Getenv(remountOnly) != "" {
		return c.Print(q.remount(), "")
	}
	c.JSON = true
	return c.Print(q.breaches(), "")
}

// remountOnly marks the second probe, which is root in namespaces of its own.
const remountOnly = "PERMESSO_PROBE_REMOUNT"

// breaches tries everything. The remounts come last because they last until
// the sandbox ends.
func (q probeInput) breaches() []string {
	return slices.Concat(q.ownFolders(), q.responses(), q.private(), q.process(), q.connect(), q.remountElsewhere(), q.remount())
}

// ownFolders checks what an agent must be able to do.
func (q probeInput) ownFolders() (list []string) {
	if err := writable(q.Requests); err != nil {
		list = append(list, "cannot write requests: "+err.Error())
	}
	if t, err := statProtected("", q.Requests); err == nil && (t.Dev != q.Own.Dev || t.Ino != q.Own.Ino) {
		list = append(list, "has another folder mounted as its requests")
	}
	if _, err := os.ReadDir(q.Responses); err != nil {
		list = append(list, "cannot read its responses: "+err.Error())
	}
	return list
}

// writable creates a file and removes it.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".tmp-probe-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// responses tries to change a response in every way that leaves no trace.
func (q probeInput) responses() (list []string) {
	if writable(q.Responses) == nil {
		list = append(list, "may write responses: it could forge them")
	}
	if info, err := os.Stat(q.Responses); err == nil && os.Chmod(q.Responses, info.Mode().Perm()) == nil {
		list = append(list, "may change the mode of the responses")
	}
	names, err := filepath.Glob(filepath.Join(q.Responses, "*.json"))
	if err != nil || len(names) == 0 {
		return list
	}
	if f, err := os.OpenFile(names[0], os.O_WRONLY, 0); err == nil {
		f.Close()
		list = append(list, "may overwrite a response")
	}
	link := filepath.Join(q.Requests, ".tmp-probe-link")
	if os.Link(names[0], link) == nil {
		os.Remove(link)
		list = append(list, "may link to a response from its requests")
	}
	return list
}

// private looks for the daemon's private files, on every path where a wrong
// mount could expose them.
func (q probeInput) private() (list []string) {
	roots := append(mountPoints(), procRoots()...)
	for _, t := range q.Private {
		for _, path := range t.candidates(roots) {
			is, err := statProtected("", path)
			if err != nil || is.Dev != t.Dev || is.Ino != t.Ino {
				continue
			}
			list = append(list, t.reach(path))
			break
		}
	}
	return list
}

// reach says what the probe can do with a file that it found.
func (t protectedFile) reach(path string) string {
	can := "sees"
	if f, err := os.Open(path); err == nil {
		f.Close()
		can = "may read"
	}
	if unix.Access(path, unix.W_OK) == nil {
		can = "may write to"
	}
	return can + " " + t.Name + ", at " + path
}

// candidates are paths where a host file could be: /a/b/c is at b/c below a
// mount point if /a is mounted there.
func (t protectedFile) candidates(roots []string) []string {
	var paths []string
	parts := strings.Split(strings.Trim(t.Path, "/"), "/")
	for _, root := range append([]string{"/"}, roots...) {
		for i := range len(parts) + 1 {
			paths = append(paths, filepath.Join(append([]string{root}, parts[i:]...)...))
		}
	}
	return paths
}

// mountPoints are the sandbox's mount points. Without /proc, only the usual
// ones are known.
func mountPoints() []string {
	points := []string{"/permesso/requests", "/permesso/responses", "/permesso"}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return points
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			points = append(points, f[4])
		}
	}
	slices.Sort(points)
	return slices.Compact(points)
}

// procRoots are paths into the host's files through other processes.
func procRoots() (roots []string) {
	for _, pattern := range []string{"/proc/[0-9]*/root", "/proc/[0-9]*/cwd", "/proc/[0-9]*/fd/*"} {
		found, err := filepath.Glob(pattern)
		if err == nil { // fails only for invalid patterns
			roots = append(roots, found...)
		}
	}
	return roots
}

// process checks whether the daemon can be seen, read or killed. Signal 0 only
// tests the permission.
func (q probeInput) process() (list []string) {
	if q.Since == "" || startOf(q.Gate) != q.Since {
		return nil
	}
	list = append(list, "sees the daemon's process")
	if unix.Kill(q.Gate, 0) == nil {
		list = append(list, "may kill the daemon's process")
	}
	if f, err := os.Open(procFile(q.Gate, "mem")); err == nil {
		f.Close()
		list = append(list, "may read the daemon's memory")
	}
	return list
}

func (q probeInput) connect() (list []string) {
	for _, path := range q.Sockets {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			continue
		}
		c.Close()
		list = append(list, "reaches the socket "+path)
	}
	return list
}

// remount tries to make the responses writable, then to unmount them.
func (q probeInput) remount() (list []string) {
	if unix.Mount("", q.Responses, "", unix.MS_REMOUNT|unix.MS_BIND, "") == nil {
		list = append(list, "may remount its responses for writing")
	}
	if unix.Unmount(q.Responses, unix.MNT_DETACH) == nil {
		list = append(list, "may unmount its responses")
	}
	return list
}

// remountElsewhere tries the same as root in new namespaces, where the kernel
// locks mounts from outside.
func (q probeInput) remountElsewhere() []string {
	before := writable(q.Responses)
	b, err := json.Marshal(q)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "doctor", "probe", "--json")
	cmd.Stdin, cmd.Env = strings.NewReader(string(b)), []string{remountOnly + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	var list []string
	if err != nil || json.Unmarshal(out, &list) != nil || before == nil {
		return nil // namespaces are forbidden, which is fine
	}
	for i := range list {
		list[i] += ", as root of its own namespace"
	}
	return list
}
