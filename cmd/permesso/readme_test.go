package main

import (
	"bytes"
	"fmt"
	"io/fs"
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

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// block is a fenced block of the README.
type block struct {
	lang   string
	text   string
	second bool // to run in a second terminal
}

// readmeBlocks are the blocks of the README section with this title, in order.
func readmeBlocks(t *testing.T, title string) []block {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(b), "\n## "+title+"\n")
	require.True(t, found)
	section, _, found = strings.Cut(section, "\n## ")
	require.True(t, found)
	var blocks []block
	for _, m := range regexp.MustCompile("(?s)(<!-- second terminal -->\n)?```([a-z]+)\n(.*?)```\n").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block{second: m[1] != "", lang: m[2], text: m[3]})
	}
	require.Equal(t, strings.Count(section, "```"), 2*len(blocks), "a block without a language")
	return blocks
}

// reader follows the README in a clone, with a fresh HOME.
type reader struct {
	t     *testing.T
	clone string
	env   []string
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, clone: filepath.Join(t.TempDir(), "permesso")}
	cloneTree(t, filepath.Join("..", ".."), r.clone)
	home := t.TempDir()
	r.env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}
	// Go's caches, and no network.
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOROOT", "GOFLAGS"} {
		out, err := osexec.Command("go", "env", name).Output()
		require.NoError(t, err)
		r.env = append(r.env, name+"="+strings.TrimSpace(string(out)))
	}
	r.env = append(r.env, "GOPROXY=off")
	return r
}

// cloneTree copies the working tree.
func cloneTree(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (rel == ".git" || rel == "bin"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular() || rel == ".git":
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o755)
	}))
}

// terminal is a shell in the clone that runs text and stops at the first error.
func (r *reader) terminal(text string) *osexec.Cmd {
	cmd := osexec.Command("sh", "-e", "-c", text)
	cmd.Dir, cmd.Env = r.clone, r.env
	return cmd
}

// serveGate runs the second terminal. It returns when the daemon serves.
func (r *reader) serveGate(text string) (stop func()) {
	r.t.Helper()
	var out bytes.Buffer
	cmd := r.terminal(text)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a process group, as on a terminal: Ctrl-C reaches all of it
	require.NoError(r.t, cmd.Start())
	wait := sync.OnceValue(cmd.Wait)
	r.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = wait()
	})
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		b, err := r.terminal("~/.local/bin/permesso status --json").Output()
		if err == nil && bytes.Contains(b, []byte(`"running":true`)) {
			break
		}
		require.True(r.t, time.Now().Before(end), "the daemon does not serve: %s", b)
	}
	return func() {
		r.t.Helper()
		require.NoError(r.t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
		_ = wait() // the signal also ends the shell; only the daemon's last message counts
		require.Contains(r.t, out.String(), `"message":"stopped"`)
	}
}

// The blocks of the first terminal run in one shell, in order. The second terminal
// starts at its place in the text.
func TestReadmeTenMinutes(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	var before, after []string
	var serve string
	for _, b := range readmeBlocks(t, "Ten minutes") {
		switch {
		case b.lang == "toml":
			c, err := config.Parse("README.md", []byte(b.text))
			require.NoError(t, err, "the README's configuration must be valid")
			require.Empty(t, c.Warnings)
		case b.second:
			serve = b.text
		case serve == "":
			before = append(before, b.text)
		default:
			after = append(after, b.text)
		}
	}
	require.Len(t, before, 2)
	require.Len(t, after, 4)
	require.Contains(t, serve, "permesso serve")

	out, err := r.terminal(strings.Join(before, "\n")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^wrote .*/\.config/permesso/permesso\.toml$`, string(out))
	stop := r.serveGate(serve)

	// After the first block, wait until the request is pending. A reader is slower
	// than this script.
	pause := `until [ -e "$ipc/pending_approvals/$id.json" ]; do sleep 0.05; done`
	path := regexp.MustCompile(`(?m)^export PATH=.*$`).FindString(before[0])
	require.NotEmpty(t, path)
	var script strings.Builder
	fmt.Fprintf(&script, "%s\n", path)
	for i, text := range after {
		fmt.Fprintf(&script, "echo '== %d'\n%s\n", i, text)
		if i == 0 {
			fmt.Fprintln(&script, pause)
		}
	}
	out, err = r.terminal(script.String()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	said := strings.Split(string(out), "== ")
	require.Len(t, said, 5)
	require.Regexp(t, `(?m)^[0-9a-f]{8} · default · hello · `, said[2], "pending")
	require.Contains(t, said[2], "May I say hello?", "show")
	require.Contains(t, said[2], "Approved: hello", "approve")
	require.Regexp(t, `(?m)^approved \(.*\)\nresult: \{"output":"hello\\n"\}$`, said[3], "wait")
	require.Contains(t, said[3], "decision: approved by", "show")
	require.Regexp(t, `(?m)^valid: [0-9a-f]{32} hello in default`, said[3], "receipt verify")
	require.Contains(t, said[4], "added   workspace research", "workspace add")
	require.Regexp(t, `(?m)^research · supervised · `, said[4], "workspace list")
	require.Regexp(t, `(?m)^--mount type=bind,src=.*/ipc/research/requests,dst=/permesso/requests `, said[4], "mounts")
	stop()
}

// Every command in the README exists.
func TestReadmeNamesRealCommands(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	known := map[string]bool{}
	for _, path := range allCommandPaths() {
		known[strings.Fields(path + " -")[0]] = true
	}
	found := regexp.MustCompile("(?m)(?:^|`|\\$\\()permesso ([a-z]+)").FindAllStringSubmatch(string(b), -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		require.True(t, known[m[1]] || m[1] == "completion", "permesso %s", m[1])
	}
}
