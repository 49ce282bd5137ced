package mcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// What a client brings back is not trusted: it has a MAC by the book's secret, so it is good for one client only.

// round is what a requestState says.
type round struct {
	ID      string    `json:"id"`   // of the request
	Call    string    `json:"call"` // digest of method and arguments
	Number  int       `json:"number"`
	Nonce   string    `json:"nonce"` // it is taken up once
	Expires time.Time `json:"expires"`
}

// keepRound is how long a client may take for the next round.
const keepRound = time.Hour

// errState says that a requestState is not one for this call.
var errState = errors.New("requestState is not valid for this call: leave it out, and the call waits for the request that was made for it")

func newNonce() string { return rand.Text() }

func (b *Book) seal(r round) (string, error) {
	text, err := codec.Encode(r)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(append(b.mac("round", text), text...)), nil
}

// unseal reads the state that a client has brought back with a call.
func (b *Book) unseal(state, call string, now time.Time) (r round, err error) {
	raw, err := decode64(state)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], b.mac("round", raw[sha256.Size:])) {
		return r, errState
	}
	if err := codec.Decode(raw[sha256.Size:], &r); err != nil || r.Call != call || now.After(r.Expires) {
		return round{}, errState
	}
	return r, nil
}

// decode64 reads the one spelling of some bytes.
func decode64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") { // which the decoder passes over
		return nil, base64.CorruptInputError(0)
	}
	return base64.RawURLEncoding.Strict().DecodeString(s)
}

// handle is the task of a request.
func (b *Book) handle(id string) string {
	return id + "." + base64.RawURLEncoding.EncodeToString(b.mac("task", []byte(id)))
}

// request is the request of a task, "" if the handle is not one of this client's.
func (b *Book) request(handle string) string {
	id, text, _ := strings.Cut(handle, ".")
	mac, err := decode64(text)
	if err != nil || !approval.ValidID(id) || !hmac.Equal(mac, b.mac("task", []byte(id))) {
		return ""
	}
	return id
}

func (b *Book) mac(kind string, text []byte) []byte {
	h := hmac.New(sha256.New, b.secret)
	fmt.Fprintf(h, "%d:%s%s", len(kind), kind, text)
	return h.Sum(nil)
}
