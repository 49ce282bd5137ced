package doctor

import (
	"bytes"
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

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc/client"
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
		return console.Fail(console.ExitUsage, "permesso doctor runs it, in the agent's sandbox", "standard input is not what doctor gives to its probe")
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

const (
	probeTimeout  = 5 * time.Second // for one sandbox
	mountsTimeout = 6 * time.Second // after that no other is begun
)

// checkMounts starts the sandbox of permesso mounts --bwrap for each workspace,
// and in it a probe that tries what an agent must not do.
func (d *Doctor) checkMounts(ctx context.Context) []Finding {
	box := sandbox.Find(ctx, d.Bin, "", nil)
	if box.Bwrap == "" {
		return notice("sandbox not checked: "+console.OneLine(box.Why),
			"apt-get install bubblewrap, or check your containers against permesso mounts WORKSPACE")
	}
	var list []Finding
	workspaces := d.withFolders
	for i, ws := range workspaces {
		if time.Since(d.began) > mountsTimeout {
			list = append(list, notice(hints.Plural(len(workspaces)-i, "workspace")+" not checked, starting with "+ws+": time limit of one run",
				"permesso doctor --workspace "+ws)...)
			break
		}
		box.Mounts = d.MountsOf(ws)
		for _, user := range SandboxUsers() {
			list = append(list, d.tryMounts(ctx, box, ws, user)...)
		}
	}
	return orOK(list, "an agent in bubblewrap reaches only its two folders (%s)", hints.Plural(len(workspaces), "workspace"))
}

// SandboxUser is a user of the sandbox, and the bwrap arguments for it.
type SandboxUser struct {
	Who    string
	System []string
}

// SandboxUsers are the users that an agent can be. Only root can start an agent that is
// root on the host too.
func SandboxUsers() []SandboxUser {
	system := sandbox.BwrapSystem()
	users := []SandboxUser{{"a user", system}, {"root", append(slices.Clone(system), "--uid", "0", "--gid", "0")}}
	if i := slices.Index(system, "--unshare-all"); os.Getuid() == 0 && i >= 0 {
		own := []string{"--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"}
		users = append(users, SandboxUser{"root of the host", slices.Replace(slices.Clone(system), i, i+len([]string{"--unshare-all", "--uid", "1000", "--gid", "1000"}), own...)})
	}
	return users
}

// tryMounts returns what the probe could do as findings.
func (d *Doctor) tryMounts(ctx context.Context, box sandbox.Sandbox, ws string, user SandboxUser) []Finding {
	breaches, err := d.Probe(ctx, box, ws, user)
	if err != nil {
		return in(ws, warning("sandbox probe failed: "+console.OneLine(err.Error()),
			"permesso mounts "+ws+" --bwrap prints the mounts; start them by hand"))
	}
	var list []Finding
	for i, b := range breaches {
		if !slices.Contains(breaches[:i], b) {
			list = append(list, failure("an agent as "+user.Who+" in bubblewrap "+console.OneLine(b),
				"check for links and other mounts: permesso mounts "+ws+"; findmnt -T "+sandbox.ShellWord(d.Layout.Home))...)
		}
	}
	return in(ws, list)
}

// Probe runs permesso doctor probe in a sandbox.
func (d *Doctor) Probe(ctx context.Context, box sandbox.Sandbox, ws string, user SandboxUser) (breaches []string, err error) {
	q, err := json.Marshal(d.probeInput(ws))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	args := append(slices.Clone(user.System), box.Mounts.Bwrap()...)
	args = append(args, "--ro-bind", box.Bin, sandbox.AgentBin+"/permesso", sandbox.AgentBin+"/permesso", "doctor", "probe")
	cmd := exec.CommandContext(ctx, box.Bwrap, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(q), &out, &errs, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := sandbox.OnOneThread(cmd.Run); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		return nil, fmt.Errorf("probe: %w: %s", err, first)
	}
	if err := json.Unmarshal(out.Bytes(), &breaches); err != nil {
		return nil, fmt.Errorf("parse the probe's output: %w", err)
	}
	return breaches, nil
}

// probeInput is the probe's input. It holds no secrets: an attacker may know it.
type probeInput struct {
	Requests  string          `json:"requests"`
	Responses string          `json:"responses"`
	Own       protectedFile   `json:"own"` // the requests folder
	Private   []protectedFile `json:"private"`
	Sockets   []string        `json:"sockets"`
	Gate      int             `json:"gate"`  // PID of a process on the host
	Since     string          `json:"since"` // its start time: the sandbox may reuse the PID
}

// protectedFile is a private file or folder of the daemon.
type protectedFile struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Folder bool   `json:"folder"`
}

func (d *Doctor) probeInput(ws string) probeInput {
	l := d.Layout
	q := probeInput{Requests: client.DefaultRequests, Responses: client.DefaultResponses, Gate: d.Daemon}
	if q.Gate == 0 {
		q.Gate = os.Getpid() // any process of the host will do
	}
	q.Since = startOf(q.Gate)
	q.Own, _ = statProtected("its requests", l.Requests(ws))
	for _, t := range []struct{ name, path string }{
		{"the daemon's home", l.Home},
		{"the keys", l.Keys()},
		{"the MAC key", filepath.Join(l.Keys(), "mac.key")},
		{"the signing key", filepath.Join(l.Keys(), "signing.key")},
		{"the pending requests", l.Pendings(ws)},
		{"the decisions", l.Decisions(ws)},
		{"the receipts", l.Receipts(ws)},
		{"the records", l.Records(ws)},
		{"the audit log", l.Audit()},
		{"all workspaces", l.IPC()},
		{"its workspace folder", l.Workspace(ws)},
		{"the configuration", d.file},
	} {
		if thing, err := statProtected(t.name, t.path); err == nil {
			q.Private = append(q.Private, thing)
		}
	}
	for _, other := range d.withFolders {
		if other != ws {
			if t, err := statProtected("workspace "+other, l.Workspace(other)); err == nil {
				q.Private = append(q.Private, t)
			}
		}
	}
	q.Sockets = sockets(l.Home, "/run/permesso", d.Config.Socket, "/var/run/docker.sock", "/run/podman/podman.sock")
	return q
}

func statProtected(name, path string) (protectedFile, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return protectedFile{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return protectedFile{}, err
	}
	t := protectedFile{Name: name, Path: path, Folder: info.IsDir()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		t.Dev, t.Ino = uint64(st.Dev), st.Ino
	}
	return t, nil
}

// sockets returns the sockets at these paths or directly in these folders.
func sockets(places ...string) (found []string) {
	for _, place := range places {
		if place == "" {
			continue
		}
		inside, err := filepath.Glob(filepath.Join(place, "*")) // fails only for invalid patterns
		if err != nil {
			inside = nil
		}
		for _, path := range append(inside, place) {
			if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
				found = append(found, path)
			}
		}
	}
	return found
}

// startOf returns a process's start time in ticks since boot: field 22 of
// proc_pid_stat(5). "" if there is no such process.
func startOf(pid int) string {
	b, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from field 3
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
