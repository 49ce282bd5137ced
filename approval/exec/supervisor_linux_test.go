package exec

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	osexec "os/exec"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
)

// startDescendants starts processes that could escape. Each writes its pid into the
// folder $1: a child in the group, one in its own group, one in its own session,
// one that also lost its parents, and one that also cleared its environment. The
// script continues when all have written.
const startDescendants = `
cd "$1"
sleep 1000 & echo $! >child
(set -m; sh -c 'echo $$ >group; exec sleep 1000' & )
setsid sh -c 'echo $$ >session; exec sleep 1000' &
setsid sh -c 'setsid sh -c "echo \$\$ >orphan; exec sleep 1000" &' &
env -i PATH="$PATH" setsid sh -c 'echo $$ >bare; exec sleep 1000' &
for f in child group session orphan bare; do while ! [ -s $f ]; do sleep 0.005; done; done
`

var descendants = []string{"child", "group", "session", "orphan", "bare"}

func awaitPID(t testing.TB, file string) int {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool {
		b, _ := os.ReadFile(file)
		text, complete := strings.CutSuffix(string(b), "\n")
		pid, _ = strconv.Atoi(text)
		return complete
	}, 10*time.Second, 2*time.Millisecond, file)
	return pid
}

func alive(pid int) bool {
	p, ok := readProc(pid)
	return ok && !p.zombie
}

// awaitGone waits for the death of a process that is not a child of the test.
func awaitGone(t testing.TB, what string, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone already
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	require.NoError(t, err)
	require.Equal(t, 1, n, "%s, pid %d, is still alive", what, pid)
}

// awaitStopped waits until no thread of a process runs that was sent SIGSTOP.
func awaitStopped(t testing.TB, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
		return len(threads) > 0 && !slices.ContainsFunc(threads, func(file string) bool {
			b, err := os.ReadFile(file)
			return err == nil && !strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+1:]), " T")
		})
	}, time.Minute, time.Millisecond, "process %d does not stop", pid)
}

func TestNoProcessOutlivesItsRun(t *testing.T) {
	for name, ending := range map[string]struct {
		text string
		want string
	}{
		"the command succeeds":    {"exit 0", ""},
		"the command fails":       {"exit 7", "Execution failed: exit status 7"},
		"the command is killed":   {"kill -9 $$", "Execution failed: signal: killed"},
		"the output is too large": {"yes", "Execution failed: output larger than 1000 bytes (max_output)"},
		"the command times out":   {"sleep 1000", "Execution failed: timed out after 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, dir := newRunner(t), t.TempDir()
			h := script(startDescendants+ending.text, dir)
			h.MaxOutput, h.Timeout = 1000, 2*time.Second
			require.Equal(t, ending.want, run(t, r, h, `{}`).Error)
			for _, who := range descendants {
				require.False(t, alive(awaitPID(t, filepath.Join(dir, who))), who)
			}
		})
	}
}

func TestStdoutHeldOpenByAGrandchild(t *testing.T) {
	start := time.Now()
	require.Equal(t, "done\n", output(t, newRunner(t), script(`(sleep 1000 &) ; setsid sleep 1000 & echo done`), `{}`))
	require.Less(t, time.Since(start), 5*time.Second)
}

func TestEndOfOneRunKeepsOthers(t *testing.T) {
	r, dir := newRunner(t), t.TempDir()
	long := make(chan approval.Effect, 1)
	go func() {
		long <- r.Run(t.Context(), jobOf(script(startDescendants+`while ! [ -e finish ]; do sleep 0.005; done; echo done`, dir), `{}`))
	}()
	pids := map[string]int{}
	for _, who := range descendants {
		pids[who] = awaitPID(t, filepath.Join(dir, who))
	}
	for range 20 {
		require.Empty(t, run(t, r, script(`setsid true & (true &)`), `{}`).Error)
	}
	other := t.TempDir()
	require.Empty(t, run(t, r, script(startDescendants, other), `{}`).Error)
	for _, who := range descendants {
		require.True(t, alive(pids[who]), "%s belongs to a run under way", who)
		if who != "bare" { // it has no mark, see the package comment
			require.False(t, alive(awaitPID(t, filepath.Join(other, who))), who)
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "finish"), nil, 0o600))
	require.Empty(t, (<-long).Error)
	for _, who := range descendants {
		require.False(t, alive(pids[who]), who)
	}
	require.False(t, alive(awaitPID(t, filepath.Join(other, "bare"))), "its last candidate has ended")
}

