package main

import (
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
)

// mountNamespaceEnv tells the child that it runs in its own mount namespace, which
// the kernel removes when it exits.
const mountNamespaceEnv = "PERMESSO_TEST_MOUNTS"

// TestRealFaults runs the real daemon on real disks that fail: full, out of
// inodes, read-only. It runs in a child with its own mount namespace. Without
// root the child also has a user namespace, which allows only tmpfs.
func TestRealFaults(t *testing.T) {
	t.Parallel()
	if os.Getenv(mountNamespaceEnv) != "" {
		realFaults(t)
		return
	}
	// Pdeathsig kills the child when the thread that started it exits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := inOwnMounts("TestRealFaults", "root", 0).CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		out, err = inOwnMounts("TestRealFaults", "user", syscall.CLONE_NEWUSER).CombinedOutput()
	}
	t.Logf("%s", out)
	require.NoError(t, err)
}

// inOwnMounts runs a test in a process with private mounts.
func inOwnMounts(test, as string, flags uintptr) *osexec.Cmd {
	cmd := osexec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v="+strconv.FormatBool(testing.Verbose()), "-test.timeout=8m")
	cmd.Env = append(os.Environ(), mountNamespaceEnv+"="+as)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if flags != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// disk is a small file system that is mounted for one test.
type disk struct {
	t    *testing.T
	path string
}

func mountDisk(t *testing.T, source, fstype, options string) *disk {
	t.Helper()
	d := &disk{t, t.TempDir()}
	require.NoError(t, unix.Mount(source, d.path, fstype, 0, options))
	t.Cleanup(func() { _ = unix.Unmount(d.path, unix.MNT_DETACH) })
	return d
}

func tmpfs(options string) func(t *testing.T) *disk {
	return func(t *testing.T) *disk { return mountDisk(t, "tmpfs", "tmpfs", options) }
}

// loopDisk is an ext4 in a file, as on a real machine.
func loopDisk(t *testing.T) *disk {
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 6<<20))
	run := func(name string, args ...string) {
		out, err := osexec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	run("mkfs.ext4", "-q", "-F", "-N", "264", "-m", "3", image) // 3 % for root
	d := &disk{t, t.TempDir()}
	run("mount", "-o", "loop", image, d.path)
	t.Cleanup(func() { run("umount", "--lazy", d.path) })
	return d
}

// fill writes until only leave bytes are free.
func (d *disk) fill(leave int) {
	d.t.Helper()
	if leave > 0 {
		require.NoError(d.t, os.WriteFile(filepath.Join(d.path, "kept"), make([]byte, leave), 0o600))
	}
	f, err := os.OpenFile(filepath.Join(d.path, "filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(d.t, err)
	for _, chunk := range []int{64 << 10, 4096, 512} {
		for err = nil; err == nil; _, err = f.Write(make([]byte, chunk)) {
		}
		require.ErrorIs(d.t, err, syscall.ENOSPC)
	}
	require.NoError(d.t, f.Close())
	if leave > 0 {
		require.NoError(d.t, os.Remove(filepath.Join(d.path, "kept")))
	}
}

func (d *disk) removeFiller() {
	d.t.Helper()
	require.NoError(d.t, os.Remove(filepath.Join(d.path, "filler")))
}

func (d *disk) fillInodes() {
	d.t.Helper()
	var err error
	require.NoError(d.t, os.Mkdir(filepath.Join(d.path, "fillers"), 0o700))
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(d.path, "fillers", fmt.Sprint(i)), nil, 0o600)
	}
	require.ErrorIs(d.t, err, syscall.ENOSPC)
}

func (d *disk) freeInodes() {
	d.t.Helper()
	require.NoError(d.t, os.RemoveAll(filepath.Join(d.path, "fillers")))
}

// faultRig is a daemon whose home is on a disk that fails. Requests and the
// handlers' effects are on other disks.
type faultRig struct {
	*rig
	disk  *disk
	d     *daemonProcess
	runs  string // one line per effect
	asked []string
}

