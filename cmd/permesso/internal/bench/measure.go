package main

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

type aferoFile = afero.File

const rounds = 200

func (r *rig) approve(id string) error {
	_, err := r.decider.Decide(context.Background(), approval.DecisionInput{
		Key: approval.Key{Workspace: workspace, ID: id}, Verdict: approval.Approved, Code: "1", Via: "bench",
		By: approval.Person{Channel: "local", ID: "0", Name: "bench"},
	})
	return err
}

// decided submits and approves requests one by one. It returns the times from the
// gate's read of the decision to the visible response, and the syncs per request.
func (b *bench) decided(tool string) (took []time.Duration, syncs float64, err error) {
	r, err := b.newRig("latency-" + tool)
	if err != nil {
		return nil, 0, err
	}
	if err := r.start(); err != nil {
		return nil, 0, err
	}
	defer r.stopAndReport()
	total := int64(0)
	for n := range rounds {
		id := id(n)
		if err := r.writeRequest(id, tool); err != nil {
			return nil, 0, err
		}
		if err := waitFor("request pending", func() bool { return r.exists("pending_approvals", id) && !r.exists("requests", id) }); err != nil {
			return nil, 0, err
		}
		if err := r.approve(id); err != nil {
			return nil, 0, err
		}
		before := r.fs.syncs.Load()
		if err := waitFor("settled", func() bool { return !r.exists("pending_approvals", id) }); err != nil {
			return nil, 0, err
		}
		total += r.fs.syncs.Load() - before
		seen, out := r.store.times(id)
		took = append(took, out.Sub(seen))
	}
	return took, float64(total) / rounds, nil
}

func (b *bench) latencyNone() error {
	took, syncs, err := b.decided("none")
	if err != nil {
		return err
	}
	p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
	b.add("decision read → response visible, none, p50", b.inUnits(p50), "≤ 3 u", b.inU(p50) <= 3)
	b.add("decision read → response visible, none, p99", b.inUnits(p99), "", true)
	// The first fsync of the claim may end before the counter is read.
	b.add("fsyncs from decision to settled, at most", fmt.Sprintf("%.1f", syncs), "≤ 7", syncs <= 7)
	return nil
}

func (b *bench) latencyCommand() error {
	took, _, err := b.decided("true")
	if err != nil {
		return err
	}
	p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
	b.add("decision read → response visible, /bin/true, p50", b.inUnits(p50), "≤ 6 u", b.inU(p50) <= 6)
	b.add("decision read → response visible, /bin/true, p99", b.inUnits(p99), "", true)
	return nil
}

func (b *bench) latencyAllow() error {
	r, err := b.newRig("allow")
	if err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	defer r.stopAndReport()
	var took []time.Duration
	for n := range rounds {
		began := time.Now()
		if err := r.writeRequest(id(n), "allowed"); err != nil {
			return err
		}
		if err := waitFor("settled", func() bool { _, out := r.store.times(id(n)); return !out.IsZero() }); err != nil {
			return err
		}
		_, out := r.store.times(id(n))
		took = append(took, out.Sub(began))
	}
	p50 := quantile(took, 0.5)
	b.add("allowed request → response visible, p50", b.inUnits(p50), "", true)
	return nil
}

// perSecond formats a rate with the cost of each in u.
func (b *bench) perSecond(rate float64) string {
	return fmt.Sprintf("%.0f/s, %.2f u each", rate, 1/rate/b.u.Seconds())
}

const burstSize = 1000

