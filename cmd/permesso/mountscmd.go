package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

func (a *app) mountsCmd() *cobra.Command {
	var form string
	c := &cobra.Command{
		Use: "mounts WORKSPACE", Short: "Print the mounts of an agent's container", Args: cobra.ExactArgs(1),
		Long: "Print the two mounts of an agent's container: its requests, read-write, and its responses, read-only. Mount\n" +
			"nothing else of the daemon's: an agent that sees more could approve its own requests.\n\n" +
			"A read-only mount protects only against an agent that cannot mount: never give its container --privileged or\n" +
			"CAP_SYS_ADMIN. Bubblewrap started by root grants all capabilities, so the arguments for it drop them.",
		Example: "  permesso mounts default\n" +
			"  eval \"docker run $(permesso mounts default --docker) my-agent\"\n" +
			"  permesso mounts default --json",
		RunE: func(_ *cobra.Command, pos []string) error {
			h, err := home.Load(a.Console)
			if err != nil {
				return err
			}
			ws := pos[0]
			if _, ok := h.Config.Workspaces[ws]; !ok {
				return console.Fail(console.ExitError, "workspaces: "+strings.Join(home.WorkspaceNames(h.Config), ", "), "no workspace '%s' in the configuration", ws)
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
	} {
		c.Flags().BoolFunc(f.name, f.usage, func(string) error { form = f.name; return nil })
	}
	c.MarkFlagsMutuallyExclusive("bwrap", "docker", "podman", "compose")
	return c
}
