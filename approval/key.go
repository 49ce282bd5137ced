package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
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
	DocCancel   Doc = "cancel"   // X; its content is at most a reason
	DocPending  Doc = "pending"  // P
	DocDecision Doc = "decision" // D
	DocClaim    Doc = "receipt"  // R
	DocAgain    Doc = "again"    // the second claim of an idempotent tool
	DocTask     Doc = "task"     // by what an executor finds a task of R that goes on without the daemon
	DocRecord   Doc = "record"   // C
	DocResponse Doc = "response" // S
	DocRedeemed Doc = "redeemed" // beside C, once a receipt was redeemed
	DocGrant    Doc = "grant"    // not of one request
	DocClear    Doc = "clear"    // a person's order to clear taints
	DocAPIKey   Doc = "api_key"  // an HTTP API key, without the secret
)

// IDForm says what an id looks like, for error texts.
const IDForm = "16 to 64 lower-case hex digits, or a lower-case UUID with its dashes"

// ValidID reports whether id is a request's: exactly [0-9a-f]{16,64}, or a UUID of any
// version in lower case with its dashes.
func ValidID(id string) bool {
	return len(id) >= 16 && len(id) <= 64 && isHex(id) || isUUID(id)
}

// maxName is the greatest length of a name that may stand for an id.
const maxName = 64

// ValidName reports whether documents may be stored under name: 1 to 64 of A-Z a-z 0-9 _
// and -. A request file with such a name gets its response under it, malformed if the name
// is not a valid id. Only malformed requests have such names.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// Digits is an id without the dashes of a UUID.
func Digits(id string) string {
	if isUUID(id) {
		return strings.ReplaceAll(id, "-", "")
	}
	return id
}

// ShortID is the part of an id that people type: its first eight digits.
func ShortID(id string) string {
	id = Digits(id)
	if len(id) < 8 {
		return id
	}
	return id[:8]
}

// MaybeID reports whether a person who typed s may mean an id: hex digits, which may have
// the dashes of a UUID at their places, in any case.
func MaybeID(s string) bool {
	s = strings.ToLower(s)
	return isHex(s) && s != "" || len(s) <= len(uuidShape) && fits(s)
}

// BeginsID reports whether typed, in lower case, is the beginning of id: with the dashes
// of a UUID, or its digits alone.
func BeginsID(id, typed string) bool {
	return strings.HasPrefix(strings.ToLower(id), typed) || strings.HasPrefix(Digits(id), typed)
}

// uuidShape has a digit for each hex digit of a UUID.
const uuidShape = "00000000-0000-0000-0000-000000000000"

func isUUID(s string) bool { return len(s) == len(uuidShape) && fits(s) }

// fits reports whether s has the shape of the beginning of a UUID.
func fits(s string) bool {
	for i := range len(s) {
		if uuidShape[i] == '-' && s[i] != '-' || uuidShape[i] == '0' && !isHex(s[i:i+1]) {
			return false
		}
	}
	return s != ""
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

// DigestAll is the Digest of parts, each behind its length: other parts have another one.
func DigestAll(parts ...[]byte) string {
	var all []byte
	for _, part := range parts {
		all = append(fmt.Appendf(all, "%d:", len(part)), part...)
	}
	return Digest(all)
}
