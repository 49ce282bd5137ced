package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// runCommand runs one command line in this process, with an empty environment.
func runCommand(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	m := Main{In: strings.NewReader(""), Out: &out, Err: &errs, Env: func(string) string { return "" }}
	code = m.Run(context.Background(), args)
	return code, out.String(), errs.String()
}

func allCommandPaths() (paths []string) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		paths = append(paths, strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), "permesso"), " "))
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk((&app{&console.Console{Env: func(string) string { return "" }}}).root())
	return paths
}

func TestEveryCommandHelps(t *testing.T) {
	paths := allCommandPaths()
	require.Greater(t, len(paths), 15)
	for _, path := range paths {
		code, out, errs := runCommand(append(strings.Fields(path), "--help")...)
		require.Zero(t, code, path)
		require.Empty(t, errs, path)
		require.True(t, path == "environment" || path == "files" || strings.Contains(out, "Usage:\n  permesso"), path)
		require.NotRegexp(t, "`| (stringArray|string|int) {2,}", out, "%s: a flag with an unnamed value", path)
		for _, line := range strings.Split(out, "\n") {
			require.LessOrEqual(t, len([]rune(line)), 130, "%s: %s", path, line)
		}
	}
}

// Commands that seem to look only say that they may write.
func TestHelpSaysWhatRecovers(t *testing.T) {
	for _, path := range []string{"status", "history", "audit tail", "audit verify"} {
		_, out, _ := runCommand(append(strings.Fields(path), "--help")...)
		require.Contains(t, out, "replays the journal", path)
		require.Contains(t, out, "To look without writing, use --home with a copy of HOME, or mount HOME read-only", path)
		require.NotContains(t, out, "@", path)
	}
}

// The help and the package comment must list all exit codes.
func TestExitCodesAreDocumented(t *testing.T) {
	_, help, _ := runCommand("--help")
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	for code := console.ExitOK; code <= console.ExitErrors; code++ {
		require.Regexp(t, `[:;]\s+`+string(rune('0'+code))+` `, help)
		require.Regexp(t, `(?m)^//\t`+string(rune('0'+code))+`  `, string(source))
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, row := range []struct {
		why, says string
		args      []string
	}{
		{"receipt without a subcommand", "hint: permesso receipt --help", []string{"receipt"}},
		{"an unknown subcommand of receipt", "unknown command", []string{"receipt", "bogus"}},
		{"an unknown command", "unknown command", []string{"aprove"}},
		{"no id", "approve needs an ID", []string{"approve"}},
		{"two scopes at once", "approve: give one of --always and --session", []string{"approve", "a7f3", "--always", "--session"}},
		{"an id that is too short", "at least 4 digits", nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			if row.args == nil {
				home := filepath.Join(t.TempDir(), "home")
				config := filepath.Join(t.TempDir(), "permesso.toml")
				code, _, errs := runCommand("init", "--home", home, "--config", config)
				require.Zero(t, code, errs)
				row.args = []string{"deny", "a7f", "--home", home, "--config", config}
			}
			code, out, errs := runCommand(row.args...)
			require.Equal(t, console.ExitUsage, code, errs)
			require.Contains(t, errs, row.says)
			require.Contains(t, errs, "hint: ")
			require.Empty(t, out)
		})
	}
}

