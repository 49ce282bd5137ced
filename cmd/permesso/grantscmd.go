package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

func (a *app) grantsCmd() *cobra.Command {
	var all bool
	var workspace string
	c := &cobra.Command{
		Use: "grants", Short: "List grants, newest first", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, d *control.Client, _ []string) error {
			if workspace != "" {
				if err := console.CheckWorkspace(workspace, d.Workspaces); err != nil {
					return err
				}
			}
			list, err := d.Grants(ctx)
			if err != nil {
				return err
			}
			return a.printGrants(slices.DeleteFunc(list, func(r grant.Use) bool {
				return !all && !r.RevokedAt.IsZero() || workspace != "" && r.Workspace != workspace
			}))
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "include revoked grants")
	c.Flags().StringVar(&workspace, "workspace", "", "only grants of this `workspace`")
	return c
}

// grantLine is a grant as grants --json prints it.
type grantLine struct {
	ID    string `json:"id"`
	State string `json:"state"` // active, expired, used up, revoked
	Says  string `json:"says"`  // the sentence that the person was shown
	// The terms, with the words of the API.
	Form       string   `json:"form"`
	Workspace  string   `json:"workspace"`
	ClientID   string   `json:"client_id"`
	SessionID  string   `json:"session_id"`
	Tool       string   `json:"tool_name"`
	ToolSHA256 string   `json:"tool_sha256,omitzero"`
	ActionType string   `json:"action_type"`
	TargetKind string   `json:"target_kind"`
	Target     string   `json:"target"`
	Digest     string   `json:"digest,omitzero"`
	Words      []string `json:"words,omitzero"`

	By        string     `json:"by"`
	Via       string     `json:"via"`
	Reason    string     `json:"reason"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	Uses      int        `json:"uses"`
	MaxUses   int        `json:"max_uses"`
	LastUsed  *time.Time `json:"last_used"`
	RevokedAt *time.Time `json:"revoked_at"`
	RevokedBy string     `json:"revoked_by"`
}

func lineOf(r grant.Use, now time.Time) grantLine {
	return grantLine{
		ID: r.ID, State: r.State(now), Says: chat.Style{}.Grant(&r.Grant),
		Form: r.Form, Workspace: r.Workspace, ClientID: r.ClientID, SessionID: r.SessionID, Tool: r.Tool, ToolSHA256: r.ToolSHA256,
		ActionType: r.ActionType, TargetKind: r.TargetKind, Target: r.Target, Digest: r.Digest, Words: r.Words, By: r.By, Via: r.Via, Reason: r.Reason,
		CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, Uses: r.Uses, MaxUses: r.MaxUses,
		LastUsed: timeOrNil(r.LastUsed), RevokedAt: timeOrNil(r.RevokedAt), RevokedBy: r.RevokedBy,
	}
}

func (a *app) printGrants(list []grant.Use) error {
	now := time.Now()
	if !a.JSON && len(list) == 0 {
		fmt.Fprintln(a.Out, "No grants.")
		return nil
	}
	lines := make([]grantLine, 0, len(list))
	for _, r := range list {
		lines = append(lines, lineOf(r, now))
	}
	return printList(a, lines, grantText)
}

func grantText(l grantLine) string {
	uses := fmt.Sprintf("used %d×", l.Uses)
	if l.MaxUses > 0 {
		uses = fmt.Sprintf("used %d of %d×", l.Uses, l.MaxUses)
	}
	if l.Form == grant.Again || l.Form == grant.Program {
		uses += " · permesso show " + approval.ShortID(l.ID)
	}
	return fmt.Sprintf("%s  %-7s %s · by %s on %s · %s", l.ID, l.State, l.Says, chat.Escape(l.By), l.CreatedAt.UTC().Format(time.DateOnly), uses)
}

func (a *app) grantCmd() *cobra.Command {
	var f control.GrantBody
	life := console.Duration(30 * 24 * time.Hour)
	var from string
	add := &cobra.Command{
		Use: "add", Short: "Allow calls of a tool without asking", Args: patternArgs(0, &f.Command),
		RunE: func(cmd *cobra.Command, pos []string) error {
			if from != "" && f.Command == suggestPattern && len(pos) == 0 {
				return a.suggest(cmd.Context(), from, "nothing is granted yet; to grant it:", "permesso", "grant", "add", "--from", from, "--command")
			}
			f.Life = time.Duration(life).String()
			return a.ask(cmd.Context(), func(d *control.Client) error {
				if err := chooseRequest(cmd.Context(), d, from, &f); err != nil {
					return err
				}
				g, err := d.AddGrant(cmd.Context(), f)
				if err != nil {
					return err
				}
				l := lineOf(grant.Use{Grant: *g}, time.Now())
				if list, err := d.Grants(cmd.Context()); err == nil && slices.ContainsFunc(list, func(r grant.Use) bool {
					return r.ID != g.ID && r.State(time.Now()) == "active" && reflect.DeepEqual(r.Terms, g.Terms)
				}) {
					a.Tell("permesso grants lists them; permesso revoke ID", "an active grant already allowed the same")
				}
				return a.Print(l, "granted "+g.ID+"\n"+l.Says)
			})
		},
	}
	fl := add.Flags()
	fl.StringVar(&f.Workspace, "workspace", "", "`workspace` of the grant (default: the only one)")
	fl.StringVar(&f.Tool, "tool", "", "`tool` to allow")
	fl.StringVar(&f.ActionType, "action-type", "", "`action` of release-only requests to allow; it opens no tool")
	fl.StringVar(&f.Target, "target", "", "`target` of the tool: exact name, host or path glob, by its capability")
	fl.StringVar(&from, "from", "", "the request with this `ID`, for --command")
	addPatternFlag(add, "command", &f.Command, "allow commands that this `pattern` covers, as \"go test ...\" (none: suggest one)")
	fl.StringVar(&f.Client, "client", "", "only requests with the API `key` of this id (default: the agent with the folder)")
	fl.StringVar(&f.Session, "session", "", "only in this `session`")
	fl.StringVar(&f.Reason, "reason", "", "reason, as `text`")
	fl.Var(&life, "for", "how long the grant is valid")
	fl.IntVar(&f.Uses, "max-uses", 0, "allow at most `N` uses (0: no limit)")
	return console.Group(&cobra.Command{Use: "grant", Short: "Manage grants"}, add)
}

func (a *app) revokeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a grant", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(grantIDs),
		RunE: a.asking(func(ctx context.Context, d *control.Client, pos []string) error {
			word, err := d.Revoke(ctx, strings.ToLower(strings.TrimSpace(pos[0])))
			if err != nil {
				return err
			}
			return a.Print(map[string]string{"id": pos[0], "result": word}, word)
		}),
	}
}

func grantIDs(ctx context.Context, d *control.Client) (ids []string, err error) {
	list, err := d.Grants(ctx)
	for _, r := range list {
		if r.RevokedAt.IsZero() {
			ids = append(ids, r.ID+"\t"+chat.Style{}.Grant(&r.Grant))
		}
	}
	return ids, err
}