const faultConfig = `log_level = "info"
[workspaces.w]
approval_timeout = "1h"
[tools.auto]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = [%[1]q] }
[tools.run]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = [%[1]q] }
[[rules]]
match = { tool = "auto" }
outcome = "allow"
[[rules]]
match = { tool = "run" }
outcome = "ask"
`

func newFaultRig(t *testing.T, on *disk) *faultRig {
	f := &faultRig{rig: newRig(t, "w", ""), disk: on}
	f.plain = true
	f.runs = filepath.Join(f.dir, "runs")
	require.NoError(t, os.WriteFile(f.runs, nil, 0o600))
	file := f.script("count", `echo "$PERMESSO_REQUEST_ID" >> `+f.runs)
	require.NoError(t, os.WriteFile(f.config, fmt.Appendf(nil, faultConfig, file), 0o600))
	f.layout.Home = filepath.Join(on.path, "home")
	code, _, stderr := f.run("", "init")
	require.Equal(t, console.ExitOK, code, stderr)
	for i := range 4 { // a small journal
		require.NoError(t, os.WriteFile(filepath.Join(f.layout.Journal(), fmt.Sprintf("segment-%d", i+1)), make([]byte, 256<<10), 0o600))
	}
	f.agent = client.Files{Requests: f.layout.Requests("w"), Responses: f.layout.Responses("w")}
	// The agent's folder is on its own disk, as the README advises.
	require.NoError(t, unix.Mount("tmpfs", f.agent.Requests, "tmpfs", 0, "size=1m,mode=0777"))
	t.Cleanup(func() { _ = unix.Unmount(f.agent.Requests, unix.MNT_DETACH) })
	f.start()
	return f
}

func (f *faultRig) start() {
	f.t.Helper()
	f.d = f.serve()
	f.d.awaitLog(`"serving"`)
}

func (f *faultRig) submit(tool string) string {
	f.t.Helper()
	id := f.ask(`{"tool_name":"` + tool + `"}`)
	f.asked = append(f.asked, id)
	return id
}

// awaitAskedLog waits for the log line "asked": then the pending request is
// durable. A file that is only visible may be lost when the disk fails.
func (f *faultRig) awaitAskedLog(id string) {
	f.t.Helper()
	await(f.t, f.d.log, func() bool {
		return slices.ContainsFunc(strings.Split(f.d.logged(), "\n"), func(line string) bool {
			return strings.Contains(line, id) && strings.Contains(line, `"asked"`)
		})
	})
}

func (f *faultRig) readResponse(id string) *approval.Response {
	b, err := os.ReadFile(filepath.Join(f.agent.Responses, id+".json"))
	if err != nil {
		return nil
	}
	r, err := approval.ParseResponse(b)
	if err != nil {
		return nil
	}
	return r
}

// ran counts the runs of a request, and requires at most one run of each request.
func (f *faultRig) ran(id string) int {
	f.t.Helper()
	b, err := os.ReadFile(f.runs)
	require.NoError(f.t, err)
	for _, id := range f.asked {
		require.LessOrEqual(f.t, strings.Count(string(b), id), 1, "ran twice")
	}
	return strings.Count(string(b), id)
}

// tryApprove approves at the command line; acked reports success.
func (f *faultRig) tryApprove(id string) (acked bool) {
	f.t.Helper()
	code, out, stderr := f.run("", "approve", id)
	if code == console.ExitOK {
		return true
	}
	require.Contains(f.t, stderr, "permesso: ", "%s", out)
	return false
}

// verifyRecovery checks that all requests are processed once the disk works.
func (f *faultRig) verifyRecovery(waiting string, acked bool, unread ...string) {
	f.t.Helper()
	for _, id := range unread {
		require.Equal(f.t, approval.StatusAutoApproved, f.response(id).Status, "%s", f.d.logged())
		require.Equal(f.t, 1, f.ran(id))
	}
	require.Equal(f.t, approval.StatusAutoApproved, f.response(f.submit("auto")).Status)
	if !acked {
		f.tryApprove(waiting) // the decision may already be recorded, though the command failed
	}
	require.Equal(f.t, approval.StatusApproved, f.response(waiting).Status)
	require.Equal(f.t, 1, f.ran(waiting))
	id := f.submit("run")
	f.awaitAskedLog(id)
	require.True(f.t, f.tryApprove(id))
	require.Equal(f.t, approval.StatusApproved, f.response(id).Status)
}

