package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

// replying is a decision that runs nothing: an answer, a change, or a question to the agent.
type replying struct {
	id   string // as typed
	seen string // digest of the request that the person has seen; "": as it is now
	sure bool   // do not ask
	// compose returns the decision about w, and the question that confirms it. Without a
	// verdict nothing is decided.
	compose func(s chat.Style, w *approval.StoredPending) (in decide.Input, question string, err error)
}

func (a *app) answerCmd() *cobra.Command {
	var free bool
	var r replying
	c := a.replyCmd("answer ID TEXT|N", "Answer a question", &r, func(text string) {
		r.compose = func(_ chat.Style, w *approval.StoredPending) (in decide.Input, question string, err error) {
			in = decide.Input{Verdict: approval.Answered, Text: text}
			if err := notQuestion(w.Pending, r.id); err != nil {
				return in, "", err
			}
			if !free {
				in.Text, err = chooseOption(w.Pending, text)
			}
			return in, "Answer " + chat.Quote(in.Text) + "?", err
		}
	})
	c.Flags().BoolVar(&free, "free", false, "take the text as it is, even if it is no option")
	return c
}

func (a *app) changeCmd() *cobra.Command {
	var r replying
	run := false
	c := a.replyCmd("change ID TEXT", "Run nothing, and tell the agent what to do instead", &r, func(text string) {
		r.compose = func(_ chat.Style, w *approval.StoredPending) (in decide.Input, question string, err error) {
			if w.Pending.Type == approval.TypeQuestion {
				return in, "", console.Fail(console.ExitRefused, "permesso answer "+r.id+" TEXT", "%s is a question: it has an answer, not a change", r.id)
			}
			if run {
				return decide.ByCode(approval.CodeEdit, text), "Let the agent ask for " + chat.Quote(text) + " instead? Nothing runs before you approve that.", nil
			}
			return decide.ByCode("5", text), "Send the agent the change " + chat.Quote(text) + "? Nothing runs.", nil
		}
	})
	c.Flags().BoolVar(&run, "run", false, "TEXT is the command to run instead, which is asked anew")
	return c
}

func (a *app) askCmd() *cobra.Command {
	var r replying
	c := a.replyCmd("ask ID QUESTION", "Ask about a request: the gate's facts, or else the agent", &r, func(text string) {
		r.compose = func(s chat.Style, w *approval.StoredPending) (in decide.Input, question string, err error) {
			ic := &chat.Interceptor{Zone: s.Zone, Redact: s.Redact, Paused: s.Paused, Local: s.Local}
			m := chat.Message{Text: "? " + text, Card: w, Language: s.Language}
			if facts := ic.AnswerFromFacts(m); facts != "" {
				return in, "", a.Print(factsAnswer{w.Pending.RequestID, facts, true}, facts)
			}
			if !r.sure && !a.asksHere() {
				return in, "", console.Fail(console.ExitRefused, "permesso ask "+r.id+" --yes QUESTION sends it to the agent, which ends the request",
					"the facts do not answer that; nothing was decided")
			}
			in = decide.Input{Verdict: approval.RequestMore, Feedback: m.Command().Text}
			return in, "The facts do not answer that. Ask the agent, which ends the request?", nil
		}
	})
	c.Flags().BoolVar(&r.sure, "yes", false, "ask the agent without asking here")
	return c
}

// factsAnswer is what ask --json prints if the facts answer the question.
type factsAnswer struct {
	RequestID string `json:"request_id"`
	Answer    string `json:"answer"`
	Pending   bool   `json:"pending"`
}

// replyCmd is a command that takes an ID and a text. begin gets the text.
func (a *app) replyCmd(use, short string, r *replying, begin func(text string)) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeIDs(waitingIDs),
		RunE: func(cmd *cobra.Command, pos []string) error {
			r.id = pos[0]
			begin(strings.TrimSpace(strings.Join(pos[1:], " ")))
			return a.reply(cmd.Context(), r)
		},
	}
	c.Flags().StringVar(&r.seen, "seen", "", "decide without asking only the request with this `digest`, from show ID")
	_ = c.RegisterFlagCompletionFunc("seen", cobra.NoFileCompletions) // fails only for unknown flags
	return c
}

// reply decides what runs nothing. On a terminal it shows the card and asks first; elsewhere
// the decision is about the request as it is read now.
func (a *app) reply(ctx context.Context, r *replying) error {
	var in decide.Input
	card, question := "", ""
	asks := a.asksHere() && r.seen == "" && !r.sure
	err := checkSeen(r.seen, r.id)
	if err != nil {
		return err
	}
	err = a.ask(ctx, func(c *control.Client) error { // closed before the person reads: it may lock HOME
		about := decide.Input{PendingSHA256: strings.ToLower(r.seen)}
		s, err := findStory(ctx, c, r.id, &about)
		w := s.Waiting
		switch {
		case err != nil:
			return err
		case w == nil || w.SHA256 != about.PendingSHA256:
			_, err = c.Decide(ctx, about) // without a verdict: it only says why not
			return explainRefused(err, r.id, w)
		}
		if in, question, err = r.compose(c.Style(), w); err == nil && in.Verdict != "" {
			in.Key, in.PendingSHA256, card = about.Key, about.PendingSHA256, cardToAsk(c.Style(), s)
		}
		return err
	})
	if err != nil || in.Verdict == "" {
		return err
	}
	if asks {
		yes, err := a.Confirm(ctx, card, question)
		switch {
		case errors.Is(err, console.ErrNoAnswer), err == nil && !yes:
			return console.Fail(console.ExitRefused, "", "nothing was decided")
		case err != nil:
			return err
		}
	}
	return a.decide(ctx, in.Key.String(), in, deciding{})
}

// notQuestion refuses an answer to an action.
func notQuestion(p *approval.Pending, typed string) error {
	if p.Type == approval.TypeQuestion {
		return nil
	}
	return console.Fail(console.ExitRefused, "permesso approve "+typed+", permesso deny "+typed+" or permesso change "+typed+" TEXT", "%s is not a question", typed)
}

// chooseOption returns the option that text is, or names by its number. A question without
// options takes any text.
func chooseOption(p *approval.Pending, text string) (string, error) {
	if len(p.Options) == 0 || text == "" {
		return text, nil
	}
	var named, same string
	listed := make([]string, len(p.Options))
	for i, o := range p.Options {
		n := strconv.Itoa(i + 1)
		if text == n || text == n+"." {
			named = o
		}
		if text == o {
			same = o
		}
		listed[i] = n + " " + chat.Quote(o)
	}
	options := "options: " + strings.Join(listed, ", ")
	switch {
	case named != "" && same != "" && named != same:
		return "", console.Fail(console.ExitRefused, options+"; \""+text+".\" is the number, --free takes the text as it is",
			"%s is the number of one option of %s and the text of another", chat.Quote(text), p.RequestID)
	case named != "":
		return named, nil
	case same != "":
		return same, nil
	}
	return "", console.Fail(console.ExitRefused, options+"; permesso answer ID --free TEXT takes another text", "%s is not an option of %s", chat.Quote(text), p.RequestID)
}
