//go:build man

package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra/doc"
)

// Built with the tag "man", the program writes its man pages instead: permesso
// man FOLDER. What renders them stays out of the program that people run. The
// only date in them is SOURCE_DATE_EPOCH, which makes them the same every time.
func init() {
	if len(os.Args) != 3 || os.Args[1] != "man" {
		return
	}
	if err := writeMan(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "permesso: write man pages:", err)
		os.Exit(codeError)
	}
	os.Exit(codeDone)
}

func writeMan(dir string) error {
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // 0 is a date as good as any
	date := time.Unix(seconds, 0).UTC()
	// No variable of whoever builds may show as a default.
	root := (&app{Main: Main{Env: func(string) string { return "" }}}).root()
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: "permesso", Manual: "permesso"}, dir)
}
