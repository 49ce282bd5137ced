package gate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// index is what the gate remembers of the folders. It is never the truth: it
// is learnt at Start, and every Step corrects it.
type index struct {
	mu              sync.Mutex
	pending         map[approval.Key]bool        // pendings
	pendingCount    map[string]int               // pendings by workspace
	shortIDs        map[string]map[string]string // workspace → short id → id, of pendings and records
	openShortIDs    map[string]approval.Key      // short id → key, of pendings in every workspace
	dueAt           map[approval.Key]time.Time   // when to look again by ourselves
	cooling         map[approval.Key]bool        // settled a moment ago: a look is due, hints are not needed
	onlyPending     map[approval.Key]bool        // at the start there was a pending and nothing else
	deferredCleanup map[approval.Key]bool        // settled in a crowd: documents are still to be removed
	noResponse      map[approval.Key]bool        // settled so long ago that there is no response any more
	ownEvents       map[approval.Key]time.Time   // until when an event about a pending may be that of our own writing it
}

func newIndex() index {
	return index{
		pending: map[approval.Key]bool{}, pendingCount: map[string]int{},
		shortIDs: map[string]map[string]string{}, openShortIDs: map[string]approval.Key{},
		dueAt: map[approval.Key]time.Time{}, cooling: map[approval.Key]bool{}, onlyPending: map[approval.Key]bool{}, deferredCleanup: map[approval.Key]bool{},
		noResponse: map[approval.Key]bool{}, ownEvents: map[approval.Key]time.Time{},
	}
}

// reserve takes a place among the pendings, or says why there is none.
func (x *index) reserve(k approval.Key, limit int) (full, taken string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if taken = x.shortIDConflict(k); taken != "" || x.pending[k] {
		return "", taken
	}
	if x.pendingCount[k.Workspace] >= limit {
		return fmt.Sprintf("%d requests wait for an answer already: wait until some are decided", limit), ""
	}
	x.addPending(k)
	return "", ""
}

func (x *index) release(k approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropPending(k)
	if x.shortIDs[k.Workspace][approval.ShortID(k.ID)] == k.ID {
		delete(x.shortIDs[k.Workspace], approval.ShortID(k.ID))
	}
}

// taken is reserve where nobody will be asked: it takes no place, only the
// short id, and that only if keep says so.
func (x *index) reserveShortID(k approval.Key, keep bool) (why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	why = x.shortIDConflict(k)
	if why == "" && keep {
		x.addShort(k)
	}
	return why
}

// knows says that a pending, a claim or a record has, or had, k's short id.
func (x *index) hasShortID(k approval.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.shortIDs[k.Workspace][approval.ShortID(k.ID)]
	return ok
}

// clash says whose short id k would share.
func (x *index) shortIDConflict(k approval.Key) (why string) {
	short := approval.ShortID(k.ID)
	if id, ok := x.shortIDs[k.Workspace][short]; ok && id != k.ID {
		return fmt.Sprintf("the first 8 digits of the id, %s, are those of an earlier request: use a random id", short)
	}
	if other, ok := x.openShortIDs[short]; ok && other != k {
		return fmt.Sprintf("the first 8 digits of the id, %s, are those of a waiting request: use a random id", short)
	}
	return ""
}

func (x *index) addPending(k approval.Key) {
	if x.pending[k] {
		return
	}
	x.pending[k] = true
	x.pendingCount[k.Workspace]++
	x.openShortIDs[approval.ShortID(k.ID)] = k
	x.addShort(k)
}

func (x *index) addShort(k approval.Key) {
	if x.shortIDs[k.Workspace] == nil {
		x.shortIDs[k.Workspace] = map[string]string{}
	}
	if _, ok := x.shortIDs[k.Workspace][approval.ShortID(k.ID)]; !ok {
		x.shortIDs[k.Workspace][approval.ShortID(k.ID)] = k.ID
	}
}

