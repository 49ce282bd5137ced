package main

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

func (a *app) mountsCmd() *cobra.Command {
	var form string
	c := &cobra.Command{
		Use: "mounts WORKSPACE", Short: "Print the two mounts that an agent's container gets", Args: cobra.ExactArgs(1),
		Long: "Print the two mounts that an agent's container gets: its requests, to write, and its responses, to read.\n" +
			"Nothing else of the gate belongs into a container: an agent that sees more could approve itself.\n\n" +
			"What is mounted read-only stays so only for an agent that may not mount: never give its container\n" +
			"--privileged or CAP_SYS_ADMIN. Bubblewrap started by root gives it all capabilities, so that the\n" +
			"arguments for it take them away.",
		Example: "  permesso mounts default\n" +
			"  eval \"docker run $(permesso mounts default --docker) my-agent\"\n" +
			"  permesso mounts default --json",
		ValidArgsFunction: a.completeWorkspaces,
		RunE: func(_ *cobra.Command, pos []string) error {
			h, err := a.house()
			if err != nil {
				return err
			}
			ws := pos[0]
			if _, ok := h.cfg.Workspaces[ws]; !ok {
				return fail(codeError, "the workspaces are: "+strings.Join(sortedNames(h.cfg), ", "), "no workspace '%s' in the configuration", ws)
			}
			list := mounts(h.layout, ws)
			text, err := list.form(form)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"workspace": ws, "mounts": list}, text)
		},
	}
	for _, f := range []struct{ name, usage string }{
		{"bwrap", "as arguments of bubblewrap"},
		{"docker", "as arguments of docker run"},
		{"podman", "as arguments of podman run"},
		{"compose", "as volumes of a service in a compose file"},
	} {
		c.Flags().BoolFunc(f.name, f.usage, func(string) error { form = f.name; return nil })
	}
	c.MarkFlagsMutuallyExclusive("bwrap", "docker", "podman", "compose")
	return c
}

func (a *app) completeWorkspaces(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := a.house()
	if err != nil || len(pos) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return sortedNames(h.cfg), cobra.ShellCompDirectiveNoFileComp
}

// mount is one folder of the host that a container sees.
type mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

type mountList []mount

// mounts is the only place that says what a container may see.
func mounts(l ipc.Layout, ws string) mountList {
	return mountList{
		{Source: l.Requests(ws), Target: client.DefaultRequests},
		{Source: l.Responses(ws), Target: client.DefaultResponses, ReadOnly: true},
	}
}

// form writes the mounts as some program wants them, on one line that a shell
// takes apart again; compose wants lines of YAML. No form is for people.
func (list mountList) form(name string) (string, error) {
	switch name {
	case "bwrap":
		return shellWords(list.bwrap()), nil
	case "docker":
		// The daemon's own defaults are what Docker offers here: its mounts
		// take no nosuid, and containers have no way to use it.
		args, err := list.flags("readonly")
		return shellWords(args), err
	case "podman":
		args, err := list.flags("readonly", "nosuid", "nodev", "noexec")
		return shellWords(args), err
	case "compose":
		return list.compose(), nil
	}
	var lines []string
	for _, m := range list {
		access := "read-write"
		if m.ReadOnly {
			access = "read-only "
		}
		lines = append(lines, access+"  "+m.Source+"  ->  "+m.Target)
	}
	return strings.Join(lines, "\n"), nil
}

// bwrap drops the capabilities too: started by root, bubblewrap leaves them to
// the agent, who could then remount the responses for writing.
func (list mountList) bwrap() []string {
	args := []string{"--cap-drop", "ALL"}
	for _, m := range list {
		how := "--bind"
		if m.ReadOnly {
			how = "--ro-bind"
		}
		args = append(args, how, m.Source, m.Target)
	}
	return args
}

// flags are --mount flags, whose value is a line of CSV: a path may hold what
// --volume would take for a separator. The first option is for what is
// read-only, the others for all.
func (list mountList) flags(readonly string, others ...string) ([]string, error) {
	var args []string
	for _, m := range list {
		fields := append([]string{"type=bind", "src=" + m.Source, "dst=" + m.Target}, others...)
		if m.ReadOnly {
			fields = append(fields, readonly)
		}
		var b strings.Builder
		w := csv.NewWriter(&b)
		if err := w.Write(fields); err != nil {
			return nil, err
		}
		w.Flush()
		args = append(args, "--mount", strings.TrimSuffix(b.String(), "\n"))
	}
	return args, nil
}

// compose quotes as YAML does, where Go's escapes mean the same. Compose itself
// looks for variables in every value, hence the second dollar sign.
func (list mountList) compose() string {
	var b strings.Builder
	b.WriteString("volumes:")
	for _, m := range list {
		source := strconv.Quote(strings.ReplaceAll(m.Source, "$", "$$"))
		fmt.Fprintf(&b, "\n  - type: bind\n    source: %s\n    target: %s", source, m.Target)
		if m.ReadOnly {
			b.WriteString("\n    read_only: true")
		}
		// Without this a missing folder would be made, and belong to root.
		b.WriteString("\n    bind:\n      create_host_path: false")
	}
	return b.String()
}

func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellWord(w)
	}
	return strings.Join(quoted, " ")
}

// shellWord quotes where a shell would not take the word as it is.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-=,:+@%", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
