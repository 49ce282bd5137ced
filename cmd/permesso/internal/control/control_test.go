package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	json2 "github.com/go-json-experiment/json"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/hometest"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

const (
	waiting = "a7f3b2c1d4e5f6a7"
	settled = "00000000000000aa"
)

var about = approval.Key{Workspace: "default", ID: waiting}

// newHome has a pending, a settled request, a grant and a log.
func newHome(t *testing.T) (*home.Home, *home.Keys) {
	t.Helper()
	h := home.New(config.Default(), filepath.Join(t.TempDir(), "home"))
	require.NoError(t, h.Prepare())
	k, err := h.MakeKeys()
	require.NoError(t, err)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	body, err := (&approval.Pending{
		Version: approval.Version, RequestID: waiting, ShortID: waiting[:8], ToolName: "x", SourceGroup: "default", Resubmits: settled,
		RequestData: approval.Raw(`{"n": 9007199254740993,  "t":"\u0041"}`), Timestamp: at, ExpiresAt: time.Now().Add(time.Hour).UTC(),
		Verb: map[string]string{}, Options: []string{}, Facts: approval.Evidence{Host: []approval.HostFact{}}, Ruling: approval.Ruling{Reasons: []approval.Reason{}}, Proof: approval.Raw("null"),
	}).Encode()
	require.NoError(t, err)
	release, err := h.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Store.Commit(t.Context(), store.Put(approval.DocPending, about, k.Seal.Seal(approval.DocPending, about, body))))
	require.NoError(t, hometest.PlantSettled(h, approval.Key{Workspace: "default", ID: settled}, at))
	log, err := h.OpenAudit(k)
	require.NoError(t, err)
	require.NoError(t, log.Append(event.Entry{Time: at, Event: event.Requested, Workspace: "default", RequestID: waiting, Tool: "x", Reason: "<é>"}))
	require.NoError(t, log.Append(event.Entry{Time: at, Event: event.Denied, Workspace: "default", RequestID: settled, By: "ann", Via: "web"}))
	require.NoError(t, log.Close())
	require.NoError(t, release())
	return h, k
}

func newConsole(version string) (*console.Console, *bytes.Buffer) {
	var errs bytes.Buffer
	return &console.Console{Err: &errs, Out: &errs, Env: func(string) string { return "" }, Version: version}, &errs
}

