// Package sandbox is the sandbox of an agent: its mounts, and bubblewrap to run it.
package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/permesso-dev/permesso/approval/exec"
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
	Mounts MountList
}

// Find checks whether bubblewrap is installed and works: some kernels and
// containers forbid its namespaces.
func Find(ctx context.Context, bin, dir string, mounts MountList) Sandbox {
	s := Sandbox{Bin: bin, dir: dir, Mounts: mounts}
	path, err := osexec.LookPath("bwrap")
	if err != nil {
		s.Why = "bubblewrap is not installed (apt-get install bubblewrap)"
		return s
	}
	args := append(BwrapSystem(), "true")
	if out, err := osexec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		why, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		s.Why = "bubblewrap fails on this host: " + why
		return s
	}
	s.Bwrap = path
	return s
}

// BwrapSystem returns the arguments of a minimal system: the host's programs
// read-only, an empty /tmp, new namespaces, no network, an empty environment.
func BwrapSystem() []string {
	args := []string{"--ro-bind", "/usr", "/usr"}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		if to, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", to, dir)
		} else if _, err := os.Stat(dir); err == nil {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	return append(args, "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev",
		"--unshare-all", "--uid", "1000", "--gid", "1000",
		"--clearenv", "--setenv", "PATH", AgentBin+":/usr/bin:/bin", "--chdir", "/tmp",
		"--new-session", "--die-with-parent")
}

// Run runs a shell script as the agent, until it ends or ctx does. No process of the
// agent outlives Run or this program: bubblewrap's --die-with-parent does nothing
// before bubblewrap has set it, so the agent runs under a supervisor, as a daemon's
// commands do.
func (s Sandbox) Run(ctx context.Context, out io.Writer, script string) error {
	p := exec.Program{Dir: s.dir, Stdout: out, Stderr: out}
	script = "exec 2>&1\n" + script // one pipe keeps the order of the lines
	if s.Bwrap != "" {
		p.Argv = append(append([]string{s.Bwrap}, BwrapSystem()...), s.Mounts.Bwrap()...)
		p.Argv = append(p.Argv, "--ro-bind", s.Bin, AgentBin+"/permesso", "/bin/sh", "-c", script)
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
