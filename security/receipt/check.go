package receipt

import (
	"fmt"
	"path/filepath"

	"github.com/permesso-dev/permesso/approval"
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
		return fmt.Errorf("load public key: %w", noKey(err))
	}
	if public != s.public {
		return approval.WithHint(fmt.Errorf("%s is not the public key of %s", filepath.Join(dir, publicFile), privateFile),
			"if the private key is correct, remove the public one: the next start creates it again")
	}
	return nil
}
