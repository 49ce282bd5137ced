package main

import (
	"cmp"
	"context"
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
	"github.com/permesso-dev/permesso/ipc"
)

// workspaceWithFolders is a workspace of the configuration. If that cannot be read, it is one
// whose folders exist.
func (a *app) workspaceWithFolders(ws string) (*home.Home, string, error) {
	h, err := home.Load(a.Console)
	if err != nil {
		located, homeErr := home.Existing(a.Console)
		if homeErr != nil {
			return nil, "", err
		}
		names, listErr := located.Store.Workspaces(context.Background())
		if listErr != nil || !slices.Contains(names, ws) {
			return nil, "", err
		}
		a.Tell(console.HintFor(err), "%v", err)
		return located, ws, nil
	}
	if ws, err = control.ChooseWorkspace(h, ws); err == nil && h.Config.Workspaces[ws].NoFolder {
		err = console.Fail(console.ExitRefused, "permesso key create "+ws, "workspace '%s' has folder = false", ws)
	}
	return h, ws, err
}

// folders are the two folders of a workspace, without a look at the configuration: a hook must be fast.
func (a *app) folders(ws string) (requests, responses string, err error) {
	dir, err := config.LocateHome(a.HomeFlag, a.Env)
	if err != nil {
		return "", "", err
	}
	l := ipc.Layout{Home: dir}
	if !ipc.ValidWorkspace(ws) {
		return "", "", fmt.Errorf("%q is no name of a workspace", ws)
	}
	return l.Requests(ws), l.Responses(ws), nil
}

// knownWorkspace refuses a workspace that the configuration does not have, and says if that cannot be read.
func (a *app) knownWorkspace(ws string) error {
	h, err := home.Load(a.Console)
	if err == nil {
		return console.CheckWorkspace(ws, home.WorkspaceNames(h.Config))
	}
	if ws != "default" {
		a.Tell(console.HintFor(err), "it is not known whether there is a workspace '%.80s': %v", ws, err)
	}
	return nil
}

func (a *app) mountsCmd() *cobra.Command {
	var form string
	c := &cobra.Command{
		Use: "mounts WORKSPACE", Short: "Print the mounts of an agent's container", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			if form == "prompt" {
				return a.printPrompt(pos[0])
			}
			h, ws, err := a.workspaceWithFolders(pos[0])
			if err != nil {
				return err
			}
			list := sandbox.Mounts(h.Layout, ws)
			if form == "bwrap" {
				if err := sandbox.WriteFilter(h.Layout); err != nil {
					return err
				}
			}
			text, err := list.Form(form, h.Layout)
			if err != nil {
				return err
			}
			return a.PrintToCopy(map[string]any{"workspace": ws, "mounts": list}, text)
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

// printPrompt prints the page for the agents of a workspace.
func (a *app) printPrompt(ws string) error {
	h, err := home.Load(a.Console)
	if err != nil {
		return err
	}
	if ws, err = control.ChooseWorkspace(h, ws); err != nil {
		return err
	}
	text := agentPrompt + toolList(h.Config)
	return a.PrintToCopy(map[string]any{"workspace": ws, "prompt": text}, strings.TrimSuffix(text, "\n"))
}

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
