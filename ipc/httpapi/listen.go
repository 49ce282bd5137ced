package httpapi

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// ListenUnix binds a Unix socket, open to all: a key says who may do what. A
// socket that a killed gate left is replaced. The caller holds a lock that belongs
// to the path, so that no living one is.
func ListenUnix(path string) (*net.UnixListener, error) {
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("look at the socket's folder: %w", err)
	}
	if dir.Mode().Perm()&0o022 != 0 && dir.Mode()&fs.ModeSticky == 0 {
		return nil, fmt.Errorf("look at the socket's folder: others may write to %s\nhint: chmod go-w %[1]s, or name another one", filepath.Dir(path))
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
	if err := os.Chmod(path, 0o666); err != nil { // it is a key that opens it
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// crowd counts the connections of all listeners.
type crowd struct {
	most int

	mu sync.Mutex
	n  int
}

func (c *crowd) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n >= c.most {
		return false
	}
	c.n++
	return true
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
}

// limited closes what comes beyond the crowd at once: to let it wait would let
// everybody behind it wait too.
type limited struct {
	net.Listener
	crowd *crowd
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.crowd.enter() {
			return &counted{Conn: c, leave: sync.OnceFunc(l.crowd.leave)}, nil
		}
		_ = c.Close()
	}
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// nobody keeps what net/http would log to itself: a stranger's bytes stand in it.
func nobody() *log.Logger { return log.New(io.Discard, "", 0) }
