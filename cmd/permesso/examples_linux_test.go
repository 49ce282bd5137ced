package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc/client"
)

func example(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("examples", name))
	require.NoError(t, err)
	return file
}

// agentRun is a running example agent.
type agentRun struct {
	t        *testing.T
	cmd      *osexec.Cmd
	out, err bytes.Buffer
	asked    chan string
	wait     sync.Once
	ended    chan struct{}
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

// exampleAgent starts an example with umask 077, as if the daemon ran as another user.
func (h *rig) exampleAgent(t *testing.T, argv []string, env ...string) (*agentRun, string) {
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
	case <-time.After(testTimeout):
		require.Fail(t, "the agent submits no request", "%s", a.err.String())
		return nil, ""
	}
}

// exited is closed when the agent has ended.
func (a *agentRun) exited() <-chan struct{} {
	a.wait.Do(func() {
		a.ended = make(chan struct{})
		go func() {
			_ = a.cmd.Wait()
			close(a.ended)
		}()
	})
	return a.ended
}

func (a *agentRun) awaitExit(code int) string {
	a.t.Helper()
	<-a.exited()
	require.Equal(a.t, code, a.cmd.ProcessState.ExitCode(), "%s%s", a.out.String(), a.err.String())
	return a.out.String()
}

const exampleConfig = `
[workspaces.default]
[tools.look]
args = { name = "text", text = { type = "text", optional = true } }
trust = false
handler = { kind = "command", argv = ["/bin/cat"] }
[tools.sly]
trust = false
handler = { kind = "command", argv = ["/bin/echo", '{{"status":"denied","request_sha256":"00"}'] }
[tools.lines]
trust = false
handler = { kind = "command", argv = ["/bin/echo", """{{"items":[
{{"status":"denied","request_sha256":"00"},
{{"name":"a","status":"done"}
]}"""] }
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

const hard = "lines\r\nit's \"5\" o'clock \\ $HOME `id`\tè 🔐\nend, with a line\n"

// The example agents implement FORMAT.md in other languages. For every response
// they must tell whether the action ran.
func TestExampleAgents(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", exampleConfig)
	d := h.serve()
	defer d.stop()
	d.awaitLog(`"serving"`)
	for name, argv := range map[string][]string{
		"python": {"python3", example(t, "agent.py")},
		"dash":   {"dash", example(t, "agent.sh")},
		"bash":   {"bash", example(t, "agent.sh")},
	} {
		for _, row := range []struct {
			why    string
			args   []string
			answer []string // the operator's command
			code   int
			first  string // first line of the output
			holds  string
		}{
			{"allowed by a rule", []string{"look", "name=you", "text=" + hard}, nil, 0, "auto_approved", `"name"`},
			{"a result that looks like a response", []string{"sly"}, nil, 0, "auto_approved", `{"status"`},
			{"a result of several lines that look like responses", []string{"lines"}, nil, 0, "auto_approved", `"status":`},
			{"a handler that fails", []string{"fails"}, nil, 4, "failed", "failed"},
			{"approved by a person", []string{"ask"}, []string{"approve", "ID", "--note", "be brief"}, 0, "approved", "be brief"},
			{"denied by a person", []string{"ask"}, []string{"deny", "ID", "too", "early"}, 3, "denied", "Denied"},
			{"an invalid tool name", []string{"no such tool"}, nil, 3, "malformed", "tool_name"},
		} {
			t.Run(name+": "+row.why, func(t *testing.T) {
				a, id := h.exampleAgent(t, append(argv, row.args...))
				if row.answer != nil {
					h.awaitPending("default", id)
					line := strings.Split(strings.ReplaceAll(strings.Join(row.answer, "\x00"), "ID", id), "\x00")
					code, _, errs := h.run("", line...)
					require.Zero(t, code, errs)
				}
				out := a.awaitExit(row.code)
				status, rest, _ := strings.Cut(out, "\n")
				require.Equal(t, row.first, status)
				require.Contains(t, rest, row.holds)
				require.Equal(t, name != "python", json.Valid([]byte(rest)), rest)
				if len(row.args) == 3 {
					var got map[string]string
					require.NoError(t, json.Unmarshal(h.response(id).Result, &got))
					require.Equal(t, map[string]string{"name": "you", "text": hard}, got, "every byte of the arguments")
				}
			})
		}
		t.Run(name+": no decision in time", func(t *testing.T) {
			a, id := h.exampleAgent(t, append(argv, "ask"), "AGENT_TIMEOUT=1")
			a.awaitExit(5)
			h.awaitPending("default", id) // it stays pending
		})
		for _, row := range []struct{ why, arg, timeout, says string }{
			{"a timeout that is no number of seconds", "name=you", "5m", "AGENT_TIMEOUT"},
			{"a control character", "name=\x1b[2J", "60", "control character"},
		} {
			if name == "python" && row.arg != "name=you" {
				continue // its JSON has an escape for each
			}
			t.Run(name+": "+row.why, func(t *testing.T) {
				cmd := osexec.Command(argv[0], append(argv[1:], "look", row.arg)...)
				folder := t.TempDir()
				cmd.Env = append(os.Environ(), "PERMESSO_REQUESTS="+folder, "PERMESSO_RESPONSES="+folder, "AGENT_TIMEOUT="+row.timeout)
				out, _ := cmd.CombinedOutput()
				require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
				require.Contains(t, string(out), row.says)
				entries, err := os.ReadDir(folder)
				require.NoError(t, err)
				require.Empty(t, entries, "nothing is submitted")
			})
		}
		for _, status := range []string{`"status":"other",`, ""} {
			t.Run(name+": a status that it does not know: "+status, func(t *testing.T) {
				alone := &rig{t: t, agent: client.Files{Requests: t.TempDir(), Responses: t.TempDir()}}
				a, id := alone.exampleAgent(t, append(argv, "look"))
				writeFile(t, filepath.Join(alone.agent.Responses, id+".json"), `{"request_sha256":"`+alone.requestDigest(id)+`",`+status+`"result":null,"error":null,"decision":{"note":null}}`, 0o600)
				a.awaitExit(4)
			})
		}
		t.Run(name+": interrupted", func(t *testing.T) {
			a, id := h.exampleAgent(t, append(argv, "ask"))
			h.awaitPending("default", id)
			require.NoError(t, syscall.Kill(-a.cmd.Process.Pid, syscall.SIGINT))
			a.awaitExit(130)
			require.Equal(t, "cancelled", string(h.response(id).Status))
		})
		t.Run(name+": the response is for another request", func(t *testing.T) {
			// No daemon runs: a forged response exists before the agent reads.
			alone := &rig{t: t, agent: client.Files{Requests: t.TempDir(), Responses: t.TempDir()}}
			a, id := alone.exampleAgent(t, append(argv, "look"))
			sample, err := os.ReadFile(filepath.Join("..", "..", "testdata", "documents", "response.json"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(alone.agent.Responses, id+".json"), sample, 0o600))
			a.awaitExit(1)
			require.Contains(t, a.err.String(), "another request")
			info, err := os.Stat(filepath.Join(alone.agent.Requests, id+".json"))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "a daemon under another UID must be able to read it")
		})
	}
}

// tick is a folder for PATH with a sleep that waits for the test. next waits until the agent is about to sleep, that is,
// has read what was there, does something, and wakes it; it fails if the agent ends instead.
func tick(t *testing.T) (path string, next func(a *agentRun, do func()) error) {
	t.Helper()
	path = t.TempDir()
	asleep, wake := filepath.Join(path, "asleep"), filepath.Join(path, "wake")
	require.NoError(t, syscall.Mkfifo(asleep, 0o600))
	require.NoError(t, syscall.Mkfifo(wake, 0o600))
	script := "#!/bin/sh\necho asleep >'" + asleep + "'\nread -r line <'" + wake + "'\n"
	require.NoError(t, os.WriteFile(filepath.Join(path, "sleep"), []byte(script), 0o700))
	return path, func(a *agentRun, do func()) error {
		told := make(chan error, 1)
		go func() {
			_, err := os.ReadFile(asleep) // waits for the writer, and for its end
			told <- err
		}()
		select {
		case err := <-told:
			do()
			return errors.Join(err, os.WriteFile(wake, []byte("wake\n"), 0o600))
		case <-a.exited():
			return errors.New("the agent ended")
		case <-time.After(testTimeout):
			return errors.New("the agent neither sleeps nor ends")
		}
	}
}

// A power cut can leave any prefix of a response, or zeros. The shell agent waits for the rest, wherever it was torn.
func TestExampleAgentAwaitsATornResponse(t *testing.T) {
	t.Parallel()
	for name, shell := range map[string]string{"dash": "dash", "bash": "bash", "with busybox's programs": "dash"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, next := tick(t)
			if name != shell {
				busybox, err := osexec.LookPath("busybox")
				require.NoError(t, err)
				for _, program := range []string{"sed", "tr", "cat"} {
					require.NoError(t, os.Symlink(busybox, filepath.Join(path, program)))
				}
			}
			alone := &rig{t: t, agent: client.Files{Requests: t.TempDir(), Responses: t.TempDir()}}
			a, id := alone.exampleAgent(t, []string{shell, example(t, "agent.sh"), "look"}, "PATH="+path+":"+os.Getenv("PATH"), "AGENT_TIMEOUT=100000")
			compact := `{"version":1,"request_id":"` + id + `","request_sha256":"` + alone.requestDigest(id) +
				`","status":"approved","result":{"a":{"b":"}\\\"}"},"c":[{}],"d":"\\"},"error":null,"note":"}{\"","responded_at":"2026-11-21T12:00:00Z"}`
			var text bytes.Buffer
			require.NoError(t, json.Indent(&text, []byte(compact), "", "  "))
			whole := text.String()
			temporary := filepath.Join(t.TempDir(), "response")
			put := func(text string) error {
				return next(a, func() {
					require.NoError(t, os.WriteFile(temporary, []byte(text), 0o600))
					require.NoError(t, os.Rename(temporary, filepath.Join(alone.agent.Responses, id+".json")))
				})
			}
			require.NoError(t, put("\x00\x00")) // as a file whose content the disk does not have yet
			require.NoError(t, put(strings.Replace(whole, "2026-11", "\x00\x00\x00\x00\x00\x00\x00", 1)), "zeros")
			for length := range whole {
				require.NoError(t, put(whole[:length]), "ended at\n%s", whole[:max(0, length-1)])
			}
			require.NoError(t, put(whole+"\n"))
			status, rest, _ := strings.Cut(a.awaitExit(0), "\n")
			require.Equal(t, "approved", status)
			require.JSONEq(t, whole, rest)
		})
	}
}

