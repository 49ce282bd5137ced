package deliver

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// sentIndex caches the sent records and indexes them by button and by message. Records that it returns are
// never changed.
type sentIndex struct {
	store chat.SentStore
	locks [64]sync.Mutex // by the hash of the key: one update of a record at a time

	mu          sync.Mutex // guards the fields below
	loaded      map[string]bool
	records     map[approval.Key]*sentRecord
	buttons     map[string]buttonRef
	messages    map[messageKey]messageRef
	removedKeys []approval.Key // removed last, oldest first
	removed     map[approval.Key]*sentRecord
	held        map[approval.Key]int // how many unanswered taps need the record
}

// buttonRef is the meaning of a button's nonce.
type buttonRef struct {
	key    approval.Key
	number int // of the copy
	verb   string
}

// messageKey names one message.
type messageKey struct {
	chat, id ID
}

// messageRef is the copy that a message shows or prompts for; verb is set for a prompt.
type messageRef struct {
	key    approval.Key
	number int
	verb   string
}

// maxRemoved is how many removed records stay in memory, to explain late taps.
const maxRemoved = 500

func newSentIndex(store chat.SentStore) *sentIndex {
	return &sentIndex{
		store: store, loaded: map[string]bool{}, buttons: map[string]buttonRef{}, messages: map[messageKey]messageRef{},
		records: map[approval.Key]*sentRecord{}, removed: map[approval.Key]*sentRecord{}, held: map[approval.Key]int{},
	}
}

// load reads the records of the workspaces, each workspace once. An unreadable record is removed, so that its
// request is asked again.
func (b *sentIndex) load(workspaces []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, ws := range workspaces {
		if b.loaded[ws] {
			continue
		}
		ids, err := b.store.List(ws)
		b.loaded[ws] = err == nil
		errs = append(errs, err)
		for _, id := range ids {
			if k := (approval.Key{Workspace: ws, ID: id}); b.records[k] == nil {
				errs = append(errs, b.loadRecord(k))
			}
		}
	}
	return errors.Join(errs...)
}

// loadRecord needs b.mu.
func (b *sentIndex) loadRecord(k approval.Key) error {
	raw, err := b.store.Load(k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p, err := parseRecord(raw)
	if err != nil {
		return errors.Join(fmt.Errorf("unreadable sent record removed, %s is asked again: %w", k, err), b.store.Remove(k))
	}
	b.replace(k, p)
	return nil
}

// record returns the sent record of a request, or nil.
func (b *sentIndex) record(k approval.Key) *sentRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.records[k]
}

// keys lists the requests of these workspaces that have a record, sorted.
func (b *sentIndex) keys(workspaces []string) []approval.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []approval.Key
	for k := range b.records {
		if slices.Contains(workspaces, k.Workspace) {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(x, y approval.Key) int { return strings.Compare(x.String(), y.String()) })
	return all
}

// errUnchanged is returned by an update function that leaves the record as it is.
var errUnchanged = errors.New("record unchanged")

// changeCopy is a change of one copy, if it is still there.
func changeCopy(n int, change func(x *sentCopy)) func(p *sentRecord) error {
	return func(p *sentRecord) error {
		x := p.byNumber(n)
		if x == nil {
			return errUnchanged
		}
		change(x)
		return nil
	}
}

// update changes a record, or creates one, and makes it durable before it becomes visible.
func (b *sentIndex) update(k approval.Key, change func(p *sentRecord) error) error {
	return b.rewrite(k, change, false)
}

// updateSent records what has already happened in the chat. The change is visible before it is durable, because
// a user may answer a message at once, and it holds in memory even if the write fails: otherwise the same card
// would be sent again and again.
func (b *sentIndex) updateSent(k approval.Key, change func(p *sentRecord) error) error {
	return b.rewrite(k, change, true)
}

// lock serializes the updates of a record.
func (b *sentIndex) lock(k approval.Key) *sync.Mutex {
	h := fnv.New32a()
	_, _ = io.WriteString(h, k.String())
	l := &b.locks[h.Sum32()%uint32(len(b.locks))]
	l.Lock()
	return l
}

