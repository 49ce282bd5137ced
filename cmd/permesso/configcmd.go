package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) configCmd() *cobra.Command {
	var effective bool
	check := &cobra.Command{
		Use: "check [FILE]", Short: "Check a configuration file", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error { return a.checkConfig(pos) },
	}
	show := &cobra.Command{
		Use: "show", Short: "Show the configuration, with --effective all defaults", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.showConfig(effective) },
	}
	show.Flags().BoolVar(&effective, "effective", false, "show every key, also those with default values")
	schema := &cobra.Command{
		Use: "schema", Short: "Print a JSON schema of the configuration file, for editors", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := config.Schema()
			if err == nil {
				fmt.Fprintln(a.Out, string(s))
			}
			return err
		},
	}
	edit := &cobra.Command{
		Use: "edit", Short: "Edit the configuration in your editor, and check it before it is replaced", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return setup.RunEditor(cmd.Context(), a.Console) },
	}
	return console.Group(&cobra.Command{Use: "config", Short: "Check, show, edit or describe the configuration"}, check, show, edit, schema)
}

// configCheck is what config check --json prints.
type configCheck struct {
	OK       bool           `json:"ok"`
	File     string         `json:"file"` // "": no file, the defaults apply
	Errors   []config.Issue `json:"errors"`
	Warnings []config.Issue `json:"warnings"`
}

// namedConfig is FILE, or the file that serve would read.
func (a *app) namedConfig(pos []string) (string, error) {
	if len(pos) > 0 {
		return pos[0], nil
	}
	dir, err := home.Find(a.Console)
	if err != nil {
		return "", err
	}
	file, err := home.FileOf(a.Console, dir)
	if home.Outdated(dir, file) {
		a.Tell("permesso status says so if it refused the change", "the daemon does not serve %s as it is now", file)
	}
	return file, err
}

func (a *app) checkConfig(pos []string) error {
	file, err := a.namedConfig(pos)
	cfg := &config.Config{}
	if err == nil {
		reader := home.Reader(a.Console)
		reader.Ready, reader.Resolve = exec.Ready, home.Resolve
		cfg, err = reader.Load(file)
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
	if a.JSON {
		if err := a.Print(configCheck{err == nil, wrong.File, wrong.Errors, cfg.Warnings}, ""); err != nil {
			return err
		}
	}
	for _, p := range wrong.Errors {
		if !a.JSON {
			a.PrintIssue("", p.Format(wrong.File))
		}
	}
	if err != nil {
		return &console.Error{Code: console.ExitError, Err: errors.New("")}
	}
	if a.JSON {
		return nil
	}
	for _, p := range cfg.Warnings {
		a.PrintIssue("warning: ", p.Format(file))
	}
	fmt.Fprintln(a.Out, "ok      "+cmp.Or(file, "no file, defaults"))
	for _, name := range slices.Sorted(maps.Keys(cfg.Provers)) {
		fmt.Fprintf(a.Out, "prover  %s %s\n", name, base64.StdEncoding.EncodeToString(cfg.Provers[name]))
	}
	return nil
}

func (a *app) showConfig(effective bool) error {
	if _, err := a.namedConfig(nil); err != nil {
		return err
	}
	h, err := home.Load(a.Console)
	if err != nil {
		return err
	}
	shown := make([]config.Setting, 0, len(h.Config.Settings))
	for _, s := range h.Config.Settings {
		if effective || s.Line > 0 {
			shown = append(shown, s)
		}
	}
	if a.JSON {
		return a.Print(struct {
			File     string           `json:"file"`
			Home     string           `json:"home"`
			Settings []config.Setting `json:"settings"`
		}{h.Config.File, h.Layout.Home, shown}, "")
	}
	fmt.Fprintf(a.Out, "# file %s\n# home %s\n", cmp.Or(h.Config.File, "none"), h.Layout.Home)
	for _, s := range shown {
		fmt.Fprintln(a.Out, s)
	}
	return nil
}
