package email

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
)

// TokenLength is the length of what NewToken returns.
const TokenLength = 26

// tokenKind keeps our digests apart from every other use of SHA-256: one that
// leaks is of no use elsewhere, and the other way round.
const tokenKind = "permesso e-mail reply token\n" //nolint:gosec // no secret: it stands before every token

var tokenAlphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewToken gives the secret of one card: 128 random bits as 26 letters and
// digits of lower-case base32 (RFC 4648, section 6), which fit in the local
// part of a reply address. Whoever can read the card knows it, so it proves
// nothing by itself; it keeps out mails that never saw the card.
func NewToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return tokenAlphabet.EncodeToString(b[:])
}

// SameToken compares two tokens, or two digests, in a time that does not
// depend on where they differ. An empty one equals nothing, not even another
// empty one. Case is ignored: some servers fold the local part of an address.
func SameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(foldASCII(a))), sha256.Sum256([]byte(foldASCII(b)))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1 && a != "" && b != ""
}

// TokenDigest is what is stored in place of the token: SHA-256 in hex. A token
// has 128 bits of its own, so neither salt nor slowness would add anything.
func TokenDigest(token string) string {
	sum := sha256.Sum256([]byte(tokenKind + foldASCII(token)))
	return hex.EncodeToString(sum[:])
}

// foldASCII lowers the letters of ASCII alone, byte by byte. What Unicode folds
// besides (the Kelvin sign to k, the long s to s) would make equal what no
// server does.
func foldASCII(s string) string {
	folded := []byte(s)
	for i, c := range folded {
		if c >= 'A' && c <= 'Z' {
			folded[i] = c + 'a' - 'A'
		}
	}
	return string(folded)
}
