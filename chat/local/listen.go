package local

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// Listen binds the socket, open to all: who connects decides what they may. A
// socket that a killed gate left is replaced. The caller holds a lock that
// belongs to the path, so that no living one is.
func Listen(path string) (*net.UnixListener, error) {
	if !Supported {
		return nil, errors.New("listen: this system does not tell who connects")
	}
	if err := checkFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("listen on %s: something else lies there", path)
	case err == nil:
		err = os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	// Who may come in is decided by who connects, not by the file.
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// checkFolder refuses a folder in which somebody else could put a socket of
// theirs in our place and have people talk to it.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the socket's folder: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("look at the socket's folder: others may write to %s\nhint: chmod go-w %[1]s, or name another one", dir)
	}
	return nil
}
