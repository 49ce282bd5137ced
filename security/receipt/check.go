package receipt

import (
	"fmt"
	"path/filepath"
)

// Check loads both halves of the signing key and checks that they match. It changes
// nothing.
func Check(fsys FS, dir string) error {
	s, err := Load(fsys, dir)
	if err != nil {
		return err
	}
	public, err := readKey(fsys, filepath.Join(dir, publicFile), 0o022)
	if err != nil {
		return fmt.Errorf("load public key: %w", withHint(err))
	}
	if public != s.public {
		return fmt.Errorf("%s is not the public key of %s\nhint: if the private key is correct, "+
			"remove the public one: the next start creates it again", filepath.Join(dir, publicFile), privateFile)
	}
	return nil
}
