package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/security/policy"
)

func (a *app) grantsCmd() *cobra.Command {
	var all bool
	var channel, sender, workspace string
	c := &cobra.Command{
		Use: "grants", Short: "List grants, newest first", Args: cobra.NoArgs,
		Long: "List grants, newest first, including expired ones; --all adds revoked ones.\n" +
			"Uses are counted from the audit log.",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, m, err := home.OpenMemory(a.Console)
			if err != nil {
				return err
			}
			list := slices.DeleteFunc(m.Grants(), func(r approval.GrantUse) bool {
				return !all && !r.RevokedAt.IsZero() || channel != "" && r.Channel != channel ||
					sender != "" && r.Sender != sender || workspace != "" && r.Workspace != workspace
			})
			return a.printGrants(list)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "include revoked grants")
	c.Flags().StringVar(&channel, "channel", "", "only grants of this `channel`")
	c.Flags().StringVar(&sender, "sender", "", "only grants of this sender `id`")
	c.Flags().StringVar(&workspace, "workspace", "", "only grants of this `workspace`")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces) // fails only for unknown flags
	return c
}

// grantLine is a grant as grants --json prints it.
type grantLine struct {
	ID         string             `json:"id"`
	Kind       approval.GrantKind `json:"kind"`
	State      string             `json:"state"` // active, expired, used up, revoked
	Workspace  string             `json:"workspace"`
	ClientID   string             `json:"client_id"`
	SessionID  string             `json:"session_id"`
	ActionType string             `json:"action_type"`
	Exact      bool               `json:"exact"` // one complete command line
	Channel    string             `json:"channel"`
	Sender     string             `json:"sender"`
	Capability string             `json:"capability"`
	TargetKind string             `json:"target_kind"`
	Target     string             `json:"target"`
	By         string             `json:"by"`
	Via        string             `json:"via"`
	Reason     string             `json:"reason"`
	CreatedAt  time.Time          `json:"created_at"`
	ExpiresAt  time.Time          `json:"expires_at"`
	Uses       int                `json:"uses"`
	MaxUses    int                `json:"max_uses"`
	LastUsed   *time.Time         `json:"last_used"`
	RevokedAt  *time.Time         `json:"revoked_at"`
	RevokedBy  string             `json:"revoked_by"`
}

func lineOf(r approval.GrantUse, now time.Time) grantLine {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	l := grantLine{
		ID: r.ID, Kind: r.Kind, State: r.State(now), Workspace: r.Workspace, ClientID: r.ClientID, SessionID: r.SessionID,
		ActionType: r.ActionType, Exact: r.Exact != "", Channel: r.Channel, Sender: r.Sender, Capability: r.Capability,
		TargetKind: r.TargetKind, Target: r.Target, By: r.By, Via: r.Via, Reason: r.Reason, CreatedAt: r.CreatedAt,
		ExpiresAt: r.ExpiresAt, Uses: r.Uses, MaxUses: r.MaxUses, LastUsed: at(r.LastUsed), RevokedAt: at(r.RevokedAt), RevokedBy: r.RevokedBy,
	}
	return l
}

