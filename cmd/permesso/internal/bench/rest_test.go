package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/service"
)

const restConfig = `listen = %q
[approvers.ann]
telegram = 1
[workspaces.default]
approvers = ["ann"]
limits = { pending = 10000, ask_per_minute = 100000, per_minute = 100000 }
[tools.none]
dangerous_writes = true
args = { text = "text" }
public_source = false
secret_data = false
public_sink = false
handler = { kind = "none" }
`

// client is a client of the HTTP API.
type client struct {
	base, key string
	http      *http.Client
}

// call sends an HTTP request and reads the response.
func (c *client) call(method, path, body string) (map[string]any, error) {
	r, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	response := map[string]any{}
	return response, json.Unmarshal(b, &response)
}

// clientConn is one open connection of a client. It needs little processor time, so
// that mostly the daemon is measured.
type clientConn struct {
	*client
	conn net.Conn
	in   *bufio.Reader
}

func (c *client) dial() (*clientConn, error) {
	conn, err := net.Dial("tcp", c.host())
	if err != nil {
		return nil, err
	}
	return &clientConn{c, conn, bufio.NewReader(conn)}, nil
}

func (c *client) host() string { return strings.TrimPrefix(c.base, "http://") }

func (l *clientConn) close() { _ = l.conn.Close() }

