package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/permesso-dev/permesso/approval"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeGate is a Decider and Viewer. The UID of the test process is ann's.
type fakeGate struct {
	mu      sync.Mutex
	waiting []approval.StoredPending
	record  *approval.Record
	asked   []approval.DecisionInput
	refused []approval.Person
	logged  []error
	theirs  []string
	broken  error
	holding chan struct{} // Decide waits for it
	entered chan struct{}
}

func (h *fakeGate) Waiting(_ context.Context, workspaces []string) ([]approval.StoredPending, error) {
	if len(workspaces) == 0 {
		return nil, errors.New("asked about no workspace at all")
	}
	return h.waiting, h.broken
}

func (h *fakeGate) Find(_ context.Context, _ []string, prefix string) (keys []approval.Key, err error) {
	for _, w := range h.waiting {
		if strings.HasPrefix(w.Pending.RequestID, prefix) {
			keys = append(keys, w.Key())
		}
	}
	return keys, h.broken
}

func (h *fakeGate) Pending(k approval.Key) (*approval.StoredPending, error) {
	for _, w := range h.waiting {
		if w.Key() == k {
			return &w, h.broken
		}
	}
	return nil, h.broken
}

func (h *fakeGate) Record(_ context.Context, k approval.Key) (*approval.Record, error) {
	if h.record == nil || h.record.RequestID != k.ID {
		return nil, h.broken
	}
	return h.record, h.broken
}

func (h *fakeGate) OpenDecision(approval.Key, approval.Raw) *approval.Decision { return nil }

func (h *fakeGate) Decide(_ context.Context, a approval.DecisionInput) (*approval.Decision, error) {
	if h.holding != nil {
		close(h.entered)
		<-h.holding
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return nil, h.broken
	}
	h.asked = append(h.asked, a)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return &approval.Decision{
		Version: approval.Version, RequestID: a.Key.ID, Verdict: a.Verdict, Approved: a.Verdict == approval.Approved,
		PendingSHA256: "x", DecidedAt: at, RunBefore: at.Add(time.Minute), Note: a.Note,
	}, nil
}

func waits(id, principal string) approval.StoredPending {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return approval.StoredPending{SHA256: "sha of " + id, Pending: &approval.Pending{
		Version: approval.Version, RequestID: id, ShortID: id[:8], ToolName: "x", SourceGroup: "annes", Principal: principal,
		RequestData: approval.Raw(`{"n": 9007199254740993,  "t":"\u0041"}`), Timestamp: at, ExpiresAt: at.Add(time.Hour),
		Verb: map[string]string{}, Options: []string{}, Facts: approval.Evidence{Host: []approval.HostFact{}}, Ruling: approval.Ruling{Reasons: []approval.Reason{}}, Proof: approval.Raw("null"),
	}}
}

const (
	mine   = "a7f3b2c1d4e5f6a7"
	others = "beef000000000000"
)

func serve(t *testing.T, h *fakeGate, change ...func(*Server)) (c *Client, stop func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.sock")
	l, err := Listen(path)
	require.NoError(t, err)
	if h.theirs == nil {
		h.theirs = []string{"annes"}
	}
	s := &Server{
		Decider: h, Viewer: h,
		Who: func(uid string) (approval.Person, []string) {
			p := approval.Person{Channel: "local", ID: uid}
			if uid != strconv.Itoa(os.Getuid()) {
				return p, nil
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			return p, h.theirs
		},
		May:    func(_ string, p *approval.Pending, _ approval.Person) bool { return p == nil || p.Principal != "bob" },
		Status: func(ws []string) ([]byte, error) { return []byte(`{"ws":"` + strings.Join(ws, ",") + `"}`), h.broken },
		Refused: func(p approval.Person) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.refused = append(h.refused, p)
		},
		Log: func(err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.logged = append(h.logged, err)
		},
		Language: func(approval.Person) string { return "it" },
	}
	for _, f := range change {
		f(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "Run does not end")
		}
	})
	t.Cleanup(stop)
	return &Client{Path: path}, stop
}

