package main

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
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/agent"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
)

// scenario is one entry of testdata/rest/scenarios.json; the README there explains the fields.
type scenario struct {
	Name, Why, Do, Key, Fault string
	Request                   map[string]any
	Args                      map[string]any
	Pad                       int
	Timeout, Least            float64
	Expect                    map[string]any
	Posts, Gets, Deletes      int
	Folders                   bool
	Shell                     *bool
}

// scenarioResult is the outcome that a client reports.
type scenarioResult struct {
	Name     string         `json:"name"`
	Decision map[string]any `json:"decision"`
	Error    string         `json:"error"`
	Status   int            `json:"status"`
	Same     bool           `json:"same"`
	Ran      int            `json:"ran"`
	Parts    int            `json:"parts"`
	Took     float64        `json:"took"`
}

func scenarios(t *testing.T) (all []scenario) {
	t.Helper()
	b, err := os.ReadFile("../../testdata/rest/scenarios.json")
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&all))
	require.Greater(t, len(all), 40)
	return all
}

// driver runs scenarios with one client.
type driver func(t *testing.T, r *clientRig, todo []scenario) []scenarioResult

// clientRig is a daemon with a scripted approver, for one client.
type clientRig struct {
	*rig
	socket  string
	key     string
	foreign string   // another client's request
	env     []string // the client's settings
}

// The four clients run the same scenarios, through a faulty proxy and through the
// folders, with the same outcomes.
func TestFourClients(t *testing.T) {
	t.Parallel()
	all := scenarios(t)
	for name, drive := range map[string]driver{"go": driveGo, "shell": driveShell, "python": drivePython, "javascript": driveNode} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClientRig(t)
			todo := slices.DeleteFunc(slices.Clone(all), func(s scenario) bool { return name == "shell" && s.Shell != nil && !*s.Shell })
			line := newFaultProxy(t, r.socket, todo)
			r.env = []string{"PERMESSO_URL=" + line.server.URL, "PERMESSO_KEY=" + r.key, "FOREIGN=" + r.foreign}
			compare(t, todo, drive(t, r, todo), true)
			line.check(t, todo)

			folders := slices.DeleteFunc(slices.Clone(todo), func(s scenario) bool { return !s.Folders })
			r.env = []string{"PERMESSO_URL=", "PERMESSO_REQUESTS=" + r.agent.Requests, "PERMESSO_RESPONSES=" + r.agent.Responses}
			compare(t, folders, drive(t, r, folders), false)

			direct := slices.DeleteFunc(slices.Clone(todo), func(s scenario) bool { return s.Name != "approve" && s.Name != "oversized" })
			r.env = []string{"PERMESSO_URL=unix://" + r.socket, "PERMESSO_KEY=" + r.key}
			compare(t, direct, drive(t, r, direct), true)
		})
	}
}

func newClientRig(t *testing.T) *clientRig {
	t.Helper()
	dir, err := os.MkdirTemp("", "permesso-rest-") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	b, err := os.ReadFile("../../testdata/rest/permesso.toml")
	require.NoError(t, err)
	r := &clientRig{socket: filepath.Join(dir, "rest.sock")}
	r.rig = newRig(t, "default", strings.ReplaceAll(string(b), "SOCKET_PATH", r.socket))
	script, err := filepath.Abs("../../testdata/rest/answers.toml")
	require.NoError(t, err)
	// A journal of the usual size: 40 requests at once, some of them large, fill one of 2 MiB before the checkpoint.
	d := r.start(r.command("serve", "--script", script), home.JournalSize+"=")
	d.awaitLog("HTTP API listening")
	key := func() string {
		code, out, errs := r.run("", "key", "create", "default")
		require.Zero(t, code, errs)
		return strings.TrimSpace(out)
	}
	r.key = key()
	other := &client.REST{URL: "unix://" + r.socket, Key: key()}
	asked, err := other.Ask(t.Context(), approval.Request{ToolName: "echo", Title: "never touched"})
	require.NoError(t, err)
	r.foreign = asked.ID
	return r
}

