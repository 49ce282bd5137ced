package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// How long documents are kept where nothing else is said.
const (
	DefaultResponses = 7 * 24 * time.Hour
	DefaultRecords   = 90 * 24 * time.Hour
)

// pruneBatch is how many keys are held at once, while nothing else may happen
// to them.
const pruneBatch = 64

// RetentionStore is a Workspaces that knows how old things are.
type RetentionStore interface {
	WorkspaceStore
	// Old gives the ids whose document of kind d was last written before a
	// time, with its size.
	OlderThan(d approval.Doc, workspace string, before time.Time) (sizes map[string]int64, err error)
	// RefusalsOlderThan counts the descriptions written before a time, and removes
	// them if told to.
	RefusalsOlderThan(workspace string, before time.Time, remove bool) (n int, size int64, err error)
}

// Pruned counts what was removed, or what would be.
type Pruned struct {
	Records   int   `json:"records"`
	Responses int   `json:"responses"`
	Refusals  int   `json:"descriptions"`
	Markers   int   `json:"markers"` // of redeemed receipts
	Bytes     int64 `json:"bytes"`
}

// Add sums up.
func (p *Pruned) Add(o Pruned) {
	p.Records += o.Records
	p.Responses += o.Responses
	p.Refusals += o.Refusals
	p.Markers += o.Markers
	p.Bytes += o.Bytes
}

// Nothing says that there is nothing to remove.
func (p Pruned) Nothing() bool { return p.Records+p.Responses+p.Refusals+p.Markers == 0 }

// Pruner finds what has outlived its retention. It changes nothing, and works
// whether or not a daemon runs.
type Pruner struct {
	Store      Store
	Workspaces RetentionStore
	Seal       Sealer
	Responses  time.Duration // since the request ended
	Records    time.Duration
}

// aged is what may have outlived its retention in one workspace, by the times
// of its files.
type expiredFiles struct {
	keys               []approval.Key
	records, responses map[string]int64 // sizes
	markers            map[string]int64
}

// Count says what is to be removed at now, by workspace; step is called now and
// then, and its error ends the counting. It may be nil.
func (p *Pruner) Count(now time.Time, step func() error) (map[string]Pruned, error) {
	names, err := p.Workspaces.Workspaces()
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	counts := map[string]Pruned{}
	for _, ws := range names {
		n, err := p.count(ws, now, step)
		if err != nil {
			return nil, err
		}
		counts[ws] = n
	}
	return counts, nil
}

func (p *Pruner) count(ws string, now time.Time, step func() error) (n Pruned, err error) {
	a, err := p.findExpired(ws, now)
	if err != nil {
		return n, err
	}
	for i, k := range a.keys {
		if step != nil && i%pruneBatch == 0 {
			if err := step(); err != nil {
				return n, err
			}
		}
		record, response, err := p.expired(k, now)
		if err != nil {
			continue // what cannot be read is not removed
		}
		n.Add(a.total(k, record, response))
	}
	for id, size := range a.markers {
		if p.isOrphan(approval.Key{Workspace: ws, ID: id}) {
			n.Add(Pruned{Markers: 1, Bytes: size})
		}
	}
	refusals, size, err := p.Workspaces.RefusalsOlderThan(ws, now.Add(-p.Records), false)
	n.Add(Pruned{Refusals: refusals, Bytes: size})
	return n, err
}

