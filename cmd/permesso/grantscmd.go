package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

func (a *app) grantsCmd() *cobra.Command {
	var all bool
	var channel, sender, workspace string
	c := &cobra.Command{
		Use: "grants", Short: "List grants, newest first", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, d *control.Client, _ []string) error {
			list, err := d.Grants(ctx)
			if err != nil {
				return err
			}
			return a.printGrants(slices.DeleteFunc(list, func(r grant.Use) bool {
				return !all && !r.RevokedAt.IsZero() || channel != "" && r.Channel != channel ||
					sender != "" && r.Sender != sender || workspace != "" && r.Workspace != workspace
			}))
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "include revoked grants")
	c.Flags().StringVar(&channel, "channel", "", "only grants of this `channel`")
	c.Flags().StringVar(&sender, "sender", "", "only grants of this sender `id`")
	c.Flags().StringVar(&workspace, "workspace", "", "only grants of this `workspace`")
	return c
}

// grantLine is a grant as grants --json prints it.
type grantLine struct {
	ID         string     `json:"id"`
	Kind       grant.Kind `json:"kind"`
	State      string     `json:"state"` // active, expired, used up, revoked
	Workspace  string     `json:"workspace"`
	ClientID   string     `json:"client_id"`
	SessionID  string     `json:"session_id"`
	ActionType string     `json:"action_type"`
	Exact      bool       `json:"exact"` // one complete command line
	Channel    string     `json:"channel"`
	Sender     string     `json:"sender"`
	Capability string     `json:"capability"`
	TargetKind string     `json:"target_kind"`
	Target     string     `json:"target"`
	By         string     `json:"by"`
	Via        string     `json:"via"`
	Reason     string     `json:"reason"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
	Uses       int        `json:"uses"`
	MaxUses    int        `json:"max_uses"`
	LastUsed   *time.Time `json:"last_used"`
	RevokedAt  *time.Time `json:"revoked_at"`
	RevokedBy  string     `json:"revoked_by"`
}

func lineOf(r grant.Use, now time.Time) grantLine {
	return grantLine{
		ID: r.ID, Kind: r.Kind, State: r.State(now), Workspace: r.Workspace, ClientID: r.ClientID, SessionID: r.SessionID,
		ActionType: r.ActionType, Exact: r.Exact != "", Channel: r.Channel, Sender: r.Sender, Capability: r.Capability,
		TargetKind: r.TargetKind, Target: r.Target, By: r.By, Via: r.Via, Reason: r.Reason, CreatedAt: r.CreatedAt,
		ExpiresAt: r.ExpiresAt, Uses: r.Uses, MaxUses: r.MaxUses,
		LastUsed: timeOrNil(r.LastUsed), RevokedAt: timeOrNil(r.RevokedAt), RevokedBy: r.RevokedBy,
	}
}

func (a *app) printGrants(list []grant.Use) error {
	now := time.Now()
	if !a.JSON && len(list) == 0 {
		fmt.Fprintln(a.Out, "No grants.")
		return nil
	}
	for _, r := range list {
		l := lineOf(r, now)
		if err := a.Print(l, grantText(l)); err != nil {
			return err
		}
	}
	return nil
}

func grantText(l grantLine) string {
	what := l.ActionType
	switch {
	case l.Kind == grant.Target:
		what = strings.TrimSpace(l.Capability + " " + l.Target)
	case l.Exact:
		what += ", one command line"
	}
	if l.SessionID != "" {
		what += ", session " + l.SessionID
	}
	uses := fmt.Sprintf("used %d×", l.Uses)
	if l.MaxUses > 0 {
		uses = fmt.Sprintf("used %d of %d×", l.Uses, l.MaxUses)
	}
	return fmt.Sprintf("%s  %-7s %-13s %s: %s · by %s %s, until %s · %s", l.ID, l.State, strings.ReplaceAll(string(l.Kind), "_", " "),
		l.Workspace, chat.Escape(what), chat.Escape(l.By), l.CreatedAt.Local().Format(time.DateOnly),
		l.ExpiresAt.Local().Format("2006-01-02 15:04"), uses)
}

func (a *app) grantCmd() *cobra.Command {
	var f control.GrantBody
	var life time.Duration
	add := &cobra.Command{
		Use: "add", Short: "Allow a capability on a target without asking", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Life = life.String()
			return a.ask(cmd.Context(), func(d *control.Client) error {
				g, err := d.AddGrant(cmd.Context(), f)
				if err != nil {
					return err
				}
				return a.Print(lineOf(grant.Use{Grant: *g}, time.Now()), "granted "+g.ID)
			})
		},
	}
	fl := add.Flags()
	fl.StringVar(&f.Workspace, "workspace", "", "`workspace` of the grant (default: the first)")
	fl.StringVar(&f.Capability, "capability", "", "`capability` to allow; permesso policy registry lists them")
	fl.StringVar(&f.Target, "target", "", "`target`: exact name, host or path glob, depending on the capability")
	fl.StringVar(&f.Session, "session", "", "only in this `session`")
	fl.StringVar(&f.Reason, "reason", "", "reason, as `text`")
	fl.DurationVar(&life, "for", 30*24*time.Hour, "how long the grant is valid")
	fl.IntVar(&f.Uses, "max-uses", 0, "allow at most `N` uses (0: no limit)")
	fl.StringVar(&f.Channel, "channel", "", "bind the grant to this `channel` (default: the workspace's principal)")
	fl.StringVar(&f.Sender, "sender", "", "bind the grant to this sender `id`")
	_ = add.MarkFlagRequired("capability") // fails only for unknown flags
	return group(&cobra.Command{Use: "grant", Short: "Manage grants"}, add)
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
			ids = append(ids, r.ID+"\t"+chat.Escape(cmp.Or(r.ActionType, r.Capability+" "+r.Target)))
		}
	}
	return ids, err
}
