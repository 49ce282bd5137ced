package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	releaseTag  = "v1.2.3-rc1"
	releaseTime = "1795262400" // 2026-11-21T12:00:00Z
)

// releasedFiles is the folder of a release for this architecture, built once.
var releasedFiles = sync.OnceValues(func() (string, error) {
	file, err := plainBinary() // TestMain removes its folder
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(filepath.Dir(file)), "release")
	cmd := osexec.Command(".pkg/dist/build", releaseTag, "0123456789abcdef", "2026-11-21T12:00:00Z", dir, runtime.GOARCH)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+releaseTime, "DPKG_DEB_COMPRESSOR_LEVEL=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

func releaseFolder(t *testing.T) string {
	t.Helper()
	dir, err := releasedFiles()
	require.NoError(t, err)
	return dir
}

// treeOf lists all files and folders below dir, with the digests of files.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if all[rel] = "folder"; !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[rel] = digestText(b)
		}
		return nil
	}))
	return all
}

func digestText(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// installer runs install.sh in a home of its own.
type installer struct {
	t     *testing.T
	shell []string
	path  string
	home  string
	env   []string
}

// run returns the exit code and all output.
func (i *installer) run(script string, args ...string) (int, string) {
	i.t.Helper()
	argv := slices.Concat(i.shell, []string{script}, args)
	cmd := osexec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = i.t.TempDir(), append([]string{"HOME=" + i.home, "PATH=" + i.path, "TMPDIR=" + i.t.TempDir()}, i.env...)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*osexec.ExitError](err); err != nil && !exited {
		require.NoError(i.t, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// busyboxOnly is a folder with the programs of busybox and no others.
func busyboxOnly(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	busybox, err := osexec.LookPath("busybox")
	require.NoError(t, err)
	require.NoError(t, osexec.Command(busybox, "--install", "-s", dir).Run())
	return dir
}

// fileServer serves the files of a release, and what was asked for. changed files have other bytes; nil: none.
func fileServer(t *testing.T, changed map[string][]byte) *httptest.Server {
	t.Helper()
	files := http.FileServer(http.Dir(releaseFolder(t)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch b, ok := changed[strings.TrimPrefix(r.URL.Path, "/")]; {
		case ok && b == nil:
			http.NotFound(w, r)
		case ok:
			_, _ = w.Write(b)
		default:
			files.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func archiveName() string { return "permesso_1.2.3-rc1_linux_" + runtime.GOARCH + ".tar.gz" }

// The script installs, updates and removes, under the shells of Debian and of Alpine, and with their programs alone.
func TestInstallScript(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	good := fileServer(t, nil)
	for name, shell := range map[string]*installer{
		"dash":    {shell: []string{"dash"}, path: "/usr/bin:/bin"},
		"busybox": {shell: []string{"busybox", "sh"}, path: busyboxOnly(t)},
	} {
		t.Run(name, func(t *testing.T) {
			i := shell
			i.t, i.home = t, t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(i.home, ".local/bin"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(i.home, ".local/bin/other"), nil, 0o700))
			before := treeOf(t, i.home)

			share := filepath.Join(i.home, ".local/share")
			for n := range 2 {
				if n == 1 { // an update of a version with a file that the new one does not have
					require.NoError(t, os.MkdirAll(filepath.Join(share, "permesso/old"), 0o700))
					require.NoError(t, os.WriteFile(filepath.Join(share, "permesso/old/page"), nil, 0o600))
					list, err := os.ReadFile(filepath.Join(share, "permesso/files"))
					require.NoError(t, err)
					list = append(list, "share/permesso/old/\nshare/permesso/old/page\n"...)
					require.NoError(t, os.WriteFile(filepath.Join(share, "permesso/files"), list, 0o600))
				}
				code, out := i.run(script, "--user", "--from", good.URL)
				require.Zero(t, code, out)
				require.Contains(t, out, "installed permesso version 1.2.3-rc1 in "+i.home+"/.local\n")
				require.Contains(t, out, "export PATH=")
				requireNothingStaged(t, i.home)
			}
			list, err := os.ReadFile(filepath.Join(share, "permesso/files"))
			require.NoError(t, err)
			require.NotContains(t, string(list), "/page\n")
			require.NoFileExists(t, filepath.Join(share, "permesso/old/page"))
			there := treeOf(t, i.home)
			for _, file := range []string{"bin/permesso", "share/man/man1/permesso.1.gz", "share/bash-completion/completions/permesso", "share/doc/permesso/README.md"} {
				require.Contains(t, there, ".local/"+file)
			}
			code, out := i.run(script, "--user", "--from", releaseFolder(t))
			require.Zero(t, code, out)
			require.Equal(t, there, treeOf(t, i.home), "a folder is as good as a server")

			// What an installation that was killed has left goes too. The copy that it installed removes all, also itself.
			require.NoError(t, os.WriteFile(filepath.Join(i.home, ".local/bin/.permesso-install-permesso"), nil, 0o700))
			copied := filepath.Join(share, "permesso/install.sh")
			require.Contains(t, out, "to remove it: sh "+copied+" --uninstall --user\n")
			code, out = i.run(copied, "--uninstall", "--user")
			require.Zero(t, code, out)
			require.Contains(t, out, "kept: "+i.home+"/.config/permesso (configuration), "+i.home+"/.local/state/permesso ")
			require.Equal(t, before, treeOf(t, i.home))
			code, out = i.run(script, "--uninstall", "--user")
			require.Equal(t, 1, code)
			require.Contains(t, out, "nothing to remove")
		})
	}
}

func requireNothingStaged(t *testing.T, dir string) {
	t.Helper()
	for name := range treeOf(t, dir) {
		require.NotContains(t, name, ".permesso-install-")
	}
}

// It replaces nothing that it has not installed, and follows no link.
func TestInstallScriptReplacesNothingOfOthers(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	for what, create := range map[string]func(string) error{
		"a program": func(name string) error { return os.WriteFile(name, []byte("mine"), 0o700) },
		"a folder":  func(name string) error { return os.Mkdir(name, 0o700) },
		"a link":    func(name string) error { return os.Symlink("/nowhere", name) },
	} {
		t.Run(what, func(t *testing.T) {
			i := &installer{t: t, shell: []string{"dash"}, path: "/usr/bin:/bin", home: t.TempDir()}
			bin := filepath.Join(i.home, ".local/bin")
			require.NoError(t, os.MkdirAll(bin, 0o700))
			require.NoError(t, create(filepath.Join(bin, "permesso")))
			var there []string
			require.NoError(t, filepath.WalkDir(i.home, func(path string, d fs.DirEntry, err error) error {
				there = append(there, path+" "+d.Type().String())
				return err
			}))
			code, out := i.run(script, "--user", "--from", releaseFolder(t))
			require.Equal(t, 1, code, out)
			require.Contains(t, out, bin+"/permesso is there, and was not installed by this script; nothing was changed\nhint: move it away")
			var left []string
			require.NoError(t, filepath.WalkDir(i.home, func(path string, d fs.DirEntry, err error) error {
				left = append(left, path+" "+d.Type().String())
				return err
			}))
			require.Equal(t, there, left)
		})
	}
	i := &installer{t: t, shell: []string{"dash"}, path: "/usr/bin:/bin", home: t.TempDir()}
	bin, elsewhere := filepath.Join(i.home, ".local/bin"), filepath.Join(i.home, "elsewhere")
	require.NoError(t, os.MkdirAll(bin, 0o700))
	require.NoError(t, os.WriteFile(elsewhere, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(bin, ".permesso-install-permesso")))
	code, out := i.run(script, "--user", "--from", releaseFolder(t))
	require.Zero(t, code, out)
	require.Equal(t, digestText([]byte("mine")), fileDigest(t, elsewhere))
	require.NoError(t, os.Remove(filepath.Join(bin, "permesso")))
	require.NoError(t, os.Mkdir(filepath.Join(bin, "permesso"), 0o700))
	code, out = i.run(script, "--user", "--from", releaseFolder(t))
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "permesso is there, and was not installed by this script")
}

// A program that does not run here changes nothing: neither a first installation nor an update.
func TestInstallScriptChecksTheProgram(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	root, release := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "bin"), 0o700))
	require.NoError(t, writeProgram(filepath.Join(root, "bin/permesso"), "#!/bin/sh\nexit 126\n", 0o700))
	require.NoError(t, osexec.Command("tar", "-czf", filepath.Join(release, archiveName()), "-C", root, "bin").Run())
	sums := fileDigest(t, filepath.Join(release, archiveName())) + "  " + archiveName() + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(release, "SHA256SUMS"), []byte(sums), 0o600))
	i := &installer{t: t, shell: []string{"dash"}, path: "/usr/bin:/bin", home: t.TempDir()}
	for range 2 {
		before := treeOf(t, i.home)
		code, out := i.run(script, "--user", "--from", release)
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "the program does not run in "+i.home+"/.local/bin; nothing was installed\nhint: ")
		require.Equal(t, before, treeOf(t, i.home))
		code, out = i.run(script, "--user", "--from", releaseFolder(t))
		require.Zero(t, code, out)
		require.FileExists(t, filepath.Join(i.home, ".local/bin/permesso"))
	}
}

