package main

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func (a *app) keyCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "key", Short: "Manage HTTP API keys", Args: cobra.NoArgs,
		Long: "Manage HTTP API keys: for agents without a shared folder, for monitoring programs, and for programs through\n" +
			"which an approver decides.",
		RunE: func(*cobra.Command, []string) error {
			return console.Fail(console.ExitUsage, "permesso key --help", "key needs a subcommand: create, list or revoke")
		},
	}
	c.AddCommand(a.keyCreateCmd(), a.keyListCmd(), &cobra.Command{
		Use: "revoke ID", Short: "Revoke a key immediately", Args: cobra.ExactArgs(1),
		Long: "Revoke a key immediately: a running daemon checks the key on every request. ID is the id of the key or of its\n" +
			"client, or the first 4 or more digits of either.",
		ValidArgsFunction: a.completeKeys,
		RunE:              func(_ *cobra.Command, pos []string) error { return a.keyRevoke(pos[0]) },
	})
	return c
}

type keyFlags struct {
	scopes      []string
	owner, name string
}

func (a *app) keyCreateCmd() *cobra.Command {
	var f keyFlags
	c := &cobra.Command{
		Use: "create WORKSPACE", Short: "Create a key and print it once", Args: cobra.ExactArgs(1),
		Long: "Create a key and print it once on standard output. Only its hash is stored.\n\n" +
			"Scopes: request (submit, wait, cancel), read (list requests and follow events), decide (decide as --owner),\n" +
			"inbound (submit emails of --owner). A key with scope request sees only its own requests; other keys see the whole\n" +
			"workspace. No key has request together with decide or inbound: a requester must not decide.\n\n" +
			"For a key with scope request, --owner is the person it works for: only that person decides its requests.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE:              func(_ *cobra.Command, pos []string) error { return a.keyCreate(pos[0], f) },
	}
	c.Flags().StringSliceVar(&f.scopes, "scope", []string{approval.MayRequest, approval.MayRead}, "comma-separated `list` of scopes: "+strings.Join(approval.Scopes(), ", "))
	c.Flags().StringVar(&f.owner, "owner", "", "`approver` who owns the key")
	c.Flags().StringVar(&f.name, "name", "", "`label` of the key")
	_ = c.RegisterFlagCompletionFunc("scope", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return approval.Scopes(), cobra.ShellCompDirectiveNoFileComp
	})
	_ = c.RegisterFlagCompletionFunc("owner", func(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
		h, err := home.Load(a.Console)
		if err != nil || len(pos) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return h.Config.Workspaces[pos[0]].Approvers, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// keyLine is a key as key list --json prints it.
type keyLine struct {
	ID        string     `json:"id"`
	ClientID  string     `json:"client_id"`
	Key       string     `json:"key,omitempty"` // only when it is created
	Workspace string     `json:"workspace"`
	Scopes    []string   `json:"scopes"`
	Owner     string     `json:"owner"`
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	RevokedAt *time.Time `json:"revoked_at"`
	RevokedBy string     `json:"revoked_by"`
}

func keyLineOf(k *approval.APIKey) keyLine {
	return keyLine{
		ID: k.ID, ClientID: k.ClientID(), Workspace: k.Workspace, Scopes: k.Scopes, Owner: k.Owner, Name: k.Name,
		CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RevokedAt: timeOrNil(k.RevokedAt), RevokedBy: k.RevokedBy,
	}
}

// longestName is the maximum length of a key's name in bytes.
const longestName = 60

func (a *app) keyCreate(workspace string, f keyFlags) error {
	h, ring, err := home.OpenKeyring(a.Console)
	if err != nil {
		return err
	}
	ws, err := control.ChooseWorkspace(h, workspace)
	if err != nil {
		return err
	}
	w := h.Config.Workspaces[ws]
	switch {
	case f.owner != "" && !slices.Contains(w.Approvers, f.owner):
		return console.Fail(console.ExitUsage, "approvers of the workspace: "+cmp.Or(strings.Join(w.Approvers, ", "), "none"), "%q is not an approver of workspace '%s'", f.owner, ws)
	case f.owner != "" && w.Principal != "" && f.owner != w.Principal:
		return console.Fail(console.ExitRefused, "--owner "+w.Principal+", or no --owner", "workspace '%s' has principal %s: only that person decides there", ws, w.Principal)
	case len(f.name) > longestName || f.name != chat.Escape(f.name):
		return console.Fail(console.ExitUsage, "", "--name must be one line of at most %d bytes without invisible characters", longestName)
	}
	secret := newSecret()
	k := approval.NewAPIKey(secret)
	k.Workspace, k.Scopes, k.Owner, k.Name, k.CreatedAt, k.CreatedBy = ws, f.scopes, f.owner, f.name, time.Now().UTC(), home.Operator().Name
	if err := k.Check(); err != nil {
		return console.Fail(console.ExitUsage, "permesso key create --help", "%w", err)
	}
	if err := errors.Join(h.Layout.PrepareAPIKeys(h.FS), ring.Save(k, approval.Durable)); err != nil {
		return err
	}
	l := keyLineOf(k)
	l.Key = secret
	if err := a.Print(l, secret); err != nil {
		return err
	}
	if !a.JSON {
		fmt.Fprintf(a.Err, "created key %s of workspace '%s' with scopes %s. It is not shown again; permesso key revoke %s revokes it.\n", k.ID, ws, strings.Join(k.Scopes, ", "), k.ID)
	}
	if w.BindsSessions && k.Can(approval.MayRequest) {
		fmt.Fprintf(a.Err, "note: workspace '%s' has binds_sessions: session ids sent with this key are trusted. Use it only in a program on the host.\n", ws)
	}
	return nil
}

// newSecret returns a key: a prefix that secret scanners can find, and 256
// random bits.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return "permesso_" + base64.RawURLEncoding.EncodeToString(b[:])
}

func (a *app) keyListCmd() *cobra.Command {
	var all bool
	var workspace string
	c := &cobra.Command{
		Use: "list", Short: "List keys, oldest first", Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.keyList(workspace, all) },
	}
	c.Flags().BoolVar(&all, "all", false, "include revoked keys")
	c.Flags().StringVar(&workspace, "workspace", "", "only keys of this `workspace`")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces) // fails only for unknown flags
	return c
}

