package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func (a *app) approveCmd() *cobra.Command {
	var note, seen, commands string
	var session, always, wait bool
	c := &cobra.Command{
		Use: "approve ID", Short: "Approve a pending request", Args: patternArgs(1, &commands),
		ValidArgsFunction: a.completeIDs(waitingIDs),
		RunE: func(cmd *cobra.Command, pos []string) error {
			code, how := "1", deciding{wait: shortly}
			if wait {
				how.wait = untilEnd
			}
			switch {
			case commands == suggestPattern && len(pos) == 1 && (seen != "" || !a.asksHere()):
				return a.suggest(cmd.Context(), pos[0], "nothing is approved yet; to approve and remember it:", "permesso", "approve", pos[0], "--commands")
			case commands != "":
				ans := decide.ByCode("6", "")
				ans.Commands = commands
				return a.approve(cmd.Context(), pos[0], seen, ans, how)
			case note != "":
				code = "4"
			case session:
				code = "2"
			case always:
				code = "6"
			}
			return a.approve(cmd.Context(), pos[0], seen, decide.ByCode(code, note), how)
		},
	}
	c.Flags().StringVar(&seen, "seen", "", "approve without asking only the request with this `digest`, from show ID")
	_ = c.RegisterFlagCompletionFunc("seen", cobra.NoFileCompletions) // fails only for unknown flags
	c.Flags().StringVar(&note, "note", "", "`text` to send to the agent")
	c.Flags().BoolVar(&session, "session", false, "allow for the rest of the request's session")
	c.Flags().BoolVar(&always, "always", false, "always allow this tool with this target, or exactly this request again, as the card says")
	c.Flags().BoolVarP(&wait, "wait", "w", false, "wait for the end of the run, print it, and exit as wait does")
	addPatternFlag(c, "commands", &commands, "always allow commands that this `pattern` covers, as \"go test ...\" (none: suggest one)")
	c.MarkFlagsMutuallyExclusive("note", "session", "always", "commands")
	return c
}

func (a *app) denyCmd() *cobra.Command {
	var all denyAll
	c := &cobra.Command{
		Use: "deny ID [reason]", Short: "Deny a pending request, or all of a workspace",
		Args: func(cmd *cobra.Command, pos []string) error {
			if all.on {
				return nil
			}
			return cobra.MinimumNArgs(1)(cmd, pos)
		},
		ValidArgsFunction: a.completeIDs(waitingIDs),
		RunE: func(cmd *cobra.Command, pos []string) error {
			switch {
			case all.on:
				return a.denyAll(cmd.Context(), all, strings.Join(pos, " "))
			case all.workspace != "" || all.sure:
				return console.Fail(console.ExitUsage, "permesso deny --help", "--workspace belongs to --all, and so does --yes")
			}
			return a.decide(cmd.Context(), pos[0], decide.ByCode("3", strings.Join(pos[1:], " ")), deciding{})
		},
	}
	c.Flags().BoolVar(&all.on, "all", false, "deny all pending requests of --workspace; arguments are the reason")
	c.Flags().StringVar(&all.workspace, "workspace", "", "with --all: the `workspace`")
	c.Flags().BoolVar(&all.sure, "yes", false, "with --all: do not ask")
	return c
}

// decisionInput is the JSON object that decide --stdin reads.
type decisionInput struct {
	control.VerdictBody
	RequestID string `json:"request_id"`
	Workspace string `json:"workspace"`
	Approved  *bool  `json:"approved"`
	DecidedBy string `json:"decided_by"` // what the program says
	DecidedAt string `json:"decided_at"` // not used: the daemon's clock counts
}

