package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/agentconf"
	"github.com/permesso-dev/permesso/ipc/mcp/servers"
)

// mcpSettings is one change of the MCP servers of an agent.
type mcpSettings struct {
	*hookCommand
	settingsFlags

	name        string
	timeout     time.Duration
	timed       bool // --timeout was given
	keepChanges bool
}

func (h *hookCommand) mcpInstall() *cobra.Command {
	s := &mcpSettings{hookCommand: h, timeout: 10 * time.Minute}
	c := s.command("install AGENT", "Put the gate's MCP server into the settings of an agent", s.install)
	c.Flags().StringVar(&s.name, "name", "permesso", "`name` of the server there")
	c.Flags().Var((*console.Duration)(&s.timeout), "timeout", "how long the agent waits for a call of the server")
	h.workspaceFlag(c)
	return c
}

func (h *hookCommand) mcpUninstall() *cobra.Command {
	s := &mcpSettings{hookCommand: h}
	return s.command("uninstall AGENT", "Take the gate's MCP server out of the settings of an agent", s.uninstall)
}

func (h *hookCommand) mcpWrap() *cobra.Command {
	s := &mcpSettings{hookCommand: h}
	c := s.command("wrap AGENT", "Put the gateway before each MCP server that an agent has", s.wrap)
	h.workspaceFlag(c)
	return c
}

func (h *hookCommand) mcpUnwrap() *cobra.Command {
	s := &mcpSettings{hookCommand: h}
	c := s.command("unwrap AGENT", "Take the gateway away from the MCP servers of an agent", s.unwrap)
	c.Flags().BoolVar(&s.keepChanges, "keep-changes", false, "take only the gateway away, where the settings were changed since")
	return c
}

func (s *mcpSettings) command(use, short string, run func(context.Context, servers.Agent) error) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgs: servers.Agents(),
		RunE: func(cmd *cobra.Command, pos []string) error {
			a, ok := servers.AgentNamed(pos[0])
			if !ok {
				return console.Fail(console.ExitUsage, "permesso mcp --help", "the MCP settings of %q are not known: give one of %s", pos[0], strings.Join(servers.Agents(), ", "))
			}
			s.timed = cmd.Flags().Changed("timeout")
			return run(cmd.Context(), a)
		},
	}
	s.flags(c, agentconf.User, agentconf.Project)
	return c
}

// files are those of the agent in a scope; the first that is there comes first.
func (s *mcpSettings) files(a servers.Agent, scope agentconf.Scope) ([]string, error) {
	home, project, err := folders()
	if err != nil {
		return nil, err
	}
	all := a.Files(scope, home, project, s.Env)
	i := max(0, slices.IndexFunc(all, func(file string) bool {
		_, err := os.Lstat(file)
		return err == nil
	}))
	all[0], all[i] = all[i], all[0]
	return all, nil
}

// edit is a change of the file of the scope. Each kind of change has a backup of its own.
func (s *mcpSettings) edit(a servers.Agent, kind, byHand string, c settingsChange) (*settingsEdit, error) {
	files, err := s.files(a, s.scope())
	if err != nil {
		return nil, err
	}
	file, err := settingsTarget(files[0])
	if err != nil {
		return nil, err
	}
	x := &settingsEdit{file: file, kept: file + ".before-permesso-" + kind, secret: s.scope() == agentconf.User, byHand: byHand}
	return x, x.plan(c)
}

func (s *mcpSettings) install(ctx context.Context, a servers.Agent) error {
	e, err := s.entry(a)
	if err != nil {
		return err
	}
	c := installed(a)
	c.add = func(text, _ []byte) ([]byte, error) { return a.Add(text, e) }
	x, err := s.edit(a, "mcp", "edit it by hand; the lines of the server: permesso mcp install "+a.Name+" --project --print, in an empty folder", c)
	if err != nil {
		return err
	}
	return s.apply(ctx, s.program, x, "without the server the file is not needed", func() string {
		advice := "the server asks only where the agent calls it: permesso mcp wrap " + a.Name + " gates the other servers, permesso hook install " + a.Name + " all calls"
		if a.Name == "claude-code" {
			advice += "; claude -p --permission-prompt-tool mcp__" + s.name + "__permission_prompt asks the gate where Claude Code would ask"
		}
		return advice
	})
}

