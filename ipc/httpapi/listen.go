package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/permesso-dev/permesso/approval/hints"
)

// ListenUnix binds a Unix socket that every user may open: access needs a key. It
// replaces the socket of a killed daemon. The caller holds a lock for the path, so that
// no running daemon uses it.
func ListenUnix(path string) (*net.UnixListener, error) { return listenUnix(path, 0o666, true) }

// ListenLocal is ListenUnix for a LocalServer, whose clients trust the socket: no other
// user may write to its folder, not even a sticky one. A private socket is only for the
// daemon's own user. The path may have any length.
func ListenLocal(path string, private bool) (*net.UnixListener, error) {
	if private {
		return listenUnix(path, 0o600, false)
	}
	if !Supported {
		return nil, errors.New("listen: this system does not identify users who connect")
	}
	return listenUnix(path, 0o666, false)
}

func listenUnix(path string, mode fs.FileMode, sticky bool) (*net.UnixListener, error) {
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("check folder of socket: %w", err)
	}
	if dir.Mode().Perm()&0o022 != 0 && (!sticky || dir.Mode()&fs.ModeSticky == 0) {
		return nil, hints.Add(fmt.Errorf("check folder of socket: other users may write to %s", filepath.Dir(path)),
			"chmod go-w "+filepath.Dir(path)+", or use another folder")
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("listen on %s: exists and is not a socket", path)
	case err == nil:
		err = os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	name, done, err := shortName(path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if name != path {
		l.SetUnlinkOnClose(false) // the short name is gone then
	}
	// Before this the umask may have refused others, never admitted them: a caller needs
	// a key or a known UID, and the folder of a private socket is private too.
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// DialUnix connects to a socket whose path may have any length.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	name, done, err := shortName(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return (&net.Dialer{}).DialContext(ctx, "unix", name)
}

// limitedListener closes connections beyond the limit at once: if they waited, all later
// ones would wait too.
type limitedListener struct {
	net.Listener
	slots chan struct{} // one for each connection of all listeners together
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &countedConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			_ = c.Close()
		}
	}
}

type countedConn struct {
	net.Conn
	release func()
}

func (c *countedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