// burstOf measures the time from n decisions at once to the last visible response.
func (b *bench) burstOf(n int, name string, unsigned bool) (time.Duration, error) {
	r, err := b.newRig(name)
	if err != nil {
		return 0, err
	}
	r.unsigned = unsigned
	if err := r.writePendings(n, time.Hour, "none"); err != nil {
		return 0, err
	}
	if err := r.start(); err != nil {
		return 0, err
	}
	defer r.stopAndReport()
	time.Sleep(time.Second) // until the start-up sweep has ended
	show, err := r.writeDecisions(n)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := show(); err != nil {
		return 0, err
	}
	if err := waitFor("all settled", func() bool { return r.store.visibleCount() == n }); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// burst decides a thousand pending requests as fast as one process can.
func (b *bench) burst() error {
	took, err := b.burstOf(burstSize, "burst", false)
	if err != nil {
		return err
	}
	rate := burstSize / took.Seconds()
	b.add("approvals a second, 1,000 decided in a burst", b.perSecond(rate), "≥ 900/s", rate >= 900)
	return b.burstDecided()
}

// burstDecided is the burst including Decide, by 64 concurrent callers.
func (b *bench) burstDecided() error {
	const n = 1000
	r, err := b.newRig("burst-decided")
	if err != nil {
		return err
	}
	if err := r.writePendings(n, time.Hour, "none"); err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	defer r.stopAndReport()
	time.Sleep(time.Second)
	began := time.Now()
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				errs <- r.approve(id(i))
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	if err := waitFor("all settled", func() bool { return r.store.visibleCount() == n }); err != nil {
		return err
	}
	b.add("the same including Decide, 64 at once", b.perSecond(n/time.Since(began).Seconds()), "", true)
	return nil
}

// writePendings writes pendings as the gate does.
func (r *rig) writePendings(n int, left time.Duration, tool string) error {
	t := tools[tool]
	for i := range n {
		p := &approval.Pending{
			Version: approval.Version, RequestID: id(i), ShortID: approval.ShortID(id(i)), Type: approval.TypeAction,
			ToolName: tool, SourceGroup: workspace, RequestData: approval.Raw(`{"text":"Meeting at 5"}`),
			Timestamp: time.Now().UTC(), RequestSHA256: approval.Digest([]byte(id(i))), ToolSHA256: t.SHA256(),
			ClientID: "ws:" + workspace, ActionType: "custom:" + tool, Reversibility: approval.Irreversible,
			Ruling: approval.Ruling{Outcome: approval.Ask, Rule: "default"}, ExpiresAt: time.Now().Add(left).UTC(),
		}
		body, err := p.Encode()
		if err != nil {
			return err
		}
		k := approval.Key{Workspace: workspace, ID: id(i)}
		if err := r.store.Create(context.Background(), approval.DocPending, k, r.key.Seal(approval.DocPending, k, body), approval.Volatile); err != nil {
			return err
		}
	}
	return r.fs.SyncFS(r.layout.Home)
}

// writeDecisions writes approvals under temporary names. show renames all of them
// into their slots.
func (r *rig) writeDecisions(n int) (show func() error, err error) {
	dir := r.layout.Decisions(workspace)
	for i := range n {
		k := approval.Key{Workspace: workspace, ID: id(i)}
		pending, err := r.store.Read(context.Background(), approval.DocPending, k)
		if err != nil {
			return nil, err
		}
		d := &approval.Decision{
			Version: approval.Version, RequestID: k.ID, Approved: true, Verdict: approval.Approved, Code: "1", Scope: approval.Once,
			PendingSHA256: approval.Digest(pending), RunBefore: time.Now().Add(time.Hour).UTC(), DecidedBy: "bench", DecidedByID: "local:0",
			Via: "bench", DecidedAt: time.Now().UTC(),
		}
		body, err := d.Encode()
		if err != nil {
			return nil, err
		}
		file := r.key.Seal(approval.DocDecision, k, body)
		if err := os.WriteFile(filepath.Join(dir, ".planted-"+k.ID), file, 0o600); err != nil {
			return nil, err
		}
	}
	show = func() error {
		for i := range n {
			if err := os.Rename(filepath.Join(dir, ".planted-"+id(i)), filepath.Join(dir, id(i)+".json")); err != nil {
				return err
			}
		}
		return nil
	}
	return show, r.fs.SyncFS(r.layout.Home)
}

const sweepRequests = 10_000

func (b *bench) sweepFresh() error {
	r, err := b.newRig("fresh")
	if err != nil {
		return err
	}
	if err := r.writePendings(sweepRequests, time.Hour, "none"); err != nil {
		return err
	}
	began := time.Now()
	if err := r.start(); err != nil {
		return err
	}
	defer r.stopAndReport()
	if err := waitFor("sweep finished", r.gate.Idle); err != nil {
		return err
	}
	took := time.Since(began)
	b.add("start-up sweep of 10,000 pending", took.Round(time.Millisecond).String(), "≤ 0.3 s", took <= 300*time.Millisecond)
	return nil
}

func (b *bench) sweepExpired() error {
	r, err := b.newRig("expired")
	if err != nil {
		return err
	}
	if err := r.writePendings(sweepRequests, -time.Minute, "none"); err != nil {
		return err
	}
	before := r.fs.syncs.Load()
	began := time.Now()
	if err := r.start(); err != nil {
		return err
	}
	defer r.stopAndReport()
	if err := waitFor("sweep finished", func() bool { return r.store.visibleCount() == sweepRequests && r.gate.Idle() }); err != nil {
		return err
	}
	took := time.Since(began)
	b.add("start-up sweep of 10,000 expired", fmt.Sprintf("%v, %.2f u each", took.Round(time.Millisecond), b.inU(took)/sweepRequests), "≤ 5 s", took <= 5*time.Second)
	b.add("fsyncs of that sweep", strconv.FormatInt(r.fs.syncs.Load()-before, 10), "", true)
	return nil
}

// daemon starts the real program on the rig's home.
func (b *bench) daemon(r *rig, config string) (*osexec.Cmd, error) {
	file := filepath.Join(r.layout.Home, "permesso.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	c := osexec.Command(b.bin, "serve", "--home", r.layout.Home, "--config", file)
	c.Stderr = nil
	return c, c.Start()
}

func stopDaemon(c *osexec.Cmd) {
	_ = c.Process.Signal(os.Interrupt)
	_ = c.Wait()
}

func (b *bench) memory() error {
	r, err := b.newRig("memory")
	if err != nil {
		return err
	}
	if err := r.writePendings(sweepRequests, time.Hour, "none"); err != nil {
		return err
	}
	c, err := b.daemon(r, "[workspaces.default]\nlimits = { pending = 10000 }\n")
	if err != nil {
		return err
	}
	defer stopDaemon(c)
	time.Sleep(8 * time.Second) // the sweep, and a rescan
	kb, err := procField(c.Process.Pid, "status", "VmRSS:")
	if err != nil {
		return err
	}
	b.add("memory (RSS) with 10,000 pending", fmt.Sprintf("%.1f MB", float64(kb)/1024), "≤ 60 MB", kb <= 60*1024)
	return nil
}

func procField(pid int, file, name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/%s", name, pid, file)
}

func (b *bench) idle() error {
	const workspaces, watch = 1000, 60 * time.Second
	r, err := b.newRig("idle")
	if err != nil {
		return err
	}
	var config strings.Builder
	for i := range workspaces {
		fmt.Fprintf(&config, "[workspaces.w%d]\n", i)
	}
	c, err := b.daemon(r, config.String())
	if err != nil {
		return err
	}
	defer stopDaemon(c)
	time.Sleep(10 * time.Second)
	before, err := cpu(c.Process.Pid)
	if err != nil {
		return err
	}
	time.Sleep(watch)
	after, err := cpu(c.Process.Pid)
	if err != nil {
		return err
	}
	share := 100 * (after - before).Seconds() / watch.Seconds()
	b.add("processor of an idle daemon, 1,000 workspaces", fmt.Sprintf("%.2f %%", share), "< 1 %", share < 1)
	return nil
}

// start measures a command that does nothing but start and end.
func (b *bench) start() error {
	const runs, target = 20, 8 * time.Millisecond
	times := make([]time.Duration, runs)
	for i := range times {
		from := time.Now()
		if out, err := osexec.Command(b.bin, "--version").CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		times[i] = time.Since(from)
	}
	median := quantile(times, 0.5)
	b.add("permesso --version, the whole process", median.Round(10*time.Microsecond).String(), "≤ 8 ms", median <= target)
	return nil
}

// cpu returns the processor time of a process, from /proc/PID/stat: fields 14 and
// 15, in hundredths of a second.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
