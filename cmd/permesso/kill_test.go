package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/security/audit"
)

const (
	killWorkspace = "w"
	killMark      = "PERMESSO_E2E_MARK"
	maxOpen       = 32                   // open requests at once
	pace          = 4 * time.Millisecond // between two requests
)

// killConfig has handlers that count: each run adds one byte to the file of its
// request. "quick" only counts, "slow" sleeps before and after, "bad" fails after
// counting, and "long" does not exit by itself.
func killConfig(files map[string]string) string {
	var b strings.Builder
	b.WriteString(`log_level = "warn"
[workspaces.w]
limits = { pending = 10000, ask_per_minute = 100000, per_minute = 100000, running = 3 }
`)
	for how, file := range files {
		for prefix, outcome := range map[string]string{"free_": "allow", "ask_": "ask"} {
			fmt.Fprintf(&b, "[tools.%s]\npublic_source = false\nsecret_data = false\npublic_sink = false\ndangerous_writes = true\nhandler = { kind = \"command\", argv = [%q], env = [%q], timeout = \"5m\" }\n", prefix+how, file, killMark)
			fmt.Fprintf(&b, "[[rules]]\nmatch = { tool = %q }\noutcome = %q\n", prefix+how, outcome)
		}
	}
	return b.String()
}

// killRig is the state of one kill test.
type killRig struct {
	*rig
	t        testing.TB
	counters string
	decider  *gate.Decider

	mu    sync.Mutex
	asked map[string]plan                 // by request id
	acked map[string]approval.Verdict     // decisions that Decide has acknowledged
	lost  map[string]*decide.Refusal      // decisions that Decide has refused
	seen  map[string]*approval.Response   // the first copy of each response
	errs  []error                         // errors other than refusals
	stats map[approval.Status]map[int]int // status → runs → how often
}

// plan is what the test does with one request.
type plan struct {
	tool    string
	verdict approval.Verdict // "": no decision
	expires int              // seconds; 0: the workspace's timeout
	cancel  bool
}

func newKillRig(t testing.TB) *killRig {
	t.Helper()
	p := newRig(t, killWorkspace, "")
	p.plain = true
	k := &killRig{
		rig: p, t: t, counters: filepath.Join(p.dir, "counters"), asked: map[string]plan{}, acked: map[string]approval.Verdict{},
		lost: map[string]*decide.Refusal{}, seen: map[string]*approval.Response{}, stats: map[approval.Status]map[int]int{},
	}
	require.NoError(t, os.Mkdir(k.counters, 0o700))
	count := "dd if=/dev/zero of=" + k.counters + "/$PERMESSO_REQUEST_ID bs=1 count=1 oflag=append conv=notrunc,fsync status=none"
	files := map[string]string{
		"quick": p.script("quick", "exec "+count),
		"slow":  p.script("slow", "sleep 0.01; "+count+"; sleep 0.01"),
		"bad":   p.script("bad", count+"; exit 1"),
		"long":  p.script("long", count+"; [ -e "+p.dir+"/finish ] || exec sleep 600"),
	}
	require.NoError(t, os.WriteFile(p.config, []byte(killConfig(files)), 0o600))
	code, _, stderr := p.run("", "init")
	require.Equal(t, console.ExitOK, code, stderr)
	k.decider = p.decider()
	return k
}

// decider is the decider of a command line, in this process. Another test kills
// commands.
func (p *rig) decider() *gate.Decider {
	p.t.Helper()
	a := &app{&console.Console{Env: os.Getenv, ConfigFlag: p.config, HomeFlag: p.layout.Home}}
	h, keys, err := home.Open(a.Console)
	require.NoError(p.t, err)
	return h.Decider(keys)
}