func (a *app) printGrants(list []approval.GrantUse) error {
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
	case l.Kind == approval.GrantTarget:
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

type grantFlags struct {
	workspace, capability, target, session, reason string
	channel, sender                                string
	uses                                           int
	life                                           time.Duration
}

func (a *app) grantCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "grant", Short: "Manage grants", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return console.Fail(console.ExitUsage, "permesso grant add --help", "grant needs a subcommand: add")
		},
	}
	var f grantFlags
	add := &cobra.Command{
		Use: "add", Short: "Allow a capability on a target without asking", Args: cobra.NoArgs,
		Long: "Allow a capability on a target without asking, until the grant expires or is revoked.\n\n" +
			"A grant lifts an ask of the autonomy table or of dangerous_writes. It never lifts a deny, an ask of a capability\n" +
			"that always asks (code:exec, mail:send), or an ask caused by secrets, limits or the trifecta.\n\n" +
			"  permesso grant add --capability fs:write --target '/home/ann/invoices/**' --for 720h --reason 'sort the invoices'",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.grantAdd(f) },
	}
	fl := add.Flags()
	fl.StringVar(&f.workspace, "workspace", "", "`workspace` of the grant (default: the first)")
	fl.StringVar(&f.capability, "capability", "", "`capability` to allow; permesso policy registry lists them")
	fl.StringVar(&f.target, "target", "", "`target`: exact name, host or path glob, depending on the capability")
	fl.StringVar(&f.session, "session", "", "only in this `session`")
	fl.StringVar(&f.reason, "reason", "", "reason, as `text`")
	fl.DurationVar(&f.life, "for", 30*24*time.Hour, "how long the grant is valid")
	fl.IntVar(&f.uses, "max-uses", 0, "allow at most `N` uses (0: no limit)")
	fl.StringVar(&f.channel, "channel", "", "bind the grant to this `channel` (default: the workspace's principal)")
	fl.StringVar(&f.sender, "sender", "", "bind the grant to this sender `id`")
	_ = add.MarkFlagRequired("capability") // fails only for unknown flags
	_ = add.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces)
	_ = add.RegisterFlagCompletionFunc("capability", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, c := range approval.Capabilities() {
			names = append(names, c.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	c.AddCommand(add)
	return c
}

func (a *app) grantAdd(f grantFlags) error {
	h, m, err := home.OpenMemory(a.Console)
	if err != nil {
		return err
	}
	ws, err := a.chooseWorkspace(h, f.workspace)
	if err != nil {
		return err
	}
	if !h.Config.Workspaces[ws].LocalDecisions {
		return console.Fail(console.ExitRefused, "an approver can choose \"always\" when a request is pending", "workspace '%s' has local_decisions = false", ws)
	}
	g, err := f.grant(h.Config, ws, time.Now())
	if err != nil {
		return err
	}
	if err := m.SaveGrant(g, approval.Durable); err != nil {
		return console.Fail(console.ExitUsage, "permesso grant add --help", "%w", err)
	}
	return a.Print(lineOf(approval.GrantUse{Grant: *g}, time.Now()), "granted "+g.ID)
}

func (f *grantFlags) grant(cfg *config.Config, ws string, now time.Time) (*approval.Grant, error) {
	c, ok := approval.CapabilityNamed(f.capability)
	switch {
	case !ok:
		return nil, console.Fail(console.ExitUsage, "permesso policy registry lists the capabilities", "%q is not a capability", f.capability)
	case c.Default == approval.AskAlways:
		return nil, console.Fail(console.ExitRefused, "a configured rule can allow it if it names the tool and every argument", "%s always asks: a grant cannot allow it", c.Name)
	case f.life <= 0:
		return nil, console.Fail(console.ExitUsage, "write for example --for 24h", "--for %s must be positive", f.life)
	case f.uses < 0:
		return nil, console.Fail(console.ExitUsage, "0 means no limit", "--max-uses %d must not be negative", f.uses)
	case (f.channel == "") != (f.sender == ""):
		return nil, console.Fail(console.ExitUsage, "", "set --channel and --sender together or not at all")
	}
	target, err := policy.CheckTarget(c, f.target)
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "permesso policy registry shows the kind of target of each capability", "%w", err)
	}
	by := home.Operator()
	channel, sender := gate.GrantHolder(cfg.Workspaces[ws])
	return &approval.Grant{
		Version: approval.Version, ID: client.NewID(), Kind: approval.GrantTarget, Workspace: ws, SessionID: f.session,
		Channel: cmp.Or(f.channel, channel), Sender: cmp.Or(f.sender, sender),
		Capability: c.Name, TargetKind: c.TargetKind, Target: target,
		By: by.Name, ByID: by.ID, Via: "cli", Reason: f.reason, CreatedAt: now.UTC(), ExpiresAt: now.Add(f.life).UTC(), MaxUses: f.uses,
	}, nil
}

func (a *app) revokeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a grant", Args: cobra.ExactArgs(1),
		Long: "Revoke a grant. After it prints \"revoked\" the grant allows nothing more.\n" +
			"It prints \"no-op\" if there is no such active grant. ID is the grant's id or its first 4 or more digits.",
		ValidArgsFunction: a.completeGrants,
		RunE:              func(_ *cobra.Command, pos []string) error { return a.revoke(pos[0]) },
	}
}

func (a *app) revoke(typed string) error {
	_, m, err := home.OpenMemory(a.Console)
	if err != nil {
		return err
	}
	g, err := m.Find(strings.ToLower(strings.TrimSpace(typed)))
	if err != nil {
		return err
	}
	answer := func(word string) error {
		return a.Print(map[string]string{"id": typed, "result": word}, word)
	}
	if g == nil || !g.RevokedAt.IsZero() {
		return answer("no-op")
	}
	g.RevokedAt, g.RevokedBy = time.Now().UTC(), home.Operator().Name
	if err := m.SaveGrant(g, approval.Replace); err != nil {
		return err
	}
	return answer("revoked")
}

func (a *app) completeGrants(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, m, err := home.OpenMemory(a.Console)
	if err != nil || len(pos) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, r := range m.Grants() {
		if r.RevokedAt.IsZero() {
			ids = append(ids, r.ID+"\t"+chat.Escape(cmp.Or(r.ActionType, r.Capability+" "+r.Target)))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