func (p *Pruner) findExpired(ws string, now time.Time) (a expiredFiles, err error) {
	for _, x := range []struct {
		doc    approval.Doc
		before time.Duration
		to     *map[string]int64
	}{
		{approval.DocRecord, p.Records, &a.records},
		{approval.DocResponse, p.Responses, &a.responses},
		{approval.DocRedeemed, p.Records, &a.markers},
	} {
		if *x.to, err = p.Workspaces.OlderThan(x.doc, ws, now.Add(-x.before)); err != nil {
			return a, fmt.Errorf("look for old %s documents of %s: %w", x.doc, ws, err)
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

// look says what of a key has outlived its retention. Its sealed record says
// when it ended; without one that verifies nothing is old, and while anything
// else lies there nothing is removed: the record is what makes it harmless.
func (p *Pruner) expired(k approval.Key, now time.Time) (record, response bool, err error) {
	b, err := p.Store.Read(approval.DocRecord, k)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil // a response alone is not ours: the gate drops it
	}
	if err != nil {
		return false, false, fmt.Errorf("read record: %w", err)
	}
	rec, err := openRecord(p.Seal, k, b)
	if err != nil {
		return false, false, err
	}
	age := now.Sub(rec.EndedAt)
	if age < p.Responses {
		return false, false, nil
	}
	for _, d := range unfinished {
		if there, err := p.exists(d, k); err != nil || there {
			return false, false, err
		}
	}
	response, err = p.exists(approval.DocResponse, k)
	return age >= p.Records, response, err
}

// unfinished are the documents that a record keeps harmless.
var unfinished = []approval.Doc{
	approval.DocRequest, approval.DocCancel, approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocAgain,
}

func (p *Pruner) exists(d approval.Doc, k approval.Key) (bool, error) {
	_, err := p.Store.Read(d, k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, approval.ErrRefused):
		return true, nil
	}
	return err == nil, err
}

// orphan says that a marker has outlived its record, as a crash in the middle
// of pruning leaves it.
func (p *Pruner) isOrphan(k approval.Key) bool {
	there, err := p.exists(approval.DocRecord, k)
	return err == nil && !there
}

// Pruner is the gate's own, with its store and retention; nil where its Workspaces
// cannot tell how old things are.
func (g *Gate) Pruner() *Pruner {
	store, ok := g.Workspaces.(RetentionStore)
	if !ok {
		return nil
	}
	records := g.Records
	if records == 0 {
		records = DefaultRecords
	}
	return &Pruner{Store: g.Store, Workspaces: store, Seal: g.Seal, Responses: g.Retention, Records: max(records, g.Retention)}
}

// Prune removes what has outlived its retention, in small batches. Before every
// batch it calls rest, which may wait, and whose error ends it; nil does
// nothing. It runs beside the workers and holds up none of them: a key that is
// being stepped, or is about to be, is left for the next time.
//
// # Order
//
//	the audit entry durable; S goes
//	the removal of S Q X P D R durable: none may come back when C is gone
//	C goes, durably, before anybody may use the id again; then its marker
func (g *Gate) Prune(rest func() error) (all Pruned, err error) {
	p := g.Pruner()
	if p == nil {
		return all, nil
	}
	if err := g.blockPruning(nil); err != nil {
		return all, err
	}
	names, err := g.Workspaces.Workspaces()
	if err != nil {
		return all, fmt.Errorf("list workspaces: %w", err)
	}
	for _, ws := range names {
		n, err := g.pruneWorkspace(p, ws, rest)
		all.Add(n)
		if err != nil {
			g.reportError(err)
			return all, fmt.Errorf("prune %s: %w", ws, err)
		}
	}
	return all, nil
}

func (g *Gate) pruneWorkspace(p *Pruner, ws string, rest func() error) (all Pruned, err error) {
	a, err := p.findExpired(ws, g.Now())
	if err != nil {
		return all, err
	}
	for keys := range slices.Chunk(a.keys, pruneBatch) {
		if rest != nil {
			if err := rest(); err != nil {
				return all, err
			}
		}
		n, err := g.pruneKeys(p, &a, keys)
		all.Add(n)
		if err != nil {
			return all, err
		}
	}
	n, err := g.pruneOrphans(p, ws, a.markers)
	all.Add(n)
	return all, err
}

// pruneKeys removes a batch of one workspace's keys, while it holds them.
func (g *Gate) pruneKeys(p *Pruner, a *expiredFiles, keys []approval.Key) (n Pruned, err error) {
	waiting := g.sched.lock(keys)
	release := func() { g.sched.unlock(waiting) }
	defer func() { release() }()
	var records, responses []approval.Key
	for _, k := range waiting {
		record, response, err := p.expired(k, g.Now())
		if err != nil {
			g.Log.Warn().Str("ws", k.Workspace).Str("id", k.ID).Err(err).Msg("not pruned")
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
	if n.Nothing() {
		return n, nil
	}
	ws := keys[0].Workspace
	if err := g.logPruned(ws, n); err != nil {
		return Pruned{}, err
	}
	if err := g.removeAll(approval.DocResponse, responses); err != nil {
		return Pruned{}, err
	}
	g.index.responsesPruned(responses)
	if len(records) == 0 {
		return n, nil
	}
	for _, d := range []approval.Doc{
		approval.DocRequest, approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocResponse,
	} {
		if err := g.Store.Sync(d, ws); err != nil {
			return Pruned{}, g.blockPruning(fmt.Errorf("sync %s documents: %w", d, err))
		}
	}
	err = g.removeAll(approval.DocRecord, records)
	if syncErr := g.Store.Sync(approval.DocRecord, ws); syncErr != nil {
		// Whether these records are gone for good nobody knows. Until the next
		// start nothing may happen under their ids.
		release = func() {}
		return Pruned{}, errors.Join(err, g.blockPruning(fmt.Errorf("sync records: %w", syncErr)))
	}
	if err != nil {
		return Pruned{}, err
	}
	g.index.recordsPruned(records)
	for _, k := range records {
		delete(a.markers, k.ID) // counted already
	}
	return n, g.removeAll(approval.DocRedeemed, records)
}

// doubt remembers that a folder could not be synced. To sync it once more could
// succeed and mean nothing, so nothing is pruned any more.
func (g *Gate) blockPruning(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && g.pruneBlocked == nil {
		g.pruneBlocked = fmt.Errorf("%w; nothing is removed before the gate is restarted", err)
	}
	return g.pruneBlocked
}

func (g *Gate) removeAll(d approval.Doc, keys []approval.Key) error {
	for _, k := range keys {
		if err := g.Store.Remove(d, k); err != nil {
			return fmt.Errorf("remove %s of %s: %w", d, k, err)
		}
	}
	return nil
}

// pruneOrphans removes what belongs to no request any more.
func (g *Gate) pruneOrphans(p *Pruner, ws string, markers map[string]int64) (n Pruned, err error) {
	for _, id := range slices.Sorted(maps.Keys(markers)) {
		k := approval.Key{Workspace: ws, ID: id}
		if !p.isOrphan(k) {
			continue
		}
		if err := g.Store.Remove(approval.DocRedeemed, k); err != nil {
			return n, fmt.Errorf("remove marker of %s: %w", k, err)
		}
		n.Add(Pruned{Markers: 1, Bytes: markers[id]})
	}
	refusals, size, err := p.Workspaces.RefusalsOlderThan(ws, g.Now().Add(-p.Records), true)
	n.Add(Pruned{Refusals: refusals, Bytes: size})
	if err != nil {
		return n, fmt.Errorf("remove old descriptions: %w", err)
	}
	if n.Nothing() {
		return n, nil
	}
	return n, g.logPruned(ws, n)
}

func (g *Gate) logPruned(ws string, n Pruned) error {
	return g.Audit.Append(approval.Entry{
		Time: g.Now().UTC(), Event: approval.EventPruned, Workspace: ws,
		Detail: fmt.Sprintf("%d records, %d responses, %d markers, %d descriptions", n.Records, n.Responses, n.Markers, n.Refusals),
	})
}

// hold takes keys as if they were being stepped, without a worker and without
// using up their workspace's share of them. It leaves out those that somebody
// wants to step.
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

// release gives held keys back; who was woken meanwhile gets a turn.
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

// bared notes whose response has outlived its retention, so that nobody misses
// it.
func (x *index) responsesPruned(keys []approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range keys {
		x.noResponse[k] = true
	}
}

func (x *index) responsePruned(k approval.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.noResponse[k]
}

// pruned forgets keys: their ids are new again.
func (x *index) recordsPruned(keys []approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range keys {
		if short := approval.ShortID(k.ID); x.shortIDs[k.Workspace][short] == k.ID {
			delete(x.shortIDs[k.Workspace], short)
		}
		delete(x.dueAt, k)
		delete(x.cooling, k)
		delete(x.onlyPending, k)
		delete(x.noResponse, k)
	}
}
