package email

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"

	"github.com/permesso-dev/permesso/chat"
)

// tokenKind separates our digests from every other use of SHA-256, so that a leaked
// digest is of no use elsewhere, and the reverse.
const tokenKind = "permesso e-mail reply token\n" //nolint:gosec // no secret: a prefix of every token

var tokenAlphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewToken returns the secret of one card: 128 random bits as 26 letters and digits
// of lower-case base32 (RFC 4648, section 6), which fit in the local part of a reply
// address. Everyone who can read the card knows the token, so it proves no sender. It
// only excludes emails from senders who never saw the card.
func NewToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return tokenAlphabet.EncodeToString(b[:])
}

// sameToken compares two tokens, or two digests, in constant time. An empty string
// equals nothing, not even another empty string. Case is ignored: some servers fold
// the local part of an address.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(chat.LowerASCII(a))), sha256.Sum256([]byte(chat.LowerASCII(b)))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1 && a != "" && b != ""
}

// tokenDigest is stored in place of the token: SHA-256 in hex. A token has 128 random
// bits, so neither a salt nor a slow hash would add security.
func tokenDigest(token string) string {
	sum := sha256.Sum256([]byte(tokenKind + chat.LowerASCII(token)))
	return hex.EncodeToString(sum[:])
}
