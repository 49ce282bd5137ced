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
	"github.com/permesso-dev/permesso/ipc/client"
)

// faultsInside says that this process has mounts of its own, which vanish with
// it however it ends.
const faultsInside = "PERMESSO_TEST_MOUNTS"

// TestRealFaults lets real disks fail under the real daemon: full, out of
// inodes, read-only. It runs in a child with mounts of its own; whoever may not
// mount gets a user namespace besides, and then there is only tmpfs.
func TestRealFaults(t *testing.T) {
	t.Parallel()
	if os.Getenv(faultsInside) != "" {
		realFaults(t)
		return
	}
	// The child dies with the thread that made it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := inOwnMounts("root", 0).CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		out, err = inOwnMounts("user", syscall.CLONE_NEWUSER).CombinedOutput()
	}
	t.Logf("%s", out)
	require.NoError(t, err)
}

// inOwnMounts is this test again, in a process whose mounts nobody else sees.
func inOwnMounts(as string, flags uintptr) *osexec.Cmd {
	cmd := osexec.Command(os.Args[0], "-test.run=^TestRealFaults$", "-test.v="+strconv.FormatBool(testing.Verbose()), "-test.timeout=8m")
	cmd.Env = append(os.Environ(), faultsInside+"="+as)
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

// loop is an ext4 in a file, as on a real machine.
func loop(t *testing.T) *disk {
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 4<<20))
	run := func(name string, args ...string) {
		out, err := osexec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	run("mkfs.ext4", "-q", "-F", "-N", "256", image)
	d := &disk{t, t.TempDir()}
	run("mount", "-o", "loop", image, d.path)
	t.Cleanup(func() { run("umount", "--lazy", d.path) })
	return d
}

// fill takes all bytes but the last few.
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

func (d *disk) free() {
	d.t.Helper()
	require.NoError(d.t, os.Remove(filepath.Join(d.path, "filler")))
}

func (d *disk) takeInodes() {
	d.t.Helper()
	var err error
	require.NoError(d.t, os.Mkdir(filepath.Join(d.path, "fillers"), 0o700))
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(d.path, "fillers", fmt.Sprint(i)), nil, 0o600)
	}
	require.ErrorIs(d.t, err, syscall.ENOSPC)
}

func (d *disk) giveInodes() {
	d.t.Helper()
	require.NoError(d.t, os.RemoveAll(filepath.Join(d.path, "fillers")))
}

// faulty is a gate whose home lies on a disk that fails, while what its handlers
// do and what agents ask lies elsewhere.
type faulty struct {
	*place
	disk  *disk
	d     *daemon
	runs  string // one line per effect
	asked []string
}

