package main

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
	"github.com/permesso-dev/permesso/ipc/client"
)

// syscallNumbers are the numbers for this architecture, from x/sys.
func syscallNumbers(t *testing.T) map[string]uint32 {
	t.Helper()
	dir := strings.TrimSpace(runTool(t, nil, "go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix"))
	text, err := os.ReadFile(filepath.Join(dir, "zsysnum_linux_"+runtime.GOARCH+".go"))
	require.NoError(t, err)
	numbers := map[string]uint32{}
	for _, m := range regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		numbers[strings.ToLower(m[1])] = uint32(n)
	}
	require.Greater(t, len(numbers), 300)
	return numbers
}

// syscallSet expands a word of SystemCallFilter= into system calls.
func syscallSet(t *testing.T, word string) []string {
	t.Helper()
	if !strings.HasPrefix(word, "@") {
		return []string{word}
	}
	out, err := analyze(t, "syscall-filter", word)
	require.NoError(t, err, out)
	var names []string
	for line := range strings.Lines(out) {
		name := strings.TrimSpace(line)
		if name != "" && name != word && !strings.HasPrefix(name, "#") {
			names = append(names, syscallSet(t, name)...)
		}
	}
	return names
}

// allowedCalls evaluates the unit's SystemCallFilter= lines. The first is an allow
// list.
func allowedCalls(t *testing.T, unit string) map[string]bool {
	t.Helper()
	allowed := map[string]bool{}
	for i, word := range append([]string{"@default"}, syscallWords(unit)...) {
		name, forbidden := strings.CutPrefix(word, "~")
		require.False(t, forbidden && i < 2)
		for _, call := range syscallSet(t, name) {
			allowed[call] = !forbidden
		}
	}
	maps.DeleteFunc(allowed, func(_ string, ok bool) bool { return !ok })
	return allowed
}

func syscallWords(unit string) (words []string) {
	for _, m := range regexp.MustCompile(`(?m)^SystemCallFilter=(~?)(.+)$`).FindAllStringSubmatch(unit, -1) {
		for word := range strings.FieldsSeq(m[2]) {
			words = append(words, m[1]+word)
		}
	}
	return words
}

// filter is the seccomp program that systemd would load. EPERM is returned for
// calls that are not allowed, sockets of other families, new namespaces, and
// writable executable memory.
func filter(t *testing.T, allowed map[string]bool) []byte {
	t.Helper()
	const (
		load, equal, bits, give = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		nr, arg0, arg2          = 0, 16, 32
		allow, refuse           = 0x7fff0000, 0x00050000 | uint32(unix.EPERM)
	)
	var program bytes.Buffer
	add := func(code uint16, jt, jf uint8, k uint32) {
		require.NoError(t, binary.Write(&program, binary.NativeEndian, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k}))
	}
	numbers := syscallNumbers(t)
	// RestrictNamespaces: clone() with one of the flags, and always unshare(), setns() and clone3(). After
	// ENOSYS from clone3() a C library calls clone().
	add(load, 0, 0, nr)
	for name, errno := range map[string]unix.Errno{"unshare": unix.EPERM, "setns": unix.EPERM, "clone3": unix.ENOSYS} {
		add(equal, 0, 1, numbers[name])
		add(give, 0, 0, 0x00050000|uint32(errno))
	}
	add(equal, 0, 4, numbers["clone"])
	add(load, 0, 0, arg0)
	add(bits, 0, 0, unix.CLONE_NEWNS|unix.CLONE_NEWUSER|unix.CLONE_NEWPID|unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS|unix.CLONE_NEWCGROUP)
	add(equal, 1, 0, 0)
	add(give, 0, 0, refuse)
	// RestrictAddressFamilies.
	add(load, 0, 0, nr)
	add(equal, 0, 5, numbers["socket"])
	add(load, 0, 0, arg0)
	add(equal, 3, 0, unix.AF_UNIX)
	add(equal, 2, 0, unix.AF_INET)
	add(equal, 1, 0, unix.AF_INET6)
	add(give, 0, 0, refuse)
	// MemoryDenyWriteExecute.
	for _, name := range []string{"mmap", "mprotect"} {
		add(load, 0, 0, nr)
		add(equal, 0, 4, numbers[name])
		add(load, 0, 0, arg2)
		add(bits, 0, 0, unix.PROT_WRITE|unix.PROT_EXEC)
		add(equal, 0, 1, unix.PROT_WRITE|unix.PROT_EXEC)
		add(give, 0, 0, refuse)
	}
	add(load, 0, 0, nr)
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if n, ok := numbers[name]; ok { // other architectures have the others
			add(equal, 0, 1, n)
			add(give, 0, 0, allow)
		}
	}
	// bubblewrap loads the filter and then calls execve.
	require.True(t, allowed["execve"])
	add(give, 0, 0, refuse)
	return program.Bytes()
}