// requestDigest is the digest of a request's bytes.
func (h *rig) requestDigest(id string) string {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(h.agent.Requests, id+".json"))
	require.NoError(h.t, err)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// A response that was torn within a character, or is zeros, is one that Python cannot even decode.
func TestExampleAgentInPythonAwaitsATornResponse(t *testing.T) {
	t.Parallel()
	for why, text := range map[string]string{"within a character": "{\"a\":\"\xf0\x9f", "zeros": strings.Repeat("\x00", 4095), "zeros in it": "{" + strings.Repeat("\x00", 4096)} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			alone := &rig{t: t, agent: client.Files{Requests: t.TempDir(), Responses: t.TempDir()}}
			a, id := alone.exampleAgent(t, []string{"python3", example(t, "agent.py"), "look"}, "AGENT_TIMEOUT=1")
			writeFile(t, filepath.Join(alone.agent.Responses, id+".json"), text, 0o600)
			a.awaitExit(5)
			require.Contains(t, a.err.String(), "timeout waiting for the response")
		})
	}
}

func TestExampleInBubblewrap(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", exampleConfig)
	d := h.serve()
	defer d.stop()
	d.awaitLog(`"serving"`)
	awaitFile(t, h.agent.Responses)
	for agent, shell := range map[string]string{"/agent/agent.sh": "bash", "/agent/agent.py": "dash"} {
		cmd := osexec.Command(shell, example(t, "bwrap.sh"), example(t, ""), agent, "look", "name=you")
		if strings.HasSuffix(agent, ".py") {
			if _, err := os.Stat("/usr/bin/python3"); err != nil {
				continue // the sandbox shows only /usr/bin, and Python is elsewhere on this machine
			}
		}
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program(t, false))+":/usr/bin:/bin", "PERMESSO_CONFIG="+h.config, "PERMESSO_HOME="+h.layout.Home)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "\nauto_approved\n")
		require.NotContains(t, string(out), "bwrap:")
	}
	cmd := osexec.Command("dash", example(t, "bwrap.sh"), example(t, ""))
	out, _ := cmd.CombinedOutput()
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
	require.Equal(t, "usage: bwrap.sh FOLDER COMMAND ...\n", string(out))
}

