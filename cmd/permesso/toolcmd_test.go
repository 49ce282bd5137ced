package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

const growConfig = `# mine
[workspaces.default]   # the first
approval_timeout = "10m"
[tools.old]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "old"] }
`

// requireConfig requires a configuration's text, and that no other file is beside it.
func (h *rig) requireConfig(want string) {
	h.t.Helper()
	b, err := os.ReadFile(h.config)
	require.NoError(h.t, err)
	require.Equal(h.t, want, string(b))
	left, err := filepath.Glob(filepath.Join(h.dir, ".*"))
	require.NoError(h.t, err)
	require.Empty(h.t, left)
}

const addedNote = `
[tools.note]
capability = "code:exec"
action_type = "custom:note"
verb = "note"
summary = "{text}"
args = { more = { type = "text", optional = true }, text = "text" }
handler = { kind = "command", argv = ["/bin/echo", "noted", "--", "{text}"], timeout = "20s" }
`

func addNote(name string) []string {
	return []string{"tool", "add", name, "--yes", "--command", "/bin/echo noted -- {text}", "--stdin", "more=text?", "--timeout", "20s"}
}

// tool add appends a section and keeps all else, also the mode; a running daemon loads it, and
// an agent's request for it asks.
func TestToolAdd(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	require.NoError(t, os.Chmod(h.config, 0o640))
	d := h.serve()
	d.awaitLog(`"serving"`)
	code, out, errs := h.run("", addNote("note")...)
	require.Zero(t, code, errs)
	h.requireConfig(growConfig + addedNote)
	info, err := os.Stat(h.config)
	require.NoError(t, err)
	require.EqualValues(t, 0o640, info.Mode())
	require.Contains(t, out, "added   tool note to "+h.config+"\nthe running daemon has loaded it\n")
	require.Contains(t, out, "The card for such a request in workspace default:\n\n  🔐 May I note?")
	require.Contains(t, out, "runs: /bin/echo\n  │ noted\n  │ --\n  │ example\n")
	require.Contains(t, out, "ask by table")
	require.NotContains(t, out, "ran:", "--yes runs nothing")
	id := h.ask(`{"tool_name":"note","request_data":{"text":"x"}}`)
	h.awaitPending("default", id)
	code, _, errs = h.run("", "approve", id)
	require.Zero(t, code, errs)
	require.JSONEq(t, `{"output":"noted -- x\n"}`, string(h.response(id).Result))

	code, _, errs = h.run("", addNote("note")...)
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "tool 'note' already exists in "+h.config+"\nhint: permesso config edit changes it")
	d.stop()
	code, out, errs = h.run("", addNote("note2")...)
	require.Zero(t, code, errs)
	require.Contains(t, out, "no daemon runs in "+h.layout.Home+": permesso serve")
}

// What cannot be added changes nothing, and says what to do.
func TestToolAddRefuses(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	for _, row := range []struct {
		why, says string
		args      []string
	}{
		{"neither a command nor a URL", "needs --command or --url", nil},
		{"both", "needs --command or --url", []string{"--command", "true", "--url", "https://example.org/"}},
		{"a shell's line", "no shell runs", []string{"--command", "echo {text} | mail ann"}},
		{"a variable", "no shell runs", []string{"--command", "echo $HOME"}},
		{"no such program", "executable file not found", []string{"--command", "no-such-program-here"}},
		{"an unknown type", "use one of text, number", []string{"--command", "echo {text}", "--arg", "text=string"}},
		{"a type of no field", `hint: an argument that is not in the template is --stdin cc=text`, []string{"--command", "echo {text}", "--arg", "cc=text"}},
		{"an optional field", "no request may leave it out", []string{"--command", "echo {text}", "--arg", "text=text?"}},
		{"a field on standard input", "is in the template already", []string{"--command", "echo {text}", "--stdin", "text=text"}},
		{"no type", `"text" is not NAME=TYPE`, []string{"--command", "echo {text}", "--arg", "text"}},
		{"an unknown capability", "\"fs:remove\" is not a capability", []string{"--command", "echo {text}", "--capability", "fs:remove"}},
		{"an unknown workspace", "no workspace", []string{"--command", "echo {text}", "--workspace", "other"}},
		{"an action type of none", "not a type of an action", []string{"--command", "echo {text}", "--action-type", "post"}},
		{"a summary of another field", "{board} is not an argument", []string{"--command", "echo {text}", "--summary", "to {board}"}},
		{"a secret", "a secret belongs neither", []string{"--command", "echo ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"}},
		{"a secret in a header", "a secret belongs neither", []string{"--url", "https://example.org/", "--secret-header", "Authorization=Bearer ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"}},
		{"arguments that do not fit", `--try takes the arguments`, []string{"--command", "echo {text}", "--try", `{"text":7}`}},
		{"no JSON", `--try takes the arguments`, []string{"--command", "echo {text}", "--try", `text`}},
		{"two bodies", "--stdin sends the request's data", []string{"--url", "https://example.org/", "--body", `{"a":{a}}`, "--stdin", "b=text"}},
	} {
		code, out, errs := h.run("", append([]string{"tool", "add", "new", "--yes"}, row.args...)...)
		require.Contains(t, []int{console.ExitUsage, console.ExitError}, code, row.why)
		require.Contains(t, errs, row.says, row.why)
		require.Contains(t, errs, "hint: ", row.why)
		require.NotContains(t, out+errs, "A1b2C3", row.why)
		h.requireConfig(growConfig)
	}
	code, _, errs := h.run("", "tool", "add", "a b", "--yes", "--command", "true")
	require.Equal(t, console.ExitUsage, code)
	require.Contains(t, errs, "not a valid tool name")
}

