package main

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

func (a *app) keyCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "key", Short: "Make, list and revoke keys for the HTTP door", Args: cobra.NoArgs,
		Long: "Make, list and revoke keys for the HTTP door: for agents that cannot share a folder, for programs that watch,\n" +
			"and for those through which an approver answers.",
		RunE: func(*cobra.Command, []string) error {
			return fail(codeUsage, "permesso key create WORKSPACE, permesso key list, or permesso key revoke ID", "key: say what to do with it")
		},
	}
	c.AddCommand(a.keyCreateCmd(), a.keyListCmd(), &cobra.Command{
		Use: "revoke ID", Short: "Take a key back, at once", Args: cobra.ExactArgs(1),
		Long: "Take a key back, at once: a daemon that runs reads it anew for every request. ID is the key's, its client's, or\n" +
			"at least 4 digits of their beginning.",
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
		Use: "create WORKSPACE", Short: "Make a key and show it once", Args: cobra.ExactArgs(1),
		Long: "Make a key and show it once, on standard output; only its hash is kept.\n\n" +
			"Scopes: request (ask, wait, take back), read (look and listen), decide (answer as --owner), inbound (hand over\n" +
			"what --owner wrote by e-mail). A key that requests sees what it asked itself; without that scope it sees the\n" +
			"whole workspace. Scope request cannot be combined with decide or inbound: an agent must not decide its own requests.\n\n" +
			"--owner of a key that requests is the person it asks for: then only that person decides.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE:              func(_ *cobra.Command, pos []string) error { return a.keyCreate(pos[0], f) },
	}
	c.Flags().StringSliceVar(&f.scopes, "scope", []string{approval.MayRequest, approval.MayRead}, "what it may do: a `list` of "+strings.Join(approval.Scopes(), ", "))
	c.Flags().StringVar(&f.owner, "owner", "", "the `approver` it belongs to, or asks for")
	c.Flags().StringVar(&f.name, "name", "", "what you `call` it")
	_ = c.RegisterFlagCompletionFunc("scope", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return approval.Scopes(), cobra.ShellCompDirectiveNoFileComp
	})
	_ = c.RegisterFlagCompletionFunc("owner", func(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
		h, err := a.house()
		if err != nil || len(pos) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return h.cfg.Workspaces[pos[0]].Approvers, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// keyLine is a key as key list --json prints it.
type keyLine struct {
	ID        string     `json:"id"`
	ClientID  string     `json:"client_id"`
	Key       string     `json:"key,omitempty"` // when it is made, and never again
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
		CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RevokedAt: known(k.RevokedAt), RevokedBy: k.RevokedBy,
	}
}

// longestName is how long a key's name may be, in bytes.
const longestName = 60

func (a *app) keyCreate(workspace string, f keyFlags) error {
	h, ring, err := a.keyring()
	if err != nil {
		return err
	}
	ws, err := a.chooseWorkspace(h, workspace)
	if err != nil {
		return err
	}
	w := h.cfg.Workspaces[ws]
	switch {
	case f.owner != "" && !slices.Contains(w.Approvers, f.owner):
		return fail(codeUsage, "approvers of it: "+cmp.Or(strings.Join(w.Approvers, ", "), "none"), "%q is no approver of workspace '%s'", f.owner, ws)
	case f.owner != "" && w.Principal != "" && f.owner != w.Principal:
		return fail(codeRefused, "--owner "+w.Principal+", or none", "workspace '%s' works for %s: nobody else decides there", ws, w.Principal)
	case len(f.name) > longestName || f.name != chat.Escape(f.name):
		return fail(codeUsage, "", "--name: at most %d bytes, on one line and without invisible characters", longestName)
	}
	secret := newSecret()
	k := approval.NewAPIKey(secret)
	k.Workspace, k.Scopes, k.Owner, k.Name, k.CreatedAt, k.CreatedBy = ws, f.scopes, f.owner, f.name, time.Now().UTC(), operator().Name
	if err := k.Check(); err != nil {
		return fail(codeUsage, "permesso key create --help", "%w", err)
	}
	if err := errors.Join(h.layout.PrepareAPIKeys(h.fs), ring.save(k, approval.Durable)); err != nil {
		return err
	}
	l := keyLineOf(k)
	l.Key = secret
	if err := a.print(l, secret); err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintf(a.Err, "key %s of workspace '%s' may %s. It is not shown again; permesso key revoke %s takes it back.\n", k.ID, ws, strings.Join(k.Scopes, ", "), k.ID)
	}
	if w.BindsSessions && k.Can(approval.MayRequest) {
		fmt.Fprintf(a.Err, "note: workspace '%s' has binds_sessions: it believes the session ids that come with this key. Give it to a program of the host's only.\n", ws)
	}
	return nil
}