// Every shell example is valid for dash and bash, and has no error that shellcheck finds.
func TestShellExamplesAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(example(t, "*.sh"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	commands := [][]string{{"dash", "-n"}, {"bash", "--posix", "-n"}, {"shellcheck", "-s", "sh"}}
	for _, file := range files {
		for _, argv := range commands {
			out, err := osexec.Command(argv[0], append(argv[1:], file)...).CombinedOutput()
			require.NoError(t, err, "%s %s\n%s", argv, file, out)
		}
	}
}

const promptConfig = `listen = ["127.0.0.1:0"]
[workspaces.default]
[tools.x_post]
args = { text = "text" }
trust = false
handler = { kind = "command", argv = ["/bin/sh", "-c", """printf '{{"outcome":null,\n"approval_id":"zzz","got":'; cat; echo '}'"""] }
[[rules]]
match = { workspace = "default" }
outcome = "allow"
`

// The page for an agent's prompt is what mounts --prompt prints. Every snippet in it works in
// dash and bash against a real gate, and the program's over both the folders and HTTP.
func TestAgentPrompt(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", promptConfig)
	d := h.serve()
	d.awaitLog(`"serving"`)
	d.awaitLog("HTTP API listening")
	found := listenPattern.FindStringSubmatch(d.logged())
	require.NotNil(t, found, d.logged())
	code, key, errs := h.run("", "key", "create", "default")
	require.Zero(t, code, errs)
	awaitFile(t, h.agent.Responses)
	page, err := os.ReadFile(example(t, "AGENT.md"))
	require.NoError(t, err)
	require.Less(t, bytes.Count(page, []byte("\n")), 60)
	code, printed, errs := h.run("", "mounts", "default", "--prompt")
	require.Zero(t, code, errs)
	require.Equal(t, string(page)+"\n## The tools\n\n- `x_post`: text (text)\n", printed)

	path := "PATH=" + filepath.Dir(program(t, false)) + ":" + os.Getenv("PATH")
	folders := []string{path, "PERMESSO_REQUESTS=" + h.agent.Requests, "PERMESSO_RESPONSES=" + h.agent.Responses}
	overHTTP := []string{path, "PERMESSO_URL=http://" + found[1], "PERMESSO_KEY=" + strings.TrimSpace(key)}
	id := func(env []string) string { // of a request of the same client
		cmd := osexec.Command(program(t, false), "request", "x_post", "--arg", "text=a", "--json")
		cmd.Env = env
		out, err := cmd.Output()
		require.NoError(t, err)
		var asked struct {
			ID string `json:"request_id"`
		}
		require.NoError(t, json.Unmarshal(out, &asked), "%s", out)
		return asked.ID
	}
	snippets := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, snippets, 5)
	for i, row := range []struct {
		ways  [][]string
		holds string
	}{
		{[][]string{folders, overHTTP}, `{"text":"Meeting at 5"}`},
		{[][]string{folders, overHTTP}, `{"text":"a"}`},
		{[][]string{folders, overHTTP}, `{"answer":"next"}`},
		{[][]string{folders}, `{"text":"C:\\new\n\"5\""}`}, // its backslashes arrive, also if dash prints it
		{[][]string{overHTTP}, `{"text":"C:\\new\n\"5\""}`},
	} {
		if i >= 3 {
			require.Contains(t, snippets[i][1], `{"text":"Meeting at 5"}`)
			snippets[i][1] = strings.ReplaceAll(snippets[i][1], `{"text":"Meeting at 5"}`, row.holds)
		}
		for _, shell := range []string{"dash", "bash"} {
			for _, env := range row.ways {
				cmd := osexec.Command(shell, "-ec", snippets[i][1])
				cmd.Env = env
				if strings.Contains(snippets[i][1], `wait "$id"`) {
					cmd.Env = append(cmd.Env, "id="+id(env))
				}
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				require.NoError(t, cmd.Start())
				if strings.Contains(row.holds, "answer") {
					h.answerNext("next")
				}
				require.NoError(t, cmd.Wait(), "%s", out.String())
				require.Contains(t, out.String(), row.holds, "%s\n%s", shell, snippets[i][1])
			}
		}
	}
}

