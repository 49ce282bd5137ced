package local

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/permesso-dev/permesso/approval"
)

// Listen binds the socket, open to all: who connects decides what they may. A
// socket that a killed gate left is replaced. The caller holds a lock that
// belongs to the path, so that no living one is.
func Listen(path string) (*net.UnixListener, error) { return listen(path, 0o666) }

// ListenPrivate is Listen for a socket in a folder that only the gate's own user
// can enter, and whose path may be of any length.
func ListenPrivate(path string) (*net.UnixListener, error) { return listen(path, 0o600) }

func listen(path string, mode fs.FileMode) (*net.UnixListener, error) {
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
	at, done, err := reachable(path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if at != path {
		l.SetUnlinkOnClose(false) // by then the short name means something else
	}
	// Who may come in is decided by who connects, and by the folder.
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// longest is how long a path the kernel takes for a socket.
const longest = 107

// reachable is a name for path that the kernel takes, good until done is called.
func reachable(path string) (name string, done func(), err error) {
	if len(path) <= longest {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

// checkFolder refuses a folder in which another user could put a socket of
// theirs in our place and have people talk to it.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the socket's folder: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return approval.WithHint(fmt.Errorf("look at the socket's folder: others may write to %s", dir), "chmod go-w "+dir+", or name another one")
	}
	return nil
}
