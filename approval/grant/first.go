package grant

import (
	"errors"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"
)

// The kinds of grants of version 1.
const (
	FirstSession = "session_allow" // client, session and action type
	FirstRule    = "allow_rule"    // client and action type
	FirstTarget  = "grant"         // channel, sender, capability and target
)

// First is a grant of version 1. It allows nothing: it is read to be revoked, and to say
// how to give it anew.
type First struct {
	Version    int       `json:"version"`
	ID         string    `json:"id"`
	Kind       string    `json:"kind"`
	Workspace  string    `json:"workspace"`
	ClientID   string    `json:"client_id"`
	SessionID  string    `json:"session_id"`
	ActionType string    `json:"action_type"`
	Exact      string    `json:"exact"` // digest of a complete command line; "": none
	Channel    string    `json:"channel"`
	Sender     string    `json:"sender"`
	Capability string    `json:"capability"`
	TargetKind string    `json:"target_kind"`
	Target     string    `json:"target"`
	By         string    `json:"by"`
	ByID       string    `json:"by_id"`
	Via        string    `json:"via"`
	Reason     string    `json:"reason"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	MaxUses    int       `json:"max_uses"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	RevokedBy  string    `json:"revoked_by,omitzero"`
}

// ParseFirst reads the body of a grant of version 1 whose seal was verified.
func ParseFirst(body []byte, id string) (*First, error) {
	return codec.Document("grant of version 1", body, func(g *First) error {
		if g.ID != id || g.Version != 1 {
			return errors.New("id or version does not match")
		}
		return nil
	})
}

// Encode returns the body to be sealed.
func (g *First) Encode() ([]byte, error) { return codec.Encode(g) }

// Live says whether the grant is neither revoked nor expired.
func (g *First) Live(now time.Time) bool { return g.RevokedAt.IsZero() && now.Before(g.ExpiresAt) }
