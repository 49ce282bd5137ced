package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/move"
)

// index caches the state of the folders. Start builds it, and every Step corrects it.
// The files are authoritative.
type index struct {
	mu           sync.Mutex
	pending      map[approval.Key]bool   // keys with a pending
	pendingCount map[string]int          // by workspace
	shortIDs     map[string]approval.Key // of pendings and records in all workspaces, see short_id.go
	due          schedule                // when to step without an event
	cooling      map[approval.Key]*cooling

	onlyPending keyMap[bool] // the scan at start found only a pending
	noResponse  keyMap[bool] // the response was pruned: RescanSettled does not wake the key
}

// cooling is a key that this process settled a moment ago: the events of its own writes are
// ignored.
type cooling struct {
	until time.Time
	shown bool // the event of its response has come: another one is not ours
}

func newIndex() index {
	return index{
		pending: map[approval.Key]bool{}, pendingCount: map[string]int{},
		shortIDs: map[string]approval.Key{},
		due:      newSchedule(), cooling: map[approval.Key]*cooling{},
	}
}

// reserve counts a pending for k and returns its short id, or why it cannot.
func (x *index) reserve(k approval.Key, limit int) (short string, full approval.Reason) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.pending[k] && x.pendingCount[k.Workspace] >= limit {
		return "", approval.Because("limit_pending", "n", strconv.Itoa(limit))
	}
	short = x.assignShortID(k)
	x.addPending(k)
	return short, full
}

func (x *index) release(k approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropPending(k)
	x.forgetShortIDs(k)
}

func (x *index) addPending(k approval.Key) {
	if x.pending[k] {
		return
	}
	x.pending[k] = true
	x.pendingCount[k.Workspace]++
	x.knowID(k)
}

func (x *index) dropPending(k approval.Key) {
	if !x.pending[k] {
		return
	}
	delete(x.pending, k)
	x.pendingCount[k.Workspace]--
}

// addSettled moves a key from the pendings to the records.
func (x *index) addSettled(k approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropPending(k)
	x.knowID(k)
	x.due.remove(k)
}

// update records what a load of the documents showed.
func (x *index) update(s *state, m move.Move) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m == move.None && s.Record && !s.Retained && s.Response == move.Absent {
		x.noResponse.set(s.key, true)
	}
	switch {
	case s.Record:
		x.dropPending(s.key)
		x.knowID(s.key)
		x.due.remove(s.key)
	case s.Pending == move.Valid:
		x.addPending(s.key)
		x.takeShortID(s.pending.ShortID, s.key)
		x.due.set(s.key, s.ExpiresAt)
	case m == move.None:
		x.dropPending(s.key)
		x.due.remove(s.key)
	}
}

// startCooldown records that this process settles a key.
func (x *index) startCooldown(k approval.Key, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cooling[k] = &cooling{until: until}
}

// cooldown returns how long a key is cooling; zero: it is not.
func (x *index) cooldown(k approval.Key) (until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.cooling[k]; c != nil {
		until = c.until
	}
	return until
}

// touch ends the cooldown: a document may have changed.
func (x *index) touch(k approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.cooling, k)
	x.onlyPending.remove(k)
}

// touchUnlessOurs is touch, unless our own writes explain the event. It reports whether
// they do not.
func (x *index) touchUnlessOurs(k approval.Key, d approval.Doc) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.cooling[k]
	switch {
	case d == approval.DocPending && x.pending[k]:
		return false
	case c != nil && (d != approval.DocResponse || !c.shown):
		c.shown = c.shown || d == approval.DocResponse
		return false
	}
	delete(x.cooling, k)
	x.onlyPending.remove(k)
	return true
}

func (x *index) scheduleRetry(k approval.Key, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at.IsZero() {
		if !x.pending[k] {
			x.due.remove(k)
		}
		return
	}
	x.due.set(k, at)
}

// takeDue returns and forgets the keys that are due, and the next due time. Those that are
// cooling only end that.
func (x *index) takeDue(now time.Time) (keys []approval.Key, next time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys = slices.DeleteFunc(x.due.take(now), func(k approval.Key) bool {
		cools := x.cooling[k] != nil
		delete(x.cooling, k)
		return cools
	})
	return keys, x.due.next()
}

func (x *index) isPending(k approval.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pending[k]
}

// scanAll scans every workspace and returns the keys that may need a move: first
// unfinished requests, then settled ones whose response must be compared with the
// record.
func (g *Gate) scanAll(ctx context.Context) ([]approval.Key, error) {
	names, err := g.Store.Workspaces(ctx)
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	var urgent, later []approval.Key
	for _, ws := range names {
		u, l, err := g.scan(ctx, ws)
		if err != nil {
			return nil, err
		}
		urgent, later = append(urgent, u...), append(later, l...)
	}
	return append(urgent, later...), nil
}

