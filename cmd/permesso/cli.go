package main

import (
	"context"
	_ "embed"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/agent"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

// Main is the program and its environment.
type Main struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) string
}

// app is one run of the program.
type app struct{ *console.Console }

// Run runs one command line and returns its exit code.
func (m Main) Run(ctx context.Context, args []string) int {
	a := &app{&console.Console{In: m.In, Out: m.Out, Err: m.Err, Env: m.Env, Version: version, Told: &sync.Map{}}}
	return a.Run(ctx, a.root(), args)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "permesso",
		Short:         "An approval gate for AI agents: may I?",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&a.ConfigFlag, "config", "", "configuration `file` (default $XDG_CONFIG_HOME/permesso/permesso.toml)")
	root.PersistentFlags().StringVar(&a.HomeFlag, "home", "", "state `folder` (default $XDG_STATE_HOME/permesso)")
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "print JSON")
	_ = root.MarkPersistentFlagFilename("config", "toml") // fails only for unknown flags
	_ = root.MarkPersistentFlagDirname("home")
	root.AddGroup(
		&cobra.Group{ID: "host", Title: "On the host:"},
		&cobra.Group{ID: "decide", Title: "For approvers:"},
		&cobra.Group{ID: "agent", Title: "For agents, in the sandbox:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		"host": {
			a.initCmd(),
			a.workspaceCmd(),
			a.toolCmd(),
			a.approverCmd(),
			a.serveCmd(),
			a.sweepCmd(),
			a.pruneCmd(),
			a.configCmd(),
			a.statusCmd(),
			a.backupCmd(),
			a.restoreCmd(),
			a.pauseCmd(),
			a.resumeCmd(),
			a.doctorCmd(),
			a.mountsCmd(),
			a.keyCmd(),
			a.serviceCmd(),
			a.receiptCmd(),
			a.auditCmd(),
			a.demoCmd(),
			a.policyCmd(),
			a.emailCmd(),
			a.telegramCmd(),
			a.versionCmd(),
			a.webhookCmd(),
		},
		"decide": {
			a.uiCmd(), a.tuiCmd(),
			a.desktopNotifyCmd(),
			a.pendingCmd(),
			a.showCmd(),
			a.todayCmd(),
			a.watchCmd(),
			a.historyCmd(),
			a.statsCmd(),
			a.approveCmd(),
			a.denyCmd(),
			a.answerCmd(),
			a.changeCmd(),
			a.askCmd(),
			a.decideCmd(),
			a.grantsCmd(),
			a.grantCmd(),
			a.revokeCmd(),
			a.ruleCmd(),
			a.sessionCmd(),
		},
		"agent": {
			agent.Request(a.Console),
			agent.Run(a.Console),
			a.planCmd(),
			agent.Wait(a.Console),
			agent.Cancel(a.Console, a.cancelWaiting),
			agent.Hook(a.Console, a.folders, a.knownWorkspace),
			agent.ACP(a.Console, a.folders),
			agent.MCP(a.Console, a.folders, a.knownWorkspace),
		},
	} {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(
		&cobra.Command{Use: "environment", Short: "Environment variables"}, // topics of permesso help
		&cobra.Command{Use: "files", Short: "Files and folders"},
	)
	addCompletions(root, a.completions())
	a.SetHelp(root)
	return root
}

// completions are those of arguments by their word in the use line, and of flags.
func (a *app) completions() map[string]cobra.CompletionFunc {
	fixed := func(values []string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	workspaces, approvers := a.completeConfig(workspaceNames), a.completeConfig(approverNames)
	return map[string]cobra.CompletionFunc{
		"WORKSPACE":   workspaces,
		"--workspace": a.completeConfig(func(cfg *config.Config, _ []string) []string { return workspaceNames(cfg, nil) }),
		"APPROVER":    approvers, "--approver": approvers,
		"FILE":     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"--from":   a.completeIDs(waitingIDs),
		"--client": a.completeIDs(keyIDs),
		"--target": cobra.NoFileCompletions, "--session": cobra.NoFileCompletions, "--reason": cobra.NoFileCompletions,
		"--command": cobra.NoFileCompletions, "--commands": cobra.NoFileCompletions,
		"--action-type": fixed(approval.ActionTypes()),
		"--autonomy":    fixed(grant.Levels()),
		"--capability":  fixed(config.Capabilities()),
		"--sandbox":     fixed(setup.Sandboxes()),
		"--scope":       fixed(apikey.Scopes()),
		"--status":      fixed(slices.Sorted(slices.Values(read.Statuses()))),
		"--tool": a.completeConfig(func(cfg *config.Config, _ []string) []string {
			return slices.Collect(maps.Keys(cfg.Tools))
		}),
		"--by": a.completeConfig(func(cfg *config.Config, pos []string) []string {
			return append(approverNames(cfg, pos), home.Operator().Name)
		}),
	}
}

// addCompletions adds completions to all commands below c. What a command has set itself stays.
func addCompletions(c *cobra.Command, all map[string]cobra.CompletionFunc) {
	for _, sub := range c.Commands() {
		addCompletions(sub, all)
		if first := strings.Fields(sub.Use + " -")[1]; sub.ValidArgsFunction == nil {
			sub.ValidArgsFunction = cobra.NoFileCompletions
			if list := all[strings.Trim(first, "[]")]; list != nil {
				sub.ValidArgsFunction = list
			}
		}
		for name, list := range all {
			if flag, ok := strings.CutPrefix(name, "--"); ok && sub.Flags().Lookup(flag) != nil {
				_ = sub.RegisterFlagCompletionFunc(flag, list) // fails only if the command has set it
			}
		}
	}
}

// completeConfig completes with what the configuration has, sorted.
func (a *app) completeConfig(list func(cfg *config.Config, pos []string) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
		h, err := home.Load(a.Console)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(slices.Values(list(h.Config, pos))), cobra.ShellCompDirectiveNoFileComp
	}
}

func approverNames(cfg *config.Config, _ []string) []string {
	return slices.Collect(maps.Keys(cfg.Approvers))
}

func workspaceNames(cfg *config.Config, pos []string) []string {
	if len(pos) > 0 {
		return nil
	}
	return home.WorkspaceNames(cfg)
}

func completeLevelAndCapability(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	values := [][]string{grant.Levels(), config.Capabilities(), nil}
	return values[min(len(pos), 2)], cobra.ShellCompDirectiveNoFileComp
}

// completeIDs completes the first argument with ids that the daemon lists.
func (a *app) completeIDs(list func(ctx context.Context, d *control.Client) ([]string, error)) cobra.CompletionFunc {
	return func(_ *cobra.Command, pos []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
		if len(pos) == 0 {
			_ = a.ask(context.Background(), func(d *control.Client) (err error) { // without an answer there are no suggestions
				ids, err = list(context.Background(), d)
				return err
			})
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