func (a *app) decideCmd() *cobra.Command {
	var stdin bool
	c := &cobra.Command{
		Use: "decide --stdin", Short: "Decide from a program, as JSON on standard input", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !stdin {
				return console.Fail(console.ExitUsage, "permesso decide --stdin < decision.json", "decide needs --stdin: it reads the decision from standard input")
			}
			w, err := a.readDecision()
			if err != nil {
				return err
			}
			id := w.RequestID
			if w.Workspace != "" {
				id = w.Workspace + "/" + id
			}
			return a.decide(cmd.Context(), id, w.Input(approval.Key{}), deciding{options: true})
		},
	}
	c.Flags().BoolVar(&stdin, "stdin", false, "read the decision from standard input")
	return c
}

func (a *app) readDecision() (*decisionInput, error) {
	b, err := io.ReadAll(io.LimitReader(a.In, 1<<20))
	if err != nil {
		return nil, err
	}
	w := &decisionInput{}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, console.Fail(console.ExitUsage, "permesso decide --help shows the format", "no decision on standard input")
	}
	if err := json.Unmarshal(b, w, json.RejectUnknownMembers(true)); err != nil {
		return nil, console.Fail(console.ExitUsage, "permesso decide --help shows the format", "parse decision from standard input: %s", wrongJSON(err))
	}
	w.ClaimedBy = w.DecidedBy
	if w.Verdict == "" && w.Approved != nil {
		w.Verdict = approval.Denied
		if *w.Approved {
			w.Verdict = approval.Approved
		}
	}
	if w.Approved != nil && *w.Approved != (w.Verdict == approval.Approved) {
		return nil, console.Fail(console.ExitUsage, "set only verdict", "approved (%t) and verdict (%s) contradict each other", *w.Approved, w.Verdict)
	}
	if w.PendingSHA256 != "" && len(w.PendingSHA256) != sha256Digits {
		return nil, console.Fail(console.ExitUsage, "permesso pending --json prints it",
			"pending_sha256 %q is not 64 hex digits", w.PendingSHA256)
	}
	if id := w.RequestID; !approval.ValidID(id) && len(id) < 16 && approval.MaybeID(id) {
		return nil, console.Fail(console.ExitUsage, "permesso pending --json prints it; permesso approve "+id+" and permesso deny "+id+
			" take a short id", "request_id %q is a short id: decide needs the full one", id)
	}
	if !approval.ValidID(w.RequestID) {
		return nil, console.Fail(console.ExitUsage, "give the full id", "request_id %q is not "+approval.IDForm, w.RequestID)
	}
	return w, nil
}

// wrongJSON says what is wrong with JSON.
func wrongJSON(err error) string {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(e.Err, json.ErrUnknownName) {
			return "unknown member " + chat.Escape(string(e.JSONPointer))
		}
		return "wrong value of " + chat.Escape(string(e.JSONPointer))
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Sprintf("not valid JSON from byte %d on", e.ByteOffset+1)
	}
	return "not valid JSON"
}

// minSeen is how many digits of a digest --seen needs. An agent cannot choose a digest: it
// depends on the daemon's MAC.
const minSeen, sha256Digits = 16, 64

// approve approves the request that the person has seen: the one with the digest seen, or
// the one that it shows on the terminal now.
func (a *app) approve(ctx context.Context, typed, seen string, ans decide.Input, how deciding) error {
	switch err := checkSeen(seen, typed); {
	case err != nil:
		return err
	case seen != "":
		ans.PendingSHA256 = strings.ToLower(seen)
		return a.decide(ctx, typed, ans, how)
	case !a.asksHere():
		err := a.ask(ctx, func(c *control.Client) error {
			_, err := find(ctx, c.Find, typed)
			return err
		})
		if err != nil {
			return err
		}
		return console.Fail(console.ExitUsage, seenHint(typed),
			"approve needs a terminal to show the request and to ask; without one, or with --json, it needs --seen DIGEST")
	}
	yes, err := a.showAndAsk(ctx, typed, &ans)
	if errors.Is(err, console.ErrNoAnswer) {
		return console.Wrap(console.ExitRefused, err, "permesso deny "+typed+" denies the request")
	}
	if err != nil {
		return err
	}
	if !yes {
		return console.Fail(console.ExitRefused, "permesso deny "+typed+" denies the request",
			"not approved, nothing was decided")
	}
	return a.decide(ctx, ans.Key.String(), ans, how)
}

