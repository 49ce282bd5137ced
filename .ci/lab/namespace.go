package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// unshare begins a command line in a mount namespace of its own. Who is not root becomes it in a user namespace.
func unshare() []string {
	argv := []string{"unshare", "--mount", "--propagation", "private"}
	if os.Geteuid() != 0 {
		argv = append(argv, "--map-root-user")
	}
	return argv
}

// noNamespaces is why no namespace of our own can be had; nil: it can.
func noNamespaces() error {
	argv := append(unshare(), "sh", "-c", "mount -t tmpfs none /mnt")
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, lastLine(out))
	}
	return nil
}

// namespace is a mount namespace that several commands share. A process holds it, and ends with the lab.
type namespace struct {
	holder *exec.Cmd
	in     io.Closer
}

// newNamespace makes one with the mounts of a shell script.
func newNamespace(mounts string) (*namespace, error) {
	argv := append(unshare(), "sh", "-c", "set -e\n"+mounts+"\necho ready; read -r end")
	cmd := exec.Command(argv[0], argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n := &namespace{cmd, in}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		n.close()
		return nil, fmt.Errorf("no namespace with these mounts: %w", cmp.Or(err, errors.New(line)))
	}
	return n, nil
}

// enter is a command line in the namespace, in a folder. A process that enters one begins at its root.
func (n *namespace) enter(dir string, argv []string) []string {
	if n == nil {
		return argv
	}
	pid := "/proc/" + strconv.Itoa(n.holder.Process.Pid) + "/ns/"
	head := []string{"nsenter", "--mount=" + pid + "mnt"}
	if os.Geteuid() != 0 {
		head = append(head, "--user="+pid+"user", "--preserve-credentials")
	}
	return append(append(head, "sh", "-c", `cd "$0" && exec "$@"`, dir), argv...)
}

func (n *namespace) close() {
	if n == nil {
		return
	}
	_ = n.in.Close()
	_ = n.holder.Wait()
}

// etc is a script that puts a copy of /etc over the machine's, without settings of the agents.
func etc(dir string) string {
	copied := dir + "/etc"
	return "mkdir -p " + copied + "; cp -a /etc/. " + copied + " 2>/dev/null || true\n" +
		"rm -rf " + copied + "/claude-code " + copied + "/codex " + copied + "/gemini-cli\nmount --bind " + copied + " /etc"
}