// With each program that fetches: a redirect from TLS to TLS is followed, one to http:// is not, and what this machine
// serves is asked without a proxy.
func TestInstallScriptRedirects(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	plain, elsewhere := fileServer(t, nil), httptest.NewUnstartedServer(nil)
	require.NoError(t, elsewhere.Listener.Close())
	elsewhere.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")
	require.NoError(t, err)
	elsewhere.Config.Handler = plain.Config.Handler
	elsewhere.Start()
	t.Cleanup(elsewhere.Close)
	secure := httptest.NewTLSServer(plain.Config.Handler)
	t.Cleanup(secure.Close)
	redirect := func(to string, start func(http.Handler) *httptest.Server) string {
		s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to+r.URL.Path, http.StatusFound) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	certificate := filepath.Join(t.TempDir(), "ca")
	require.NoError(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	wgetrc := certificate + ".wgetrc"
	require.NoError(t, os.WriteFile(wgetrc, []byte("ca_certificate = "+certificate+"\n"), 0o600))
	busybox := busyboxOnly(t)
	without := func(name string) string { // curl is preferred
		dir := t.TempDir()
		for _, from := range []string{"/usr/bin", "/bin"} {
			files, err := os.ReadDir(from)
			require.NoError(t, err)
			for _, f := range files {
				if f.Name() != name {
					_ = os.Symlink(filepath.Join(from, f.Name()), filepath.Join(dir, f.Name()))
				}
			}
		}
		return dir
	}
	for name, shell := range map[string]installer{
		"curl":    {shell: []string{"dash"}, path: "/usr/bin:/bin"},
		"wget":    {shell: []string{"dash"}, path: without("curl")},
		"busybox": {shell: []string{"busybox", "sh"}, path: busybox},
	} {
		t.Run(name, func(t *testing.T) {
			for _, row := range []struct {
				why, from string
				proxy     string
				code      int
			}{
				{"TLS to TLS", redirect(secure.URL, httptest.NewTLSServer), "", 0},
				{"TLS to none", redirect(elsewhere.URL, httptest.NewTLSServer), "", 1},
				{"this machine's, to another place", redirect(elsewhere.URL, httptest.NewServer), "", 1},
				{"this machine's, to a host without a scheme", redirect(strings.TrimPrefix(elsewhere.URL, "http:"), httptest.NewServer), "", 1},
				{"this machine's, by a proxy", plain.URL, "http://127.0.0.1:9", 0},
			} {
				if name == "busybox" && strings.HasPrefix(row.from, "https:") {
					continue // its TLS lacks what a server in Go requires
				}
				i := shell
				i.t, i.home = t, t.TempDir()
				i.env = []string{"CURL_CA_BUNDLE=" + certificate, "WGETRC=" + wgetrc, "http_proxy=" + row.proxy, "all_proxy=" + row.proxy}
				code, out := i.run(script, "--user", "--from", row.from)
				require.Equal(t, row.code, code, "%s: %s", row.why, out)
				if row.code != 0 {
					require.Contains(t, out, "cannot get "+row.from+"/SHA256SUMS\nhint: ")
					require.Len(t, treeOf(t, i.home), 1)
				}
			}
		})
	}
}

// In a home with odd characters too, what it prints can be typed; its copy there removes that installation, also for root,
// which has others.
func TestInstallScriptInAnOddHome(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	for _, shell := range []string{"dash", "bash"} {
		outer := t.TempDir()
		i := &installer{t: t, shell: []string{shell}, path: "/usr/bin:/bin", home: filepath.Join(outer, `a b\n$(touch x)'c`)}
		require.NoError(t, os.Mkdir(i.home, 0o700))
		code, out := i.run(script, "--user", "--from", releaseFolder(t))
		require.Zero(t, code, out)
		remove, ok := strings.CutPrefix(regexp.MustCompile(`(?m)^install: to remove it: .*$`).FindString(out), "install: to remove it: ")
		require.True(t, ok, out)
		remove, ok = strings.CutSuffix(remove, " --user") // without it, it knows where it is
		require.True(t, ok)
		set, ok := strings.CutPrefix(regexp.MustCompile(`(?m)^install: add it to the PATH: .*$`).FindString(out), "install: add it to the PATH: ")
		require.True(t, ok, out)
		typed := filepath.Join(t.TempDir(), "typed.sh")
		require.NoError(t, os.WriteFile(typed, []byte(set+"\ncommand -v permesso\n"+remove+"\n"), 0o600))
		code, out = i.run(typed)
		require.Zero(t, code, out)
		require.Contains(t, out, i.home+"/.local/bin/permesso\n")
		require.Contains(t, out, "removed permesso from "+i.home+"/.local")
		require.Equal(t, map[string]string{".": "folder", filepath.Base(i.home): "folder"}, treeOf(t, outer))
	}
}

// What cannot be meant is refused before anything is fetched.
func TestInstallScriptOptions(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	for want, row := range map[string]struct {
		args []string
		env  string
	}{
		"--from needs a value":             {[]string{"--user", "--from", ""}, ""},
		"--from needs a value ":            {[]string{"--user", "--from", "/"}, ""},
		"--version needs a value":          {[]string{"--user", "--version"}, ""},
		"--version needs a value ":         {[]string{"--version", "--user"}, ""},
		"unknown option --force":           {[]string{"--force"}, ""},
		"--version and --from: give one":   {[]string{"--user", "--version", "v1", "--from", "/x"}, ""},
		"HOME is 'home', not the path":     {[]string{"--user"}, "HOME=home"},
		"HOME is '', not the path":         {[]string{"--user"}, "HOME="},
		"no folder for temporary files":    {[]string{"--user", "--from", "/x"}, "TMPDIR=/nowhere"},
		"it may be installed elsewhere: -": {[]string{"--user", "--uninstall"}, ""},
	} {
		i := &installer{t: t, shell: []string{"dash"}, path: "/usr/bin:/bin", home: t.TempDir()}
		if row.env != "" {
			i.env = []string{row.env}
		}
		code, out := i.run(script, row.args...)
		require.Equal(t, 1, code, out)
		require.Contains(t, out, strings.TrimSpace(want))
		require.Contains(t, out, "hint: ")
		require.Len(t, treeOf(t, i.home), 1)
	}
}

// A name of the script that begins with a dash is a name.
func TestInstallScriptNamedLikeAnOption(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "-i.sh"), script, 0o600))
	cmd := osexec.Command("dash", "--", "-i.sh", "--from", filepath.Join(dir, "none"))
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.NotContains(t, string(out), "dirname")
	require.Contains(t, string(out), "hint: ")
}

