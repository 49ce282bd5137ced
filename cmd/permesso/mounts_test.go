package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

// hardPath has the special characters of shells, CSV, YAML and Compose.
const hardPath = "/srv/my agent's \"gate\", 50% $HOME:x\\y"

func printMounts(t *testing.T, home string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "permesso.toml")
	require.NoError(t, os.WriteFile(file, []byte("[workspaces.personal]\n"), 0o600))
	var out, errs bytes.Buffer
	m := Main{In: strings.NewReader(""), Out: &out, Err: &errs, Env: func(string) string { return "" }}
	code := m.Run(context.Background(), append([]string{"mounts", "personal", "--config", file, "--home", home}, args...))
	require.Zero(t, code, errs.String())
	return out.String()
}

func TestMounts(t *testing.T) {
	t.Parallel()
	for _, path := range []struct{ name, home string }{{"plain", "/var/lib/permesso"}, {"hard", hardPath}} {
		for _, form := range []string{"text", "bwrap", "docker", "podman", "compose", "json"} {
			t.Run(path.name+"/"+form, func(t *testing.T) {
				var args []string
				if form != "text" {
					args = append(args, "--"+form)
				}
				got := printMounts(t, path.home, args...)
				golden := filepath.Join("..", "..", "testdata", "mounts", path.name+"."+form+".golden")
				if os.Getenv("PERMESSO_UPDATE") != "" {
					require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
				}
				want, err := os.ReadFile(golden)
				require.NoError(t, err)
				require.Equal(t, string(want), got)
				if parse := parsers()[form]; parse != nil {
					req, resp := path.home+"/ipc/personal/requests", path.home+"/ipc/personal/responses"
					require.Equal(t, sandbox.MountList{
						{Source: req, Target: "/permesso/requests"},
						{Source: resp, Target: "/permesso/responses", ReadOnly: true},
					}, parse(t, got))
				}
			})
		}
	}
}

// parsers parse each form as its program does.
func parsers() map[string]func(*testing.T, string) sandbox.MountList {
	return map[string]func(*testing.T, string) sandbox.MountList{
		"bwrap": parseBwrap, "docker": parseFlags, "podman": parseFlags, "compose": parseCompose, "json": parseJSON,
	}
}

// shellSplit splits a line with a real shell.
func shellSplit(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.Command("/bin/sh", "-c", `eval "set -- $1"; printf '%s\0' "$@"`, "sh", strings.TrimSpace(line)).Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func parseBwrap(t *testing.T, line string) (list sandbox.MountList) {
	if sandbox.Filter() != nil {
		var filter string
		var ok bool
		line, filter, ok = strings.Cut(line, " --seccomp 9 9<") // a redirection
		require.True(t, ok)
		require.True(t, strings.HasSuffix(shellSplit(t, filter)[0], "/seccomp.bpf"))
	}
	w := shellSplit(t, line)
	system := sandbox.BwrapSystem()
	require.Equal(t, system, w[:len(system)])
	w = w[len(system):]
	require.Len(t, w, 6)
	for i := 0; i < len(w); i += 3 {
		require.Contains(t, []string{"--bind", "--ro-bind"}, w[i])
		list = append(list, sandbox.Mount{Source: w[i+1], Target: w[i+2], ReadOnly: w[i] == "--ro-bind"})
	}
	return list
}

func parseFlags(t *testing.T, line string) (list sandbox.MountList) {
	w := shellSplit(t, line)
	require.Len(t, w, 9)
	require.Contains(t, []string{"--pid=", "--pid=private"}, w[0])
	require.Equal(t, []string{"--ipc=private", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--pids-limit=512"}, w[1:5])
	w = w[5:]
	for i := 0; i < len(w); i += 2 {
		require.Equal(t, "--mount", w[i])
		fields, err := csv.NewReader(strings.NewReader(w[i+1])).Read()
		require.NoError(t, err)
		var m sandbox.Mount
		for _, f := range fields {
			switch name, value, _ := strings.Cut(f, "="); name {
			case "type":
				require.Equal(t, "bind", value)
			case "src":
				m.Source = value
			case "dst":
				m.Target = value
			case "readonly":
				m.ReadOnly = true
			default:
				require.Contains(t, []string{"nosuid", "nodev", "noexec"}, name)
			}
		}
		list = append(list, m)
	}
	return list
}

// parseCompose accepts only the subset of YAML that we write.
func parseCompose(t *testing.T, text string) (list sandbox.MountList) {
	item := regexp.MustCompile(`(?m)^  - type: bind\n    source: "((?:[^"\\\n]|\\.)*)"\n    target: (/[a-z/]+)\n((?:    read_only: true\n)?)    bind:\n      create_host_path: false\n`)
	head, rest, ok := strings.Cut(text, "volumes:\n")
	require.True(t, ok)
	require.Equal(t, "# The container has a PID namespace of its own as long as the service has no key \"pid\".\n"+
		"ipc: private\ncap_drop: [ALL]\nsecurity_opt: [\"no-new-privileges:true\"]\npids_limit: 512\n", head)
	require.Empty(t, item.ReplaceAllString(rest, ""), "lines of another form")
	for _, m := range item.FindAllStringSubmatch(rest, -1) {
		// YAML has fewer escapes than Go; we use only those with the same meaning in both.
		require.NotRegexp(t, `(^|[^\\])(\\\\)*\\[^\\"nrtabfvxuU]`, m[1])
		source, err := strconv.Unquote(`"` + m[1] + `"`)
		require.NoError(t, err)
		require.NotRegexp(t, `(^|[^$])(\$\$)*\$($|[^$])`, source, "Compose would replace it as a variable")
		list = append(list, sandbox.Mount{Source: strings.ReplaceAll(source, "$$", "$"), Target: m[2], ReadOnly: m[3] != ""})
	}
	return list
}

func parseJSON(t *testing.T, text string) sandbox.MountList {
	var v struct {
		Workspace string            `json:"workspace"`
		Mounts    sandbox.MountList `json:"mounts"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &v, json.RejectUnknownMembers(true)))
	require.Equal(t, "personal", v.Workspace)
	return v.Mounts
}

func TestMountsRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "permesso.toml")
	require.NoError(t, os.WriteFile(file, []byte("[workspaces.personal]\n[workspaces.work]\n"), 0o600))
	for _, row := range []struct {
		why  string
		args []string
		code int
		says string
	}{
		{"an unknown workspace", []string{"other"}, console.ExitError, "hint: workspaces: personal, work"},
		{"a path instead of a name", []string{"../../etc"}, console.ExitError, "no workspace"},
		{"no workspace", nil, console.ExitUsage, "mounts needs a WORKSPACE"},
		{"two forms at once", []string{"work", "--docker", "--podman"}, console.ExitUsage, "mounts: give one of --docker and --podman"},
	} {
		t.Run(row.why, func(t *testing.T) {
			var out, errs bytes.Buffer
			m := Main{In: strings.NewReader(""), Out: &out, Err: &errs, Env: func(string) string { return "" }}
			code := m.Run(context.Background(), append([]string{"mounts", "--config", file, "--home", "/h"}, row.args...))
			require.Equal(t, row.code, code, errs.String())
			require.Contains(t, errs.String(), row.says)
			require.Empty(t, out.String())
		})
	}
}