// serve serves a home at its socket.
func serve(t *testing.T, s *Service, caller httpapi.Caller, version string) {
	t.Helper()
	caller.Person = home.Operator()
	l, err := httpapi.ListenLocal(s.Home.Layout.Socket(), true)
	require.NoError(t, err)
	server := &httpapi.LocalServer{
		API:     &httpapi.Server{Local: s.Operations(), Version: version, Log: zerolog.Nop()},
		Who:     func(_, _ string) *httpapi.Caller { return &caller },
		Refused: func(approval.Person) {},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// A command cannot tell whether the daemon answers or it works on the files itself.
func TestBothWaysAnswerAlike(t *testing.T) {
	h, k := newHome(t)
	a, errs := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	require.False(t, files.Served)
	release, err := h.Lock(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, release()) })
	serve(t, files.service, httpapi.Caller{Via: "cli", Operator: true, Language: h.Config.Language}, "1")
	remote, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	require.True(t, remote.Served)
	ctx := t.Context()
	g, err := remote.AddGrant(ctx, GrantBody{ActionType: "send_message", Life: "24h"})
	require.NoError(t, err)

	for what, ask := range map[string]func(c *Client) (any, error){
		"hello":             func(c *Client) (any, error) { return c.Hello, nil },
		"status":            func(c *Client) (any, error) { return c.Status(ctx) },
		"waiting":           func(c *Client) (any, error) { return c.Waiting(ctx, "") },
		"waiting elsewhere": func(c *Client) (any, error) { return c.Waiting(ctx, "none") },
		"find":              func(c *Client) (any, error) { return c.Find(ctx, "default", waiting[:4]) },
		"pending":           func(c *Client) (any, error) { return c.Story(ctx, about, true) },
		"ended": func(c *Client) (any, error) {
			return c.Story(ctx, approval.Key{Workspace: "default", ID: settled}, true)
		},
		"nothing": func(c *Client) (any, error) {
			return c.Story(ctx, approval.Key{Workspace: "default", ID: "ffffffffffffffff"}, false)
		},
		"no workspace": func(c *Client) (any, error) { return c.Story(ctx, approval.Key{Workspace: "../x", ID: waiting}, false) },
		"history": func(c *Client) (any, error) {
			found, more, err := c.History(ctx, HistoryQuery{Limit: 1})
			return fmt.Sprintf("%+v %v", *found[0], more), err
		},
		"since": func(c *Client) (any, error) {
			found, _, err := c.History(ctx, HistoryQuery{Since: time.Date(2026, 11, 21, 12, 0, 0, 1, time.FixedZone("", 3600)), Status: "denied", Prefix: "00"})
			return len(found), err
		},
		"stats":                 func(c *Client) (any, error) { return c.Stats(ctx, HistoryQuery{}) },
		"grants":                func(c *Client) (any, error) { return c.Grants(ctx) },
		"taints":                func(c *Client) (any, error) { return c.Taints(ctx) },
		"tail":                  func(c *Client) (any, error) { return c.Tail(ctx, 1) },
		"earlier":               func(c *Client) (any, error) { w, err := c.Waiting(ctx, ""); return c.earlier(w[0].Pending), err },
		"no workspace to clear": func(c *Client) (any, error) { return c.ClearTaints(ctx, ClearBody{Workspace: "none"}) },
		"no link":               func(c *Client) (any, error) { address, _, err := c.Link(ctx); return address, err },
		"too short":             func(c *Client) (any, error) { return c.Revoke(ctx, "abc") },
		"no decision":           func(c *Client) (any, error) { return c.Decide(ctx, decide.Input{Key: about}) },
		"not redeemed":          func(c *Client) (any, error) { return nil, c.Redeem(ctx, about) },
	} {
		want, wantErr := ask(files)
		got, gotErr := ask(remote)
		if wantErr == nil {
			require.NoError(t, gotErr, what)
			wantJSON, err := json.Marshal(want)
			require.NoError(t, err, what)
			gotJSON, err := json.Marshal(got)
			require.NoError(t, err, what)
			empty := strings.NewReplacer(":null", ":[]", `:""`, ":[]") // a command prints both alike
			require.JSONEq(t, empty.Replace(string(wantJSON)), empty.Replace(string(gotJSON)), what)
			continue
		}
		require.EqualError(t, gotErr, wantErr.Error(), what)
		var a, b *console.Error
		if errors.As(wantErr, &a) {
			require.ErrorAs(t, gotErr, &b, what)
			require.Equal(t, a.Code, b.Code, what)
			require.Equal(t, a.Hint(), b.Hint(), what)
		}
	}
	word, err := remote.Revoke(ctx, g.ID[:6])
	require.NoError(t, err)
	require.Equal(t, "revoked", word)
	d, err := remote.Decide(ctx, decide.Input{Key: about, Verdict: approval.Approved, Code: "4", Scope: approval.Once, Note: "n\nn", By: approval.Person{ID: "0"}, Via: "forged"})
	require.NoError(t, err)
	require.Equal(t, "n\nn", d.Note)
	require.Equal(t, strconv.Itoa(os.Getuid()), strings.TrimPrefix(d.DecidedByID, "local:"))
	require.Equal(t, "cli", d.Via)
	_, err = remote.Decide(ctx, decide.Input{Key: about, Verdict: approval.Denied, Code: "3"})
	require.ErrorIs(t, err, decide.ErrDecided)
	require.Empty(t, errs.String())
}

