package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

func (a *app) ruleCmd() *cobra.Command {
	var from string
	add := &cobra.Command{
		Use: "add --from ID", Short: "Print a rule that allows a request", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, d *control.Client, _ []string) error {
			if from == "" {
				return console.Fail(console.ExitUsage, "permesso pending lists the ids", "rule add needs --from ID")
			}
			p, err := findAsked(ctx, d, from)
			if err != nil {
				return err
			}
			rule, err := ruleFrom(p)
			if err != nil {
				return console.Fail(console.ExitRefused, "permesso approve "+approval.ShortID(p.RequestID)+" allows it once", "no rule from %s: %w", from, err)
			}
			return a.Print(map[string]string{"request_id": p.RequestID, "rule": rule}, rule)
		}),
	}
	add.Flags().StringVar(&from, "from", "", "`ID` of the request that the rule shall allow")
	return group(&cobra.Command{Use: "rule", Short: "Propose rules"}, add)
}

// findAsked returns a request that was asked, pending or ended.
func findAsked(ctx context.Context, d *control.Client, typed string) (*approval.Pending, error) {
	k, err := find(ctx, d.Find, typed)
	if err != nil {
		return nil, err
	}
	s, err := d.Story(ctx, k, false)
	switch {
	case err != nil:
		return nil, err
	case s.Waiting != nil:
		return s.Waiting.Pending, nil
	case s.Asked != nil:
		return s.Asked, nil
	}
	return nil, console.Fail(console.ExitError, "permesso show "+typed, "no approver was asked about %s", typed)
}

// ruleFrom returns the [[rules]] lines that allow a request: its tool in its workspace, with
// exactly these arguments.
func ruleFrom(p *approval.Pending) (string, error) {
	if p.ToolName == "" {
		return "", errors.New("it names no tool")
	}
	fields, err := codec.Fields(p.RequestData)
	if err != nil {
		return "", err
	}
	match := []string{"tool = " + quoteTOML(p.ToolName), "workspace = " + quoteTOML(p.SourceGroup)}
	var args []string
	for _, f := range fields {
		value, err := conditionFrom(f)
		if err != nil {
			return "", err
		}
		args = append(args, quoteTOML(f.Name)+" = "+value)
	}
	if len(args) > 0 {
		match = append(match, "args = { "+strings.Join(args, ", ")+" }")
	}
	return "[[rules]]\nmatch = { " + strings.Join(match, ", ") + " }\noutcome = \"allow\"\nreason = " +
		quoteTOML("as request "+p.ShortID), nil
}

// conditionFrom returns the condition that only this value of an argument meets.
func conditionFrom(f codec.Field) (string, error) {
	text, isText := f.Text()
	switch {
	case !plain(f.Name), isText && !plain(text):
		return "", fmt.Errorf("argument %s has invisible characters or several lines", chat.Escape(f.Name))
	case isText && text != "" && !strings.Contains(text, `\`): // no glob matches a backslash
		return quoteTOML(escapeGlob(text)), nil
	case f.Value.Kind() == 't', f.Value.Kind() == 'f', f.Value.Kind() == '0' && !strings.ContainsAny(string(f.Value), ".eE-"):
		return string(f.Value), nil
	case f.Value.Kind() == '[':
		return listFrom(f)
	}
	return "", fmt.Errorf("no condition can name the value of argument %s", f.Name)
}

// plain reports whether a text is one line without invisible characters.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func listFrom(f codec.Field) (string, error) {
	items, err := codec.Items(f.Value)
	if err != nil {
		return "", err
	}
	var all []string
	for _, item := range items {
		text, ok := codec.Field{Value: item}.Text()
		if !ok || !plain(text) {
			return "", fmt.Errorf("argument %s is not a list of plain texts", f.Name)
		}
		all = append(all, quoteTOML(text))
	}
	return "[" + strings.Join(all, ", ") + "]", nil
}

// escapeGlob returns the glob that matches only this text.
func escapeGlob(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune(`*?[]{}`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quoteTOML quotes a text without control characters: there JSON's strings are TOML's.
func quoteTOML(text string) string {
	b, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return `""` // no valid UTF-8: matches nothing
	}
	return string(b)
}
