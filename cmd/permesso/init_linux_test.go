package main

import (
	"bytes"
	"context"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
	"github.com/permesso-dev/permesso/ipc"
)

// initRun is permesso init on a terminal. It may leave only the configuration and
// the home.
type initRun struct {
	*demoRun
	keys *os.File
	home string
}

func startInit(t *testing.T, args ...string) *initRun {
	t.Helper()
	return startInitWith(t, nil, args...)
}

func startInitWith(t *testing.T, env []string, args ...string) *initRun {
	t.Helper()
	i := &initRun{demoRun: newDemo(t), home: t.TempDir()}
	i.cmd = osexec.Command(program(t, true), append([]string{"init"}, args...)...)
	i.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + i.home, "TMPDIR=" + i.temp, "NO_COLOR=1"}
	i.cmd.Env = append(i.cmd.Env, env...)
	i.cmd.WaitDelay = 5 * time.Second
	i.keys = i.startOnTerminal()
	return i
}

// answer waits for a prompt and answers it.
func (i *initRun) answer(prompt, answer string) {
	i.t.Helper()
	i.awaitOutput(prompt)
	_, err := io.WriteString(i.keys, answer)
	require.NoError(i.t, err)
}

func (i *initRun) config() string {
	i.t.Helper()
	b, err := os.ReadFile(filepath.Join(i.home, ".config", "permesso", "permesso.toml"))
	require.NoError(i.t, err)
	return string(b)
}

func (i *initRun) layout() ipc.Layout {
	return ipc.Layout{Home: filepath.Join(i.home, ".local", "state", "permesso")}
}

// requireUnlocked requires that no daemon holds the lock.
func (i *initRun) requireUnlocked() {
	i.t.Helper()
	lock, err := ipc.OS().TryLock(i.layout().Lock())
	require.NoError(i.t, err)
	require.NoError(i.t, lock.Close())
}

func TestInitFiveQuestionsAndARequest(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		why, typed string
		status     approval.Status
		says       []string
	}{
		{"approved", "1\n", approval.StatusApproved, []string{"approved (ann)", `result: {"output":"hello\n"}`}},
		{"denied", "3 not now\n", approval.StatusDenied, []string{"denied (ann)", "feedback: not now"}},
	} {
		t.Run(row.why, func(t *testing.T) {
			i := startInit(t)
			me := approver(t)
			i.answer("[default] ", "research\n")
			i.answer("] ", me+"\n")
			i.answer("[supervised] ", "most\n") // invalid: the prompt is repeated
			i.answer("hint: use one of readonly, supervised, full", "full\n")
			i.answer("[bwrap] ", "docker\n")
			i.answer("[none] ", "\n")
			i.answer("Try it now with a temporary daemon? [Y/n] ", "\n")
			i.awaitOutput(" · until ")
			shown := regexp.MustCompile(`→ approve (\w+) `).FindStringSubmatch(i.output())
			require.NotNil(t, shown)
			i.answer(shown[1]+"> ", row.typed) // the prompt: keys count for this card
			i.awaitOutput("the temporary daemon has stopped")
			i.answer("[y/N] ", "\n")
			said := i.awaitExit(0)
			for _, line := range row.says {
				require.Contains(t, said, line)
			}
			require.Contains(t, said, "May I say hello?")
			require.Contains(t, said, "--mount type=bind,src="+i.layout().Requests("research"))
			text := i.config()
			require.Contains(t, text, "[workspaces.research]\nautonomy = \"full\"")
			require.Contains(t, text, "approvers = [\"ann\"]")
			ids, _, err := (&ipc.Store{FS: ipc.OS(), Layout: i.layout()}).List(context.Background(), approval.DocRecord, "research")
			require.NoError(t, err)
			require.Len(t, ids, 1)
			b, err := os.ReadFile(filepath.Join(i.layout().Responses("research"), ids[0]+".json"))
			require.NoError(t, err)
			r, err := approval.ParseResponse(b)
			require.NoError(t, err)
			require.Equal(t, row.status, r.Status)
			i.requireUnlocked()
		})
	}
}

