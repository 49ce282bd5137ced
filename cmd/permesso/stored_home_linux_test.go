package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// storedHome is a home with a document of each kind, written by the program of
// 2026-11-22. It is never written again: a later program must read it.
const storedHome = "../../testdata/documents/home-2026-11-22.txtar"

// What the names of files in it say of their content.
const noNewline, inBase64 = " (no newline at its end)", " (base64)"

// The requests in the stored home, by what they left there.
const (
	storedPending  = "a1a1a1a1a1a1a1a1" // P, and a sent record of Telegram
	storedApproved = "b2b2b2b2b2b2b2b2" // C and S, and an audit entry for each step
	storedDecided  = "c3c3c3c3c3c3c3c3" // P and D: paused before it could run
	storedStarted  = "d4d4d4d4d4d4d4d4" // R: the daemon was killed while it ran
	storedRequest  = "e5e5e5e5e5e5e5e5" // Q, submitted while no daemon ran
)

const storedConfig = `listen = ""
ui = false
[approvers.ann]
telegram = 1001
[workspaces.default]
approvers = ["ann"]
channels = ["telegram"]
approval_timeout = "8784h"
approval_timeout_max = "8784h"
[workspaces.held]
approval_timeout = "8784h"
approval_timeout_max = "8784h"
[tools.say]
verb = "say"
summary = "{text}"
action_type = "send_message"
territory = "permanent"
` + noTrust + `handler = { kind = "command", argv = ["/bin/echo", "said"] }
[tools.slow]
` + noTrust + `handler = { kind = "command", argv = ["/bin/sleep", "600"], timeout = "15m" }
[[rules]]
match = { tool = "say" }
outcome = "ask"
[retention]
responses = "36600d"
records = "36600d"
[channels.telegram]
server_url = "%s"
token_file = "%s"
`

func newStoredRig(t *testing.T) (*rig, *botapi.Server) {
	t.Helper()
	api := botapi.Start(t)
	api.AddUser(botapi.User{ID: ann, FirstName: "Ann"})
	api.Say(ann, ann, "/start")
	h := newRig(t, "default", "")
	token := filepath.Join(h.dir, "token")
	require.NoError(t, os.WriteFile(token, []byte(botapi.Token+"\n"), 0o600))
	require.NoError(t, os.WriteFile(h.config, fmt.Appendf(nil, storedConfig, api.URL, token), 0o600))
	return h, api
}

func (h *rig) must(args ...string) string {
	h.t.Helper()
	code, out, errs := h.run("", args...)
	require.Equal(h.t, console.ExitOK, code, "%v: %s", args, errs)
	return out
}

// unpackHome writes the stored home to the rig's.
func (h *rig) unpackHome() {
	h.t.Helper()
	a, err := txtar.ParseFile(storedHome)
	require.NoError(h.t, err)
	for _, f := range a.Files {
		name, open := strings.CutSuffix(f.Name, noNewline)
		name, binary := strings.CutSuffix(name, inBase64)
		file := filepath.Join(h.layout.Home, name)
		require.NoError(h.t, os.MkdirAll(filepath.Dir(file), 0o700))
		data := f.Data
		if open || binary {
			data = bytes.TrimSuffix(data, []byte("\n"))
		}
		if binary {
			data, err = base64.StdEncoding.DecodeString(string(data))
			require.NoError(h.t, err)
		}
		require.NoError(h.t, os.WriteFile(file, data, 0o600))
	}
	require.NoError(h.t, os.Chmod(h.layout.Responses("default"), 0o755))
	require.NoError(h.t, filepath.WalkDir(h.layout.Responses("default"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chmod(path, 0o644)
		}
		return err
	}))
}

