// Package apikey is the document of a key for the HTTP API: who may use it, and for what.
package apikey

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Scopes of a key for the HTTP API.
const (
	MayRequest = "request" // submit, wait for and cancel requests
	MayRead    = "read"    // read requests and events
	MayDecide  = "decide"  // decide as the approver who owns the key
	MayInbound = "inbound" // deliver emails of the approver who owns the key
)

// Scopes lists all scopes of a key.
func Scopes() []string { return []string{MayRequest, MayRead, MayDecide, MayInbound} }

// Key is the stored document of a key. It does not contain the key itself.
type Key struct {
	Version   int      `json:"version"`
	ID        string   `json:"id"`   // the first 16 digits of Hash
	Hash      string   `json:"hash"` // SHA-256 of the key, in hex
	Workspace string   `json:"workspace"`
	Scopes    []string `json:"scopes"`
	Owner     string   `json:"owner"` // an approver's name; "": none
	Name      string   `json:"name"`  // what the operator calls it
	// AuthenticatesSenders: the program with the key has authenticated that the emails it
	// delivers are the owner's.
	AuthenticatesSenders bool      `json:"authenticates_senders,omitzero"`
	CreatedAt            time.Time `json:"created_at"`
	CreatedBy            string    `json:"created_by"`
	RevokedAt            time.Time `json:"revoked_at,omitzero"`
	RevokedBy            string    `json:"revoked_by,omitzero"`
}

// New starts the document for the key secret. The caller fills in the rest.
func New(secret string) *Key {
	hash := approval.Digest([]byte(secret))
	return &Key{Version: approval.Version, ID: ID(hash), Hash: hash}
}

// ID is the id of the key with this hash.
func ID(hash string) string { return hash[:16] }

// DocKey names the document of the key with this id. It is no request's key.
func DocKey(id string) approval.Key { return approval.Key{Workspace: "keys", ID: id} }

// ClientID identifies the requests made with this key.
func (k *Key) ClientID() string { return k.Hash[:12] }

// Can says whether the key has a scope. A nil key and a revoked key have none.
func (k *Key) Can(scope string) bool {
	return k != nil && k.RevokedAt.IsZero() && slices.Contains(k.Scopes, scope)
}

// Encode returns the body to be sealed.
func (k *Key) Encode() ([]byte, error) { return codec.Encode(k) }

// Parse reads the body of a key whose seal was verified.
func Parse(body []byte, id string) (*Key, error) {
	return codec.Document("key", body, func(k *Key) error {
		if k.ID != id {
			return errors.New("id does not match its file")
		}
		return k.Check()
	})
}

// Check refuses an incomplete key, and a key with which an agent could decide its
// own requests.
func (k *Key) Check() error {
	switch {
	case k.Version != approval.Version || len(k.Hash) != 64 || !approval.ValidID(k.Hash) || k.ID != ID(k.Hash):
		return errors.New("version, id or hash is missing")
	case k.Workspace == "" || k.CreatedBy == "" || k.CreatedAt.IsZero():
		return errors.New("workspace, created_by or created_at is missing")
	case len(k.Scopes) == 0:
		return errors.New("scopes are missing")
	}
	decides := false
	for i, s := range k.Scopes {
		if !slices.Contains(Scopes(), s) || slices.Contains(k.Scopes[:i], s) {
			return fmt.Errorf("scope %q is unknown or duplicated", s)
		}
		decides = decides || s == MayDecide || s == MayInbound
	}
	switch {
	case decides && slices.Contains(k.Scopes, MayRequest):
		return errors.New("scope request cannot be combined with decide or inbound: an agent must not decide its own requests")
	case k.AuthenticatesSenders && !slices.Contains(k.Scopes, MayInbound):
		return errors.New("authenticates_senders is only for a key with scope inbound")
	case decides && k.Owner == "":
		return errors.New("owner is missing: a key with scope decide or inbound belongs to an approver")
	}
	return nil
}