func TestRefusalsArriveAsTheyWere(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var logged []error
	s := &Service{Log: func(err error) { logged = append(logged, err) }}
	arrives := func(c httpapi.Caller, err error) error {
		p := s.problem(&c, err)
		b, encodeErr := json.Marshal(p)
		require.NoError(t, encodeErr)
		return problemOf(p.Status, b)
	}
	for reason := range reasons() {
		ref := &decide.Refusal{Reason: reason, By: "bob", At: at, Verdict: approval.Denied, Hint: "h"}
		var got *decide.Refusal
		require.ErrorAs(t, arrives(httpapi.Caller{}, ref), &got)
		require.Equal(t, ref, got)
	}
	broken := errors.New("/secret/path: disk on fire")
	require.EqualError(t, arrives(httpapi.Caller{}, broken), "the daemon failed to do that; its log says why")
	require.Equal(t, []error{broken}, logged)
	require.EqualError(t, arrives(httpapi.Caller{Operator: true}, broken), broken.Error(), "the operator can read the disk")
	require.EqualError(t, problemOf(http.StatusBadGateway, []byte("<html>")), "the daemon's answer is not understood: HTTP status 502")
}

// Requests arrive while the log is read, and the daemon waits for no reader.
func TestHistoryArrivesWhileTheLogIsRead(t *testing.T) {
	h, k := newHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	const n = 100_000
	first, finished := make(chan struct{}), make(chan struct{})
	files.service.Viewer.Log = func(_ func([]byte) bool, each func(event.Entry) error) error {
		for i := range n {
			if i == n/2 { // not all was read before the first one arrives
				<-first
			}
			if err := each(event.Entry{Time: time.Now(), Event: event.AutoRejected, Workspace: "default", RequestID: fmt.Sprintf("%016x", i)}); err != nil {
				return err
			}
		}
		close(finished)
		return nil
	}
	serve(t, files.service, httpapi.Caller{Via: "cli", Operator: true}, "1")
	remote, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	got, before, most := 0, liveBytes(), int64(0)
	more, err := remote.EachRequest(t.Context(), HistoryQuery{}, func(r *read.Request) error {
		if got++; got == 1 {
			close(first)
			<-finished // a slow reader: the daemon has read everything, and sent it
		}
		if got%20_000 == 0 {
			most = max(most, liveBytes()-before)
		}
		require.Equal(t, fmt.Sprintf("%016x", got-1), r.Key.ID)
		return nil
	})
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, n, got)
	require.Less(t, most, int64(4<<20))

	gone := errors.New("gone")
	_, err = remote.EachRequest(t.Context(), HistoryQuery{Status: "auto_rejected"}, func(*read.Request) error { return gone })
	require.ErrorIs(t, err, gone)
}

func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Without the end of the list, it is not complete. A fault after its first part is reported.
func TestHistoryThatEndsEarly(t *testing.T) {
	h, k := newHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	broken := errors.New("disk on fire")
	files.service.Viewer.Log = func(_ func([]byte) bool, each func(event.Entry) error) error {
		return cmp.Or(each(event.Entry{Time: time.Now(), Event: event.AutoRejected, Workspace: "default", RequestID: settled}), broken)
	}
	serve(t, files.service, httpapi.Caller{Via: "cli", Operator: true}, "1")
	remote, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	found, _, err := remote.History(t.Context(), HistoryQuery{})
	require.EqualError(t, err, broken.Error())
	require.Len(t, found, 1)

	l, err := httpapi.ListenLocal(filepath.Join(t.TempDir(), "s"), true)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nPermesso-Version: 1\r\n\r\n"+`{"request":{}}`+"\n")
			_ = conn.Close()
		}
	}()
	cut := &Client{console: a, path: l.Addr().String(), Served: true}
	found, _, err = cut.History(t.Context(), HistoryQuery{})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, found, 1)
}