// verifyRestart kills the daemon and checks that the next one changes no response.
func (f *faultRig) verifyRestart() {
	f.t.Helper()
	before := map[string]string{}
	for _, id := range f.asked {
		b, err := os.ReadFile(filepath.Join(f.agent.Responses, id+".json"))
		require.NoError(f.t, err)
		before[id] = string(b)
	}
	f.d.kill()
	f.start()
	require.Equal(f.t, approval.StatusAutoApproved, f.response(f.submit("auto")).Status)
	for id, b := range before {
		after, err := os.ReadFile(filepath.Join(f.agent.Responses, id+".json"))
		require.NoError(f.t, err)
		require.Equal(f.t, b, string(after))
		f.ran(id)
	}
	f.d.stop()
	code, out, stderr := f.run("", "status")
	require.Equal(f.t, console.ExitOK, code, stderr)
	require.Contains(f.t, out, "0 pending, 0 running")
}

const (
	logStopped = "gate degraded: "
	logResumed = "gate recovered"
)

func realFaults(t *testing.T) {
	disks := map[string]func(*testing.T) *disk{"tmpfs": tmpfs("size=5m,mode=0700")}
	// A container may have no loop devices, even for root.
	if err := osexec.Command("losetup", "--find").Run(); os.Getenv(mountNamespaceEnv) == "root" && err == nil {
		disks["ext4"] = loopDisk
		t.Run("broken", testDiskErrors)
	} else {
		t.Log("tests only tmpfs: no loop devices available")
	}
	for name, mount := range disks {
		t.Run(name, func(t *testing.T) {
			t.Run("full", func(t *testing.T) { t.Parallel(); testDiskFull(t, mount(t)) })
			t.Run("almost full", func(t *testing.T) { t.Parallel(); testDiskAlmostFull(t, mount(t)) })
			t.Run("read-only", func(t *testing.T) { t.Parallel(); testDiskReadOnly(t, mount(t)) })
			t.Run("no inodes", func(t *testing.T) {
				t.Parallel()
				few := mount
				if name == "tmpfs" {
					few = tmpfs("size=5m,nr_inodes=165,mode=0700")
				}
				testNoInodes(t, few(t))
			})
		})
	}
	t.Run("full target", func(t *testing.T) { testFullTarget(t, mountDisk(t, "tmpfs", "tmpfs", "size=8m,mode=0700")) })
	t.Run("no open files", func(t *testing.T) { testTooManyFiles(t, mountDisk(t, "tmpfs", "tmpfs", "size=8m,mode=0700")) })
}

// testDiskFull: not even a refusal can be written. The request file stays, and is
// processed when space is free.
func testDiskFull(t *testing.T, on *disk) {
	f := newFaultRig(t, on)
	waiting := f.submit("run")
	f.awaitAskedLog(waiting)
	on.fill(0)
	unread := f.submit("auto")
	f.d.awaitLog(logStopped)
	for _, args := range [][]string{{"approve", waiting}, {"deny", waiting}} {
		on.fill(0) // the daemon may have removed a file
		code, _, errs := f.run("", args...)
		require.Equal(t, console.ExitError, code, errs)
		require.Contains(t, errs, "permesso: nothing was decided: no space left on the disk of HOME\nhint: ")
		require.Contains(t, errs, "permesso status --disk")
	}
	f.verifyFullTUI(waiting, on)
	require.Regexp(t, `space       [0-9]+ KiB free`, f.must("status", "--disk"))
	code, out, errs := f.run("", "pause")
	require.Equal(t, console.ExitOK, code, "a pause needs no space: %s", errs)
	require.Contains(t, out, "paused: nothing runs until")
	require.Regexp(t, "⏸ paused: everything, since .* by operator", f.must("status"), "its file has no room for that")
	await(t, f.layout.Pauses(), func() bool {
		on.fill(0)
		if code, _, errs = f.run("", "resume"); code == console.ExitOK {
			f.must("pause") // the daemon has removed a file
		}
		return code != console.ExitOK
	})
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "permesso: nothing was resumed: no space left on the disk of HOME\nhint: ")
	acked := false
	require.FileExists(t, filepath.Join(f.agent.Requests, unread+".json"), "the request file stays")
	require.Nil(t, f.readResponse(unread))
	require.Zero(t, f.ran(unread)+f.ran(waiting), "nothing runs without free space for its outcome")
	on.removeFiller()
	f.d.awaitLog(logResumed)
	f.must("resume")
	require.Regexp(t, `"event":"paused"[^\n]*"by":"operator`, f.must("audit", "tail", "-n", "200", "--jsonl"), "the journal had room")
	f.verifyFullRequests()
	f.verifyRecovery(waiting, acked, unread)
	f.verifyRestart()
	f.verifyFullStart()
}

