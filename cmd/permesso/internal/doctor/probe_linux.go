package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	p := &prober{probeInput: q, ProbeReport: ProbeReport{Tried: map[string]int{}}}
	if os.Getenv(remountOnly) != "" {
		p.remount(", as root of its own namespace")
	} else {
		p.tryAll()
	}
	c.JSON = true
	return c.Print(p.ProbeReport, "")
}

// ProbeReport is what the probe tried in a sandbox.
type ProbeReport struct {
	Tried    map[string]int `json:"tried"`     // attempts that were made, by kind
	Breaches []string       `json:"breaches"`  // those that succeeded, and what an agent needs and does not have
	NotTried []string       `json:"not_tried"` // attempts that could not be made, and why
}

// prober makes the attempts.
type prober struct {
	probeInput
	ProbeReport
}

// tried counts an attempt. Only an error of the kernel shows that it was made and stopped;
// breach says what it means if there is none.
func (p *prober) tried(kind, breach string, err error) {
	var errno syscall.Errno
	switch {
	case err == nil:
		p.Breaches = append(p.Breaches, breach)
	case !errors.As(err, &errno), errno == unix.ENOSYS:
		p.NotTried = append(p.NotTried, breach+": "+err.Error())
		return
	}
	p.Tried[kind]++
}

const (
	// remountOnly marks the second probe, which is root in namespaces of its own.
	remountOnly = "PERMESSO_PROBE_REMOUNT"
	// probeSecret stands for the environment of the user that starts a sandbox.
	probeSecret = "PERMESSO_PROBE_SECRET" //nolint:gosec // a name
)

// tryAll tries everything. The remounts come last because they last until the sandbox
// ends.
func (p *prober) tryAll() {
	p.Breaches = p.ownFolders()
	p.responses()
	p.private()
	p.process()
	p.kernel()
	p.filtered()
	p.connect()
	p.remountElsewhere()
	p.remount("")
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
func (p *prober) responses() {
	const kind = "responses"
	p.tried(kind, "may write responses: it could forge them", writable(p.Responses))
	info, err := os.Stat(p.Responses)
	if err == nil {
		err = os.Chmod(p.Responses, info.Mode().Perm())
	}
	p.tried(kind, "may change the mode of the responses", err)
	names, err := filepath.Glob(filepath.Join(p.Responses, "*.json"))
	if err != nil || len(names) == 0 {
		return
	}
	p.tried(kind, "may overwrite a response", opens(names[0], os.O_WRONLY))
	link := filepath.Join(p.Requests, ".tmp-probe-link")
	if err = os.Link(names[0], link); err == nil {
		os.Remove(link)
	}
	p.tried(kind, "may link to a response from its requests", err)
}

func opens(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// private looks for the daemon's private files, on every path where a wrong
// mount could expose them.
func (p *prober) private() {
	roots := append(mountPoints(), procRoots()...)
	for _, t := range p.Private {
		breach, err := "sees "+t.Name, error(unix.ENOENT)
		for _, path := range t.candidates(roots) {
			if is, statErr := statProtected("", path); statErr == nil && is.Dev == t.Dev && is.Ino == t.Ino {
				breach, err = t.reach(path), nil
				break
			}
		}
		p.tried("private files", breach, err)
	}
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

// process tries to see, signal, read, change or slow the daemon. No attempt harms it if it
// succeeds: signal 0 only tests the permission, and no byte is read or written.
func (p *prober) process() {
	try := func(kind, breach string, f func(pid int) error) {
		since := startOf(p.Gate)
		switch {
		case p.Since == "":
			p.NotTried = append(p.NotTried, breach+": the daemon's process is not known")
		case since != "" && since != p.Since: // another process has its PID
			p.tried(kind, breach, unix.ESRCH)
		default:
			p.tried(kind, breach, f(p.Gate))
		}
	}
	try("signals", "may kill the daemon's process", func(pid int) error { return unix.Kill(pid, 0) })
	try("signals", "may signal a thread of the daemon", func(pid int) error { return unix.Tgkill(pid, pid, 0) })
	try("signals", "may signal the daemon through a pidfd", withPidfd(func(fd int) error { return unix.PidfdSendSignal(fd, 0, nil, 0) }))
	try("ptrace", "may debug the daemon", seize)
	try("memory", "may read the daemon's memory through process_vm_readv", vmAccess(unix.ProcessVMReadv))
	try("memory", "may write the daemon's memory through process_vm_writev", vmAccess(unix.ProcessVMWritev))
	try("memory", "may take a descriptor of the daemon", withPidfd(func(fd int) error {
		got, err := unix.PidfdGetfd(fd, 0, 0)
		if err != nil {
			return err
		}
		return unix.Close(got)
	}))
	try("limits", "may limit the daemon", func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &unix.Rlimit{}) })
	try("limits", "may slow the daemon down", func(pid int) error {
		was, err := unix.Getpriority(unix.PRIO_PROCESS, pid) // 20 less the nice value
		if err != nil {
			return err
		}
		return unix.Setpriority(unix.PRIO_PROCESS, pid, 20-was)
	})
	try("/proc", "sees the daemon's process", func(pid int) error { return opens(procFile(pid, "stat"), os.O_RDONLY) })
	for _, file := range []struct {
		name, breach string
		flags        int
	}{
		{"mem", "may read the daemon's memory", os.O_RDONLY},
		{"maps", "sees the daemon's memory", os.O_RDONLY},
		{"environ", "may read the daemon's environment", os.O_RDONLY},
		{"oom_score_adj", "may have the kernel kill the daemon", os.O_WRONLY},
		{"root", "enters the host's files through the daemon", unix.O_DIRECTORY},
		{"cwd", "enters the daemon's folder", unix.O_DIRECTORY},
		{"fd", "sees the daemon's descriptors", unix.O_DIRECTORY},
	} {
		try("/proc", file.breach, func(pid int) error { return opens(procFile(pid, file.name), file.flags) })
	}
	p.tried("/proc", "may read the environment of the user that started it", starterEnvironment())
}

func withPidfd(f func(fd int) error) func(pid int) error {
	return func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return f(fd)
	}
}

