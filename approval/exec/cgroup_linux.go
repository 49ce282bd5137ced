package exec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Names of cgroups (version 2), below the one that the daemon was started in:
//
//	permesso-gate             the daemon and its supervisor, if the kernel keeps limits: a
//	                          cgroup with processes cannot have children with controllers
//	permesso-runs-N           the runs of one supervisor, which holds a lock (flock) on it
//	permesso-runs-N/MARK      one run
const (
	gateGroup  = "permesso-gate"
	runsPrefix = "permesso-runs-"
)

// controllers keep the limits of a run.
var controllers = []string{"memory", "pids"}

// cgroups are the cgroups of a supervisor's runs. Without a folder there are none.
type cgroups struct {
	runs   string   // the folder of the runs, "": none
	lock   *os.File // of runs
	kernel bool     // the kernel keeps the limits
	join   bool     // commands must move themselves: this process may not start them in a cgroup
}

// newCgroups finds out what this host permits. The error says why the kernel does not
// keep the limits.
func newCgroups() (*cgroups, error) {
	c := &cgroups{}
	base, err := ownCgroup()
	if err != nil {
		return c, err
	}
	if filepath.Base(base) == gateGroup { // moved there by an earlier supervisor
		base = filepath.Dir(base)
	}
	abandoned, _ := filepath.Glob(filepath.Join(base, runsPrefix+"*"))
	for _, dir := range abandoned {
		killAbandoned(dir)
	}
	if err := c.makeRuns(base); err != nil {
		return c, err
	}
	if err := c.probe(); err != nil {
		c.remove()
		return c, err
	}
	if err := enableControllers(base); err != nil {
		return c, err
	}
	if err := enableControllers(c.runs); err != nil {
		return c, err
	}
	c.kernel = true
	return c, nil
}

// remove ends everything in the folder and removes it.
func (c *cgroups) remove() {
	if c.runs == "" {
		return
	}
	killCgroup(c.runs)
	awaitEmpty(c.runs)
	_ = removeCgroup(c.runs)
	_ = c.lock.Close()
	c.runs = ""
}

// ownCgroup is the folder of this process's cgroup.
func ownCgroup() (string, error) {
	const none = "the control groups of this host (cgroup v2) are not mounted here"
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	own := cgroupIn(string(b))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line) // 36 35 98:0 ROOT POINT options - TYPE …
		kind := slices.Index(fields, "-") + 1
		if kind < 6 || kind >= len(fields) || fields[kind] != "cgroup2" || own == "" {
			continue
		}
		below, err := filepath.Rel(fields[3], own)
		if err == nil && filepath.IsLocal(below) {
			return filepath.Join(fields[4], below), nil
		}
	}
	return "", errors.New(none)
}

// cgroupIn is the path in the text of a /proc/PID/cgroup, or "".
func cgroupIn(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(path, "\n")
		}
	}
	return ""
}

// makeRuns makes the folder of the runs and locks it.
func (c *cgroups) makeRuns(base string) error {
	for {
		dir, err := os.MkdirTemp(base, runsPrefix)
		if err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another supervisor took it for abandoned
		}
		if err != nil {
			return err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if _, err := os.Lstat(dir); err == nil {
				c.runs, c.lock = dir, f
				return nil
			}
		}
		_ = f.Close()
	}
}

// killAbandoned kills what is left of the runs of a supervisor that is gone. The folder
// of one that lives is locked.
func killAbandoned(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	killCgroup(dir)
	awaitEmpty(dir)
	_ = removeCgroup(dir)
}

// probe finds out how a process can be started in a cgroup.
func (c *cgroups) probe() error {
	dir, err := c.make("probe", spec{})
	if err != nil {
		return err
	}
	defer func() { _ = removeCgroup(dir) }()
	s := spec{path: filepath.Join(dir, "none"), argv: []string{"none"}, env: []string{}, dir: "/"}
	if _, _, err = startIn(s, []int{0, 1, 2}, dir, false); errors.Is(err, unix.ENOENT) { // what execve says
		return nil
	}
	c.join = true
	pid, said, err := startIn(s, []int{0, 1, 2}, dir, true)
	if err != nil {
		return err
	}
	defer said.Close()
	text, _ := io.ReadAll(said)
	_, _ = unix.Wait4(pid, nil, 0, nil)
	if string(text) != unix.ENOENT.Error() {
		return fmt.Errorf("start a process in the control group %s: %s", dir, text)
	}
	return nil
}