// testDiskAlmostFull: there is space for a refusal, but not for the outcome of a run.
func testDiskAlmostFull(t *testing.T, on *disk) {
	f := newFaultRig(t, on)
	waiting := f.submit("run")
	f.awaitAskedLog(waiting)
	on.fill(300 << 10)
	for _, tool := range []string{"auto", "run"} {
		refused := f.submit(tool)
		r := f.response(refused)
		require.Equal(t, approval.StatusAutoRejected, r.Status)
		require.Equal(t, "The gate cannot take requests now: the disk is almost full. Nothing ran; ask again later under a new id.", *r.Error)
		require.Zero(t, f.ran(refused))
	}
	require.True(t, f.tryApprove(waiting), "there is space for a decision")
	require.Nil(t, f.readResponse(waiting), "there is no space to run it")
	require.Equal(t, 1, strings.Count(f.d.logged(), logStopped), "logged once, not for each request")
	on.removeFiller()
	f.d.awaitLog(logResumed)
	f.verifyRecovery(waiting, true)
	f.verifyRestart()
}

func testNoInodes(t *testing.T, on *disk) {
	f := newFaultRig(t, on)
	waiting := f.submit("run")
	f.awaitAskedLog(waiting)
	on.fillInodes()
	unread := f.submit("auto")
	f.d.awaitLog(logStopped)
	acked := f.tryApprove(waiting)
	require.False(t, acked, "a decision is also a file")
	require.Zero(t, f.ran(unread)+f.ran(waiting))
	on.freeInodes()
	f.d.awaitLog(logResumed)
	f.verifyRecovery(waiting, acked, unread)
	f.verifyRestart()
}

