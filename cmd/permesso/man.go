//go:build man

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// With the build tag "man" the program writes its man pages: permesso man
// FOLDER. The released program does not link the renderer. The pages' only date
// is SOURCE_DATE_EPOCH, for reproducible builds.
func init() {
	if len(os.Args) != 3 || os.Args[1] != "man" {
		return
	}
	if err := writeMan(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "permesso: write man pages:", err)
		os.Exit(console.ExitError)
	}
	os.Exit(console.ExitOK)
}

func writeMan(dir string) error {
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // 0 if unset
	date := time.Unix(seconds, 0).UTC()
	// The builder's environment must not appear in defaults.
	root := (&app{&console.Console{Env: func(string) string { return "" }}}).root()
	root.DisableAutoGenTag = true
	page := config.Manual(date.Format(time.DateOnly))
	if err := os.WriteFile(filepath.Join(dir, "permesso.toml.5"), []byte(page), 0o644); err != nil { //nolint:gosec // for every user
		return err
	}
	addAllHelp(root)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: "permesso", Manual: "permesso"}, dir)
}

func addAllHelp(c *cobra.Command) {
	addHelp(c)
	for _, sub := range c.Commands() {
		addAllHelp(sub)
	}
}
