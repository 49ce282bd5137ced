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
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/client"
)

func says(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, text) })
}

// Sandboxes as somebody makes them who mounts too much, and what the probe must
// say of each. In the right one, below, it must say nothing.
func TestProbeFindsWrongMounts(t *testing.T) {
	t.Parallel()
	c, gate := newCage(t)
	gate.stop()
	w := &ward{c.place}
	l := w.layout
	listen, err := net.Listen("unix", filepath.Join(w.dir, "decide.sock")) // its path must be short
	require.NoError(t, err)
	defer listen.Close()
	require.NoError(t, os.Link(filepath.Join(w.dir, "decide.sock"), filepath.Join(l.Home, "decide.sock")))
	d := w.doctor(t)
	right := mounts(l, "work")
	with := func(more ...mount) mountList { return append(slices.Clone(right), more...) }
	box := findSandbox(t.Context(), d.bin, "", nil)
	require.Empty(t, box.why)
	for _, row := range []struct {
		why    string
		mounts mountList
		want   []string
	}{
		{"responses to write", mountList{right[0], {Source: l.Responses("work"), Target: client.DefaultResponses}}, []string{
			"may write responses: it could forge them", "may change the mode of the responses", "may overwrite a response",
		}},
		{"the pendings beside them", with(mount{Source: l.Pendings("work"), Target: "/permesso/pending_approvals"}), []string{
			"may write to the pending requests, at /permesso/pending_approvals",
		}},
		{"the decisions to read", with(mount{Source: l.Decisions("work"), Target: "/mnt/x", ReadOnly: true}), []string{"may read the decisions, at /mnt/x"}},
		{"the whole workspace", with(mount{Source: l.Workspace("work"), Target: "/work"}), []string{
			"may write to its workspace folder, at /work", "may write to the pending requests, at /work/pending_approvals", "may write to the decisions",
		}},
		{"the home where it is", with(mount{Source: l.Home, Target: l.Home}), []string{
			"may write to the daemon's home, at " + l.Home, "may write to the MAC key", "may write to the signing key", "may write to the audit log",
			"may write to the records", "may write to the receipts", "reaches the socket " + l.Home + "/decide.sock",
		}},
		{"the home to read", with(mount{Source: l.Home, Target: "/gate", ReadOnly: true}), []string{"may read the MAC key, at /gate/keys/mac.key"}},
		{"a folder far above", with(mount{Source: filepath.Dir(w.dir), Target: "/above"}), []string{"may write to the keys, at /above/", "may write to the configuration, at /above/"}},
		{"a key by itself", with(mount{Source: filepath.Join(l.Keys(), "mac.key"), Target: "/secret"}), []string{"may write to the MAC key, at /secret"}},
		{"no responses", mountList{right[0]}, []string{"cannot read its responses"}},
		{"requests to read", mountList{{Source: right[0].Source, Target: right[0].Target, ReadOnly: true}, right[1]}, []string{"cannot write requests"}},
		{"another folder for the requests", mountList{{Source: w.dir, Target: client.DefaultRequests}, right[1]}, []string{"has another folder mounted as its requests"}},
	} {
		for _, user := range sandboxUsers() {
			t.Run(row.why+"/"+user.who, func(t *testing.T) {
				box.mounts = row.mounts
				breaches, err := d.probe(t.Context(), box, "work", user)
				require.NoError(t, err)
				for _, want := range row.want {
					require.True(t, says(breaches, want), "%q is not in %q", want, breaches)
				}
				require.NotEmpty(t, breaches)
			})
		}
	}
	for _, user := range sandboxUsers() {
		box.mounts = right
		breaches, err := d.probe(t.Context(), box, "work", user)
		require.NoError(t, err)
		require.Empty(t, breaches, "the right mounts, after all of that")
	}
	d.quick, d.began = false, time.Now() // the rows above may have used its patience up
	d.probeMount = func(string) mountList { return with(mount{Source: l.Pendings("work"), Target: "/p"}) }
	found := d.checkMounts(t.Context())
	require.Len(t, found, len(sandboxUsers()))
	require.Equal(t, severityError, found[0].Severity)
	require.Contains(t, found[0].What, "an agent as a user in bubblewrap may write to the pending requests, at /p")
}

