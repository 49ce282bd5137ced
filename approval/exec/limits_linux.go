package exec

import (
	"maps"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchInterval is how often a run is measured. Where the kernel keeps the limits, it
	// is how soon a run ends that was refused a process.
	watchInterval = 20 * time.Millisecond
	// spareTasks is how many processes and threads a user has besides those of a run,
	// before RLIMIT_NPROC refuses the run another one. The daemon has the same user.
	spareTasks = 1000
	// heldEvery is how many measurements pass between two that look for files in memory.
	heldEvery = 10
	// ownTasks is how many threads the daemon and the supervisor can start when a run has
	// reached the limit of its user.
	ownTasks = 32
	// handlerOOMScore makes the kernel choose a handler before the daemon when the host
	// is out of memory.
	handlerOOMScore = "500"
)

// watch measures the runs as long as there are any. It holds the lock only to copy the
// list and to begin a kill.
func (w *supervisor) watch() {
	m := &meter{groups: w.groups, now: w.now}
	for range w.started {
		for w.checkRuns(m) {
			time.Sleep(watchInterval)
		}
	}
}

// checkRuns kills the runs that are over a limit, and again what is left of those that
// have ended. It returns false if there is no run.
func (w *supervisor) checkRuns(m *meter) bool {
	jobs, over := m.measure()
	w.mu.Lock()
	var growing []*job
	orphans := sync.OnceValue(children)
	for _, j := range jobs {
		if w.jobs[j.pid] != j {
			continue
		}
		if !j.ended.Load() && j.over == "" {
			j.over = over[j]
		}
		if j.ended.Load() {
			w.settle(j, orphans) // it may have waited for a process that is not a child
		} else if j.over != "" {
			j.kill()
		}
		if j.cgroup == "" && (j.ended.Load() || j.over != "") {
			growing = append(growing, j)
		}
	}
	left := len(w.jobs)
	w.mu.Unlock()
	if over[nil] != "" {
		growing = append(growing, nil)
	}
	for _, j := range growing {
		killAll(func() []int {
			_, members := m.members()
			return pidsOf(members[j])
		})
	}
	return left > 0
}

// now returns the runs and the children of this process at one moment: a command that is being
// started has no mark yet, and would be taken for what another run abandoned.
func (w *supervisor) now() (jobs map[int]*job, pids []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.groups.runs == "" {
		pids = childrenOf(os.Getpid())
	}
	return maps.Clone(w.jobs), pids
}

// kill begins the end of a run: settle completes it.
func (j *job) kill() {
	if j.cgroup != "" {
		killCgroup(j.cgroup)
	}
	_ = unix.Kill(-j.pid, unix.SIGKILL)
}

// meter measures runs.
type meter struct {
	groups *cgroups
	now    func() (jobs map[int]*job, children []int)
	known  map[int]owned // without cgroups: the processes at the last time
	count  int           // measurements
}

// owned is a process whose run is known.
type owned struct {
	job     *job
	started string
}

// measure returns the runs, and the limits that they are over.
func (m *meter) measure() (jobs map[int]*job, over map[*job]string) {
	jobs, members := m.members()
	m.count++
	held := heldMemory
	if m.count%heldEvery != 0 {
		held = func([]proc) int64 { return 0 }
	}
	over = map[*job]string{nil: overOf(largest(jobs), members[nil], held)}
	for _, j := range jobs {
		switch {
		case j.ended.Load() || j.memory == 0 && j.tasks == 0:
		case m.groups.kernel:
			over[j] = enforced(j.cgroup)
		case j.cgroup != "":
			pids := processesIn(j.cgroup)
			if j.tasks > 0 && len(pids) > j.tasks { // no time to read thousands
				over[j] = overTasks
				continue
			}
			over[j] = overOf(j, readAll(pids), held)
		default:
			over[j] = overOf(j, members[j], held)
		}
	}
	return jobs, over
}

// largest has the largest limits of the runs.
func largest(jobs map[int]*job) *job {
	l := &job{}
	for _, j := range jobs {
		l.memory, l.tasks = max(l.memory, j.memory), max(l.tasks, j.tasks)
	}
	return l
}

// members finds the processes of each run without cgroups: the command, what is below it,
// and what it abandoned. Those of nil may be of any run.
func (m *meter) members() (jobs map[int]*job, found map[*job][]proc) {
	jobs, pids := m.now()
	found, known := map[*job][]proc{}, map[int]owned{}
	for _, p := range readAll(pids) {
		j := m.ownerOf(p, jobs)
		for _, p := range append(readAll(below(p.pid)), p) {
			found[j] = append(found[j], p)
			known[p.pid] = owned{j, p.started}
		}
	}
	m.known = known
	return jobs, found
}

