package exec

import (
	"fmt"
	"os"
	osexec "os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
)

// runThreads starts threads and keeps them.
func runThreads(text string) {
	n, _ := strconv.Atoi(text)
	for range n {
		go func() {
			runtime.LockOSThread()
			time.Sleep(time.Hour)
		}()
	}
	time.Sleep(time.Hour)
}

// runMemfd keeps a file in memory that is not mapped.
func runMemfd(text string) {
	n, _ := strconv.Atoi(text)
	fd, err := unix.MemfdCreate("hog", 0)
	for range n {
		if err != nil {
			fmt.Println(err)
			return
		}
		_, err = unix.Write(fd, make([]byte, 1<<20))
	}
	time.Sleep(time.Minute)
}

// Each of these is bounded by itself, too: should the limit not be kept, the test fails
// and the machine lives.
const (
	testMemory    = 96 << 20
	testProcesses = 60

	tooMuchMemory    = "Execution failed: more than 100663296 bytes of memory (max_memory)"
	tooManyProcesses = "Execution failed: more than 60 processes and threads (max_processes)"

	// hog keeps 250 MiB for a minute or so.
	hog = `dd if=/dev/zero of=/dev/null bs=250M count=1000 2>/dev/null`
	// bomb starts 2⁹ processes.
	bomb = `f() { if [ $1 -gt 8 ]; then exec sleep 1000; fi; f $(($1+1)) & f $(($1+1)) & wait; }; f 0`
)

// burners are 2¹² processes, each with a session of its own, that compute, ten minutes at most.
const burners = `
import os, time
end = time.time() + 600
for i in range(12):
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
while time.time() < end:
    pass
`

// burnersOfShell are fewer, in one session: for the virtual machine, which has no Python.
const burnersOfShell = `
f() {
	if [ $1 -lt 9 ]; then f $(($1+1)) & f $(($1+1)) & fi
	i=0; while [ $i -lt 10000000 ]; do i=$((i+1)); done
}
f 0`

const unmarked, computing = "memory without a mark", "processes that compute"

type bombCase struct {
	name, text, want string
}

func bombs(t *testing.T) []bombCase {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return []bombCase{
		{"fork bomb", bomb, tooManyProcesses},
		{"detached fork bomb", `setsid sh -c '` + bomb + `' & sleep 1000`, tooManyProcesses},
		{"processes in their own sessions", `i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; wait`, tooManyProcesses},
		{computing, `if command -v python3 >/dev/null; then exec python3 -c '` + burners + `'; fi` + burnersOfShell, tooManyProcesses},
		{"threads", `"` + self + `" run-threads 200`, tooManyProcesses},
		{"memory", hog, tooMuchMemory},
		{"detached memory", `(setsid sh -c '` + hog + `' &); sleep 1000`, tooMuchMemory},
		{unmarked, `(env -i PATH="$PATH" setsid sh -c '` + hog + `' &); sleep 1000`, tooMuchMemory},
		{"memory of many", `for i in 1 2 3 4 5 6; do dd if=/dev/zero of=/dev/null bs=30M count=10000 2>/dev/null & done; wait`, tooMuchMemory},
		{"files in memory", `"` + self + `" run-memfd 250`, tooMuchMemory},
		{"output", `yes`, "Execution failed: output larger than 1000 bytes (max_output)"},
		{"stderr", `yes >&2`, "Execution failed: stderr larger than 16777216 bytes"},
	}
}

// What takes too much ends as failed, with its limit named; other runs go on.
func TestLimits(t *testing.T) {
	t.Run("as this host can", func(t *testing.T) { testLimits(t) })
	t.Run("without cgroup.kill", func(t *testing.T) { testLimits(t, withoutKillFile) })
	t.Run("without a start in a cgroup", func(t *testing.T) { testLimits(t, withoutCloneIn) })
}

func TestWithoutControlGroups(t *testing.T) { testLimits(t, withoutCgroups) }

func testLimits(t *testing.T, without ...string) {
	t.Helper()
	for i, c := range bombs(t) {
		if i%3 != 0 && os.Getenv("PERMESSO_SOAK") == "" && len(without) > 0 && without[0] != withoutCgroups {
			continue
		}
		rounds := 1
		if os.Getenv("PERMESSO_SOAK") != "" && c.name == computing { // with luck it is counted in time
			rounds = 50
		}
		t.Run(c.name, func(t *testing.T) {
			for range rounds {
				testLimit(t, c, without)
			}
		})
	}
}

func testLimit(t *testing.T, c bombCase, without []string) {
	t.Helper()
	r := newRunner(t)
	r.Supervisor.without = without
	require.NoError(t, r.Supervisor.Start())
	how, why := r.Supervisor.Limits()
	t.Log(how, why)
	stop := func() {}
	if c.name != unmarked || !slices.Contains(without, withoutCgroups) { // then its run is known only if there is no other
		stop = othersGoOn(t, r)
	}
	h := script(c.text)
	h.MaxMemory, h.MaxProcesses, h.MaxOutput, h.Timeout = testMemory, testProcesses, 1000, time.Minute
	e := r.Run(t.Context(), jobOf(h, `{}`))
	stop()
	require.Equal(t, approval.Effect{Error: c.want}, e)
	require.Empty(t, below(supervisorOf(t, r).Pid), "nothing is left")
	if group := r.Supervisor.link.groups; group != "" {
		require.False(t, populated(group))
	}
}

