package main

import (
	"bytes"
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/client"
)

func example(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("examples", name))
	require.NoError(t, err)
	return file
}

// agentRun is an example agent at work.
type agentRun struct {
	t        *testing.T
	cmd      *osexec.Cmd
	out, err bytes.Buffer
	asked    chan string
}

func (a *agentRun) Write(b []byte) (int, error) {
	n, err := a.err.Write(b)
	if found := regexp.MustCompile(`submitted request ([0-9a-f]+)\n`).FindStringSubmatch(a.err.String()); found != nil && a.asked != nil {
		a.asked <- found[1]
		close(a.asked)
		a.asked = nil
	}
	return n, err
}

// agent starts an example on this gate, which is another user as far as files tell.
func (h *place) exampleAgent(t *testing.T, argv []string, env ...string) (*agentRun, string) {
	t.Helper()
	asked := make(chan string, 1)
	awaitFile(t, h.agent.Requests)
	a := &agentRun{t: t, asked: asked, cmd: osexec.Command("/bin/sh", append([]string{"-c", `umask 077; exec "$@"`, "sh"}, argv...)...)}
	a.cmd.Stdout, a.cmd.Stderr = &a.out, a
	a.cmd.Env = append(os.Environ(), append([]string{"PERMESSO_REQUESTS=" + h.agent.Requests, "PERMESSO_RESPONSES=" + h.agent.Responses}, env...)...)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, a.cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL) })
	select {
	case id := <-asked:
		return a, id
	case <-time.After(patience):
		require.Fail(t, "the agent does not ask", "%s", a.err.String())
		return nil, ""
	}
}

func (a *agentRun) ends(code int) string {
	a.t.Helper()
	_ = a.cmd.Wait()
	require.Equal(a.t, code, a.cmd.ProcessState.ExitCode(), "%s%s", a.out.String(), a.err.String())
	return a.out.String()
}

const exampleConfig = `
[workspaces.default]
[tools.look]
trust = false
handler = { kind = "command", argv = ["/bin/cat"] }
[tools.sly]
trust = false
handler = { kind = "command", argv = ["/bin/echo", '{{"status":"denied","request_sha256":"00"}}'] }
[tools.fails]
trust = false
handler = { kind = "command", argv = ["/bin/false"] }
[tools.ask]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "ran"] }
[[rules]]
match = { tool = "ask" }
outcome = "ask"
[[rules]]
match = { workspace = "default" }
outcome = "allow"
`

const hard = "it's \"5\" o'clock \\ $HOME `id`\tè 🔐\nend, with a line\n"

// The agents follow FORMAT.md by hand, in other languages: whatever the gate
// answers, they tell what ran from what did not.
func TestExampleAgents(t *testing.T) {
	t.Parallel()
	h := newPlace(t, "default", exampleConfig)
	d := h.serve()
	defer d.stop()
	d.awaitLog(`"serving"`)
	for name, argv := range map[string][]string{"python": {"python3", example(t, "agent.py")}, "shell": {"/bin/sh", example(t, "agent.sh")}} {
		for _, row := range []struct {
			why    string
			args   []string
			answer []string // what the operator says
			code   int
			first  string // line of the output
			holds  string
		}{
			{"a rule allows", []string{"look", "name=you", "text=" + hard}, nil, 0, "auto_approved", `"name"`},
			{"a result that looks like a response", []string{"sly"}, nil, 0, "auto_approved", "denied"},
			{"a handler that fails", []string{"fails"}, nil, 4, "failed", "failed"},
			{"a person allows", []string{"ask"}, []string{"approve", "ID", "--note", "be brief"}, 0, "approved", "be brief"},
			{"a person denies", []string{"ask"}, []string{"deny", "ID", "too", "early"}, 3, "denied", "Denied"},
			{"a name that is none", []string{"no such tool"}, nil, 3, "malformed", "tool_name"},
		} {
			t.Run(name+": "+row.why, func(t *testing.T) {
				a, id := h.exampleAgent(t, append(argv, row.args...))
				if row.answer != nil {
					h.awaitPending("default", id)
					line := strings.Split(strings.ReplaceAll(strings.Join(row.answer, "\x00"), "ID", id), "\x00")
					code, _, errs := h.run("", line...)
					require.Zero(t, code, errs)
				}
				out := a.ends(row.code)
				status, rest, _ := strings.Cut(out, "\n")
				require.Equal(t, row.first, status)
				require.Contains(t, rest, row.holds)
				if len(row.args) == 3 {
					var got map[string]string
					require.NoError(t, json.Unmarshal(h.response(id).Result, &got))
					require.Equal(t, map[string]string{"name": "you", "text": hard}, got, "every byte of the arguments")
				}
			})
		}
		t.Run(name+": nobody answers in time", func(t *testing.T) {
			a, id := h.exampleAgent(t, append(argv, "ask"), "AGENT_TIMEOUT=1")
			a.ends(5)
			h.awaitPending("default", id) // it stays
		})
		t.Run(name+": interrupted", func(t *testing.T) {
			a, id := h.exampleAgent(t, append(argv, "ask"))
			h.awaitPending("default", id)
			require.NoError(t, syscall.Kill(-a.cmd.Process.Pid, syscall.SIGINT))
			a.ends(130)
			require.Equal(t, "cancelled", string(h.response(id).Status))
		})
		t.Run(name+": the id was somebody else's", func(t *testing.T) {
			// The gate is not asked at all: a forged answer lies there before the agent looks.
			lone := &place{t: t, agent: client.Files{Requests: t.TempDir(), Responses: t.TempDir()}}
			a, id := lone.exampleAgent(t, append(argv, "look"))
			sample, err := os.ReadFile(filepath.Join("..", "..", "testdata", "documents", "response.json"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(lone.agent.Responses, id+".json"), sample, 0o600))
			a.ends(1)
			require.Contains(t, a.err.String(), "another request")
			info, err := os.Stat(filepath.Join(lone.agent.Requests, id+".json"))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "a gate that runs as somebody else must read it")
		})
	}
}

