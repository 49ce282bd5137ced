package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	secretPrefix = "whsec_"

	// The specification's bounds of a secret, and what NewSecret makes, in bytes.
	minSecret, maxSecret, newSecret = 24, 64, 32
)

// Key signs messages.
type Key struct{ secret []byte }

// ParseKey reads a secret in the specification's form. Its errors never quote the secret.
func ParseKey(secret string) (Key, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	b, err := base64.StdEncoding.DecodeString(text)
	switch {
	case !ok || err != nil:
		return Key{}, errors.New("the secret must be whsec_ and base64")
	case len(b) < minSecret || len(b) > maxSecret:
		return Key{}, fmt.Errorf("the secret has %d bytes, not %d to %d", len(b), minSecret, maxSecret)
	}
	return Key{b}, nil
}

// NewSecret returns a random secret.
func NewSecret() string {
	b := make([]byte, newSecret)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// Sign returns the header webhook-signature of a message that is sent at this time.
func (k Key) Sign(id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// MessageID is the header webhook-id of an event. It is the same for each attempt, so that a receiver can drop repeats.
// It has no dot, which separates it from what else is signed.
func MessageID(event, workspace, request string, at time.Time) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{event, workspace, request, at.UTC().Format(time.RFC3339Nano)}, "\x00")))
	return "msg_" + hex.EncodeToString(sum[:16])
}