// An operation for the operator refuses an approver.
func TestOperatorOnly(t *testing.T) {
	h, k := newHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	serve(t, files.service, httpapi.Caller{Via: "socket", Workspaces: []string{"default"}}, "1")
	c, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	require.False(t, c.Operator)
	ctx := t.Context()
	_, err = c.Cancel(ctx, decide.Input{Key: about})
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
	_, err = c.AddGrant(ctx, GrantBody{ActionType: "send_message", Life: "1h"})
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
	_, err = c.ClearTaints(ctx, ClearBody{Workspace: "default"})
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
	_, err = c.Pause(ctx, "", "")
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
	require.ErrorIs(t, c.Redeem(ctx, about), decide.ErrNotAuthorized)
}

// A grant that its body does not describe completely is refused, not made wider.
func TestGrantBodyIsComplete(t *testing.T) {
	h, k := newHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	serve(t, files.service, httpapi.Caller{Via: "cli", Operator: true}, "1")
	c, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	for _, x := range []struct {
		why  string
		body GrantBody
	}{
		{"belong together", GrantBody{ActionType: "send_message", Command: "ls ..."}},
		{"belong together", GrantBody{From: waiting}},
		{"action_type must be", GrantBody{ActionType: "sendmessage"}},
		{"longer than 128 bytes", GrantBody{ActionType: "send_message", Session: strings.Repeat("s", 129)}},
	} {
		x.body.Life = "1h"
		_, err := c.AddGrant(t.Context(), x.body)
		require.ErrorContains(t, err, x.why)
		var e *console.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, console.ExitUsage, e.Code, x.why)
		require.NotEmpty(t, e.Hint(), x.why)
	}
	for _, id := range []string{"ffffffffffffffff", "../" + waiting} {
		_, err = c.AddGrant(t.Context(), GrantBody{From: id, Command: "ls ...", Life: "1h"})
		require.ErrorIs(t, err, decide.ErrUnknown)
		require.ErrorContains(t, err, "needed an approver")
	}
	h.Config.Workspaces["other"] = h.Config.Workspaces["default"]
	_, err = c.AddGrant(t.Context(), GrantBody{ActionType: "send_message", Life: "1h"})
	require.EqualError(t, err, "name one of the 2 workspaces")
	require.Equal(t, "workspaces: default, other", console.HintFor(err))
	list, err := c.Grants(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

// An approver takes back grants of the workspaces in which that approver may decide, and
// learns nothing of the others.
func TestApproversRevokeGrants(t *testing.T) {
	h, k := newHome(t)
	h.Config.Workspaces["other"] = h.Config.Workspaces["default"]
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	m, err := files.service.Memory()
	require.NoError(t, err)
	give := func(id, ws string) {
		now := time.Now().UTC()
		require.NoError(t, m.SaveGrant(&grant.Grant{
			Version: grant.Version, ID: id, By: "ann", CreatedAt: now, ExpiresAt: now.Add(time.Hour),
			Terms: approval.Terms{Form: grant.Action, Workspace: ws, ClientID: "ws:" + ws, ActionType: "send_message"},
		}, store.Durable))
	}
	give("abcd000000000001", "default")
	give("abcd000000000002", "other")
	serve(t, files.service, httpapi.Caller{Via: "socket", Workspaces: []string{"default"}}, "1")
	c, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	require.False(t, c.Operator)
	for _, row := range [][2]string{{"abcd000000000002", "no-op"}, {"abcd", "revoked"}, {"abcd", "no-op"}} {
		word, err := c.Revoke(t.Context(), row[0])
		require.NoError(t, err, "%v", row)
		require.Equal(t, row[1], word, "%v", row)
	}
	for id, revoked := range map[string]bool{"abcd000000000001": true, "abcd000000000002": false} {
		g, err := m.Grant(id)
		require.NoError(t, err)
		require.Equal(t, revoked, !g.RevokedAt.IsZero(), id)
	}
}

func TestVersionsAreCompared(t *testing.T) {
	h, k := newHome(t)
	a, errs := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	serve(t, files.service, httpapi.Caller{Operator: true}, "2\u202e")
	c, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	_, err = c.Waiting(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "permesso: this command has version 1, the running daemon 2\\u{202E}; restart the daemon to update it\n", errs.String(), "once")
}

// A home that has lost its log is still a home.
func TestLogThatIsGone(t *testing.T) {
	h, _ := newHome(t)
	require.NoError(t, os.Rename(h.Layout.Audit(), h.Layout.Audit()+".away"))
	err := ExplainNoLog(h, os.ErrNotExist)
	require.EqualError(t, err, "the audit log of "+h.Layout.Home+" is gone: there is no "+h.Layout.Audit())
	require.NotErrorIs(t, err, home.ErrNoDaemon)
	e, ok := errors.AsType[*console.Error](err)
	require.True(t, ok)
	require.Equal(t, console.ExitRefused, e.Code)
	require.NotContains(t, e.Hint(), "init")

	require.NoError(t, os.Rename(h.Layout.Keys(), h.Layout.Keys()+".away"))
	require.ErrorIs(t, ExplainNoLog(h, os.ErrNotExist), home.ErrNoDaemon)
	require.NoError(t, os.Rename(h.Layout.Audit()+".away", h.Layout.Audit()))
	require.Equal(t, io.EOF, ExplainNoLog(h, io.EOF))
	require.NoError(t, ExplainNoLog(h, nil))
}

// A daemon that is busy is named, and its answer awaited.
func TestBusyDaemonIsAwaited(t *testing.T) {
	h, _ := newHome(t)
	h.NewHealth("1").Refresh()
	l, err := httpapi.ListenLocal(h.Layout.Socket(), false)
	require.NoError(t, err)
	defer l.Close()
	a, _ := newConsole("1")
	named, w := io.Pipe()
	a.HomeFlag, a.Err = h.Layout.Home, w
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		line, _ := bufio.NewReader(named).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nPermesso-Version: 1\r\n\r\n")
		if strings.HasPrefix(line, fmt.Sprintf("permesso: waiting for the daemon with PID %d; ", os.Getpid())) {
			_, _ = io.WriteString(c, `{"pid":7}`)
		}
	}()
	c, err := Open(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, 7, c.PID)
	require.NoError(t, c.Close())
}