// testDiskReadOnly mounts a read-only bind mount over the home: the kernel refuses
// to remount a file system read-only while a file is open for writing.
func testDiskReadOnly(t *testing.T, on *disk) {
	f := newFaultRig(t, on)
	waiting := f.submit("run")
	f.awaitAskedLog(waiting)
	home := f.layout.Home
	require.NoError(t, unix.Mount(home, home, "", unix.MS_BIND|unix.MS_REC, ""))
	require.NoError(t, unix.Mount("", home, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	_, err := os.Create(filepath.Join(home, "probe"))
	require.ErrorIs(t, err, syscall.EROFS)
	unread := f.submit("auto")
	f.d.awaitLog(logStopped + "the disk is read-only")
	require.False(t, f.tryApprove(waiting), "a decision that cannot be stored is not acknowledged")
	require.Nil(t, f.readResponse(unread))
	require.Zero(t, f.ran(unread)+f.ran(waiting))
	require.NoError(t, unix.Unmount(home, unix.MNT_DETACH))
	f.d.awaitLog(logResumed)
	f.verifyRecovery(waiting, false, unread)
	f.verifyRestart()
	f.start()
	f.verifyReadOnlyCommands()
}

// verifyFullStart starts the daemon on a full disk, where replay has something to write.
func (f *faultRig) verifyFullStart() {
	f.t.Helper()
	f.start()
	waiting := f.submit("run")
	f.awaitAskedLog(waiting)
	f.d.kill()
	f.disk.fill(0)
	f.d = f.serve()
	require.Error(f.t, f.d.awaitExit())
	require.Contains(f.t, f.d.logged(), "no space left on device\nhint: free space there")
	f.disk.removeFiller()
	f.start()
	f.awaitPending("w", waiting)
	f.d.stop()
}

// verifyFullRequests fills the agent's folder: that is no missing mount.
func (f *faultRig) verifyFullRequests() {
	f.t.Helper()
	folder := &disk{f.disk.t, f.agent.Requests}
	code, errs := 0, ""
	await(f.t, f.agent.Requests, func() bool {
		folder.fill(0) // again: the daemon may have removed a file
		code, _, errs = f.run("", "request", "auto", "--requests", f.agent.Requests, "--responses", f.agent.Responses)
		return code != console.ExitOK
	})
	require.Equal(f.t, console.ExitError, code, errs)
	require.Contains(f.t, errs, "hint: nothing was submitted: free space in the folder of requests")
	require.NotContains(f.t, errs, "mount the folder")
	folder.removeFiller()
}

// verifyReadOnlyCommands checks the commands on a read-only file system without a daemon.
func (f *faultRig) verifyReadOnlyCommands() {
	f.t.Helper()
	waiting := f.submit("run")
	f.awaitPending("w", waiting)
	f.d.stop()
	home := f.layout.Home
	require.NoError(f.t, unix.Mount(home, home, "", unix.MS_BIND|unix.MS_REC, ""))
	defer func() { require.NoError(f.t, unix.Unmount(home, unix.MNT_DETACH)) }()
	require.NoError(f.t, unix.Mount("", home, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	out := f.must("status", "--disk")
	require.Contains(f.t, out, "journal     4 segments of 256 KiB, 3 free")
	require.Contains(f.t, out, "checkpoint  unknown: HOME cannot be written, so its lock was not taken")
	require.Contains(f.t, f.must("pending"), waiting[:8])
	_, out, _ = f.run("", "doctor")
	require.Equal(f.t, 1, strings.Count(out, "cannot write to the home"), "%s", out)
	require.Contains(f.t, out, "not checked: it needs a home that can be written")
	for _, args := range [][]string{{"approve", waiting}, {"deny", waiting}, {"cancel", "--operator", waiting}} {
		code, _, errs := f.run("", args...)
		require.Equal(f.t, console.ExitError, code, "%v: %s", args, errs)
		require.Contains(f.t, errs, "read-only file system\nhint: ", "%v", args)
		require.Contains(f.t, errs, "mount -o remount,rw", "%v", args)
		require.NotContains(f.t, errs, "no daemon is ready")
	}
	d := f.serve()
	d.awaitLog("read-only file system")
	require.Error(f.t, d.awaitExit())
	require.Contains(f.t, d.logged(), "mount -o remount,rw")
}

// testFullTarget: a copy of HOME has no room, but HOME has.
func testFullTarget(t *testing.T, on *disk) {
	f := newFaultRig(t, on)
	small := mountDisk(t, "tmpfs", "tmpfs", "size=256k,mode=0700")
	code, _, errs := f.run("", "backup", filepath.Join(small.path, "copy"))
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "no space left on device\nhint: free space there, or name a folder on another disk\n")
	copied := filepath.Join(f.dir, "copy")
	f.must("backup", copied)
	check := f.command("restore", "--check", copied)
	check.Env = append(check.Env, "TMPDIR="+small.path)
	said, err := check.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "no space left on device\nhint: set TMPDIR to a folder with room for a copy of HOME\n")
	names, err := os.ReadDir(small.path)
	require.NoError(t, err)
	require.Empty(t, names, "nothing is left")
	code, _, errs = f.run("", "restore", copied)
	require.Equal(t, console.ExitUsage, code)
	require.Contains(t, errs, "permesso restore --check "+copied+" --home ")
	f.d.stop()
}

// testTooManyFiles lowers the daemon's limit of file descriptors and restores it.
func testTooManyFiles(t *testing.T, on *disk) {
	f := newFaultRig(t, on)
	waiting := f.submit("run")
	f.awaitAskedLog(waiting)
	pid := f.d.cmd.Process.Pid
	var old unix.Rlimit
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}, nil))
	unread := f.submit("auto")
	f.d.awaitLog(logStopped + "too many files are open")
	require.Zero(t, f.ran(unread))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil))
	f.d.awaitLog(logResumed)
	f.verifyRecovery(waiting, false, unread)
	f.verifyRestart()
}