func TestCommandCannotJoinAnotherRunsGroup(t *testing.T) {
	r, dir := newRunner(t), t.TempDir()
	first := make(chan approval.Effect, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { first <- r.Run(ctx, jobOf(script(`echo $$ >"$1/a"; exec sleep 1000`, dir), `{}`)) }()
	a := awaitPID(t, filepath.Join(dir, "a"))
	e := run(t, r, command("/usr/bin/perl", "-e", `setpgrp(0, $ARGV[0]) and exit 0; print STDERR $!; exit 1`, strconv.Itoa(a)), `{}`)
	require.Contains(t, e.Error, "not permitted")
	cancel()
	require.Equal(t, "Execution failed: cancelled", (<-first).Error)
}

// runners start commands in each way that a host may require.
func runners(t *testing.T, test func(t *testing.T, r *Runner)) {
	t.Helper()
	for name, without := range map[string][]string{"": nil, withoutCloneIn: {withoutCloneIn}, withoutCgroups: {withoutCgroups}} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t)
			r.Supervisor.without = without
			test(t, r)
		})
	}
}

func TestWhatIsNoProgramIsNotStarted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, []byte("no program\x00"), 0o755))
	runners(t, func(t *testing.T, r *Runner) {
		e := run(t, r, command(file), `{}`)
		require.Contains(t, e.Error, "exec format error")
		require.True(t, e.Unstarted)
	})
}

func TestOnlyThreeDescriptors(t *testing.T) { runners(t, testOnlyThreeDescriptors) }

func testOnlyThreeDescriptors(t *testing.T, r *Runner) {
	leaked, err := unix.Dup(1) // as if the daemon had inherited it from its parent
	require.NoError(t, err)
	defer unix.Close(leaked)
	// ls itself opens one more: the folder it lists.
	require.Equal(t, "0\n1\n2\n3\n", output(t, r, command("/bin/ls", "/proc/self/fd"), `{}`))
}

func TestCommandsInheritNoSignalMask(t *testing.T) { runners(t, testNoSignalMask) }

func testNoSignalMask(t *testing.T, r *Runner) {
	out := output(t, r, command("/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"), `{}`)
	for line := range strings.Lines(out) {
		name, mask, ok := strings.Cut(strings.TrimSpace(line), ":\t")
		require.True(t, ok, line)
		bits, err := strconv.ParseUint(mask, 16, 64)
		require.NoError(t, err)
		// 32 and 33 belong to the C library; the test's parent may ignore them.
		require.Zero(t, bits&^(1<<31|1<<32), "%s: %s", name, mask)
	}
	require.Contains(t, out, "SigBlk")
	require.Contains(t, out, "SigIgn")
}

// supervisorOf starts r's supervisor.
func supervisorOf(t *testing.T, r *Runner) *os.Process {
	t.Helper()
	l, err := r.Supervisor.connect(nil)
	require.NoError(t, err)
	return l.proc
}

func TestSupervisorLeaksNothing(t *testing.T) {
	r := newRunner(t)
	supervisor := supervisorOf(t, r)
	run(t, r, command("/bin/true"), `{}`)
	fds := "/proc/" + strconv.Itoa(supervisor.Pid) + "/fd"
	before, err := os.ReadDir(fds)
	require.NoError(t, err)
	for range 50 {
		run(t, r, script(`setsid sleep 1000 & exit 1`), `{}`)
		run(t, r, command("/no/such"), `{}`)
		run(t, r, command("/bin/echo", "x"), `{}`)
	}
	after, err := os.ReadDir(fds)
	require.NoError(t, err)
	require.LessOrEqual(t, len(after), len(before)+2, "epoll may be new")
	for _, p := range processes() {
		require.NotEqual(t, supervisor.Pid, p.parent, "a child was left unreaped")
	}
	require.Empty(t, r.Supervisor.link.runs)
}

func TestSupervisorHasEmptyEnvironment(t *testing.T) {
	t.Setenv("PERMESSO_TEST_SECRET", "no")
	r := newRunner(t)
	b, err := os.ReadFile("/proc/" + strconv.Itoa(supervisorOf(t, r).Pid) + "/environ")
	require.NoError(t, err)
	require.Empty(t, b)
}