// compare checks the client's results against the expected ones.
func compare(t *testing.T, todo []scenario, got []scenarioResult, rest bool) {
	t.Helper()
	require.Len(t, got, len(todo))
	for _, s := range todo {
		i := slices.IndexFunc(got, func(o scenarioResult) bool { return o.Name == s.Name })
		require.GreaterOrEqual(t, i, 0, s.Name)
		o := got[i]
		why := fmt.Sprintf("%s: %s: %+v", s.Name, s.Why, o)
		for field, want := range s.Expect {
			switch field {
			case "error":
				if o.Decision == nil {
					require.Equal(t, want, o.Error, why)
					continue
				}
				require.Equal(t, want, o.Decision[field], why)
			case "status":
				require.EqualValues(t, want, o.Status, why)
			case "same":
				require.Equal(t, want, o.Same, why)
			case "ran":
				require.EqualValues(t, want, o.Ran, why)
			case "parts":
				require.EqualValues(t, want, o.Parts, why)
			case "result":
				require.NotNil(t, o.Decision, why)
				require.Equal(t, exactJSON(t, want), exactJSON(t, o.Decision[field]), why)
			default:
				require.NotNil(t, o.Decision, why)
				require.Equal(t, want, o.Decision[field], why)
			}
		}
		if s.Expect["error"] == nil {
			require.Empty(t, o.Error, why)
		}
		if rest {
			require.GreaterOrEqual(t, o.Took, s.Least, why)
			require.Less(t, o.Took, client.DefaultTimeout.Seconds(), why)
		}
	}
}

// exactJSON parses JSON without rounding numbers. The escaping of characters does
// not matter.
func exactJSON(t *testing.T, text any) (v any) {
	t.Helper()
	require.IsType(t, "", text)
	d := json.NewDecoder(strings.NewReader(text.(string)))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}

// faultProxy stands between the clients and the daemon. The session's name is the
// scenario, which selects the fault:
//
//	lost       the first answer of each method is lost
//	half       the first answer breaks off in the middle
//	busy       the first POST is answered 429, come back in a second; the first GET 503
//	unavailable 503, come back in an hour
//	hurried    the first two GETs are answered at once
//	forged     the receipt is for other arguments; othertool: for another tool; otherprogram: for another program
//	bare       there is no receipt
//	other      the response is for another request
//	page       a web page
//	moved      a redirect to a server that must not get the key
type faultProxy struct {
	server, redirectTarget *httptest.Server
	daemon                 *http.Client
	faults                 map[string]string

	mu   sync.Mutex
	ids  map[string]string                   // approval id → scenario
	seen map[string]map[string][]sentRequest // scenario → method → what was sent
}

type sentRequest struct {
	key, body string
	at        time.Time
}

func newFaultProxy(t *testing.T, socket string, todo []scenario) *faultProxy {
	l := &faultProxy{faults: map[string]string{}, ids: map[string]string{}, seen: map[string]map[string][]sentRequest{}}
	for _, s := range todo {
		l.faults[s.Name] = s.Fault
	}
	l.daemon = &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Second, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	l.redirectTarget = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	l.server = httptest.NewServer(l)
	t.Cleanup(l.server.Close)
	t.Cleanup(l.redirectTarget.Close)
	return l
}

// record stores a request. It returns its scenario and the number of earlier
// requests with the same method.
func (l *faultProxy) record(r *http.Request, body []byte) (name string, before int) {
	var b struct {
		SessionID string `json:"session_id"`
		Title     string `json:"title"`
	}
	_ = json.Unmarshal(body, &b) // a GET has no body
	l.mu.Lock()
	defer l.mu.Unlock()
	name = cmp.Or(b.SessionID, l.ids[strings.TrimPrefix(r.URL.Path, "/v1/approvals/")])
	if l.seen[name] == nil {
		l.seen[name] = map[string][]sentRequest{}
	}
	before = len(l.seen[name][r.Method])
	l.seen[name][r.Method] = append(l.seen[name][r.Method], sentRequest{r.Header.Get("Idempotency-Key"), string(body), time.Now()})
	return name, before
}