// rewrite writes a changed record. If early is set, the change is visible before the write.
func (b *sentIndex) rewrite(k approval.Key, change func(p *sentRecord) error, early bool) error {
	defer b.lock(k).Unlock()
	next := b.record(k).clone()
	if next == nil {
		next = &sentRecord{Version: 1}
	}
	if err := change(next); err != nil {
		if errors.Is(err, errUnchanged) {
			return nil
		}
		return err
	}
	raw, err := next.encode()
	if err != nil {
		return err
	}
	show := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.replace(k, next)
	}
	if early {
		show()
	}
	if err := b.store.Save(k, raw); err != nil {
		return fmt.Errorf("write sent record %s: %w", k, err)
	}
	if !early {
		show()
	}
	return nil
}

// hold keeps a record until release: after a restart its tap must be understood again.
func (b *sentIndex) hold(k approval.Key) (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[k]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.held[k]--; b.held[k] == 0 {
			delete(b.held, k)
		}
	}
}

func (b *sentIndex) isHeld(k approval.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[k] > 0
}

// remove deletes a record, unless it is held: the next pass tries again. Its buttons stay known for a while.
func (b *sentIndex) remove(k approval.Key) error {
	defer b.lock(k).Unlock()
	if b.isHeld(k) {
		return nil
	}
	if err := b.store.Remove(k); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.records[k]; p != nil {
		if b.removed[k] != nil {
			b.unindex(b.removed[k])
			b.removedKeys = slices.DeleteFunc(b.removedKeys, func(o approval.Key) bool { return o == k })
		}
		b.removed[k], b.removedKeys = p, append(b.removedKeys, k)
	}
	delete(b.records, k)
	if len(b.removedKeys) > maxRemoved {
		oldest := b.removedKeys[0]
		b.removedKeys = b.removedKeys[1:]
		b.unindex(b.removed[oldest])
		delete(b.removed, oldest)
	}
	return nil
}

// replace puts a record and its index entries in place of the old ones. It needs b.mu.
func (b *sentIndex) replace(k approval.Key, next *sentRecord) {
	b.unindex(b.records[k])
	b.records[k] = next
	for _, x := range next.Copies {
		for verb, n := range x.Nonces {
			b.buttons[n] = buttonRef{k, x.Number, verb}
		}
		if x.Message != "" {
			b.messages[messageKey{x.Chat, x.Message}] = messageRef{k, x.Number, ""}
		}
		for _, p := range x.Prompts {
			b.messages[messageKey{x.Chat, p.Message}] = messageRef{k, x.Number, p.Verb}
		}
	}
}

func (b *sentIndex) unindex(p *sentRecord) {
	if p == nil {
		return
	}
	for _, x := range p.Copies {
		for _, n := range x.Nonces {
			delete(b.buttons, n)
		}
		delete(b.messages, messageKey{x.Chat, x.Message})
		for _, prompt := range x.Prompts {
			delete(b.messages, messageKey{x.Chat, prompt.Message})
		}
	}
}

// findButton returns the meaning of a nonce, and its record. live is false if that record was removed.
func (b *sentIndex) findButton(nonce string) (at buttonRef, p *sentRecord, live bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.buttons[nonce]
	if !ok {
		return at, nil, false
	}
	p = b.records[at.key]
	if x := p.byNumber(at.number); x != nil && x.Nonces[at.verb] == nonce {
		return at, p, true
	}
	return at, b.removed[at.key], false
}

// findMessage returns the copy that a message belongs to.
func (b *sentIndex) findMessage(chatID, id ID) (messageRef, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.messages[messageKey{chatID, id}]
	return at, ok && id != ""
}

// findCopy returns the copy of a messageRef, in its record or in the removed one.
func (b *sentIndex) findCopy(at messageRef) (*sentRecord, *sentCopy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range []*sentRecord{b.records[at.key], b.removed[at.key]} {
		if x := p.byNumber(at.number); x != nil {
			return p, x
		}
	}
	return nil, nil
}