// ownerOf is the run of a child of the supervisor, or nil if there is no telling: it left
// its session and cleared its environment before it was seen, and there are several runs.
func (m *meter) ownerOf(p proc, jobs map[int]*job) *job {
	if j := jobs[p.pid]; j != nil && !j.ended.Load() {
		return j
	}
	if before, ok := m.known[p.pid]; ok && before.started == p.started {
		if before.job == nil || jobs[before.job.pid] != before.job {
			return nil // as before, or its run has ended
		}
		return before.job
	}
	if j := jobs[p.session]; j != nil {
		return j
	}
	mark := markOf(p)
	for _, j := range jobs {
		if j.mark == mark || mark == "" && len(jobs) == 1 {
			return j
		}
	}
	return nil
}

// below lists the descendants of a process.
func below(pid int) []int {
	list := childrenOf(pid)
	for i := 0; i < len(list); i++ {
		list = append(list, childrenOf(list[i])...)
	}
	return list
}

func pidsOf(list []proc) []int {
	pids := make([]int, len(list))
	for i, p := range list {
		pids[i] = p.pid
	}
	return pids
}

func readAll(pids []int) []proc {
	list := make([]proc, 0, len(pids))
	for _, pid := range pids {
		if p, ok := readProc(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

// overOf is the limit that the processes of a run are over, or "". Pages that processes
// share are counted once, but only if the sum that is fast to read is over the limit. held
// is the memory of files that they hold open.
func overOf(j *job, list []proc, held func([]proc) int64) string {
	var tasks int
	var memory int64
	for _, p := range list {
		tasks += p.threads
		memory += p.memory
	}
	if j.tasks > 0 && tasks > j.tasks {
		return overTasks
	}
	if j.memory == 0 {
		return ""
	}
	files := held(list)
	if memory+files <= j.memory {
		return ""
	}
	var shared int64 // those of the files that are mapped, too
	memory = 0
	for _, p := range list {
		all, shmem := p.readMemory()
		memory, shared = memory+all-shmem, shared+shmem
	}
	if memory+max(shared, files) > j.memory {
		return overMemory
	}
	return ""
}

// precedence is the priority of the supervisor, which is higher than that of commands if it
// may set it (root): thousands of processes that compute would not let it count and kill them.
type precedence struct {
	nice   int // of commands: that of the daemon
	raised bool
}

const highest = -20

// take raises the priority of all threads; those that start later have it from them.
func (p *precedence) take() {
	was, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 less the nice value
	if err != nil || unix.Setpriority(unix.PRIO_PROCESS, 0, highest) != nil {
		return
	}
	p.nice, p.raised = 20-was, true
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(highest)), 0) // of the session, where the kernel schedules sessions
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, highest)
		}
	}
}

// lend gives this thread the priority of commands, which what it starts inherits, until the
// returned function is called.
func (p *precedence) lend() (back func()) {
	if !p.raised {
		return func() {}
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), p.nice)
	return func() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), highest) }
}

// brake sets RLIMIT_NPROC, which commands inherit, to more than a run may have. It slows
// down what starts processes faster than they are counted. It does nothing to root.
type brake struct {
	others  int // processes and threads of this user besides runs
	counted time.Time
}

// on returns a function that removes the limit from this process again.
func (b *brake) on(tasks int) (off func()) {
	off = func() {}
	if os.Getuid() == 0 || tasks == 0 {
		return off
	}
	if time.Since(b.counted) > time.Minute {
		b.others, b.counted = userTasks(), time.Now()
	}
	var before unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &before) != nil {
		return off
	}
	// Less than this process may have: a run that takes all must leave threads for those that
	// count and kill it.
	limit := unix.Rlimit{Cur: min(before.Cur-min(ownTasks, before.Cur/2), uint64(b.others+tasks+spareTasks)), Max: before.Max}
	if unix.Setrlimit(unix.RLIMIT_NPROC, &limit) != nil {
		return off
	}
	return func() { _ = unix.Setrlimit(unix.RLIMIT_NPROC, &before) }
}

// userTasks counts the processes and threads of this user.
func userTasks() int {
	tasks := 0
	for _, p := range processes() {
		var info unix.Stat_t
		if unix.Stat("/proc/"+strconv.Itoa(p.pid), &info) == nil && int(info.Uid) == os.Getuid() {
			tasks += p.threads
		}
	}
	return tasks
}