func TestDoctorWithoutBubblewrap(t *testing.T) {
	d := newWard(t).doctor(t)
	t.Setenv("PATH", t.TempDir())
	found := d.checkMounts(t.Context())
	require.Len(t, found, 1)
	require.Equal(t, severityInfo, found[0].Severity)
	require.Contains(t, found[0].What, "bubblewrap is not installed")
	require.Contains(t, found[0].Cure, "apt-get install bubblewrap")
}

// Without a PID namespace the gate's process can be seen and ended.
func TestProbeFindsProcesses(t *testing.T) {
	c, _ := newCage(t)
	d := (&ward{c.place}).doctor(t)
	d.checkDaemon(t.Context())
	require.NotZero(t, d.daemon)
	box := findSandbox(t.Context(), d.bin, "", nil)
	box.mounts = mounts(d.layout, "work")
	system := slices.DeleteFunc(bwrapSystem(), func(s string) bool { return s == "--unshare-all" || s == "1000" || s == "--uid" || s == "--gid" })
	breaches, err := d.probe(t.Context(), box, "work", sandboxUser{"", append(system, "--unshare-user")})
	require.NoError(t, err)
	require.True(t, says(breaches, "sees the daemon's process"), "%q", breaches)
	require.True(t, says(breaches, "may kill the daemon's process"), "%q", breaches)
	require.True(t, alive(d.daemon), "signal 0 is sent to nobody")
}

// As root of the mounts, what is read-only is not for long.
func TestProbeFindsRemounts(t *testing.T) {
	w := newWard(t)
	b, err := json.Marshal(probeInput{Requests: w.layout.Requests("work"), Responses: w.layout.Responses("work")})
	require.NoError(t, err)
	out := w.unshared(t, string(b), `mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$0" doctor probe`, w.layout.Responses("work"))
	var breaches []string
	require.NoError(t, json.Unmarshal([]byte(out), &breaches), out)
	require.True(t, says(breaches, "may remount its responses for writing"), "%q", breaches)
	require.True(t, says(breaches, "may unmount its responses"), "%q", breaches)
	require.False(t, says(breaches, "may write responses"), "not before that: %q", breaches)
}

// unshared runs a script as root of user and mount namespaces of its own: $0 is
// our program, $1 and so on are args. What it mounts goes with it.
func (w *ward) unshared(t *testing.T, stdin, script string, args ...string) string {
	t.Helper()
	flags := "-Urm"
	if os.Getuid() == 0 {
		flags = "-m" // who is root need not become it, and may mount more
	}
	cmd := osexec.Command("unshare", append([]string{flags, "/bin/sh", "-ec", script, program(t, true)}, args...)...)
	cmd.Stdin, cmd.Env = strings.NewReader(stdin), append(os.Environ(), "PERMESSO_CONFIG="+w.config, "PERMESSO_HOME="+w.layout.Home)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != exitWarnings && code != exitErrors {
		require.NoError(t, err, "%s%s", out, errs.String())
	}
	return string(out)
}

