package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/audit"
)

// The daemon prunes at these intervals.
const (
	firstPrune = 10 * time.Minute // after the start, which has more urgent work
	everyPrune = time.Hour
	batchDelay = time.Second // batches
)

// pruneResult is what prune --json prints.
type pruneResult struct {
	DryRun     bool                   `json:"dry_run"`
	Running    bool                   `json:"running"` // a daemon, which prunes by itself
	Held       string                 `json:"held"`    // why nothing is removed yet; "" if nothing prevents it
	Workspaces map[string]gate.Pruned `json:"workspaces,omitempty"`
	Total      gate.Pruned            `json:"total"`
}

// PruneDry counts what Prune would remove.
func PruneDry(ctx context.Context, a *console.Console) error {
	h, k, err := home.Open(a)
	if err != nil {
		return err
	}
	now := time.Now()
	res := pruneResult{DryRun: true}
	if res.Running, err = h.Served(); err != nil {
		return err
	}
	p := &gate.Pruner{
		Store: h.Store, Seal: k.Seal,
		Responses: h.Config.Retention.Responses, Records: h.Config.Retention.Records,
	}
	res.Workspaces, err = p.Count(ctx, now, a.Progress(ctx, "counting"))
	a.Status("")
	if err != nil {
		return err
	}
	for _, n := range res.Workspaces {
		res.Total.Add(n)
	}
	if err := audit.CheckClock(h.FS, h.Layout.Audit(), now); err != nil && !res.Total.IsZero() {
		res.Held = err.Error()
	}
	if a.JSON {
		return a.Print(res, "")
	}
	printPrunable(a, res)
	return nil
}

func printPrunable(a *console.Console, res pruneResult) {
	t := a.Table("WORKSPACE", "RECORDS", "RESPONSES", "MARKERS", "DESCRIPTIONS", "SIZE")
	line := func(name string, n gate.Pruned) {
		t.Row(name, fmt.Sprint(n.Records), fmt.Sprint(n.Responses), fmt.Sprint(n.Markers), fmt.Sprint(n.Refusals), sizeOf(n.Bytes))
	}
	for _, ws := range slices.Sorted(maps.Keys(res.Workspaces)) {
		line(ws, res.Workspaces[ws])
	}
	line("all", res.Total)
	t.Print()
	if res.Held != "" {
		a.Say("Nothing would be removed now: %s.", res.Held)
	}
}