// seize becomes a process's debugger, which does not stop it, until the thread ends.
func seize(pid int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- unix.PtraceSeize(pid)
	}()
	return <-done
}

// vmAccess accesses an address that is not mapped: EFAULT means that the kernel allowed the
// access.
func vmAccess(call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) func(pid int) error {
	return func(pid int) error {
		var b [8]byte
		_, err := call(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 8, Len: 8}}, 0)
		if errors.Is(err, unix.EFAULT) {
			return nil
		}
		return err
	}
}

// starterEnvironment looks for probeSecret, which the sandbox must not pass on.
func starterEnvironment() error {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return err
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && bytes.Contains(b, []byte(probeSecret+"=")) {
			return nil
		}
	}
	return unix.ENOENT
}

// kernel tries to change the kernel: root may write its settings without any capability.
func (p *prober) kernel() {
	for _, file := range []struct{ path, breach string }{
		{"/proc/sys/kernel/core_pattern", "may set the kernel's program for core dumps"},
		{"/proc/sys/fs/file-max", "may set limits of the kernel"},
		{"/proc/sysrq-trigger", "may restart the host"},
		{"/sys/fs/cgroup/cgroup.procs", "may change cgroups of the host"},
		{"/dev/mem", "may write the host's memory"},
	} {
		p.tried("the kernel", file.breach, opens(file.path, os.O_WRONLY))
	}
	disk := filepath.Join(p.Requests, ".tmp-probe-disk")
	err := unix.Mknod(disk, unix.S_IFBLK|0o600, int(p.Own.Dev))
	if err == nil {
		err = os.Remove(disk)
	}
	p.tried("the kernel", "may make a device of the host's disk", err)
}

