package control

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// glanceTimeout is how long the daemon of another user may take. A prompt waits for it.
const glanceTimeout = 100 * time.Millisecond

var opGlance = get("glance", "/glance", "How many requests wait for the caller, and since when", (*Service).glance)

func (s *Service) glance(ctx context.Context, c *httpapi.Caller, _ *none) (home.Glance, error) {
	g, err := s.Home.Glance(ctx, c.Sees, func(k approval.Key) bool {
		if c.Operator {
			return true
		}
		w, err := s.Viewer.Pending(k)
		return err == nil && w != nil && s.may(c, k.Workspace, w.Pending)
	})
	g.Daemon = home.DaemonUp
	return g, err
}

// ReadGlance reads what waits from the files of the HOME that a command means, if it can read them, else from the
// daemon at the approver socket. It says nothing of the circumstances.
func ReadGlance(ctx context.Context, a *console.Console) (g home.Glance, err error) {
	quiet := *a
	quiet.Err = io.Discard
	a = &quiet
	dir, err := home.Find(a)
	if err == nil {
		if err = home.Check(a, dir); err == nil {
			g, err = home.New(nil, dir).Glance(ctx, func(string) bool { return true }, nil)
		}
	}
	if g.Daemon == home.DaemonUp && err == nil || !asksSocket(a, dir) {
		return g, err
	}
	return askGlance(ctx, &Client{console: a, path: socketPath(a), Served: true, warned: true})
}

func askGlance(ctx context.Context, c *Client) (home.Glance, error) {
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	g, err := call(ctx, c, opGlance, none{})
	switch {
	case isSilent(err):
		return home.Glance{Daemon: home.DaemonSilent}, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return home.Glance{Daemon: home.DaemonDown}, nil
	}
	return g, err
}

// asksSocket reports whether the approver socket is asked if no daemon answers in a HOME.
func asksSocket(a *console.Console, dir string) bool {
	return a.Env("PERMESSO_SOCKET") != "" && !home.Named(a) || isForeign(a, dir) && isSocket(socketPath(a))
}