const faultConfig = `log_level = "info"
[workspaces.w]
approval_timeout = "1h"
[tools.auto]
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = [%[1]q] }
[tools.run]
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

func newFaulty(t *testing.T, on *disk) *faulty {
	f := &faulty{place: newPlace(t, "w", ""), disk: on}
	f.plain = true
	f.runs = filepath.Join(f.dir, "runs")
	require.NoError(t, os.WriteFile(f.runs, nil, 0o600))
	file := f.script("count", `echo "$PERMESSO_REQUEST_ID" >> `+f.runs)
	require.NoError(t, os.WriteFile(f.config, fmt.Appendf(nil, faultConfig, file), 0o600))
	f.layout.Home = filepath.Join(on.path, "home")
	code, _, stderr := f.run("", "init")
	require.Equal(t, exitOK, code, stderr)
	f.agent = client.Files{Requests: f.layout.Requests("w"), Responses: f.layout.Responses("w")}
	// The agent's folder has a disk of its own, as the README advises.
	require.NoError(t, unix.Mount("tmpfs", f.agent.Requests, "tmpfs", 0, "size=1m,mode=0777"))
	t.Cleanup(func() { _ = unix.Unmount(f.agent.Requests, unix.MNT_DETACH) })
	f.start()
	return f
}

func (f *faulty) start() {
	f.t.Helper()
	f.d = f.serve()
	f.d.awaitLog(`"serving"`)
}

func (f *faulty) want(tool string) string {
	f.t.Helper()
	id := f.ask(`{"tool_name":"` + tool + `"}`)
	f.asked = append(f.asked, id)
	return id
}

// waits awaits that a request is asked, and that a disk which fails from now on
// cannot take that back: what is only visible may not be durable yet.
func (f *faulty) waits(id string) {
	f.t.Helper()
	await(f.t, f.d.log, func() bool {
		return slices.ContainsFunc(strings.Split(f.d.said(), "\n"), func(line string) bool {
			return strings.Contains(line, id) && strings.Contains(line, `"asked"`)
		})
	})
}

func (f *faulty) answered(id string) *approval.Response {
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

// ran says how often, and holds at most once for everybody.
func (f *faulty) ran(id string) int {
	f.t.Helper()
	b, err := os.ReadFile(f.runs)
	require.NoError(f.t, err)
	for _, id := range f.asked {
		require.LessOrEqual(f.t, strings.Count(string(b), id), 1, "ran twice")
	}
	return strings.Count(string(b), id)
}

// approve is a person at the command line; acked says what the command said.
func (f *faulty) approve(id string) (acked bool) {
	f.t.Helper()
	code, out, stderr := f.run("", "approve", id)
	if code == exitOK {
		return true
	}
	require.Contains(f.t, stderr, "permesso: ", "%s", out)
	return false
}

// goesOn checks that everybody gets what is theirs now that the disk works.
func (f *faulty) goesOn(waiting string, acked bool, lying ...string) {
	f.t.Helper()
	for _, id := range lying {
		require.Equal(f.t, approval.StatusAutoApproved, f.response(id).Status, "%s", f.d.said())
		require.Equal(f.t, 1, f.ran(id))
	}
	require.Equal(f.t, approval.StatusAutoApproved, f.response(f.want("auto")).Status)
	if !acked {
		f.approve(waiting) // it may count already, though nobody could say so
	}
	require.Equal(f.t, approval.StatusApproved, f.response(waiting).Status)
	require.Equal(f.t, 1, f.ran(waiting))
	id := f.want("run")
	f.waits(id)
	require.True(f.t, f.approve(id))
	require.Equal(f.t, approval.StatusApproved, f.response(id).Status)
}

// endsWell kills the daemon and looks whether the next one believes the same.
func (f *faulty) endsWell() {
	f.t.Helper()
	before := map[string]string{}
	for _, id := range f.asked {
		b, err := os.ReadFile(filepath.Join(f.agent.Responses, id+".json"))
		require.NoError(f.t, err)
		before[id] = string(b)
	}
	f.d.kill()
	f.start()
	require.Equal(f.t, approval.StatusAutoApproved, f.response(f.want("auto")).Status)
	for id, b := range before {
		after, err := os.ReadFile(filepath.Join(f.agent.Responses, id+".json"))
		require.NoError(f.t, err)
		require.Equal(f.t, b, string(after))
		f.ran(id)
	}
	f.d.stop()
	code, out, stderr := f.run("", "status")
	require.Equal(f.t, exitOK, code, stderr)
	require.Contains(f.t, out, "0 waiting, 0 running")
}

const (
	stops = "the gate takes no requests: "
	again = "the gate takes requests again"
)

func realFaults(t *testing.T) {
	disks := map[string]func(*testing.T) *disk{"tmpfs": tmpfs("size=4m,mode=0700")}
	// Containers may have no loop devices, even for root.
	if err := osexec.Command("losetup", "--find").Run(); os.Getenv(faultsInside) == "root" && err == nil {
		disks["ext4"] = loop
		t.Run("broken", brokenDisk)
	} else {
		t.Log("only on tmpfs: there are no loop devices for us")
	}
	for name, mount := range disks {
		t.Run(name, func(t *testing.T) {
			t.Run("full", func(t *testing.T) { t.Parallel(); diskFull(t, mount(t)) })
			t.Run("almost full", func(t *testing.T) { t.Parallel(); diskAlmostFull(t, mount(t)) })
			t.Run("read-only", func(t *testing.T) { t.Parallel(); diskReadOnly(t, mount(t)) })
			t.Run("no inodes", func(t *testing.T) {
				t.Parallel()
				few := mount
				if name == "tmpfs" {
					few = tmpfs("size=4m,nr_inodes=160,mode=0700")
				}
				noInodes(t, few(t))
			})
		})
	}
	t.Run("no open files", func(t *testing.T) { tooManyFiles(t, mountDisk(t, "tmpfs", "tmpfs", "size=8m,mode=0700")) })
}

// diskFull: not even a refusal can be written. The request lies there, and is
// taken in when there is room.
func diskFull(t *testing.T, on *disk) {
	f := newFaulty(t, on)
	waiting := f.want("run")
	f.waits(waiting)
	on.fill(0)
	lying := f.want("auto")
	f.d.awaitLog(stops)
	acked := f.approve(waiting)
	require.FileExists(t, filepath.Join(f.agent.Requests, lying+".json"), "it lies where it is")
	require.Nil(t, f.answered(lying))
	require.Zero(t, f.ran(lying)+f.ran(waiting), "nothing runs without room for its outcome")
	on.free()
	f.d.awaitLog(again)
	f.goesOn(waiting, acked, lying)
	f.endsWell()
}

// diskAlmostFull: a run might not be able to write its outcome, a refusal is.
func diskAlmostFull(t *testing.T, on *disk) {
	f := newFaulty(t, on)
	waiting := f.want("run")
	f.waits(waiting)
	on.fill(300 << 10)
	for _, tool := range []string{"auto", "run"} {
		refused := f.want(tool)
		r := f.response(refused)
		require.Equal(t, approval.StatusAutoRejected, r.Status)
		require.Equal(t, "The gate cannot take requests now: its disk is almost full. Nothing ran; ask again later under a new id.", *r.Error)
		require.Zero(t, f.ran(refused))
	}
	require.True(t, f.approve(waiting), "there is room for a decision")
	require.Nil(t, f.answered(waiting), "and none to run it")
	require.Equal(t, 1, strings.Count(f.d.said(), stops), "it is said once, not for each request")
	on.free()
	f.d.awaitLog(again)
	f.goesOn(waiting, true)
	f.endsWell()
}

func noInodes(t *testing.T, on *disk) {
	f := newFaulty(t, on)
	waiting := f.want("run")
	f.waits(waiting)
	on.takeInodes()
	lying := f.want("auto")
	f.d.awaitLog(stops)
	acked := f.approve(waiting)
	require.False(t, acked, "a decision is a file too")
	require.Zero(t, f.ran(lying)+f.ran(waiting))
	on.giveInodes()
	f.d.awaitLog(again)
	f.goesOn(waiting, acked, lying)
	f.endsWell()
}

// diskReadOnly lays a read-only view of the home over it, as the kernel refuses
// to make a file system read-only on which a file is open for writing.
func diskReadOnly(t *testing.T, on *disk) {
	f := newFaulty(t, on)
	waiting := f.want("run")
	f.waits(waiting)
	home := f.layout.Home
	require.NoError(t, unix.Mount(home, home, "", unix.MS_BIND|unix.MS_REC, ""))
	require.NoError(t, unix.Mount("", home, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	_, err := os.Create(filepath.Join(home, "probe"))
	require.ErrorIs(t, err, syscall.EROFS)
	lying := f.want("auto")
	f.d.awaitLog(stops + "its disk is read-only")
	require.False(t, f.approve(waiting), "nothing is acknowledged that cannot be kept")
	require.Nil(t, f.answered(lying))
	require.Zero(t, f.ran(lying)+f.ran(waiting))
	require.NoError(t, unix.Unmount(home, unix.MNT_DETACH))
	f.d.awaitLog(again)
	f.goesOn(waiting, false, lying)
	f.endsWell()
}

// tooManyFiles takes the daemon's file descriptors away and gives them back.
func tooManyFiles(t *testing.T, on *disk) {
	f := newFaulty(t, on)
	waiting := f.want("run")
	f.waits(waiting)
	pid := f.d.cmd.Process.Pid
	var old unix.Rlimit
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}, nil))
	lying := f.want("auto")
	f.d.awaitLog(stops + "too many files are open")
	require.Zero(t, f.ran(lying))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil))
	f.d.awaitLog(again)
	f.goesOn(waiting, false, lying)
	f.endsWell()
}

// brokenDisk is an ext4 whose device gives errors: its image lies on a tmpfs
// that is full, so that blocks written for the first time are refused.
func brokenDisk(t *testing.T) {
	below := mountDisk(t, "tmpfs", "tmpfs", "size=6m,mode=0700")
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
	f := newFaulty(t, d)
	waiting := f.want("run")
	f.waits(waiting)
	below.fill(0)
	var asked []string
	for range 200 { // until a block is needed that was never written
		if _, degraded := f.degraded(); degraded {
			break
		}
		id := f.want("auto")
		asked = append(asked, id)
		f.awaitAnswerOrWeakness(id)
	}
	reason, degraded := f.degraded()
	require.True(t, degraded, "%s", f.d.said())
	t.Log(reason)
	acked := f.approve(waiting)
	before := map[string]*approval.Response{}
	for _, id := range asked {
		before[id] = f.answered(id)
	}
	f.d.kill()
	require.NoError(t, unix.Unmount(f.agent.Requests, unix.MNT_DETACH))
	run("umount", d.path)
	below.free()
	mount()
	require.NoError(t, unix.Mount("tmpfs", f.agent.Requests, "tmpfs", 0, "size=1m,mode=0777"))
	require.FileExists(t, filepath.Join(f.layout.Pendings("w"), waiting+".json"), "it was durable before the disk broke")
	f.start()
	if !acked {
		f.approve(waiting)
	}
	require.Equal(t, approval.StatusApproved, f.response(waiting).Status)
	for _, id := range asked {
		if f.ran(id); before[id] != nil {
			require.Equal(t, before[id], f.response(id), "what the agent has read stays true")
		}
	}
	f.d.stop()
}

// weak says whether the daemon has said that it takes no requests.
func (f *faulty) degraded() (why string, degraded bool) {
	_, why, degraded = strings.Cut(f.d.said(), stops)
	why, _, _ = strings.Cut(why, `"`)
	return why, degraded
}

func (f *faulty) awaitAnswerOrWeakness(id string) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	for f.answered(id) == nil {
		if _, degraded := f.degraded(); degraded {
			return
		}
		require.True(f.t, time.Now().Before(deadline))
		time.Sleep(time.Millisecond) // either of two files
	}
}
