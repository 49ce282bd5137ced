package main

import (
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/doctor"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc/client"
)

func containsText(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, text) })
}

// Sandboxes with too many mounts, and what the probe must report for each. For
// the correct sandbox, below, it must report nothing.
func TestProbeFindsWrongMounts(t *testing.T) {
	t.Parallel()
	c, gate := newSandboxRig(t)
	gate.stop()
	w := &doctorRig{c.rig}
	l := w.layout
	listen, err := net.Listen("unix", filepath.Join(w.dir, "decide.sock")) // the path of a socket must be short
	require.NoError(t, err)
	defer listen.Close()
	require.NoError(t, os.Link(filepath.Join(w.dir, "decide.sock"), filepath.Join(l.Home, "decide.sock")))
	d := w.doctor(t)
	right := sandbox.Mounts(l, "work")
	with := func(more ...sandbox.Mount) sandbox.MountList { return append(slices.Clone(right), more...) }
	box := sandbox.Find(t.Context(), d.Bin, "", d.Layout, nil)
	require.Empty(t, box.Why)
	for _, row := range []struct {
		why    string
		mounts sandbox.MountList
		want   []string
	}{
		{"responses writable", sandbox.MountList{right[0], {Source: l.Responses("work"), Target: client.DefaultResponses}}, []string{
			"may write responses: it could forge them", "may change the mode of the responses", "may overwrite a response",
		}},
		{"pending requests mounted", with(sandbox.Mount{Source: l.Pendings("work"), Target: "/permesso/pending_approvals"}), []string{
			"may write to the pending requests, at /permesso/pending_approvals",
		}},
		{"decisions readable", with(sandbox.Mount{Source: l.Decisions("work"), Target: "/mnt/x", ReadOnly: true}), []string{"may read the decisions, at /mnt/x"}},
		{"the workspace mounted", with(sandbox.Mount{Source: l.Workspace("work"), Target: "/work"}), []string{
			"may write to its workspace folder, at /work", "may write to the pending requests, at /work/pending_approvals", "may write to the decisions",
		}},
		{"HOME mounted at its own path", with(sandbox.Mount{Source: l.Home, Target: l.Home}), []string{
			"may write to the daemon's home, at " + l.Home, "may write to the MAC key", "may write to the signing key", "may write to the audit log",
			"may write to the records", "may write to the receipts", "reaches the socket " + l.Home + "/decide.sock",
		}},
		{"HOME readable", with(sandbox.Mount{Source: l.Home, Target: "/gate", ReadOnly: true}), []string{"may read the MAC key, at /gate/keys/mac.key"}},
		{"a parent folder of HOME", with(sandbox.Mount{Source: filepath.Dir(w.dir), Target: "/above"}), []string{"may write to the keys, at /above/", "may write to the configuration, at /above/"}},
		{"one key file mounted", with(sandbox.Mount{Source: filepath.Join(l.Keys(), "mac.key"), Target: "/secret"}), []string{"may write to the MAC key, at /secret"}},
		{"no responses", sandbox.MountList{right[0]}, []string{"cannot read its responses"}},
		{"requests read-only", sandbox.MountList{{Source: right[0].Source, Target: right[0].Target, ReadOnly: true}, right[1]}, []string{"cannot write requests"}},
		{"another folder as requests", sandbox.MountList{{Source: w.dir, Target: client.DefaultRequests}, right[1]}, []string{"has another folder mounted as its requests"}},
	} {
		for _, user := range d.SandboxUsers("work") {
			t.Run(row.why+"/"+user.Who, func(t *testing.T) {
				box.Mounts = row.mounts
				report, err := d.Probe(t.Context(), box, "work", user)
				require.NoError(t, err)
				breaches := report.Breaches
				for _, want := range row.want {
					require.True(t, containsText(breaches, want), "%q is not in %q", want, breaches)
				}
				require.NotEmpty(t, breaches)
			})
		}
	}
	for _, user := range d.SandboxUsers("work") {
		box.Mounts = right
		report, err := d.Probe(t.Context(), box, "work", user)
		require.NoError(t, err)
		require.Empty(t, report.Breaches, "the correct mounts, after all others")
		require.Empty(t, report.NotTried)
		for _, kind := range []string{"signals", "ptrace", "memory", "limits", "/proc", "the kernel", "the filter", "private files", "responses", "mounts"} {
			require.NotZero(t, report.Tried[kind], kind)
		}
	}
	d = w.doctor(t) // the rows above may have used up the time limit of the old one
	d.Quick = false
	d.MountsOf = func(string) sandbox.MountList { return with(sandbox.Mount{Source: l.Pendings("work"), Target: "/p"}) }
	found := only("mounts", d.Run(t.Context()))
	require.Len(t, found, len(d.SandboxUsers("work")))
	require.Equal(t, doctor.SeverityError, found[0].Severity)
	require.Contains(t, found[0].What, "an agent as "+d.SandboxUsers("work")[0].Who+" in bubblewrap may write to the pending requests, at /p")
}