// approver is the user that runs the test, named ann.
func approver(t *testing.T) string {
	t.Helper()
	out, err := osexec.Command("id", "-u").Output()
	require.NoError(t, err)
	return "ann:" + strings.TrimSpace(string(out))
}

func TestInitEnterAcceptsDefaults(t *testing.T) {
	t.Parallel()
	i := startInit(t)
	for _, prompt := range []string{"[default] ", "2. Who approves?", "[supervised] ", "[bwrap] ", "[none] "} {
		i.answer(prompt, "\n")
	}
	i.answer("[Y/n] ", "n\n")
	i.answer("[y/N] ", "\n")
	said := i.awaitExit(0)
	require.NotContains(t, said, "🔐")
	plain := newDemo(t)
	plain.cmd = osexec.Command(program(t, true), "init")
	other := t.TempDir()
	plain.cmd.Env = []string{"HOME=" + other, "PATH=" + os.Getenv("PATH")}
	out, err := plain.cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "[Y/n]", "no prompt without a terminal")
	b, err := os.ReadFile(filepath.Join(other, ".config", "permesso", "permesso.toml"))
	require.NoError(t, err)
	require.Equal(t, i.config(), string(b), "the defaults are the same")

	// A second run keeps the files and offers only the trial.
	again := &initRun{demoRun: newDemo(t), home: i.home}
	again.cmd = osexec.Command(program(t, true), "init")
	again.cmd.Env = i.cmd.Env
	again.keys = again.startOnTerminal()
	again.answer("[Y/n] ", "no\n")
	again.answer("[y/N] ", "no\n")
	said = again.awaitExit(0)
	require.Contains(t, said, "kept    ")
	require.NotContains(t, said, "1. Name of")
}

func TestInitFlagsAskNothing(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--yes"}, {"--workspace", "w"}, {"--sandbox", "none"}} {
		i := startInit(t, args...)
		i.awaitOutput("permesso request hello")
		require.NotContains(t, i.awaitExit(0), "] ")
	}
}

