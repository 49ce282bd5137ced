package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
)

// Caller is a user of this machine who is connected to a local socket. The UID that the
// kernel reports identifies the user, instead of a key.
type Caller struct {
	Person     approval.Person
	Via        string   // how decisions through this socket are marked
	Operator   bool     // may do all that access to HOME allows
	Workspaces []string // where an approver may decide
	Language   string
}

// Sees reports whether the caller may see a workspace's requests.
func (c *Caller) Sees(workspace string) bool {
	return c.Operator || slices.Contains(c.Workspaces, workspace)
}

func (c *Caller) known() bool { return c.Operator || len(c.Workspaces) > 0 }

type callerContext struct{}

// CallerFrom is the caller of a request, nil if it did not come through a local socket.
func CallerFrom(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerContext{}).(*Caller)
	return c
}

type waitingContext struct{}

// Waiting returns channels that are closed when the caller of a local operation has
// disconnected, and when the server stops: an operation that waits answers then. They are nil
// elsewhere.
func Waiting(ctx context.Context) (gone, stopping <-chan struct{}) {
	w, _ := ctx.Value(waitingContext{}).([2]<-chan struct{})
	return w[0], w[1]
}

// LocalServer serves the API on a Unix socket to known users of this machine. Others get
// one neutral answer, unread, as soon as they connect.
type LocalServer struct {
	API *Server
	// Who identifies a UID. It is asked for every request: the configuration may change.
	// real is the UID of the user who started a program with another effective UID, as that
	// program says: it may name who acts, but gives no rights.
	Who func(uid, real string) *Caller
	// Refused reports a connection of an unknown user.
	Refused func(by approval.Person)
	// PerUser is how many connections one UID may have; 0: 8.
	PerUser int
	// IOTimeout is for clients that do not send or do not read; 0: 10 s.
	IOTimeout time.Duration

	mu   sync.Mutex
	open busyKeys            // connections by UID
	idle map[*localConn]bool // those without a request in progress
}

const (
	maxPerUser   = 8
	maxLocalBody = 256 << 10
	// VersionHeader is in every response of a local socket.
	VersionHeader = "Permesso-Version"
	// RealUIDHeader is in requests of a program whose effective UID is not its user's.
	RealUIDHeader = "Permesso-Real-UID"
	// workspaceHeader names the workspace of a request that otherwise has that of its key.
	workspaceHeader = "Permesso-Workspace"
)

// detailStranger does not reveal to whom the socket answers.
func detailStranger() string { return decide.ErrNotAuthorized.Error() }

// Run serves l until ctx ends. Then it closes l, and requests in progress are answered.
func (s *LocalServer) Run(ctx context.Context, l *net.UnixListener) error {
	s.IOTimeout, s.PerUser = cmp.Or(s.IOTimeout, defaultIOTimeout), cmp.Or(s.PerUser, maxPerUser)
	s.idle = map[*localConn]bool{}
	web := s.API.newHTTP(s.identify(s.API.Handler()), s.IOTimeout)
	web.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connContext{}, c)
	}
	web.ConnState = func(c net.Conn, state http.ConnState) {
		if conn, ok := c.(*localConn); ok && state == http.StateIdle {
			s.setIdle(conn, true)
		}
	}
	return s.API.serve(ctx, web, 3*s.IOTimeout, func() {
		_ = l.Close()
		s.closeIdle()
	}, &localListener{l, s})
}

type connContext struct{}

// identify finds the caller of each request.
func (s *LocalServer) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(connContext{}).(*localConn)
		if !ok {
			panic("connection without a user")
		}
		s.setIdle(conn, false)
		real := conn.uid
		if said := r.Header.Get(RealUIDHeader); said != "" && strings.Trim(said, "0123456789") == "" {
			real = said
		}
		c := s.Who(conn.uid, real)
		w.Header().Set(VersionHeader, s.API.Version)
		if !c.known() {
			s.Refused(c.Person)
			w.Header().Set("Connection", "close")
			problem(http.StatusForbidden, detailStranger()).write(w)
			return
		}
		ctx := context.WithValue(r.Context(), waitingContext{}, [2]<-chan struct{}{r.Context().Done(), s.API.quit})
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, callerContext{}, c)))
	})
}

// localListener accepts only known users, and a limited number of connections of each.
type localListener struct {
	*net.UnixListener
	server *LocalServer
}

// Accept implements net.Listener.
func (l *localListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if conn := l.server.admit(c); conn != nil {
			return conn, nil
		}
		_ = c.Close()
	}
}

// admit refuses a connection without reading from it.
func (s *LocalServer) admit(c *net.UnixConn) *localConn {
	uid, err := peer(c)
	if err != nil && !errors.Is(err, errNested) {
		s.API.logError("identify user at socket failed", err)
		return nil
	}
	id := strconv.FormatUint(uint64(uid), 10)
	caller := s.Who(id, id)
	if err != nil || !caller.known() {
		s.Refused(caller.Person)
		s.refuse(c, problem(http.StatusForbidden, detailStranger()))
		return nil
	}
	if !s.open.acquire(id, s.PerUser) {
		s.refuse(c, problem(http.StatusTooManyRequests, "you have too many connections to the daemon: close some"))
		return nil
	}
	conn := &localConn{countedConn: countedConn{Conn: c}, uid: id, timeout: s.IOTimeout}
	conn.release = sync.OnceFunc(func() { s.release(conn) })
	s.setIdle(conn, true)
	return conn
}

