package receipt

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/approval"
)

// FS is the file system of the keys.
type FS interface {
	afero.Fs
	afero.Lstater
	// RenameNoReplace fails with fs.ErrExist if the new name exists.
	RenameNoReplace(oldname, newname string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
}

// File names in the keys folder. Each file is one line, in note's encoding.
const (
	privateFile = "signing.key" // mode 0600
	publicFile  = "signing.pub" // mode 0644: for distribution
	// and next.key, rotated-1.txt, rotated-2.txt …: see Rotate
)

const maxKeyFile = 1024

// ErrNoKey says that a folder has no keys yet. It comes with fs.ErrNotExist.
var ErrNoKey = errors.New("there is no key")

// Load reads the signer from dir, the keys folder. If there is none the error is
// [ErrNoKey]. A key that other users can read, or that is malformed, is
// refused. Errors have a hint, but for [ErrNoKey].
func Load(fsys FS, dir string) (*Signer, error) {
	private, err := readKey(fsys, filepath.Join(dir, privateFile), 0o077)
	if err != nil {
		return nil, fmt.Errorf("load signing key: %w", noKey(err))
	}
	s, err := NewSigner(private)
	if err != nil {
		return nil, badKey(filepath.Join(dir, privateFile), err)
	}
	return s, nil
}

// LoadOrCreate is Load, and creates a key for a gate of that name if there is none.
// An existing key keeps its name. When it returns, both halves are durable.
// Concurrent processes get the same key.
func LoadOrCreate(fsys FS, dir, name string) (*Signer, error) {
	err := ensure(fsys, filepath.Join(dir, privateFile), 0o600, func() (string, error) { return generate(name) })
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
	path := filepath.Join(dir, publicFile)
	if err := ensure(fsys, path, 0o644, func() (string, error) { return s.public, nil }); err != nil {
		return fmt.Errorf("create public key: %w", err)
	}
	public, err := readKey(fsys, path, 0o022)
	if err != nil {
		return fmt.Errorf("load public key: %w", noKey(err))
	}
	if public != s.public {
		return approval.WithHint(fmt.Errorf("load public key: %s is not the public key of %s", path, privateFile),
			"if the private key is correct, remove the public one: it is created again")
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("load public key: %w", err)
	}
	return nil
}

// LoadVerifier reads the current and all earlier public keys from dir, the keys
// folder.
func LoadVerifier(fsys FS, dir string) (*Verifier, error) {
	keys, err := PublicKeys(fsys, dir)
	if err != nil {
		return nil, err
	}
	var public []string
	for _, k := range keys {
		public = append(public, k.Key)
	}
	v, err := NewVerifier(public...)
	if err != nil {
		return nil, badKey(filepath.Join(dir, publicFile), err)
	}
	return v, nil
}

func badKey(path string, err error) error {
	return approval.WithHint(fmt.Errorf("%s: %w", path, err), "restore it from a backup, or move it away: its signatures are then refused")
}

// noKey adds ErrNoKey to the error of a missing file.
func noKey(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	return err
}

// readKey reads a key file. It refuses a file that is not regular or has one of the
// permissions in refuse.
func readKey(fsys FS, path string, refuse fs.FileMode) (string, error) {
	s, err := readFile(fsys, path, refuse, maxKeyFile)
	return strings.TrimSuffix(s, "\n"), err
}

func readFile(fsys FS, path string, refuse fs.FileMode, limit int64) (string, error) {
	info, err := lstat(fsys, path)
	if err != nil {
		return "", err
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return "", approval.WithHint(fmt.Errorf("%s is not a regular file", path), "replace it by the key itself, not a link")
	case mode.Perm()&refuse != 0:
		return "", approval.WithHint(fmt.Errorf("%s is accessible to other users (mode %04o)", path, mode.Perm()),
			fmt.Sprintf("chmod %04o it; if another user may have read or changed it, move it away: its signatures are then refused", mode.Perm()&^refuse))
	case info.Size() == 0 || info.Size() > limit:
		return "", approval.WithHint(fmt.Errorf("%s has %d bytes and is not a key", path, info.Size()),
			"restore it from a backup, or move it away: its signatures are then refused")
	}
	f, err := fsys.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit))
	return string(b), err
}

// ensure creates a key file if there is none. A file that another process creates
// is accepted.
func ensure(fsys FS, path string, mode fs.FileMode, newKey func() (string, error)) error {
	_, err := lstat(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		var key string
		if key, err = newKey(); err == nil {
			err = create(fsys, path, key+"\n", mode)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// create writes a file atomically: its content is durable before its name exists.
// The name is not yet durable.
func create(fsys FS, path, content string, mode fs.FileMode) error {
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, "."+name+"-"+randomHex())
	f, err := fsys.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = fsys.RenameNoReplace(temp, path)
	}
	if err != nil {
		fsys.Remove(temp)
	}
	return err
}

func randomHex() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
}

// lstat does not follow links.
func lstat(fsys FS, name string) (fs.FileInfo, error) {
	info, _, err := fsys.LstatIfPossible(name)
	return info, err
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