func TestDoctorWithoutBubblewrap(t *testing.T) {
	d := newDoctorRig(t).doctor(t)
	t.Setenv("PATH", t.TempDir())
	d.Quick = false
	found := only("mounts", d.Run(t.Context()))
	require.Len(t, found, 1)
	require.Equal(t, doctor.SeverityInfo, found[0].Severity)
	require.Contains(t, found[0].What, "bubblewrap is not installed")
	require.Contains(t, found[0].Cure, "apt-get install bubblewrap")
}

// Without a PID namespace the daemon's process can be seen and killed.
func TestProbeFindsProcesses(t *testing.T) {
	c, _ := newSandboxRig(t)
	d := (&doctorRig{c.rig}).doctor(t)
	d.Run(t.Context())
	require.NotZero(t, d.Daemon)
	box := sandbox.Find(t.Context(), d.Bin, "", d.Layout, nil)
	box.Mounts = sandbox.Mounts(d.Layout, "work")
	for who, row := range map[string]struct {
		without, more []string
		want          []string
	}{
		"with the host's processes": {[]string{"--unshare-pid", "--as-pid-1"}, nil, []string{
			"sees the daemon's process", "may kill the daemon's process", "may signal a thread of the daemon", "may signal the daemon through a pidfd", "may limit the daemon",
		}},
		"with all of the host's processes and capabilities": {[]string{"--unshare-pid", "--as-pid-1"}, []string{"--cap-add", "ALL"}, []string{
			"may debug the daemon", "may read the daemon's memory", "may read the daemon's memory through process_vm_readv", "may write the daemon's memory through process_vm_writev",
			"may take a descriptor of the daemon", "may read the daemon's environment", "enters the host's files through the daemon", "enters the daemon's folder",
		}},
		"with bubblewrap's init": {[]string{"--as-pid-1"}, nil, []string{"may read the environment of the user that started it"}},
	} {
		system := slices.DeleteFunc(sandbox.BwrapSystem(), func(s string) bool { return slices.Contains(row.without, s) })
		r, err := d.Probe(t.Context(), box, "work", doctor.SandboxUser{System: append(system, row.more...)})
		require.NoError(t, err)
		if row.more != nil && os.Getuid() != 0 {
			continue // only root has capabilities to keep
		}
		for _, want := range row.want {
			require.True(t, containsText(r.Breaches, want), "%s: %q is not in %q", who, want, r.Breaches)
		}
		require.Empty(t, r.NotTried, who)
	}
	require.True(t, alive(d.Daemon), "the probe sends only signal 0")
	require.False(t, stopped(d.Daemon))
}

