// Package sandbox is the sandbox of an agent: its mounts, and bubblewrap to run it.
package sandbox

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

// AgentBin is the program's folder in the sandbox.
const AgentBin = "/permesso/bin"

// Sandbox runs a demo agent in bubblewrap or, without bubblewrap, as an
// unrestricted process.
type Sandbox struct {
	Bwrap  string // "" if unusable
	Why    string // why it is unusable
	Bin    string // the permesso program on the host
	dir    string // for temporary files
	layout ipc.Layout
	Mounts MountList
}

// Find checks whether bubblewrap is installed and works, with the filter in HOME: some
// kernels and containers forbid its namespaces.
func Find(ctx context.Context, bin, dir string, l ipc.Layout, mounts MountList) Sandbox {
	s := Sandbox{Bin: bin, dir: dir, layout: l, Mounts: mounts}
	path, err := osexec.LookPath("bwrap")
	if err != nil {
		s.Why = "bubblewrap is not installed (apt-get install bubblewrap)"
		return s
	}
	argv := s.command(path, append(BwrapSystem(), "true")...)
	if out, err := osexec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		why, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		s.Why = "bubblewrap fails on this host: " + why
		return s
	}
	s.Bwrap = path
	return s
}

// pidsLimit is the most processes of a container. Bubblewrap has no such limit.
const pidsLimit = "512"

// BwrapSystem returns the arguments of bubblewrap for a sandbox with nothing of the host but
// its programs, read-only: own namespaces without a network, no capabilities, an empty
// /tmp, an empty environment.
//
// A user namespace is not among them: every user but root gets one from bubblewrap anyway,
// and in one root could not reach the folders of a daemon with a user of its own.
//
// The agent is PID 1, because bubblewrap's own init would show it the environment of the
// user that started bubblewrap, in /proc/1/environ. /proc/sys is read-only, because an
// agent started by root could otherwise write the kernel's settings without any
// capability: bubblewrap covers only what root's access(2) finds writable.
func BwrapSystem() []string {
	args := []string{
		"--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
		"--cap-drop", "ALL", "--new-session", "--die-with-parent", "--as-pid-1",
		"--clearenv", "--setenv", "PATH", AgentBin + ":/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME", "/tmp",
		"--ro-bind", "/usr", "/usr",
	}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives"} {
		args = append(args, "--ro-bind-try", dir, dir)
	}
	args = append(args, "--tmpfs", "/tmp", "--proc", "/proc")
	for _, dir := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"} {
		args = append(args, "--ro-bind-try", dir, dir)
	}
	return append(args, "--dev", "/dev", "--chdir", "/tmp")
}

// Run runs a shell script as the agent, until it ends or ctx does. No process of the
// agent outlives Run or this program: bubblewrap's --die-with-parent does nothing
// before bubblewrap has set it, so the agent runs under a supervisor, as a daemon's
// commands do.
func (s Sandbox) Run(ctx context.Context, out io.Writer, script string) error {
	p := exec.Program{Dir: s.dir, Stdout: out, Stderr: out}
	script = "exec 2>&1\n" + script // one pipe keeps the order of the lines
	if s.Bwrap != "" {
		p.Argv = s.Command(append(s.Mounts.Bwrap(), "--ro-bind", s.Bin, AgentBin+"/permesso", "/bin/sh", "-c", script)...)
	} else {
		path, err := s.unsandboxedPath()
		if err != nil {
			return err
		}
		p.Argv, p.Env = []string{"/bin/sh", "-c", script}, []string{"PATH=" + path}
		names := map[string]string{client.DefaultRequests: "PERMESSO_REQUESTS", client.DefaultResponses: "PERMESSO_RESPONSES"}
		for _, m := range s.Mounts {
			p.Env = append(p.Env, names[m.Target]+"="+m.Source)
		}
	}
	supervisor := &exec.Supervisor{}
	return errors.Join(supervisor.Run(ctx, p), supervisor.Close())
}

// OnOneThread keeps the thread that starts a child until the child ends: the
// parent-death signal is tied to that thread.
func OnOneThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- f()
	}()
	return <-done
}

