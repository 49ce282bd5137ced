package seal

import (
	"crypto/rand"
	"fmt"
	"path/filepath"

	"github.com/permesso-dev/permesso/security/keyfile"
)

// FS is the file system of the key.
type FS = keyfile.FS

// ErrNoKey says that a folder has no key yet. It comes with fs.ErrNotExist.
var ErrNoKey = keyfile.ErrNoKey

// fileIn is the key's file in the keys folder: random bytes.
func fileIn(dir string) keyfile.File {
	return keyfile.File{
		Path: filepath.Join(dir, "mac.key"), Mode: 0o600, Refuse: 0o077, Min: KeySize, Max: KeySize, Protects: "documents sealed with it",
	}
}

// Load reads the key from dir, the keys folder. If there is none the error is
// [ErrNoKey]. A key that other users can read, or that is malformed, is
// refused. Errors have a hint, but for [ErrNoKey].
func Load(fsys FS, dir string) (*Key, error) {
	secret, err := fileIn(dir).Read(fsys)
	if err != nil {
		return nil, fmt.Errorf("load MAC key: %w", err)
	}
	return NewKey(secret)
}

// LoadOrCreate is Load, and creates a key if there is none. The returned key is
// durable. Concurrent processes get the same key.
func LoadOrCreate(fsys FS, dir string) (*Key, error) {
	err := fileIn(dir).Ensure(fsys, func() ([]byte, error) {
		secret := make([]byte, KeySize)
		rand.Read(secret) // never fails: crypto/rand
		return secret, nil
	})
	if err != nil {
		return nil, fmt.Errorf("create MAC key: %w", err)
	}
	// The process that created the key may have died before this sync. A sealed
	// document must not survive a power cut that its key does not survive.
	if err := fsys.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("load MAC key: %w", err)
	}
	return Load(fsys, dir)
}