// randomPlan draws the next request.
func randomPlan(r *rand.Rand) plan {
	how := []string{"quick", "slow", "quick", "slow", "quick", "slow", "bad", "bad", "quick", "long"}[r.IntN(10)]
	switch r.IntN(8) {
	case 0, 1, 2:
		return plan{tool: "free_" + how}
	case 3, 4:
		return plan{tool: "ask_" + how, verdict: approval.Approved}
	case 5:
		return plan{tool: "ask_" + how, verdict: approval.Denied}
	case 6:
		return plan{tool: "ask_" + how, expires: 1, verdict: []approval.Verdict{"", approval.Approved}[r.IntN(2)]}
	}
	return plan{tool: "ask_" + how, cancel: true}
}

// submitLoop submits requests until ctx ends.
func (k *killRig) submitLoop(ctx context.Context, r *rand.Rand) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		k.readResponses()
		if k.open() < maxOpen {
			k.submit(randomPlan(r))
		}
	}
}

func (k *killRig) open() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked) - len(k.seen)
}

func (k *killRig) submit(p plan) {
	id := client.NewID()
	body := fmt.Sprintf(`{"request_id":%q,"tool_name":%q,"expires_in_sec":%d}`, id, p.tool, p.expires)
	k.mu.Lock()
	k.asked[id] = p
	k.mu.Unlock()
	err := k.agent.Submit(id, []byte(body))
	if err == nil && p.cancel {
		err = k.agent.CancelByID(id)
	}
	k.addError(err)
}

func (k *killRig) addError(err error) {
	if err == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
}

// readResponses reads new responses.
func (k *killRig) readResponses() {
	names, err := os.ReadDir(k.agent.Responses)
	k.addError(err)
	for _, n := range names {
		id, ok := strings.CutSuffix(n.Name(), ".json")
		k.mu.Lock()
		known := k.seen[id] != nil
		k.mu.Unlock()
		if !ok || known || strings.HasPrefix(id, ".") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(k.agent.Responses, n.Name()))
		k.addError(err)
		r, err := approval.ParseResponse(b)
		k.addError(err)
		k.mu.Lock()
		k.seen[id] = r
		k.mu.Unlock()
	}
}

// decideLoop decides pending requests until ctx ends, like an operator at the
// command line: whether or not a daemon runs.
func (k *killRig) decideLoop(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		names, err := os.ReadDir(k.layout.Pendings(killWorkspace))
		k.addError(err)
		for _, n := range names {
			if id, ok := strings.CutSuffix(n.Name(), ".json"); ok && ctx.Err() == nil {
				k.decideOne(ctx, id)
			}
		}
	}
}

func (k *killRig) decideOne(ctx context.Context, id string) {
	k.mu.Lock()
	p, ok := k.asked[id]
	done := k.acked[id] != "" || k.lost[id] != nil
	k.mu.Unlock()
	if !ok || done || p.verdict == "" {
		return
	}
	code := map[approval.Verdict]string{approval.Approved: "1", approval.Denied: "3"}[p.verdict]
	_, err := k.decider.Decide(ctx, decide.Input{
		Key: approval.Key{Workspace: killWorkspace, ID: id}, Verdict: p.verdict, Code: code, By: home.Operator(), Via: "cli",
	})
	var refused *decide.Refusal
	if errors.As(err, &refused) {
		err = nil
	}
	k.addError(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case refused != nil:
		k.lost[id] = refused
	case err == nil:
		k.acked[id] = p.verdict
	}
}

