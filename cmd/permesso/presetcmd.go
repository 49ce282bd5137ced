package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
	"github.com/permesso-dev/permesso/ipc"
)

// presets are configurations and their tests, with @PROJECT@ and @PERSON@ for what differs.
//
//go:embed presets
var presets embed.FS

// presetOptions are what a preset is made for.
type presetOptions struct {
	project, person, workspace string
	tests                      bool
}

func (a *app) policyPresetCmd() *cobra.Command {
	var o presetOptions
	c := &cobra.Command{
		Use: "preset NAME", Short: "Print a workspace with tools and rules to start from", Args: cobra.ExactArgs(1),
		ValidArgsFunction: firstArgument(setup.Presets()),
		RunE:              func(_ *cobra.Command, pos []string) error { return a.printPreset(pos[0], o) },
	}
	addPresetFlags(c, &o.project, &o.person)
	c.Flags().StringVar(&o.workspace, "workspace", "", "`name` of the workspace (default: the preset's own)")
	completeFlags(c, map[string][]string{"workspace": nil})
	c.Flags().BoolVar(&o.tests, "tests", false, "print the preset's tests, for permesso policy test")
	return c
}

// addPresetFlags adds the flags of what a preset is made for.
func addPresetFlags(c *cobra.Command, project, person *string) {
	c.Flags().StringVar(project, "project", ".", "the project's `folder`")
	c.Flags().StringVar(person, "person", "you@example.org", "the person's mail `address`, for assistant")
	_ = c.MarkFlagDirname("project")
	completeFlags(c, map[string][]string{"person": nil})
}

