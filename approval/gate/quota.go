package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// # Quota
//
// A workspace has a budget on the disk (limits.stored) for its records, responses and
// descriptions. The store counts them; a sweep makes room when the budget is almost used up.
// First go the requests that were refused at once, then those that a person denied, then those
// that expired or were cancelled, the oldest first. What ran, the answer to a question, and the
// mark of a redeemed receipt stay until their retention ends.
//
//	3/4    a sweep goes down to here
//	4/5    the operator is told, and the hourly prune sweeps
//	15/16  a sweep starts. If what must stay takes this much, new requests are refused
//	1      new requests wait in their folder until the sweep has made room
//
// The last sixteenth is for the refusals of a full workspace: the oldest of them go when they
// take that much. An outcome is never refused: a workspace may exceed its budget by what it had
// been allowed before.
//
// Only what may go is kept in memory, and only after the first sweep.

// Parts of a budget.
func sweepTo(budget int64) int64     { return budget / 4 * 3 }
func toldAt(budget int64) int64      { return budget / 5 * 4 }
func forRefusals(budget int64) int64 { return budget / 16 }
func sweepAt(budget int64) int64     { return budget - forRefusals(budget) }

// Storage is how much of its budget a workspace has used.
type Storage struct {
	Used, Budget int64 // bytes on the disk
	Low          bool  // four fifths are used
	Full         bool  // new requests are refused: what may be removed would not make enough room
}

// IsLow reports whether four fifths of a budget are used.
func IsLow(s Storage) bool { return s.Used >= toldAt(s.Budget) }

// String says how much is used, and what follows from it.
func (s Storage) String() string {
	text := fmt.Sprintf("records and responses use %d%% of limits.stored, %s", s.Used*100/max(s.Budget, 1), sizeText(s.Budget))
	if s.Full {
		text += ": new requests are refused, because what ran is kept until its retention ends"
	}
	return text
}

// quotas are those of all workspaces.
type quotas struct {
	mu   sync.Mutex
	of   map[string]*quota
	due  chan struct{} // a sweep is due
	once sync.Mutex    // one sweep at a time
}

// quota is what is known of one workspace's documents.
type quota struct {
	lists   [kept][]removable  // what may go, the oldest first
	size    int64              // of lists, about
	scanned bool               // lists has been filled
	stale   bool               // documents were removed since
	since   *[kept][]removable // what ended since a scan began; nil: none is under way
	due     bool               // a sweep was asked for
	told    Storage
}

// removable is a settled request that may be removed before its retention ends.
type removable struct {
	id    string
	ended time.Time
	size  int64
}

// class is the order in which settled requests are removed to make room.
type class uint8

const (
	refusedAtOnce class = iota
	deniedByPerson
	undecided
	kept // until its retention ends
)

// classOf says when a settled request may be removed to make room. A record of a later version
// is kept.
func classOf(rec *approval.Record) class {
	if !rec.StartedAt.IsZero() || rec.Receipt != "" {
		return kept
	}
	asked := rec.Pending.Kind() == '{'
	switch rec.Status {
	case approval.StatusAutoRejected, approval.StatusMalformed:
		return refusedAtOnce
	case approval.StatusDenied, approval.StatusOverridden, approval.StatusRequestMore:
		return deniedByPerson
	case approval.StatusExpired, approval.StatusCancelled:
		if !asked {
			return refusedAtOnce
		}
		return undecided
	case approval.StatusApproved, approval.StatusAutoApproved, approval.StatusAnswered, approval.StatusFailed, approval.StatusInterrupted:
	}
	return kept
}

// quotaOf needs g.quotas.mu.
func (g *Gate) quotaOf(ws string) *quota {
	q := g.quotas.of[ws]
	if q == nil {
		q = &quota{}
		g.quotas.of[ws] = q
	}
	return q
}

func (g *Gate) budget(ws string) int64 {
	w, _ := g.settings().Workspace(ws)
	return w.Limits.WithDefaults().Stored
}

// Storage returns how much of its budget a workspace has used.
func (g *Gate) Storage(ctx context.Context, ws string) (Storage, error) {
	used, err := g.Store.Stored(ctx, ws)
	if err != nil {
		return Storage{}, fmt.Errorf("count documents of %s: %w", ws, err)
	}
	g.quotas.mu.Lock()
	defer g.quotas.mu.Unlock()
	q, budget := g.quotaOf(ws), g.budget(ws)
	return Storage{
		Used: used, Budget: budget, Low: IsLow(Storage{Used: used, Budget: budget}),
		Full: q.scanned && used-q.size >= sweepAt(budget),
	}, nil
}

