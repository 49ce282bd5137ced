package gate_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/seal"
)

// If this variable is set, the test binary is a decider process.
const deciderEnv = "PERMESSO_TEST_DECIDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(deciderEnv); dir != "" {
		if err := decideFor(dir, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// decideFor reads lines "name verdict id", decides, and writes one result line each.
func decideFor(dir string, in io.Reader, out io.Writer) error {
	layout := ipc.Layout{Home: dir}
	key, err := seal.Load(ipc.OS(), layout.Keys())
	if err != nil {
		return err
	}
	d := &gate.Decider{Store: &ipc.Store{FS: ipc.OS(), Layout: layout}, Seal: key, May: localOnly, RunBefore: func() time.Duration { return 24 * time.Hour }}
	scan := bufio.NewScanner(in)
	fmt.Fprintln(out, "ready")
	for scan.Scan() {
		f := strings.Fields(scan.Text())
		a := decision(approval.Key{Workspace: personal, ID: f[2]}, approval.Verdict(f[1]))
		a.By = person(f[0])
		_, err := d.Decide(context.Background(), a)
		fmt.Fprintln(out, describeResult(err))
	}
	return scan.Err()
}

// describeResult is the result of a decider: "won", the first decision, or an
// unexpected error.
func describeResult(err error) string {
	var ref *decide.Refusal
	switch {
	case err == nil:
		return "won"
	case !errors.As(err, &ref):
		return "error " + err.Error()
	case ref.By == "" || ref.Verdict == "" || !errors.Is(err, decide.ErrDecided) && !errors.Is(err, decide.ErrTooLate):
		return "refusal without details: " + ref.Error()
	}
	return ref.By + " " + string(ref.Verdict)
}

// contender is one decision that competes for the slot.
type contender struct {
	name    string
	verdict approval.Verdict
	decide  func(k approval.Key) string // "" for the agent and the deadline
}

// race runs all contenders at once, and compares the outcome with their results.
func (h *rig) race(k approval.Key, contenders []contender) (winner string) {
	h.writeRequest(k, request(k, "run", ""))
	h.gate.Wake(k)
	h.waitFor(10*time.Second, "pending", func() bool { return h.has(approval.DocPending, k) })
	results := make([]string, len(contenders))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, r := range contenders {
		wg.Go(func() {
			<-start
			results[i] = r.decide(k)
			h.gate.Wake(k)
		})
	}
	close(start)
	wg.Wait()
	h.waitResponse(k, 10*time.Second)
	h.waitFor(10*time.Second, "rest", func() bool { return h.isSettled(k) })

	resp := h.response(k)
	by := *resp.Decision.By
	var first contender
	for _, r := range contenders {
		if r.name == by {
			first = r
		}
	}
	require.Equal(h.t, by, first.name, "one of the contenders")
	for i, r := range contenders {
		switch {
		case results[i] == "": // agent and deadline only read the response
		case r.name == by:
			require.Equal(h.t, "won", results[i], r.name)
		default:
			require.Equal(h.t, by+" "+string(first.verdict), results[i], "result of %s", r.name)
		}
	}
	require.Equal(h.t, first.verdict, approval.Verdict(resp.Status), "the outcome is the first verdict")
	ran := 0
	if first.verdict == approval.Approved {
		ran = 1
	}
	require.Len(h.t, h.executor.argsOf(k), ran)
	return by
}

// gateContenders are the agent's cancel and the deadline. The gate decides for both.
func (h *rig) gateContenders() []contender {
	return []contender{
		{"agent", approval.Cancelled, func(k approval.Key) string {
			h.cancel(k)
			return ""
		}},
		{"deadline", approval.Expired, func(approval.Key) string {
			h.clock.set(time.Minute) // less than a receipt's lifetime
			return ""
		}},
	}
}

func (h *rig) inProcess(name string, v approval.Verdict) contender {
	return contender{name, v, func(k approval.Key) string {
		d := h.decider()
		d.Now, d.RunBefore = nil, func() time.Duration { return 24 * time.Hour } // the gate's clock is ahead
		a := decision(k, v)
		a.By = person(name)
		_, err := d.Decide(context.Background(), a)
		return describeResult(err)
	}}
}

// withJitter delays each contender at random, so that the winner varies: people by up
// to people, the gate's by up to gate.
func withJitter(rng *rand.Rand, people, gate time.Duration, contenders []contender) []contender {
	for i, r := range contenders {
		most := gate
		if r.verdict == approval.Approved || r.verdict == approval.Denied {
			most = people
		}
		pause := time.Duration(rng.Int64N(int64(most)))
		contenders[i].decide = func(k approval.Key) string {
			time.Sleep(pause)
			return r.decide(k)
		}
	}
	return contenders
}

func TestOneSlotManyGoroutines(t *testing.T) {
	t.Parallel()
	h := newRig(t, options{timeout: time.Minute, limits: approval.Limits{PerMinute: 10_000, AskPerMinute: 10_000}})
	h.run(0)
	rng, won := rand.New(rand.NewPCG(1, 2)), map[string]int{}
	for n := range 400 {
		h.clock.set(0)
		contenders := append(h.gateContenders(), h.inProcess("ann", approval.Approved), h.inProcess("bob", approval.Denied), h.inProcess("cyd", approval.Approved))
		won[h.race(key(n), withJitter(rng, 1600*time.Microsecond, 400*time.Microsecond, contenders))]++
	}
	t.Log(won)
	require.Len(t, won, 5, "every contender wins some: %v", won)
}

func TestOneSlotManyProcesses(t *testing.T) {
	t.Parallel()
	h := newRig(t, options{timeout: time.Minute, limits: approval.Limits{PerMinute: 10_000, AskPerMinute: 10_000}})
	h.run(0)
	ann, bob := h.process("ann", approval.Approved), h.process("bob", approval.Denied)
	rng, won := rand.New(rand.NewPCG(3, 4)), map[string]int{}
	for n := range 100 {
		h.clock.set(0)
		contenders := append(h.gateContenders(), ann, bob, h.inProcess("cyd", approval.Approved))
		won[h.race(key(n), withJitter(rng, time.Millisecond, 8*time.Millisecond, contenders))]++ // a decider first waits for the disk
	}
	t.Log(won)
	require.NotZero(t, won["ann"]+won["bob"], "other processes win some: %v", won)
	require.Greater(t, len(won), 2)
}

// process is a decider in another process, one line per decision.
func (h *rig) process(name string, v approval.Verdict) contender {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), deciderEnv+"="+h.layout.Home)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(h.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	require.NoError(h.t, cmd.Start())
	h.t.Cleanup(func() {
		require.NoError(h.t, in.Close())
		require.NoError(h.t, cmd.Wait())
	})
	lines := bufio.NewScanner(out)
	require.True(h.t, lines.Scan(), "started")
	return contender{name, v, func(k approval.Key) string {
		fmt.Fprintln(in, name, v, k.ID)
		if !lines.Scan() {
			return "error: the process ended"
		}
		return lines.Text()
	}}
}
