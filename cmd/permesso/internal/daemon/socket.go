package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"golang.org/x/time/rate"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/local"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
)

// socket serves local users who cannot read the home.
type socket struct {
	server   *local.Server
	listener *net.UnixListener
	lock     io.Closer
}

// listen opens the configured socket; nil without one.
func (s *server) listen() (*socket, error) {
	path := s.Config.Socket
	if path == "" {
		return nil, nil
	}
	// A lock besides HOME/lock, because two homes may configure the same socket.
	lock, err := s.FS.TryLock(path + ".lock")
	if errors.Is(err, ipc.ErrLocked) {
		return nil, console.Fail(console.ExitLocked, "configure another socket for one of them", "another daemon listens on %s", path)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := local.Listen(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if local.Hidden() {
		s.log.Warn().Msg("processes of other users are hidden (hidepid): a sandboxed agent under an approver's UID is treated as that approver")
	}
	s.log.Info().Str("path", path).Msg("approver socket listening")
	return &socket{server: s.localServer(), listener: l, lock: lock}, nil
}

func (k *socket) run(ctx context.Context) error { return k.server.Run(ctx, k.listener) }

// close keeps the lock file: a lock on a removed file excludes no process.
func (k *socket) close() {
	if k != nil {
		_ = k.listener.Close() // already closed if Run has run
		_ = k.lock.Close()
	}
}

func (s *server) localServer() *local.Server {
	d := s.gateDecider()
	var errs rateLimited // clients that disconnect cause many errors
	return &local.Server{
		Decider: d, Viewer: s.Viewer(s.keys),
		May: func(ws string, p *approval.Pending, by approval.Person) bool {
			_, ok := d.May(ws, p, by)
			return ok
		},
		Who: func(uid string) (approval.Person, []string) {
			p := approval.Person{Channel: approval.EntranceSocket, ID: uid}
			return p, slices.DeleteFunc(home.WorkspaceNames(s.Current()), func(ws string) bool {
				_, ok := d.May(ws, nil, p)
				return !ok
			})
		},
		Status:   s.statusFor,
		Link:     s.linkFor,
		Refused:  func(by approval.Person) { d.Refused(approval.Key{}, by, local.Via) },
		Language: s.languageOf,
		Log: func(err error) {
			if errs.allow("") {
				s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Str("via", local.Via).Msg("approver socket failed")
			}
		},
	}
}

func (s *server) languageOf(p approval.Person) string {
	cfg := s.Current()
	return cmp.Or(cfg.Approvers[cfg.Approver(p)].Language, cfg.Language)
}

// statusFor returns the status limited to the user's workspaces.
func (s *server) statusFor(workspaces []string) ([]byte, error) {
	st, err := s.State()
	if err != nil {
		return nil, err
	}
	return json.Marshal(st.Only(workspaces), json.Deterministic(true))
}

// rateLimited limits the entries of one UID, so that refusals and errors cannot
// fill the disk: ten at once, then one a minute.
type rateLimited struct {
	mu  sync.Mutex
	uid map[string]*rate.Limiter
}

// maxUIDs limits the map. Further UIDs share one limiter.
const maxUIDs = 1000

func (s *rateLimited) allow(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uid == nil {
		s.uid = map[string]*rate.Limiter{}
	}
	if s.uid[uid] == nil && len(s.uid) >= maxUIDs {
		uid = ""
	}
	if s.uid[uid] == nil {
		s.uid[uid] = rate.NewLimiter(rate.Limit(1.0/60), 10)
	}
	return s.uid[uid].Allow()
}