func seenHint(typed string) string { return "permesso show " + typed + " prints the digest" }

// checkSeen refuses a --seen that is no digest, nor the beginning of one.
func checkSeen(seen, typed string) error {
	digits := strings.Trim(strings.ToLower(seen), "0123456789abcdef") == ""
	if seen == "" || digits && len(seen) >= minSeen && len(seen) <= sha256Digits {
		return nil
	}
	return console.Fail(console.ExitUsage, seenHint(typed), "--seen: %q is not a digest, or less than %d digits of it", seen, minSeen)
}

// showAndAsk prints the card and asks whether to approve it. It sets the key and the digest
// of what it printed. A decision that is not possible is not asked for: Decide says why.
func (a *app) showAndAsk(ctx context.Context, typed string, ans *decide.Input) (yes bool, err error) {
	card, question := "", ""
	err = a.ask(ctx, func(c *control.Client) error { // closed before the person reads: it may lock HOME
		s, err := findStory(ctx, c, typed, ans)
		if err != nil || s.Waiting == nil || s.Decision != nil {
			return err
		}
		style := c.Style()
		if ans.Commands == suggestPattern {
			if ans.Commands, err = suggested(style, s.Waiting.Pending, typed); err != nil {
				return err
			}
		}
		if question = questionOf(style, s.Waiting.Pending, ans); question != "" {
			card = cardToAsk(style, s)
		}
		return nil
	})
	if err != nil || card == "" {
		return true, err
	}
	return a.Confirm(ctx, card, question)
}

// cardToAsk is the card of what waits, before a question that takes yes or no: an action's codes
// are left out.
func cardToAsk(style chat.Style, s control.Story) string {
	style.Foot = s.Foot
	card := cardOf(style, s.Waiting.Pending)
	if s.Waiting.Pending.Type != approval.TypeQuestion {
		card.Menu = nil
	}
	return card.String()
}

// questionOf asks whether to approve p so, "" if that is not possible.
func questionOf(style chat.Style, p *approval.Pending, ans *decide.Input) string {
	switch {
	case p.Type == approval.TypeQuestion:
		return ""
	case ans.Commands != "":
		return patternQuestion(style, p, ans.Commands)
	case ans.Scope == approval.Once:
		return "Approve?"
	}
	if sentence := style.Offer(p, ans.Scope); sentence != "" {
		return "Approve? " + sentence
	}
	return ""
}

// asksHere reports whether approve shows the card and asks.
func (a *app) asksHere() bool {
	_, _, terminal := a.Terminal()
	return terminal && !a.JSON
}

// deciding is what a command does besides deciding.
type deciding struct {
	wait    patience // for the end of the run
	options bool     // an answer must be an option
}

// decide decides one request, with or without a running daemon. A digest in ans may be
// the beginning of one.
func (a *app) decide(ctx context.Context, typed string, ans decide.Input, how deciding) error {
	return a.ask(ctx, func(c *control.Client) error {
		s, err := findStory(ctx, c, typed, &ans)
		w := s.Waiting
		if err == nil && how.options && w != nil && ans.Verdict == approval.Answered && w.Pending.Type == approval.TypeQuestion {
			ans.Text, err = chooseOption(w.Pending, ans.Text)
		}
		if err == nil && how.wait == untilEnd && !c.Served {
			err = console.Fail(console.ExitError, "start the daemon: permesso serve; or leave out --wait", "the daemon is not running: nothing would end; nothing was decided")
		}
		if err != nil {
			return err
		}
		d, err := c.Decide(ctx, ans)
		if errors.Is(err, decide.ErrDecided) && w != nil && s.Decision != nil {
			return refusedFor(c, s, err)
		}
		if err != nil {
			return explainRefused(err, typed, w)
		}
		if how.wait == untilEnd && a.JSON {
			if who, why := notDone(c, ans.Key.Workspace, d, false); why != "" {
				a.Tell("", "%s; %s", who, why)
			}
			return a.awaitRun(ctx, c, ans.Key, how.wait)
		}
		text := confirmation(c, d, w)
		if p := c.PauseOf(ans.Key.Workspace); d.Approved && p != nil {
			text += "\nThe daemon is " + home.PauseLine(*p) + ". The request runs after permesso resume unless it has expired by then."
		}
		err = a.Print(d, text)
		if how.wait == noPatience || !c.Served || !d.Approved || w != nil && w.Pending.ToolName == "" || how.wait == shortly && c.PauseOf(ans.Key.Workspace) != nil {
			return err
		}
		return errors.Join(err, a.awaitRun(ctx, c, ans.Key, how.wait))
	})
}

