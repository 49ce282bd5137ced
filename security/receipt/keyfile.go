package receipt

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/security/keyfile"
)

// FS is the file system of the keys.
type FS = keyfile.FS

// ErrNoKey says that a folder has no keys yet. It comes with fs.ErrNotExist.
var ErrNoKey = keyfile.ErrNoKey

// File names in the keys folder. Each file is one line, in note's encoding.
const (
	privateFile = "signing.key"
	publicFile  = "signing.pub" // for distribution
	// and next.key, rotated-1.txt, rotated-2.txt …: see Rotate
)

// private is a file that only its owner may read.
func private(dir, name string) keyfile.File {
	return keyfile.File{Path: filepath.Join(dir, name), Mode: 0o600, Refuse: 0o077, Min: 1, Max: 1024, Protects: "its signatures"}
}

// public is a file that only its owner may write.
func public(dir, name string) keyfile.File {
	return keyfile.File{Path: filepath.Join(dir, name), Mode: 0o644, Refuse: 0o022, Min: 1, Max: 4096, Protects: "its signatures"}
}

// Load reads the signer from dir, the keys folder. If there is none the error is
// [ErrNoKey]. A key that other users can read, or that is malformed, is
// refused. Errors have a hint, but for [ErrNoKey].
func Load(fsys FS, dir string) (*Signer, error) {
	f := private(dir, privateFile)
	key, err := readLine(fsys, f)
	if err != nil {
		return nil, fmt.Errorf("load signing key: %w", err)
	}
	s, err := NewSigner(key)
	if err != nil {
		return nil, f.Bad(err)
	}
	return s, nil
}

// LoadOrCreate is Load, and creates a key for a gate of that name if there is none.
// An existing key keeps its name. When it returns, both halves are durable.
// Concurrent processes get the same key.
func LoadOrCreate(fsys FS, dir, name string) (*Signer, error) {
	err := private(dir, privateFile).Ensure(fsys, func() ([]byte, error) {
		key, err := generate(name)
		return []byte(key + "\n"), err
	})
	if err != nil {
		return nil, fmt.Errorf("create signing key: %w", err)
	}
	if err := finishRotation(fsys, dir); err != nil {
		return nil, fmt.Errorf("load signing key: %w", err)
	}
	s, err := Load(fsys, dir)
	if err != nil {
		return nil, err
	}
	// Sync before the public key is written, so that it cannot survive a power cut
	// without its private key. Sync an existing key, too: the process that created
	// it may have died before its sync.
	if err := fsys.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("load signing key: %w", err)
	}
	if err := s.ensurePublic(fsys, dir); err != nil {
		return nil, err
	}
	return s, nil
}

// ensurePublic creates the public key if a crash prevented that.
func (s *Signer) ensurePublic(fsys FS, dir string) error {
	err := public(dir, publicFile).Ensure(fsys, func() ([]byte, error) { return []byte(s.public + "\n"), nil })
	if err != nil {
		return fmt.Errorf("create public key: %w", err)
	}
	if err := s.checkPublic(fsys, dir); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("load public key: %w", err)
	}
	return nil
}

// checkPublic checks that the public key in dir is that of the signer.
func (s *Signer) checkPublic(fsys FS, dir string) error {
	f := public(dir, publicFile)
	key, err := readLine(fsys, f)
	if err == nil && key != s.public {
		err = hints.Add(fmt.Errorf("%s is not the public key of %s", f.Path, privateFile),
			"if the private key is correct, remove the public one: the next start creates it again")
	}
	if err != nil {
		return fmt.Errorf("load public key: %w", err)
	}
	return nil
}

// Check loads both halves of the signing key and checks that they match. It changes
// nothing.
func Check(fsys FS, dir string) error {
	s, err := Load(fsys, dir)
	if err != nil {
		return err
	}
	return s.checkPublic(fsys, dir)
}

// LoadVerifier reads the current and all earlier public keys from dir, the keys
// folder.
func LoadVerifier(fsys FS, dir string) (*Verifier, error) {
	keys, err := PublicKeys(fsys, dir)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, k := range keys {
		all = append(all, k.Key)
	}
	v, err := NewVerifier(all...)
	if err != nil {
		return nil, public(dir, publicFile).Bad(err)
	}
	return v, nil
}

// readLine reads a file of one key.
func readLine(fsys FS, f keyfile.File) (string, error) {
	b, err := f.Read(fsys)
	return strings.TrimSuffix(string(b), "\n"), err
}

// publicOf derives the public key from note's encoding of a private one,
// PRIVATE+KEY+<name>+<hash>+<base64 of algorithm and seed>, which NewSigner has
// checked. Package note returns it only when it generates the key.
func publicOf(private string) (string, error) {
	parts := strings.SplitN(private, "+", 5)
	if len(parts) != 5 {
		return "", errors.New("not a private key")
	}
	seed, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return "", errors.New("not an Ed25519 key")
	}
	public, ok := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("not an Ed25519 key")
	}
	return note.NewEd25519VerifierKey(parts[2], public)
}