// Disks as they go wrong: each a real one, in a mount namespace of its own.
func TestDoctorLooksAtRealDisks(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	const look = `; exec "$0" doctor --json`
	tmpfs := func(options string) string {
		return `mount -t tmpfs -o ` + options + ` none "$1" && "$0" init >/dev/null`
	}
	type row struct {
		why, script, check string
		severity           severity
		says               string
	}
	rows := []row{
		{"a disk in memory", tmpfs("mode=700"), "fsync", severityError, "is a tmpfs"},
		{"a full disk", tmpfs("mode=700,size=8m"), "disk", severityError, "KiB left"},
		{"few inodes", tmpfs("mode=700,nr_inodes=500"), "disk", severityError, "more files"},
		{"a disk that fills up", tmpfs("mode=700,size=100m"), "disk", severityWarning, "MiB left"},
		{"inodes that run out", tmpfs("mode=700,nr_inodes=5000"), "disk", severityWarning, "more files"},
		{"a read-only disk", tmpfs("mode=700") + ` && mount -o remount,bind,ro "$1"`, "disk", severityError, "is mounted read-only"},
		{"two disks", `mount -t tmpfs -o mode=700 none "$1/records"`, "disk", severityWarning, "lies on another file system than the home"},
	}
	if os.Getuid() == 0 { // only root may mount a disk
		img := filepath.Join(t.TempDir(), "img")
		require.NoError(t, os.WriteFile(img, nil, 0o600))
		require.NoError(t, os.Truncate(img, 64<<20))
		out, err := osexec.Command("mkfs.ext4", "-q", "-m", "0", img).CombinedOutput()
		require.NoError(t, err, "%s", out)
		disk := func(options string) string {
			return `mount -o loop,` + options + ` ` + shellWord(img) + ` "$1" && "$0" init >/dev/null`
		}
		rows = append(
			rows,
			row{"barriers off", disk("nobarrier"), "fsync", severityError, "is mounted with nobarrier"},
			row{"data written back", disk("data=writeback"), "fsync", severityWarning, "data=writeback"},
		)
	}
	for _, row := range rows {
		t.Run(row.why, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "home")
			p := *w.place
			p.t, p.layout.Home = t, home
			require.NoError(t, os.Mkdir(home, 0o700))
			c := &ward{&p}
			if row.why == "two disks" {
				out, err := osexec.Command("cp", "-a", w.layout.Home+"/.", home).CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			found := parseFindings(t, c.unshared(t, "", row.script+look, home))
			require.True(t, slices.ContainsFunc(found, func(f seen) bool {
				return f.Check == row.check && f.Severity == row.severity.String() && strings.Contains(f.What, row.says)
			}), "%+v", found)
		})
	}
}

type seen struct{ Check, Severity, Workspace, What, Cure string }

func parseFindings(t *testing.T, out string) []seen {
	t.Helper()
	var all struct {
		Home, Config, Version, Worst string
		Running                      bool
		Findings                     []seen
	}
	require.NoError(t, json.Unmarshal([]byte(out), &all, json.MatchCaseInsensitiveNames(true), json.RejectUnknownMembers(true)), out)
	require.NotEmpty(t, all.Findings)
	worst := "ok"
	for _, s := range []string{"error", "warning", "info"} {
		if slices.ContainsFunc(all.Findings, func(f seen) bool { return f.Severity == s }) {
			worst = s
			break
		}
	}
	require.Equal(t, worst, all.Worst)
	return all.Findings
}

// A small disk for the requests keeps a flood from filling ours: that is as it
// should be, until it is full.
func TestDoctorLikesADiskForRequests(t *testing.T) {
	w := newWard(t)
	requests := w.layout.Requests("work")
	mount := `mount -t tmpfs -o mode=777,size=64k none "$1"; `
	look := func(script string) []seen {
		return slices.DeleteFunc(parseFindings(t, w.unshared(t, "", script+`"$0" doctor --quick --json`, requests)), func(f seen) bool {
			return f.Check != "disk" || f.Severity == "ok" || !strings.Contains(f.What, requests)
		})
	}
	require.Empty(t, look(mount))
	full := look(mount + `head -c 100k /dev/zero >"$1/flood" 2>/dev/null || true; `)
	require.Len(t, full, 1, "%+v", full)
	require.Equal(t, "error", full[0].Severity)
}

// A user namespace of its own has its own limits.
func TestDoctorLooksAtRealLimits(t *testing.T) {
	w := newWard(t)
	for _, row := range []struct{ limit, says string }{
		{"max_inotify_instances", "no inotify instances left"},
		{"max_inotify_watches", "no inotify watches left"},
	} {
		cmd := osexec.Command("unshare", "-Ur", "/bin/sh", "-ec", `echo 0 >/proc/sys/user/`+row.limit+`; exec "$0" doctor --quick --json`, program(t, true))
		cmd.Env = append(os.Environ(), "PERMESSO_CONFIG="+w.config, "PERMESSO_HOME="+w.layout.Home)
		out, err := cmd.Output()
		require.Error(t, err)
		require.Equal(t, exitWarnings, cmd.ProcessState.ExitCode(), "%s", out)
		found := parseFindings(t, string(out))
		for _, says := range []string{row.says, "user." + row.limit + " is 0, for 5 folders"} {
			require.True(t, slices.ContainsFunc(found, func(f seen) bool {
				return f.Check == "inotify" && f.Severity == "warning" && strings.Contains(f.What, says) && strings.Contains(f.Cure, "sysctl")
			}), "%s: %+v", says, found)
		}
	}
}