func TestClientAndServer(t *testing.T) {
	rec := &approval.Record{
		Version: 1, RequestID: "00000000000000aa", Workspace: "annes", Status: approval.StatusDenied,
		EndedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Response: approval.Raw(`{"a":  1}`),
	}
	h := &fakeGate{waiting: []approval.StoredPending{waits(mine, ""), waits(others, "bob")}, record: rec}
	c, _ := serve(t, h)
	ctx := t.Context()

	list, err := c.Waiting(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, []approval.StoredPending{waits(mine, "")}, list, "byte for byte, and none of bob's")
	require.Equal(t, "it", c.Language())
	list, err = c.Waiting(ctx, []string{"bobs", "../annes"})
	require.NoError(t, err)
	require.Empty(t, list, "nothing of workspaces that are not one's own")

	keys, err := c.Find(ctx, nil, mine[:4])
	require.NoError(t, err)
	require.Equal(t, []approval.Key{{Workspace: "annes", ID: mine}}, keys)
	keys, err = c.Find(ctx, []string{"bobs"}, mine[:4])
	require.NoError(t, err)
	require.Empty(t, keys)
	keys, err = c.Find(ctx, nil, others[:4])
	require.NoError(t, err)
	require.Empty(t, keys, "it waits for bob")

	w, err := c.Pending(approval.Key{Workspace: "annes", ID: mine})
	require.NoError(t, err)
	require.Equal(t, waits(mine, ""), *w)
	w, err = c.Pending(approval.Key{Workspace: "annes", ID: others})
	require.NoError(t, err)
	require.Nil(t, w)
	got, err := c.Record(ctx, approval.Key{Workspace: "annes", ID: rec.RequestID})
	require.NoError(t, err)
	require.Equal(t, rec.Response, got.Response, "verbatim")
	got, err = c.Record(ctx, approval.Key{Workspace: "bobs", ID: rec.RequestID})
	require.NoError(t, err)
	require.Nil(t, got)

	d, err := c.Decide(ctx, approval.DecisionInput{
		Key: approval.Key{Workspace: "annes", ID: mine}, PendingSHA256: "p", Verdict: approval.Approved, Code: "4", Scope: approval.Once, Note: "n\nn",
		By: approval.Person{Channel: "local", ID: "0", Name: "operator:root"}, Via: "cli",
	})
	require.NoError(t, err)
	require.Equal(t, "n\nn", d.Note)
	require.Equal(t, []approval.DecisionInput{{
		Key: approval.Key{Workspace: "annes", ID: mine}, PendingSHA256: "p", Verdict: approval.Approved, Code: "4", Scope: approval.Once, Note: "n\nn",
		By: approval.Person{Channel: "local", ID: strconv.Itoa(os.Getuid())}, Via: "socket",
	}}, h.asked, "who decides is the kernel's to say")

	b, err := c.Status(ctx)
	require.NoError(t, err)
	require.JSONEq(t, `{"ws":"annes"}`, string(b))
	require.Empty(t, h.refused)
}

func TestRefusalsCome(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	k := approval.Key{Workspace: "annes", ID: mine}
	for _, reason := range reasons() {
		ref := &approval.Refusal{Reason: reason, By: "bob", At: at, Verdict: approval.Denied, Hint: "h"}
		c, _ := serve(t, &fakeGate{broken: ref})
		_, err := c.Decide(t.Context(), approval.DecisionInput{Key: k, Verdict: approval.Approved})
		var got *approval.Refusal
		require.ErrorAs(t, err, &got)
		require.Equal(t, ref, got)
	}

	h := &fakeGate{broken: errors.New("/secret/path: disk on fire")}
	c, _ := serve(t, h)
	_, err := c.Decide(t.Context(), approval.DecisionInput{Key: k, Verdict: approval.Approved})
	require.EqualError(t, err, "the gate could not do that; its log says why")
	h.mu.Lock()
	require.Equal(t, []error{h.broken}, h.logged)
	h.mu.Unlock()
	_, err = c.Waiting(t.Context(), nil)
	require.Error(t, err, "and no empty list")
	_, err = c.Find(t.Context(), nil, "a7f3")
	require.Error(t, err)
	_, err = c.Status(t.Context())
	require.Error(t, err)
}