// A home that a process has locked without answering is left alone.
func TestLockedHomeWithoutAnAnswer(t *testing.T) {
	h, k := newHome(t)
	lock, err := h.FS.TryLock(h.Layout.Lock())
	require.NoError(t, err)
	a, _ := newConsole("1")
	_, err = openFiles(t.Context(), a, h, k, false)
	require.EqualError(t, err, "a process has locked "+h.Layout.Home+" and does not answer")
	h.NewHealth("1").Refresh()
	_, err = openFiles(t.Context(), a, h, k, false)
	require.ErrorContains(t, err, fmt.Sprintf("the daemon with PID %d has locked", os.Getpid()))
	require.NoError(t, lock.Close())
	c, err := openFiles(t.Context(), a, h, k, false)
	require.NoError(t, err)
	_, err = h.FS.TryLock(h.Layout.Lock())
	require.Error(t, err, "the command holds the lock")
	require.NoError(t, c.Close())
}

// A daemon that was stopped after it has taken a request: the command does not wait for ever,
// and does not say that nothing happened.
func TestDaemonThatAnswersNoMore(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(*Client) error{
		"": func(c *Client) error { _, err := c.Waiting(context.Background(), ""); return err },
		": whether it did that is unknown": func(c *Client) error {
			_, err := c.Decide(context.Background(), decide.Input{Key: about})
			return err
		},
	} {
		t.Run("it"+what, func(t *testing.T) {
			t.Parallel()
			a, _ := newConsole("1")
			path := filepath.Join(t.TempDir(), "s")
			fakeDaemon(t, path, os.Getpid(), func(net.Conn, net.Listener) {})
			c, err := connect(t.Context(), a, path)
			require.NoError(t, err)
			began := time.Now()
			err = ask(c)
			require.EqualError(t, err, fmt.Sprintf("the daemon with PID %d does not answer any more", os.Getpid())+what)
			require.ErrorIs(t, err, errUnanswered)
			require.Contains(t, console.HintFor(err), fmt.Sprintf("kill -CONT %d", os.Getpid()))
			require.Less(t, time.Since(began), giveUp+time.Second)
		})
	}
}

