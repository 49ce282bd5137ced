package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// KeyList is the keys of the HTTP API, oldest first.
type KeyList struct {
	Keys    []*apikey.Key `json:"keys"`
	Damaged int           `json:"damaged"` // unreadable ones, which are not accepted
}

var opKeys = get("keys", "/keys", "Keys of the HTTP API, oldest first", (*Service).keys).forOperator()

func (s *Service) keys(_ context.Context, _ *httpapi.Caller, _ *none) (l KeyList, err error) {
	l.Keys, l.Damaged, err = s.Home.Keyring(s.Keys).All()
	return l, err
}

// KeyBody is a new key.
type KeyBody struct {
	Workspace string   `json:"workspace"`
	Scopes    []string `json:"scopes"`
	Owner     string   `json:"owner,omitempty"`
	Name      string   `json:"name,omitempty"`
}

// NewKey is a created key. Only its hash is stored.
type NewKey struct {
	Key    *apikey.Key `json:"key"`
	Secret string      `json:"secret"`
	Trusts bool        `json:"trusts"` // session ids that it sends are trusted
}

var opKeyCreate = post("key-create", "/keys", "Create a key of the HTTP API", (*Service).createKey).forOperator()

// longestName is the maximum length of a key's name in bytes.
const longestName = 60

func (s *Service) createKey(_ context.Context, c *httpapi.Caller, in *struct{ Body KeyBody }) (out NewKey, err error) {
	b := in.Body
	ws, err := ChooseWorkspace(s.Home, b.Workspace)
	if err != nil {
		return out, err
	}
	w := s.Home.Current().Workspaces[ws]
	switch {
	case b.Owner != "" && !slices.Contains(w.Approvers, b.Owner):
		return out, console.Fail(console.ExitUsage, "approvers of the workspace: "+cmp.Or(strings.Join(w.Approvers, ", "), "none"), "%q is not an approver of workspace '%s'", b.Owner, ws)
	case b.Owner != "" && w.Principal != "" && b.Owner != w.Principal:
		return out, console.Fail(console.ExitRefused, "--owner "+w.Principal+", or no --owner", "workspace '%s' has principal %s: only that person decides there", ws, w.Principal)
	case len(b.Name) > longestName || b.Name != chat.Escape(b.Name):
		return out, console.Fail(console.ExitUsage, "", "--name must be one line of at most %d bytes without invisible characters", longestName)
	}
	out.Secret = newSecret()
	k := apikey.New(out.Secret)
	k.Workspace, k.Scopes, k.Owner, k.Name, k.CreatedAt, k.CreatedBy = ws, b.Scopes, b.Owner, b.Name, time.Now().UTC(), c.Person.Name
	if err := k.Check(); err != nil {
		return out, console.Fail(console.ExitUsage, "permesso key create --help", "%w", err)
	}
	out.Key, out.Trusts = k, w.BindsSessions && k.Can(apikey.MayRequest)
	return out, errors.Join(s.Home.Layout.PrepareAPIKeys(s.Home.FS), s.Home.Keyring(s.Keys).Save(k, store.Durable))
}

// newSecret returns a key: a prefix that secret scanners can find, and 256
// random bits.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return "permesso_" + base64.RawURLEncoding.EncodeToString(b[:])
}

type keyQuery struct {
	ID string `path:"id" doc:"The id of the key or of its client, or its first 4 or more digits."`
}

// RevokedKey is the result of revoking a key: revoked, or no-op.
type RevokedKey struct {
	ID     string `json:"id"`
	Result string `json:"result"`
}

var opKeyRevoke = del("key-revoke", "/keys/{id}", "Revoke a key of the HTTP API", (*Service).revokeKey).forOperator()

func (s *Service) revokeKey(_ context.Context, c *httpapi.Caller, in *keyQuery) (RevokedKey, error) {
	ring := s.Home.Keyring(s.Keys)
	k, err := ring.Find(in.ID)
	if err != nil {
		return RevokedKey{}, err
	}
	if !k.RevokedAt.IsZero() {
		return RevokedKey{k.ID, "no-op"}, nil
	}
	k.RevokedAt, k.RevokedBy = time.Now().UTC(), c.Person.Name
	return RevokedKey{k.ID, "revoked"}, ring.Save(k, store.Replace)
}
