// Package sandbox is the sandbox of an agent: its mounts, and bubblewrap to run it.
package sandbox

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

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
	path, err := exec.LookPath("bwrap")
	if err != nil {
		s.Why = "bubblewrap is not installed (apt-get install bubblewrap)"
		return s
	}
	args := append(BwrapSystem(), "true")
	if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
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

// Run runs a shell script as the agent, until it ends or ctx does.
func (s Sandbox) Run(ctx context.Context, out io.Writer, script string) error {
	cmd := s.bwrapCommand(ctx, script)
	if s.Bwrap == "" {
		path, err := s.unsandboxedPath()
		if err != nil {
			return err
		}
		cmd = s.plainCommand(ctx, path, script)
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, 5*time.Second
	// Kill the whole group: the script's children, and a bubblewrap that has
	// forked but not yet applied --die-with-parent.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return OnOneThread(cmd.Run)
}

func (s Sandbox) bwrapCommand(ctx context.Context, script string) *exec.Cmd {
	args := append(BwrapSystem(), s.Mounts.Bwrap()...)
	args = append(args, "--ro-bind", s.Bin, AgentBin+"/permesso", "/bin/sh", "-c", script)
	return exec.CommandContext(ctx, s.Bwrap, args...)
}

func (s Sandbox) plainCommand(ctx context.Context, path, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	names := map[string]string{client.DefaultRequests: "PERMESSO_REQUESTS", client.DefaultResponses: "PERMESSO_RESPONSES"}
	cmd.Env = []string{"PATH=" + path}
	for _, m := range s.Mounts {
		cmd.Env = append(cmd.Env, names[m.Target]+"="+m.Source)
	}
	return cmd
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