// Every kind of document of an earlier program is read, and its requests end as
// they would have ended.
func TestStoredHomeIsRead(t *testing.T) {
	t.Parallel()
	h, api := newStoredRig(t)
	if os.Getenv("PERMESSO_STORE_HOME") != "" {
		storeHome(t, h, api)
		return
	}
	h.unpackHome()
	for _, row := range []struct {
		kind string
		args []string
		want string
	}{
		{"pending", []string{"show", storedPending, "--json"}, `"tool_name":"say"`},
		{"record", []string{"show", storedApproved, "--json"}, `"status":"approved"`},
		{"decision in the record", []string{"show", storedApproved, "--json"}, `"verdict":"approved"`},
		{"response in the record", []string{"show", storedApproved, "--json"}, `said\n`},
		{"receipt", []string{"show", storedApproved, "--json"}, "permesso receipt v1"},
		{"pause", []string{"status", "--json"}, `"workspace":"held"`},
		{"API key", []string{"key", "list", "--json"}, `"name":"stored"`},
		{"audit entries and checkpoints", []string{"audit", "verify"}, "OK: "},
		{"audit entry", []string{"audit", "tail", "--json", "-n", "1000"}, `"event":"approved"`},
	} {
		require.Contains(t, h.must(row.args...), row.want, row.kind)
	}
	h.must("resume", "held")
	d := h.serve()
	d.awaitLog(`"serving"`)
	require.Contains(t, d.logged(), "grant of an earlier version revoked")
	require.Contains(t, h.must("audit", "tail", "--json", "-n", "1000"), `"by":"permesso: of an earlier version"`)
	for id, status := range map[string]approval.Status{storedApproved: approval.StatusApproved, storedStarted: approval.StatusInterrupted} {
		require.Equal(t, status, h.response(id).Status, id)
	}
	h.awaitPending("default", storedRequest)
	h.agent.Requests, h.agent.Responses = h.layout.Requests("held"), h.layout.Responses("held")
	r := h.response(storedDecided)
	require.Equal(t, approval.StatusExpired, r.Status)
	require.Contains(t, *r.Error, "approved in time")

	// The request with a sent record gets a reminder, but no second card: the card of a
	// later request comes first.
	h.agent.Requests, h.agent.Responses = h.layout.Requests("default"), h.layout.Responses("default")
	later := h.ask(`{"tool_name":"say","request_data":{"text":"later"},"session_id":"other"}`)
	b := &botRig{h, api}
	b.card(later)
	for _, m := range api.State().FromBot(ann) {
		again := strings.Contains(m.Text, approval.ShortID(storedPending)) && len(m.Buttons()) > 0
		require.False(t, again, "it was sent again: %s", m.Text)
	}

	// The first version did not store what would run, so no card shows it.
	require.Contains(t, h.must("show", storedPending), "May I say?")
	code, _, errs := h.run("", "approve", storedPending, "--seen", digestOf(h.layout, storedPending))
	require.Equal(t, console.ExitFailed, code, errs)
	r = h.response(storedPending)
	require.Equal(t, approval.StatusFailed, r.Status)
	require.Equal(t, "the tool changed, ask again", *r.Error)
	h.giveAnew(d.logged())
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"say","request_data":{"text":"anew"}}`)).Status)
	d.stop()
	for line := range strings.Lines(d.logged()) {
		// This fake Telegram does not have the card of the stored one.
		require.True(t, !strings.Contains(line, `"level":"error"`) || strings.Contains(line, "message to edit not found"), line)
	}
}

// giveAnew runs the commands that the log names for the grants of an earlier version, as
// they are printed.
func (h *rig) giveAnew(log string) {
	h.t.Helper()
	n := 0
	for line := range strings.Lines(log) {
		var entry struct{ Anew string }
		if json.Unmarshal([]byte(line), &entry) != nil || !strings.HasPrefix(entry.Anew, "permesso ") {
			continue
		}
		cmd := osexec.Command("sh", "-ec", entry.Anew)
		cmd.Env = append(os.Environ(), "PATH="+scriptBin(h.t)+":"+os.Getenv("PATH"),
			"PERMESSO_HOME="+h.layout.Home, "PERMESSO_CONFIG="+h.config)
		out, err := cmd.CombinedOutput()
		require.NoError(h.t, err, "%s: %s", entry.Anew, out)
		n++
	}
	require.NotZero(h.t, n, log)
	require.Contains(h.t, h.must("grants", "--json"), `"state":"active"`)
}

// storeHome writes a new home of this kind.
func storeHome(t *testing.T, h *rig, api *botapi.Server) {
	b := &botRig{h, api}
	d := h.serve()
	d.awaitLog(`"serving"`)
	submit := func(ws, id, body string) {
		require.NoError(t, os.WriteFile(filepath.Join(h.layout.Requests(ws), id+".json"), []byte(strings.Replace(body, "{", `{"request_id":"`+id+`",`, 1)), 0o644))
	}
	say := func(text string) string { return fmt.Sprintf(`{"tool_name":"say","request_data":{"text":%q}}`, text) }
	submit("default", storedPending, say("one"))
	b.card(storedPending)
	awaitFile(t, filepath.Join(h.layout.Sent("telegram", "default"), storedPending+".json"))
	submit("default", storedApproved, say("two"))
	h.awaitPending("default", storedApproved)
	h.must("approve", storedApproved, "--always")
	require.Equal(t, approval.StatusApproved, h.response(storedApproved).Status)
	h.must("key", "create", "default", "--name", "stored")
	submit("held", storedDecided, say("three"))
	h.awaitPending("held", storedDecided)
	h.must("pause", "held", "--reason", "stored")
	h.must("approve", "held/"+storedDecided)
	submit("default", storedStarted, `{"tool_name":"slow"}`)
	awaitFile(t, filepath.Join(h.layout.Receipts("default"), storedStarted+".json"))
	d.kill()
	submit("default", storedRequest, say("four"))
	a := &txtar.Archive{Comment: []byte("A home with a document of each kind. Its keys protect nothing.\n")}
	skip := regexp.MustCompile(`^(lock|health\.json|run/.*|.*\.lock)$`)
	require.NoError(t, filepath.WalkDir(h.layout.Home, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, h.layout.Home+"/")
		if err != nil || !e.Type().IsRegular() || skip.MatchString(name) {
			return err
		}
		data, err := os.ReadFile(path)
		switch {
		case !utf8.Valid(data):
			name, data = name+inBase64, []byte(base64.StdEncoding.EncodeToString(data))
		case !bytes.HasSuffix(data, []byte("\n")):
			name += noNewline
		}
		a.Files = append(a.Files, txtar.File{Name: name, Data: data})
		return err
	}))
	require.NoError(t, os.WriteFile(storedHome, txtar.Format(a), 0o644))
}
