package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/service"
)

const restConfig = `listen = "127.0.0.1:%d"
[approvers.ann]
telegram = 1
[workspaces.default]
approvers = ["ann"]
limits = { pending = 10000, ask_per_minute = 100000, per_minute = 100000 }
[tools.none]
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
func (b *bench) restDaemon(name string) (agent, ann *client, pid int, stop func(), err error) {
	r, err := b.newRig(name)
	if err != nil {
		return nil, nil, 0, nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, nil, 0, nil, err
	}
	d, err := b.daemon(r, fmt.Sprintf(restConfig, port))
	if err != nil {
		return nil, nil, 0, nil, err
	}
	stop = func() { stopDaemon(d) }
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4000, MaxIdleConns: 4000}}
	agent = &client{base: fmt.Sprintf("http://127.0.0.1:%d", port), http: web}
	ann = &client{base: agent.base, http: web}
	err = waitFor("ready", func() bool {
		resp, err := web.Get(agent.base + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	for c, args := range map[*client][]string{agent: {"request,read"}, ann: {"decide,read", "--owner", "ann"}} {
		if err == nil {
			c.key, err = b.key(r, args...)
		}
	}
	if err != nil {
		stop()
		return nil, nil, 0, nil, err
	}
	return agent, ann, d.Process.Pid, stop, nil
}

func (b *bench) key(r *rig, scope ...string) (string, error) {
	args := append([]string{"key", "create", "default", "--home", r.layout.Home, "--config", filepath.Join(r.layout.Home, "permesso.toml"), "--scope"}, scope...)
	out, err := osexec.Command(b.bin, args...).Output()
	return string(bytes.TrimSpace(out)), err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr, _ := l.Addr().(*net.TCPAddr)
	return addr.Port, l.Close()
}

const cycles = 2000

// restCycles measures create, decide and read by concurrent clients.
func (b *bench) restCycles() error {
	agent, ann, _, stop, err := b.restDaemon("rest-cycles")
	if err != nil {
		return err
	}
	defer stop()
	began := time.Now()
	err = inParallel(8, cycles, agent, func(l *clientConn) error {
		id, err := l.call("POST", "/v1/approvals", createBody)
		l.client = ann
		if err == nil {
			_, err = l.call("POST", "/v1/approvals/"+id+"/decision", `{"code":"1"}`)
		}
		l.client = agent
		if err == nil {
			_, err = l.call("GET", "/v1/approvals/"+id, "")
		}
		return err
	})
	if err != nil {
		return err
	}
	rate := cycles / time.Since(began).Seconds()
	b.add("REST: create + decide + status, 8 clients", b.perSecond(rate), "≥ 500/s", rate >= 500)
	return nil
}

// restCreate measures create by 32 clients: first at the target rate of restCycles,
// then without pauses.
func (b *bench) restCreate() error {
	const limit, each = 15 * time.Millisecond, 2 * time.Millisecond // 500 a second
	agent, _, _, stop, err := b.restDaemon("rest-create")
	if err != nil {
		return err
	}
	defer stop()
	for _, pace := range []struct {
		n     int
		every time.Duration
		name  string
	}{
		{2000, each, "500/s in total"},
		{4000, 0, "without pauses"},
	} {
		var mu sync.Mutex
		var took []time.Duration
		turn, start := 0, time.Now()
		err = inParallel(32, pace.n, agent, func(l *clientConn) error {
			began := time.Now()
			if pace.every > 0 { // measure from the due time: a delay counts for the next one, too
				mu.Lock()
				began = start.Add(time.Duration(turn) * pace.every)
				turn++
				mu.Unlock()
				time.Sleep(time.Until(began))
			}
			_, err := l.call("POST", "/v1/approvals", createBody)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(began))
			return err
		})
		if err != nil {
			return err
		}
		p99 := quantile(took, 0.99)
		b.add("REST: create at 32 clients, "+pace.name+", p50", b.inUnits(quantile(took, 0.5)), "", true)
		b.add("REST: create at 32 clients, "+pace.name+", p99", b.inUnits(p99), "≤ 15 ms", p99 <= limit)
	}
	return nil
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

// restMemory measures memory with 2,000 waiting clients.
func (b *bench) restMemory() error {
	const waiters = 2000
	agent, ann, pid, stop, err := b.restDaemon("rest-memory")
	if err != nil {
		return err
	}
	defer stop()
	rss := func() (int64, error) { return procField(pid, "status", "VmRSS:") }
	before, err := rss()
	if err != nil {
		return err
	}
	id, err := agent.create()
	if err != nil {
		return err
	}
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
	err = waitFor("2,000 waiting clients", func() bool {
		time.Sleep(500 * time.Millisecond) // reading the metrics needs memory, too
		return ann.longPolls() == waiters
	})
	kb, rssErr := rss()
	cancel()
	wg.Wait()
	if err := errors.Join(err, rssErr); err != nil {
		return err
	}
	b.add("REST: memory (RSS) with 2,000 long-polls waiting", fmt.Sprintf("%.1f MB, %.1f MB before", float64(kb)/1024, float64(before)/1024), "≤ 100 MB", kb <= 100*1024)
	return nil
}

// The HTTP API in this process, to measure times inside.

type oneKey struct{ key *approval.APIKey }

// Key implements httpapi.Keys.
func (o oneKey) Key(hash string) (*approval.APIKey, error) {
	if hash != o.key.Hash {
		return nil, fs.ErrNotExist
	}
	return o.key, nil
}

// WorkspaceInfo implements service.settings.
func (oneKey) WorkspaceInfo(string) (service.WorkspaceInfo, bool) {
	return service.WorkspaceInfo{MaxSize: approval.MaxRequestSize}, true
}

// restWake measures the time from a visible response to the client's HTTP response.
func (b *bench) restWake() error {
	r, err := b.newRig("rest-wake")
	if err != nil {
		return err
	}
	k := approval.NewAPIKey("bench")
	k.Workspace, k.Scopes, k.CreatedAt, k.CreatedBy = workspace, []string{approval.MayRequest, approval.MayRead}, time.Now(), "bench"
	api := &httpapi.Server{Keys: oneKey{k}, Service: &service.Service{Settings: oneKey{k}, Viewer: &read.Viewer{Store: r.store, Seal: r.key}}}
	r.changed = api.Changed
	if err := r.start(); err != nil {
		return err
	}
	defer r.stopAndReport()
	api.Gate = r.gate
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	api.Hosts = []string{l.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = api.Run(ctx, l) })
	defer wg.Wait()
	defer cancel()
	c := &client{base: "http://" + l.Addr().String(), key: "bench", http: &http.Client{}}
	var took []time.Duration
	for range rounds {
		id, err := c.create()
		if err != nil {
			return err
		}
		done := make(chan time.Time, 1)
		go func() {
			_, err := c.call("GET", "/v1/approvals/"+id+"?wait=20", "")
			if err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
			done <- time.Now()
		}()
		time.Sleep(5 * time.Millisecond) // until it waits
		bare := strings.TrimPrefix(id, "appr_")
		if err := r.approve(bare); err != nil {
			return err
		}
		at := <-done
		_, out := r.store.times(bare)
		if out.IsZero() {
			return errors.New("no response became visible")
		}
		took = append(took, at.Sub(out))
	}
	p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
	b.add("REST: response visible → client has it, p50", p50.Round(time.Microsecond).String(), "", true)
	b.add("REST: response visible → client has it, p99", p99.Round(time.Microsecond).String(), "≤ 5 ms", p99 <= 5*time.Millisecond)
	return nil
}