// survivors are the processes with the mark in their environment: the handlers and
// their children.
func survivors(t testing.TB, mark string) (list []string) {
	t.Helper()
	pids, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, p := range pids {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", p.Name(), "environ"))
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+killMark+"="+mark+"\x00") {
			cmdline, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
			list = append(list, p.Name()+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return list
}

// awaitNoHandlers waits until every handler is killed. The long ones do not exit by
// themselves.
func (k *killRig) awaitNoHandlers() {
	k.t.Helper()
	require.Eventually(k.t, func() bool { return len(survivors(k.t, k.dir)) == 0 }, time.Minute, 2*time.Millisecond, "handlers outlive their daemon")
}

func killRounds() int {
	if os.Getenv("PERMESSO_SOAK") == "" {
		return 60
	}
	return 200
}

// TestRealKills kills the real daemon many times at random moments, while requests
// are submitted and decided.
func TestRealKills(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random, k := rand.New(rand.NewPCG(seed, 0)), newKillRig(t)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { k.submitLoop(ctx, rand.New(rand.NewPCG(seed, 1))) })
	work.Go(func() { k.decideLoop(ctx) })
	inFlight := 0
	for round := range killRounds() {
		d := k.serve(killMark + "=" + k.dir)
		if round%2 == 0 { // every other daemon may finish its start
			d.awaitLog("agents running as this user")
		}
		time.Sleep(5*time.Millisecond + time.Duration(random.IntN(145))*time.Millisecond)
		if len(survivors(t, k.dir)) > 1 { // the daemon itself has the mark
			inFlight++
		}
		d.kill()
		k.awaitNoHandlers()
	}
	stop()
	work.Wait()
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "finish"), nil, 0o600))

	d := k.serve(killMark + "=" + k.dir)
	last, finish := context.WithTimeout(t.Context(), testTimeout)
	defer finish()
	work.Go(func() { k.decideLoop(last) })
	await(t, k.agent.Responses, func() bool { k.readResponses(); return k.open() == 0 })
	finish()
	work.Wait()
	d.stop()
	k.verify()
	t.Logf("%d requests, %d decisions, %d of %d kills hit a running handler; status → runs: %v",
		len(k.asked), len(k.acked), inFlight, killRounds(), k.stats)
	require.Greater(t, len(k.asked), killRounds(), "too few requests")
	require.NotZero(t, inFlight, "no kill hit a running handler")
	require.NotEmpty(t, k.acked, "no request was asked about and decided")
}

// verify compares the responses with what has happened.
func (k *killRig) verify() {
	require.Empty(k.t, k.errs)
	for id, p := range k.asked {
		r := k.seen[id]
		require.NotNil(k.t, r, "%s has no response", id)
		k.verifyRuns(id, p, r)
		k.verifyDecision(id, p, r)
		now, err := k.agent.Await(k.t.Context(), client.Submitted{ID: id})
		require.NoError(k.t, err)
		require.Equal(k.t, r.Status, now.Status, "%s changed its outcome", id)
		require.Equal(k.t, r.RespondedAt, now.RespondedAt, "%s changed its outcome", id)
	}
	k.verifyFolders()
}

func (k *killRig) verifyRuns(id string, p plan, r *approval.Response) {
	runs := 0
	if b, err := os.ReadFile(filepath.Join(k.counters, id)); !errors.Is(err, fs.ErrNotExist) {
		require.NoError(k.t, err)
		runs = len(b)
	}
	if k.stats[r.Status] == nil {
		k.stats[r.Status] = map[int]int{}
	}
	k.stats[r.Status][runs]++
	switch r.Status {
	case approval.StatusApproved, approval.StatusAutoApproved:
		require.Equal(k.t, 1, runs, "%s %v: the response says that it ran once", id, p)
	case approval.StatusInterrupted, approval.StatusFailed:
		require.LessOrEqual(k.t, runs, 1, "%s %v ran more than once", id, p)
	default:
		require.Zero(k.t, runs, "%s %v ended as %s, and ran", id, p, r.Status)
	}
}

