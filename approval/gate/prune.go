package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
)

// Default retention.
const (
	DefaultResponseRetention = 7 * 24 * time.Hour
	DefaultRecordRetention   = 90 * 24 * time.Hour
)

// pruneBatch is how many keys are locked at once during a prune.
const pruneBatch = 64

// Pruned counts what was removed or would be removed.
type Pruned struct {
	Records   int   `json:"records"`
	Responses int   `json:"responses"`
	Refusals  int   `json:"descriptions"`
	Markers   int   `json:"markers"` // of redeemed receipts
	Bytes     int64 `json:"bytes"`
}

// Add adds o to p.
func (p *Pruned) Add(o Pruned) {
	p.Records += o.Records
	p.Responses += o.Responses
	p.Refusals += o.Refusals
	p.Markers += o.Markers
	p.Bytes += o.Bytes
}

// IsZero reports that there is nothing to remove.
func (p Pruned) IsZero() bool { return p.Records+p.Responses+p.Refusals+p.Markers == 0 }

// Pruner finds documents that are older than their retention. It changes nothing, and
// works with or without a daemon.
type Pruner struct {
	Store     store.Store
	Seal      sealer
	Responses time.Duration // since the request ended
	Records   time.Duration
}

// expiredFiles are the documents of one workspace that may be older than their
// retention, by file time.
type expiredFiles struct {
	keys               []approval.Key
	records, responses map[string]int64 // sizes
	markers            map[string]int64
}

// Count counts what a prune at now would remove, by workspace. It calls step now and
// then; an error from step ends it. step may be nil.
func (p *Pruner) Count(ctx context.Context, now time.Time, step func() error) (map[string]Pruned, error) {
	names, err := p.Store.Workspaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	counts := map[string]Pruned{}
	for _, ws := range names {
		n, err := p.count(ctx, ws, now, step)
		if err != nil {
			return nil, err
		}
		counts[ws] = n
	}
	return counts, nil
}

func (p *Pruner) count(ctx context.Context, ws string, now time.Time, step func() error) (n Pruned, err error) {
	a, err := p.findExpired(ctx, ws, now)
	if err != nil {
		return n, err
	}
	for i, k := range a.keys {
		if step != nil && i%pruneBatch == 0 {
			if err := step(); err != nil {
				return n, err
			}
		}
		record, response, err := p.expired(ctx, k, now)
		if err != nil {
			continue // a document that cannot be read is not removed
		}
		n.Add(a.total(k, record, response))
	}
	more, err := p.orphans(ctx, ws, a.markers, now, false)
	n.Add(more)
	return n, err
}

func (p *Pruner) findExpired(ctx context.Context, ws string, now time.Time) (a expiredFiles, err error) {
	for _, x := range []struct {
		doc    approval.Doc
		before time.Duration
		to     *map[string]int64
	}{
		{approval.DocRecord, p.Records, &a.records},
		{approval.DocResponse, p.Responses, &a.responses},
		{approval.DocRedeemed, p.Records, &a.markers},
	} {
		if *x.to, err = p.Store.OlderThan(ctx, x.doc, ws, now.Add(-x.before)); err != nil {
			return a, fmt.Errorf("list old %s documents of %s: %w", x.doc, ws, err)
		}
	}
	ids := maps.Clone(a.records)
	maps.Copy(ids, a.responses)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		a.keys = append(a.keys, approval.Key{Workspace: ws, ID: id})
	}
	return a, nil
}

func (a *expiredFiles) total(k approval.Key, record, response bool) (n Pruned) {
	if record {
		n.Records, n.Bytes = 1, a.records[k.ID]
		if size, redeemed := a.markers[k.ID]; redeemed {
			n.Markers, n.Bytes = 1, n.Bytes+size
		}
	}
	if response {
		n.Responses, n.Bytes = 1, n.Bytes+a.responses[k.ID]
	}
	return n
}

// expired returns which documents of a key are older than their retention. The time
// comes from the record: without a record that verifies, nothing is removed.
func (p *Pruner) expired(ctx context.Context, k approval.Key, now time.Time) (record, response bool, err error) {
	rec, err := p.record(ctx, k)
	if rec == nil || err != nil {
		return false, false, err
	}
	age := now.Sub(rec.EndedAt)
	if age < p.Responses {
		return false, false, nil
	}
	return p.unused(ctx, k, age >= p.Records)
}