func (x *index) dropPending(k approval.Key) {
	delete(x.ownEvents, k)
	if !x.pending[k] {
		return
	}
	delete(x.pending, k)
	x.pendingCount[k.Workspace]--
	if x.openShortIDs[approval.ShortID(k.ID)] == k {
		delete(x.openShortIDs, approval.ShortID(k.ID))
	}
}

// settled moves a key from the pendings to the records.
func (x *index) addSettled(k approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropPending(k)
	x.addShort(k)
	delete(x.dueAt, k)
}

// learn takes what a look at the documents showed.
func (x *index) update(s *state, m approval.Move) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m == approval.NoMove {
		delete(x.deferredCleanup, s.key)
		if s.Record && !s.Retained && s.Response == approval.Absent {
			x.noResponse[s.key] = true
		}
	}
	switch {
	case s.Record:
		x.dropPending(s.key)
		x.addShort(s.key)
		delete(x.dueAt, s.key)
	case s.Pending == approval.Valid:
		x.addPending(s.key)
		x.dueAt[s.key] = s.ExpiresAt
	case m == approval.NoMove:
		x.dropPending(s.key)
		delete(x.dueAt, s.key)
	}
}

// takeOnlyPending says, once, that the start saw nothing but a pending.
func (x *index) takeOnlyPending(k approval.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	only := x.onlyPending[k]
	delete(x.onlyPending, k)
	return only
}

// finished notes that a key was settled by this very process, when to look at it
// once more, and whether it is still to be tidied.
func (x *index) startCooldown(k approval.Key, look time.Time, deferredCleanup bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cooling[k] = true
	x.dueAt[k] = look
	if deferredCleanup {
		x.deferredCleanup[k] = true
	}
}

// takeDeferredCleanup takes out the keys that are still to be tidied.
func (x *index) takeDeferredCleanup() []approval.Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := slices.Collect(maps.Keys(x.deferredCleanup))
	clear(x.deferredCleanup)
	return keys
}

// calm gives the time of the look that is due for a key settled a moment ago.
func (x *index) cooldown(k approval.Key) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.cooling[k] {
		return time.Time{}
	}
	return x.dueAt[k]
}

// expect says that a pending is about to be written here, and until when the event
// that it causes may come.
func (x *index) expectEvent(k approval.Key, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ownEvents[k] = until
}

// echoes says, once, that an event about a pending is only that of our own writing
// it. A later one is somebody else's.
func (x *index) isOwnEvent(k approval.Key, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	until, ok := x.ownEvents[k]
	delete(x.ownEvents, k)
	return ok && now.Before(until)
}

// stir ends the calm: something new may have come.
func (x *index) touch(k approval.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.cooling, k)
	delete(x.onlyPending, k)
}

func (x *index) scheduleRetry(k approval.Key, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at.IsZero() {
		if !x.pending[k] {
			delete(x.dueAt, k)
		}
		return
	}
	x.dueAt[k] = at
}