func (g *Gate) scan(ctx context.Context, ws string) (urgent, later []approval.Key, err error) {
	unfinished, settled, more := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var steps []approval.Key
	err = g.list(ctx, ws, func(d approval.Doc, k approval.Key) {
		if parent, n := approval.CutStep(k.ID); n > 0 {
			if d == approval.DocClaim {
				steps = append(steps, k)
				more[parent] = true
			}
			return
		}
		switch d {
		case approval.DocRecord:
			settled[k.ID] = true
			g.index.addSettled(k)
		case approval.DocResponse:
			settled[k.ID] = true
		default:
			unfinished[k.ID] = true
		}
		if d == approval.DocPending {
			g.index.mu.Lock()
			g.index.addPending(k)
			g.index.mu.Unlock()
		} else {
			more[k.ID] = true
		}
	}, approval.DocRequest, approval.DocCancel, approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocRecord, approval.DocResponse)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range steps {
		unfinished[g.addOrphan(k).ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(unfinished)) {
		k := approval.Key{Workspace: ws, ID: id}
		urgent = append(urgent, k)
		if !more[id] {
			g.index.onlyPending.set(k, true)
		}
		delete(settled, id)
	}
	for _, id := range slices.Sorted(maps.Keys(settled)) {
		later = append(later, approval.Key{Workspace: ws, ID: id})
	}
	return urgent, later, nil
}

// list visits the keys of a workspace that have these documents, one kind after the other,
// and refuses what is not a request.
func (g *Gate) list(ctx context.Context, ws string, visit func(approval.Doc, approval.Key), docs ...approval.Doc) error {
	for _, d := range docs {
		ids, strays, err := g.Store.List(ctx, d, ws)
		if err != nil {
			return fmt.Errorf("list %s documents of %s: %w", d, ws, err)
		}
		if d == approval.DocRequest {
			g.refuseStrays(ctx, ws, strays)
		}
		for _, id := range ids {
			visit(d, approval.Key{Workspace: ws, ID: id})
		}
	}
	return nil
}

// Rescan lists a workspace's folders and wakes every key that is not known to be
// pending, or to wait for its turn. It makes up for lost events.
func (g *Gate) Rescan(ctx context.Context, ws string) error {
	return g.list(ctx, ws, func(d approval.Doc, k approval.Key) {
		known := d == approval.DocPending && g.index.isPending(k) || d == approval.DocRequest && g.waitsForTurn(k)
		if !known {
			g.Wake(k)
		}
	}, approval.DocRequest, approval.DocCancel, approval.DocDecision, approval.DocPending)
}

// RescanSettled compares the names of a workspace's responses and records. It wakes
// every key that has only one of the two.
func (g *Gate) RescanSettled(ctx context.Context, ws string) error {
	odd := map[string]bool{}
	err := g.list(ctx, ws, func(_ approval.Doc, k approval.Key) { odd[k.ID] = !odd[k.ID] }, approval.DocRecord, approval.DocResponse)
	if err != nil {
		return err
	}
	for id, is := range odd {
		if k := (approval.Key{Workspace: ws, ID: id}); is && !g.index.noResponse.has(k) {
			g.Wake(k)
		}
	}
	return nil
}

func (g *Gate) refuseStrays(ctx context.Context, ws string, names []string) {
	for _, name := range names {
		if !g.limits(ws).stray(g.Now()) {
			return // a later rescan describes the rest
		}
		g.refuseStray(ctx, ws, name)
	}
}

// refuseStray refuses a file whose name is not a request's. It has no id, so there is no
// response, only a description in errors/.
func (g *Gate) refuseStray(ctx context.Context, ws, name string) {
	const why = "invalid request file name: use " + approval.IDForm + ", and .json"
	if err := g.Store.Refuse(ctx, ws, name, why); err != nil {
		g.Log.Error().Str("ws", ws).Err(rootOf(err)).Msg("describe stray file failed")
		return
	}
	g.Audit.Note(event.Entry{Time: g.Now().UTC(), Event: event.Malformed, Workspace: ws, Reason: why})
	if err := g.Store.RemoveStray(ctx, ws, name); err != nil {
		g.Log.Error().Str("ws", ws).Err(rootOf(err)).Msg("remove stray file failed")
	}
}

// rootOf returns the innermost error. The outer ones contain the file name, which the
// agent chose.
func rootOf(err error) error {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}