// entry is our server, as the agent is to start it.
func (s *mcpSettings) entry(a servers.Agent) (e servers.Entry, err error) {
	if e.Program, err = os.Executable(); err != nil {
		return e, fmt.Errorf("find this program: %w", err)
	}
	e.Name, e.Args = s.name, []string{"mcp", "--name", a.Name}
	switch {
	case a.Times() && (s.timeout < 20*time.Second || s.timeout > 24*24*time.Hour): // a longer timer of JavaScript ends at once
		err = fmt.Errorf("--timeout %s: give 20s or more, and no agent waits longer than 24d", s.timeout)
	case a.Times():
		e.Timeout = s.timeout
		e.Args = append(e.Args, "--hold", a.Hold(s.timeout).String())
	case s.timed:
		err = fmt.Errorf("--timeout: the settings of %s have none for a call", a.Name)
	}
	if err != nil {
		return e, console.Wrap(console.ExitUsage, err, "permesso mcp install --help")
	}
	for _, name := range []string{"PERMESSO_URL", "PERMESSO_KEY", "PERMESSO_REQUESTS", "PERMESSO_RESPONSES", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		if s.Env(name) != "" {
			e.Variables = append(e.Variables, name)
		}
	}
	gate, err := s.named()
	e.Args = append(e.Args, gate...)
	return e, err
}

func installed(a servers.Agent) settingsChange {
	return settingsChange{remove: func(text, _ []byte) ([]byte, error) { return a.Remove(text) }, restores: a.Restores}
}

func wrapped(a servers.Agent) settingsChange {
	return settingsChange{remove: a.Unwrap, restores: a.Unwraps}
}

func (s *mcpSettings) uninstall(ctx context.Context, a servers.Agent) error {
	x, err := s.edit(a, "mcp", "edit it by hand", installed(a))
	if err != nil {
		return err
	}
	x.forget(a)
	return s.apply(ctx, s.program, x, "", nil)
}

// forget drops the backup also where nothing but our other change was made, or taken back, since.
func (x *settingsEdit) forget(a servers.Agent) {
	if !x.drops && x.old != nil && a.SameOthers(x.old, x.clean) {
		x.drops, x.backup = true, ""
	}
}

func (s *mcpSettings) wrap(ctx context.Context, a servers.Agent) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	w := servers.Wrapper{Program: program}
	gate, err := s.named()
	if err != nil {
		return err
	}
	w.Args = append([]string{"--name", a.Name}, gate...)
	var left []servers.Left
	c := wrapped(a)
	c.add = func(text, old []byte) (out []byte, err error) {
		out, left, err = a.Wrap(text, old, w)
		return out, err
	}
	x, err := s.edit(a, "wrap", "put permesso mcp proxy --server NAME -- before the commands by hand", c)
	if err != nil {
		return err
	}
	for _, l := range left {
		s.ungated("calls to the server %s are not gated: %s", console.OneLine(l.Name), console.OneLine(l.Reason))
	}
	if err := s.others(a, x.file); err != nil {
		return err
	}
	return s.apply(ctx, s.program, x, "", a.Advice)
}

func (s *mcpSettings) ungated(form string, args ...any) {
	s.PrintIssue("permesso: warning: ", console.Fail(console.ExitOK, "", form, args...))
}

// others names the files with servers that the agent starts besides, and that have no gateway before them.
func (s *mcpSettings) others(a servers.Agent, done string) error {
	for _, scope := range []agentconf.Scope{agentconf.User, agentconf.Project} {
		files, err := s.files(a, scope)
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			target, linkErr := settingsTarget(file)
			if err != nil || linkErr != nil || target == done {
				continue
			}
			if _, without := a.Wrapped(text); len(without) > 0 {
				s.ungated("%s has servers that are not gated: %s", file, console.OneLine(strings.Join(without, ", ")))
			}
		}
	}
	return nil
}

// unwrap takes the gateway away. Settings that were changed since are not as they were, which only a person can want.
func (s *mcpSettings) unwrap(ctx context.Context, a servers.Agent) error {
	x, err := s.edit(a, "wrap", "take permesso mcp proxy away from the commands by hand", wrapped(a))
	if err != nil {
		return err
	}
	x.forget(a)
	if !s.keepChanges && !x.drops && !bytes.Equal(x.before, x.after) {
		const hint = "permesso mcp unwrap --keep-changes takes only the gateway away"
		if x.old == nil {
			return console.Fail(console.ExitRefused, hint, "it is not known how %s was before: there is no %s", x.file, x.kept)
		}
		if !s.JSON {
			fmt.Fprint(s.Out, difference(string(x.old), string(x.clean)))
		}
		return console.Fail(console.ExitRefused, hint, "%s was changed since the gateway was put there (- before, + now)", x.file)
	}
	return s.apply(ctx, s.program, x, "", nil)
}
