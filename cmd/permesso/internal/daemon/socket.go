package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/web"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// part is a part of the daemon that serves listeners.
type part struct {
	run  func(ctx context.Context) error
	held []io.Closer // its listeners, and locks of their sockets
}

// listen opens the sockets, the HTTP API and the web UI.
func (s *server) listen() (all []part, err error) {
	for _, open := range []func() ([]part, error){s.listenLocal, s.openAPI, s.openWebUI} {
		parts, err := open()
		if all = append(all, parts...); err != nil {
			closeAll(all)
			return nil, err
		}
	}
	return all, nil
}

// closeAll keeps the lock files: a lock on a removed file excludes no process.
func closeAll(parts []part) {
	for _, p := range parts {
		for _, c := range p.held {
			_ = c.Close() // a listener is already closed if run has run
		}
	}
}

// listenLocal opens the socket in HOME for the operator, and the configured one for
// approvers.
func (s *server) listenLocal() ([]part, error) {
	l, err := httpapi.ListenLocal(s.Layout.Socket(), true)
	if err != nil {
		return nil, err
	}
	own := s.localServer(viaOperator, s.operator)
	own.PerUser = 256 // scripts may run many commands at once
	operators := part{func(ctx context.Context) error { return own.Run(ctx, l) }, []io.Closer{l}}
	path := s.Config.Socket
	if path == "" {
		return []part{operators}, nil
	}
	approvers := part{}
	if err := s.lockSocket(&approvers, path); err != nil {
		return []part{operators}, err
	}
	at, err := httpapi.ListenLocal(path, false)
	if err != nil {
		return []part{operators, approvers}, err
	}
	if httpapi.Hidden() {
		s.log.Warn().Msg("processes of other users are hidden (hidepid): a sandboxed agent under an approver's UID is treated as that approver")
	}
	s.log.Info().Str("path", path).Msg("approver socket listening")
	approvers.held = append(approvers.held, at)
	approvers.run = func(ctx context.Context) error { return s.localServer(viaApprover, s.approver).Run(ctx, at) }
	return []part{operators, approvers}, nil
}