// --print shows what would be written, and is a part of the file.
func TestToolAddPrint(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	code, out, errs := h.run("", "tool", "add", "note", "--print", "--command", "/bin/echo noted -- {text}", "--stdin", "more=text?", "--timeout", "20s")
	require.Zero(t, code, errs)
	require.Equal(t, strings.TrimPrefix(addedNote, "\n"), out)
	h.requireConfig(growConfig)
}

// --try runs the handler once before the tool is written: as the gate would, without a shell,
// in a folder of its own. If it fails, nothing is written.
func TestToolAddTry(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	script := h.script("post", `pwd >"$0.dir"; echo "$PERMESSO_WORKSPACE $1"; cat; exit ${2:-0}`)
	code, out, errs := h.run("", "tool", "add", "post", "--yes", "--json", "--command", script+" {text}",
		"--stdin", "to=recipients", "--try", `{"text":"$HOME","to":"ann@example.org"}`)
	require.Zero(t, code, errs)
	var got setup.ToolResult
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.JSONEq(t, `{"output":"default $HOME\n{\"text\":\"$HOME\",\"to\":\"ann@example.org\"}"}`, string(got.Trial.Result))
	require.Equal(t, approval.Ask, got.Ruling.Outcome)
	require.Equal(t, h.config, got.Config)
	dir, err := os.ReadFile(script + ".dir")
	require.NoError(t, err)
	require.NoDirExists(t, strings.TrimSpace(string(dir)))
	h.requireConfig(growConfig + "\n" + got.Lines)

	code, out, errs = h.run("", "tool", "add", "fails", "--yes", "--command", script+" {text} 3", "--try", `{"text":"x"}`)
	require.Equal(t, console.ExitFailed, code)
	require.Contains(t, out, "failed: ")
	require.Contains(t, errs, "the trial failed\nhint: nothing was written")
	h.requireConfig(growConfig + "\n" + got.Lines)
}

func TestToolAddURL(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("a-token-of-the-server\n"), 0o600))
	host := strings.TrimPrefix(server.URL, "http://")
	code, out, errs := h.run("", "tool", "add", "board", "--yes", "--url", server.URL+"/v1/{board}", "--stdin", "text=text",
		"--secret-header", "Authorization=Bearer "+token, "--allow-private", host, "--try", `{"board":"team","text":"Hi"}`)
	require.Zero(t, code, errs+out)
	require.Equal(t, []string{"POST /v1/team Bearer a-token-of-the-server"}, seen)
	require.NotContains(t, out+errs, "a-token-of-the-server")
	h.requireConfig(growConfig + `
[tools.board]
capability = "network:http"
action_type = "http_request"
verb = "board"
summary = "{board}, {text}"
args = { board = "text", text = "text" }
handler = { kind = "http", method = "POST", url = "` + server.URL + `/v1/{board}", body_args = true, ` +
		`secret_headers = { Authorization = "Bearer ` + token + `" }, allow_private = ["` + host + `"] }
`)
}

// Where the sample arguments do not fit, or this host lacks something, there is no card, and
// the tool is written all the same: it says so.
func TestToolAddWithoutACard(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	code, out, errs := h.run("", "tool", "add", "get", "--yes", "--url", "https://example.org/{file}")
	require.Zero(t, code, errs)
	require.Contains(t, errs, "no card for the arguments {\"file\":\"/tmp/example\"}: ")
	require.Contains(t, errs, "hint: --try JSON shows one")
	require.Contains(t, out, "added   tool get")
	code, out, errs = h.run("", "tool", "add", "put", "--yes", "--url", "https://example.org/", "--secret-header", "Authorization=Bearer /no/such/token")
	require.Zero(t, code, errs)
	require.Contains(t, out, "none: ")
	require.Contains(t, out, "/no/such/token")
	require.Contains(t, out, "added   tool put")
}
