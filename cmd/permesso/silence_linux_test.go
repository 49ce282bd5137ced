package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// --timeout holds with every gate that cannot be reached, and the error says what was tried.
func TestTimeoutOfAnUnreachableGate(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts by its backlog, and never answers
	require.NoError(t, err)
	defer mute.Close()
	const id = "0123456789abcdef"
	dir := t.TempDir()
	empty, hung := filepath.Join(dir, "empty"), filepath.Join(dir, "hung")
	require.NoError(t, os.Mkdir(empty, 0o755))
	require.NoError(t, os.Mkdir(hung, 0o755))
	require.NoError(t, unix.Mkfifo(filepath.Join(hung, id+".json"), 0o644)) // to open it hangs
	folders := func(requests, responses string) map[string]string {
		return map[string]string{"PERMESSO_REQUESTS": requests, "PERMESSO_RESPONSES": responses}
	}
	http := func(address string) map[string]string {
		return map[string]string{"PERMESSO_URL": "http://" + address, "PERMESSO_KEY": "k"}
	}
	request := []string{"request", "--action-type", "exec_cmd", "--id", id, "--wait"}
	wait, cancel := []string{"wait", id}, []string{"cancel", id}
	for _, row := range []struct {
		why  string
		env  map[string]string
		args []string
		says string
	}{
		{"HTTP without an answer: request", http(mute.Addr().String()), request, "timeout submitting " + id + ": no answer from http://" + mute.Addr().String()},
		{"HTTP without an answer: wait", http(mute.Addr().String()), wait, "timeout waiting for the response to " + id + ": no answer from http://"},
		{"HTTP without an answer: cancel", http(mute.Addr().String()), cancel, "timeout cancelling " + id + ": no answer from http://"},
		{"HTTP without an answer: a short id", http(mute.Addr().String()), []string{"wait", id[:8]}, "timeout looking for " + id[:8] + ": no answer from http://"},
		{"no server: request", http("127.0.0.1:1"), request, "nothing listens at http://127.0.0.1:1"},
		{"no server: wait", http("127.0.0.1:1"), wait, "nothing listens at http://127.0.0.1:1"},
		{"no server: cancel", http("127.0.0.1:1"), cancel, "nothing listens at http://127.0.0.1:1"},
		{"no daemon: request", folders(empty, empty), request, "no daemon has taken " + empty},
		{"no daemon: cancel", folders(empty, empty), cancel, "no daemon has taken " + empty},
		{"no folder: wait", folders(empty, dir+"/none"), wait, "there is no folder " + dir + "/none"},
		{"a folder that hangs: wait", folders(empty, hung), wait, "does not answer"},
		{"a folder that hangs: cancel", folders(empty, hung), cancel, "does not answer"},
	} {
		t.Run(row.why, func(t *testing.T) {
			var errs bytes.Buffer
			began := time.Now()
			m := Main{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &errs, Env: func(name string) string { return row.env[name] }}
			timeout := "300ms"
			if strings.HasPrefix(row.why, "no server") {
				timeout = "3s" // the refusal must come before
			}
			code := m.Run(t.Context(), append(row.args, "--timeout", timeout))
			require.Equal(t, console.ExitTimeout, code, errs.String())
			require.Contains(t, errs.String(), row.says)
			require.Less(t, time.Since(began), 10*time.Second)
			for _, name := range []string{id + ".json", id + ".cancel"} {
				_ = os.Remove(filepath.Join(empty, name))
			}
		})
	}
	var errs bytes.Buffer
	m := Main{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &errs, Env: func(name string) string { return folders(dir+"/none", empty)[name] }}
	require.Equal(t, console.ExitError, m.Run(t.Context(), append(request, "--timeout", "1m")), "nothing was submitted: no wait helps")
	require.Contains(t, errs.String(), "hint: mount the folder into the sandbox")
	for _, missing := range []map[string]string{folders(empty, dir+"/none"), folders(dir+"/none", empty)} {
		for _, command := range []string{"wait", "cancel"} {
			errs.Reset()
			m.Env = func(name string) string { return missing[name] }
			require.Equal(t, console.ExitError, m.Run(t.Context(), []string{command, id[:8]}))
			require.Contains(t, errs.String(), "there is no folder "+dir+"/none")
			require.Contains(t, errs.String(), "hint: mount it into the sandbox")
		}
	}
	errs.Reset()
	m.Env = func(name string) string { return folders(empty, empty)[name] }
	require.Equal(t, console.ExitRefused, m.Run(t.Context(), []string{"wait", id[:8]}))
	require.Contains(t, errs.String(), "hint: a pending request is in neither folder: give the complete id")
	for _, negative := range []string{"-1s", "-1d"} {
		errs.Reset()
		require.Equal(t, console.ExitUsage, m.Run(t.Context(), append(wait, "--timeout", negative)))
		require.Contains(t, errs.String(), `--timeout: "`+negative+`" is negative`)
	}
}