var approvalID = regexp.MustCompile(`"approval_id":"(appr_[0-9a-f]+)"`)

func (l *faultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	name, before := l.record(r, body)
	fault, first := l.faults[name], before == 0
	query := r.URL.RawQuery
	switch {
	case fault == "busy" && first && r.Method == http.MethodPost:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case fault == "busy" && first:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case fault == "unavailable":
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case fault == "page":
		_, _ = io.WriteString(w, "<html>{}</html>")
		return
	case fault == "moved":
		http.Redirect(w, r, l.redirectTarget.URL+r.URL.Path, http.StatusTemporaryRedirect)
		return
	case fault == "hurried" && before < 2:
		query = ""
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://localhost"+r.URL.Path+"?"+query, bytes.NewReader(body))
	if err != nil {
		return
	}
	out.Header = r.Header.Clone()
	out.Header.Set("Expect", "100-continue") // else a request that is too large may never get a response
	resp, err := l.daemon.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler) // as a broken connection
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if id := approvalID.FindSubmatch(answer); id != nil {
		l.mu.Lock()
		l.ids[string(id[1])] = name
		l.mu.Unlock()
	}
	for _, h := range []string{"Content-Type", "Retry-After"} {
		if v := resp.Header.Get(h); v != "" {
			w.Header().Set(h, v)
		}
	}
	applyFault(w, resp.StatusCode, answer, fault, first)
}

