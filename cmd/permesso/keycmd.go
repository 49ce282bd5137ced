package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

func (a *app) keyCmd() *cobra.Command {
	return console.Group(&cobra.Command{
		Use: "key", Short: "Manage HTTP API keys",
	}, a.keyCreateCmd(), a.keyListCmd(), &cobra.Command{
		Use: "revoke ID", Short: "Revoke a key immediately", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(keyIDs),
		RunE: a.asking(func(ctx context.Context, d *control.Client, pos []string) error {
			r, err := d.RevokeKey(ctx, strings.ToLower(strings.TrimSpace(pos[0])))
			if err != nil {
				return err
			}
			text := r.Result
			if r.Waiting > 0 {
				text += fmt.Sprintf("\nrequests of this key that still wait: %d; permesso pending lists them", r.Waiting)
			}
			return a.Print(r, text)
		}),
	})
}

func (a *app) keyCreateCmd() *cobra.Command {
	var f control.KeyBody
	c := &cobra.Command{
		Use: "create WORKSPACE", Short: "Create a key and print it once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			f.Workspace = pos[0]
			return a.ask(cmd.Context(), func(d *control.Client) error { return a.keyCreate(cmd.Context(), d, f) })
		},
	}
	c.Flags().StringSliceVar(&f.Scopes, "scope", []string{apikey.MayRequest, apikey.MayRead}, "comma-separated `list` of scopes: "+strings.Join(apikey.Scopes(), ", "))
	c.Flags().StringVar(&f.Owner, "owner", "", "`approver` who owns the key")
	c.Flags().BoolVar(&f.AuthenticatesSenders, "authenticates-senders", false, "with scope inbound: the program authenticates that the owner wrote each email")
	c.Flags().StringVar(&f.Name, "name", "", "`label` of the key")
	_ = c.RegisterFlagCompletionFunc("owner", a.completeConfig(func(cfg *config.Config, pos []string) []string {
		return cfg.Workspaces[strings.Join(pos, "")].Approvers
	}))
	return c
}

// keyLine is a key as key list --json prints it.
type keyLine struct {
	ID        string   `json:"id"`
	ClientID  string   `json:"client_id"`
	Key       string   `json:"key,omitempty"` // only when it is created
	Workspace string   `json:"workspace"`
	Scopes    []string `json:"scopes"`
	Owner     string   `json:"owner"`
	Name      string   `json:"name"`

	AuthenticatesSenders bool `json:"authenticates_senders"`

	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	RevokedAt *time.Time `json:"revoked_at"`
	RevokedBy string     `json:"revoked_by"`
}

func keyLineOf(k *apikey.Key) keyLine {
	return keyLine{
		ID: k.ID, ClientID: k.ClientID(), Workspace: k.Workspace, Scopes: k.Scopes, Owner: k.Owner, Name: k.Name,
		AuthenticatesSenders: k.AuthenticatesSenders,
		CreatedAt:            k.CreatedAt, CreatedBy: k.CreatedBy, RevokedAt: timeOrNil(k.RevokedAt), RevokedBy: k.RevokedBy,
	}
}

func (a *app) keyCreate(ctx context.Context, d *control.Client, b control.KeyBody) error {
	n, err := d.CreateKey(ctx, b)
	if err != nil {
		return err
	}
	k := n.Key
	l := keyLineOf(k)
	l.Key = n.Secret
	if err := a.PrintToCopy(l, n.Secret); err != nil {
		return err
	}
	if !a.JSON {
		a.Note("created key %s of workspace '%s' with scopes %s. It is not shown again; permesso key revoke %s revokes it.", k.ID, k.Workspace, strings.Join(k.Scopes, ", "), k.ID)
	}
	if n.Trusts {
		a.Note("note: workspace '%s' has binds_sessions: session ids sent with this key are trusted. Use it only in a program on the host.", k.Workspace)
	}
	return nil
}

func (a *app) keyListCmd() *cobra.Command {
	var all bool
	var workspace string
	c := &cobra.Command{
		Use: "list", Short: "List keys, oldest first", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, d *control.Client, _ []string) error {
			return a.keyList(ctx, d, workspace, all)
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "include revoked keys")
	c.Flags().StringVar(&workspace, "workspace", "", "only keys of this `workspace`")
	return c
}

func (a *app) keyList(ctx context.Context, d *control.Client, workspace string, all bool) error {
	list, err := d.Keys(ctx)
	if err != nil {
		return err
	}
	if workspace != "" {
		if err := console.CheckWorkspace(workspace, d.Workspaces); err != nil {
			return err
		}
	}
	shown := make([]*apikey.Key, 0, len(list.Keys))
	for _, k := range list.Keys {
		if !all && !k.RevokedAt.IsZero() || workspace != "" && k.Workspace != workspace {
			continue
		}
		shown = append(shown, k)
	}
	if list.Damaged > 0 {
		a.Note("permesso: %d unreadable keys; they are not accepted", list.Damaged)
	}
	if a.JSON {
		lines := make([]keyLine, 0, len(shown))
		for _, k := range shown {
			lines = append(lines, keyLineOf(k))
		}
		return a.Print(lines, "")
	}
	if len(shown) == 0 {
		fmt.Fprintln(a.Out, "No keys.")
	}
	return printList(a, shown, keyText)
}

func keyText(k *apikey.Key) string {
	text := fmt.Sprintf("%s  %s: %s", k.ID, k.Workspace, strings.Join(k.Scopes, ","))
	if k.Owner != "" {
		text += " · " + k.Owner
	}
	if k.AuthenticatesSenders {
		text += " · authenticates senders"
	}
	if k.Name != "" {
		text += " · " + chat.Escape(k.Name)
	}
	text += " · since " + k.CreatedAt.Local().Format(time.DateOnly)
	if !k.RevokedAt.IsZero() {
		text += " · revoked " + k.RevokedAt.Local().Format(time.DateTime) + " by " + chat.Escape(k.RevokedBy)
	}
	return text
}

func keyIDs(ctx context.Context, d *control.Client) (ids []string, err error) {
	list, err := d.Keys(ctx)
	for _, k := range list.Keys {
		if k.RevokedAt.IsZero() {
			ids = append(ids, k.ID+"\t"+chat.Escape(cmp.Or(k.Name, k.Workspace+": "+strings.Join(k.Scopes, ","))))
		}
	}
	return ids, err
}
