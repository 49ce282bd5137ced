package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

// browserGate is what the scenarios know of a gate; Gate in testdata/browser/gate.mjs.
type browserGate struct {
	Program string                       `json:"program"`
	Pid     int                          `json:"pid"`
	Flags   []string                     `json:"flags"`
	Folders map[string]map[string]string `json:"folders"` // by workspace
	Sandbox string                       `json:"sandbox"` // a shell command that runs permesso in the first workspace's sandbox
	Effects string                       `json:"effects"` // one line per run
}

// browserPlan is the input of drive.mjs.
type browserPlan struct {
	Chromium  string                 `json:"chromium"`
	Modules   string                 `json:"modules"`
	Scenarios []string               `json:"scenarios"`
	Only      string                 `json:"only,omitempty"`
	Shots     string                 `json:"shots"`
	Pictures  string                 `json:"pictures,omitempty"` // where the README's screenshots go; "": none
	Strings   []string               `json:"strings"`            // hostile inputs
	Push      string                 `json:"push,omitempty"`     // the URL of a push service; "": none
	Gates     map[string]browserGate `json:"houses"`
}

// newBrowserGate starts a daemon with its pages, with a configuration of testdata/browser.
func newBrowserGate(t *testing.T, config string, workspaces ...string) browserGate {
	t.Helper()
	p := newRig(t, workspaces[0], "")
	effects := filepath.Join(p.dir, "effects")
	require.NoError(t, os.WriteFile(effects, nil, 0o600))
	text, err := os.ReadFile("../../testdata/browser/" + config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.config, bytes.ReplaceAll(text, []byte("EFFECTS"), []byte(effects)), 0o600))
	code, _, errs := p.run("", "config", "check")
	require.Zero(t, code, errs)
	d := p.serve()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(lastLines(d.logged(), 30)) // the whole log would hide the failure
		}
	})
	d.awaitLog(`"message":"serving"`)
	code, mounts, errs := p.run("", "mounts", workspaces[0], "--bwrap")
	require.Zero(t, code, errs)
	h := browserGate{
		Program: program(t, true), Pid: d.cmd.Process.Pid, Flags: []string{"--config", p.config, "--home", p.layout.Home}, Effects: effects, Folders: map[string]map[string]string{},
		Sandbox: "exec bwrap " + strings.TrimSpace(mounts) + " --ro-bind " + sandbox.ShellWord(program(t, true)) + " " +
			sandbox.AgentBin + "/permesso permesso \"$@\"",
	}
	for _, ws := range workspaces {
		h.Folders[ws] = map[string]string{"requests": p.layout.Requests(ws), "responses": p.layout.Responses(ws)}
	}
	return h
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// runScenarios runs scenario files in one Chromium, with a subtest for each scenario.
func runScenarios(t *testing.T, plan browserPlan) {
	t.Helper()
	files, err := filepath.Glob("../../testdata/browser/*.mjs")
	require.NoError(t, err)
	for _, file := range append(files, "../../ipc/client/typescript/permesso.mjs") {
		_, err := os.ReadFile(file) // makes go test cache the result per content of the file
		require.NoError(t, err)
	}
	plan.Chromium, err = osexec.LookPath("chromium")
	require.NoError(t, err, "hint: make deps, or: apt-get install chromium")
	requireVersion(t, "node", "nodejs", 18, 0)
	plan.Modules, err = botapi.Install(t.Context(), "browser", os.DirFS("../../testdata/browser"))
	require.NoError(t, err, "hint: this needs npm and a reachable registry; run npm ci in testdata/browser")
	if plan.Shots, err = os.MkdirTemp("", "permesso-browser-"); err == nil {
		t.Cleanup(func() { _ = os.Remove(plan.Shots) }) // fails and keeps the folder if there are screenshots
	}
	require.NoError(t, err)
	if plan.Pictures != "" {
		require.NoError(t, os.MkdirAll(plan.Pictures, 0o755))
	}
	plan.Only = os.Getenv("PERMESSO_BROWSER_ONLY")
	text, err := json.Marshal(plan)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	cmd := osexec.CommandContext(ctx, "node", "--unhandled-rejections=strict", "../../testdata/browser/drive.mjs")
	cmd.Env = append(os.Environ(), "PLAN="+string(text), raceExitsFast)
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe() // the driver exits when stdin closes
	require.NoError(t, err)
	defer stdin.Close()
	cmd.Cancel = stdin.Close
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s%s", &out, &errs)
	n := 0
	lines := bufio.NewScanner(&out)
	lines.Buffer(nil, 1<<20) // findings of axe are long
	for ; lines.Scan(); n++ {
		var o struct {
			Name, Error string
			Notes       []string
			Took        int
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &o), "%s", lines.Text())
		t.Run(o.Name, func(t *testing.T) {
			t.Logf("%d ms %s", o.Took, strings.Join(o.Notes, "; "))
			require.Empty(t, o.Error)
		})
	}
	require.NotZero(t, n, "%s", &errs)
	require.Empty(t, errs.String())
}

// strangeStrings are ours, and those of the corpus if it exists.
func strangeStrings(t *testing.T) (all []string) {
	t.Helper()
	b, err := os.ReadFile("../../testdata/browser/strings.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &all))
	b, err = os.ReadFile("../../../shared/corpora/blns.json")
	if os.IsNotExist(err) && os.Getenv("CI") != "true" {
		return all
	}
	require.NoError(t, err)
	var corpus []string
	require.NoError(t, json.Unmarshal(b, &corpus))
	return append(all, corpus...)
}

// TestBrowser views and decides requests in a real browser.
func TestBrowser(t *testing.T) {
	t.Parallel()
	home := newBrowserGate(t, "home.toml", "home", "crowd", "shut")
	quiet := newBrowserGate(t, "home.toml", "crowd")
	tour := newBrowserGate(t, "tour.toml", "personal", "research")
	pages := newBrowserGate(t, "pages.toml", "work", "next", "sorted", "taints")
	paused := newBrowserGate(t, "pages.toml", "work") // its pause is on the pages of all its workspaces
	runScenarios(t, browserPlan{
		Scenarios: []string{"pages.mjs", "crowd.mjs", "hostile.mjs", "tour.mjs", "dialog.mjs", "decide.mjs"},
		Gates:     map[string]browserGate{"home": home, "quiet": quiet, "tour": tour, "site": pages, "paused": paused},
		Pictures:  os.Getenv("PERMESSO_SCREENSHOTS"),
		Strings:   strangeStrings(t),
	})
}
