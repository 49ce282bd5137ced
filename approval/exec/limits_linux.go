package exec

import (
	"maps"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchInterval is how often a run is measured. Where the kernel keeps the limits, it
	// is how soon a run ends that was refused a process.
	watchInterval = 20 * time.Millisecond
	// serverInterval is how often runs are measured that are all MCP servers, after the first seconds: these last.
	serverInterval = 500 * time.Millisecond
	startPeriod    = 10 * time.Second
	// spareTasks is how many processes and threads a user has besides those of a run,
	// before RLIMIT_NPROC refuses the run another one. The daemon has the same user.
	spareTasks = 1000
	// heldEvery is how many measurements pass between two that look for files in memory.
	heldEvery = 10
	// patience is how long a measurement waits for a value that another process can hold up,
	// see background.
	patience = watchInterval
	// unreadable is how long the memory of a run may be more than its limit, if pages that
	// processes share are counted as often as they are shared, and not be known better.
	unreadable = 10 * time.Second
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
	runtime.LockOSThread()
	atOnce()
	m := &meter{groups: w.groups, now: w.now, exact: overMemoryOf}
	for range w.started {
		for {
			interval := w.checkRuns(m)
			if interval == 0 {
				break
			}
			select {
			case <-time.After(interval):
			case <-w.started:
			}
		}
	}
}

// checkRuns kills the runs that are over a limit, and again what is left of those that
// have ended. It returns when to do so again, 0 if there is no run.
func (w *supervisor) checkRuns(m *meter) (interval time.Duration) {
	jobs, over := m.measure()
	for _, j := range jobs {
		if j.cgroup != "" && over[j] != "" && !j.ended.Load() {
			j.exceeds(over[j])
			killCgroup(j.cgroup)
		}
	}
	quiet := w.births.TryLock() // beside a bomb, a command starts slowly
	w.mu.Lock()
	var growing []*job
	orphans := sync.OnceValue(children)
	for _, j := range jobs {
		if w.jobs[j.pid] != j {
			continue
		}
		before := j.limit()
		if !j.ended.Load() {
			j.exceeds(over[j])
		}
		if j.ended.Load() {
			if quiet {
				w.settle(j, orphans) // it may have waited for a process that is not a child
			}
		} else if before != "" { // killAll was first: it finds processes by their parents
			j.kill()
		}
		if j.cgroup == "" && (j.ended.Load() || j.limit() != "") {
			growing = append(growing, j)
		}
	}
	for _, j := range w.jobs {
		if interval = serverInterval; !j.lasts || time.Since(j.began) < startPeriod || j.ended.Load() || j.limit() != "" {
			interval = watchInterval
			break
		}
	}
	w.mu.Unlock()
	if quiet {
		w.births.Unlock()
	}
	if over[nil] != "" {
		growing = append(growing, nil)
	}
	for _, j := range growing {
		if j != nil && !j.ended.Load() {
			killAll(func() []int { return append(below(j.pid), j.pid) })
		}
		killAll(func() []int {
			_, members := m.members()
			return pidsOf(members[j])
		})
	}
	return interval
}