// unsandboxedPath returns a PATH on which the program has the name permesso.
func (s Sandbox) unsandboxedPath() (string, error) {
	dir := filepath.Join(s.dir, "bin")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir + ":/usr/bin:/bin", os.Symlink(s.Bin, filepath.Join(dir, "permesso"))
}

// Mount is one host folder in a container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// MountList is the mounts of one sandbox.
type MountList []Mount

// Mounts is the only definition of what a container may see.
func Mounts(l ipc.Layout, ws string) MountList {
	return MountList{
		{Source: l.Requests(ws), Target: client.DefaultRequests},
		{Source: l.Responses(ws), Target: client.DefaultResponses, ReadOnly: true},
	}
}

// Form formats a sandbox with the mounts for a program, as one line that a shell splits;
// compose gets lines of YAML. "" is for people, and only the mounts. The line for bwrap
// needs the filter in HOME: see WriteFilter.
func (list MountList) Form(name string, l ipc.Layout) (string, error) {
	switch name {
	case "bwrap":
		return bwrapLine(l, list.Bwrap()), nil
	case "docker":
		// An empty --pid is Docker's only word for a PID namespace of its own, and overrides an
		// earlier one. Docker's --mount has no nosuid, and no-new-privileges does the same.
		return list.run([]string{"--pid="}, "readonly")
	case "podman":
		return list.run([]string{"--pid=private"}, "readonly", "nosuid", "nodev", "noexec")
	case "compose":
		return list.compose(), nil
	}
	var lines []string
	for _, m := range list {
		access := "read-write"
		if m.ReadOnly {
			access = "read-only "
		}
		lines = append(lines, access+"  "+m.Source+"  ->  "+m.Target)
	}
	return strings.Join(lines, "\n"), nil
}

// Bwrap returns the arguments of bubblewrap for a whole sandbox, but for its filter.
func (list MountList) Bwrap() []string { return append(BwrapSystem(), list.Binds()...) }

// Binds returns the arguments of bubblewrap for the mounts alone.
func (list MountList) Binds() (args []string) {
	for _, m := range list {
		how := "--bind"
		if m.ReadOnly {
			how = "--ro-bind"
		}
		args = append(args, how, m.Source, m.Target)
	}
	return args
}

// run returns the flags of docker run or podman run.
func (list MountList) run(pid []string, readonly string, others ...string) (string, error) {
	flags, err := list.Flags(readonly, others...)
	args := append(slices.Clone(pid), "--ipc=private", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--pids-limit="+pidsLimit)
	return ShellWords(append(args, flags...)), err
}

// Flags returns --mount flags. Their value is CSV, because a path may contain
// --volume's separator. readonly is added to read-only mounts, others to all.
func (list MountList) Flags(readonly string, others ...string) ([]string, error) {
	var args []string
	for _, m := range list {
		fields := append([]string{"type=bind", "src=" + m.Source, "dst=" + m.Target}, others...)
		if m.ReadOnly {
			fields = append(fields, readonly)
		}
		var b strings.Builder
		w := csv.NewWriter(&b)
		if err := w.Write(fields); err != nil {
			return nil, err
		}
		w.Flush()
		args = append(args, "--mount", strings.TrimSuffix(b.String(), "\n"))
	}
	return args, nil
}

// compose quotes as Go does, which YAML reads the same. Compose expands
// variables in every value, hence the second dollar sign.
func (list MountList) compose() string {
	var b strings.Builder
	b.WriteString("# The container has a PID namespace of its own as long as the service has no key \"pid\".\n" +
		"ipc: private\ncap_drop: [ALL]\nsecurity_opt: [\"no-new-privileges:true\"]\npids_limit: " + pidsLimit + "\nvolumes:")
	for _, m := range list {
		source := strconv.Quote(strings.ReplaceAll(m.Source, "$", "$$"))
		fmt.Fprintf(&b, "\n  - type: bind\n    source: %s\n    target: %s", source, m.Target)
		if m.ReadOnly {
			b.WriteString("\n    read_only: true")
		}
		// Otherwise compose would create a missing folder, owned by root.
		b.WriteString("\n    bind:\n      create_host_path: false")
	}
	return b.String()
}

// ShellWords quotes words for a shell.
func ShellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = ShellWord(w)
	}
	return strings.Join(quoted, " ")
}

// ShellWord quotes a word if a shell needs it.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-=,:+@%", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
