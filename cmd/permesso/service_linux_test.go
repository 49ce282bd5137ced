package main

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

// unitOf writes the unit that service show prints to a file. Its program exists on
// every machine, because systemd-analyze checks that.
func unitOf(t *testing.T, kind string) string {
	t.Helper()
	code, unit, errs := runCommand("service", "show", kind, "--program", "/bin/true", "--home", map[string]string{"--user": t.TempDir()}[kind])
	require.Zero(t, code, errs)
	file := filepath.Join(t.TempDir(), setup.UnitName)
	require.NoError(t, os.WriteFile(file, []byte(unit), 0o600))
	return file
}

func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := osexec.Command("systemd-analyze", args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir(), "SYSTEMD_COLORS=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// For an unknown key or value systemd only warns and omits the protection. So the
// output must be empty.
func TestUnitsAreValid(t *testing.T) {
	for _, row := range []struct{ kind, manager string }{{"--system", "--system"}, {"--user", "--user"}} {
		out, err := analyze(t, "verify", row.manager, "--man=no", unitOf(t, row.kind))
		require.NoError(t, err, out)
		require.Empty(t, out, row.kind)
	}
	broken := unitOf(t, "--system")
	text, err := os.ReadFile(broken)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(text), "=strict", "=stritc", 1)), 0o600))
	out, _ := analyze(t, "verify", "--man=no", broken)
	require.Contains(t, out, "protect system value", "the check finds errors")
}

// The settings that the unit's comment suggests are valid, and lift the restrictions.
func TestUnitAdviceIsValid(t *testing.T) {
	t.Parallel()
	unit := unitOf(t, "--system")
	text, err := os.ReadFile(unit)
	require.NoError(t, err)
	var dropIn []string
	for _, m := range regexp.MustCompile(`(?m)^#   (\w+=\S+) {2,}\w`).FindAllStringSubmatch(string(text), -1) {
		dropIn = append(dropIn, m[1])
	}
	require.Greater(t, len(dropIn), 8)
	loose := strings.Replace(string(text), "\n[Install]", strings.Join(dropIn, "\n")+"\n[Install]", 1)
	require.NoError(t, os.WriteFile(unit, []byte(loose), 0o600))
	out, err := analyze(t, "verify", "--man=no", unit)
	require.NoError(t, err, out)
	require.Empty(t, out)
	require.True(t, allowedCalls(t, loose)["setpriority"])
	require.False(t, allowedCalls(t, string(text))["setpriority"])
}

// The threshold is in tenths: 2.0 of 10.
func TestSystemUnitIsHardened(t *testing.T) {
	unit := unitOf(t, "--system")
	out, err := analyze(t, "security", "--offline=true", "--no-pager", "--threshold=20", unit)
	require.NoError(t, err, out)
	require.Contains(t, out, "Overall exposure level for permesso.service")
	_, err = analyze(t, "security", "--offline=true", "--no-pager", "--threshold=5", unit)
	require.Error(t, err, "a threshold below the exposure is an error")
	text, err := os.ReadFile(unit)
	require.NoError(t, err)
	for _, why := range []struct{ line, why string }{
		{"User=permesso", "own user"},
		{"ProtectSystem=strict", "required explicitly"},
		{"NoNewPrivileges=yes", "required explicitly"},
		{"Type=notify", "readiness"},
		{"WatchdogSec=30s", "watchdog"},
		{"KillMode=mixed", "a stop must not reach handlers before the daemon"},
		{"OOMPolicy=continue", "a handler out of memory must not stop the daemon"},
		{"RuntimeDirectory=permesso", "the socket for decisions"},
	} {
		require.Contains(t, string(text), "\n"+why.line+"\n", why.why)
	}
	require.NotContains(t, string(text), "\nPrivateUsers=", "it would hide the UID of the socket's peer")
}

func TestUnitWords(t *testing.T) {
	for _, row := range []struct{ why, path, want string }{
		{"no quoting needed", "/var/lib/permesso", "/var/lib/permesso"},
		{"a space", "/srv/my gate", `"/srv/my gate"`},
		{"systemd's special characters", "/a%h/$HOME", `"/a%%h/$$HOME"`},
		{"quotes and backslashes", `/a"b\c'd`, `"/a\"b\\c'd"`},
	} {
		got, err := setup.UnitWord(row.path)
		require.NoError(t, err, row.why)
		require.Equal(t, row.want, got, row.why)
	}
	_, err := setup.UnitWord("/a\nExecStartPre=/bin/evil")
	require.Error(t, err, "an injected line")
	for _, program := range []string{"/opt/my gate/permesso", "/opt/%h/permesso", "/home/ann/permesso", "/tmp/permesso"} {
		code, out, errs := runCommand("service", "show", "--system", "--program", program)
		require.Equal(t, console.ExitError, code, program)
		require.Empty(t, out)
		require.Contains(t, errs, "hint: copy it")
	}
}