// If init is stopped before the last answer, it writes nothing.
func TestInitStopped(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ why, typed, says string }{
		{"by Ctrl-C", "\x03", "permesso: interrupted; nothing was written"},
		{"by Ctrl-D", "\x04", "permesso: end of input; nothing was written"},
	} {
		t.Run(row.why, func(t *testing.T) {
			i := startInit(t)
			i.answer("[default] ", "\n")
			i.answer("2. Who approves?", row.typed)
			i.awaitOutput(row.says)
			i.awaitExit(console.ExitError)
			left, err := os.ReadDir(i.home)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
	t.Run("in the trial", func(t *testing.T) {
		i := startInit(t)
		for _, prompt := range []string{"[default] ", "2. Who approves?", "[supervised] ", "[bwrap] ", "[none] ", "[Y/n] "} {
			i.answer(prompt, "\n")
		}
		i.answer(" · until ", "\x03")
		i.awaitOutput("had its response")
		i.awaitExit(console.ExitError)
		i.requireUnlocked()
	})
	t.Run("by SIGTERM, in the trial", func(t *testing.T) {
		i := startInit(t)
		for _, prompt := range []string{"[default] ", "2. Who approves?", "[supervised] ", "[bwrap] ", "[none] ", "[Y/n] "} {
			i.answer(prompt, "\n")
		}
		i.awaitOutput(" · until ")
		require.NoError(t, i.cmd.Process.Signal(syscall.SIGTERM))
		i.awaitExit(console.ExitError)
		i.requireUnlocked()
	})
}

// While a daemon runs, init offers no trial.
func TestInitWhileADaemonRuns(t *testing.T) {
	t.Parallel()
	i := startInit(t, "--yes")
	i.awaitOutput("permesso request hello")
	i.awaitExit(0)
	gate := osexec.Command(program(t, true), "serve")
	var log bytes.Buffer
	gate.Env, gate.Stderr = i.cmd.Env, &log
	require.NoError(t, gate.Start())
	t.Cleanup(func() { _ = gate.Process.Kill(); _ = gate.Wait() })
	for end := time.Now().Add(testTimeout); ; time.Sleep(5 * time.Millisecond) {
		if _, err := ipc.OS().TryLock(i.layout().Lock()); err != nil {
			break
		}
		require.True(t, time.Now().Before(end))
	}
	again := &initRun{demoRun: newDemo(t), home: i.home}
	again.cmd = osexec.Command(program(t, true), "init")
	again.cmd.Env = i.cmd.Env
	again.keys = again.startOnTerminal()
	again.answer("Connect Telegram now, to approve with a tap on your phone? [y/N] ", "\n")
	require.NotContains(t, again.awaitExit(0), "[Y/n]")
}

// A preset is a workspace of its own, in which the same person approves.
func TestInitPreset(t *testing.T) {
	t.Parallel()
	i, project := startInit(t), realDir(t)
	i.answer("[default] ", "\n")
	i.answer("2. Who approves?", approver(t)+"\n")
	i.answer("[supervised] ", "\n")
	i.answer("[bwrap] ", "\n")
	i.answer("[none] ", "codign\n")
	i.answer("hint: use one of coding-agent, claude-code, codex, gemini, assistant, ci", "coding-agent\n")
	i.answer("Which folder is the project?\r\n   [.] ", "/\n")
	i.answer("holds more than a project", project+"\n")
	i.answer("[Y/n] ", "n\n")
	i.answer("[y/N] ", "\n")
	i.awaitExit(0)
	cfg, err := config.Parse("permesso.toml", []byte(i.config()))
	require.NoError(t, err)
	require.Empty(t, cfg.Warnings)
	require.Equal(t, []string{"ann"}, cfg.Workspaces["default"].Approvers)
	require.Equal(t, []string{"ann"}, cfg.Workspaces["coding"].Approvers)
	require.Contains(t, i.config(), "# A coding agent in "+project)
	require.Contains(t, i.config(), "[tools.read_file]")
	require.NotContains(t, i.config(), "@P")
}

func TestInitPresetFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "permesso.toml")
	init := func(args ...string) (int, string) {
		code, _, errs := runCommand(append([]string{"init", "--config", file, "--home", filepath.Join(dir, "home"), "--approver", approver(t)}, args...)...)
		return code, errs
	}
	for _, args := range [][]string{{"--preset", "robot"}, {"--preset", "ci", "--project", "/"}, {"--preset", "assistant", "--person", "ann"}} {
		code, _ := init(args...)
		require.Equal(t, console.ExitUsage, code)
		require.NoFileExists(t, file)
	}
	code, errs := init("--preset", "assistant", "--person", "ann@example.org")
	require.Zero(t, code, errs)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	cfg, err := config.Parse("permesso.toml", b)
	require.NoError(t, err)
	require.Empty(t, cfg.Warnings)
	require.Equal(t, []string{"ann"}, cfg.Workspaces["assistant"].Approvers)
	code, errs = init("--preset", "ci")
	require.Equal(t, console.ExitUsage, code)
	require.Contains(t, errs, file+" exists already\nhint: permesso policy preset ci prints the lines to add")
}

// The last question goes on into telegram setup.
func TestInitConnectsTelegram(t *testing.T) {
	t.Parallel()
	api := newTelegram(t)
	i := startInitWith(t, []string{home.TelegramToken + "=" + botapi.Token, setup.TelegramServer + "=" + api.URL})
	i.answer("[default] ", "\n")
	i.answer("2. Who approves?", approver(t)+"\n")
	for _, prompt := range []string{"[supervised] ", "[bwrap] ", "[none] "} {
		i.answer(prompt, "\n")
	}
	i.answer("[Y/n] ", "n\n")
	i.answer("[y/N] ", "y\n")
	api.Say(tgAnn, tgAnn, "/start "+numberOf(i.demoRun))
	i.answer("Which approver are you?", "\n")
	tapTestCard(t, api, tgAnn, tgAnn)
	said := i.awaitExit(0)
	require.Contains(t, said, "start the daemon: permesso serve")
	cfg, err := config.Parse("permesso.toml", []byte(i.config()))
	require.NoError(t, err)
	require.Equal(t, []string{"telegram"}, cfg.Workspaces["default"].Channels)
	require.Equal(t, "1001", cfg.Approvers["ann"].IDs["telegram"])
}