// startIn starts a command in its own session: with only its own group it could move into
// another run's group, where kill would miss it. A command that joins its cgroup itself
// says by the returned file why it was not started; at the file's end it was.
//
// Kernels before 5.7 cannot start a process in a cgroup, and a seccomp filter may refuse
// it, as that of systemd's RestrictNamespaces= does.
func startIn(s spec, fds []int, dir string, join bool) (int, *os.File, error) {
	attr := &syscall.ProcAttr{Dir: s.dir, Env: s.env, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	for _, fd := range fds {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	switch {
	case dir == "":
	case join:
		said, child, err := os.Pipe()
		if err != nil {
			return 0, nil, err
		}
		defer child.Close()
		attr.Files = append(attr.Files, child.Fd())
		pid, err := syscall.ForkExec("/proc/self/exe", append([]string{"permesso-supervisor", joinArg, dir, s.path}, s.argv...), attr)
		if err != nil {
			_ = said.Close()
		}
		return pid, said, err
	default:
		group, err := os.Open(dir)
		if err != nil {
			return 0, nil, err
		}
		defer group.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(group.Fd())
	}
	pid, err := syscall.ForkExec(s.path, s.argv, attr)
	return pid, nil, err
}

// joinArg as the first argument makes the binary move into the cgroup of the second and
// execute the others.
const joinArg = "__permesso-join"

func joinIfAsked() {
	if len(os.Args) < 5 || os.Args[1] != joinArg {
		return
	}
	unix.CloseOnExec(joinFD)
	err := writeCgroup(os.Args[2], "cgroup.procs", "0")
	if err == nil {
		err = syscall.Exec(os.Args[3], os.Args[4:], os.Environ())
	}
	_, _ = unix.Write(joinFD, []byte(err.Error()))
	os.Exit(2)
}

// joinFD is the descriptor for the error.
const joinFD = 3

// enableControllers lets the children of a cgroup have limits.
func enableControllers(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, name := range controllers {
		if !slices.Contains(strings.Fields(string(available)), name) {
			return fmt.Errorf("the control group %s has no %s controller", dir, name)
		}
	}
	enable := func() error {
		return writeCgroup(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +"))
	}
	if err = enable(); !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := moveToGate(dir); err != nil {
		return err
	}
	return enable()
}

// moveToGate moves the daemon and this process into a child of dir. Other processes stay
// where they are: dir is not the daemon's alone.
func moveToGate(dir string) error {
	ours := []int{os.Getppid(), os.Getpid()}
	inside, err := pidsIn(dir, "cgroup.procs")
	if err != nil {
		return err
	}
	for _, pid := range inside {
		if !slices.Contains(ours, pid) {
			return fmt.Errorf("the control group %s is not the daemon's alone: it has process %d, too", dir, pid)
		}
	}
	gate := filepath.Join(dir, gateGroup)
	if err := os.Mkdir(gate, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, pid := range ours {
		if err := writeCgroup(gate, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// make makes the cgroup of a run, with its limits if the kernel keeps them.
func (c *cgroups) make(name string, s spec) (string, error) {
	dir := filepath.Join(c.runs, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	var errs []error
	limit := func(file, value string) { errs = append(errs, writeCgroup(dir, file, value)) }
	if c.kernel && s.memory > 0 {
		limit("memory.max", strconv.FormatInt(s.memory, 10))
		limit("memory.oom.group", "1")
		if err := writeCgroup(dir, "memory.swap.max", "0"); !errors.Is(err, fs.ErrNotExist) { // a kernel without swap
			errs = append(errs, err)
		}
	}
	if c.kernel && s.tasks > 0 {
		limit("pids.max", strconv.Itoa(s.tasks))
	}
	if err := errors.Join(errs...); err != nil {
		_ = removeCgroup(dir)
		return "", err
	}
	return dir, nil
}

// enforced is the limit that the kernel has enforced on a cgroup, or "".
func enforced(dir string) string {
	for _, e := range []struct{ file, event, limit string }{
		{"memory.events", "oom_kill", overMemory}, {"pids.events", "max", overTasks},
	} {
		if cgroupEvent(dir, e.file, e.event) {
			return e.limit
		}
	}
	return ""
}

// populated says whether a process is in a cgroup or below it.
func populated(dir string) bool { return cgroupEvent(dir, "cgroup.events", "populated") }

// cgroupEvent says whether a counter in a file of a cgroup is above zero.
func cgroupEvent(dir, file, event string) bool {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(b))
	i := slices.Index(fields, event)
	return i >= 0 && i+1 < len(fields) && fields[i+1] != "0"
}

// killCgroup kills all processes in a cgroup and below it.
func killCgroup(dir string) {
	if err := writeCgroup(dir, killFile, "1"); errors.Is(err, fs.ErrNotExist) && populated(dir) { // before Linux 5.14
		killAll(func() []int { return processesIn(dir) })
	}
}

// killFile is a variable only for a test.
var killFile = "cgroup.kill"

// awaitEmpty returns when the processes of a cgroup that was killed are dead, or after
// killGrace.
func awaitEmpty(dir string) {
	f, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return
	}
	defer f.Close()
	for end := time.Now().Add(killGrace); time.Now().Before(end); {
		// The file signals a change since it was read last.
		_, _ = f.ReadAt(make([]byte, 256), 0)
		if !populated(dir) {
			return
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}, 1000)
	}
}

// removeCgroup removes a cgroup without processes, and those below it.
func removeCgroup(dir string) error {
	below, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range below {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return unix.Rmdir(dir)
}

// processesIn lists the processes in a cgroup and below it.
func processesIn(dir string) []int {
	var list []int
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			pids, _ := pidsIn(path, "cgroup.procs")
			list = append(list, pids...)
		}
		return nil // what is gone has no processes
	})
	return list
}

func pidsIn(dir, file string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	return numbers(b), err
}

func numbers(b []byte) []int {
	var list []int
	for field := range bytes.FieldsSeq(b) {
		if n, err := strconv.Atoi(string(field)); err == nil && n > 0 {
			list = append(list, n)
		}
	}
	return list
}

// writeCgroup writes to a file of a cgroup, which exists.
func writeCgroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
