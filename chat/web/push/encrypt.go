package push

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Sizes of RFC 8188 and RFC 8291 in bytes.
const (
	saltSize   = 16
	authSize   = 16
	pointSize  = 65   // an uncompressed point of P-256
	recordSize = 4096 // every push service takes this much
	headerSize = saltSize + 4 + 1 + pointSize
	tagSize    = 16
)

// maxPayload is what fits into one record, with the byte that ends it.
const maxPayload = recordSize - headerSize - tagSize - 1

var base64url = base64.RawURLEncoding

// encrypt encrypts a payload for a subscription, with a new key and salt.
func encrypt(to *receiver, payload []byte) ([]byte, error) {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	return encryptWith(to, payload, key, salt)
}

// encryptWith is the content coding aes128gcm with the keys of RFC 8291: one record, with its header.
func encryptWith(to *receiver, payload []byte, key *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("a payload of %d bytes is too large", len(payload))
	}
	secret, err := key.ECDH(to.key)
	if err != nil {
		return nil, err
	}
	public := key.PublicKey().Bytes()
	info := "WebPush: info\x00" + string(to.key.Bytes()) + string(public)
	ikm, err := hkdf.Key(sha256.New, secret, to.auth, info, sha256.Size)
	if err != nil {
		return nil, err
	}
	cek, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(cek)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block) //nolint:forbidigo // RFC 8188 derives the nonce; each key is used once
	if err != nil {
		return nil, err
	}
	body := binary.BigEndian.AppendUint32(append([]byte{}, salt...), recordSize)
	body = append(append(body, pointSize), public...)
	return gcm.Seal(body, nonce, append(append([]byte{}, payload...), 2), nil), nil // 2 ends the last record
}

// receiver are the keys of a browser.
type receiver struct {
	key  *ecdh.PublicKey
	auth []byte
}

func newReceiver(p256dh, auth string) (*receiver, error) {
	point, err := base64url.DecodeString(p256dh)
	if err != nil {
		return nil, errors.New("the key is not base64url")
	}
	r := &receiver{}
	if r.key, err = ecdh.P256().NewPublicKey(point); err != nil {
		return nil, errors.New("the key is no point of P-256")
	}
	if r.auth, err = base64url.DecodeString(auth); err != nil || len(r.auth) != authSize {
		return nil, fmt.Errorf("the authentication secret does not have %d bytes", authSize)
	}
	return r, nil
}

// Key signs for push services: they take messages for a subscription only from the key that it was made for.
type Key struct{ private *ecdsa.PrivateKey }

// KeySize is the size of an encoded key in bytes.
const KeySize = 32

// NewKey creates an encoded key.
func NewKey() ([]byte, error) {
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return k.Bytes(), nil
}

// ParseKey decodes a key.
func ParseKey(b []byte) (*Key, error) {
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b)
	if err != nil {
		return nil, err
	}
	return &Key{k}, nil
}

// Public is the public key as browsers take it.
func (k *Key) Public() string {
	b, err := k.private.PublicKey.Bytes()
	if err != nil {
		panic(err) // it is a point of P-256
	}
	return base64url.EncodeToString(b)
}

const (
	tokenLife = 12 * time.Hour // RFC 8292 allows 24
	// contact is whom the operator of a push service may ask about the messages of this program.
	contact = "https://github.com/permesso-dev/permesso"
)

// authorization is the header that RFC 8292 wants for an endpoint.
func (k *Key) authorization(endpoint *url.URL, now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"aud": endpoint.Scheme + "://" + endpoint.Host, "exp": now.Add(tokenLife).Unix(), "sub": contact})
	if err != nil {
		return "", err
	}
	token := base64url.EncodeToString([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." + base64url.EncodeToString(claims)
	sum := sha256.Sum256([]byte(token))
	r, s, err := ecdsa.Sign(rand.Reader, k.private, sum[:])
	if err != nil {
		return "", err
	}
	var signature [2 * KeySize]byte
	r.FillBytes(signature[:KeySize])
	s.FillBytes(signature[KeySize:])
	return "vapid t=" + token + "." + base64url.EncodeToString(signature[:]) + ", k=" + k.Public(), nil
}