// An agent with CAP_SYS_ADMIN over its mounts can remount them for writing.
func TestProbeFindsRemounts(t *testing.T) {
	w := newDoctorRig(t)
	b, err := json.Marshal(map[string]string{"requests": w.layout.Requests("work"), "responses": w.layout.Responses("work")})
	require.NoError(t, err)
	out := w.runUnshared(t, string(b), `mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$0" doctor probe`, w.layout.Responses("work"))
	var report doctor.ProbeReport
	require.NoError(t, json.Unmarshal([]byte(out), &report), out)
	breaches := report.Breaches
	require.True(t, containsText(breaches, "may remount its responses for writing"), "%q", breaches)
	require.True(t, containsText(breaches, "may unmount its responses"), "%q", breaches)
	require.False(t, containsText(breaches, "may write responses"), "only after a remount: %q", breaches)
}

// runUnshared runs a script as root in new user and mount namespaces: $0 is our
// program, $1 and so on are args. The kernel removes its mounts when it exits.
func (w *doctorRig) runUnshared(t *testing.T, stdin, script string, args ...string) string {
	t.Helper()
	flags := "-Urm"
	if os.Getuid() == 0 {
		flags = "-m" // root needs no user namespace, and may mount more
	}
	cmd := osexec.Command("unshare", append([]string{flags, "/bin/sh", "-ec", script, program(t, true)}, args...)...)
	cmd.Stdin, cmd.Env = strings.NewReader(stdin), append(os.Environ(), "PERMESSO_CONFIG="+w.config, "PERMESSO_HOME="+w.layout.Home)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != console.ExitWarnings && code != console.ExitErrors {
		require.NoError(t, err, "%s%s", out, errs.String())
	}
	return string(out)
}

// Disks with problems: each is real, in its own mount namespace.
func TestDoctorChecksRealDisks(t *testing.T) {
	t.Parallel()
	w := newDoctorRig(t)
	const runDoctor = `; exec "$0" doctor --json`
	tmpfs := func(options string) string {
		return `mount -t tmpfs -o ` + options + ` none "$1" && "$0" init >/dev/null`
	}
	type row struct {
		why, script, check string
		severity           doctor.Severity
		says               string
	}
	rows := []row{
		{"a tmpfs", tmpfs("mode=700"), "fsync", doctor.SeverityError, "is a tmpfs"},
		{"a full disk", tmpfs("mode=700,size=8m"), "disk", doctor.SeverityError, "KiB left"},
		{"few inodes", tmpfs("mode=700,nr_inodes=500"), "disk", doctor.SeverityError, "inodes left"},
		{"an almost full disk", tmpfs("mode=700,size=100m"), "disk", doctor.SeverityWarning, "MiB left"},
		{"few free inodes", tmpfs("mode=700,nr_inodes=5000"), "disk", doctor.SeverityWarning, "inodes left"},
		{"a read-only disk", tmpfs("mode=700") + ` && mount -o remount,bind,ro "$1"`, "disk", doctor.SeverityError, "is mounted read-only"},
		{"records on another disk", `mount -t tmpfs -o mode=700 none "$1/records"`, "disk", doctor.SeverityWarning, "is on another file system than HOME"},
	}
	if os.Getuid() == 0 { // only root may mount a disk
		img := filepath.Join(t.TempDir(), "img")
		require.NoError(t, os.WriteFile(img, nil, 0o600))
		require.NoError(t, os.Truncate(img, 64<<20))
		out, err := osexec.Command("mkfs.ext4", "-q", "-m", "0", img).CombinedOutput()
		require.NoError(t, err, "%s", out)
		disk := func(options string) string {
			return `mount -o loop,` + options + ` ` + sandbox.ShellWord(img) + ` "$1" && "$0" init >/dev/null`
		}
		rows = append(
			rows,
			row{"without barriers", disk("nobarrier"), "fsync", doctor.SeverityError, "is mounted with nobarrier"},
			row{"data=writeback", disk("data=writeback"), "fsync", doctor.SeverityWarning, "data=writeback"},
		)
	}
	for _, row := range rows {
		t.Run(row.why, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "home")
			p := *w.rig
			p.t, p.layout.Home = t, home
			require.NoError(t, os.Mkdir(home, 0o700))
			c := &doctorRig{&p}
			if row.why == "records on another disk" {
				out, err := osexec.Command("cp", "-a", w.layout.Home+"/.", home).CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			found := parseFindings(t, c.runUnshared(t, "", row.script+runDoctor, home))
			require.True(t, slices.ContainsFunc(found, func(f jsonFinding) bool {
				return f.Check == row.check && f.Severity == row.severity.String() && strings.Contains(f.What, row.says)
			}), "%+v", found)
		})
	}
}

