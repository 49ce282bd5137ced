//go:build !linux

package httpapi

import (
	"errors"
	"net"
	"os"
	"path/filepath"
)

// Supported reports whether this system identifies users who connect.
const Supported = false

var errNested = errors.New("peer is in a nested user namespace")

// peer is the daemon's own UID: only its user can open the only socket that this system
// allows, the private one.
func peer(*net.UnixConn) (uint32, error) {
	return uint32(os.Geteuid()), nil //nolint:gosec // a UID
}

// Hidden reports whether processes of other users are hidden.
func Hidden() bool { return true }

// maxSocketName is the longest name that fits into a socket's address.
const maxSocketName = 103

// shortName is a name for a socket that fits into an address, valid until done: a link in
// a private folder.
func shortName(path string) (name string, done func(), err error) {
	if len(path) <= maxSocketName {
		return path, func() {}, nil
	}
	temp, err := os.MkdirTemp("", "permesso-")
	if err != nil {
		return "", nil, err
	}
	link := filepath.Join(temp, "d")
	if err := os.Symlink(filepath.Dir(path), link); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(temp))
	}
	return filepath.Join(link, filepath.Base(path)), func() { _ = os.RemoveAll(temp) }, nil
}