func TestCompletion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "permesso.toml")
	require.NoError(t, os.WriteFile(file, []byte("[workspaces.personal]\n[workspaces.work]\n[approvers.ann]\nlocal = 1000\n"), 0o600))
	for _, row := range []struct {
		why  string
		args []string
		want string // the last line is cobra's directive: 4 excludes files, 0 includes them
	}{
		{"workspaces", []string{"mounts", ""}, "personal\nwork\n:4\n"},
		{"only one workspace", []string{"mounts", "work", ""}, ":4\n"},
		{"also as a flag", []string{"pending", "--workspace", ""}, "personal\nwork\n:4\n"},
		{"ids, without a daemon", []string{"approve", ""}, ":4\n"},
		{"a digest, which is not known", []string{"approve", "a7f3", "--seen", ""}, ":4\n"},
		{"a tool, no files", []string{"request", ""}, ":4\n"},
		{"an action type", []string{"grant", "add", "--action-type", ""}, "exec_cmd\nhttp_request\nwrite_file\nsend_message\n:4\n"},
		{"a session, no files", []string{"grant", "add", "--session", ""}, ":4\n"},
		{"a reason, no files", []string{"grant", "add", "--reason", ""}, ":4\n"},
		{"a command, no files", []string{"grant", "add", "--command="}, ":4\n"},
		{"commands, no files", []string{"approve", "a7f3", "--commands="}, ":4\n"},
		{"a receipt file", []string{"receipt", "verify", ""}, ":0\n"},
		{"a preset", []string{"policy", "preset", ""}, "coding-agent\nclaude-code\ncodex\ngemini\nassistant\nci\n:4\n"},
		{"only one preset", []string{"policy", "preset", "ci", ""}, ":4\n"},
		{"a project's folder", []string{"policy", "preset", "ci", "--project", ""}, ":16\n"},
		{"a capability of a tool", []string{"tool", "add", "x", "--capability", ""}, strings.Join(config.Capabilities(), "\n") + "\n:4\n"},
		{"the type of an argument", []string{"tool", "add", "x", "--arg", "a="}, "a=" + strings.Join(facts.ArgTypes(), "\na=") + "\n:4\n"},
		{"an argument's name, no files", []string{"tool", "add", "x", "--stdin", ""}, ":4\n"},
		{"a method", []string{"tool", "add", "x", "--method", ""}, "GET\nHEAD\nPOST\nPUT\nPATCH\nDELETE\n:4\n"},
		{"a workspace of the card", []string{"tool", "add", "x", "--workspace", ""}, "personal\nwork\n:4\n"},
		{"an outcome", []string{"rule", "add", "--outcome", ""}, "allow\nask\nalways_ask\ndeny\n:4\n"},
		{"a preset of init", []string{"init", "--preset", ""}, "coding-agent\nclaude-code\ncodex\ngemini\nassistant\nci\n:4\n"},
		{"the folder of init", []string{"init", "--project", ""}, ":16\n"},
		{"a language", []string{"approver", "add", "x", "--language", ""}, "en\nit\n:4\n"},
		{"an approver's workspaces", []string{"approver", "add", "x", "--workspace", ""}, "personal\nwork\n:4\n"},
		{"an approver to remove", []string{"approver", "remove", ""}, "ann\n:4\n"},
		{"an agent with hooks", []string{"hook", "check", ""}, "claude-code\ncodex\ngemini\n:4\n"},
		{"a TOML script", []string{"serve", "--script", ""}, "toml\n:8\n"},
	} {
		t.Run(row.why, func(t *testing.T) {
			code, out, _ := runCommand(append([]string{"__complete", "--config", file, "--home", t.TempDir()}, row.args...)...)
			require.Zero(t, code)
			require.Equal(t, row.want, out)
		})
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, out, _ := runCommand("completion", shell)
		require.Zero(t, code)
		require.Contains(t, out, "permesso")
	}
}

// No flag of the commands that change the configuration completes to files, except folders.
func TestSetupFlagsComplete(t *testing.T) {
	for _, path := range []string{"tool add", "approver add", "approver remove", "rule add", "init"} {
		c, _, err := (&app{&console.Console{Env: func(string) string { return "" }}}).root().Find(strings.Fields(path))
		require.NoError(t, err)
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				return
			}
			_, completes := c.GetFlagCompletionFunc(f.Name)
			require.True(t, completes || f.Annotations[cobra.BashCompSubdirsInDir] != nil, "%s --%s", path, f.Name)
		})
	}
}

// An agent and an approver are never told of --operator: only the help of cancel is.
func TestOperatorIsOnlyInHelp(t *testing.T) {
	root := filepath.Join("..", "..")
	read := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); err != nil || d.IsDir() || ext != ".go" && ext != ".toml" || strings.HasSuffix(path, "_test.go") || d.Name() == "help.toml" {
			return err
		}
		b, err := os.ReadFile(path)
		read++
		require.NotContains(t, string(b), "--operator", path)
		return err
	}))
	require.Greater(t, read, 300)
}