// record returns a verified record; nil if there is none.
func (p *Pruner) record(ctx context.Context, k approval.Key) (*approval.Record, error) {
	b, err := p.Store.Read(ctx, approval.DocRecord, k)
	if errors.Is(err, store.ErrMissing) {
		return nil, nil // a response without a record: the gate removes it
	}
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	return approval.OpenRecord(p.Seal, k, b)
}

// unused returns which documents of a settled key may be removed: its response, and its
// record if withRecord is set. While other documents exist, nothing is removed, because the
// record makes them harmless.
func (p *Pruner) unused(ctx context.Context, k approval.Key, withRecord bool) (record, response bool, err error) {
	parent := k
	parent.ID, _ = approval.CutStep(k.ID) // a step's record stays while its program runs
	for _, d := range unfinished {
		for _, x := range []approval.Key{k, parent} {
			if there, err := p.exists(ctx, d, x); err != nil || there {
				return false, false, err
			}
			if parent == k {
				break
			}
		}
	}
	response, err = p.exists(ctx, approval.DocResponse, k)
	return withRecord, response, err
}

// unfinished are the documents that a record makes harmless.
var unfinished = []approval.Doc{
	approval.DocRequest, approval.DocCancel, approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocAgain, approval.DocTask,
}

func (p *Pruner) exists(ctx context.Context, d approval.Doc, k approval.Key) (bool, error) {
	_, err := p.Store.Read(ctx, d, k)
	switch {
	case errors.Is(err, store.ErrMissing):
		return false, nil
	case errors.Is(err, store.ErrRefused):
		return true, nil
	}
	return err == nil, err
}

// orphans counts old descriptions and markers without a record, and removes them if remove
// is true. A crash during a prune leaves such a marker.
func (p *Pruner) orphans(ctx context.Context, ws string, markers map[string]int64, now time.Time, remove bool) (n Pruned, err error) {
	for _, id := range slices.Sorted(maps.Keys(markers)) {
		k := approval.Key{Workspace: ws, ID: id}
		if there, err := p.exists(ctx, approval.DocRecord, k); err != nil || there {
			continue
		}
		if remove {
			if err := p.Store.Remove(ctx, approval.DocRedeemed, k); err != nil {
				return n, fmt.Errorf("remove marker of %s: %w", k, err)
			}
		}
		n.Add(Pruned{Markers: 1, Bytes: markers[id]})
	}
	refusals, size, err := p.Store.RefusalsOlderThan(ctx, ws, now.Add(-p.Records), remove)
	n.Add(Pruned{Refusals: refusals, Bytes: size})
	if err != nil {
		return n, fmt.Errorf("list or remove old descriptions: %w", err)
	}
	return n, nil
}

// Pruner returns a Pruner with the gate's store and retention.
func (g *Gate) Pruner() *Pruner {
	records := max(cmp.Or(g.RecordRetention, DefaultRecordRetention), g.ResponseRetention)
	return &Pruner{Store: g.Store, Seal: g.Seal, Responses: g.ResponseRetention, Records: records}
}

// Prune removes what is older than its retention, in small batches, and makes room where a
// workspace has used most of its budget: see quota.go. It calls rest before every batch; rest may wait, and its error ends the prune. rest may be nil.
// Prune runs beside the workers and does not block them: it skips a key that is busy
// or queued.
//
// # Order
//
//	the audit entry durable
//	remove S; a checkpoint: no commit about the id is replayed, and no removed document
//	returns, not even S, which without C would be a forged response
//	remove C; a checkpoint; only then may the id be used again
//	remove its marker
func (g *Gate) Prune(ctx context.Context, rest func() error) (all Pruned, err error) {
	p := g.Pruner()
	if g.isStopped() {
		return all, store.ErrRestart
	}
	names, err := g.Store.Workspaces(ctx)
	if err != nil {
		return all, fmt.Errorf("list workspaces: %w", err)
	}
	for _, ws := range names {
		n, err := g.pruneWorkspace(ctx, p, ws, rest)
		all.Add(n)
		if err != nil {
			g.reportError(ctx, err)
			return all, fmt.Errorf("prune %s: %w", ws, err)
		}
	}
	return all, nil
}