// call is like client.call, on this connection.
func (l *clientConn) call(method, path, body string) (id string, err error) {
	kind := ""
	if body != "" {
		kind = fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	_, err = fmt.Fprintf(l.conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%s\r\n%s", method, path, l.host(), l.key, kind, body)
	if err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode >= 300 {
		return "", fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	var response struct {
		ID string `json:"approval_id"`
	}
	return response.ID, json.Unmarshal(b, &response)
}

const createBody = `{"tool_name":"none","request_data":{"text":"Meeting at 5"}}`

// longPolls returns the number of waiting long-polls, from the metrics.
func (c *client) longPolls() (n int) {
	r, err := http.NewRequest("GET", c.base+"/metrics", nil)
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := c.http.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if text, ok := strings.CutPrefix(in.Text(), "permesso_rest_waiting_clients "); ok {
			n, _ = strconv.Atoi(text) // on an error 0: not yet
		}
	}
	return n
}

func (c *client) create() (id string, err error) {
	a, err := c.call("POST", "/v1/approvals", createBody)
	if err != nil {
		return "", err
	}
	id, _ = a["approval_id"].(string)
	return id, nil
}

// restDaemon starts the real program with its HTTP API, and returns a client that
// submits and one that decides.
func restDaemon(b *testing.B) (agent, decider *client, pid int) {
	b.Helper()
	r := newRig(b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	address := l.Addr().String()
	require.NoError(b, l.Close())
	pid = r.daemon(fmt.Sprintf(restConfig, address))
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4000, MaxIdleConns: 4000}}
	agent = &client{base: "http://" + address, http: web}
	decider = &client{base: agent.base, http: web}
	r.Await("ready", func() bool {
		resp, err := web.Get(agent.base + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	for c, args := range map[*client][]string{agent: {"request,read"}, decider: {"decide,read", "--owner", "ann"}} {
		c.key, err = r.program(append([]string{"key", "create", "default", "--scope"}, args...)...)
		require.NoError(b, err)
	}
	return agent, decider, pid
}

// BenchmarkREST measures the real program over HTTP.
func BenchmarkREST(b *testing.B) {
	b.Run("REST: create + decide + status, 8 clients", benchmarkCycles)
	b.Run("REST: create at 32 clients, 500 a second in total", func(b *testing.B) { benchmarkCreate(b, 2000, 2*time.Millisecond, "") })
	b.Run("REST: create at 32 clients, without pauses", func(b *testing.B) { benchmarkCreate(b, 4000, 0, "<=24") })
	b.Run("REST: response visible to client has it", benchmarkWake)
	b.Run("REST: memory (RSS) with 2,000 long-polls waiting", benchmarkLongPolls)
}

const cycles = 2000

// benchmarkCycles measures create, decide and read by concurrent clients.
func benchmarkCycles(b *testing.B) {
	agent, decider, pid := restDaemon(b)
	for b.Loop() {
		began, before := time.Now(), cpu(b, pid)
		require.NoError(b, inParallel(8, cycles, agent, func(l *clientConn) error {
			id, err := l.call("POST", "/v1/approvals", createBody)
			l.client = decider
			if err == nil {
				_, err = l.call("POST", "/v1/approvals/"+id+"/decision", `{"code":"1"}`)
			}
			l.client = agent
			if err == nil {
				_, err = l.call("GET", "/v1/approvals/"+id, "")
			}
			return err
		}))
		reportRate(b, cycles, time.Since(began), "<=2")
		reportMS(b, "processor time of each", (cpu(b, pid)-before)/cycles, "<=1.2")
	}
}

// benchmarkCreate measures create by 32 clients. every is the pause between two
// requests of all clients together.
func benchmarkCreate(b *testing.B, n int, every time.Duration, limit string) {
	agent, _, _ := restDaemon(b)
	for b.Loop() {
		var mu sync.Mutex
		var took []time.Duration
		turn, start := 0, time.Now()
		require.NoError(b, inParallel(32, n, agent, func(l *clientConn) error {
			began := time.Now()
			if every > 0 { // measure from the due time: a delay counts for the next one, too
				mu.Lock()
				began = start.Add(time.Duration(turn) * every)
				turn++
				mu.Unlock()
				time.Sleep(time.Until(began))
			}
			_, err := l.call("POST", "/v1/approvals", createBody)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(began))
			return err
		}))
		reportU(b, "p50", quantile(took, 0.5), "")
		reportU(b, "p99", quantile(took, 0.99), limit)
	}
}

// inParallel runs do n times on concurrent clients, each with its own connection.
func inParallel(callers, n int, c *client, do func(l *clientConn) error) error {
	errs := make(chan error, callers)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			l, err := c.dial()
			if err != nil {
				errs <- err
				return
			}
			defer l.close()
			for range n / callers {
				if err := do(l); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// benchmarkLongPolls measures memory with 2,000 waiting clients.
func benchmarkLongPolls(b *testing.B) {
	const waiters = 2000
	agent, decider, pid := restDaemon(b)
	before := residentMB(b, pid)
	id, err := agent.create()
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			r, err := http.NewRequestWithContext(ctx, "GET", agent.base+"/v1/approvals/"+id+"?wait=60", nil)
			if err != nil {
				return
			}
			r.Header.Set("Authorization", "Bearer "+agent.key)
			if resp, err := agent.http.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	for b.Loop() {
		for limit := time.Now().Add(time.Minute); decider.longPolls() != waiters; time.Sleep(500 * time.Millisecond) { // reading the metrics needs memory, too
			require.True(b, time.Now().Before(limit), "2,000 waiting clients")
		}
		report(b, "", residentMB(b, pid), "MB", "<=100")
		report(b, "before", before, "MB", "")
	}
	cancel()
	wg.Wait()
}

// The HTTP API in this process, to measure times inside.

type oneKey struct{ key *apikey.Key }

// Key implements httpapi.Keys.
func (o oneKey) Key(hash string) (*apikey.Key, error) {
	if hash != o.key.Hash {
		return nil, fs.ErrNotExist
	}
	return o.key, nil
}

// WorkspaceInfo implements service.settings.
func (oneKey) WorkspaceInfo(string) (service.WorkspaceInfo, bool) {
	return service.WorkspaceInfo{MaxSize: approval.MaxRequestSize}, true
}

// benchmarkWake measures the time from a visible response to the client's HTTP
// response.
func benchmarkWake(b *testing.B) {
	r := newRig(b)
	k := apikey.New("bench")
	k.Workspace, k.Scopes, k.CreatedAt, k.CreatedBy = workspace, []string{apikey.MayRequest, apikey.MayRead}, time.Now(), "bench"
	api := &httpapi.Server{Keys: oneKey{k}, Service: &service.Service{Settings: oneKey{k}, Viewer: &read.Viewer{Store: r.store, Seal: r.Seal}}}
	r.changed = api.Changed
	r.start()
	api.Gate = r.Gate
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	api.Hosts = []string{l.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = api.Run(ctx, l) })
	defer wg.Wait()
	defer cancel()
	c := &client{base: "http://" + l.Addr().String(), key: "bench", http: &http.Client{}}
	var took []time.Duration
	for b.Loop() {
		id, err := c.create()
		require.NoError(b, err)
		answered := make(chan error, 1)
		var at time.Time
		go func() {
			_, err := c.call("GET", "/v1/approvals/"+id+"?wait=20", "")
			at = time.Now()
			answered <- err
		}()
		time.Sleep(5 * time.Millisecond) // until it waits
		bare := strings.TrimPrefix(id, "appr_")
		require.NoError(b, r.approve(bare))
		require.NoError(b, <-answered)
		_, out := r.store.times(bare)
		require.False(b, out.IsZero(), "no response became visible")
		took = append(took, at.Sub(out))
	}
	reportMS(b, "p50", quantile(took, 0.5), "")
	reportMS(b, "p99", quantile(took, 0.99), "<=5")
}
