package main

import (
	"bytes"
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

// image is the last stage of the Containerfile. Only the instructions that it uses are supported.
type image struct {
	t          *testing.T
	root       string
	env        []string
	user       string
	entry, cmd []string
}

// newImage builds the program with the Containerfile's own command and copies the
// files of the image into a folder. built maps files of the build stage to files here.
func newImage(t *testing.T, built map[string]string) *image {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", ".pkg", "Containerfile"))
	require.NoError(t, err)
	stages := strings.Split(string(text), "\nFROM ")
	build := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, build)
	runTool(t, []string{"VERSION=image", "COMMIT=0123abc", "DATE=2026-11-21T12:00:00Z"}, "/bin/sh", "-c", strings.Replace(build[1], "/out/permesso", built["/out/permesso"], 1))
	from, last, _ := strings.Cut(stages[len(stages)-1], "\n")
	require.Equal(t, "scratch", from)
	im := &image{t: t, root: t.TempDir()}
	for line := range strings.Lines(last) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			im.instruct(built, words)
		}
	}
	return im
}

func (im *image) instruct(built map[string]string, words []string) {
	im.t.Helper()
	rest := words[1:]
	switch words[0] {
	case "COPY":
		require.Equal(im.t, "--from=build", rest[0], "only files of the build stage")
		source, target := rest[len(rest)-2], rest[len(rest)-1]
		require.Contains(im.t, built, source)
		im.copy(built[source], target)
	case "ENV":
		im.env = rest
	case "USER":
		im.user = rest[0]
	case "ENTRYPOINT":
		require.NoError(im.t, json.Unmarshal([]byte(strings.Join(rest, " ")), &im.entry), "the form without a shell")
	case "CMD":
		require.NoError(im.t, json.Unmarshal([]byte(strings.Join(rest, " ")), &im.cmd), "the form without a shell")
	case "VOLUME", "STOPSIGNAL":
	default:
		require.Fail(im.t, "an instruction that an empty image does not support", "%v", words)
	}
}

func (im *image) copy(from, to string) {
	im.t.Helper()
	file := filepath.Join(im.root, to)
	require.NoError(im.t, os.MkdirAll(filepath.Dir(file), 0o755))
	if from == "" {
		require.NoError(im.t, os.Mkdir(file, 0o700))
		return
	}
	b, err := os.ReadFile(from)
	require.NoError(im.t, err)
	require.NoError(im.t, writeProgram(file, string(b), 0o755))
}

// run does what an engine does: only this root, no network, no capabilities, the
// image's user and variables, read-only except for the volume.
func (im *image) run(mounts []string, args ...string) *osexec.Cmd {
	uid, gid, _ := strings.Cut(im.user, ":")
	box := []string{
		"--ro-bind", im.root, "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all", "--as-pid-1", "--die-with-parent",
		"--new-session", "--cap-drop", "ALL", "--uid", uid, "--gid", gid, "--clearenv",
	}
	for _, v := range im.env {
		name, value, _ := strings.Cut(v, "=")
		box = append(box, "--setenv", name, value)
	}
	box = append(append(box, mounts...), im.entry...)
	cmd := osexec.Command("bwrap", append(box, args...)...)
	cmd.WaitDelay = time.Second
	return cmd
}

// No container engine runs here. So daemon, operator and agent each run in
// bubblewrap, with the files of the image as root.
func TestImageServes(t *testing.T) {
	t.Parallel()
	// --die-with-parent kills the child when the thread that started it exits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bin := filepath.Join(t.TempDir(), "permesso")
	im := newImage(t, map[string]string{
		"/out/permesso":                      bin,
		"/etc/ssl/certs/ca-certificates.crt": filepath.Join("..", "..", "LICENSE"), // any file works: the test makes no TLS connection
		"/out/state":                         "",
	})
	require.Equal(t, []string{"serve"}, im.cmd)
	for _, dir := range []string{"proc", "dev", "etc/permesso", "agent/requests", "agent/responses"} { // an engine creates them
		require.NoError(t, os.MkdirAll(filepath.Join(im.root, dir), 0o755))
	}
	state := t.TempDir()
	config := example(t, "compose/permesso.toml")
	require.NoError(t, os.WriteFile(filepath.Join(im.root, "etc/permesso/permesso.toml"), nil, 0o644))
	volume := []string{"--bind", state, "/var/lib/permesso", "--ro-bind", config, "/etc/permesso/permesso.toml"}

	var log bytes.Buffer
	gate := im.run(volume, im.cmd...)
	gate.Stderr = &log
	require.NoError(t, gate.Start())
	defer func() { _ = gate.Process.Kill(); _ = gate.Wait() }()
	layout := ipc.Layout{Home: state}
	awaitFile(t, layout.Requests("demo"))
	awaitFile(t, filepath.Join(layout.Keys(), "signing.pub"))
	out, err := im.run(volume, "status").CombinedOutput()
	require.NoError(t, err, "the health check: %s", out)

	out, err = im.run(volume, "version").CombinedOutput()
	require.NoError(t, err)
	for _, part := range []string{"image", "0123abc", "2026-11-21"} {
		require.Contains(t, string(out), part)
	}

	id := client.NewID()
	agent := &image{t: t, root: im.root, user: "1000:1000", entry: im.entry}
	asking := agent.run([]string{
		"--bind", layout.Requests("demo"), "/agent/requests",
		"--ro-bind", layout.Responses("demo"), "/agent/responses",
	}, "request", "hello", "--id", id, "--arg", "name=you", "--wait", "--timeout", "60s",
		"--requests", "/agent/requests", "--responses", "/agent/responses")
	var answer bytes.Buffer
	asking.Stdout, asking.Stderr = &answer, &answer
	require.NoError(t, asking.Start())
	defer func() { _ = asking.Process.Kill(); _ = asking.Wait() }()
	awaitFile(t, filepath.Join(layout.Pendings("demo"), id+".json"))
	utc, err := im.run(volume, "show", id[:8]).CombinedOutput()
	require.NoError(t, err, "%s", utc)
	tokyo, err := im.run(append(volume, "--setenv", "TZ", "Asia/Tokyo"), "show", id[:8]).CombinedOutput()
	require.NoError(t, err, "%s", tokyo)
	require.NotEqual(t, string(utc), string(tokyo), "the card shows the time in the zone of TZ")
	out, err = im.run(volume, withSeen(layout, []string{"approve", id[:8]})...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, asking.Wait(), "%s", &answer)
	require.Contains(t, answer.String(), string(approval.StatusApproved))

	require.NoError(t, gate.Process.Signal(os.Interrupt)) // bubblewrap exits, and so does the daemon
}