// applyFault passes a response on with the fault applied.
func applyFault(w http.ResponseWriter, status int, answer []byte, fault string, first bool) {
	replace := func(pattern, with string) {
		answer = regexp.MustCompile(pattern).ReplaceAll(answer, []byte(with))
	}
	switch {
	case fault == "lost" && first:
		panic(http.ErrAbortHandler)
	case fault == "half" && first:
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
		w.WriteHeader(status)
		_, _ = w.Write(answer[:len(answer)/2])
		panic(http.ErrAbortHandler)
	case fault == "forged":
		replace(`args_sha256: [0-9a-f]{8}`, "args_sha256: 00000000")
	case fault == "otherprogram":
		replace(`program_sha256: [0-9a-f]{8}`, "program_sha256: 00000000")
	case fault == "othertool":
		replace(`\\ntool: echo`, `\ntool: ecco`)
	case fault == "bare":
		replace(`"receipt":"[^"]*"`, `"receipt":null`)
		replace(`"receipt":"(?:[^"\\]|\\.)*"`, `"receipt":null`)
	case fault == "other" && status == http.StatusOK:
		replace(`"appr_[0-9a-f]{8}`, `"appr_00000000`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// check compares the sent requests with the allowed ones.
func (l *faultProxy) check(t *testing.T, todo []scenario) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range todo {
		seen := l.seen[s.Name]
		if s.Posts > 0 {
			require.Len(t, seen[http.MethodPost], s.Posts, "%s: %s", s.Name, s.Why)
		}
		if s.Gets > 0 {
			require.LessOrEqual(t, len(seen[http.MethodGet]), s.Gets, "%s: %s", s.Name, s.Why)
		}
		// Measured between the starts of polls. The start of a poll is known only from
		// the end of the one before.
		for all, i := slices.Concat(seen[http.MethodPost], seen[http.MethodGet]), 2; s.Fault == "hurried" && i < len(all); i++ {
			require.Greater(t, all[i].at.Sub(all[i-2].at), 900*time.Millisecond, s.Why)
		}
		if s.Deletes > 0 {
			require.Len(t, seen[http.MethodDelete], s.Deletes, "%s: %s", s.Name, s.Why)
		}
		for _, one := range seen[http.MethodPost] {
			require.NotEmpty(t, one.key, s.Name)
			if s.Do != "again" && s.Do != "run" {
				first := seen[http.MethodPost][0]
				require.Equal(t, []string{first.key, first.body}, []string{one.key, one.body}, "%s: a retry has the same bytes", s.Name)
			}
		}
	}
}

// drivePython and driveNode run a driver program in that language.
func drivePython(t *testing.T, r *clientRig, todo []scenario) []scenarioResult {
	lib, err := filepath.Abs("../../ipc/client/python")
	require.NoError(t, err)
	r.env = append(r.env, "PYTHONPATH="+lib, "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=error")
	requireVersion(t, "python3", "python3", 3, 9)
	return driveBy(t, r, todo, "python3", "../../testdata/rest/drive.py")
}

func driveNode(t *testing.T, r *clientRig, todo []scenario) []scenarioResult {
	requireVersion(t, "node", "nodejs", 18, 0)
	return driveBy(t, r, todo, "node", "--unhandled-rejections=strict", "../../testdata/rest/drive.mjs")
}

func requireVersion(t testing.TB, program, pkg string, major, minor int) {
	t.Helper()
	out, err := osexec.Command(program, "--version").CombinedOutput()
	require.NoError(t, err, "%s is needed\nhint: make deps installs it, or: apt-get install %s", program, pkg)
	var x, y int
	_, err = fmt.Sscanf(strings.TrimLeft(string(out), "Pythonv "), "%d.%d", &x, &y)
	require.NoError(t, err, "%s", out)
	require.True(t, x > major || x == major && y >= minor, "%s %d.%d or later is needed, this is %s", program, major, minor, out)
}

func driveBy(t *testing.T, r *clientRig, todo []scenario, program string, args ...string) (got []scenarioResult) {
	t.Helper()
	args = append(args, "../../testdata/rest/scenarios.json")
	for _, s := range todo {
		args = append(args, s.Name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*testTimeout)
	defer cancel()
	cmd := osexec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), r.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s", &errs)
	require.Empty(t, errs.String())
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var o scenarioResult
		require.NoError(t, json.Unmarshal(lines.Bytes(), &o), "%s", lines.Text())
		got = append(got, o)
	}
	return got
}

// errorNames maps errors to their names in the scenarios.
var errorNames = []struct {
	err  error
	name string
}{
	{client.ErrKey, "invalid_key"},
	{client.ErrInvalid, "invalid"},
	{client.ErrNotFound, "not_found"},
	{client.ErrNotPending, "not_pending"},
	{client.ErrUnreachable, "unreachable"},
	{client.ErrNoGate, "not_a_gate"},
	{client.ErrIDConflict, "mismatch"},
	{context.DeadlineExceeded, "still_waiting"},
	{client.ErrRejected, "rejected"},
	{client.ErrMalformed, "malformed"},
	{client.ErrDenied, "denied"},
	{client.ErrExpired, "expired"},
	{client.ErrCancelled, "cancelled"},
	{client.ErrOverridden, "overridden"},
	{client.ErrRequestMore, "more_wanted"},
	{client.ErrFailed, "failed"},
}

// request is the scenario's request for the Go package.
func (s scenario) request(t *testing.T) (r approval.Request) {
	t.Helper()
	fields := map[string]any{"session_id": s.Name}
	for name, v := range s.Request {
		fields[name] = v
	}
	data, _ := fields["data"].(string)
	delete(fields, "data")
	b, err := json.Marshal(fields)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &r))
	r.RequestData = approval.Raw(strings.Replace(data, `""`, `"`+strings.Repeat("x", s.Pad)+`"`, 1))
	return r
}

func decisionFields(r *approval.Response) map[string]any {
	text := func(s *string) any {
		if s == nil {
			return nil
		}
		return *s
	}
	return map[string]any{
		"outcome": string(r.Status), "auto": r.Decision.Auto, "code": text(r.Decision.Code), "note": text(r.Decision.Note),
		"override": text(r.Decision.Override), "feedback": text(r.Feedback), "by": text(r.Decision.By), "via": text(r.Decision.Via),
		"error": text(r.Error), "result": string(r.Result), "metadata": decoded(r.Metadata),
	}
}

