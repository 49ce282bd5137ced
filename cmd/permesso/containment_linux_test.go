package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc/client"
)

const (
	escapeVariable = "PERMESSO_ESCAPE" // "all", "control" or the name of an attempt of childEscapes
	targetVariable = "PERMESSO_ESCAPE_TARGETS"
	escapeMarker   = "PERMESSO_SECRET_OF_THE_STARTER"
)

// escapeResult is what one attempt gave.
type escapeResult struct {
	Kind, Name string
	Escaped    bool
	Errno      int    // why the kernel stopped it; 0: the attempt could not be made
	Text       string // of the error
}

func (r escapeResult) err() error {
	if r.Errno == 0 {
		return errors.New(r.Text)
	}
	return syscall.Errno(r.Errno)
}

// stops are the errors with which a kernel stops an escape. With any other, the attempt
// was not made as meant.
var stops = []syscall.Errno{
	unix.EPERM, unix.EACCES, unix.ESRCH, unix.ENOENT, unix.EROFS, unix.ENXIO, unix.ECONNREFUSED, unix.ENOTTY, unix.EXDEV, unix.EIO,
}

func resultOf(e escape, err error) escapeResult {
	r := escapeResult{Kind: e.kind, Name: e.name, Escaped: err == nil}
	if err != nil {
		r.Text = err.Error()
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		r.Errno = int(errno)
	}
	return r
}

// stopped reports whether the attempt was made, and stopped.
func (r escapeResult) stopped() bool {
	locked := r.Kind == "mounts" && r.Errno == int(unix.EINVAL) // umount(2) of a mount that is locked
	return !r.Escaped && (locked || slices.Contains(stops, syscall.Errno(r.Errno)))
}

// escapeIfAsked makes the attempts, in a sandbox or as their control, and ends.
func escapeIfAsked() {
	what := os.Getenv(escapeVariable)
	if what == "" {
		return
	}
	signal.Ignore(unix.SIGTTOU) // a terminal would stop it instead of refusing
	if err := makeEscapes(what); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func makeEscapes(what string) error {
	var q escapeTargets
	in := os.Stdin
	if file := os.Getenv(targetVariable); file != "" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		in = f
	}
	if err := json.UnmarshalRead(in, &q); err != nil {
		return err
	}
	switch what {
	case "all":
		for _, e := range escapes() {
			if err := printResult(e, e.try(&q)); err != nil {
				return err
			}
		}
		return nil
	case "control":
		return makeControls(&q)
	}
	return printResult(escape{}, childEscapes[what](&q))
}

func printResult(e escape, err error) error {
	b, err := json.Marshal(resultOf(e, err))
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(b, '\n'))
	return err
}

// makeControls makes each attempt without a sandbox, at targets of its own: in own
// namespaces of mounts and processes, so that what it does stays there.
func makeControls(q *escapeTargets) error {
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, ""))
	if os.Getenv("PERMESSO_ESCAPE_ROOT") != "" {
		err = errors.Join(err, unix.Mount("none", "/usr/local/bin", "tmpfs", 0, ""))
	}
	if err != nil {
		return err
	}
	for _, e := range escapes() {
		end, err := q.prepareControl(e.kind == "mounts")
		if err != nil {
			return err
		}
		err = printResult(e, e.try(q))
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// prepareControl makes a small HOME, and processes in place of the daemon's.
func (q *escapeTargets) prepareControl(mounted bool) (end func(), err error) {
	for _, dir := range []string{q.Requests, q.Responses} {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil { // until nothing is mounted there
		}
	}
	err = os.RemoveAll(q.Home)
	for _, file := range []string{
		filepath.Join(q.Home, "keys/mac.key"), filepath.Join(q.Home, "audit/log.jsonl"), filepath.Join(q.Home, "lock"), q.Config,
		filepath.Join(q.Requests, "x"), filepath.Join(q.Other, "x"), filepath.Join(q.Responses, q.Done+".json"),
		filepath.Join(q.Home, "ipc/annes/pending_approvals", q.Pending+".json"), filepath.Join(q.Home, "ipc/annes/approval_decisions/x"),
	} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("secret"), 0o600))
	}
	if mounted {
		err = errors.Join(err, q.protectResponses())
	}
	var started []*osexec.Cmd
	for _, v := range []*victim{&q.Gate, &q.Supervisor, &q.Handler} {
		key, openErr := os.Open(filepath.Join(q.Home, "keys/mac.key"))
		cmd := osexec.Command("/bin/sleep", "1000")
		cmd.Stdin, cmd.Dir, cmd.Env, cmd.SysProcAttr = key, q.Home, []string{q.Environment}, &syscall.SysProcAttr{Setpgid: true}
		if err = errors.Join(err, openErr, cmd.Start()); err != nil {
			return nil, err
		}
		started = append(started, cmd)
		*v = victim{cmd.Process.Pid, startedAt(cmd.Process.Pid)}
		_ = key.Close()
	}
	return func() {
		for _, cmd := range started {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}, err
}

