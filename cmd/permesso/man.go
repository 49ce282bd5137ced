//go:build man

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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
	page := strings.Replace(config.Manual(date.Format(time.DateOnly)), seeAlso, commonSections()+seeAlso, 1)
	if err := os.WriteFile(filepath.Join(dir, "permesso.toml.5"), []byte(page), 0o644); err != nil { //nolint:gosec // for every user
		return err
	}
	addAllHelp(root)
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "permesso", Manual: "permesso"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	for _, page := range pages {
		err = errors.Join(err, addSections(page, root, date))
	}
	return err
}

// seeAlso is the last section of a page.
const seeAlso = ".SH SEE ALSO\n"

// commonSections are those that every page has above the last.
func commonSections() string {
	return ".SH ENVIRONMENT\n" + roffTable(console.HelpTexts()["environment"].Long) + ".SH FILES\n" + roffTable(console.HelpTexts()["files"].Long)
}

// options are the macros that the renderer writes for an option: a paragraph, and a line with a tab.
var options = regexp.MustCompile(`(?m)^(?:\.PP\n)?(\\fB-.*\n)\t`)

// addSections adds what all pages have to a page, above its last section, SEE ALSO.
func addSections(page string, root *cobra.Command, date time.Time) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	above, also, _ := strings.Cut(options.ReplaceAllString(string(b), ".TP\n$1"), seeAlso)
	above = strings.Replace(above, date.Format(`"Jan 2006"`), date.Format(`"2006-01-02"`), 1)
	var more strings.Builder
	if filepath.Base(page) == "permesso.1" {
		more.WriteString(".SH COMMANDS\n")
		for _, c := range root.Commands() {
			if c.IsAvailableCommand() {
				more.WriteString(".TP\n.B " + roff(c.Name()) + "\n" + roff(c.Short) + "\n")
			}
		}
	}
	_, codes, _ := strings.Cut(console.HelpTexts()["permesso"].Long, "Exit codes: ")
	more.WriteString(".SH EXIT STATUS\n")
	for code := range strings.SplitSeq(strings.Join(strings.Fields(codes), " "), "; ") {
		number, means, _ := strings.Cut(strings.TrimSuffix(code, "."), " ")
		more.WriteString(".TP\n.B " + roff(number) + "\n" + roff(means) + "\n")
	}
	more.WriteString(commonSections())
	also = strings.TrimRight(also, "\n")
	if also != "" {
		also += ", "
	}
	return os.WriteFile(page, []byte(above+more.String()+seeAlso+also+"\\fBpermesso.toml(5)\\fP\n"), 0o644) //nolint:gosec // for every user
}

// roffTable writes lines of names and texts, in two columns, as tagged paragraphs. Other lines are headings.
func roffTable(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSpace(line)
		name, says, two := strings.Cut(body, "  ")
		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case body == "":
		case indent == 0:
			if b.Len() > 0 { // a section begins without it
				b.WriteString(".PP\n")
			}
			b.WriteString(roff(body) + "\n")
		case indent > 2: // goes on
			b.WriteString(roff(body) + "\n")
		default:
			b.WriteString(".TP\n.B " + roff(name) + "\n")
			if two {
				b.WriteString(roff(strings.TrimSpace(says)) + "\n")
			}
		}
	}
	return b.String()
}

// roff writes a text so that no part of it is a request or an escape.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}

func addAllHelp(c *cobra.Command) {
	console.AddHelp(c)
	for _, sub := range c.Commands() {
		addAllHelp(sub)
	}
}