// decoded is JSON as a test compares it; nil without any.
func decoded(raw approval.Raw) (v any) {
	_ = json.Unmarshal(raw, &v)
	return v
}

// runParallel runs the scenarios concurrently.
func runParallel(todo []scenario, run func(s scenario) scenarioResult) []scenarioResult {
	got := make([]scenarioResult, len(todo))
	var wg sync.WaitGroup
	for i, s := range todo {
		wg.Go(func() {
			began := time.Now()
			got[i] = run(s)
			got[i].Name, got[i].Took = s.Name, time.Since(began).Seconds()
		})
	}
	wg.Wait()
	return got
}

func driveGo(t *testing.T, r *clientRig, todo []scenario) []scenarioResult {
	env := func(name string) string {
		for _, v := range slices.Backward(r.env) {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	g, err := client.FromEnv(env)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", g, g, g), r.key)
	return runParallel(todo, func(s scenario) scenarioResult {
		return (&goClient{t, g, r, s}).run()
	})
}

type goClient struct {
	t *testing.T
	client.Client
	r *clientRig
	s scenario
}

func (p *goClient) run() scenarioResult {
	ctx := p.t.Context()
	if p.s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(p.s.Timeout*float64(time.Second)))
		defer cancel()
	}
	o := scenarioResult{}
	resp, err := p.act(ctx, &o)
	for _, k := range errorNames {
		if errors.Is(err, k.err) {
			o.Error = k.name
			break
		}
	}
	var refused *client.Refused
	if errors.As(err, &refused) {
		o.Status = refused.Status
	}
	switch {
	case err == nil && resp != nil:
		o.Decision = decisionFields(resp)
	case err != nil && o.Error == "":
		o.Error = err.Error()
	case err != nil && strings.Contains(err.Error(), p.r.key):
		o.Error = "the error contains the key"
	}
	return o
}

func (p *goClient) act(ctx context.Context, o *scenarioResult) (*approval.Response, error) {
	req := p.s.request(p.t)
	if rest, ok := p.Client.(*client.REST); ok && p.s.Key != "" {
		p.Client = &client.REST{URL: rest.URL, Key: p.s.Key}
	}
	switch p.s.Do {
	case "foreign":
		if err := p.Cancel(ctx, client.Submitted{ID: p.r.foreign}); !errors.Is(err, client.ErrNotFound) {
			return nil, fmt.Errorf("cancel: %w", err)
		}
		return p.Await(ctx, client.Submitted{ID: p.r.foreign})
	case "guard", "mutate":
		return nil, p.guard(ctx, req, o)
	case "no_gate":
		g := &client.REST{URL: "http://127.0.0.1:9", Key: "permesso_x"}
		if p.s.Timeout == 0 {
			g.Timeout = 300 * time.Millisecond
		}
		_, err := g.Ask(ctx, req)
		if errors.Is(err, context.DeadlineExceeded) { // the caller's own
			err = client.ErrUnreachable
		}
		return nil, err
	case "again":
		req.RequestID = "again"
	}
	if p.s.Do == "run" {
		parts, err := client.Run(ctx, p.Client, req)
		if o.Parts = len(parts); err != nil {
			return nil, err
		}
		last := parts[len(parts)-1]
		o.Same = client.Approved(last) == nil && client.ResultOf(last).Main == client.MainReturned
		return last, nil
	}
	asked, err := p.Ask(ctx, req)
	if err != nil {
		return nil, err
	}
	switch p.s.Do {
	case "cancel":
		if err := errors.Join(p.Cancel(ctx, asked), p.Cancel(ctx, asked)); err != nil {
			return nil, err
		}
	case "again":
		again, err := p.Ask(ctx, req)
		o.Same = err == nil && again.ID == asked.ID
		req.RequestData = approval.Raw(`{"a":2}`)
		_, err = p.Ask(ctx, req)
		return nil, err
	case "late":
		if _, err := p.Await(ctx, asked); err != nil {
			return nil, err
		}
		return nil, p.Cancel(ctx, asked)
	}
	return p.Await(ctx, asked)
}