// Whatever is wrong with what was fetched, nothing is installed and a sentence says why.
func TestInstallScriptRefuses(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(releaseFolder(t), "SHA256SUMS"))
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^[0-9a-f]{64}  ` + regexp.QuoteMeta(archiveName()) + "\n").FindString(string(sums))
	require.NotEmpty(t, line)
	for _, row := range []struct {
		why     string
		changed map[string][]byte
		from    string
		says    string
	}{
		{"another archive", map[string][]byte{archiveName(): []byte("other bytes")}, "", "has another SHA-256 than SHA256SUMS says; nothing was installed"},
		{"no archive", map[string][]byte{archiveName(): nil}, "", "cannot get "},
		{"no checksums", map[string][]byte{"SHA256SUMS": nil}, "", "cannot get "},
		{"no checksum of the archive", map[string][]byte{"SHA256SUMS": []byte(strings.Replace(string(sums), line, "", 1))}, "", "names no single archive"},
		{"two archives", map[string][]byte{"SHA256SUMS": []byte(string(sums) + strings.Replace(line, "1.2.3", "1.2.4", 1))}, "", "names no single archive"},
		{"an answer of another kind", map[string][]byte{"SHA256SUMS": []byte("<html>sign in</html>")}, "", "is not a list of checksums"},
		{"no TLS", nil, "http://mirror.example", "neither https:// nor a folder"},
		{"a name that begins like this machine's", nil, "http://127.0.0.1.evil.example", "neither https:// nor a folder"},
		{"another machine's after a name like this machine's", nil, "http://127.0.0.1:80@mirror.example", "only with https://"},
		{"a relative folder", nil, "dist", "neither https:// nor a folder"},
	} {
		t.Run(row.why, func(t *testing.T) {
			i := &installer{t: t, shell: []string{"dash"}, path: "/usr/bin:/bin", home: t.TempDir()}
			from := row.from
			if from == "" {
				from = fileServer(t, row.changed).URL
			}
			code, out := i.run(script, "--user", "--from", from)
			require.Equal(t, 1, code, out)
			require.Contains(t, out, row.says)
			require.Contains(t, out, "hint: ")
			require.Len(t, treeOf(t, i.home), 1, "only the home itself")
		})
	}
}

// Without --from it asks GitHub, for the newest release or for the one that was named.
func TestInstallScriptAsksForTheRelease(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, writeProgram(filepath.Join(bin, "curl"), "#!/bin/sh\nexit 22\n", 0o700)) // nothing is asked outside this machine
	i := &installer{t: t, shell: []string{"dash"}, path: bin + ":/usr/bin:/bin", home: t.TempDir()}
	for want, args := range map[string][]string{
		"latest/download": {}, "download/v1.2.3": {"--version", "v1.2.3"},
	} {
		code, out := i.run(script, append(args, "--user")...)
		require.Equal(t, 1, code)
		require.Contains(t, out, "cannot get https://github.com/permesso-dev/permesso/releases/"+want+"/SHA256SUMS")
		require.Len(t, treeOf(t, i.home), 1)
	}
}

// A script that was cut off in its download does nothing.
func TestInstallScriptCutOff(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", ".pkg", "install.sh"))
	require.NoError(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	require.Equal(t, `main "$@"`, lines[len(lines)-1])
	i := &installer{t: t, shell: []string{"dash"}, path: "/usr/bin:/bin", home: t.TempDir()}
	cut := filepath.Join(t.TempDir(), "cut.sh")
	for n := range lines {
		require.NoError(t, os.WriteFile(cut, []byte(strings.Join(lines[:n], "")), 0o600))
		_, out := i.run(cut, "--user", "--from", releaseFolder(t))
		require.NotContains(t, out, "install: ", "%d lines", n)
		require.Len(t, treeOf(t, i.home), 1, "%d lines", n)
	}
}

// Every file of a release is in SHA256SUMS, and each program says what it is.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir := releaseFolder(t)
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(t, err)
	want := map[string]string{".": "folder", "SHA256SUMS": digestText(sums)}
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		require.True(t, ok)
		want[name] = sum
	}
	require.Equal(t, want, treeOf(t, dir))
	for _, name := range []string{
		archiveName(), "permesso_1.2.3~rc1_" + runtime.GOARCH + ".deb", "permesso_1.2.3-rc1_oci.tar", "permesso_1.2.3-rc1.spdx.json",
		"permesso-1.2.3rc1-py3-none-any.whl", "permesso-1.2.3rc1.tar.gz", "permesso-1.2.3-rc1.tgz", "install.sh",
	} {
		require.Contains(t, want, name)
	}

	root := t.TempDir()
	require.NoError(t, osexec.Command("tar", "-xzf", filepath.Join(dir, archiveName()), "-C", root).Run())
	out, err := osexec.Command(filepath.Join(root, "bin/permesso"), "version", "--json", "--home", t.TempDir()).Output()
	require.NoError(t, err)
	var v struct{ Version, Commit, Date string }
	require.NoError(t, json.Unmarshal(out, &v))
	require.Equal(t, "1.2.3-rc1 0123456789abcdef 2026-11-21T12:00:00Z", v.Version+" "+v.Commit+" "+v.Date)

	// Links of the document lead somewhere, without the source beside it.
	readme, err := os.ReadFile(filepath.Join(root, "share/doc/permesso/README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "](https://github.com/permesso-dev/permesso/blob/0123456789abcdef/ipc/FORMAT.md)")
	require.NotRegexp(t, `\]\([^)#:]+\)`, string(readme))

	requireSBOM(t, filepath.Join(dir, "permesso_1.2.3-rc1.spdx.json"), filepath.Join(root, "bin/permesso"))
	requireImage(t, filepath.Join(dir, "permesso_1.2.3-rc1_oci.tar"))
}

