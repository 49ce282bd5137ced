package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/hook"
)

// block is a fenced block of the README.
type block struct {
	lang   string
	text   string
	second bool // for a second terminal
}

// readmeBlocks are the blocks of the README's section of that name, in order.
func readmeBlocks(t *testing.T, file, title string) []block {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", file))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(b), "\n## "+title+"\n")
	require.True(t, found)
	section, _, found = strings.Cut(section, "\n## ")
	require.True(t, found)
	var blocks []block
	for _, m := range regexp.MustCompile("(?s)(<!-- second terminal -->\n)?```([a-z]+)\n(.*?)```\n").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block{second: m[1] != "", lang: m[2], text: m[3]})
	}
	require.Equal(t, strings.Count(section, "```"), 2*len(blocks), "a block that is not closed")
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
	// What a machine with Go has besides a home: the caches, and no network.
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOROOT", "GOFLAGS"} {
		out, err := osexec.Command("go", "env", name).Output()
		require.NoError(t, err)
		r.env = append(r.env, name+"="+strings.TrimSpace(string(out)))
	}
	r.env = append(r.env, "GOPROXY=off")
	return r
}

// cloneTree copies the sources, as they are now.
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
		return writeProgram(filepath.Join(to, rel), string(b), 0o755)
	}))
}

// terminal is a shell in the clone that runs text and stops at the first error.
func (r *reader) terminal(text string) *osexec.Cmd {
	cmd := osexec.Command("sh", "-e", "-c", text)
	cmd.Dir, cmd.Env = r.clone, r.env
	return cmd
}

// serving is the second terminal; it returns when the gate stands.
func (r *reader) serving(text string) (stop func()) {
	r.t.Helper()
	var out bytes.Buffer
	cmd := r.terminal(text)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal's foreground: Ctrl-C is for all in it
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
		require.True(r.t, time.Now().Before(end), "the gate does not serve: %s", b)
	}
	return func() {
		r.t.Helper()
		require.NoError(r.t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
		_ = wait() // the shell ends by the signal; what matters is the gate's last word
		require.Contains(r.t, out.String(), `"message":"stopped"`)
	}
}

// readmePause: between two blocks a reader has read what stands between them: here, that the gate takes the request in.
const readmePause = `until [ -e "$ipc/pending_approvals/$id.json" ]; do sleep 0.05; done`

// readmeSeen: a reader approves on a terminal, where the program asks. Here there is none.
var readmeSeen = strings.NewReplacer(`permesso approve "$id"`, `permesso approve "$id" --seen "$(permesso show "$id" | sed -n 's/^seen: //p')"`)

