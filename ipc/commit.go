package ipc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
)

// LogFile is the audit log as commits need it.
type LogFile interface {
	// Next numbers an entry and returns its line. Calls come in the journal's order.
	Next(e event.Entry) (line []byte, seq int64, err error)
	// Durable writes the lines up to seq into the log's file: they are committed.
	Durable(seq int64) error
	// Appended is the number of the last line in the file.
	Appended() int64
	// Head describes the lines in the file, for RecoverLog.
	Head() []byte
}

// committer is the part of a Store that commits. It exists while the store has the lease.
type committer struct {
	order sync.Mutex // of numbers, and of bodies in the journal
	log   LogFile    // protected by order; nil: no entry can be committed

	mu      sync.Mutex
	pending map[*commit]uint64 // commits whose files may be missing, and a group that is not after theirs
	names   map[docKey]bool    // of new documents that are being committed
	late    map[docKey]lateFile
	entries []entryGroup // of the lines that the log's file may lack, in order
}

// entryGroup is the group of a line, or one before it.
type entryGroup struct {
	seq   int64
	group uint64
}

// lateFile is a committed document whose file could not be written.
type lateFile struct {
	bytes []byte
	group uint64
}

// commit is one call of Commit.
type commit struct {
	s     *Store
	ops   []store.Op
	temps []string // by op: the file under its temporary name; "": none yet
	names []docKey // reserved
	upTo  int64    // number of the last entry

	joined bool // the journal may have it
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, ops ...store.Op) (err error) {
	defer func() {
		if len(ops) == 1 && ops[0].Doc == approval.DocDecision {
			err = explain("nothing was decided", err)
		}
		err = classify(err)
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, op := range ops {
		if op.Doc == "" {
			continue
		}
		if err := (docKey{op.Doc, op.Key}).check(); err != nil {
			return err
		}
	}
	if s.writer() == nil {
		return s.commitAlone(ops)
	}
	if len(ops) == 1 && !inJournal(ops[0]) {
		return s.commitAlone(ops)
	}
	if err := s.restartErr(); err != nil && !isOutcome(ops) {
		return err
	}
	if slices.ContainsFunc(ops, func(op store.Op) bool { return op.Doc == approval.DocDecision }) {
		if err := s.checkJournal(s.writer()); err != nil {
			return err
		}
	}
	c := &commit{s: s, ops: ops, temps: make([]string, len(ops))}
	return c.run()
}

// isOutcome reports whether ops end a request, or only describe what happened. After a
// failed sync nothing else is committed.
func isOutcome(ops []store.Op) bool {
	return !slices.ContainsFunc(ops, func(op store.Op) bool { return op.Doc != "" }) ||
		slices.ContainsFunc(ops, func(op store.Op) bool { return op.Doc == approval.DocRecord })
}

// inJournal reports whether an op is restored by replay. What other processes replace, too,
// is durable by itself.
func inJournal(op store.Op) bool {
	switch op.Doc {
	case "", approval.DocResponse:
		return true
	case approval.DocPending:
		return op.Mode != store.Volatile
	}
	return op.Mode == store.Durable && slices.Contains(journaled, op.Doc)
}

// commitAlone writes one document that is durable by itself, or volatile.
func (s *Store) commitAlone(ops []store.Op) error {
	if len(ops) != 1 || ops[0].Doc == "" {
		return fmt.Errorf("commit: %w: only the daemon may write this", store.ErrUnavailable)
	}
	op := ops[0]
	if err := s.readOnly(); err != nil {
		return fmt.Errorf("commit %s: %w", op.Doc, err)
	}
	if op.Doc == approval.DocDecision && op.Mode == store.Durable && !s.Ready() {
		return fmt.Errorf("commit decision: %w: no daemon is ready", store.ErrUnavailable)
	}
	if err := s.restartErr(); err != nil && op.Mode != store.Volatile {
		return fmt.Errorf("commit %s: %w", op.Doc, err)
	}
	if err := s.save(s.path(op.Doc, op.Key), op.Bytes, op.Mode); err != nil {
		return fmt.Errorf("commit %s: %w", op.Doc, err)
	}
	if op.Check != nil {
		return op.Check()
	}
	return nil
}

func (c *commit) run() error {
	defer c.discard()
	for i, op := range c.ops {
		if err := c.prepare(i, op); err != nil {
			return fmt.Errorf("commit %s: %w", op.Doc, err)
		}
	}
	wait, err := c.join()
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	defer c.s.committed(c)
	if err := wait(); err != nil {
		return fmt.Errorf("commit: %w", c.s.stop(err))
	}
	c.s.firstCommit.CompareAndSwap(0, time.Now().UnixNano())
	c.show()
	return nil
}

// prepare does what may fail: it writes the files under temporary names, and puts decisions
// into their slots. A record, and what comes with it, needs no room for its file.
func (c *commit) prepare(i int, op store.Op) (err error) {
	s := c.s
	switch {
	case op.Doc == "", op.Doc == approval.DocResponse:
		return nil
	case op.Doc == approval.DocDecision:
		if err := s.put(s.path(op.Doc, op.Key), op.Bytes, store.Volatile); err != nil {
			return err
		}
		if op.Check != nil {
			return op.Check()
		}
		return nil
	case op.Mode != store.Replace:
		if err := c.reserveName(docKey{op.Doc, op.Key}); err != nil {
			return err
		}
	}
	if s.isLarge(op.Bytes) {
		c.temps[i], err = s.writeLarge(op)
		return err
	}
	c.temps[i], err = s.writeTemp(s.dir(op.Doc, op.Key.Workspace), op.Bytes, 0o600)
	if err != nil && op.Doc == approval.DocRecord {
		return nil // later
	}
	return err
}

// reserveName refuses a document that exists, or is being committed.
func (c *commit) reserveName(d docKey) error {
	w := &c.s.commits
	w.mu.Lock()
	_, late := w.late[d]
	if w.names[d] || late {
		w.mu.Unlock()
		return fs.ErrExist
	}
	w.names[d] = true
	c.names = append(c.names, d)
	w.mu.Unlock()
	_, err := c.s.Stat(d.doc, d.key)
	if err == nil {
		return fs.ErrExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// writeLarge writes a document whose bytes are too many for the journal, durably, under a
// name that replay finds.
func (s *Store) writeLarge(op store.Op) (string, error) {
	name := filepath.Join(s.dir(op.Doc, op.Key.Workspace), largeName(op.Bytes))
	return name, s.save(name, op.Bytes, store.Replace)
}

func largeName(b []byte) string {
	sum := sha256.Sum256(b)
	return largePrefix + hex.EncodeToString(sum[:])
}

// largePrefix is that of large documents between their commit and their name.
const largePrefix = tempPrefix + "large-"

// join numbers the entries and hands the body to the journal: in one order.
func (c *commit) join() (wait func() error, err error) {
	w, j := &c.s.commits, c.s.writer()
	if j == nil {
		return nil, store.ErrUnavailable
	}
	w.order.Lock()
	defer w.order.Unlock()
	body, entries, newWork := c.documents()
	if err := j.Room(len(body)+entries*min(maxLine, j.MaxBody()/4), newWork); err != nil {
		return nil, err // before a number is used up
	}
	if body, err = c.number(body, entries); err != nil {
		return nil, err
	}
	group := j.Last() + 1
	w.mu.Lock()
	w.pending[c] = group
	if entries > 0 {
		w.entries = append(w.entries, entryGroup{c.upTo, group})
	}
	w.mu.Unlock()
	if len(body) == 0 {
		return func() error { return nil }, nil
	}
	c.joined = true
	return j.Add(body), nil
}

// maxLine is more than an audit entry has bytes.
const maxLine = 32 << 10

// documents encodes the documents, and counts the entries. A pending and a claim are new
// work: they leave room in the journal for outcomes.
func (c *commit) documents() (body []byte, entries int, newWork bool) {
	size := 0
	for _, op := range c.ops {
		size += len(op.Bytes) + 512 // an entry, or the names of a document
	}
	body = make([]byte, 0, size)
	for _, op := range c.ops {
		switch {
		case op.Doc == "":
			entries++
		case inJournal(op) && op.Doc != approval.DocResponse:
			newWork = newWork || op.Doc == approval.DocPending || op.Doc == approval.DocClaim
			body = c.s.appendDocument(body, docKey{op.Doc, op.Key}, op.Bytes)
		}
	}
	return body, entries, newWork
}

// number appends the lines of the entries.
func (c *commit) number(body []byte, entries int) ([]byte, error) {
	if entries == 0 {
		return body, nil
	}
	log := c.s.commits.log
	if log == nil {
		return nil, errors.New("the audit log is not open")
	}
	for _, op := range c.ops {
		if op.Doc != "" {
			continue
		}
		line, seq, err := log.Next(op.Entry)
		if err != nil && c.upTo > 0 {
			return nil, c.s.stop(err) // the number before would be missing in the log
		}
		if err != nil {
			return nil, err
		}
		body, c.upTo = appendPart(body, partEntry, line), seq
	}
	return body, nil
}

// show makes the files visible. The commit is durable: what cannot be written now is kept in
// memory, and written later.
func (c *commit) show() {
	s := c.s
	for i, op := range c.ops {
		switch op.Doc {
		case "", approval.DocDecision:
		case approval.DocResponse:
			if err := s.replace(s.path(op.Doc, op.Key), op.Bytes, 0o644); err != nil {
				s.keepLate(c, op)
			}
		default:
			if !c.rename(i, op) {
				s.keepLate(c, op)
			}
		}
	}
	_ = s.appendLines(c.upTo) // Flush tries again
}

// rename gives a prepared file its name. One that another program made meanwhile, without a
// MAC, is replaced.
func (c *commit) rename(i int, op store.Op) bool {
	s, name := c.s, c.s.path(op.Doc, op.Key)
	if c.temps[i] == "" {
		return s.replace(name, op.Bytes, 0o600) == nil
	}
	before := s.storedAt(name)
	err := s.FS.Rename(c.temps[i], name)
	if err == nil {
		c.temps[i] = ""
		s.written(name, before, op.Bytes)
	}
	return err == nil
}

// discard releases the names, and removes the files that have none.
func (c *commit) discard() {
	w := &c.s.commits
	w.mu.Lock()
	for _, d := range c.names {
		delete(w.names, d)
	}
	w.mu.Unlock()
	for i, temp := range c.temps {
		if temp == "" || c.joined && c.s.isLarge(c.ops[i].Bytes) {
			continue // replay needs the only file that has it
		}
		c.s.discard(temp)
	}
}

// committed lets checkpoints pass a commit: its files are visible, or kept as late.
func (s *Store) committed(c *commit) {
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	delete(s.commits.pending, c)
}

func (s *Store) keepLate(c *commit, op store.Op) {
	w := &s.commits
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late[docKey{op.Doc, op.Key}] = lateFile{op.Bytes, w.pending[c]}
	s.lateCount.Store(int64(len(w.late)))
}

// readLate returns a document whose file could not be written yet.
func (s *Store) readLate(d approval.Doc, k approval.Key) ([]byte, bool) {
	if s.lateCount.Load() == 0 {
		return nil, false
	}
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	f, ok := s.commits.late[docKey{d, k}]
	return f.bytes, ok
}

// dropLate forgets a late file: it was written, or the document is removed.
func (s *Store) dropLate(d docKey) {
	if s.lateCount.Load() == 0 {
		return
	}
	s.commits.mu.Lock()
	late, ok := s.commits.late[d]
	delete(s.commits.late, d)
	s.lateCount.Store(int64(len(s.commits.late)))
	s.commits.mu.Unlock()
	if ok && d.doc != approval.DocResponse && s.isLarge(late.bytes) {
		s.discard(filepath.Join(s.dir(d.doc, d.key.Workspace), largeName(late.bytes)))
	}
}

// writeLate writes late files, records before responses.
func (s *Store) writeLate() error {
	if s.lateCount.Load() == 0 {
		return nil
	}
	s.commits.mu.Lock()
	keys := slices.Collect(maps.Keys(s.commits.late))
	s.commits.mu.Unlock()
	slices.SortFunc(keys, func(a, b docKey) int { return cmp.Compare(a.doc, b.doc) }) // record before response
	for _, d := range keys {
		b, ok := s.readLate(d.doc, d.key)
		if !ok {
			continue
		}
		if err := s.writeLateFile(d, b); err != nil {
			return fmt.Errorf("write %s of %s: %w", d.doc, d.key, err)
		}
		s.dropLate(d)
	}
	return nil
}

func (s *Store) writeLateFile(d docKey, b []byte) error {
	name := s.path(d.doc, d.key)
	switch {
	case d.doc == approval.DocResponse:
		return s.replace(name, b, 0o644)
	case s.isLarge(b):
		before := s.storedAt(name)
		err := s.FS.Rename(filepath.Join(filepath.Dir(name), largeName(b)), name)
		if err == nil {
			s.written(name, before, b)
		}
		return err
	}
	return s.replace(name, b, 0o600)
}

// CommitEntry implements audit.Committer: the entry joins the group that is being filled.
// wait returns when it is durable, and in the log's file if that can be written.
func (s *Store) CommitEntry(e event.Entry) (wait func() error, err error) {
	c := &commit{s: s, ops: []store.Op{store.Log(e)}}
	joined, err := c.join()
	if err != nil {
		return nil, err
	}
	s.committed(c) // it has no files but the log
	return func() error {
		if err := joined(); err != nil {
			return s.stop(err)
		}
		c.show()
		return nil
	}, nil
}

// Flush implements audit.Committer.
func (s *Store) Flush() error {
	j := s.writer()
	if j == nil {
		return store.ErrUnavailable
	}
	w := &s.commits
	w.mu.Lock()
	upTo := int64(0)
	if n := len(w.entries); n > 0 {
		upTo = w.entries[n-1].seq
	}
	w.mu.Unlock()
	if err := j.Flush(); err != nil {
		return s.stop(err)
	}
	return s.appendLines(upTo)
}

// appendLines writes committed lines into the log's file.
func (s *Store) appendLines(upTo int64) error {
	if upTo == 0 {
		return nil
	}
	w := &s.commits
	err := w.log.Durable(upTo)
	appended := w.log.Appended()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n < len(w.entries) && w.entries[n].seq <= appended {
		n++
	}
	w.entries = append(w.entries[:0], w.entries[n:]...)
	return err
}

// SetLog makes l the log of all entries that are committed.
func (s *Store) SetLog(l LogFile) {
	s.commits.order.Lock()
	defer s.commits.order.Unlock()
	s.commits.log = l
}