// filtered tries what the kernel allows every user, and the sandbox's filter must refuse.
func (p *prober) filtered() {
	const kind = "the filter"
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false)
	p.tried(kind, "may reach the keys in the kernel's keyrings", err)
	f, err := os.CreateTemp(p.Requests, ".tmp-probe-")
	if err == nil {
		err = errors.Join(unix.Fchmod(int(f.Fd()), unix.S_ISUID|0o600), f.Close())
		os.Remove(f.Name())
	}
	p.tried(kind, "may make a program that runs as its user for others on the host", err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "--version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	p.tried(kind, "may have capabilities in a user namespace of its own", cmd.Run())
}

func (p *prober) connect() {
	for _, path := range p.Sockets {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
		}
		p.tried("sockets", "reaches the socket "+path, err)
	}
}

// remount tries to make the responses writable, then to unmount them.
func (p *prober) remount(as string) {
	p.tried("mounts", "may remount its responses for writing"+as, unix.Mount("", p.Responses, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	p.tried("mounts", "may unmount its responses"+as, unix.Unmount(p.Responses, unix.MNT_DETACH))
}

// remountElsewhere tries the same as root in new namespaces, where the kernel
// locks mounts from outside.
func (p *prober) remountElsewhere() {
	if writable(p.Responses) == nil {
		return // they are writable already
	}
	const what = "may remount its responses, as root of its own namespace"
	b, err := json.Marshal(p.probeInput)
	if err != nil {
		p.tried("mounts", what, err)
		return
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
	out, err := cmd.Output() // an error of the kernel: namespaces are forbidden, which is fine
	var r ProbeReport
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		p.tried("mounts", what, err)
		return
	}
	p.Tried["mounts"] += r.Tried["mounts"]
	p.Breaches, p.NotTried = append(p.Breaches, r.Breaches...), append(p.NotTried, r.NotTried...)
}

const (
	probeTimeout  = 5 * time.Second // for one sandbox
	mountsTimeout = 6 * time.Second // after that no other is begun
)

// checkMounts starts the sandbox of permesso mounts --bwrap for each workspace,
// and in it a probe that tries what an agent must not do.
func (d *Doctor) checkMounts(ctx context.Context) []Finding {
	const cure = "permesso serve writes it when it starts; so does permesso mounts WORKSPACE --bwrap"
	switch err := sandbox.CheckFilter(d.Layout); {
	case errors.Is(err, fs.ErrNotExist):
		return notice("sandbox not checked: there is no "+console.OneLine(d.Layout.Seccomp())+" yet", cure)
	case err != nil:
		return warning("sandbox not checked: "+console.OneLine(err.Error()), cure)
	}
	box := sandbox.Find(ctx, d.Bin, "", d.Layout, nil)
	if box.Bwrap == "" {
		return notice("sandbox not checked: "+console.OneLine(box.Why),
			"apt-get install bubblewrap, or check your containers against permesso mounts WORKSPACE")
	}
	var list []Finding
	tried := map[string]int{}
	workspaces := d.withFolders
	for i, ws := range workspaces {
		if time.Since(d.began) > mountsTimeout {
			list = append(list, notice(hints.Plural(len(workspaces)-i, "workspace")+" not checked, starting with "+ws+": time limit of one run",
				"permesso doctor --workspace "+ws)...)
			break
		}
		box.Mounts = d.MountsOf(ws)
		for _, user := range d.SandboxUsers(ws) {
			list = append(list, d.tryMounts(ctx, box, ws, user, tried)...)
		}
	}
	if slices.ContainsFunc(list, func(f Finding) bool { return f.Severity < SeverityInfo }) || len(tried) == 0 {
		return list
	}
	sum, kinds := 0, make([]string, 0, len(tried))
	for _, kind := range slices.Sorted(maps.Keys(tried)) {
		sum, kinds = sum+tried[kind], append(kinds, fmt.Sprintf("%s %d", kind, tried[kind]))
	}
	return append(list, okFinding("an agent in the bubblewrap of permesso mounts reaches only its two folders (%s): of %d attempts none succeeded (%s)",
		hints.Plural(len(workspaces), "workspace"), sum, strings.Join(kinds, ", ")))
}

// SandboxUser is a user that starts the sandbox, and the bwrap arguments before the mounts.
type SandboxUser struct {
	Who    string
	UID    int // 0: the user of doctor
	System []string
}

// SandboxUsers are the users that an agent of a workspace can be. Only root can start a
// sandbox as another user.
func (d *Doctor) SandboxUsers(ws string) []SandboxUser {
	system := sandbox.BwrapSystem()
	if os.Getuid() != 0 {
		return []SandboxUser{{"its user", 0, system}, {"root of its own namespace", 0, append(slices.Clone(system), "--unshare-user", "--uid", "0", "--gid", "0")}}
	}
	users := []SandboxUser{{"root", 0, system}}
	if d.UID > 0 {
		users = append(users, SandboxUser{"the daemon's user", d.UID, system})
	}
	for _, uid := range d.Config.AgentsOf(ws) {
		users = append(users, SandboxUser{fmt.Sprintf("UID %d (agent_uid)", uid), int(uid), system})
	}
	return users
}

// tryMounts returns what the probe could do, and could not try, as findings. It adds what it
// tried.
func (d *Doctor) tryMounts(ctx context.Context, box sandbox.Sandbox, ws string, user SandboxUser, tried map[string]int) []Finding {
	r, err := d.Probe(ctx, box, ws, user)
	if err != nil {
		return in(ws, warning("sandbox probe as "+user.Who+" failed: "+console.OneLine(err.Error()),
			"start it by hand: eval \"bwrap $(permesso mounts "+ws+" --bwrap) true\""))
	}
	for kind, n := range r.Tried {
		tried[kind] += n
	}
	var list []Finding
	for i, b := range r.Breaches {
		if !slices.Contains(r.Breaches[:i], b) {
			list = append(list, failure("an agent as "+user.Who+" in bubblewrap "+console.OneLine(b),
				"check for links and other mounts: permesso mounts "+ws+"; findmnt -T "+sandbox.ShellWord(d.Layout.Home))...)
		}
	}
	for _, what := range r.NotTried {
		list = append(list, notice("not tried, as "+user.Who+" in bubblewrap: "+console.OneLine(what), "")...)
	}
	return in(ws, list)
}

// Probe runs permesso doctor probe in a sandbox.
func (d *Doctor) Probe(ctx context.Context, box sandbox.Sandbox, ws string, user SandboxUser) (r ProbeReport, err error) {
	q, err := json.Marshal(d.probeInput(ws))
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	const program = sandbox.AgentBin + "/permesso"
	args, as := append(slices.Clone(user.System), box.Mounts.Binds()...), &syscall.SysProcAttr{Setpgid: true}
	var files []*os.File
	if user.UID == 0 {
		args = append(args, "--ro-bind", box.Bin, program)
	} else { // another user may have no way to our program
		f, err := os.Open(box.Bin)
		if err != nil {
			return r, err
		}
		defer f.Close()
		files, args = []*os.File{f}, append(args, "--perms", "0755", "--ro-bind-data", "3", program)
		as.Credential = &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.UID)}
	}
	argv := box.Command(append(args, program, "doctor", "probe")...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.ExtraFiles, cmd.SysProcAttr = files, as
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(q), &out, &errs, time.Second
	cmd.Env = append(os.Environ(), probeSecret+"=1")
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := sandbox.OnOneThread(cmd.Run); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		return r, fmt.Errorf("probe: %w: %s", err, first)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("parse the probe's output: %w", err)
	}
	return r, nil
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