// requireSBOM compares the list with what the go command finds in the program.
func requireSBOM(t *testing.T, file, program string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var doc struct {
		SPDXVersion   string
		SPDXID        string
		Packages      []struct{ SPDXID, Name, VersionInfo string }
		Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	require.Equal(t, "SPDX-2.3", doc.SPDXVersion)
	names := map[string]string{}
	for _, p := range doc.Packages {
		require.Regexp(t, `^SPDXRef-[A-Za-z0-9.-]+$`, p.SPDXID)
		require.NotContains(t, names, p.SPDXID)
		names[p.SPDXID] = p.Name + " " + p.VersionInfo
	}
	var described, contained []string
	for _, r := range doc.Relationships {
		switch r.RelationshipType {
		case "DESCRIBES":
			require.Equal(t, doc.SPDXID, r.SPDXElementID)
			described = append(described, names[r.RelatedSPDXElement])
		case "CONTAINS":
			require.Contains(t, names, r.SPDXElementID)
			contained = append(contained, names[r.RelatedSPDXElement])
		}
	}
	require.Equal(t, []string{"permesso 1.2.3-rc1"}, described)

	info, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	linked := []string{"stdlib " + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		linked = append(linked, m.Path+" "+m.Version)
	}
	require.Greater(t, len(linked), 30)
	require.ElementsMatch(t, linked, contained)
}

// requireImage follows the digests of an image layout down to the files, and compares the image with the one of the
// Containerfile.
func requireImage(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	blobs := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		blobs[h.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
	require.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, string(blobs["oci-layout"]))
	type descriptor struct {
		Digest      string
		Size        int
		Annotations map[string]string
	}
	get := func(d descriptor, v any) []byte {
		b, ok := blobs["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		require.True(t, ok, d.Digest)
		require.Equal(t, d.Digest, "sha256:"+digestText(b))
		require.Len(t, b, d.Size)
		if v != nil {
			require.NoError(t, json.Unmarshal(b, v))
		}
		return b
	}
	var index, images struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(blobs["index.json"], &index))
	require.Len(t, index.Manifests, 1)
	require.Equal(t, "localhost/permesso:1.2.3-rc1", index.Manifests[0].Annotations["io.containerd.image.name"])
	get(index.Manifests[0], &images)
	require.Len(t, images.Manifests, 1, "one architecture")
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	get(images.Manifests[0], &manifest)
	var config struct {
		Architecture string
		Config       struct {
			User            string
			Env             []string
			Entrypoint, Cmd []string
			Volumes         map[string]struct{}
			StopSignal      string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	get(manifest.Config, &config)
	require.Equal(t, runtime.GOARCH, config.Architecture)
	require.Len(t, manifest.Layers, 1)
	z, err := gzip.NewReader(bufio.NewReader(bytes.NewReader(get(manifest.Layers[0], nil))))
	require.NoError(t, err)
	layer, err := io.ReadAll(z)
	require.NoError(t, err)
	require.Equal(t, []string{"sha256:" + digestText(layer)}, config.Rootfs.DiffIDs)
	var files []string
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		files = append(files, fmt.Sprintf("%s %o %d", h.Name, h.Mode, h.Uid))
	}
	require.Equal(t, []string{"permesso 755 0", "var/ 755 0", "var/lib/ 755 0", "var/lib/permesso/ 700 65532"}, files)

	text, err := os.ReadFile(filepath.Join("..", "..", ".pkg", "Containerfile"))
	require.NoError(t, err)
	_, last, _ := strings.Cut(string(text), "\nFROM scratch\n")
	require.Contains(t, last, "\nUSER "+config.Config.User+"\n")
	require.Contains(t, last, "\nENV "+strings.Join(config.Config.Env, " ")+"\n")
	require.Contains(t, last, "\nENTRYPOINT [\""+strings.Join(config.Config.Entrypoint, `", "`)+"\"]\n")
	require.Contains(t, last, "\nCMD [\""+strings.Join(config.Config.Cmd, `", "`)+"\"]\n")
	require.Contains(t, last, "\nSTOPSIGNAL "+config.Config.StopSignal+"\n")
	require.Contains(t, config.Config.Volumes, "/var/lib/permesso")
}

// Without a compiler, install.sh and the package lead to a first approval by the README's words, and their removal
// leaves what they say.
func TestFirstApprovalWithoutACompiler(t *testing.T) {
	t.Parallel()
	var words [2][]string // before the daemon serves, and after that
	var serve string
	for _, b := range readmeBlocks(t, "README.md", "Ten minutes") {
		switch {
		case b.second:
			serve = b.text
		case strings.Contains(b.text, "make build"):
			// install.sh and the package are instead of it
		case serve == "":
			words[0] = append(words[0], b.text)
		case len(words[1]) < 3: // request, approve, result
			words[1] = append(words[1], readmeSeen.Replace(b.text))
		}
	}
	require.Len(t, words[0], 1)
	require.Len(t, words[1], 3)
	words[1] = slices.Insert(words[1], 1, readmePause)
	dir := t.TempDir()
	file := func(name, text string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o644))
		return filepath.Join(dir, name)
	}
	args := []string{
		"overlay", "first",
		file("words.sh", "case $1 in\ninit)\n"+strings.Join(words[0], "\n")+";;\nask)\n"+strings.Join(words[1], "\n")+";;\nesac\n"),
		file("serve.sh", regexp.MustCompile(`(?m)^export PATH=.*\n`).ReplaceAllString(serve, "")),
	}
	for _, name := range []string{"install.sh", "SHA256SUMS", archiveName(), "permesso_1.2.3~rc1_" + runtime.GOARCH + ".deb"} {
		args = append(args, filepath.Join(releaseFolder(t), name))
	}
	if os.Getuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "CI installs packages, so it runs as root")
		t.Skip("installing needs root")
	}
	roots := []string{"overlay"}
	if os.Getenv("PERMESSO_SOAK") != "" {
		roots = append(roots, "debootstrap")
	}
	for _, args[0] = range roots {
		require.Contains(t, runTool(t, nil, ".pkg/deb/root", args...), "first: done")
	}
}