// verifyDecision requires that acknowledged decisions hold.
func (k *killRig) verifyDecision(id string, p plan, r *approval.Response) {
	ran := []approval.Status{approval.StatusApproved, approval.StatusFailed, approval.StatusInterrupted}
	expected := map[approval.Verdict][]approval.Status{
		approval.Approved: append(ran, approval.StatusExpired), // approved in time, but the daemon was down past run_before
		approval.Denied:   {approval.StatusDenied},
	}
	switch verdict := k.acked[id]; {
	case verdict != "":
		require.Contains(k.t, expected[verdict], r.Status, "%s %v was acknowledged as %s", id, p, verdict)
		if r.Status == approval.StatusExpired {
			require.Contains(k.t, *r.Error, "approved in time")
		}
	case strings.HasPrefix(p.tool, "free_"):
		require.Contains(k.t, []approval.Status{approval.StatusAutoApproved, approval.StatusInterrupted, approval.StatusFailed, approval.StatusCancelled}, r.Status, "%s %v", id, p)
	default:
		// No decision, or one that Decide stored and then reported as too late.
		require.NotContains(k.t, append(ran, approval.StatusDenied), r.Status, "%s %v: no decision was acknowledged; Decide returned %v", id, p, k.lost[id])
	}
}

// verifyFolders requires that at the end only responses and records are left, and
// that the log has an entry for every run.
func (k *killRig) verifyFolders() {
	l := k.layout
	for _, dir := range []string{l.Requests(killWorkspace), l.Pendings(killWorkspace), l.Decisions(killWorkspace), l.Receipts(killWorkspace), l.Errors(killWorkspace)} {
		names, err := os.ReadDir(dir)
		require.NoError(k.t, err)
		require.Empty(k.t, names, "left in %s", dir)
	}
	claimed := map[string]bool{}
	require.NoError(k.t, audit.Entries(ipc.OS(), l.Audit(), func(e event.Entry) error {
		if e.Event == event.Approved || e.Event == event.AutoApproved {
			claimed[e.RequestID] = true
		}
		return nil
	}))
	counted, err := os.ReadDir(k.counters)
	require.NoError(k.t, err)
	for _, c := range counted {
		require.True(k.t, claimed[c.Name()], "%s ran without an entry in the log", c.Name())
	}
}

// TestRealKillsOfTheCommandLine kills permesso approve at random moments, with and
// without a daemon. The next command must be able to decide.
func TestRealKillsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	const each = 50
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random, h := rand.New(rand.NewPCG(seed, 0)), newRig(t, "default", "[workspaces.default]\nlimits = { pending = 200, ask_per_minute = 1000 }\n"+askAll)
	h.plain = true
	d := h.serve()
	var ids []string
	for range 2 * each {
		ids = append(ids, h.ask(`{"tool_name":"say"}`))
	}
	for _, id := range ids {
		h.awaitPending("default", id)
	}
	d.stop()
	began := time.Now()
	code, _, stderr := h.run("", "pending")
	require.Equal(t, console.ExitOK, code, stderr)
	maxDelay := time.Since(began) * 5 / 4 // a little more than a command takes
	tally := map[int]int{}
	for i, id := range ids {
		if i == each {
			d = h.serve()
			d.awaitLog(`"serving"`)
		}
		cmd := h.command("approve", id)
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(random.Int64N(int64(maxDelay))))
		_ = cmd.Process.Kill() // it may have exited
		_ = cmd.Wait()
		code, _, stderr := h.run("", "approve", id)
		tally[code]++
		if code != console.ExitOK { // the killed command had already decided
			require.Equal(t, console.ExitRefused, code, stderr)
			require.Contains(t, stderr, "already decided: approved by operator:")
		}
	}
	for _, id := range ids {
		require.Equal(t, approval.StatusApproved, h.response(id).Status)
	}
	d.stop()
	names, err := os.ReadDir(h.layout.Decisions("default"))
	require.NoError(t, err)
	for _, n := range names { // the next start removes the temporary files of killed writers
		require.True(t, strings.HasPrefix(n.Name(), ".tmp-"), n.Name())
	}
	d = h.serve()
	d.awaitLog(`"serving"`)
	d.stop()
	names, err = os.ReadDir(h.layout.Decisions("default"))
	require.NoError(t, err)
	require.Empty(t, names)
	t.Logf("afterwards: %d approved, %d were already", tally[console.ExitOK], tally[console.ExitRefused])
	require.NotZero(t, tally[console.ExitOK], "no command was killed before its decision")
}