// overdue takes out the keys whose time has come, and gives the next time.
func (x *index) takeDue(now time.Time) (keys []approval.Key, next time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k, at := range x.dueAt {
		switch {
		case !at.After(now):
			keys = append(keys, k)
			delete(x.dueAt, k)
			delete(x.cooling, k)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return keys, next
}

func (x *index) isPending(k approval.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pending[k]
}

// scanAll learns every workspace and gives the keys that may need a move:
// first those with something unfinished, then those whose response is only to
// be compared with its record.
func (g *Gate) scanAll() ([]approval.Key, error) {
	names, err := g.Workspaces.Workspaces()
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	var urgent, later []approval.Key
	for _, ws := range names {
		u, l, err := g.scan(ws)
		if err != nil {
			return nil, err
		}
		urgent, later = append(urgent, u...), append(later, l...)
	}
	return append(urgent, later...), nil
}

func (g *Gate) scan(ws string) (urgent, later []approval.Key, err error) {
	unfinished, settled, more := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, d := range []approval.Doc{approval.DocRequest, approval.DocCancel, approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocRecord, approval.DocResponse} {
		ids, strays, err := g.Workspaces.List(d, ws)
		if err != nil {
			return nil, nil, fmt.Errorf("list %s documents of %s: %w", d, ws, err)
		}
		if d == approval.DocRequest {
			g.refuseStrays(ws, strays)
		}
		for _, id := range ids {
			k := approval.Key{Workspace: ws, ID: id}
			switch d {
			case approval.DocRecord:
				settled[id] = true
				g.index.addSettled(k)
			case approval.DocResponse:
				settled[id] = true
			default:
				unfinished[id] = true
			}
			if d == approval.DocPending {
				g.index.mu.Lock()
				g.index.addPending(k)
				g.index.mu.Unlock()
			} else {
				more[id] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(unfinished)) {
		k := approval.Key{Workspace: ws, ID: id}
		urgent = append(urgent, k)
		if !more[id] {
			g.index.onlyPending[k] = true
		}
		delete(settled, id)
	}
	for _, id := range slices.Sorted(maps.Keys(settled)) {
		later = append(later, approval.Key{Workspace: ws, ID: id})
	}
	return urgent, later, nil
}

// Rescan looks at the names in a workspace's folders and wakes every key that
// is not known to be waiting. It is what makes a lost event harmless.
func (g *Gate) Rescan(ws string) error {
	for _, d := range []approval.Doc{approval.DocRequest, approval.DocCancel, approval.DocDecision, approval.DocPending} {
		ids, strays, err := g.Workspaces.List(d, ws)
		if err != nil {
			return fmt.Errorf("rescan %s: %w", ws, err)
		}
		if d == approval.DocRequest {
			g.refuseStrays(ws, strays)
		}
		for _, id := range ids {
			k := approval.Key{Workspace: ws, ID: id}
			if d != approval.DocPending || !g.index.isPending(k) {
				g.Wake(k)
			}
		}
	}
	return nil
}

// RescanSettled compares the responses of a workspace with its records, by
// name: one that is missing, or that nobody recorded, is looked at.
func (g *Gate) RescanSettled(ws string) error {
	records, _, err := g.Workspaces.List(approval.DocRecord, ws)
	if err != nil {
		return fmt.Errorf("rescan %s: %w", ws, err)
	}
	responses, _, err := g.Workspaces.List(approval.DocResponse, ws)
	if err != nil {
		return fmt.Errorf("rescan %s: %w", ws, err)
	}
	odd := map[string]bool{}
	for _, id := range records {
		odd[id] = true
	}
	for _, id := range responses {
		odd[id] = !odd[id]
	}
	for id, is := range odd {
		if k := (approval.Key{Workspace: ws, ID: id}); is && !g.index.responsePruned(k) {
			g.Wake(k)
		}
	}
	return nil
}

// refuseStrays describes and removes what lies among the requests under a name
// that no request can have.
func (g *Gate) refuseStrays(ws string, names []string) {
	for _, name := range names {
		g.Stray(ws, name)
	}
}

// Stray refuses one file of a name that no request can have. There is no id to
// answer to, so the description in errors/ is all that is left of it.
func (g *Gate) Stray(ws, name string) {
	if !g.limits(ws).stray(g.Now()) {
		return // described later, at a rescan
	}
	const why = "the name is no request: use 16 to 64 lower-case hex digits and .json"
	if err := g.Workspaces.Refuse(ws, name, why); err != nil {
		g.Log.Error().Str("ws", ws).Err(rootOf(err)).Msg("describe stray file")
		return
	}
	g.Audit.Note(approval.Entry{Time: g.Now().UTC(), Event: approval.EventMalformed, Workspace: ws, Reason: why})
	if err := g.Workspaces.RemoveStray(ws, name); err != nil {
		g.Log.Error().Str("ws", ws).Err(rootOf(err)).Msg("remove stray file")
	}
}

// rootOf is what went wrong, without the name that it went wrong with: the agent
// chose that.
func rootOf(err error) error {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}