// The blocks of the first terminal run in one shell, one after the other, with
// the second terminal started where the text says so.
func TestReadmeTenMinutes(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	var before, after []string
	var serve string
	for _, b := range readmeBlocks(t, "README.md", "Ten minutes") {
		switch {
		case b.second:
			serve = b.text
		case serve == "":
			before = append(before, b.text)
		default:
			after = append(after, b.text)
		}
	}
	require.Len(t, before, 2)
	require.Len(t, after, 5)
	require.Contains(t, serve, "permesso serve")

	out, err := r.terminal(strings.Join(before, "\n")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^wrote .*/\.config/permesso/permesso\.toml$`, string(out))
	stop := r.serving(serve)

	path := regexp.MustCompile(`(?m)^export PATH=.*$`).FindString(before[0])
	require.NotEmpty(t, path)
	var script strings.Builder
	fmt.Fprintf(&script, "%s\n", path)
	for i, text := range after {
		fmt.Fprintf(&script, "echo '== %d'\n%s\n", i, readmeSeen.Replace(text))
		if i == 0 {
			fmt.Fprintln(&script, readmePause)
		}
	}
	out, err = r.terminal(script.String()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	said := strings.Split(string(out), "== ")
	require.Len(t, said, 6)
	require.Regexp(t, `(?m)^[0-9a-f]{8} · default · hello · `, said[2], "pending")
	require.Contains(t, said[2], "May I say hello?", "show")
	require.Contains(t, said[2], "Approved: hello", "approve")
	require.Regexp(t, `(?m)^approved \(.*\)\nresult: \{"output":"hello\\n"\}$`, said[3], "wait")
	require.Contains(t, said[3], "decision: approved by", "show")
	require.Regexp(t, `(?m)^valid: [0-9a-f]{32} hello in default`, said[3], "receipt verify")
	require.Contains(t, said[4], "added   workspace research", "workspace add")
	require.Regexp(t, `(?m)^research · supervised · `, said[4], "workspace list")
	require.Regexp(t, `(?m)^--pid= .* --mount type=bind,src=.*/ipc/research/requests,dst=/permesso/requests `, said[4], "mounts")
	require.Contains(t, said[5], "May I note?", "tool add")
	require.Contains(t, said[5], "the running daemon has loaded it", "tool add")

	operation := readmeBlocks(t, "cmd/permesso/README.md", "Operation")
	require.Len(t, operation, 1)
	out, err = r.terminal(path + "\n" + operation[0].text).CombinedOutput()
	require.NoError(t, err, "%s", out)
	stop()
}

// The first block of the hooks' README: its first line is that of a terminal of its own, and a person approves the call.
func TestReadmeHooks(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("..", "..", "ipc", "hook", "README.md"))
	require.NoError(t, err)
	text := regexp.MustCompile("(?s)```sh\n(.*?)```\n").FindStringSubmatch(string(b))
	require.NotNil(t, text)
	lines := strings.Split(strings.TrimSuffix(text[1], "\n"), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "in another terminal:")

	home := t.TempDir()
	bin := filepath.Join(home, ".local", "bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(scriptBin(t), "permesso"), filepath.Join(bin, "permesso")))
	r := &reader{t: t, clone: filepath.Join("..", ".."), env: []string{"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"), raceExitsFast}}
	stop := r.serving(lines[0])
	out, err := r.terminal(strings.Replace(lines[1], " claude-code", " claude-code --yes", 1)).CombinedOutput() // a person is asked
	require.NoError(t, err, "%s", out)
	settings, err := os.ReadFile(filepath.Join(home, ".claude", "settings.json"))
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(settings), `"PreToolUse"`)

	var allowed, errs bytes.Buffer
	call := r.terminal(lines[2])
	call.Stdout, call.Stderr = &allowed, &errs
	require.NoError(t, call.Start())
	t.Cleanup(func() { _ = call.Process.Kill() })
	pendings := filepath.Join(home, ".local", "state", "permesso", "ipc", "default", "pending_approvals")
	await(t, pendings, func() bool {
		names, err := filepath.Glob(filepath.Join(pendings, "*.json"))
		return err == nil && len(names) == 1
	})
	out, err = r.terminal("id=$(permesso pending | head -c 8)\n" + readmeSeen.Replace(`permesso approve "$id"`)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, call.Wait(), errs.String())
	require.Contains(t, allowed.String(), `"permissionDecision":"allow"`)
	stop()
}

// The README names no command that there is none of.
func TestReadmeNamesRealCommands(t *testing.T) {
	known := map[string]bool{}
	for _, path := range allCommandPaths() {
		known[path] = true
	}
	for file, text := range documents(t) {
		for _, m := range commandPattern.FindAllStringSubmatch(text, -1) {
			sub := strings.TrimSpace(m[1] + m[2])
			isGroup := slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(path string) bool { return strings.HasPrefix(path, m[1]+" ") })
			if !isGroup || strings.HasPrefix(strings.TrimSpace(m[2]), "-") {
				sub = m[1] // a word after it is an argument, or an option
			}
			isAgent := m[1] == "hook" && slices.Contains(hook.Agents(), strings.SplitN(strings.TrimSpace(m[2])+" ", " ", 2)[0])
			require.True(t, known[sub] || m[3] != "" || m[1] == "completion" || isAgent, "%s: permesso %s", file, sub)
		}
	}
}
