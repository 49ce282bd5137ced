package main

import (
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
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat/local"
	"github.com/permesso-dev/permesso/ipc"
)

// socket is the door for the people of this machine who cannot read the home.
type socket struct {
	server   *local.Server
	listener *net.UnixListener
	lock     io.Closer
}

// listen opens the socket that the configuration names; nil where it names none.
func (s *server) listen() (*socket, error) {
	path := s.cfg.Socket
	if path == "" {
		return nil, nil
	}
	// Beside HOME/lock, because two homes may name the same socket.
	lock, err := s.fs.TryLock(path + ".lock")
	if errors.Is(err, ipc.ErrLocked) {
		return nil, fail(codeLocked, "give one of them another socket in its configuration", "another permesso listens on %s", path)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := local.Listen(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if local.Hidden() {
		s.log.Warn().Msg("other people's processes are hidden here: an agent in a sandbox, under an approver's uid, is taken for the approver")
	}
	s.log.Info().Str("path", path).Msg("people of this machine decide here")
	return &socket{server: s.localServer(), listener: l, lock: lock}, nil
}

func (k *socket) run(ctx context.Context) error { return k.server.Run(ctx, k.listener) }

// close leaves nothing behind but the lock file, which no one may remove: a lock
// on a removed file excludes nobody.
func (k *socket) close() {
	if k != nil {
		_ = k.listener.Close() // Run has done it, unless it never ran
		_ = k.lock.Close()
	}
}

func (s *server) localServer() *local.Server {
	d := s.localDecider()
	var errs seldom // many a one is of somebody who connects and goes
	return &local.Server{
		Decider: d, Viewer: s.viewer(s.keys),
		May: func(ws string, p *approval.Pending, by approval.Person) bool {
			_, ok := d.May(ws, p, by)
			return ok
		},
		Who: func(uid string) (approval.Person, []string) {
			p := approval.Person{Channel: "local", ID: uid}
			return p, slices.DeleteFunc(sortedNames(s.conf()), func(ws string) bool {
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
				s.log.Error().Err(err).EmbedObject(advice{err}).Str("via", local.Via).Msg("socket")
			}
		},
	}
}

// localDecider is Decide for those who come through the socket: the same, but
// that it knows no operator. Who could not read keys/ is an approver or nobody.
func (s *server) localDecider() *gate.Decider {
	d := s.decider(s.keys, s)
	may, refused := d.May, d.Refused
	d.May = func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
		if _, ok := s.conf().LocalApprover(by.ID); !ok {
			return "", false
		}
		return may(ws, p, by)
	}
	var seldom seldom
	d.Refused = func(k approval.Key, by approval.Person, via string) {
		if seldom.allow(by.ID) {
			refused(k, by, via)
		}
	}
	return d
}

func (s *server) languageOf(p approval.Person) string {
	if name, ok := s.conf().LocalApprover(p.ID); ok {
		return s.conf().Approvers[name].Language
	}
	return s.conf().Language
}

// statusFor says nothing of workspaces that are not the asker's.
func (s *server) statusFor(workspaces []string) ([]byte, error) {
	st, err := s.state()
	if err != nil {
		return nil, err
	}
	return json.Marshal(st.only(workspaces), json.Deterministic(true))
}

// seldom keeps one uid that is refused, or errors, from filling the disk: ten
// at once, then one a minute.
type seldom struct {
	mu  sync.Mutex
	uid map[string]*rate.Limiter
}

// maxUIDs bounds what is remembered; a machine with more strangers than that
// has their entries counted together.
const maxUIDs = 1000

func (s *seldom) allow(uid string) bool {
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