func TestStrangers(t *testing.T) {
	h := &fakeGate{waiting: []approval.StoredPending{waits(mine, "")}, theirs: []string{}}
	c, _ := serve(t, h, func(s *Server) {
		s.Who = func(uid string) (approval.Person, []string) { return approval.Person{Channel: "local", ID: uid}, nil }
	})
	for range 50 { // however the writing and the closing fall
		_, err := c.Decide(t.Context(), approval.DecisionInput{Key: approval.Key{Workspace: "annes", ID: mine}, Verdict: approval.Approved})
		require.ErrorIs(t, err, approval.ErrNotAuthorized)
		require.EqualError(t, err, "nothing here for you")
	}
	require.Empty(t, h.asked)
	h.mu.Lock()
	require.Len(t, h.refused, 50)
	require.Equal(t, strconv.Itoa(os.Getuid()), h.refused[0].ID)
	h.mu.Unlock()
}

// What the configuration says counts at every question, not when one connected.
func TestStrangerFromNowOn(t *testing.T) {
	h := &fakeGate{}
	c, _ := serve(t, h)
	conn, err := net.Dial("unix", c.Path)
	require.NoError(t, err)
	defer conn.Close()
	r := bufio.NewReader(conn)
	ask := func() string {
		_, _ = io.WriteString(conn, `{"op":"pending"}`+"\n")
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		return line
	}
	require.Contains(t, ask(), `"end":true`)
	h.mu.Lock()
	h.theirs = []string{}
	h.mu.Unlock()
	require.Contains(t, ask(), "nothing here for you")
	_, err = r.ReadString('\n')
	require.ErrorIs(t, err, io.EOF)
}

func TestSlowClients(t *testing.T) {
	many := &fakeGate{}
	for range 2000 { // more than a socket holds
		many.waiting = append(many.waiting, waits(mine, ""))
	}
	var server *Server
	c, _ := serve(t, many, func(s *Server) { s.IOTimeout, server = 200*time.Millisecond, s })
	dial := func(sent string) net.Conn {
		conn, err := net.Dial("unix", c.Path)
		require.NoError(t, err)
		_, err = io.WriteString(conn, sent)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	silent, half, deaf := dial(""), dial(`{"op":"pen`), dial(`{"op":"pending"}`+"\n")
	for _, conn := range []net.Conn{silent, half} {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		b, err := io.ReadAll(conn)
		require.NoError(t, err, "closed by the server")
		require.Empty(t, b)
	}
	// Meanwhile, and with the deaf one not reading, others are served: as soon as they are quick enough.
	require.Eventually(t, func() bool { _, err := c.Status(t.Context()); return err == nil }, time.Minute, time.Millisecond)
	require.NoError(t, deaf.SetReadDeadline(time.Now().Add(20*time.Second)))
	require.Eventually(t, func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.open) == 0
	}, 20*time.Second, time.Millisecond, "and is given up in the end")
	b, err := io.ReadAll(deaf)
	if err == nil {
		require.NotContains(t, string(b), `"end":true`, "given up")
	}
	require.Eventually(t, func() bool {
		list, err := c.Waiting(t.Context(), nil)
		return err == nil && len(list) == 2000
	}, time.Minute, time.Millisecond)
}