// refuse writes a complete response. It fits into the socket's buffer.
func (s *LocalServer) refuse(c net.Conn, p *Problem) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	body, _ := marshal(p)
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n%s: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		p.Status, p.Title, problemType, VersionHeader, s.API.Version, len(body), body)
}

func (s *LocalServer) release(c *localConn) {
	s.setIdle(c, false)
	s.open.release(c.uid)
}

// localConn is a connection of an identified user. Writing has a timeout: a response may
// be long, and a client may stop reading.
type localConn struct {
	countedConn
	uid     string
	timeout time.Duration
}

// Write implements net.Conn.
func (c *localConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// localPath is the beginning of the paths of operations for local callers.
const localPath = "/v1/local"

// byConnection is the creator of a key that stands for a connected user.
const byConnection = "connection"

// localKey stands for the API key that a local caller does not need. Approvers have the
// operations for local callers; the others, submitting among them, are the operator's.
func (s *Server) localKey(c *Caller, r *http.Request) (*apikey.Key, *Problem) {
	hash := approval.Digest([]byte("permesso local\x00" + c.Person.ID))
	k := &apikey.Key{ID: apikey.ID(hash), Hash: hash, Owner: c.Person.Name, CreatedBy: byConnection}
	if r.URL.Path == localPath || strings.HasPrefix(r.URL.Path, localPath+"/") {
		return k, nil
	}
	if !c.Operator {
		return nil, problem(http.StatusForbidden, "only the operator may use this at a socket: approvers use "+localPath)
	}
	k.Workspace = r.Header.Get(workspaceHeader)
	if _, known := s.Settings.WorkspaceInfo(k.Workspace); !known && r.URL.Path != "/metrics" {
		return nil, problem(http.StatusUnprocessableEntity, "name a configured workspace in the header "+workspaceHeader)
	}
	k.Scopes = []string{apikey.MayRead, apikey.MayDecide}
	if r.Method == http.MethodPost && r.URL.Path == strings.TrimSuffix(onePath, "/") || r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, onePath) {
		k.Scopes, k.Owner = []string{apikey.MayRequest}, "" // any approver may decide
	}
	return k, nil
}

// LocalOperation is an operation for local callers.
type LocalOperation struct{ register func(api huma.API) }

// Operation declares an operation for local callers. I is filled from path, query and body
// by its tags; the result is the body of the response. do returns a *Problem if the caller
// may know why it failed. It is finished even if the caller sends no more: that closes only
// one direction of a connection.
func Operation[I, O any](id, method, path, summary string, do func(ctx context.Context, c *Caller, in *I) (O, error)) LocalOperation {
	return LocalOperation{func(api huma.API) {
		huma.Register(api, localOp(id, method, path, summary), func(ctx context.Context, in *I) (*localOut, error) {
			v, err := do(context.WithoutCancel(ctx), CallerFrom(ctx), in)
			if err != nil {
				return nil, err
			}
			b, err := marshal(v)
			return &localOut{Anything{b}}, err
		})
	}}
}

type localOut struct{ Body Anything }

// Stream declares an operation for local callers whose response is JSON lines, which are
// sent while do runs. send returns an error if the caller reads no more. An error of do ends
// the connection before the end of the response.
func Stream[I any](id, path, summary string, do func(ctx context.Context, c *Caller, in *I, send func(line any) error) error) LocalOperation {
	return LocalOperation{func(api huma.API) {
		huma.Register(api, localOp(id, http.MethodGet, path, summary), func(ctx context.Context, in *I) (*eventsOut, error) {
			return &eventsOut{func(hctx huma.Context) {
				_, w := humago.Unwrap(hctx)
				w.Header().Set("Content-Type", "application/jsonl")
				out := bufio.NewWriterSize(w, 64<<10)
				send := func(line any) error {
					b, err := marshal(line)
					if err == nil {
						_, err = out.Write(append(b, '\n'))
					}
					return err
				}
				if err := errors.Join(do(ctx, CallerFrom(ctx), in, send), out.Flush()); err != nil {
					panic(http.ErrAbortHandler)
				}
			}}, nil
		})
	}}
}

func localOp(id, method, path, summary string) huma.Operation {
	o := op(id, method, localPath+path, summary, "Only at a Unix socket of the daemon, without a key.", nil)
	o.Description, _, _ = strings.Cut(o.Description, "\n\nScope")
	o.Metadata, o.Security, o.DefaultStatus = map[string]any{localPath: true}, []map[string][]string{{}}, http.StatusOK
	return o
}

// checkLocal refuses callers with a key at an operation for local callers.
func checkLocal(ctx huma.Context, next func(huma.Context)) {
	if CallerFrom(ctx.Context()) == nil {
		_, w := humago.Unwrap(ctx)
		problem(http.StatusForbidden, "only at a Unix socket of the daemon").write(w)
		return
	}
	next(ctx)
}

// setIdle marks a connection without a request in progress.
func (s *LocalServer) setIdle(c *localConn, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.idle, c); idle {
		s.idle[c] = true
	}
}

// closeIdle closes connections that may stay without a request as long as they like.
func (s *LocalServer) closeIdle() {
	s.mu.Lock()
	idle := slices.Collect(maps.Keys(s.idle))
	s.mu.Unlock()
	for _, c := range idle {
		_ = c.Close()
	}
}