func TestSupervisorIgnoresTerminationSignals(t *testing.T) {
	r := newRunner(t)
	supervisor := supervisorOf(t, r)
	run(t, r, command("/bin/true"), `{}`) // the supervisor is running
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		require.NoError(t, supervisor.Signal(sig))
		require.Equal(t, "hi\n", output(t, r, command("/bin/echo", "hi"), `{}`))
	}
}

func TestSupervisorKilled(t *testing.T) {
	for name, without := range map[string][]string{"": nil, withoutCgroups: {withoutCgroups}} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t)
			r.Supervisor.without = without
			testSupervisorKilled(t, r)
		})
	}
}

func testSupervisorKilled(t *testing.T, r *Runner) {
	t.Helper()
	dir := t.TempDir()
	supervisor := supervisorOf(t, r)
	grouped := r.Supervisor.link.groups != ""
	effect := make(chan approval.Effect, 1)
	go func() {
		effect <- r.Run(t.Context(), jobOf(script(startDescendants+`echo $$ >self; sleep 1000`, dir), `{}`))
	}()
	pids := map[string]int{"self": awaitPID(t, filepath.Join(dir, "self"))}
	for _, who := range descendants {
		pids[who] = awaitPID(t, filepath.Join(dir, who))
	}
	require.NoError(t, supervisor.Kill())
	require.Equal(t, approval.Effect{Error: "Execution interrupted: outcome unknown"}, <-effect)
	for who, pid := range pids {
		if who == "bare" && !grouped { // without a supervisor and a cgroup only the mark identifies a process
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			continue
		}
		require.False(t, alive(pid), who)
	}
	require.Equal(t, "hi\n", output(t, r, command("/bin/echo", "hi"), `{}`), "a new supervisor")
}

// This command has no mark. The kernel kills it, because the supervisor is its
// parent.
func TestUnmarkedCommandDiesWithSupervisor(t *testing.T) {
	r, dir := newRunner(t), t.TempDir()
	supervisor := supervisorOf(t, r)
	effect := make(chan approval.Effect, 1)
	h := command("/usr/bin/env", "-i", "/bin/sh", "-c", `echo $$ >"$1/self"; exec sleep 1000`, "sh", dir)
	go func() { effect <- r.Run(t.Context(), jobOf(h, `{}`)) }()
	pid := awaitPID(t, filepath.Join(dir, "self"))
	require.NoError(t, supervisor.Kill())
	require.Equal(t, "Execution interrupted: outcome unknown", (<-effect).Error)
	awaitGone(t, "the command", pid)
}

func TestCloseInterruptsRuns(t *testing.T) {
	r, dir := newRunner(t), t.TempDir()
	effect := make(chan approval.Effect, 1)
	go func() { effect <- r.Run(t.Context(), jobOf(script(startDescendants+`sleep 1000`, dir), `{}`)) }()
	var pids []int
	for _, who := range descendants {
		pids = append(pids, awaitPID(t, filepath.Join(dir, who)))
	}
	require.NoError(t, r.Close())
	for i, pid := range pids {
		require.False(t, alive(pid), descendants[i])
	}
	require.Equal(t, approval.Effect{Error: "Execution interrupted: outcome unknown"}, <-effect)
}

// runDaemon runs three commands with all their descendants until it is killed.
func runDaemon(dir string) {
	r := &Runner{Verifier: acceptAll{}, TempDir: filepath.Join(dir, "tmp")}
	done := make(chan struct{})
	for _, name := range []string{"0", "1", "2"} {
		go func() {
			r.Run(context.Background(), jobOf(script(startDescendants+`echo $$ >self; sleep 1000`, filepath.Join(dir, name)), `{}`))
			close(done)
		}()
	}
	<-done
}

func TestDaemonKilled(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0", "1", "2", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	daemon := osexec.Command("/proc/self/exe", "run-daemon", dir)
	daemon.Stderr = os.Stderr
	require.NoError(t, daemon.Start())
	pids := map[string]int{}
	for _, name := range []string{"0", "1", "2"} {
		for _, who := range append([]string{"self"}, descendants...) {
			pids[name+"/"+who] = awaitPID(t, filepath.Join(dir, name, who))
		}
	}
	self, ok := readProc(pids["0/self"])
	require.True(t, ok)
	require.NotEqual(t, daemon.Process.Pid, self.parent)
	require.NoError(t, daemon.Process.Kill())
	require.Error(t, daemon.Wait())
	start := time.Now()
	for who, pid := range pids {
		awaitGone(t, who, pid)
	}
	t.Logf("all dead %s after the daemon", time.Since(start))
	awaitGone(t, "the supervisor", self.parent)
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	require.NoError(t, err)
	require.Empty(t, left, "working folders are removed")
}