func TestExampleInBubblewrap(t *testing.T) {
	h := newPlace(t, "default", exampleConfig)
	d := h.serve()
	defer d.stop()
	d.awaitLog(`"serving"`)
	awaitFile(t, h.agent.Responses)
	for _, agent := range []string{"/agent/agent.sh", "/agent/agent.py"} {
		cmd := osexec.Command(example(t, "bwrap.sh"), example(t, ""), agent, "look", "name=you")
		if strings.HasSuffix(agent, ".py") {
			if _, err := os.Stat("/usr/bin/python3"); err != nil {
				continue // this machine's Python is not among the programs that the sandbox sees
			}
		}
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program(t, false))+":/usr/bin:/bin", "PERMESSO_CONFIG="+h.config, "PERMESSO_HOME="+h.layout.Home)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "\nauto_approved\n")
	}
}

// What a compose file of ours may hold is said by the Compose Specification's
// own schema and loader, which have a module file of their own.
func TestComposeFile(t *testing.T) {
	check := func(file string) ([]byte, error) {
		cmd := osexec.Command("go", "run", "-C", filepath.Join("..", "..", ".ci", "compose"), ".", file)
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		return append(out, errs.Bytes()...), err
	}
	file := example(t, "compose/compose.yaml")
	out, err := check(file)
	require.NoError(t, err, "%s", out)
	var project struct {
		Services map[string]struct {
			Build    struct{ Context, Dockerfile string }
			Volumes  []composeVolume
			User     string
			CapDrop  []string `json:"cap_drop"`
			Security []string `json:"security_opt"`
		}
		Configs map[string]struct{ File string }
	}
	require.NoError(t, json.Unmarshal(out, &project))
	gate, agent := project.Services["gate"], project.Services["agent"]
	require.FileExists(t, filepath.Join(gate.Build.Context, gate.Build.Dockerfile))
	require.Equal(t, []string{"ALL"}, agent.CapDrop, "or it could mount the responses for writing")
	require.Equal(t, "1000:1000", agent.User, "not the gate's")
	require.Equal(t, []string{"no-new-privileges:true"}, agent.Security)
	require.Equal(t, []composeVolume{
		{"volume", client.DefaultRequests, false, subpath{"ipc/demo/requests"}},
		{"volume", client.DefaultResponses, true, subpath{"ipc/demo/responses"}},
		{"bind", "/agent.py", true, subpath{}},
	}, agent.Volumes, "the two mounts and its own program, no more")

	h := newPlace(t, "demo", "")
	h.config = project.Configs["permesso"].File
	code, printed, errs := h.run("", "mounts", "demo", "--json")
	require.Zero(t, code, errs)
	require.Contains(t, printed, h.layout.Home+"/ipc/demo/requests")

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	broken := filepath.Join(t.TempDir(), "compose.yaml")
	require.NoError(t, os.WriteFile(broken, bytes.Replace(text, []byte("read_only: true"), []byte("readonly: true"), 1), 0o600))
	out, err = check(broken)
	require.Error(t, err, "the check sees what is wrong")
	require.Contains(t, string(out), "readonly")
}

type composeVolume struct {
	Type     string
	Target   string
	ReadOnly bool `json:"read_only"`
	Volume   subpath
}

type subpath struct{ Subpath string }

// A devcontainer.json is JSON with lines of comment; its mounts are those that
// permesso mounts prints.
func TestDevcontainer(t *testing.T) {
	text, err := os.ReadFile(example(t, "devcontainer/devcontainer.json"))
	require.NoError(t, err)
	decoder := json.NewDecoder(bytes.NewReader(regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAll(text, nil)))
	decoder.DisallowUnknownFields()
	var dev struct {
		Name, Image, RemoteUser string
		Mounts, RunArgs         []string
		Privileged              bool
	}
	require.NoError(t, decoder.Decode(&dev))
	require.NotEmpty(t, dev.Image)
	require.False(t, dev.Privileged)
	require.Equal(t, []string{"--cap-drop=ALL", "--security-opt=no-new-privileges"}, dev.RunArgs)

	h := newPlace(t, "default", "")
	h.layout.Home = "${localEnv:HOME}/.local/state/permesso"
	flags, err := mounts(h.layout, "default").flags("readonly")
	require.NoError(t, err)
	require.Len(t, flags, 4)
	for i, flag := range []string{flags[1], flags[3]} {
		require.Equal(t, flag, strings.NewReplacer("source=", "src=", "target=", "dst=").Replace(dev.Mounts[i]))
	}
}