const containmentConfig = `
socket = %q
listen = ["127.0.0.1:0", %q]
[approvers.ann]
local = %d
[workspaces.annes]
approvers = ["ann"]
agent_uid = 40003
[workspaces.bobs]
[tools.ask]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/echo", "asked"] }
[tools.quick]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "done"] }
[tools.hold]
trust = false
handler = { kind = "command", argv = ["/bin/sh", "-c", 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 100000', %q], timeout = "30m" }
[[rules]]
match = { tool = ["quick", "hold"] }
outcome = "allow"
`

// containmentRig is a daemon that runs a handler of the workspace bobs. The agent is in
// the workspace annes, with a settled and a pending request.
type containmentRig struct {
	*multiUserRig
	daemon  *daemonProcess
	targets escapeTargets
	self    string
}

func newContainmentRig(t *testing.T) *containmentRig {
	t.Helper()
	c := &containmentRig{multiUserRig: newMultiUserRig(t)}
	api := filepath.Join(c.dir, "run", "api.sock")
	started := filepath.Join(c.dir, "run", "handler")
	c.configure(fmt.Sprintf(containmentConfig, c.socket, "unix:"+api, c.ann, started))
	c.daemon = c.startServing()
	c.daemon.awaitLog("HTTP API listening")
	c.agent = client.Files{Requests: c.layout.Requests("annes"), Responses: c.layout.Responses("annes")}
	c.self = c.selfCommand(os.Getuid(), "").Path

	hold := client.NewID()
	bobs := client.Files{Requests: c.layout.Requests("bobs"), Responses: c.layout.Responses("bobs")}
	require.NoError(t, bobs.Submit(hold, []byte(`{"request_id":"`+hold+`","tool_name":"hold"}`)))
	done := c.settle(t)
	pending := client.NewID()
	require.NoError(t, c.agent.Submit(pending, []byte(`{"request_id":"`+pending+`","tool_name":"ask"}`)))
	c.awaitFile(filepath.Join(c.layout.Pendings("annes"), pending+".json"))
	c.awaitFile(started)
	b, err := os.ReadFile(started)
	require.NoError(t, err)
	handler, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)

	q := &c.targets
	*q = escapeTargets{
		Home: c.layout.Home, Config: c.config, Requests: client.DefaultRequests, Responses: client.DefaultResponses, Other: c.layout.Requests("bobs"),
		Pending: pending, Done: done, Environment: escapeMarker + "=secret", Readable: filepath.Join(c.dir, "readable"),
		Sockets: map[string]string{
			"the daemon's own socket": c.layout.Socket(), "the approvers' socket": c.socket, "the API's socket": api,
			"a socket in the host's /tmp": listenIn(t, os.TempDir()), "a socket where Docker and D-Bus have theirs": listenIn(t, runFolder()),
		},
		Loopback: listenPattern.FindStringSubmatch(c.daemon.logged())[1],
	}
	require.NoError(t, os.WriteFile(q.Readable, []byte("readable"), 0o644))
	q.HostPIDs, err = os.Readlink("/proc/self/ns/pid")
	require.NoError(t, err)
	for v, pid := range map[*victim]int{&q.Gate: c.daemon.cmd.Process.Pid, &q.Handler: handler, &q.Supervisor: parentOf(t, handler)} {
		*v = victim{pid, startedAt(pid)}
		require.NotEmpty(t, v.Since)
	}
	q.shareKernelObjects(t)
	info, err := os.Stat(c.layout.Home)
	require.NoError(t, err)
	q.Disk = info.Sys().(*syscall.Stat_t).Dev
	q.aimAtKey(t)
	return c
}