// fakeDaemon greets one caller at a socket, and leaves the next connections to a function.
func fakeDaemon(t *testing.T, path string, pid int, then func(net.Conn, net.Listener)) {
	t.Helper()
	l, err := httpapi.ListenLocal(path, false)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	hello := fmt.Sprintf(`{"pid":%d}`, pid)
	go func() {
		for first := true; ; first = false {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if t.Cleanup(func() { c.Close() }); !first {
				then(c, l)
				continue
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nPermesso-Version: 1\r\n\r\n%s", len(hello), hello)
			c.Close()
		}
	}()
}

// ends is a daemon that is killed when it has taken a request.
func ends(c net.Conn, l net.Listener) {
	_ = l.Close()
	_, _ = bufio.NewReader(c).ReadString('\n')
	_ = c.Close()
}

// A daemon that ended after its greeting: a command that has sent nothing that changes
// something goes on without it. One that has sent a change says that it may have been recorded.
func TestDaemonThatEnded(t *testing.T) {
	ctx := t.Context()
	decision := func(c *Client) error {
		_, err := c.Decide(ctx, decide.Input{Key: about, Verdict: approval.Denied})
		return err
	}
	reads := map[string]func(c *Client) error{
		"waiting": func(c *Client) error {
			list, err := c.Waiting(ctx, "")
			require.Len(t, list, 1)
			return err
		},
		"history": func(c *Client) error {
			found, _, err := c.History(ctx, HistoryQuery{})
			require.Len(t, found, 2)
			return err
		},
		"freeze": func(c *Client) error {
			calls := 0
			err := c.Freeze(ctx, func() error { calls++; return nil })
			require.Equal(t, 1, calls)
			return err
		},
	}
	open := func(t *testing.T, then func(net.Conn, net.Listener)) (c *Client, h *home.Home) {
		t.Helper()
		h, _ = newHome(t)
		fakeDaemon(t, h.Layout.Socket(), 1<<22+7, then) // no process has this PID
		a, _ := newConsole("1")
		a.HomeFlag = h.Layout.Home
		c, err := Open(ctx, a)
		require.NoError(t, err)
		require.True(t, c.Served)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c, h
	}
	for name, ask := range reads {
		t.Run(name, func(t *testing.T) {
			c, _ := open(t, ends)
			require.NoError(t, ask(c))
			require.False(t, c.Served)
		})
	}
	t.Run("before a decision", func(t *testing.T) {
		c, h := open(t, ends)
		require.NoError(t, os.Remove(h.Layout.Socket())) // nothing can be sent
		require.NoError(t, decision(c))
		require.False(t, c.Served)
		_, err := h.Store.Read(ctx, approval.DocDecision, about)
		require.NoError(t, err)
	})
	t.Run("after a decision", func(t *testing.T) {
		c, h := open(t, ends)
		err := decision(c)
		require.EqualError(t, err, "the daemon ended; the decision may have been recorded")
		require.Equal(t, "check with permesso show "+waiting+" before retrying", console.HintFor(err))
		_, err = h.Store.Read(ctx, approval.DocDecision, about)
		require.Error(t, err, "it is not repeated")
	})
	t.Run("after another change", func(t *testing.T) {
		c, _ := open(t, ends)
		_, err := c.AddGrant(ctx, GrantBody{ActionType: "send_message", Life: "24h"})
		require.EqualError(t, err, "the daemon ended; the grant may have been recorded")
		require.Equal(t, "check with permesso grants before retrying", console.HintFor(err))
	})
	t.Run("while it is busy", func(t *testing.T) { // it took the request, and was stopped before it was killed
		var all []net.Conn
		c, _ := open(t, func(conn net.Conn, l net.Listener) {
			if all = append(all, conn); len(all) == 2 { // it is greeted again
				_ = l.Close()
				for _, conn := range all {
					_ = conn.Close()
				}
			}
		})
		require.NoError(t, reads["waiting"](c))
		require.False(t, c.Served)
	})
	t.Run("at another user's", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		fakeDaemon(t, path, 7, ends)
		a, _ := newConsole("1")
		a.Env = func(name string) string {
			return map[string]string{"PERMESSO_SOCKET": path, "HOME": t.TempDir()}[name]
		}
		c, err := Open(ctx, a)
		require.NoError(t, err)
		_, err = c.Waiting(ctx, "")
		require.EqualError(t, err, "no daemon listens on "+path)
	})
}

