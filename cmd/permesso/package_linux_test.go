package main

import (
	"bytes"
	"debug/elf"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// runTool runs a program in the top folder of the project.
func runTool(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := osexec.Command(name, args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer // the go command also reports downloads there
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s %s\n%s%s", name, strings.Join(args, " "), out, &errs)
	return string(out)
}

// releasedPath is where the output of make build goes.
var releasedPath = sync.OnceValue(func() string {
	file, err := plainBinary() // TestMain removes its folder
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(filepath.Dir(file)), "released", "permesso")
})

func releasedBinary(t *testing.T) string {
	t.Helper()
	file := releasedPath()
	require.NotEmpty(t, file)
	if _, err := os.Stat(file); err != nil {
		runTool(t, nil, "make", "-s", "build", "BIN="+file)
	}
	return file
}

// The binary needs no library and no loader; otherwise it would not start in an
// image from scratch.
func TestReleasedBinaryIsStatic(t *testing.T) {
	t.Parallel()
	f, err := elf.Open(releasedBinary(t))
	require.NoError(t, err)
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	for _, p := range f.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "it needs a loader")
	}
}

func TestDebianVersions(t *testing.T) {
	t.Parallel()
	const noon = "1795262400"                       // of 2026-11-21
	order := []struct{ described, version string }{ // oldest first
		{"", "0~20261121.unknown"},
		{"14b284d", "0~20261121.14b284d"},
		{"v0.9.0", "0.9.0"},
		{"v1.0.0-beta", "1.0.0~beta"},
		{"v1.0.0-rc1", "1.0.0~rc1"},
		{"v1.0.0-rc1-3-gabc1234", "1.0.0~rc1+3.gabc1234"},
		{"v1.0.0", "1.0.0"},
		{"v1.0.0-5-gabc1234", "1.0.0+5.gabc1234"},
		{"v1.0.0-5-gabc1234-dirty", "1.0.0+5.gabc1234.dirty"},
		{"v1.0.1", "1.0.1"},
	}
	for i, row := range order {
		version := strings.TrimSpace(runTool(t, nil, ".pkg/version", "deb", row.described, noon))
		require.Equal(t, row.version, version, row.described)
		if i > 0 && i != 1 { // an unknown commit has no order
			runTool(t, nil, "dpkg", "--compare-versions", order[i-1].version, "lt", version)
		}
	}
	require.Equal(t, "0~20261121.unknown\n", runTool(t, nil, ".pkg/version", "deb", "devel", noon))
	require.Equal(t, "0~20261121.14b284d+dirty\n", runTool(t, nil, ".pkg/version", "deb", "14b284d-dirty", noon))
}

// The package is installed and used in an overlay of this system, with all changes
// in memory. make deb-debootstrap does the same in a fresh Debian.
func TestDebianPackage(t *testing.T) {
	t.Parallel()
	bin := releasedBinary(t)
	build := func(env ...string) string {
		if os.Getenv("PERMESSO_SOAK") == "" {
			env = append(env, "DPKG_DEB_COMPRESSOR_LEVEL=0") // saves eight seconds for each of two builds
		}
		out := runTool(t, append(env, "SOURCE_DATE_EPOCH=1795262400"), ".pkg/deb/build", "v1.2.3-rc1", bin, t.TempDir())
		return strings.TrimSpace(out)
	}
	deb := build("TZ=UTC", "LC_ALL=C")
	require.Equal(t, "permesso_1.2.3~rc1_"+strings.TrimSpace(runTool(t, nil, "dpkg", "--print-architecture"))+".deb", filepath.Base(deb))

	again := build("TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "HOME="+t.TempDir(), "GOPATH="+goEnv(t, "GOPATH"), "GOCACHE="+goEnv(t, "GOCACHE"), "PERMESSO_REQUESTS=/elsewhere")
	one, err := os.ReadFile(deb)
	require.NoError(t, err)
	two, err := os.ReadFile(again)
	require.NoError(t, err)
	require.True(t, bytes.Equal(one, two), "the same commit gives the same bytes")

	files := runTool(t, nil, "dpkg-deb", "--contents", deb)
	for _, path := range allCommandPaths() {
		if path == "doctor probe" || path == "environment" || path == "files" {
			continue // internal, or a topic of help
		}
		require.Contains(t, files, strings.ReplaceAll(strings.TrimSpace("permesso "+path), " ", "-")+".1.gz", "a man page for each command")
	}
	for _, name := range []string{"agent.py", "agent.sh", "compose/compose.yaml"} {
		require.Contains(t, files, "/usr/share/doc/permesso/cmd/permesso/examples/"+name)
	}
	requirePackagedLinks(t, deb)

	if os.Getuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "CI installs packages, so it runs as root")
		t.Skip("installing needs root: make deb, then sudo .pkg/deb/root overlay check dist/…")
	}
	roots := []string{"overlay"}
	if os.Getenv("PERMESSO_SOAK") != "" {
		roots = append(roots, "debootstrap")
	}
	for _, root := range roots {
		require.Contains(t, runTool(t, nil, ".pkg/deb/root", root, "check", deb), "check: done")
	}
}

// The package of the first version is updated: state, keys and log stay, it says what changed, and an older version is
// refused. The fixture was built from the commit in its name.
func TestDebianUpgrade(t *testing.T) {
	t.Parallel()
	first, err := filepath.Abs(filepath.Join("..", "..", "testdata", "package", "permesso_0~20261123.ef4c1a8f_amd64.deb"))
	require.NoError(t, err)
	if os.Getuid() != 0 || runtime.GOARCH != "amd64" {
		require.Empty(t, os.Getenv("CI"), "CI installs packages for amd64, so it runs as root there")
		t.Skip("installing needs root, and the fixture is for amd64")
	}
	bin := releasedBinary(t)
	build := func(version string) string {
		out := runTool(t, []string{"SOURCE_DATE_EPOCH=1795262400", "DPKG_DEB_COMPRESSOR_LEVEL=0"}, ".pkg/deb/build", version, bin, t.TempDir())
		return strings.TrimSpace(out)
	}
	require.Contains(t, runTool(t, nil, ".pkg/deb/root", "overlay", "upgrade", first, build("v1.2.3"), build("v1.2.2")), "upgrade: done")
}

// The programs of the tests install where nodejs comes from another repository, whose package contains npm.
func TestProgramsOfTheTestsWithAnotherNode(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "CI installs packages, so it runs as root")
		t.Skip("installing needs root")
	}
	require.Contains(t, runTool(t, nil, ".pkg/deb/root", "overlay", "node", ".ci/deps"), "node: done")
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(runTool(t, nil, "go", "env", name))
}

// requirePackagedLinks checks that the package has each document, and each file that
// it links to.
func requirePackagedLinks(t *testing.T, deb string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, osexec.Command("dpkg-deb", "--extract", deb, dir).Run())
	doc := filepath.Join(dir, "usr/share/doc/permesso")
	require.FileExists(t, filepath.Join(doc, "examples/agent.py"))
	for file := range documents(t) {
		text, err := os.ReadFile(filepath.Join(doc, file))
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)"#:\s]+)[)"#]`).FindAllStringSubmatch(string(text), -1) {
			require.FileExists(t, filepath.Join(doc, filepath.Dir(file), m[1]), file)
		}
	}
}