func (p *goClient) guard(ctx context.Context, req approval.Request, o *scenarioResult) error {
	args := map[string]any{}
	for name, v := range p.s.Args {
		args[name] = v
	}
	arg := &mutableArg{m: args}
	gate := p.Client
	if p.s.Do == "mutate" {
		gate = mutatingClient{gate, args}
	}
	guarded := client.NeedsApproval(gate, req, func(_ context.Context, a *mutableArg) (string, error) {
		o.Ran++
		return fmt.Sprint(a.m["path"]), nil
	})
	value, err := guarded(ctx, arg)
	if err == nil && value != p.s.Args["path"] {
		return fmt.Errorf("the function got %q", value)
	}
	return err
}

// mutableArg is an argument that other code can change.
type mutableArg struct{ m map[string]any }

// MarshalJSON implements json.Marshaler.
func (c *mutableArg) MarshalJSON() ([]byte, error) { return json.Marshal(c.m) }

// mutatingClient changes an argument after the submission.
type mutatingClient struct {
	client.Client
	args map[string]any
}

// Ask implements client.Gate.
func (m mutatingClient) Ask(ctx context.Context, r approval.Request) (client.Submitted, error) {
	asked, err := m.Client.Ask(ctx, r)
	m.args["path"] = "/etc"
	return asked, err
}

func driveShell(t *testing.T, r *clientRig, todo []scenario) []scenarioResult {
	return runParallel(todo, func(s scenario) scenarioResult { return (&shellClient{t, r, s}).runScenario() })
}

// shellClient is a scenario in command lines.
type shellClient struct {
	t *testing.T
	r *clientRig
	s scenario
}

// flags are the command-line arguments for the request.
func (p *shellClient) flags() (args []string) {
	req := p.s.request(p.t)
	if req.ToolName != "" {
		args = append(args, req.ToolName)
	}
	for _, f := range []struct{ name, value string }{
		{"action-type", req.ActionType},
		{"title", req.Title},
		{"preview", req.Preview},
		{"rationale", req.Rationale},
		{"session", req.SessionID},
		{"data", string(req.RequestData)},
	} {
		if f.value != "" && p.s.Pad == 0 || f.name != "data" && f.value != "" {
			args = append(args, "--"+f.name, f.value)
		}
	}
	if p.s.Pad > 0 {
		args = append(args, "--data", "-")
	}
	if req.ExpiresInSec > 0 {
		args = append(args, "--expires", fmt.Sprintf("%ds", req.ExpiresInSec))
	}
	if len(req.Metadata) > 0 {
		args = append(args, "--metadata", string(req.Metadata))
	}
	if req.Type == approval.TypeQuestion {
		args = append(args, "--question")
	}
	for _, o := range req.Options {
		args = append(args, "--option", o)
	}
	return args
}

var (
	statusPattern = regexp.MustCompile(`the gate returned (\d+)`)
	shellErrors   = []struct{ text, kind string }{
		{"timeout waiting for the response to", "still_waiting"},
		{client.ErrIDConflict.Error(), "mismatch"},
		{client.ErrNoGate.Error(), "not_a_gate"},
		{client.ErrUnreachable.Error(), "unreachable"},
		{"malformed request", "invalid"},
	}
)

