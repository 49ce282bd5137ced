package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/mcp/wire"
)

// A server that ends is started again at most so often in a while.
const (
	maxStarts   = 5
	startsWhile = time.Minute
)

// connector holds the connection to the server.
type connector struct {
	turn chan struct{} // of one who connects

	mu     sync.Mutex
	conn   *wire.Conn
	closed bool
	starts []time.Time
}

// now is the connection, nil where there is none.
func (k *connector) now() *wire.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil || k.conn.Err() != nil {
		return nil
	}
	return k.conn
}

func (k *connector) close() {
	k.mu.Lock()
	k.closed = true
	conn := k.conn
	k.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

var errClosed = errors.New("the gateway is closed")

// mayStart counts a start.
func (k *connector) mayStart(now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errClosed
	}
	k.starts = slices.DeleteFunc(k.starts, func(t time.Time) bool { return now.Sub(t) > startsWhile })
	if len(k.starts) >= maxStarts {
		return fmt.Errorf("the server ended %d times within %v; it is started again by a request after %v",
			maxStarts, startsWhile, k.starts[0].Add(startsWhile).Format(time.TimeOnly))
	}
	k.starts = append(k.starts, now)
	return nil
}

// server is the connection to the server, which is started if it does not run.
func (g *Gateway) server(ctx context.Context, s *session) (*wire.Conn, error) {
	k := &g.conns
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-k.turn }()
	if c := k.now(); c != nil {
		return c, nil
	}
	if err := k.mayStart(time.Now()); err != nil {
		return nil, err
	}
	conn, err := g.connect(s)
	if err != nil {
		return nil, fmt.Errorf("MCP server %s cannot be started: %w", g.o.Server, err)
	}
	k.mu.Lock()
	restarted, closed := k.conn != nil, k.closed
	k.conn = conn
	k.mu.Unlock()
	if closed {
		_ = conn.Close()
		return nil, errClosed
	}
	if restarted {
		g.note("MCP server %s has ended and was started again", g.o.Server)
		g.work.Go(func() { g.subscribeAgain(conn) })
	}
	return conn, nil
}

// connect is bounded by itself: another request may need the server when the one that starts it is taken back.
func (g *Gateway) connect(s *session) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(g.ctx, g.o.StartTimeout)
	defer cancel()
	t, err := g.o.Connect(ctx)
	if err != nil {
		return nil, err
	}
	var conn *wire.Conn
	ready := make(chan struct{})
	conn, err = wire.Connect(ctx, t, wire.Options{
		Client: s.info, Capabilities: s.caps, Prefer: s.version,
		Notification: func(method string, params approval.Raw) {
			if method == "notifications/tools/list_changed" {
				g.tools.changed()
			}
			select {
			case <-ready:
				if conn != nil {
					g.heard(conn, method, params)
				}
			default: // the client has not heard of this server: the answer to initialize comes on the same way
			}
		},
		Request: func(ctx context.Context, method string, params approval.Raw) (approval.Raw, error) {
			select {
			case <-ready:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return g.asks(ctx, method, params)
		},
	})
	close(ready)
	return conn, err
}