// admit says whether a request may be taken in now. wait: a sweep makes room first. full: it must
// not be asked about and must not run.
func (g *Gate) admit(ctx context.Context, ws string) (wait, full bool, err error) {
	for range 2 {
		st, err := g.Storage(ctx, ws)
		if err != nil || st.Used < sweepAt(st.Budget) {
			return false, false, err
		}
		g.quotas.mu.Lock()
		q := g.quotaOf(ws)
		crowded := q.size >= forRefusals(st.Budget)
		q.due = !st.Full || crowded
		due := q.due
		g.quotas.mu.Unlock()
		wait, full = due && (st.Full || st.Used >= st.Budget), st.Full
		if !due || !g.Inline {
			break
		}
		if _, err := g.sweep(ctx, ws, sweepAt(st.Budget), nil); err != nil {
			return false, false, err
		}
	}
	if wait || !full {
		select {
		case g.quotas.due <- struct{}{}:
		default: // signalled already
		}
	}
	return wait, full, nil
}

// settledNow counts an outcome that was just written.
func (g *Gate) settledNow(ctx context.Context, k approval.Key, rec *approval.Record, record int) {
	if c := classOf(rec); c < kept {
		size := store.OnDisk(int64(record)) + store.OnDisk(int64(len(rec.Response)))
		g.quotas.mu.Lock()
		q, x := g.quotaOf(k.Workspace), removable{k.ID, rec.EndedAt, size}
		if q.scanned {
			q.lists[c], q.size = append(q.lists[c], x), q.size+size
		}
		if q.since != nil {
			q.since[c] = append(q.since[c], x)
		}
		g.quotas.mu.Unlock()
	}
	g.tellStorage(ctx, k.Workspace)
}

// tellStorage reports a workspace whose budget is almost used up, or is not any more.
func (g *Gate) tellStorage(ctx context.Context, ws string) {
	st, err := g.Storage(ctx, ws)
	if err != nil {
		g.Log.Error().Str("ws", ws).Err(err).Msg("count documents failed")
		return
	}
	g.quotas.mu.Lock()
	q := g.quotaOf(ws)
	before := q.told
	// Once told, it stays so until half is free: not at every turn of a flood and its sweeps.
	st.Low = st.Low || before.Low && st.Used > st.Budget/2
	changed := before.Low != st.Low || before.Full != st.Full
	if changed {
		q.told = st
	}
	g.quotas.mu.Unlock()
	if changed && g.StorageChanged != nil {
		g.StorageChanged(ws, st)
	}
}

// sweeps makes room when it is asked to.
func (g *Gate) sweeps(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.quotas.due:
		}
		for _, ws := range g.sweepsDue() {
			n, err := g.sweep(context.WithoutCancel(ctx), ws, sweepAt(g.budget(ws)), ctx.Err)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				g.reportError(ctx, err)
				g.Log.Error().Str("ws", ws).Err(err).Msg("make room failed")
			case !n.IsZero():
				g.Log.Info().Str("ws", ws).Int("records", n.Records).Int64("bytes", n.Bytes).Msg("made room: storage budget used up")
			}
		}
	}
}

func (g *Gate) sweepsDue() (due []string) {
	g.quotas.mu.Lock()
	defer g.quotas.mu.Unlock()
	for ws, q := range g.quotas.of {
		if q.due {
			due = append(due, ws)
		}
	}
	slices.Sort(due)
	return due
}

// Of a sweep.
const (
	sweepBatch       = 512 // keys
	keepDescriptions = time.Minute
)

// sweep removes what may go, if a workspace uses more than limit, until three quarters of its
// budget are used, and until refusals leave half of their share free. It calls rest before every
// batch; rest may be nil.
func (g *Gate) sweep(ctx context.Context, ws string, limit int64, rest func() error) (all Pruned, err error) {
	g.quotas.once.Lock()
	defer g.quotas.once.Unlock()
	defer g.tellStorage(ctx, ws)
	g.quotas.mu.Lock()
	g.quotaOf(ws).due = false
	g.quotas.mu.Unlock()
	st, err := g.Storage(ctx, ws)
	if err != nil || st.Used < limit {
		return all, err
	}
	if err := g.scanRemovable(ctx, ws); err != nil {
		return all, err
	}
	all.Refusals, all.Bytes, err = g.Store.RefusalsOlderThan(ctx, ws, g.Now().Add(-keepDescriptions), true)
	if err != nil {
		return all, fmt.Errorf("remove descriptions: %w", err)
	}
	defer func() {
		if now, err := g.Storage(ctx, ws); err == nil {
			all.Bytes = max(st.Used-now.Used, all.Bytes)
		}
	}()
	p := g.Pruner()
	for {
		keys, err := g.nextRemovable(ctx, ws)
		if err != nil || len(keys) == 0 {
			return all, err
		}
		if rest != nil {
			if err := rest(); err != nil {
				return all, err
			}
		}
		n, err := g.pruneKeys(ctx, &expiredFiles{}, keys, budgetUsed, p.removable)
		all.Add(n)
		if n.Records < len(keys) {
			g.removed(ws) // the next sweep tries the others again
		}
		if err != nil {
			return all, err
		}
	}
}

