package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/security/policy"
)

// suggestPattern is the value of a pattern's flag without a value: the pattern is the last
// argument, or shall be suggested.
const suggestPattern = "suggest"

func addPatternFlag(c *cobra.Command, name string, value *string, help string) {
	c.Flags().StringVar(value, name, "", help)
	c.Flags().Lookup(name).NoOptDefVal = suggestPattern
}

// patternArgs takes n arguments, and one more if it is the pattern. An empty value, as of an
// unset variable of a shell, would widen what is given: it is refused.
func patternArgs(n int, value *string) cobra.PositionalArgs {
	return func(c *cobra.Command, pos []string) (err error) {
		switch suggest := *value == suggestPattern; {
		case suggest && len(pos) == n+1:
			*value = pos[n]
		case suggest && len(pos) > n:
			return console.Fail(console.ExitUsage, "quote it: "+facts.JoinWords([]string{strings.Join(pos[n:], " ")}), "the pattern must be one argument")
		default:
			err = cobra.ExactArgs(n)(c, pos)
		}
		c.Flags().Visit(func(f *pflag.Flag) {
			if f.Value.String() == "" {
				err = console.Fail(console.ExitUsage, "leave it out, or give it a value", "--%s is empty", f.Name)
			}
		})
		return err
	}
}

// suggestion is what suggest prints.
type suggestion struct {
	Pattern string `json:"pattern"`
	Says    string `json:"says"`
	Would   int    `json:"would"`
	Of      int    `json:"of"`
}

// suggest prints the pattern that a request's command suggests, and the command line that
// gives it.
func (a *app) suggest(ctx context.Context, typed, nothing string, use ...string) error {
	return a.ask(ctx, func(c *control.Client) error {
		p, err := askedRequest(ctx, c, typed)
		if err != nil {
			return err
		}
		line, err := suggested(c.Style(), p, typed)
		if err != nil {
			return err
		}
		o, _ := p.Offer(approval.Commands)
		s := suggestion{line, c.Style().Offer(p, approval.Commands), o.Would, o.Of}
		return a.Print(s, strings.Join(slices.DeleteFunc([]string{
			s.Says, c.Style().OfferCount(p, approval.Commands), nothing, facts.JoinWords(append(use, line)),
		}, func(line string) bool { return line == "" }), "\n"))
	})
}

// suggested is the command pattern that is offered with an approval of p.
func suggested(style chat.Style, p *approval.Pending, typed string) (string, error) {
	if why := style.WhyNot(p, approval.Commands); why != "" {
		return "", console.Fail(console.ExitRefused, "permesso approve "+typed+" allows it once", "%s", why)
	}
	o, _ := p.Offer(approval.Commands)
	return facts.JoinWords(o.Terms.Words), nil
}

// askedRequest is the pending of a request that an approver was asked about, even if it has
// ended.
func askedRequest(ctx context.Context, c *control.Client, typed string) (*approval.Pending, error) {
	k, err := find(ctx, c.Find, typed)
	if err != nil {
		return nil, err
	}
	s, err := c.Story(ctx, k, false)
	switch {
	case err != nil:
		return nil, err
	case s.Waiting != nil:
		return s.Waiting.Pending, nil
	case s.Asked == nil:
		return nil, console.Fail(console.ExitError, "permesso history lists the requests", "no approver was asked about %s", typed)
	}
	return s.Asked, nil
}

// chooseRequest sets the request that a command pattern is given for; typed "": none.
func chooseRequest(ctx context.Context, c *control.Client, typed string, f *control.GrantBody) error {
	if typed == "" {
		return nil
	}
	k, err := find(ctx, c.Find, typed)
	f.Workspace, f.From = cmp.Or(k.Workspace, f.Workspace), k.ID
	return err
}

// patternSentence says what an approval of p with this pattern would remember, "" if the
// pattern is refused.
func patternSentence(style chat.Style, p *approval.Pending, line string) string {
	words, why := policy.Pattern(p, line)
	if !why.IsZero() || !grant.WhyNot(p, approval.Commands).IsZero() {
		return ""
	}
	q := *p
	q.Offers = slices.Clone(p.Offers)
	for i := range q.Offers {
		if q.Offers[i].Scope == approval.Commands {
			q.Offers[i].Terms.Words = words
		}
	}
	return style.Offer(&q, approval.Commands)
}

// patternQuestion asks whether to approve p and to remember this command pattern: with the
// figure, if it is the suggested one. It is "" if the pattern is refused.
func patternQuestion(style chat.Style, p *approval.Pending, line string) string {
	sentence := patternSentence(style, p, line)
	if sentence == "" {
		return ""
	}
	count := style.OfferCount(p, approval.Commands)
	if count == "" || sentence != style.Offer(p, approval.Commands) {
		return "Approve? " + sentence
	}
	return count + "\nApprove? " + sentence
}