func TestTooManyConnections(t *testing.T) {
	c, _ := serve(t, &fakeGate{})
	var held []net.Conn
	for range maxPerUID {
		conn, err := net.Dial("unix", c.Path)
		require.NoError(t, err)
		defer conn.Close()
		held = append(held, conn)
		_, _ = io.WriteString(conn, `{"op":"status"}`+"\n")
		_, err = bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err) // so that it is admitted
	}
	_, err := c.Status(t.Context())
	require.ErrorContains(t, err, "too many connections")
	require.NoError(t, held[0].Close())
	require.Eventually(t, func() bool { _, err := c.Status(t.Context()); return err == nil }, time.Minute, time.Millisecond)
}

// What was decided while the gate ends is still told.
func TestStopTellsWhatWasDecided(t *testing.T) {
	h := &fakeGate{holding: make(chan struct{}), entered: make(chan struct{})}
	c, stop := serve(t, h)
	idle, err := net.Dial("unix", c.Path)
	require.NoError(t, err)
	defer idle.Close()
	told := make(chan error, 1)
	go func() {
		_, err := c.Decide(context.Background(), approval.DecisionInput{Key: approval.Key{Workspace: "annes", ID: mine}, Verdict: approval.Approved})
		told <- err
	}()
	<-h.entered
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", c.Path)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 20*time.Second, time.Millisecond, "no new client is accepted")
	close(h.holding)
	require.NoError(t, <-told)
	<-stopped
}

func TestHugeRequest(t *testing.T) {
	c, _ := serve(t, &fakeGate{})
	_, err := c.Decide(t.Context(), approval.DecisionInput{Key: approval.Key{Workspace: "annes", ID: mine}, Note: strings.Repeat("x", maxRequest)})
	require.ErrorContains(t, err, "more than 262144 bytes", "the client knows")
	require.NotErrorIs(t, err, approval.ErrNotAuthorized)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"op":"pending","workspaces":["a"]}`))
	f.Add([]byte(`{"op":"decide","workspace":"w","id":"a7f3b2c1d4e5f6a7","verdict":"approved"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parse(line)
		if err != nil {
			return
		}
		b, err := json.Marshal(r)
		require.NoError(t, err)
		again, err := parse(b)
		require.NoError(t, err)
		if len(r.Workspaces) == 0 {
			r.Workspaces, again.Workspaces = nil, nil
		}
		require.Equal(t, r, again, "there is one way to read it")
	})
}

// A link is the asker's own, and there is one only where pages are served.
func TestLink(t *testing.T) {
	var asked []approval.Person
	c, stop := serve(t, &fakeGate{}, func(s *Server) {
		s.Link = func(p approval.Person) (string, time.Duration, error) {
			asked = append(asked, p)
			return "http://127.0.0.1:1/enter/x", time.Minute, nil
		}
	})
	address, life, err := c.Link(t.Context())
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:1/enter/x", address)
	require.Equal(t, time.Minute, life)
	stop()
	require.Equal(t, []approval.Person{{Channel: "local", ID: strconv.Itoa(os.Getuid())}}, asked)

	c, _ = serve(t, &fakeGate{})
	_, _, err = c.Link(t.Context())
	require.ErrorIs(t, err, approval.ErrNotApplicable)
	require.ErrorContains(t, err, "the gate serves no pages")

	h := &fakeGate{theirs: []string{}}
	c, _ = serve(t, h, func(s *Server) {
		s.Link = func(approval.Person) (string, time.Duration, error) { panic("a stranger got a link") }
	})
	_, _, err = c.Link(t.Context())
	require.ErrorIs(t, err, approval.ErrNotAuthorized)
}

// A home may lie so deep that the kernel takes no socket by its whole name.
func TestPrivateSocketInADeepFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "ui.sock")
	for range 2 { // the second time it lies there already
		l, err := ListenPrivate(path)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
		name, done, err := reachable(path)
		require.NoError(t, err)
		c, err := net.Dial("unix", name)
		require.NoError(t, err)
		done()
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
}
