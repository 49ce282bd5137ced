package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func (a *app) configCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "Check the configuration, or show what holds", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fail(codeUsage, "permesso config check, or permesso config show", "config: say what to do with it")
		},
	}
	var effective bool
	check := &cobra.Command{
		Use: "check [FILE]", Short: "Check a configuration: every mistake, with its line", Args: cobra.MaximumNArgs(1),
		Long: "Check a configuration, by default the one that permesso serve would read: every mistake with its line and,\n" +
			"where there is one, the nearest right spelling. Exit code 1 says that there are mistakes. The keys of provers\n" +
			"are listed as they are believed, whatever file they come from.",
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE:              func(_ *cobra.Command, pos []string) error { return a.checkConfig(pos) },
	}
	show := &cobra.Command{
		Use: "show", Short: "Show what the configuration says, and with --effective every default", Args: cobra.NoArgs,
		Long: "Show what the configuration says, one key a line, and with --effective also what holds where it says\n" +
			"nothing. Secrets are never shown: they are in files of their own, and only these are named.",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.showConfig(effective) },
	}
	show.Flags().BoolVar(&effective, "effective", false, "every key, also those left to their defaults")
	c.AddCommand(check, show)
	return c
}

// finding is a problem as config check --json tells it.
type configFinding struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Key     string `json:"key"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

type checked struct {
	OK       bool            `json:"ok"`
	File     string          `json:"file"` // "": there is none, and the defaults hold
	Errors   []configFinding `json:"errors"`
	Warnings []configFinding `json:"warnings"`
}

func findings(problems []config.Issue) []configFinding {
	list := make([]configFinding, 0, len(problems))
	for _, p := range problems {
		list = append(list, configFinding{p.Line, p.Col, p.Key, p.Message, p.Hint})
	}
	return list
}

// namedConfig is the file to look at: FILE, or what serve would read.
func (a *app) namedConfig(pos []string) (string, error) {
	if len(pos) > 0 {
		return pos[0], nil
	}
	return config.Locate(a.configFlag, a.Env)
}

func (a *app) checkConfig(pos []string) error {
	file, err := a.namedConfig(pos)
	cfg := &config.Config{}
	if err == nil {
		cfg, err = a.reader().Load(file)
	}
	wrong, ok := errors.AsType[*config.Error](err)
	if err != nil && !ok {
		return err
	}
	if err == nil {
		wrong = &config.Error{File: file}
	} else {
		cfg = &config.Config{}
	}
	if a.json {
		if err := a.print(checked{err == nil, wrong.File, findings(wrong.Errors), findings(cfg.Warnings)}, ""); err != nil {
			return err
		}
	}
	for _, p := range wrong.Errors {
		if !a.json {
			fmt.Fprintln(a.Err, p.In(wrong.File))
		}
	}
	if err != nil {
		return &exit{code: codeError, err: errors.New("")}
	}
	if a.json {
		return nil
	}
	for _, p := range cfg.Warnings {
		fmt.Fprintln(a.Err, "warning: "+p.In(file))
	}
	if file == "" {
		file = "there is no file, and the defaults are"
	}
	fmt.Fprintln(a.Out, "ok      "+file)
	for _, name := range slices.Sorted(maps.Keys(cfg.Provers)) {
		fmt.Fprintf(a.Out, "prover  %s %s\n", name, base64.StdEncoding.EncodeToString(cfg.Provers[name]))
	}
	return nil
}

func (a *app) showConfig(effective bool) error {
	h, err := a.house()
	if err != nil {
		return err
	}
	shown := make([]config.Setting, 0, len(h.cfg.Settings))
	for _, s := range h.cfg.Settings {
		if effective || s.Line > 0 {
			shown = append(shown, s)
		}
	}
	if a.json {
		return a.print(struct {
			File     string           `json:"file"`
			Home     string           `json:"home"`
			Settings []config.Setting `json:"settings"`
		}{h.cfg.File, h.layout.Home, shown}, "")
	}
	file := h.cfg.File
	if file == "" {
		file = "none"
	}
	fmt.Fprintf(a.Out, "# file %s\n# home %s\n", file, h.layout.Home)
	for _, s := range shown {
		fmt.Fprintln(a.Out, s)
	}
	return nil
}