// budgetUsed is the reason of what is removed before its retention ends.
const budgetUsed = "to make room: limits.stored"

// nextRemovable takes the next batch out of the lists. It is empty if there is room enough.
func (g *Gate) nextRemovable(ctx context.Context, ws string) (keys []approval.Key, err error) {
	st, err := g.Storage(ctx, ws)
	if err != nil {
		return nil, err
	}
	g.quotas.mu.Lock()
	defer g.quotas.mu.Unlock()
	q := g.quotaOf(ws)
	stays := st.Used - q.size
	excess := st.Used - max(sweepTo(st.Budget), stays+forRefusals(st.Budget)/2)
	for c := range q.lists {
		list := q.lists[c]
		for len(list) > 0 && excess > 0 && len(keys) < sweepBatch {
			x := list[0]
			list = list[1:]
			keys = append(keys, approval.Key{Workspace: ws, ID: x.id})
			excess, q.size = excess-x.size, q.size-x.size
		}
		q.lists[c] = list
	}
	return keys, nil
}

// removable returns which documents of a key may be removed to make room.
func (p *Pruner) removable(ctx context.Context, k approval.Key) (record, response bool, err error) {
	rec, err := p.record(ctx, k)
	if rec == nil || err != nil || classOf(rec) == kept {
		return false, false, err
	}
	return p.unused(ctx, k, true)
}

// scanRemovable reads all records of a workspace, to find those that may go. It does so once,
// and again after documents were removed for other reasons.
func (g *Gate) scanRemovable(ctx context.Context, ws string) error {
	var since [kept][]removable
	g.quotas.mu.Lock()
	q := g.quotaOf(ws)
	fresh := q.scanned && !q.stale
	if !fresh {
		q.since, q.stale = &since, false
	}
	g.quotas.mu.Unlock()
	if fresh {
		return nil
	}
	lists, err := g.readRemovable(ctx, ws)
	g.quotas.mu.Lock()
	defer g.quotas.mu.Unlock()
	q.since = nil
	if err != nil {
		q.stale = true
		return err
	}
	ended := map[string]bool{}
	for _, list := range since {
		for _, x := range list {
			ended[x.id] = true
		}
	}
	q.size, q.scanned = 0, true
	for c, list := range lists {
		list = slices.DeleteFunc(list, func(x removable) bool { return ended[x.id] }) // found as well
		q.lists[c] = append(list, since[c]...)
		for _, x := range q.lists[c] {
			q.size += x.size
		}
	}
	return nil
}

func (g *Gate) readRemovable(ctx context.Context, ws string) (lists [kept][]removable, err error) {
	p, sizes := g.Pruner(), [2]map[string]int64{}
	for i, d := range []approval.Doc{approval.DocRecord, approval.DocResponse} {
		if sizes[i], err = g.Store.OlderThan(ctx, d, ws, endOfTime); err != nil {
			return lists, fmt.Errorf("list %s documents of %s: %w", d, ws, err)
		}
	}
	for id, size := range sizes[0] {
		rec, err := p.record(ctx, approval.Key{Workspace: ws, ID: id})
		if err != nil || rec == nil {
			continue // one that cannot be read is not removed
		}
		if c := classOf(rec); c < kept {
			size = store.OnDisk(size) + store.OnDisk(sizes[1][id])
			lists[c] = append(lists[c], removable{id, rec.EndedAt, size})
		}
	}
	for c := range lists {
		slices.SortFunc(lists[c], func(a, b removable) int {
			return cmp.Or(a.ended.Compare(b.ended), cmp.Compare(a.id, b.id))
		})
	}
	return lists, nil
}

// endOfTime is after the time of every file.
var endOfTime = time.Unix(1<<50, 0)

// removed makes the next sweep scan again.
func (g *Gate) removed(ws string) {
	g.quotas.mu.Lock()
	defer g.quotas.mu.Unlock()
	g.quotaOf(ws).stale = true
}

// countStored begins the count of every workspace.
func (g *Gate) countStored(ctx context.Context) error {
	g.quotas.of, g.quotas.due = map[string]*quota{}, make(chan struct{}, 1)
	names, err := g.Store.Workspaces(ctx)
	if err != nil {
		return fmt.Errorf("list workspaces: %w", err)
	}
	for _, ws := range names {
		if _, err := g.Storage(ctx, ws); err != nil && !errors.Is(err, store.ErrMissing) {
			return err
		}
		g.tellStorage(ctx, ws)
	}
	return nil
}

// sizeText is a size in the largest unit that divides it.
func sizeText(bytes int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	for len(units) > 1 && bytes%1024 == 0 && bytes > 0 {
		bytes, units = bytes/1024, units[1:]
	}
	return strconv.FormatInt(bytes, 10) + " " + units[0]
}