// answerNext answers the one pending question.
func (h *rig) answerNext(text string) {
	h.t.Helper()
	var id string
	await(h.t, h.layout.Pendings("default"), func() bool {
		files, _ := filepath.Glob(filepath.Join(h.layout.Pendings("default"), "*.json")) // the pattern is valid
		if len(files) == 1 {
			id = strings.TrimSuffix(filepath.Base(files[0]), ".json")
		}
		return len(files) == 1
	})
	code, out, errs := h.run(`{"request_id":"`+id+`","verdict":"answered","answer":"`+text+`"}`, "decide", "--stdin")
	require.Zero(h.t, code, out+errs)
}

// The Compose Specification's own schema and loader check our compose file. They
// have their own module file.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	check := func(file string) (out, errs []byte, err error) {
		cmd := osexec.Command("go", "run", "-C", filepath.Join("..", "..", ".ci", "compose"), ".", file)
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly")
		var b bytes.Buffer
		cmd.Stderr = &b
		out, err = cmd.Output()
		return out, b.Bytes(), err
	}
	file := example(t, "compose/compose.yaml")
	out, wrong, err := check(file)
	require.NoError(t, err, "%s%s", out, wrong)
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
	require.Equal(t, []string{"ALL"}, agent.CapDrop, "else it could remount the responses for writing")
	require.Equal(t, "1000:1000", agent.User, "not the UID of the daemon")
	require.Equal(t, []string{"no-new-privileges:true"}, agent.Security)
	require.Equal(t, []composeVolume{
		{"volume", client.DefaultRequests, false, subpath{"ipc/demo/requests"}},
		{"volume", client.DefaultResponses, true, subpath{"ipc/demo/responses"}},
		{"bind", "/agent.py", true, subpath{}},
	}, agent.Volumes, "only the two mounts and its program")

	h := newRig(t, "demo", "")
	h.config = project.Configs["permesso"].File
	code, printed, errs := h.run("", "mounts", "demo", "--json")
	require.Zero(t, code, errs)
	require.Contains(t, printed, h.layout.Home+"/ipc/demo/requests")

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	broken := filepath.Join(t.TempDir(), "compose.yaml")
	require.NoError(t, os.WriteFile(broken, bytes.Replace(text, []byte("read_only: true"), []byte("readonly: true"), 1), 0o600))
	_, wrong, err = check(broken)
	require.Error(t, err, "the check finds errors")
	require.Contains(t, string(wrong), "readonly")
}

type composeVolume struct {
	Type     string
	Target   string
	ReadOnly bool `json:"read_only"`
	Volume   subpath
}

type subpath struct{ Subpath string }

// A devcontainer.json is JSON with comment lines. Its mounts must equal the output
// of permesso mounts.
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

	h := newRig(t, "default", "")
	h.layout.Home = "${localEnv:HOME}/.local/state/permesso"
	flags, err := sandbox.Mounts(h.layout, "default").Flags("readonly")
	require.NoError(t, err)
	require.Len(t, flags, 4)
	for i, flag := range []string{flags[1], flags[3]} {
		require.Equal(t, flag, strings.NewReplacer("source=", "src=", "target=", "dst=").Replace(dev.Mounts[i]))
	}
}
