package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

func (a *app) mountsCmd() *cobra.Command {
	var form string
	c := &cobra.Command{
		Use: "mounts WORKSPACE", Short: "Print the mounts of an agent's container", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			h, err := home.Load(a.Console)
			if err != nil {
				return err
			}
			ws, err := control.ChooseWorkspace(h, pos[0])
			if err != nil {
				return err
			}
			if form == "prompt" {
				text := agentPrompt + toolList(h.Config)
				return a.Print(map[string]any{"workspace": ws, "prompt": text}, strings.TrimSuffix(text, "\n"))
			}
			if h.Config.Workspaces[ws].NoFolder {
				return console.Fail(console.ExitRefused, "permesso key create "+ws, "workspace '%s' has folder = false", ws)
			}
			list := sandbox.Mounts(h.Layout, ws)
			text, err := list.Form(form)
			if err != nil {
				return err
			}
			return a.Print(map[string]any{"workspace": ws, "mounts": list}, text)
		},
	}
	for _, f := range []struct{ name, usage string }{
		{"bwrap", "print arguments of bubblewrap"},
		{"docker", "print arguments of docker run"},
		{"podman", "print arguments of podman run"},
		{"compose", "print volumes of a service in a compose file"},
		{"prompt", "print a page for the agent's prompt: how to request, wait, and read a refusal"},
	} {
		c.Flags().BoolFunc(f.name, f.usage, func(string) error { form = f.name; return nil })
	}
	c.MarkFlagsMutuallyExclusive("bwrap", "docker", "podman", "compose", "prompt")
	return c
}

// agentPrompt is the page for an agent's prompt.
//
//go:embed examples/AGENT.md
var agentPrompt string

// toolList lists the tools with their arguments, for an agent.
func toolList(cfg *config.Config) string {
	var b strings.Builder
	b.WriteString("\n## The tools\n\n")
	for _, name := range slices.Sorted(maps.Keys(cfg.Tools)) {
		args := facts.Arguments(cfg.Tools[name])
		var words []string
		for _, arg := range slices.Sorted(maps.Keys(args)) {
			word := arg + " (" + args[arg].Type
			if args[arg].Optional {
				word += ", optional"
			}
			words = append(words, word+")")
		}
		fmt.Fprintf(&b, "- `%s`: %s\n", name, cmp.Or(strings.Join(words, ", "), "no arguments"))
	}
	return b.String()
}