// firstArgument completes the first argument with one of these.
func firstArgument(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(pos) > 0 {
			values = nil
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) printPreset(name string, o presetOptions) error {
	text, err := a.preset(name, o)
	if err != nil {
		return err
	}
	if h, err := home.Load(a.Console); err == nil && !o.tests {
		text = added(text, h.Config)
	}
	return a.PrintToCopy(map[string]string{"name": name, "text": text}, strings.TrimSuffix(text, "\n"))
}

var presetTable = regexp.MustCompile(`(?m)^\[(workspaces|tools)\.(\S+)\]$`)

// added is a preset as it can be added to a configuration: without the tables that are there, and with the approvers who
// decide in every workspace. The operator who is one of them would decide nothing in a workspace without approvers.
func added(text string, cfg *config.Config) string {
	var deciders []string
	for i, ws := range home.WorkspaceNames(cfg) {
		names := cfg.Workspaces[ws].Approvers
		if i == 0 {
			deciders = slices.Clone(names)
		}
		deciders = slices.DeleteFunc(deciders, func(name string) bool { return !slices.Contains(names, name) })
	}
	parts := strings.Split(text, "\n\n")
	for i, part := range parts {
		m := presetTable.FindStringSubmatch(part)
		if m == nil {
			continue
		}
		_, tool := cfg.Tools[m[2]]
		_, workspace := cfg.Workspaces[m[2]]
		switch {
		case m[1] == "tools" && tool, m[1] == "workspaces" && workspace:
			parts[i] = "# " + m[0] + " is configured already."
		case m[1] == "workspaces" && len(deciders) > 0:
			parts[i] = strings.Replace(part, m[0], fmt.Sprintf("%s\napprovers = [%s]", m[0], `"`+strings.Join(deciders, `", "`)+`"`), 1)
		}
	}
	return strings.Join(parts, "\n\n")
}

// coding are the presets of coding agents: the same rules, with the names of each agent's tools and arguments.
var coding = map[string]map[string]string{
	"coding-agent": {"READ": `"read_file"`, "SEARCH": `"search"`, "REVEAL": `["read_file", "search"]`, "WRITE": `["write_file", "edit_file"]`, "SHELL": `"shell"`, "PATH": "path", "OBEYED": "deny"},
	"claude-code": {
		"READ": `"Read"`, "SEARCH": `["Glob", "Grep"]`, "REVEAL": `["Read", "Grep"]`, "WRITE": `["Write", "Edit", "NotebookEdit"]`, "SHELL": `"Bash"`, "PATH": "files", "OBEYED": "always_ask",
		"MORE": `cwd = "@PROJECT@/**", description = { matches = ".*", optional = true }, timeout = { min = 0, optional = true }, run_in_background = { equals = false, optional = true }, `,
	},
	"codex": {"READ": `"view_image"`, "WRITE": `"apply_patch"`, "REVEAL": `"view_image"`, "SHELL": `"Bash"`, "PATH": "files", "OBEYED": "always_ask", "MORE": `cwd = "@PROJECT@/**", `, "READS": `"cat ...", "head [-n *] ...", "tail [-n *] ...", "nl [-ba] ...", "rg [-n -i -l --files] ...", "grep [-n -i -r -l] ...", `},
	"gemini": {
		"READ": `"read_file"`, "SEARCH": `["list_directory", "glob", "grep_search"]`, "REVEAL": `["read_file", "grep_search"]`, "WRITE": `["write_file", "replace"]`, "SHELL": `"run_shell_command"`, "PATH": "files", "OBEYED": "always_ask",
		"MORE": `cwd = "@PROJECT@/**", dir_path = { matches = ".*", optional = true }, description = { matches = ".*", optional = true }, is_background = { equals = false, optional = true }, `,
	},
}

// codingRules are the rules of an agent. Those about tools that read files are left out if it reads them by commands.
func codingRules(names map[string]string) (string, error) {
	b, err := presets.ReadFile("presets/coding-rules.toml")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for rule := range strings.SplitSeq(string(b), "[[rules]]") {
		if rule == "" || names["SEARCH"] == "" && (strings.Contains(rule, "@SEARCH@") || strings.Contains(rule, "netrc")) {
			continue
		}
		out.WriteString("[[rules]]" + rule)
	}
	var pairs []string
	for _, name := range []string{"READ", "SEARCH", "REVEAL", "WRITE", "SHELL", "PATH", "MORE", "READS", "OBEYED"} {
		pairs = append(pairs, "@"+name+"@", names[name])
	}
	return strings.NewReplacer(pairs...).Replace(out.String()), nil
}

// preset returns a preset's configuration, or its tests.
func (a *app) preset(name string, o presetOptions) (string, error) {
	file := name + ".toml"
	if o.tests {
		file = name + ".jsonl"
	}
	b, err := presets.ReadFile("presets/" + file)
	if err != nil {
		return "", console.Fail(console.ExitUsage, "presets: "+strings.Join(setup.Presets(), ", "), "there is no preset %q", name)
	}
	if names, ok := coding[name]; ok && !o.tests {
		rules, err := codingRules(names)
		if err != nil {
			return "", err
		}
		b = append(append(b, '\n'), rules...)
	}
	if r, valid := facts.Recipients(o.person); !valid || len(r) != 1 || !r[0].Bare() || strings.ContainsAny(o.person, `"\*?`) {
		return "", console.Fail(console.ExitUsage, "--person ann@example.org", "--person: %q is not one mail address", o.person)
	}
	project := ""
	if strings.Contains(string(b), "@PROJECT@") {
		if project, err = projectFolder(o.project, a.Env("HOME")); err != nil {
			return "", err
		}
	}
	text := strings.NewReplacer("@PROJECT@", project, "@PERSON@", o.person).Replace(string(b))
	own := name
	if coding[name] != nil {
		own = "coding"
	}
	switch {
	case o.workspace == "":
		return text, nil
	case !ipc.ValidWorkspace(o.workspace):
		return "", console.Fail(console.ExitUsage, "--workspace NAME", "--workspace: %q cannot be the name of a workspace", o.workspace)
	}
	return regexp.MustCompile(`(\[workspaces\.|workspace"?(?: =|:) "|--workspace )`+own+`\b`).ReplaceAllString(text, "${1}"+o.workspace), nil
}

// plainFolder is a path in which no character has a meaning for a pattern or for TOML.
var plainFolder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL\pN_./@+,=:-]+$`) })

// projectFolder returns a folder as rules name it: absolute, with its links resolved. It
// refuses one that holds more than a project.
func projectFolder(dir, userHome string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = home.Resolve(abs)
	}
	if err != nil {
		return "", fmt.Errorf("--project: %w", err)
	}
	if userHome, err = home.Resolve(userHome); err != nil {
		userHome = "/"
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return "", console.Fail(console.ExitUsage, "--project DIR names the project's folder", "--project: %w", err)
	case !info.IsDir():
		return "", console.Fail(console.ExitUsage, "--project DIR names the project's folder", "--project: %s is not a folder", abs)
	case abs == "/" || strings.HasPrefix(userHome+"/", abs+"/"):
		return "", console.Fail(console.ExitUsage, "--project DIR names the project's folder", "--project: %s holds more than a project: rules would open all of it", abs)
	case !plainFolder().MatchString(abs):
		return "", console.Fail(console.ExitUsage, "rename it, or write the rules yourself", "--project: %q has a character with a meaning in patterns", abs)
	}
	return abs, nil
}