// run runs one command line and returns its result.
func (p *shellClient) run(args ...string) (o scenarioResult, out string) {
	cmd := p.r.command(append(args, "--json")...)
	cmd.Env = append(cmd.Env, p.r.env...)
	if p.s.Key != "" {
		cmd.Env = append(cmd.Env, "PERMESSO_KEY="+p.s.Key)
	}
	r := p.s.request(p.t)
	cmd.Stdin = strings.NewReader(cmp.Or(r.Program, string(r.RequestData)))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit code is checked below
	code := cmd.ProcessState.ExitCode()
	o.Parts = strings.Count(stderr.String(), "submitted program")
	if strings.Contains(stderr.String(), p.r.key) {
		return scenarioResult{Error: "the output contains the key"}, ""
	}
	if resp, err := approval.ParseResponse(stdout.Bytes()); err == nil {
		o.Decision = decisionFields(resp)
		o.Same = client.Approved(resp) == nil && client.ResultOf(resp).Main == client.MainReturned
		want := console.ExitNotRun
		switch resp.Status {
		case approval.StatusApproved, approval.StatusAutoApproved, approval.StatusAnswered:
			want = console.ExitOK
		case approval.StatusFailed:
			want = console.ExitFailed
		}
		if code != want {
			o.Error = fmt.Sprintf("exit code %d, not %d", code, want)
		}
		return o, stdout.String()
	}
	var cancel agent.Found
	_ = json.Unmarshal(stdout.Bytes(), &cancel) // another command finds nothing
	switch {
	case cancel.Found == "unknown" && code == console.ExitRefused:
		return scenarioResult{Error: "not_found", Status: http.StatusNotFound}, stdout.String()
	case cancel.Found == "already executed" && code == console.ExitFailed:
		return scenarioResult{Error: "not_pending", Status: http.StatusConflict}, stdout.String()
	}
	if m := statusPattern.FindStringSubmatch(stderr.String()); m != nil {
		_, _ = fmt.Sscan(m[1], &o.Status)
		for _, k := range errorNames {
			if errors.Is(&client.Refused{Status: o.Status}, k.err) {
				o.Error = k.name
			}
		}
		return o, stdout.String()
	}
	for _, s := range shellErrors {
		if strings.Contains(stderr.String(), s.text) {
			o.Error = s.kind
			return o, stdout.String()
		}
	}
	if code != 0 {
		o.Error = fmt.Sprintf("exit code %d: %s", code, &stderr)
	}
	return o, stdout.String()
}

func (p *shellClient) runScenario() scenarioResult {
	ask := append([]string{"request"}, p.flags()...)
	id := func(out string) string {
		var asked struct {
			RequestID string `json:"request_id"`
		}
		_ = json.Unmarshal([]byte(out), &asked) // an empty id is refused
		return asked.RequestID
	}
	switch p.s.Do {
	case "request":
		if p.s.Timeout > 0 {
			ask = append(ask, "--timeout", fmt.Sprint(p.s.Timeout, "s"))
		}
		o, _ := p.run(append(ask, "--wait")...)
		if p.s.Name == "invalid" && o.Status == 0 && o.Error == "invalid" {
			o.Status = http.StatusUnprocessableEntity // the client refused it before sending
		}
		return o
	case "run":
		o, _ := p.run("run", "-", "--title", p.s.request(p.t).Title, "--session", p.s.Name)
		return o
	case "foreign":
		if o, _ := p.run("cancel", p.r.foreign); o.Error != "not_found" {
			return o
		}
		o, _ := p.run("wait", "appr_"+p.r.foreign)
		return o
	case "again":
		ask = append(ask, "--id", "a9a1a9a1a9a1a9a1")
		_, first := p.run(ask...)
		_, second := p.run(ask...)
		o, _ := p.run(append(ask, "--data", `{"a":2}`)...)
		o.Same = id(first) != "" && id(first) == id(second)
		return o
	}
	_, out := p.run(ask...)
	asked := id(out)
	if p.s.Do == "late" {
		if o, _ := p.run("wait", asked); o.Error != "" {
			return o
		}
		o, _ := p.run("cancel", asked)
		return o
	}
	for range 2 {
		if o, _ := p.run("cancel", asked); o.Error != "" {
			return o
		}
	}
	o, _ := p.run("wait", asked)
	return o
}
