package approval

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// What a key for the gate's HTTP door may do.
const (
	MayRequest = "request" // submit requests, wait for them, take them back
	MayRead    = "read"    // look, and listen to events
	MayDecide  = "decide"  // answer as the approver whom the key belongs to
	MayInbound = "inbound" // hand over what that approver wrote by e-mail
)

// Scopes lists what a key may be allowed.
func Scopes() []string { return []string{MayRequest, MayRead, MayDecide, MayInbound} }

// APIKey is what is kept of a key: everything but the key itself.
type APIKey struct {
	Version   int       `json:"version"`
	ID        string    `json:"id"`   // the first 16 digits of Hash
	Hash      string    `json:"hash"` // SHA-256 of the key, in hex
	Workspace string    `json:"workspace"`
	Scopes    []string  `json:"scopes"`
	Owner     string    `json:"owner"` // the approver it belongs to; "": nobody in particular
	Name      string    `json:"name"`  // what the operator calls it
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	RevokedBy string    `json:"revoked_by,omitzero"`
}

// NewAPIKey is what is kept of secret; the caller fills the rest in.
func NewAPIKey(secret string) *APIKey {
	hash := Digest([]byte(secret))
	return &APIKey{Version: Version, ID: APIKeyID(hash), Hash: hash}
}

// APIKeyID is the id of the key with this hash.
func APIKeyID(hash string) string { return hash[:16] }

// APIKeyKey is the key of an APIKey's document: of no request.
func APIKeyKey(id string) Key { return Key{Workspace: "keys", ID: id} }

// ClientID is how a request that came with the key is known.
func (k *APIKey) ClientID() string { return k.Hash[:12] }

// Can says whether the key may be used for something. The nil key and a revoked
// one can do nothing.
func (k *APIKey) Can(scope string) bool {
	return k != nil && k.RevokedAt.IsZero() && slices.Contains(k.Scopes, scope)
}

// Encode is the key's body, to be sealed.
func (k *APIKey) Encode() ([]byte, error) { return marshal(k) }

// ParseAPIKey reads the body of a key whose seal was verified.
func ParseAPIKey(body []byte, id string) (*APIKey, error) {
	k := &APIKey{}
	if err := unmarshal(body, k); err != nil {
		return nil, fmt.Errorf("parse key: %w", err)
	}
	if k.ID != id {
		return nil, errors.New("parse key: not the document of this id")
	}
	if err := k.Check(); err != nil {
		return nil, fmt.Errorf("parse key: %w", err)
	}
	return k, nil
}

// Check refuses a key that is incomplete, or with which an agent could decide
// what it asks itself.
func (k *APIKey) Check() error {
	switch {
	case k.Version != Version || len(k.Hash) != 64 || !isHex(k.Hash) || k.ID != APIKeyID(k.Hash):
		return errors.New("version, id or hash is missing")
	case k.Workspace == "" || k.CreatedBy == "" || k.CreatedAt.IsZero():
		return errors.New("workspace, created_by or created_at is missing")
	case len(k.Scopes) == 0:
		return errors.New("it may do nothing: a scope is missing")
	}
	decides := false
	for i, s := range k.Scopes {
		if !slices.Contains(Scopes(), s) || slices.Contains(k.Scopes[:i], s) {
			return fmt.Errorf("scope %q is unknown, or there twice", s)
		}
		decides = decides || s == MayDecide || s == MayInbound
	}
	switch {
	case decides && slices.Contains(k.Scopes, MayRequest):
		return errors.New("whoever asks must not decide: no key has request together with decide or inbound")
	case decides && k.Owner == "":
		return errors.New("a key that decides belongs to an approver: its owner is missing")
	}
	return nil
}