// lockSocket locks a configured socket for a part. HOME/lock is not enough, because two
// homes may configure the same socket.
func (s *server) lockSocket(p *part, path string) error {
	lock, err := s.FS.TryLock(path + ".lock")
	if errors.Is(err, store.ErrLocked) {
		return console.Fail(console.ExitLocked, "configure another socket for one of them",
			"another daemon listens on %s", path)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	p.held = append(p.held, lock)
	return nil
}

// How decisions through the sockets are marked.
const (
	viaOperator = "cli"
	viaApprover = "socket"
)

func (s *server) localServer(via string, who func(uid, real string) *httpapi.Caller) *httpapi.LocalServer {
	d := s.gateDecider()
	return &httpapi.LocalServer{API: s.api, Who: who, Refused: func(by approval.Person) { d.Refused(approval.Key{}, by, via) }}
}

// operator is a user of HOME's socket: the daemon's own user, or root.
func (s *server) operator(uid, real string) *httpapi.Caller {
	return &httpapi.Caller{
		Person: home.PersonOf(real), Via: viaOperator, Operator: uid == "0" || uid == strconv.Itoa(os.Geteuid()), Language: s.Current().Language,
	}
}

// approver is a user of the configured socket. There is no operator.
func (s *server) approver(uid, _ string) *httpapi.Caller {
	c := &httpapi.Caller{Person: approval.Person{Channel: approval.EntranceSocket, ID: uid}, Via: viaApprover}
	c.Language = s.languageOf(c.Person)
	may := s.authorizer().May
	c.Workspaces = slices.DeleteFunc(home.WorkspaceNames(s.Current()), func(ws string) bool {
		_, ok := may(ws, nil, c.Person)
		return !ok
	})
	return c
}

// controlService is what the sockets offer.
func (s *server) controlService() *control.Service {
	return &control.Service{
		Home: s.Home, Keys: s.keys, Viewer: s.Viewer(s.keys), Running: true, Decider: s.gateDecider(),
		Memory: func() (*home.Memory, error) { return s.memory, nil },
		Link: func(c *httpapi.Caller) (string, time.Duration, error) {
			return s.giveLink(web.User{Person: c.Person, Operator: c.Operator})
		},
		PausesChanged: s.refreshPauses,
		Redeemed: func(k approval.Key, by, via string) {
			s.audit.Note(event.Entry{Event: event.Redeemed, Workspace: k.Workspace, RequestID: k.ID, By: by, Via: via})
		},
		Audit: func(e event.Entry) error { return s.audit.Append(e) },
		Serves: func() (file, issue, hint string) {
			issue, hint = s.health.Issue("config")
			return s.health.Current().Config, issue, hint
		},
		Moved: s.feed.Moved, Since: s.feed.Since,
		Log: func(err error) {
			if s.localErrors.allow("") {
				s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Str("via", viaApprover).Msg("approver socket failed")
			}
		},
	}
}

func (s *server) languageOf(p approval.Person) string {
	cfg := s.Current()
	return cmp.Or(cfg.Approvers[cfg.Approver(p)].Language, cfg.Language)
}

// rateLimited limits the entries of one UID, or of another kind, so that refusals and errors
// cannot fill the disk: ten at once, then one a minute.
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

// authorizer says who may decide: the script, too, if one decides.
func (s *server) authorizer() *gate.Authorizer {
	a := s.Authorizer()
	if s.script != nil {
		a.Script = scriptedApprover(s.script)
	}
	return a
}

// gateDecider returns a decider that wakes this daemon.
func (s *server) gateDecider() *gate.Decider {
	d := s.Decider(s.keys)
	d.May, d.Grants = s.authorizer().May, s.memory
	d.Decided = func(k approval.Key) {
		s.gate.Decided(k)
		s.ui.Changed(k) // the gate reports only the end, which may take long
	}
	d.ClearSlot = func(ctx context.Context, k approval.Key) error {
		s.gate.Wake(k)
		return home.Sleep(ctx, 20*time.Millisecond)
	}
	d.Refused = func(k approval.Key, by approval.Person, via string) {
		local := by.Channel == approval.EntranceLocal || by.Channel == approval.EntranceSocket
		if local && !s.refusals.allow(by.ID) {
			return
		}
		s.audit.Note(event.Entry{
			Time: time.Now().UTC(), Event: event.RefusedDecider, Workspace: k.Workspace, RequestID: k.ID,
			By: by.StableID(), Via: via,
		})
	}
	return d
}

// style is the style of cards in a language; "" is the configured one.
func (s *server) style(language string) chat.Style {
	style := s.Style()
	style.Language = cmp.Or(language, style.Language)
	style.Earlier = home.Earlier(s.Viewer(s.keys))
	return style
}

// interceptor decides for the people of this daemon's channels.
func (s *server) interceptor() *chat.Interceptor {
	decider := s.gateDecider()
	return &chat.Interceptor{
		Decider: decider, Viewer: s.Viewer(s.keys), Zone: time.Local, Redact: home.NewRedaction(), Revoker: s.memory.Revoker(),
		CanDecide: decider.CanDecide, Paused: s.PausedIn, Day: s.today,
	}
}

// today is what the agents did today, of what the sender of a message may see.
func (s *server) today(ctx context.Context, m chat.Message) (*chat.Day, error) {
	may := s.authorizer().May
	return s.Day(ctx, s.Viewer(s.keys), home.DayQuery{
		Workspaces: m.Workspaces, Since: home.StartOfDay(time.Now()), Grants: s.memory.Grants(), Style: s.style(m.Language),
		May: func(ws string, p *approval.Pending) bool { _, ok := may(ws, p, m.From); return ok },
	})
}
