// Package seal puts a MAC on the documents that the daemon writes, so that files
// from other programs are not accepted as its documents.
//
// # Format
//
// A document is a JSON object. Its seal is the last member, in exactly this form:
//
//	{"version":1,…,"mac":"<64 lower-case hex digits>"}
//
// The MAC is HMAC-SHA256 (RFC 2104) with a key of 32 bytes, over the kind of
// document, the workspace and the id, each as its length in decimal, a colon
// and its bytes, and then every byte of the file before the comma:
//
//	7:pending8:personal16:a7f3b2c1d4e5f6a7{"version":1,…
//
// The lengths distinguish ("ab", "c") from ("a", "bc"). The object without
// members becomes {"mac":"…"}, without a comma.
//
// # Purpose
//
// It protects against wrong mounts and misplaced files: a decision cannot be moved
// to another request, nor a pending be used as a record. A process that can read
// the key can seal anything.
package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// ErrSeal says that the daemon did not write a file under this kind and key: its
// MAC is missing, in another form, or does not match.
var ErrSeal = errors.New("the MAC is missing or does not match")

// KeySize is the length of a MAC key in bytes.
const KeySize = 32

const (
	tail    = `"mac":"`
	macLen  = 2 * sha256.Size
	tailLen = len(tail) + macLen + len(`"}`)
)

// Key seals and opens documents. It is safe for concurrent use and must not be
// copied. The zero Key opens nothing.
type Key struct {
	// Reset keeps an HMAC's keyed state, which halves the work for short documents.
	// But one HMAC cannot be used concurrently, so there is a pool.
	macs sync.Pool // of *mac
}

type mac struct {
	hash   hash.Hash
	prefix []byte
	sum    [sha256.Size]byte
	hex    [macLen]byte
}

// NewKey makes a key from its 32 bytes.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) != KeySize {
		return nil, fmt.Errorf("make MAC key: %d bytes instead of %d", len(secret), KeySize)
	}
	secret = append([]byte(nil), secret...)
	k := &Key{}
	k.macs.New = func() any { return &mac{hash: hmac.New(sha256.New, secret)} }
	return k, nil
}

// Seal returns body, a JSON object, with the MAC as its last member. It returns
// nil, which Open refuses, if body is not an object or the Key is the zero Key.
func (key *Key) Seal(kind approval.Doc, k approval.Key, body []byte) []byte {
	if len(body) < 2 || body[0] != '{' || body[len(body)-1] != '}' {
		return nil
	}
	head := body[:len(body)-1]
	m := key.sum(kind, k, head)
	if m == nil {
		return nil
	}
	defer key.macs.Put(m)
	file := make([]byte, 0, len(head)+1+tailLen)
	file = append(file, head...)
	if len(head) > 1 {
		file = append(file, ',')
	}
	file = append(file, tail...)
	file = append(file, m.hex[:]...)
	return append(file, `"}`...)
}

// Open verifies file and returns a copy of the object without its MAC. The error is
// ErrSeal.
func (key *Key) Open(kind approval.Doc, k approval.Key, file []byte) (body []byte, err error) {
	head, given, ok := split(file)
	if !ok {
		return nil, ErrSeal
	}
	m := key.sum(kind, k, head)
	if m == nil {
		return nil, ErrSeal
	}
	defer key.macs.Put(m)
	if !hmac.Equal(m.hex[:], given) {
		return nil, ErrSeal
	}
	body = make([]byte, 0, len(head)+1)
	return append(append(body, head...), '}'), nil
}

// split finds the MAC. It accepts only the place and form that Seal writes.
func split(file []byte) (head, given []byte, ok bool) {
	at := len(file) - tailLen
	if at < 1 || file[0] != '{' {
		return nil, nil, false
	}
	head, given = file[:at], file[at+len(tail):at+len(tail)+macLen]
	if string(file[at:at+len(tail)]) != tail || string(file[len(file)-2:]) != `"}` {
		return nil, nil, false
	}
	if at == 1 {
		return head, given, true
	}
	// Seal never writes "{,": its head would equal that of "{}".
	return head[:at-1], given, head[at-1] == ',' && at > 2
}

// sum returns nil for the zero Key. The caller returns it to the pool.
func (key *Key) sum(kind approval.Doc, k approval.Key, head []byte) *mac {
	m, ok := key.macs.Get().(*mac)
	if !ok {
		return nil
	}
	p := m.prefix[:0]
	for _, s := range [...]string{string(kind), k.Workspace, k.ID} {
		p = strconv.AppendInt(p, int64(len(s)), 10)
		p = append(p, ':')
		p = append(p, s...)
	}
	m.prefix = p
	m.hash.Reset()
	m.hash.Write(p)
	m.hash.Write(head)
	hex.Encode(m.hex[:], m.hash.Sum(m.sum[:0]))
	return m
}
