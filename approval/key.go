package approval

import (
	"crypto/sha256"
	"encoding/hex"
)

// Key names one request.
type Key struct {
	Workspace string
	ID        string
}

func (k Key) String() string { return k.Workspace + "/" + k.ID }

// Doc is a kind of document. Its value is part of the MAC input.
type Doc string

// The documents of one request, in the letters of the state table.
const (
	DocRequest  Doc = "request"  // Q
	DocCancel   Doc = "cancel"   // X, content never read
	DocPending  Doc = "pending"  // P
	DocDecision Doc = "decision" // D
	DocClaim    Doc = "receipt"  // R
	DocAgain    Doc = "again"    // the second claim of an idempotent tool
	DocRecord   Doc = "record"   // C
	DocResponse Doc = "response" // S
	DocRedeemed Doc = "redeemed" // beside C, once a receipt was redeemed
	DocGrant    Doc = "grant"    // not of one request
	DocClear    Doc = "clear"    // a person's order to clear taints
	DocAPIKey   Doc = "api_key"  // an HTTP API key, without the secret
)

// ValidID reports whether id is exactly [0-9a-f]{16,64}.
func ValidID(id string) bool {
	return len(id) >= 16 && len(id) <= 64 && isHex(id)
}

// ShortID is the part of an id that people type: its first eight digits.
func ShortID(id string) string {
	if len(id) < 8 {
		return id
	}
	return id[:8]
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Digest is SHA-256 as lower-case hex.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