// start runs a program under another name until the test ends.
func start(t *testing.T, cmd *osexec.Cmd) int {
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
	w := newWard(t)
	find := func(pid int) []finding {
		return slices.DeleteFunc(w.doctor(t).checkAgents(t.Context()), func(f finding) bool {
			return !strings.Contains(f.What, fmt.Sprintf("(process %d)", pid))
		})
	}
	claude := copyProgram(t, "/bin/sleep", "claude")
	node := copyProgram(t, "/bin/sh", "node")
	codex := filepath.Join(t.TempDir(), "codex.js")
	write(t, codex, "sleep 1000 # \n:\n", 0o600)

	pid := start(t, osexec.Command(claude, "1000.00001"))
	await(t, claude, func() bool { return len(find(pid)) == 1 })
	found := find(pid)
	require.Equal(t, severityWarning, found[0].Severity)
	require.Contains(t, found[0].What, "claude (process")
	for _, cure := range []string{"container", "system user", "local_decisions = false"} {
		require.Contains(t, found[0].Cure, cure)
	}
	require.NotContains(t, found[0].What, "1000.00001", "arguments are nobody's business")

	pid = start(t, osexec.Command(node, codex))
	await(t, codex, func() bool { return len(find(pid)) == 1 })
	require.Contains(t, find(pid)[0].What, "codex (process")

	caged := start(t, osexec.Command("unshare", "-Urm", claude, "1000"))
	await(t, claude, func() bool { return agentName(fmt.Sprintf("/proc/%d", caged)) == "claude" })
	require.Empty(t, find(caged), "it has a sandbox")
	other := start(t, osexec.Command(copyProgram(t, "/bin/sleep", "claudette"), "1000"))
	require.Empty(t, find(other))

	d := w.doctor(t)
	d.uid = os.Getuid() + 1
	if os.Getuid() != 0 {
		require.NotContains(t, fmt.Sprint(d.checkAgents(t.Context())), "claude", "it is another user's")
	}
}

// The daemon's program is replaced below it, and it was started so that its
// commands do not sync.
func TestDoctorLooksAtTheDaemon(t *testing.T) {
	w := newWard(t)
	bin := copyProgram(t, program(t, true), "permesso")
	cmd := osexec.Command(bin, "--config", w.config, "--home", w.layout.Home, "serve")
	cmd.Env = append(os.Environ(), "LD_PRELOAD=libeatmydata.so")
	pid := start(t, cmd)
	await(t, w.layout.Lock(), func() bool { up, err := w.doctor(t).served(); return err == nil && up })
	d := w.doctor(t)
	found := d.checkDaemon(t.Context())
	require.Equal(t, pid, d.daemon)
	require.Len(t, found, 1, "%+v", found)
	require.Contains(t, found[0].What, "libeatmydata")

	require.NoError(t, os.Remove(bin))
	found = w.doctor(t).checkDaemon(t.Context())
	require.Len(t, found, 2, "%+v", found)
	require.Contains(t, found[0].What, "was replaced since")
	require.Equal(t, "restart permesso serve", found[0].Cure)
}

// Another user cannot look, and is told who can.
func TestDoctorOfAnothersHome(t *testing.T) {
	w := newWard(t)
	d := w.doctor(t)
	d.uid = os.Getuid() + 1
	found := d.checkHome(t.Context())
	if os.Getuid() == 0 {
		require.Equal(t, severityOK, found[0].Severity, "root may")
		return
	}
	require.Equal(t, severityError, found[0].Severity)
	require.Contains(t, found[0].Cure, "sudo -u")
	require.False(t, d.exists, "nothing else is looked at")
}
