package config

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval/facts"
)

const keyHint = `the 32 bytes of an Ed25519 key in base64, or a file made by: openssl pkey -in prover.key -pubout`

// provers reads [provers.NAME], the keys of trusted provers.
func (s *section) provers() {
	s.each("provers", func(name string, sub *section) {
		sub.checkName("prover", name)
		key := sub.publicKey(name)
		for other, known := range s.cfg.Provers {
			if key != nil && key.Equal(known) {
				sub.fail(sub.node.key, "", "each key belongs to one prover", "prover %s already has this key", quote(other))
			}
		}
		if key != nil {
			s.cfg.Provers[name] = key
		}
		if len(s.cfg.Provers) == facts.MaxProvers+1 {
			sub.fail(sub.node.key, "", "", "more than %d provers", facts.MaxProvers)
		}
	})
}

func (s *section) publicKey(name string) ed25519.PublicKey {
	line, file := s.text("public_key"), s.text("public_key_file")
	switch {
	case s.has("public_key") && s.has("public_key_file"):
		s.fail(s.node.children["public_key_file"].key, "public_key_file", "remove one of them", "public_key and public_key_file must not both be set")
	case !s.has("public_key") && !s.has("public_key_file"):
		s.fail(s.node.key, "public_key", keyHint, "prover %s has no key", quote(name))
	case s.failed:
	case file != "":
		key, err := readPublicKey(file)
		if err != nil {
			s.fail(s.position("public_key_file"), "public_key_file", keyHint, "public_key_file: %s", visible(err.Error()))
		}
		return key
	default:
		key, err := parsePublicKey([]byte(line))
		if err != nil {
			s.fail(s.position("public_key"), "public_key", keyHint, "public_key %s", err)
		}
		return key
	}
	return nil
}

// maxKeyFile is more than any file with one Ed25519 key has.
const maxKeyFile = 4 << 10

// readPublicKey reads a key from a file that other users cannot write: the key
// decides which proofs are trusted.
func readPublicKey(path string) (ed25519.PublicKey, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case info.Mode().Perm()&0o022 != 0:
		return nil, errors.New("other users may change this file: chmod go-w")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil || len(data) > maxKeyFile {
		return nil, fmt.Errorf("is not a file with one key: %w", errors.Join(err))
	}
	key, err := parsePublicKey(data)
	if err != nil {
		return nil, fmt.Errorf("content %w", err)
	}
	return key, nil
}

// parsePublicKey reads a key in base64, or in PEM as openssl writes it. Its errors
// quote nothing of data, which may be a private key.
func parsePublicKey(data []byte) (ed25519.PublicKey, error) {
	errNone := errors.New("is not an Ed25519 public key")
	var key ed25519.PublicKey
	if block, _ := pem.Decode(data); block != nil {
		if block.Type != "PUBLIC KEY" {
			return nil, errNone
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		own, ok := parsed.(ed25519.PublicKey)
		if err != nil || !ok {
			return nil, errNone
		}
		key = own
	} else {
		b, err := base64.RawStdEncoding.Strict().DecodeString(strings.TrimRight(string(bytes.TrimSpace(data)), "="))
		if err != nil || len(b) != ed25519.PublicKeySize {
			return nil, errNone
		}
		key = b
	}
	if lowOrder(key) {
		return nil, errors.New("is a weak (low-order) public key")
	}
	return key, nil
}

// lowOrderPoints are the Ed25519 points of order 8 or less, in every accepted
// encoding, without the sign bit. Signatures that verify with them can be made
// without a private key.
var lowOrderPoints = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

func lowOrder(key ed25519.PublicKey) bool {
	unsigned := bytes.Clone(key)
	unsigned[len(unsigned)-1] &= 0x7f
	return slices.Contains(lowOrderPoints, hex.EncodeToString(unsigned))
}