// If systemd runs, service install calls it. A fake systemctl records each call and
// whether the unit existed.
func TestServiceInstallCallsSystemd(t *testing.T) {
	t.Parallel()
	etc, fake := t.TempDir(), t.TempDir()
	calls := filepath.Join(etc, "calls")
	for _, name := range []string{"systemctl", "systemd-sysusers"} {
		script := "#!/bin/sh\n[ -e /etc/systemd/system/permesso.service ] && unit=there || unit=gone\n" +
			"echo \"${0##*/} $* $unit\" >>/etc/calls\n[ ! -e /etc/fail ] || { echo 'no bus' >&2; exit 1; }\n"
		require.NoError(t, writeProgram(filepath.Join(fake, name), script, 0o700))
	}
	run := func(args ...string) (string, error) {
		box := []string{
			"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run", "--dir", "/run/systemd/system",
			"--bind", etc, "/etc", "--ro-bind", fake, "/mnt", "--unshare-user", "--uid", "0", "--clearenv", "--setenv", "PATH", "/mnt:/usr/bin:/bin",
			program(t, true), "service",
		}
		out, err := osexec.Command("bwrap", append(box, args...)...).CombinedOutput()
		return string(out), err
	}
	out, err := run("install", "--dry-run", "--program", "/bin/true")
	require.NoError(t, err, out)
	require.Contains(t, out, "would run systemctl daemon-reload\n")
	require.NoFileExists(t, calls)

	out, err = run("install", "--program", "/bin/true")
	require.NoError(t, err, out)
	require.Equal(t, "write /etc/sysusers.d/permesso.conf\nwrite /etc/permesso/permesso.toml\nwrite /etc/systemd/system/permesso.service\n"+
		"run systemd-sysusers /etc/sysusers.d/permesso.conf\nrun systemctl daemon-reload\n"+
		"next: edit /etc/permesso/permesso.toml, then: systemctl enable --now permesso\n", out)
	out, err = run("uninstall")
	require.NoError(t, err, out)
	require.NoError(t, os.WriteFile(filepath.Join(etc, "fail"), nil, 0o600))
	out, err = run("install", "--program", "/bin/true")
	require.Error(t, err)
	require.Contains(t, out, "write /etc/systemd/system/permesso.service\n", "the output lists what was done")
	require.Contains(t, out, "permesso: systemd-sysusers /etc/sysusers.d/permesso.conf: exit status 1: no bus\n")

	lines, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, "systemd-sysusers /etc/sysusers.d/permesso.conf there\nsystemctl daemon-reload there\n"+
		"systemctl disable --now permesso.service there\nsystemctl daemon-reload gone\n"+
		"systemd-sysusers /etc/sysusers.d/permesso.conf there\n", string(lines))
}

// The files for other init systems are valid, and start the daemon with options that it has.
func TestOtherServiceFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "permesso.socket")
	show := func(kind string) string {
		code, text, errs := runCommand("service", "show", kind, "--program", "/bin/true")
		require.Zero(t, code, errs)
		require.Contains(t, text, "Printed by: permesso service show "+kind+"\n")
		require.NotContains(t, text, "@")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return text
	}
	require.Contains(t, show("--socket"), "\nListenStream=127.0.0.1:8765\n")
	dir := t.TempDir()
	require.NoError(t, os.Rename(file, filepath.Join(dir, "permesso.socket")))
	require.NoError(t, os.Rename(unitOf(t, "--system"), filepath.Join(dir, "permesso.service")))
	out, err := analyze(t, "verify", "--man=no", filepath.Join(dir, "permesso.socket"))
	require.NoError(t, err, out)
	require.Empty(t, out)

	// Their words differ only in the commands of the system. supervise-daemon opens the log as the service's user.
	once := func(kind string) (lines []string) {
		for line := range strings.Lines(show(kind)) {
			if strings.HasPrefix(line, "#   ") && strings.Contains(line, "/permesso") && !strings.Contains(line, "useradd") && !strings.Contains(line, "adduser") && !strings.HasPrefix(line, "#   ln ") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	require.Len(t, once("--runit"), 4)
	require.Equal(t, once("--runit"), once("--openrc"))
	require.Regexp(t, `(?m)^\s*checkpath --file --mode 0640 --owner permesso:permesso /var/log/permesso.log$`, show("--openrc"))

	serve := regexp.MustCompile(`serve --config /etc/permesso/permesso.toml --home /var/lib/permesso\b`)
	for _, kind := range []string{"--openrc", "--runit"} {
		text := show(kind)
		require.Regexp(t, serve, text)
		for _, shell := range [][]string{{"dash", "-n"}, {"busybox", "sh", "-n"}, {"bash", "-n"}, {"shellcheck"}} {
			out, err := osexec.Command(shell[0], append(shell[1:], file)...).CombinedOutput()
			require.NoError(t, err, "%s %s: %s", kind, shell, out)
		}
	}
	require.NoError(t, os.WriteFile(file, []byte("if true; then\n"), 0o600))
	require.Error(t, osexec.Command("busybox", "sh", "-n", file).Run(), "the check finds errors")
}