// confined runs a command with the restrictions of the unit that bubblewrap supports.
func (h *rig) confined(t *testing.T, bpf []byte, argv ...string) *osexec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "filter.bpf")
	require.NoError(t, os.WriteFile(file, bpf, 0o600))
	f, err := os.Open(file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	box := []string{
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", // ProtectSystem, PrivateDevices, ProtectProc
		"--tmpfs", "/home", "--tmpfs", "/root", "--tmpfs", "/tmp", // ProtectHome, PrivateTmp
		"--bind", h.layout.Home, h.layout.Home, "--ro-bind", h.config, h.config, "--ro-bind", program(t, true), "/tmp/permesso",
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent",
		"--cap-drop", "ALL", "--uid", "990", "--gid", "990", "--seccomp", "3", "--clearenv", // CapabilityBoundingSet, NoNewPrivileges
	}
	cmd := osexec.Command("/bin/sh", append([]string{"-c", `umask 0077; exec bwrap "$@"`, "sh"}, append(box, argv...)...)...)
	cmd.ExtraFiles, cmd.WaitDelay = []*os.File{f}, time.Second
	return cmd
}

// No systemd runs here, so the test rebuilds its sandbox: the unit's system calls, a
// file system that is read-only except for the state, no capabilities. The daemon,
// its supervisor and a handler must work in it.
func TestGateWorksInsideTheUnit(t *testing.T) {
	t.Parallel()
	// --die-with-parent kills the child when the thread that started it exits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	allowed := allowedCalls(t, setup.SystemUnit)
	for call, why := range map[string]string{
		"openat2": "reading untrusted folders", "renameat2": "creating files exclusively", "inotify_add_watch": "watching", "flock": "one daemon",
		"syncfs": "start", "fsync": "durability", "prctl": "the subreaper", "setsid": "a handler's group", "kill": "stopping a handler",
		"waitid": "stopping a handler", "pidfd_send_signal": "stopping a handler", "sendmsg": "supervisor and sd_notify", "getsockopt": "the UID of the socket's peer",
	} {
		require.True(t, allowed[call], "%s: %s", call, why)
	}
	for _, call := range []string{"mount", "ptrace", "bpf", "setuid", "reboot", "init_module"} {
		require.False(t, allowed[call], call)
	}
	bpf := filter(t, allowed)

	h := newRig(t, "default", `
[workspaces.default]
[tools.work]
trust = false
handler = { kind = "command", argv = ["/bin/sh", "-c", "echo $(date) > file; (sleep 100 &) ; cat file; touch /etc/x || echo no"] }
[[rules]]
match = { tool = "work" }
outcome = "allow"
`)
	require.NoError(t, os.Mkdir(h.layout.Home, 0o700))
	for _, row := range []struct{ why, script string }{
		{"a namespace", "unshare --user true"},
		{"a mount", "mount -t tmpfs tmpfs /tmp"},
		{"a file of the system", "touch /etc/permesso-was-here"},
		{"a file outside the state folder", "touch /var/lib/permesso-was-here"},
	} {
		out, err := h.confined(t, bpf, "/bin/sh", "-c", row.script).CombinedOutput()
		require.Error(t, err, "%s: %s", row.why, out)
	}

	log := filepath.Join(h.dir, "log")
	out, err := os.Create(log)
	require.NoError(t, err)
	gate := h.confined(t, bpf, "/tmp/permesso", "serve", "--config", h.config, "--home", h.layout.Home)
	gate.Stderr = out
	require.NoError(t, gate.Start())
	defer func() { _ = gate.Process.Kill(); _ = gate.Wait() }()
	awaitFile(t, h.agent.Responses)
	id := client.NewID()
	require.NoError(t, h.agent.Submit(id, []byte(`{"request_id":"`+id+`","tool_name":"work"}`)))
	r := h.response(id)
	said, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, approval.StatusAutoApproved, r.Status, "%s", said)
	require.Contains(t, string(r.Result), "no", "a handler has the same restrictions: %s", r.Result)
	require.NotContains(t, string(said), `"level":"error"`)
	info, err := os.Stat(h.agent.Responses + "/" + id + ".json")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "independent of UMask=")
}