// now returns the runs and the children of this process. While a command is being started, the
// children may be one more: it has no mark yet, and would be taken for what another run abandoned.
func (w *supervisor) now() (jobs map[int]*job, pids []int, starting bool) {
	starting = !w.births.TryLock()
	if !starting {
		defer w.births.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.groups.runs == "" {
		pids = childrenOf(os.Getpid())
	}
	return maps.Clone(w.jobs), pids, starting
}

// kill begins the end of a run: settle completes it.
func (j *job) kill() {
	if j.cgroup != "" {
		killCgroup(j.cgroup)
	}
	_ = unix.Kill(-j.pid, unix.SIGKILL)
}

// exceeds marks a run as over a limit, unless that is "". The first one stays.
func (j *job) exceeds(limit string) {
	if limit != "" {
		j.over.CompareAndSwap(nil, &limit)
	}
}

// limit is the limit that a run is over, or "".
func (j *job) limit() string {
	if p := j.over.Load(); p != nil {
		return *p
	}
	return ""
}

// meter measures runs.
type meter struct {
	groups *cgroups
	now    func() (jobs map[int]*job, children []int, starting bool)
	known  map[processID]*job // without cgroups: the processes at the last time whose run is known, or cannot be
	count  int                // measurements
	memory background[*job, bool]
	exact  func(limit int64, list []proc) bool // whether they are over a limit of memory
}

// measure returns the runs, and the limits that they are over.
func (m *meter) measure() (jobs map[int]*job, over map[*job]string) {
	jobs, members := m.members()
	m.count++
	over = map[*job]string{nil: m.overOf(nil, largest(jobs), members[nil])}
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
			over[j] = m.overOf(j, j, readAll(pids))
		default:
			over[j] = m.overOf(j, j, members[j])
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
	jobs, pids, starting := m.now()
	found, known := map[*job][]proc{}, map[processID]*job{}
	for _, p := range readAll(pids) {
		j, sure := m.knownOwnerOf(p, jobs)
		if !sure && starting {
			continue // perhaps the one that is being started
		}
		if !sure {
			j, sure = m.markedOwnerOf(p, jobs)
		}
		for _, p := range append(readAll(below(p.pid)), p) {
			found[j] = append(found[j], p)
			if sure {
				known[p.id()] = j
			}
		}
	}
	m.known = known
	return jobs, found
}

// knownOwnerOf is the run of a child of the supervisor, or nil as at the last time. It is not sure
// if only the mark can tell.
func (m *meter) knownOwnerOf(p proc, jobs map[int]*job) (owner *job, sure bool) {
	if j := jobs[p.pid]; j != nil && !j.ended.Load() {
		return j, true
	}
	if before, ok := m.known[p.id()]; ok {
		if before == nil || jobs[before.pid] != before {
			return nil, true // as before, or its run has ended
		}
		return before, true
	}
	j := jobs[p.session]
	return j, j != nil
}

// markedOwnerOf is nil if the process left its session and cleared its environment before it
// was seen, and there are several runs. It is not sure if the mark could not be read yet.
func (m *meter) markedOwnerOf(p proc, jobs map[int]*job) (owner *job, sure bool) {
	mark, waited := markOf(p)
	for _, j := range jobs {
		if j.mark == mark || mark == "" && len(jobs) == 1 {
			return j, waited == 0
		}
	}
	return nil, waited == 0
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
// share are counted once, but only if the sum that is fast to read is over the limit.
func (m *meter) overOf(key, limits *job, list []proc) string {
	tasks, memory := 0, sumOf(list)
	for _, p := range list {
		tasks += p.threads
	}
	if limits.tasks > 0 && tasks > limits.tasks {
		return overTasks
	}
	if limits.memory == 0 || len(list) == 0 || memory <= limits.memory && m.count%heldEvery != 0 {
		return ""
	}
	exact, waited := m.memory.get(key, func() bool { return m.exact(limits.memory, list) })
	if exact || waited > unreadable && memory > limits.memory {
		return overMemory
	}
	return ""
}

// sumOf counts pages that processes share as often as they are shared.
func sumOf(list []proc) (memory int64) {
	for _, p := range list {
		memory += p.memory
	}
	return memory
}

// overMemoryOf says whether processes have more memory than a limit, with the files that they
// hold open.
func overMemoryOf(limit int64, list []proc) bool {
	files := heldMemory(list)
	if sumOf(list)+files <= limit {
		return false
	}
	var memory, shared int64 // those of the files that are mapped, too
	for _, p := range list {
		all, shmem := p.readMemory()
		memory, shared = memory+all-shmem, shared+shmem
	}
	return memory+max(shared, files) > limit
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

// atOnce schedules this thread before all that have a priority, if it may (root): beside
// thousands of sessions that compute, the highest priority is a few percent of a core. What it
// starts does not inherit that.
func atOnce() {
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
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