// A list of which a part has been printed is not begun anew.
func TestDaemonThatEndedInAList(t *testing.T) {
	h, k := newHome(t)
	a, _ := newConsole("1")
	a.HomeFlag = h.Layout.Home
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	var line []byte
	_, _, err = files.History(t.Context(), HistoryQuery{})
	require.NoError(t, err)
	_, err = files.EachRequest(t.Context(), HistoryQuery{Limit: 1}, func(r *read.Request) error {
		line, err = json2.Marshal(historyLine{Request: r})
		return err
	})
	require.NoError(t, err)
	half := func(c net.Conn, l net.Listener) {
		_ = l.Close()
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nPermesso-Version: 1\r\n\r\n%s\n", line)
		_ = c.Close()
	}
	fakeDaemon(t, h.Layout.Socket(), 1<<22+7, half)
	c, err := Open(t.Context(), a)
	require.NoError(t, err)
	n := 0
	_, err = c.EachRequest(t.Context(), HistoryQuery{}, func(*read.Request) error { n++; return nil })
	require.EqualError(t, err, "the daemon ended; the list is incomplete")
	require.Equal(t, 1, n)
	require.NoError(t, c.Close())

	fakeDaemon(t, h.Layout.Socket(), 1<<22+7, half)
	c, err = Open(t.Context(), a)
	require.NoError(t, err)
	found, _, err := c.History(t.Context(), HistoryQuery{})
	require.NoError(t, err)
	require.Len(t, found, 2, "what is collected is collected anew")
	require.NoError(t, c.Close())
}

// An approver learns nothing about workspaces that they may not see: these are as unknown as others.
func TestUnseenWorkspacesAreUnknown(t *testing.T) {
	h, k := newHome(t)
	cfg := config.Default()
	cfg.Workspaces["secret"] = cfg.Workspaces["default"]
	h = home.New(cfg, h.Layout.Home)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	serve(t, files.service, httpapi.Caller{Via: "socket", Workspaces: []string{"default"}}, "1")
	remote, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	for what, ask := range map[string]func(c *Client, ws string) error{
		"waiting": func(c *Client, ws string) error { _, err := c.Waiting(t.Context(), ws); return err },
		"history": func(c *Client, ws string) error {
			_, _, err := c.History(t.Context(), HistoryQuery{Workspace: ws})
			return err
		},
		"stats": func(c *Client, ws string) error {
			_, err := c.Stats(t.Context(), HistoryQuery{Workspace: ws})
			return err
		},
	} {
		require.NoError(t, ask(remote, "default"), what)
		for _, ws := range []string{"secret", "absent"} {
			err := ask(remote, ws)
			require.EqualError(t, err, "no workspace '"+ws+"'", what)
			require.Equal(t, "workspaces: default", console.HintFor(err), what)
		}
		require.NoError(t, ask(files, "secret"), "%s: the operator sees it", what)
		require.EqualError(t, ask(files, "absent"), "no workspace 'absent'", what)
	}
}
