package main

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

// printedKey is a key as key create prints it.
var printedKey = regexp.MustCompile(`permesso_\S+`)

// packagedGate is a daemon of the built Debian package, with the home and configuration that init writes, and a key.
type packagedGate struct {
	*rig
	program string
	env     []string // of an agent
}

func newPackagedGate(t *testing.T) *packagedGate {
	t.Helper()
	root := t.TempDir()
	deb := filepath.Join(releaseFolder(t), "permesso_1.2.3~rc1_"+runtime.GOARCH+".deb")
	require.NoError(t, osexec.Command("dpkg-deb", "--extract", deb, root).Run())
	dir := t.TempDir()
	h := &rig{t: t, dir: dir, config: filepath.Join(dir, "permesso.toml"), layout: ipc.Layout{Home: filepath.Join(dir, "home")}}
	h.agent = client.Files{Requests: h.layout.Requests("default"), Responses: h.layout.Responses("default")}
	g := &packagedGate{rig: h, program: filepath.Join(root, "usr/bin/permesso")}
	g.host("init", "--yes")
	config, err := os.ReadFile(h.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.config, append([]byte("listen = \"unix:"+dir+"/s\"\nui = false\n"), config...), 0o600))
	d := h.start(g.command("serve"))
	t.Cleanup(d.stop)
	d.awaitLog(`"serving"`)
	key := printedKey.FindString(g.host("key", "create", "default", "--scope", "request,read"))
	require.NotEmpty(t, key)
	g.env = append(os.Environ(), "PERMESSO_URL=unix://"+dir+"/s", "PERMESSO_KEY="+key)
	return g
}

func (g *packagedGate) command(args ...string) *osexec.Cmd {
	cmd := osexec.Command(g.program, append([]string{"--config", g.config, "--home", g.layout.Home}, withSeen(g.layout, args)...)...)
	cmd.Env = os.Environ()
	return cmd
}

// host runs a command of the operator.
func (g *packagedGate) host(args ...string) string {
	g.t.Helper()
	out, err := g.command(args...).CombinedOutput()
	require.NoError(g.t, err, "%s", out)
	return string(out)
}

// quickStart runs a program of an agent, approves its one request, and returns what it printed.
func (g *packagedGate) quickStart(cmd *osexec.Cmd) string {
	g.t.Helper()
	var out strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = append(g.env, cmd.Env...), &out, &out
	require.NoError(g.t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	pending := g.layout.Pendings("default")
	await(g.t, pending, func() bool {
		names, err := filepath.Glob(filepath.Join(pending, "*.json"))
		require.NoError(g.t, err)
		if len(names) == 1 {
			g.host("approve", strings.TrimSuffix(filepath.Base(names[0]), ".json"))
		}
		return len(names) == 1
	})
	require.NoError(g.t, cmd.Wait(), out.String())
	return out.String()
}

// codeBlocks are the blocks of a language in a document.
func codeBlocks(t *testing.T, file, lang string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)```"+lang+"\n(.*?)```\n").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	require.NotEmpty(t, blocks, file)
	return blocks
}

// What pip and npm install from the built archives does what the packages' own pages say, against a gate from the
// built Debian package.
func TestClientPackages(t *testing.T) {
	t.Parallel()
	g := newPackagedGate(t)
	release := releaseFolder(t)
	docs := filepath.Join("..", "..", "ipc", "client")

	t.Run("python", func(t *testing.T) {
		site := t.TempDir()
		wheel := filepath.Join(release, "permesso-1.2.3rc1-py3-none-any.whl")
		runTool(t, nil, "python3", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", "--root-user-action=ignore", "--target", site, wheel)
		require.FileExists(t, filepath.Join(site, "permesso", "py.typed"), "the package has types")
		file := filepath.Join(t.TempDir(), "start.py")
		blocks := codeBlocks(t, filepath.Join(docs, "python", "README.md"), "python")
		require.Len(t, blocks, 2)
		for i, want := range []string{"{'output': 'hello\\n'}\n", ""} {
			require.NoError(t, os.WriteFile(file, []byte(blocks[i]), 0o600))
			cmd := osexec.Command("python3", file)
			cmd.Env = []string{"PYTHONPATH=" + site}
			require.Equal(t, want, g.quickStart(cmd))
		}

		cmd := osexec.Command("python3", "-m", "permesso", "request", "hello", "--data", `{"name":"you"}`)
		cmd.Env = []string{"PYTHONPATH=" + site}
		require.Contains(t, g.quickStart(cmd), `"outcome": "approved"`)

		// The sdist gives the same wheel.
		source := t.TempDir()
		require.NoError(t, osexec.Command("tar", "-xzf", filepath.Join(release, "permesso-1.2.3rc1.tar.gz"), "-C", source, "--strip-components=1").Run())
		again := t.TempDir()
		cmd = osexec.Command("/usr/bin/python3", "-c", "from hatchling.build import build_wheel; build_wheel('"+again+"')")
		cmd.Dir, cmd.Env = source, append(os.Environ(), "SOURCE_DATE_EPOCH="+releaseTime)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, fileDigest(t, wheel), fileDigest(t, filepath.Join(again, filepath.Base(wheel))))
	})
	t.Run("javascript", func(t *testing.T) {
		dir := t.TempDir()
		runTool(t, nil, "npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", "--prefix", dir, filepath.Join(release, "permesso-1.2.3-rc1.tgz"))
		require.FileExists(t, filepath.Join(dir, "node_modules/permesso/permesso.d.mts"), "the package has types")
		file := filepath.Join(dir, "start.mjs")
		blocks := codeBlocks(t, filepath.Join(docs, "typescript", "README.md"), "js")
		require.Len(t, blocks, 2)
		for i, want := range []string{"{ output: 'hello\\n' }\n", ""} {
			require.NoError(t, os.WriteFile(file, []byte(blocks[i]), 0o600))
			require.Equal(t, want, g.quickStart(osexec.Command("node", file)))
		}
	})
}

func fileDigest(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return digestText(b)
}