// refusedFor adds to a refusal what became of the decision that counts.
func refusedFor(c *control.Client, s control.Story, err error) error {
	_, why := notDone(c, s.Waiting.Pending.SourceGroup, s.Decision, s.Running)
	if why != "" {
		err = fmt.Errorf("%w; %s", err, why)
	}
	return console.Wrap(console.ExitRefused, err, "a recorded decision stays")
}

// explainRefused adds to a refusal the command that is right.
func explainRefused(err error, typed string, w *approval.StoredPending) error {
	switch {
	case errors.Is(err, decide.ErrChanged):
		return console.Fail(console.ExitRefused, "permesso show "+typed+" shows it as it is now",
			"%s changed since it was shown", typed)
	case errors.Is(err, decide.ErrNotApplicable) && w != nil && w.Pending.Type == approval.TypeQuestion:
		return console.Wrap(console.ExitRefused, err, "permesso answer "+typed+" TEXT")
	}
	return err
}

// findStory returns what the daemon keeps of the request that a decision is about, and sets the
// decision's key and digest. Without a digest the
// decision is about exactly the pending that was read; the beginning of its digest becomes
// the digest.
func findStory(ctx context.Context, c *control.Client, typed string, ans *decide.Input) (s control.Story, err error) {
	if ans.Key, err = find(ctx, c.Find, typed); err != nil {
		return s, err
	}
	s, err = c.Story(ctx, ans.Key, false)
	if s.Waiting != nil && strings.HasPrefix(s.Waiting.SHA256, ans.PendingSHA256) {
		ans.PendingSHA256 = s.Waiting.SHA256
	}
	return s, err
}

func confirmation(c *control.Client, d *approval.Decision, w *approval.StoredPending) string {
	what, undo := d.RequestID, ""
	if w != nil {
		what = c.Style().Brief(w.Pending) + " (" + w.Pending.ShortID + ")"
		if tool := w.Pending.ToolName; tool != "" {
			what = chat.Escape(tool) + " " + what
		}
		if g := grant.From(w.Pending, d); g != nil {
			undo = "\n" + c.Style().Grant(g) + "\nUndo: permesso revoke " + approval.ShortID(g.ID)
		}
	}
	text := strings.ToUpper(string(d.Verdict[:1])) + string(d.Verdict[1:])
	if d.Verdict == approval.RequestMore {
		text = "Sent back to the agent"
	}
	text += ": " + what
	if d.Verdict == approval.RequestMore || d.Verdict == approval.Answered || d.Verdict == approval.Overridden {
		text += ": " + chat.Quote(d.Answer+d.Override+d.Feedback)
	}
	if d.Approved && (w == nil || w.Pending.ToolName != "") { // release-only: nothing starts on this host
		text += ", must start before " + d.RunBefore.Local().Format(time.TimeOnly)
	}
	text += undo
	if !c.Served {
		text += "\nThe daemon is not running: this takes effect when it starts (permesso serve)."
	}
	return text
}
