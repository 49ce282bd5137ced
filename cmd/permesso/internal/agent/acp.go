package agent

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/acp"
)

// ACP is the command that an editor starts instead of its agent.
func ACP(c *console.Console, locate Locate) *cobra.Command {
	h := &hookCommand{program: program{c}, locate: locate}
	var w endpoint
	cmd := &cobra.Command{
		Use: "acp -- AGENT [ARGUMENT]...", Short: "Ask where an agent in an editor asks for permission (Agent Client Protocol)",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, argv []string) error {
			g, err := h.gate(&w)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd)
			defer stop()
			agent := exec.CommandContext(ctx, argv[0], argv[1:]...)
			agent.Stderr = h.Err
			to, err := agent.StdinPipe()
			if err != nil {
				return err
			}
			from, err := agent.StdoutPipe()
			if err != nil {
				return err
			}
			if err := agent.Start(); err != nil {
				return console.Wrap(console.ExitError, err, "give the command of the agent behind --")
			}
			p := acp.Proxy{Gate: g, Note: func(text string) { fmt.Fprintln(h.Err, "permesso: "+console.OneLine(text)) }}
			err = p.Run(ctx, h.In, h.Out, from, to)
			_ = agent.Process.Kill() // if it has not ended by itself
			if waitErr := agent.Wait(); err == nil {
				if exited, ok := errors.AsType[*exec.ExitError](waitErr); ok && exited.ExitCode() > 0 {
					return console.Fail(exited.ExitCode(), "", "the agent ended with exit code %d", exited.ExitCode())
				}
			}
			return err
		},
	}
	w.flags(h.program, cmd, "")
	_ = cmd.Flags().MarkHidden("timeout")
	h.workspaceFlag(cmd)
	return cmd
}