// aimAtKey keeps the handle of the MAC key. It survives every mount.
func (q *escapeTargets) aimAtKey(t *testing.T) {
	t.Helper()
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, filepath.Join(q.Home, "keys", "mac.key"), 0)
	require.NoError(t, err)
	q.Handle, q.HandleType = handle.Bytes(), handle.Type()
}

// shareKernelObjects makes an abstract socket, shared memory and a key, which every user of the
// host may use.
func (q *escapeTargets) shareKernelObjects(t *testing.T) {
	t.Helper()
	q.Abstract = "permesso-containment-" + client.NewID()
	l, err := net.Listen("unix", "@"+q.Abstract)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	q.SharedMemory = int(client.NewID()[0])<<16 | os.Getpid()
	id, err := unix.SysvShmGet(q.SharedMemory, 4096, unix.IPC_CREAT|0o666)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	q.SharedFile = filepath.Join("/dev/shm", q.Abstract)
	require.NoError(t, os.WriteFile(q.SharedFile, []byte("shared"), 0o644))
	t.Cleanup(func() { _ = os.Remove(q.SharedFile) })
	q.Key, err = unix.AddKey("user", q.Abstract, []byte("secret"), unix.KEY_SPEC_USER_KEYRING)
	require.NoError(t, err)
	require.NoError(t, unix.KeyctlSetperm(q.Key, 0x3f3f3f3f))
	t.Cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, q.Key, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
}

// runFolder is where services have their sockets, if the test may write there.
func runFolder() string {
	if os.Getuid() == 0 {
		return "/run"
	}
	return "/var/tmp"
}

// listenIn makes a socket that every user may connect to.
func listenIn(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "permesso-"+client.NewID()+".sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	require.NoError(t, os.Chmod(path, 0o777))
	return path
}

// settle submits a request that a rule allows, and awaits its response.
func (c *containmentRig) settle(t *testing.T) string {
	t.Helper()
	id := client.NewID()
	require.NoError(t, c.agent.Submit(id, []byte(`{"request_id":"`+id+`","tool_name":"quick"}`)))
	require.Equal(t, approval.StatusAutoApproved, c.response(id).Status)
	return id
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	parent, err := strconv.Atoi(strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[1])
	require.NoError(t, err)
	return parent
}

// startWithTerminal runs a command on a terminal of its own, and returns the results of its
// attempts.
func (c *containmentRig) startWithTerminal(t *testing.T, cmd *osexec.Cmd) []escapeResult {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer master.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer terminal.Close()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, &out, &errs
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	require.NoError(t, sandbox.OnOneThread(cmd.Run), "%s%s", out.String(), errs.String())
	var results []escapeResult
	for line := range strings.Lines(out.String()) {
		var r escapeResult
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		results = append(results, r)
	}
	require.Len(t, results, len(escapes()), "%s", errs.String())
	return results
}

// writeTargets writes the targets for the attempts.
func (c *containmentRig) writeTargets(t *testing.T, q escapeTargets) string {
	t.Helper()
	b, err := json.Marshal(q)
	require.NoError(t, err)
	file := filepath.Join(c.dir, "targets-"+client.NewID())
	require.NoError(t, os.WriteFile(file, b, 0o644))
	return file
}

