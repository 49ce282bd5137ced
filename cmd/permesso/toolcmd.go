package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) toolCmd() *cobra.Command {
	return console.Group(&cobra.Command{Use: "tool", Short: "Add and list tools for agents"}, a.toolAddCmd(), a.toolListCmd())
}

func (a *app) toolAddCmd() *cobra.Command {
	t := &setup.Tool{Console: a.Console, Ruling: rulingText}
	c := &cobra.Command{
		Use: "add NAME", Short: "Add a tool to the configuration: a command, or an HTTP request", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			t.New.Name = pos[0]
			return t.Run(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&t.Command, "command", "", "`line` of the program and its arguments, with {fields} of the request; no shell reads it")
	f.StringVar(&t.New.URL, "url", "", "`address` for an HTTP request, with {fields} in path and query")
	f.StringVar(&t.New.Method, "method", "", "HTTP `method` (default GET, with a body POST)")
	f.StringVar(&t.New.Body, "body", "", "JSON `template` of the body, with {fields} for values")
	f.StringArrayVar(&t.Headers, "secret-header", nil, "`NAME=VALUE`, the value with the path of a secret's file; may be repeated")
	f.StringArrayVar(&t.New.AllowPrivate, "allow-private", nil, "private `host` that the request may reach; may be repeated")
	f.StringVar(&t.New.Capability, "capability", "", "what the tool does: `name` from permesso policy registry")
	f.StringArrayVar(&t.Types, "arg", nil, "type of a {field}: `NAME=TYPE`; may be repeated (default: by its name)")
	f.StringArrayVar(&t.Stdin, "stdin", nil, "argument on standard input or in the body: `NAME=TYPE`, NAME=TYPE? if optional; may be repeated")
	f.StringVar(&t.New.ActionType, "action-type", "", "`type` of the action, or custom:NAME")
	f.StringVar(&t.New.Verb, "verb", "", "`text` after \"May I\" on the card")
	f.StringVar(&t.New.Summary, "summary", "", "`text` of the card, with {fields}")
	f.StringVar(&t.New.Target, "target", "", "where the effect is: `text` with {fields}")
	f.StringVar(&t.Workspace, "workspace", "", "show the card of a request in this `workspace` (default: the first one)")
	f.DurationVar(&t.New.Timeout, "timeout", 0, "end a run after this long (default 30s)")
	f.StringVar(&t.Try, "try", "", "run it once with these arguments, a `JSON` object, before it is written")
	f.BoolVarP(&t.Yes, "yes", "y", false, "ask no questions, and run nothing without --try")
	f.BoolVar(&t.Print, "print", false, "only print the lines")
	completeFlags(c, map[string][]string{
		"url": nil, "method": {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}, "body": nil, "secret-header": nil, "allow-private": nil,
		"verb": nil, "summary": nil, "timeout": nil, "try": nil,
	})
	for _, name := range []string{"arg", "stdin"} {
		_ = c.RegisterFlagCompletionFunc(name, completeType)
	}
	return c
}

// listedTool is an item of tool list --json.
type listedTool struct {
	Name       string `json:"tool_name"`
	Capability string `json:"capability"` // "": none is stated
	Runs       string `json:"runs"`       // a command, a method and its address, a tool of an MCP server, or none
}

func (a *app) toolListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List configured tools, and what each runs", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := home.Load(a.Console)
			if err != nil {
				return err
			}
			all, t := []listedTool{}, a.Table("TOOL", "CAPABILITY", "RUNS")
			for _, name := range slices.Sorted(maps.Keys(h.Config.Tools)) {
				tool := h.Config.Tools[name]
				x := listedTool{name, tool.Capability, tool.Handler.Kind}
				switch x.Runs {
				case "command":
					x.Runs = strings.Join(tool.Handler.Argv, " ")
				case "http":
					x.Runs = tool.Handler.HTTP.Method + " " + tool.Handler.HTTP.URL
				case "mcp":
					x.Runs = tool.Handler.MCP.Tool + " of MCP server " + tool.Handler.MCP.Server
				}
				all = append(all, x)
				t.Row(name, cmp.Or(x.Capability, "–"), chat.Escape(cmp.Or(x.Runs, "–")))
			}
			if len(all) > 0 && !a.JSON {
				t.Print()
				return nil
			}
			return a.Print(all, "no tools: permesso tool add")
		},
	}
}

// completeType completes NAME=TYPE.
func completeType(_ *cobra.Command, _ []string, typed string) (all []string, _ cobra.ShellCompDirective) {
	if name, _, ok := strings.Cut(typed, "="); ok {
		for _, kind := range facts.ArgTypes() {
			all = append(all, name+"="+kind)
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// completeFlags completes flags with fixed values.
func completeFlags(c *cobra.Command, flags map[string][]string) {
	for name, values := range flags {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(slices.Clone(values), cobra.ShellCompDirectiveNoFileComp))
	}
}