// If the daemon and its supervisor are killed at once, the next supervisor kills what they
// left, also what has no mark.
func TestAbandonedRunsAreKilled(t *testing.T) {
	r, dir := newRunner(t), t.TempDir()
	supervisorOf(t, r)
	if r.Supervisor.link.groups == "" {
		_, why := r.Supervisor.Limits()
		t.Log("no control groups here:", why)
		return
	}
	for _, name := range []string{"0", "1", "2", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	daemon := osexec.Command("/proc/self/exe", "run-daemon", dir)
	require.NoError(t, daemon.Start())
	pids := map[string]int{}
	for _, name := range []string{"0", "1", "2"} {
		for _, who := range descendants {
			pids[name+"/"+who] = awaitPID(t, filepath.Join(dir, name, who))
		}
	}
	bare, ok := readProc(pids["0/bare"])
	require.True(t, ok)
	left := filepath.Dir(cgroupOf(t, bare.pid))
	supervisor := childrenOf(daemon.Process.Pid)
	require.Len(t, supervisor, 1)
	require.NoError(t, syscall.Kill(supervisor[0], syscall.SIGSTOP)) // it must not see the end of the daemon
	awaitStopped(t, supervisor[0])
	require.NoError(t, daemon.Process.Kill())
	require.Error(t, daemon.Wait())
	require.True(t, alive(bare.pid))
	require.NoError(t, syscall.Kill(supervisor[0], syscall.SIGKILL))
	awaitGone(t, "the supervisor", supervisor[0])

	next := newRunner(t)
	require.NoError(t, next.Supervisor.Start())
	for who, pid := range pids {
		require.False(t, alive(pid), who)
	}
	require.NoDirExists(t, left)
	require.Equal(t, "hi\n", output(t, r, command("/bin/echo", "hi"), `{}`), "the folder of one that lives is locked")
}

// cgroupOf is the folder of a process's cgroup.
func cgroupOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	require.NoError(t, err)
	own, err := ownCgroup()
	require.NoError(t, err)
	mine, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	return filepath.Join(strings.TrimSuffix(own, cgroupIn(string(mine))), cgroupIn(string(b)))
}

// A process of a run's cgroup dies before Run returns, although nothing else identifies it
// and another run is under way.
func TestUnmarkedProcessesDieWithTheirCgroup(t *testing.T) {
	r, dir := newRunner(t), t.TempDir()
	supervisorOf(t, r)
	if r.Supervisor.link.groups == "" {
		_, why := r.Supervisor.Limits()
		t.Log("no control groups here:", why)
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := make(chan approval.Effect, 1)
	go func() { other <- r.Run(ctx, jobOf(script(`echo $$ >"$1/a"; exec sleep 1000`, dir), `{}`)) }()
	a := awaitPID(t, filepath.Join(dir, "a"))
	require.Empty(t, run(t, r, script(startDescendants, dir), `{}`).Error)
	require.False(t, alive(awaitPID(t, filepath.Join(dir, "bare"))))
	require.True(t, alive(a))
	cancel()
	require.Equal(t, "Execution failed: cancelled", (<-other).Error)
}

func TestOnlyTheDaemonStartsASupervisor(t *testing.T) {
	cmd := osexec.Command("/proc/self/exe", superviseArg)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Equal(t, "permesso: supervise: only the daemon may start this process\n", string(out))
}

func TestMalformedMessagesStartNothing(t *testing.T) {
	good := spec{mark: "m", dir: "/", path: "/bin/true", argv: []string{"true", ""}, env: []string{"A=b"}, temp: true, piped: true, memory: 1 << 40, tasks: 7}
	b, err := good.pack()
	require.NoError(t, err)
	got, err := unpackSpec(unpack(b))
	require.NoError(t, err)
	require.Equal(t, good, got)
	for i, wrong := range map[int][]string{5: {"-1", "x", ""}, 6: {"-1", "x", ""}, 8: {"0", "-1", "4", "x", ""}} {
		for _, n := range wrong {
			fields := unpack(b)
			fields[i] = n
			_, err := unpackSpec(fields)
			require.ErrorIs(t, err, errMessage, "field %d: %q", i, n)
		}
	}
	_, err = unpackSpec([]string{msgRun, "m"})
	require.ErrorIs(t, err, errMessage)
}
