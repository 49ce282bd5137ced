package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/watcher"
)

const (
	killWorkspace = "w"
	killMark      = "PERMESSO_E2E_MARK"
	maxOpen       = 32                   // open requests at once
	pace          = 4 * time.Millisecond // between two requests

	startWarning = "agents running as this user" // in the log of a daemon that has started
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
	busy  map[string]bool                 // decisions that wait for an answer
	acked map[string]approval.Verdict     // decisions that Decide has acknowledged
	lost  map[string]*decide.Refusal      // decisions that Decide has refused
	seen  map[string]*approval.Response   // the first copy of each response
	errs  []error                         // errors other than refusals
	stats map[approval.Status]map[int]int // status → runs → how often

	kills, near, atOnce int // all, those for which an acknowledgement was awaited, and those within closeBy of it
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
		rig: p, t: t, counters: filepath.Join(p.dir, "counters"), asked: map[string]plan{}, busy: map[string]bool{}, acked: map[string]approval.Verdict{},
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
	h, keys, err := home.Open(p.console())
	require.NoError(p.t, err)
	return h.Decider(keys)
}

// console is that of a command line in this process.
func (p *rig) console() *console.Console {
	return &console.Console{Env: os.Getenv, Err: io.Discard, ConfigFlag: p.config, HomeFlag: p.layout.Home}
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
			k.submit(client.NewID(), randomPlan(r))
		}
	}
}

func (k *killRig) open() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked) - len(k.seen)
}

func (k *killRig) submit(id string, p plan) {
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
		if k.seen[id] == nil {
			k.seen[id] = r
		}
		k.mu.Unlock()
	}
}

// decideLoop decides pending requests until ctx ends, as a host program that puts decisions
// into the slots while a daemon is ready.
func (k *killRig) decideLoop(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, id := range k.pendingIDs() {
			if p, ok := k.claim(id); ok && ctx.Err() == nil {
				k.decideOne(ctx, k.decider, id, p)
			}
		}
	}
}

func (k *killRig) pendingIDs() (ids []string) {
	names, err := os.ReadDir(k.layout.Pendings(killWorkspace))
	k.addError(err)
	for _, n := range names {
		if id, ok := strings.CutSuffix(n.Name(), ".json"); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// claim returns what is to be decided about a request, if nothing has been.
func (k *killRig) claim(id string) (plan, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.asked[id]
	if p.verdict == "" || k.busy[id] || k.acked[id] != "" || k.lost[id] != nil {
		return p, false
	}
	k.busy[id] = true
	return p, true
}

// entrance takes decisions: in a slot, or over the daemon's socket.
type entrance interface {
	Decide(ctx context.Context, a decide.Input) (*approval.Decision, error)
}

// decideOne decides a claimed request as planned, and reports whether that was acknowledged.
func (k *killRig) decideOne(ctx context.Context, at entrance, id string, p plan) bool {
	code := map[approval.Verdict]string{approval.Approved: "1", approval.Denied: "3"}[p.verdict]
	_, err := at.Decide(ctx, decide.Input{
		Key: approval.Key{Workspace: killWorkspace, ID: id}, Verdict: p.verdict, Code: code, By: home.Operator(), Via: "cli",
	})
	var refused *decide.Refusal
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.busy, id)
	switch {
	case err == nil:
		k.acked[id] = p.verdict
	case errors.Is(err, store.ErrUnavailable):
		// No daemon is ready: nothing is acknowledged, and the decision is tried again.
	case errors.As(err, &refused):
		k.lost[id] = refused
	default:
		k.errs = append(k.errs, err)
	}
	return err == nil
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

// killCounts are how many kills are made at least, and how many of them within closeBy of an
// acknowledgement. A sample has a twentieth of both, and 60 kills at any moment.
func killCounts() (all, atOnce int) {
	if os.Getenv("PERMESSO_SOAK") == "" {
		return 60 + 15, 5
	}
	return 300, 100
}

// killAnytime kills the daemon at a random moment of its start or of its work, and returns 1 if a
// handler was running.
func (k *killRig) killAnytime(d *daemonProcess, random *rand.Rand) int {
	switch random.IntN(4) {
	case 0: // it may start a handler, which a slow machine has not done 150 ms after the start
		d.awaitLog(startWarning)
		id := client.NewID()
		k.submit(id, plan{tool: "free_long"})
		await(k.t, filepath.Join(k.counters, id), func() bool { return len(survivors(k.t, k.dir)) > 1 })
	case 1: // it may finish its start
		d.awaitLog(startWarning)
	}
	time.Sleep(5*time.Millisecond + time.Duration(random.IntN(145))*time.Millisecond)
	running := min(1, len(survivors(k.t, k.dir))-1) // the daemon itself has the mark
	d.kill()
	return max(0, running)
}

// TestRealKills kills the real daemon many times, at random moments and as soon as it has
// acknowledged something, while requests are submitted and decided.
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
	all, atOnce := killCounts()
	for ; (k.kills < all || k.atOnce < atOnce) && k.kills < 2*all; k.kills++ {
		d := k.serve(killMark + "=" + k.dir)
		switch {
		case k.atOnce*all > k.kills*atOnce:
			inFlight += k.killAnytime(d, random)
		case random.IntN(2) == 0:
			d.awaitLog(startWarning)
			k.killWhenDecided(d, random)
		default:
			d.awaitLog(startWarning)
			k.killWhenAnswered(d, random)
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
	k.addError(watcher.Await(last, k.agent.Responses, func() (bool, error) { k.readResponses(); return k.open() == 0, nil }))
	finish()
	work.Wait()
	d.stop()
	k.verify()
	t.Logf("%d requests, %d decisions; %d kills, %d of them hit a running handler at a random moment, %d of %d were within %v of an acknowledgement; status → runs: %v",
		len(k.asked), len(k.acked), k.kills, inFlight, k.atOnce, k.near, closeBy, k.stats)
	require.GreaterOrEqual(t, k.kills, all)
	require.GreaterOrEqual(t, k.atOnce, atOnce, "too few kills within %v of an acknowledgement", closeBy)
	require.Greater(t, len(k.asked), k.kills, "too few requests")
	require.NotZero(t, inFlight, "no kill hit a running handler")
	require.NotEmpty(t, k.acked, "no request was asked about and decided")
}