// From each printed sandbox that can run here, no attempt succeeds, and each is made.
func TestContainment(t *testing.T) {
	t.Parallel()
	users := map[string]int{"the gate's user": os.Getuid()}
	if os.Getuid() == 0 {
		users = map[string]int{"root": 0, "the gate's user": uidGate, "another user, of agent_uid": uidAgent}
	}
	for who, uid := range users {
		t.Run("bubblewrap as "+who, func(t *testing.T) {
			t.Parallel()
			c := newContainmentRig(t)
			before := c.kept(t)
			printed, err := c.commandAs(int(c.owner()), nil, "mounts", "annes", "--bwrap", "--config", c.config, "--home", c.layout.Home).Output()
			require.NoError(t, err)
			line := "exec bwrap " + strings.TrimSpace(string(printed)) + " " + sandbox.ShellWords([]string{
				"--ro-bind", c.self, "/permesso/bin/escape", "--ro-bind", c.writeTargets(t, c.targets), "/permesso/targets",
				"--setenv", escapeVariable, "all", "--setenv", targetVariable, "/permesso/targets", "--setenv", "GORACE", "atexit_sleep_ms=0",
				"/permesso/bin/escape",
			})
			cmd := c.commandAs(uid, []string{c.targets.Environment})
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", line}
			for _, r := range c.startWithTerminal(t, cmd) {
				switch {
				case r.Escaped:
					t.Errorf("%s: %s: it succeeded", r.Kind, r.Name)
				case !r.stopped():
					t.Errorf("%s: %s: the attempt could not be made: %s", r.Kind, r.Name, r.Text)
				}
			}
			for _, v := range []victim{c.targets.Gate, c.targets.Supervisor, c.targets.Handler} {
				require.Equal(t, v.Since, startedAt(v.PID), "a process of the host is gone")
				require.False(t, stopped(v.PID), "a process of the host is stopped")
			}
			c.settle(t) // the gate serves on
			require.Equal(t, before, c.kept(t))
		})
	}
}

func (c *containmentRig) owner() uint32 {
	info, err := os.Stat(c.layout.Home)
	require.NoError(c.t, err)
	return info.Sys().(*syscall.Stat_t).Uid
}

// kept is what no agent may change.
func (c *containmentRig) kept(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range []string{
		c.config, filepath.Join(c.layout.Keys(), "mac.key"), filepath.Join(c.layout.Responses("annes"), c.targets.Done+".json"),
		filepath.Join(c.layout.Pendings("annes"), c.targets.Pending+".json"), "/proc/sys/kernel/core_pattern",
	} {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		all[file] = string(b)
	}
	key := make([]byte, 64)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, c.targets.Key, key, len(key))
	require.NoError(t, err)
	all["key"] = string(key[:n])
	slots, err := os.ReadDir(c.layout.Decisions("annes"))
	require.NoError(t, err)
	require.Empty(t, slots)
	return all
}

// Without a sandbox every attempt succeeds, or TestContainment proves nothing.
func TestContainmentAttemptsAreReal(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, len(escapes()), 40)
	c := newContainmentRig(t)
	q := c.targets
	q.Control, q.Home = true, filepath.Join(c.dir, "control")
	q.Config, q.Other = filepath.Join(q.Home, "permesso.toml"), filepath.Join(q.Home, "ipc/bobs/requests")
	q.Requests, q.Responses = filepath.Join(q.Home, "ipc/annes/requests"), filepath.Join(q.Home, "ipc/annes/responses")
	cmd := c.commandAs(os.Getuid(), []string{escapeVariable + "=control", targetVariable + "=" + c.writeTargets(t, q)})
	cmd.Path, cmd.Args = c.self, []string{c.self}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if os.Getuid() == 0 {
		cmd.Env = append(cmd.Env, "PERMESSO_ESCAPE_ROOT=1")
	} else {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	all := escapes()
	for i, r := range c.startWithTerminal(t, cmd) {
		if all[i].needsRoot && !c.root {
			t.Logf("%s: %s: only root can make the attempt without a sandbox", r.Kind, r.Name)
			continue
		}
		if !r.Escaped {
			t.Errorf("%s: %s: it fails without a sandbox, too: %s", r.Kind, r.Name, r.Text)
		}
	}
}