// newSecret is a key: a word that says whose it is to whoever finds one, and 256
// random bits.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return "permesso_" + base64.RawURLEncoding.EncodeToString(b[:])
}

func (a *app) keyring() (*house, keyring, error) {
	h, k, err := a.existing()
	if err != nil {
		return nil, keyring{}, err
	}
	return h, keyring{store: h.store, seal: k.seal}, nil
}

func (a *app) keyListCmd() *cobra.Command {
	var all bool
	var workspace string
	c := &cobra.Command{
		Use: "list", Short: "List the keys, the oldest first", Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.keyList(workspace, all) },
	}
	c.Flags().BoolVar(&all, "all", false, "also what was revoked")
	c.Flags().StringVar(&workspace, "workspace", "", "only of this `workspace`")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces) // fails only for flags that are not there
	return c
}

func (a *app) keyList(workspace string, all bool) error {
	_, ring, err := a.keyring()
	if err != nil {
		return err
	}
	list, damaged, err := ring.all()
	if err != nil {
		return err
	}
	shown := 0
	for _, k := range list {
		if !all && !k.RevokedAt.IsZero() || workspace != "" && k.Workspace != workspace {
			continue
		}
		shown++
		if err := a.print(keyLineOf(k), keyText(k)); err != nil {
			return err
		}
	}
	if damaged > 0 {
		fmt.Fprintf(a.Err, "permesso: %d keys cannot be read; they open nothing\n", damaged)
	}
	if shown == 0 && !a.json {
		fmt.Fprintln(a.Out, "There are no keys.")
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
	_, ring, err := a.keyring()
	if err != nil {
		return err
	}
	k, err := ring.find(strings.ToLower(strings.TrimSpace(typed)))
	if err != nil {
		return err
	}
	word := "no-op"
	if k.RevokedAt.IsZero() {
		k.RevokedAt, k.RevokedBy = time.Now().UTC(), operator().Name
		if err := ring.save(k, approval.Replace); err != nil {
			return err
		}
		word = "revoked"
	}
	return a.print(map[string]string{"id": k.ID, "result": word}, word)
}

// find is the one key that a beginning of its id can mean. A client's id is the
// beginning of its key's.
func (r keyring) find(typed string) (*approval.APIKey, error) {
	if strings.HasPrefix(typed, "permesso_") {
		return nil, fail(codeUsage, "permesso key list gives the ids", "that is a key, not its id: it does not belong on a command line")
	}
	if len(typed) < 4 {
		return nil, fail(codeUsage, "permesso key list gives the ids", "%q: type at least 4 digits of the id", typed)
	}
	list, _, err := r.all()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(k *approval.APIKey) bool { return !strings.HasPrefix(k.ID, typed) })
	switch len(list) {
	case 0:
		return nil, fail(codeRefused, "permesso key list --all", "there is no key %q", typed)
	case 1:
		return list[0], nil
	}
	return nil, fail(codeRefused, "type more digits", "%q fits %d keys", typed, len(list))
}

func (a *app) completeKeys(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	_, ring, err := a.keyring()
	if err != nil || len(pos) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, _, _ := ring.all() // what cannot be read is not offered
	var ids []string
	for _, k := range list {
		if k.RevokedAt.IsZero() {
			ids = append(ids, k.ID+"\t"+chat.Escape(cmp.Or(k.Name, k.Workspace+": "+strings.Join(k.Scopes, ","))))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
