package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

// idHelp stands in the help of all commands that take an ID.
const idHelp = "ID is the request's id, or at least 4 digits of its beginning, alone or as WORKSPACE/ID.\n" +
	"This works with the gate stopped, too. Where the gate's files are not yours to read, its socket is used:\n" +
	"that of PERMESSO_SOCKET, of the configuration, or " + config.DefaultSocket + "."

func (a *app) approveCmd() *cobra.Command {
	var note string
	var session, always bool
	c := &cobra.Command{
		Use: "approve ID", Short: "Approve what waits: it runs exactly as shown", Args: cobra.ExactArgs(1),
		Long:              "Approve what waits: it runs exactly as permesso show ID shows it, once unless you say more.\n\n" + idHelp,
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, pos []string) error {
			ans := approval.DecisionInput{Verdict: approval.Approved, Code: "1", Scope: approval.Once, Note: note}
			switch {
			case note != "":
				ans.Code = "4"
			case session:
				ans.Code, ans.Scope = "2", approval.Session
			case always:
				ans.Code, ans.Scope = "6", approval.Always
			}
			return a.decide(cmd.Context(), pos[0], ans)
		},
	}
	c.Flags().StringVar(&note, "note", "", "`text` for the agent")
	c.Flags().BoolVar(&session, "session", false, "for the rest of the request's session")
	c.Flags().BoolVar(&always, "always", false, "always for this type of action")
	c.MarkFlagsMutuallyExclusive("note", "session", "always")
	return c
}

func (a *app) denyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "deny ID [reason]", Short: "Deny what waits", Args: cobra.MinimumNArgs(1),
		Long:              "Deny what waits: nothing runs, and the agent is told the reason, if you give one.\n\n" + idHelp,
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, pos []string) error {
			return a.decide(cmd.Context(), pos[0], approval.DecisionInput{
				Verdict: approval.Denied, Code: "3", Feedback: strings.Join(pos[1:], " "),
			})
		},
	}
}

// wanted is what decide --stdin reads: one JSON object.
type wanted struct {
	RequestID     string           `json:"request_id"`
	Workspace     string           `json:"workspace"`
	PendingSHA256 string           `json:"pending_sha256"`
	Verdict       approval.Verdict `json:"verdict"`
	Approved      *bool            `json:"approved"`
	Code          string           `json:"code"`
	Scope         approval.Scope   `json:"scope"`
	Note          string           `json:"note"`
	Override      string           `json:"override"`
	Feedback      string           `json:"feedback"`
	Answer        string           `json:"answer"`
}

func (a *app) decideCmd() *cobra.Command {
	var stdin bool
	c := &cobra.Command{
		Use: "decide --stdin", Short: "Decide as another program: one JSON object on standard input", Args: cobra.NoArgs,
		Long: "Decide as another program. Standard input holds one JSON object:\n" +
			`  {"request_id":"…","verdict":"approved|denied|answered|overridden|request_more",` + "\n" +
			`   "pending_sha256":"…", "code":"", "scope":"once|session|always", "note":"", "override":"", "feedback":"", "answer":""}` + "\n" +
			"With pending_sha256 (permesso pending --json) only what was looked at is decided.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !stdin {
				return fail(codeUsage, "permesso decide --stdin < decision.json", "decide reads from standard input only")
			}
			w, err := a.readWanted()
			if err != nil {
				return err
			}
			id := w.RequestID
			if w.Workspace != "" {
				id = w.Workspace + "/" + id
			}
			return a.decide(cmd.Context(), id, approval.DecisionInput{
				PendingSHA256: w.PendingSHA256, Verdict: w.Verdict, Code: w.Code, Scope: w.Scope,
				Note: w.Note, Override: w.Override, Feedback: w.Feedback, Text: w.Answer,
			})
		},
	}
	c.Flags().BoolVar(&stdin, "stdin", false, "read the decision from standard input")
	return c
}

func (a *app) readWanted() (*wanted, error) {
	b, err := io.ReadAll(io.LimitReader(a.In, 1<<20))
	if err != nil {
		return nil, err
	}
	w := &wanted{}
	if err := json.Unmarshal(b, w, json.RejectUnknownMembers(true)); err != nil {
		return nil, fail(codeUsage, "permesso decide --help shows the form", "the decision is not valid JSON of that form: %w", err)
	}
	if w.Verdict == "" && w.Approved != nil {
		w.Verdict = approval.Denied
		if *w.Approved {
			w.Verdict = approval.Approved
		}
	}
	if w.Approved != nil && *w.Approved != (w.Verdict == approval.Approved) {
		return nil, fail(codeUsage, "leave approved out, or make them agree", "approved and verdict contradict each other")
	}
	if !approval.ValidID(w.RequestID) {
		return nil, fail(codeUsage, "a program names the whole id", "request_id must be 16 to 64 lower-case hex digits")
	}
	return w, nil
}

// decide answers one request, whether or not a daemon runs.
func (a *app) decide(ctx context.Context, typed string, ans approval.DecisionInput) error {
	desk, err := a.desk(ctx)
	if err != nil {
		return err
	}
	if ans.Key, err = find(ctx, desk, typed); err != nil {
		return err
	}
	w, err := desk.Pending(ans.Key)
	if err != nil {
		return err
	}
	ans.By, ans.Via = operator(), "cli"
	d, err := desk.Decide(ctx, ans)
	if err != nil {
		return err
	}
	served, err := desk.served()
	if err != nil {
		return err
	}
	text := desk.confirmation(d, w, served)
	if d.Approved && desk.pausedIn(ans.Key.Workspace) != nil {
		p, _ := desk.store.Paused(ans.Key.Workspace)
		text += "\nThe gate is " + pauseLine(p) + ". It runs after permesso resume, if its time is not over by then."
	}
	return a.print(d, text)
}

// cancelWaiting drops a request as the operator, whether or not a daemon runs.
func (a *app) cancelWaiting(ctx context.Context, typed string) error {
	desk, err := a.desk(ctx)
	if err != nil {
		return err
	}
	files, ok := desk.Decider.(*gate.Decider)
	if !ok {
		return fail(codeRefused, "permesso deny "+typed, "only whoever runs the gate cancels what waits")
	}
	k, err := find(ctx, desk, typed)
	if err != nil {
		return err
	}
	w, err := desk.Pending(k)
	if err != nil {
		return err
	}
	d, err := files.Cancel(ctx, approval.DecisionInput{Key: k, By: operator(), Via: "cli"})
	if err != nil {
		return err
	}
	served, err := desk.served()
	if err != nil {
		return err
	}
	return a.print(d, desk.confirmation(d, w, served))
}

func (k *desk) confirmation(d *approval.Decision, w *approval.Waiting, served bool) string {
	what, undo := d.RequestID, ""
	if w != nil {
		what = k.style().OneLine(w.Pending, strings.TrimSpace(w.Pending.ToolName+" "+w.Pending.Summary)) + " (" + w.Pending.ShortID + ")"
		if g := policy.GrantFrom(w.Pending, d); g != nil {
			undo = "\nUndo: permesso revoke " + approval.ShortID(g.ID)
		}
	}
	text := strings.ToUpper(string(d.Verdict[:1])) + string(d.Verdict[1:]) + ": " + what
	if d.Approved {
		text += ", to be started before " + d.RunBefore.Local().Format(time.TimeOnly) + undo
	}
	if !served {
		text += "\nThe gate is not running: this takes effect when it starts (permesso serve)."
	}
	return text
}