type jsonFinding struct{ Check, Severity, Workspace, What, Cure string }

func parseFindings(t *testing.T, out string) []jsonFinding {
	t.Helper()
	var all struct {
		Home, Config, Version, Worst string
		Running                      bool
		Findings                     []jsonFinding
	}
	require.NoError(t, json.Unmarshal([]byte(out), &all, json.MatchCaseInsensitiveNames(true), json.RejectUnknownMembers(true)), out)
	require.NotEmpty(t, all.Findings)
	worst := "ok"
	for _, s := range []string{"error", "warning", "info"} {
		if slices.ContainsFunc(all.Findings, func(f jsonFinding) bool { return f.Severity == s }) {
			worst = s
			break
		}
	}
	require.Equal(t, worst, all.Worst)
	return all.Findings
}

// A small disk for the requests keeps an agent from filling ours. The doctor
// accepts it until it is full.
func TestDoctorAcceptsASeparateRequestsDisk(t *testing.T) {
	w := newDoctorRig(t)
	requests := w.layout.Requests("work")
	mount := `mount -t tmpfs -o mode=777,size=64k none "$1"; `
	diskFindings := func(script string) []jsonFinding {
		return slices.DeleteFunc(parseFindings(t, w.runUnshared(t, "", script+`"$0" doctor --quick --json`, requests)), func(f jsonFinding) bool {
			return f.Check != "disk" || f.Severity == "ok" || !strings.Contains(f.What, requests)
		})
	}
	require.Empty(t, diskFindings(mount))
	full := diskFindings(mount + `head -c 100k /dev/zero >"$1/flood" 2>/dev/null || true; `)
	require.Len(t, full, 1, "%+v", full)
	require.Equal(t, "error", full[0].Severity)
}

// A user namespace has its own inotify limits.
func TestDoctorChecksRealLimits(t *testing.T) {
	w := newDoctorRig(t)
	for _, row := range []struct{ limit, says string }{
		{"max_inotify_instances", "no inotify instances left"},
		{"max_inotify_watches", "no inotify watches left"},
	} {
		cmd := osexec.Command("unshare", "-Ur", "/bin/sh", "-ec", `echo 0 >/proc/sys/user/`+row.limit+`; exec "$0" doctor --quick --json`, program(t, true))
		cmd.Env = append(os.Environ(), "PERMESSO_CONFIG="+w.config, "PERMESSO_HOME="+w.layout.Home)
		out, err := cmd.Output()
		require.Error(t, err)
		require.Equal(t, console.ExitWarnings, cmd.ProcessState.ExitCode(), "%s", out)
		found := parseFindings(t, string(out))
		for _, says := range []string{row.says, "user." + row.limit + " is 0, but 5 folders"} {
			require.True(t, slices.ContainsFunc(found, func(f jsonFinding) bool {
				return f.Check == "inotify" && f.Severity == "warning" && strings.Contains(f.What, says) && strings.Contains(f.Cure, "sysctl")
			}), "%s: %+v", says, found)
		}
	}
}

// startProcess runs a program until the test ends.
func startProcess(t *testing.T, cmd *osexec.Cmd) int {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func copyProgram(t *testing.T, from, name string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), name)
	out, err := osexec.Command("cp", "-L", from, to).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}