func sizeOf(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// served reports whether a daemon runs. It needs no configuration, and creates no lock file.
func served(a *console.Console) (bool, error) {
	h, err := home.Existing(a)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(h.Layout.Lock()); err != nil {
		return false, nil //nolint:nilerr // no daemon has run there
	}
	return h.Served()
}

// Prune removes what is older than its retention, unless a daemon runs. trust skips
// the check of the clock.
func Prune(ctx context.Context, a *console.Console, trust bool) error {
	running, err := served(a)
	if err != nil {
		return err
	}
	if running {
		return a.Print(pruneResult{Running: true}, "The daemon is running. It prunes every hour.")
	}
	h, _, err := home.Open(a)
	if err != nil {
		return err
	}
	if err := audit.CheckClock(h.FS, h.Layout.Audit(), time.Now()); err != nil && !trust {
		if _, jumped := errors.AsType[*audit.ClockJump](err); !jumped {
			return err
		}
		return console.Fail(console.ExitRefused, "if the clock is right, use permesso prune --trust-clock", "nothing was removed: %w", err)
	}
	s, err := openInline(ctx, h, a, "warn")
	if err != nil {
		return err
	}
	n, err := s.gate.Prune(ctx, a.Progress(ctx, "pruning"))
	a.Status("")
	if err := errors.Join(err, s.close()); err != nil {
		return err
	}
	return a.Print(pruneResult{Total: n}, fmt.Sprintf("removed %d records, %d responses, %d markers and %d descriptions: %s",
		n.Records, n.Responses, n.Markers, n.Refusals, sizeOf(n.Bytes)))
}

// openInline locks and opens a home for work that is done once, without a running daemon.
func openInline(ctx context.Context, h *home.Home, a *console.Console, level string) (*server, error) {
	s := &server{Home: h, app: a, rounds: map[string]int{}, changes: make(chan approval.Key, 1)}
	s.log, s.logWriter = NewLog(a.Err, level, h.Config.LogFormat)
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	s.gate.Inline = true
	return s, nil
}

// pruner prunes while the daemon runs.
type pruner struct {
	gate   *gate.Gate
	steady func(now time.Time) error // an error if the clock is not trusted
	note   func(event.Entry)
	now    func() time.Time
	wait   func(context.Context, time.Duration) error
	log    zerolog.Logger

	heldSince *time.Time // start of the log gap that was reported
}

// runPruner runs the pruner until ctx ends.
func (s *server) runPruner(ctx context.Context) {
	p := &pruner{
		gate: s.gate, note: s.audit.Note, now: time.Now, log: s.log,
		wait: func(ctx context.Context, d time.Duration) error {
			if !s.Store.Held() {
				return errHomeGone
			}
			return home.Sleep(ctx, d)
		},
		steady: func(now time.Time) error { return audit.CheckClock(s.FS, s.Layout.Audit(), now) },
	}
	p.run(ctx)
}

func (p *pruner) run(ctx context.Context) {
	for next := firstPrune; p.wait(ctx, next) == nil; next = everyPrune {
		p.round(ctx)
	}
}

// round prunes once, in batches, if the clock is trusted.
func (p *pruner) round(ctx context.Context) {
	rest := func() error { return p.wait(ctx, batchDelay) }
	var leap *audit.ClockJump
	if err := p.steady(p.now()); errors.As(err, &leap) {
		p.reportHold(leap, rest)
		return
	} else if err != nil {
		p.log.Error().Err(err).Msg("prune skipped: compare clock with the audit log failed")
		return
	}
	p.heldSince = nil
	n, err := p.gate.Prune(ctx, rest)
	switch {
	case ctx.Err() != nil: // the next start continues
	case err != nil:
		p.log.Error().Err(err).Msg("prune failed")
	case !n.IsZero():
		p.log.Info().Int("records", n.Records).Int("responses", n.Responses).Int64("bytes", n.Bytes).Msg("pruned")
	}
}

// reportHold reports once that pruning is on hold, if there is something to prune. Its
// audit entry ends the gap of an otherwise silent log.
func (p *pruner) reportHold(leap *audit.ClockJump, rest func() error) {
	if p.heldSince != nil && p.heldSince.Equal(leap.From) {
		return
	}
	counts, err := p.gate.Pruner().Count(context.Background(), p.now(), rest)
	if err != nil {
		return // retried in the next round
	}
	var all gate.Pruned
	for _, n := range counts {
		all.Add(n)
	}
	if all.IsZero() {
		return
	}
	p.heldSince = &leap.From
	p.log.Warn().Err(leap).Int("records", all.Records).Int("responses", all.Responses).
		Msg("prune on hold: gap in the audit log, the clock may be wrong; pruning continues after a day")
	p.note(event.Entry{
		Time: p.now().UTC(), Event: event.Pruned, Reason: leap.Error(), Detail: "on hold: the clock is not trusted for a day",
	})
}

// Sweep processes due work once. The daemon must be stopped.
func Sweep(a *console.Console) error {
	h, _, err := home.Open(a)
	if err != nil {
		return err
	}
	s, err := openInline(context.Background(), h, a, h.Config.LogLevel)
	if err != nil {
		return err
	}
	moved := 0
	var stepErr error
	for _, k := range s.pending {
		if _, err := s.gate.Step(context.Background(), k); err != nil {
			stepErr = errors.Join(stepErr, fmt.Errorf("%s: %w", k, err))
			continue
		}
		moved++
	}
	problem, degraded := s.gate.Degraded()
	if err := errors.Join(stepErr, s.close()); err != nil {
		return err
	}
	if degraded {
		return console.Fail(console.ExitError, problem.Hint, "some requests are not settled: %s", problem.Reason)
	}
	return a.Print(map[string]int{"looked_at": moved}, fmt.Sprintf("processed %d requests", moved))
}