// Where runs are counted, RLIMIT_NPROC slows down a fork bomb of a daemon that is not root.
// Other users have no control groups here.
func TestBrake(t *testing.T) {
	if os.Getuid() == 0 {
		// Below the folder of t.TempDir is nothing for another user.
		cmd := osexec.Command("/proc/self/exe", "-test.run", "^TestBrake$", "-test.v")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), "TMPDIR=/tmp")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestBrake")
		return
	}
	r := newRunner(t)
	r.Supervisor.without = []string{withoutCgroups}
	h := command("/bin/cat", "/proc/self/limits")
	h.MaxProcesses = 7
	limits := output(t, r, h, `{}`)
	m := regexp.MustCompile(`(?m)^Max processes +(\S+)`).FindStringSubmatch(limits)
	require.NotNil(t, m, limits)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err, "unlimited")
	require.Less(t, n, 7+spareTasks+100_000)
	var own unix.Rlimit
	require.NoError(t, unix.Prlimit(supervisorOf(t, r).Pid, unix.RLIMIT_NPROC, nil, &own))
	require.GreaterOrEqual(t, uint64(n), min(uint64(7+spareTasks), own.Cur))
	if own.Cur >= 7+spareTasks {
		require.Greater(t, own.Cur, uint64(n), "the supervisor itself keeps its limit")
	}
}

// tasksOfUser is how many processes and threads a user may have.
const tasksOfUser = 150

// A run that takes all processes that its user may have is counted and killed as any other; so is what
// is left when it has brought down the supervisor.
func TestUserAtItsLimit(t *testing.T) {
	if os.Getuid() == 0 {
		user := 70_000 + uint32(os.Getpid()) // of no other run of this test
		cmd := osexec.Command("/proc/self/exe", "-test.run", "^TestUserAtItsLimit$", "-test.v")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), "TMPDIR=/tmp")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestUserAtItsLimit")
		return
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: tasksOfUser, Max: tasksOfUser}))
	r := newRunner(t)
	h := command("/usr/bin/python3", "-c", burners)
	// The supervisor of an ordinary user has the priority of the burners: with the race detector it needs a minute or two.
	h.MaxProcesses, h.Timeout = testProcesses, 9*time.Minute
	require.Equal(t, approval.Effect{Error: tooManyProcesses}, r.Run(t.Context(), jobOf(h, `{}`)))
	require.Empty(t, below(supervisorOf(t, r).Pid), "nothing is left")

	h.MaxProcesses = 2 * tasksOfUser // more than it can reach
	done := make(chan approval.Effect, 1)
	go func() { done <- r.Run(t.Context(), jobOf(h, `{}`)) }()
	pid := supervisorOf(t, r).Pid
	require.Eventually(t, func() bool { return len(below(pid)) > tasksOfUser/2 }, 9*time.Minute, 10*time.Millisecond)
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	require.Equal(t, approval.Effect{Error: "Execution interrupted: outcome unknown"}, <-done)
	for _, p := range processes() {
		var info unix.Stat_t
		if p.pid != os.Getpid() && !p.zombie && unix.Stat("/proc/"+strconv.Itoa(p.pid), &info) == nil {
			require.NotEqual(t, os.Getuid(), int(info.Uid), "process %d is left", p.pid)
		}
	}
}

// othersGoOn runs other commands until the returned function is called, which waits until one
// has run from its start to its end since.
func othersGoOn(t *testing.T, r *Runner) (stop func()) {
	var stopping atomic.Bool
	done := make(chan approval.Effect, 1)
	go func() {
		for {
			last := stopping.Load()
			e := r.Run(t.Context(), jobOf(command("/bin/echo", "hi"), `{}`))
			if last || e.Error != "" {
				done <- e
				return
			}
		}
	}()
	return func() {
		stopping.Store(true)
		require.Equal(t, approval.Effect{Result: approval.Raw(`{"output":"hi\n"}`)}, <-done)
	}
}

// Commands have the daemon's priority, whatever that of their supervisor is.
func TestPriority(t *testing.T) {
	r := newRunner(t)
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 less the nice value
	require.NoError(t, err)
	for range 2 {
		require.Equal(t, strconv.Itoa(20-own), strings.TrimSpace(output(t, r, command("/usr/bin/nice"), `{}`)))
		policy := output(t, r, command("/usr/bin/python3", "-c", "import os; print(os.sched_getscheduler(0))"), `{}`)
		require.Equal(t, strconv.Itoa(unix.SCHED_NORMAL), strings.TrimSpace(policy))
	}
	above, err := unix.Getpriority(unix.PRIO_PROCESS, supervisorOf(t, r).Pid)
	require.NoError(t, err)
	if os.Getuid() == 0 {
		require.Greater(t, above, own)
		require.Contains(t, policies(t, supervisorOf(t, r).Pid), uint32(unix.SCHED_RR))
	}
}

// policies of the threads of a process.
func policies(t *testing.T, pid int) (list []uint32) {
	t.Helper()
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	require.NoError(t, err)
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		require.NoError(t, err)
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil {
			list = append(list, attr.Policy)
		}
	}
	return list
}