func TestDoctorFindsAgents(t *testing.T) {
	w := newDoctorRig(t)
	find := func(pid int) []doctor.Finding {
		return slices.DeleteFunc(only("agents", w.runDoctor(t, nil)), func(f doctor.Finding) bool {
			return !strings.Contains(f.What, fmt.Sprintf("(process %d)", pid))
		})
	}
	claude := copyProgram(t, "/bin/sleep", "claude")
	node := copyProgram(t, "/bin/sh", "node")
	codex := filepath.Join(t.TempDir(), "codex.js")
	writeFile(t, codex, "sleep 1000 # \n:\n", 0o600)

	pid := startProcess(t, osexec.Command(claude, "1000.00001"))
	await(t, claude, func() bool { return len(find(pid)) == 1 })
	found := find(pid)
	require.Equal(t, doctor.SeverityWarning, found[0].Severity)
	require.Contains(t, found[0].What, "claude (process")
	for _, cure := range []string{"container", "system user", "local_decisions = false"} {
		require.Contains(t, found[0].Cure, cure)
	}
	require.NotContains(t, found[0].What, "1000.00001", "arguments may hold secrets")

	pid = startProcess(t, osexec.Command(node, codex))
	await(t, codex, func() bool { return len(find(pid)) == 1 })
	require.Contains(t, find(pid)[0].What, "codex (process")

	sandboxed := startProcess(t, osexec.Command("unshare", "-Urm", claude, "1000"))
	await(t, claude, func() bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", sandboxed))
		return err == nil && filepath.Base(exe) == "claude"
	})
	require.Empty(t, find(sandboxed), "it runs in a sandbox")
	other := startProcess(t, osexec.Command(copyProgram(t, "/bin/sleep", "claudette"), "1000"))
	require.Empty(t, find(other))

	d := w.doctor(t)
	d.UID = os.Getuid() + 1
	if os.Getuid() != 0 {
		require.NotContains(t, fmt.Sprint(only("agents", d.Run(t.Context()))), "claude", "another user's process")
	}
}

// The daemon's program was replaced since its start, and LD_PRELOAD disables
// fsync for its commands.
func TestDoctorChecksTheDaemon(t *testing.T) {
	w := newDoctorRig(t)
	bin := copyProgram(t, program(t, true), "permesso")
	cmd := osexec.Command(bin, "--config", w.config, "--home", w.layout.Home, "serve")
	cmd.Env = append(os.Environ(), "LD_PRELOAD=libeatmydata.so")
	pid := startProcess(t, cmd)
	await(t, w.layout.Lock(), func() bool { up, err := w.doctor(t).Served(); return err == nil && up })
	d := w.doctor(t)
	found := only("daemon", d.Run(t.Context()))
	require.Equal(t, pid, d.Daemon)
	require.Len(t, found, 1, "%+v", found)
	require.Contains(t, found[0].What, "libeatmydata")

	require.NoError(t, os.Remove(bin))
	found = only("daemon", w.runDoctor(t, nil))
	require.Len(t, found, 2, "%+v", found)
	require.Contains(t, found[0].What, "was replaced since")
	require.Equal(t, "restart permesso serve", found[0].Cure)
}

// The doctor cannot read another user's home. The finding says which user can.
func TestDoctorOfAnotherUsersHome(t *testing.T) {
	w := newDoctorRig(t)
	d := w.doctor(t)
	d.UID = os.Getuid() + 1
	all := d.Run(t.Context())
	found := only("home", slices.Clone(all))
	if os.Getuid() == 0 {
		require.Equal(t, doctor.SeverityOK, found[0].Severity, "root may read it")
		return
	}
	require.Equal(t, doctor.SeverityError, found[0].Severity)
	require.Contains(t, found[0].Cure, "sudo -u")
	require.Empty(t, only("keys", all), "nothing else is checked")
}