func (a *app) keyList(workspace string, all bool) error {
	_, ring, err := home.OpenKeyring(a.Console)
	if err != nil {
		return err
	}
	list, damaged, err := ring.All()
	if err != nil {
		return err
	}
	shown := 0
	for _, k := range list {
		if !all && !k.RevokedAt.IsZero() || workspace != "" && k.Workspace != workspace {
			continue
		}
		shown++
		if err := a.Print(keyLineOf(k), keyText(k)); err != nil {
			return err
		}
	}
	if damaged > 0 {
		fmt.Fprintf(a.Err, "permesso: %d unreadable keys; they are not accepted\n", damaged)
	}
	if shown == 0 && !a.JSON {
		fmt.Fprintln(a.Out, "No keys.")
	}
	return nil
}

func keyText(k *approval.APIKey) string {
	text := fmt.Sprintf("%s  %s: %s", k.ID, k.Workspace, strings.Join(k.Scopes, ","))
	if k.Owner != "" {
		text += " · " + k.Owner
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

func (a *app) keyRevoke(typed string) error {
	_, ring, err := home.OpenKeyring(a.Console)
	if err != nil {
		return err
	}
	k, err := ring.Find(strings.ToLower(strings.TrimSpace(typed)))
	if err != nil {
		return err
	}
	word := "no-op"
	if k.RevokedAt.IsZero() {
		k.RevokedAt, k.RevokedBy = time.Now().UTC(), home.Operator().Name
		if err := ring.Save(k, approval.Replace); err != nil {
			return err
		}
		word = "revoked"
	}
	return a.Print(map[string]string{"id": k.ID, "result": word}, word)
}

func (a *app) completeKeys(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, ring, err := home.OpenKeyring(a.Console)
	if err != nil || len(pos) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, _, _ := ring.All() // unreadable keys are left out
	var ids []string
	for _, k := range list {
		if k.RevokedAt.IsZero() {
			ids = append(ids, k.ID+"\t"+chat.Escape(cmp.Or(k.Name, k.Workspace+": "+strings.Join(k.Scopes, ","))))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