func (g *Gate) pruneWorkspace(ctx context.Context, p *Pruner, ws string, rest func() error) (all Pruned, err error) {
	a, err := p.findExpired(ctx, ws, g.Now())
	if err != nil {
		return all, err
	}
	for keys := range slices.Chunk(a.keys, pruneBatch) {
		if rest != nil {
			if err := rest(); err != nil {
				return all, err
			}
		}
		if err := ctx.Err(); err != nil {
			return all, err
		}
		n, err := g.pruneKeys(context.WithoutCancel(ctx), &a, keys, "", func(ctx context.Context, k approval.Key) (record, response bool, err error) {
			return p.expired(ctx, k, g.Now())
		})
		all.Add(n)
		if err != nil {
			return all, err
		}
	}
	if !all.IsZero() {
		g.removed(ws)
	}
	n, err := p.orphans(ctx, ws, a.markers, g.Now(), true)
	all.Add(n)
	if err == nil && !n.IsZero() {
		err = g.logPruned(context.WithoutCancel(ctx), ws, "", n)
	}
	if err != nil {
		return all, err
	}
	n, err = g.sweep(context.WithoutCancel(ctx), ws, toldAt(g.budget(ws)), ctx.Err)
	all.Add(n)
	return all, err
}

// pruneKeys removes what is due of a batch of one workspace's keys, while it holds their locks.
// The audit log has the reason, if it is not their retention.
func (g *Gate) pruneKeys(
	ctx context.Context, a *expiredFiles, keys []approval.Key, reason string,
	due func(context.Context, approval.Key) (record, response bool, err error),
) (n Pruned, err error) {
	waiting := g.sched.lock(keys)
	release := func() { g.sched.unlock(waiting) }
	defer func() { release() }()
	var records, responses []approval.Key
	for _, k := range waiting {
		record, response, err := due(ctx, k)
		if err != nil {
			g.Log.Warn().Str("ws", k.Workspace).Str("id", k.ID).Err(err).Msg("prune skipped")
			continue
		}
		n.Add(a.total(k, record, response))
		if record {
			records = append(records, k)
		}
		if response {
			responses = append(responses, k)
		}
	}
	if n.IsZero() {
		return n, nil
	}
	ws := keys[0].Workspace
	if err := g.logPruned(ctx, ws, reason, n); err != nil {
		return Pruned{}, err
	}
	if err := g.removeAll(ctx, approval.DocResponse, responses); err != nil {
		return Pruned{}, err
	}
	for _, k := range responses {
		g.index.noResponse.set(k, true)
	}
	if len(records) == 0 {
		return n, nil
	}
	if err := g.Store.Checkpoint(ctx); err != nil {
		return Pruned{}, fmt.Errorf("before removals: %w", err)
	}
	err = g.removeAll(ctx, approval.DocRecord, records)
	if syncErr := g.Store.Checkpoint(ctx); syncErr != nil {
		release = func() {} // a record may return: the keys stay locked until the next start
		return Pruned{}, errors.Join(err, fmt.Errorf("after removals: %w", syncErr))
	}
	if err != nil {
		return Pruned{}, err
	}
	g.index.recordsPruned(records)
	for _, k := range records {
		delete(a.markers, k.ID) // counted already
	}
	return n, g.removeAll(ctx, approval.DocRedeemed, records)
}

func (g *Gate) removeAll(ctx context.Context, d approval.Doc, keys []approval.Key) error {
	for _, k := range keys {
		if err := g.Store.Remove(ctx, d, k); err != nil {
			return fmt.Errorf("remove %s of %s: %w", d, k, err)
		}
	}
	return nil
}

func (g *Gate) logPruned(ctx context.Context, ws, reason string, n Pruned) error {
	return g.Store.Commit(ctx, store.Log(event.Entry{
		Time: g.Now().UTC(), Event: event.Pruned, Workspace: ws, Reason: reason,
		Detail: fmt.Sprintf("%d records, %d responses, %d markers, %d descriptions", n.Records, n.Responses, n.Markers, n.Refusals),
	}))
}

// lock marks keys as busy, without a worker and without using their workspace's
// share. It skips keys that are busy or queued.
func (q *scheduler) lock(keys []approval.Key) (waiting []approval.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		if !q.busy[k] && !q.queued[k] {
			q.busy[k] = true
			waiting = append(waiting, k)
		}
	}
	return waiting
}

// unlock releases keys. A key that was woken in between is queued.
func (q *scheduler) unlock(keys []approval.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		delete(q.busy, k)
		if q.rewake[k] {
			delete(q.rewake, k)
			q.push(k)
		}
	}
}

// recordsPruned forgets keys: their ids are new.
func (x *index) recordsPruned(keys []approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range keys {
		x.forgetShortIDs(k)
		x.due.remove(k)
		delete(x.cooling, k)
		x.onlyPending.remove(k)
		x.noResponse.remove(k)
	}
}
