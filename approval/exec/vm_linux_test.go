package exec

import (
	"bytes"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inVM is set in the machine that TestKernelKeepsLimits starts.
const inVM = "PERMESSO_TEST_VM"

// vmInit is the first program of the machine. The tests run in a cgroup of their own, as a
// service with Delegate= does.
const vmInit = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin ` + inVM + `=1
mkdir -p /proc /sys /dev /tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir /sys/fs/cgroup/service
echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
sh -c 'echo $$ >/sys/fs/cgroup/service/cgroup.procs; exec /exec.test -test.v -test.run "^TestKernelKeepsLimits$"'
echo "status: $?"
poweroff -f
`

// The same bombs where the kernel keeps the limits: a virtual machine, because the
// cgroups of this host may have no controllers, or not be ours. .ci/deps gets what it needs.
func TestKernelKeepsLimits(t *testing.T) {
	if os.Getenv(inVM) != "" {
		testKernelKeepsLimits(t)
		return
	}
	if os.Getenv("PERMESSO_SOAK") == "" {
		t.Skip("a virtual machine takes minutes: make soak")
	}
	dir := t.TempDir()
	cmd := osexec.Command("go", "test", "-c", "-o", filepath.Join(dir, "exec.test"), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	files := map[string]string{"init": "", "exec.test": filepath.Join(dir, "exec.test")}
	busybox, err := osexec.LookPath("busybox")
	require.NoError(t, err)
	files["bin/busybox"] = busybox
	image := filepath.Join(dir, "initramfs")
	require.NoError(t, os.WriteFile(image, initramfs(t, files), 0o600))
	kernel, err := filepath.Glob("../../.cache/vm/vmlinuz*")
	require.NoError(t, err)
	require.Len(t, kernel, 1, ".ci/deps kernel")

	vm := osexec.Command("qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none", "-accel", "tcg",
		"-cpu", "max", "-m", "768", "-smp", "2", "-kernel", kernel[0], "-initrd", image, "-append", "console=ttyS0 quiet panic=-1", "-serial", "stdio")
	var said bytes.Buffer
	vm.Stdout, vm.Stderr = &said, &said
	start := time.Now()
	require.NoError(t, vm.Run(), "%s", said.String())
	t.Logf("%s\n%s", time.Since(start), said.String())
	require.Contains(t, said.String(), "--- PASS: TestKernelKeepsLimits")
	require.Contains(t, said.String(), "status: 0")
}

// testKernelKeepsLimits runs in the machine, first as root.
func testKernelKeepsLimits(t *testing.T) {
	r := newRunner(t)
	require.NoError(t, r.Supervisor.Start())
	how, why := r.Supervisor.Limits()
	require.Equal(t, LimitsKernel, how, why)
	own, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	base, moved := strings.CutSuffix(cgroupIn(string(own)), "/"+gateGroup)
	require.True(t, moved, "the daemon is in %s", own)
	require.Regexp(t, `^0::`+base+`/permesso-runs-\d+/[0-9a-f]{32}\n$`, output(t, r, command("/bin/cat", "/proc/self/cgroup"), `{}`))
	if os.Getuid() == 0 {
		t.Run("started in the cgroup", func(t *testing.T) { testLimits(t) })
		t.Run("as another user", testDelegated)
	}
	t.Run("joining the cgroup", func(t *testing.T) { testLimits(t, withoutCloneIn) })
	left, err := filepath.Glob("/sys/fs/cgroup" + base + "/" + runsPrefix + "*")
	require.NoError(t, err)
	require.Len(t, left, 1, "of the runner that is open")
}

// testDelegated repeats the test as a user to whom a cgroup was delegated, as Delegate= and
// User= do.
func testDelegated(t *testing.T) {
	const dir, uid = "/sys/fs/cgroup/delegated", 1000
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		require.NoError(t, os.Chown(filepath.Join(dir, file), uid, uid))
	}
	require.NoError(t, os.Chmod("/tmp", 0o1777))
	group, err := os.Open(dir)
	require.NoError(t, err)
	defer group.Close()
	cmd := osexec.Command("/exec.test", "-test.v", "-test.run", "^TestKernelKeepsLimits$")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uid, Gid: uid}, UseCgroupFD: true, CgroupFD: int(group.Fd()),
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
}

// initramfs is a cpio archive ("newc", see the kernel's buffer-format) of executable files.
func initramfs(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	add := func(name string, mode int, content []byte) {
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
			b.Len()+1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
		pad := func() { b.WriteString(strings.Repeat("\x00", -b.Len()&3)) }
		pad()
		b.Write(content)
		pad()
	}
	add("bin", 0o040755, nil)
	add("dev", 0o040755, nil)
	for name, from := range files {
		content := []byte(vmInit)
		if from != "" {
			var err error
			content, err = os.ReadFile(from)
			require.NoError(t, err)
		}
		add(name, 0o100755, content)
	}
	add("TRAILER!!!", 0, nil)
	return b.Bytes()
}