// testDiskErrors uses an ext4 whose device returns errors: its image is on a full
// tmpfs, so that first writes of blocks fail.
func testDiskErrors(t *testing.T) {
	below := mountDisk(t, "tmpfs", "tmpfs", "size=8m,mode=0700")
	image := filepath.Join(below.path, "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 64<<20))
	d := &disk{t, t.TempDir()}
	run := func(name string, args ...string) {
		out, err := osexec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,nodiscard", "-J", "size=4", image)
	mount := func() { run("mount", "-o", "loop,errors=remount-ro", image, d.path) }
	mount()
	t.Cleanup(func() { _ = osexec.Command("umount", "--lazy", d.path).Run() })
	f := newFaultRig(t, d)
	waiting := f.submit("run")
	f.awaitAskedLog(waiting)
	below.fill(0)
	var asked []string
	for range 200 { // until a new block is needed
		if _, degraded := f.degraded(); degraded {
			break
		}
		id := f.submit("auto")
		asked = append(asked, id)
		f.awaitResponseOrDegraded(id)
	}
	reason, degraded := f.degraded()
	require.True(t, degraded, "%s", f.d.logged())
	t.Log(reason)
	acked := f.tryApprove(waiting)
	before := map[string]*approval.Response{}
	for _, id := range asked {
		before[id] = f.readResponse(id)
	}
	f.d.kill()
	require.NoError(t, unix.Unmount(f.agent.Requests, unix.MNT_DETACH))
	d.unmount()
	below.removeFiller()
	mount()
	require.NoError(t, unix.Mount("tmpfs", f.agent.Requests, "tmpfs", 0, "size=1m,mode=0777"))
	f.start()
	if !acked {
		require.FileExists(t, filepath.Join(f.layout.Pendings("w"), waiting+".json"), "it was durable before the disk broke")
		f.tryApprove(waiting)
	}
	require.Equal(t, approval.StatusApproved, f.response(waiting).Status)
	for _, id := range asked {
		if f.ran(id); before[id] != nil {
			require.Equal(t, before[id], f.response(id), "the response that the agent read is unchanged")
		}
	}
	f.d.stop()
}

// unmount waits while the disk is busy: for a moment it is, if another test looks at what processes have opened. A user that
// stays is an error, and named.
func (d *disk) unmount() {
	d.t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		out, err := osexec.Command("umount", d.path).CombinedOutput()
		if err == nil {
			return
		}
		require.Contains(d.t, string(out), "busy")
		require.True(d.t, time.Now().Before(deadline), "%s: %v", out, usersOf(d.path))
	}
}

// usersOf are the processes that have a file below a folder, as links of /proc.
func usersOf(dir string) (users []string) {
	for _, links := range []string{"fd/*", "cwd", "root", "exe", "map_files/*"} {
		found, _ := filepath.Glob("/proc/[0-9]*/" + links)
		for _, link := range found {
			if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, dir) {
				users = append(users, link+" -> "+to)
			}
		}
	}
	return users
}

// degraded reports whether the daemon has logged that it is degraded.
func (f *faultRig) degraded() (why string, degraded bool) {
	_, why, degraded = strings.Cut(f.d.logged(), logStopped)
	why, _, _ = strings.Cut(why, `"`)
	return why, degraded
}

func (f *faultRig) awaitResponseOrDegraded(id string) {
	f.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for f.readResponse(id) == nil {
		if _, degraded := f.degraded(); degraded {
			return
		}
		require.True(f.t, time.Now().Before(deadline))
		time.Sleep(time.Millisecond) // polls two files
	}
}
