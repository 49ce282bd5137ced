package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Errors of commits.
var (
	// ErrEnded says that a write or sync failed. Nothing is committed any more.
	ErrEnded = errors.New("the journal cannot be written")
	// ErrNoRoom says that there is no room until a checkpoint.
	ErrNoRoom = errors.New("the journal is full")
	// ErrTooLarge says that a body is larger than MaxBody.
	ErrTooLarge = errors.New("too large for the journal")
)

// Journal is an open journal. It is safe for concurrent use.
type Journal struct {
	fs   FS
	dir  string
	size int64

	records []group // read by Open, from the mark on

	token        chan struct{} // held while a group is written
	checkpointMu sync.Mutex
	buffer       []byte // protected by token

	mu        sync.Mutex
	segments  []*segment
	current   *segment // nil before Begin
	place     uint64   // durable mark
	nextPlace uint64   // mark of the next group
	last      uint64   // newest durable group
	queue     []*batch // not durable, in order; bodies join the last
	queued    int64    // bytes that the queue may need
	reserved  int64
	filled    int // segments filled since the last checkpoint
	err       error
	began     time.Time
	total     Counts // since then
	seconds   window
}

// batch is a group that is being filled.
type batch struct {
	bodies []byte
	count  int
	done   chan struct{}
	err    error
}

// Records yields the bodies from the mark to the newest whole group, in order.
func (j *Journal) Records(yield func(group uint64, body []byte) error) error {
	for _, g := range j.records {
		if err := eachBody(g.bodies, func(body []byte) error { return yield(g.number, body) }); err != nil {
			return err
		}
	}
	return nil
}

// Begin begins a life: a free segment gets a header whose mark is behind everything that
// Records yields. The caller has made that durable elsewhere.
func (j *Journal) Begin() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := j.last + 1
	for _, s := range j.segments {
		first = max(first, s.header.first+1) // also of one whose first group was torn
	}
	free := j.free()
	if len(free) == 0 {
		return fmt.Errorf("begin: %w", ErrNoRoom)
	}
	s := free[0]
	header := newHeader(first, first)
	if _, err := s.file.WriteAt(header.append(nil), 0); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := j.fs.Datasync(s.file); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	s.header, s.last, s.end = header, 0, headersEnd
	j.current, j.place, j.nextPlace, j.last, j.records = s, first, first, first-1, nil
	j.began = time.Now()
	return nil
}

func newHeader(first, place uint64) header {
	h := header{first: first, place: place}
	_, _ = rand.Read(h.nonce[:]) // never fails: see crypto/rand
	return h
}

// free are the segments without a group from the mark on.
func (j *Journal) free() (list []*segment) {
	for _, s := range j.segments {
		if s != j.current && (s.last == 0 || s.last < j.place) {
			list = append(list, s)
		}
	}
	return list
}

// groupLimit is the most that a group has in bytes, so that little of a segment is wasted.
func (j *Journal) groupLimit() int64 { return min(maxGroup, (j.size-headersEnd)/4) }

// MaxBody is the largest body in bytes.
func (j *Journal) MaxBody() int { return int(j.groupLimit()) - groupSize - 4 }

// Room reports whether a body of n bytes can be added now. New work leaves what is reserved,
// and one segment, to others.
func (j *Journal) Room(n int, newWork bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	need := inBlocks(int64(n) + groupSize + 4)
	if newWork {
		need += j.reserved + j.usable()
	}
	switch {
	case j.err != nil:
		return j.err
	case n > j.MaxBody():
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, j.MaxBody())
	case need > j.available():
		return ErrNoRoom
	}
	return nil
}

// usable is what a segment can hold at least.
func (j *Journal) usable() int64 { return j.size - headersEnd - j.groupLimit() }

// available is what can be added at least: without the segment that stays free.
func (j *Journal) available() int64 {
	if j.current == nil {
		return 0
	}
	rest := max(0, j.size-j.current.end-j.groupLimit())
	return rest + int64(max(0, len(j.free())-1))*j.usable() - j.queued
}

// Reserve keeps room for an outcome, until release.
func (j *Journal) Reserve(bytes int64) (release func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	need := inBlocks(min(bytes, j.groupLimit()) + groupSize + 4)
	switch {
	case j.err != nil:
		return nil, j.err
	case j.reserved+need > j.available():
		return nil, ErrNoRoom
	}
	j.reserved += need
	return sync.OnceFunc(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.reserved -= need
	}), nil
}

// Add puts a body into the group that is being filled. wait returns when it is durable, or
// an error that wraps ErrEnded. Bodies are in the order of the calls. Without a wait, the
// body becomes durable with a later one, or by Flush.
func (j *Journal) Add(body []byte) (wait func() error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b, err := j.join(body)
	if err != nil {
		return func() error { return err }
	}
	return func() error { return j.wait(b) }
}

func (j *Journal) join(body []byte) (*batch, error) {
	switch {
	case j.err != nil:
		return nil, j.err
	case len(body) > j.MaxBody():
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(body), j.MaxBody())
	}
	var b *batch
	if n := len(j.queue); n > 0 {
		b = j.queue[n-1]
	}
	if b == nil || len(b.bodies)+4+len(body) > int(j.groupLimit())-groupSize {
		b = &batch{bodies: make([]byte, 0, max(blockSize, 4+len(body))), done: make(chan struct{})}
		j.queue = append(j.queue, b)
		j.queued += blockSize
	}
	b.bodies = appendBody(b.bodies, body)
	b.count++
	j.queued += int64(4 + len(body))
	return b, nil
}

// wait returns when a batch is durable. One of those that wait writes the groups, one after
// the other, and lets another go on when its own is durable.
func (j *Journal) wait(b *batch) error {
	select {
	case <-b.done:
		return b.err
	case j.token <- struct{}{}:
	}
	defer func() { <-j.token }()
	for {
		select {
		case <-b.done:
			return b.err
		default:
			j.writeNext()
		}
	}
}

// Flush returns when everything that was added is durable.
func (j *Journal) Flush() error {
	j.mu.Lock()
	var b *batch
	if n := len(j.queue); n > 0 {
		b = j.queue[n-1]
	}
	err := j.err
	j.mu.Unlock()
	if b != nil {
		return j.wait(b)
	}
	j.token <- struct{}{} // one may be under way
	<-j.token
	if err == nil {
		err = j.Err()
	}
	return err
}

// writeNext makes the oldest batch durable. The caller holds the token.
func (j *Journal) writeNext() {
	j.mu.Lock()
	if len(j.queue) == 0 {
		j.mu.Unlock()
		return
	}
	b := j.queue[0]
	j.queue = j.queue[1:]
	g := group{j.last + 1, j.nextPlace, b.bodies}
	s, fresh, err := j.locate(int64(groupSize + len(b.bodies)))
	if j.err != nil {
		err = j.err
	}
	j.mu.Unlock()
	if err == nil {
		err = j.writeGroup(s, fresh, &g)
	}
	j.finish(b, &g, err)
}

// locate finds the segment for a group of n bytes, and a header if it is a fresh one.
func (j *Journal) locate(n int64) (*segment, *header, error) {
	if j.current == nil {
		return nil, nil, errors.New("the journal has not begun")
	}
	if j.current.end+n <= j.size {
		return j.current, nil, nil
	}
	free := j.free()
	if len(free) < 2 {
		return nil, nil, ErrNoRoom
	}
	h := newHeader(j.last+1, j.nextPlace)
	return free[0], &h, nil
}

// writeGroup writes a group, with the header of a fresh segment, and syncs.
func (j *Journal) writeGroup(s *segment, fresh *header, g *group) error {
	b, at := j.buffer[:0], s.end
	nonce := &s.header.nonce
	if fresh != nil {
		b, at, nonce = fresh.append(b), 0, &fresh.nonce
	}
	b = g.append(b, nonce)
	j.buffer = b[:0]
	if _, err := s.file.WriteAt(b, at); err != nil {
		return err
	}
	if err := j.fs.Datasync(s.file); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if fresh != nil {
		s.header, s.end = *fresh, headersEnd
		j.current = s
		j.filled++
	}
	s.last = g.number
	s.end += inBlocks(int64(groupSize + len(g.bodies)))
	return nil
}

// finish wakes those who wait for a batch. After an error nothing is written any more.
func (j *Journal) finish(b *batch, g *group, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queued -= blockSize + int64(len(b.bodies))
	if err == nil {
		j.last, j.place = g.number, g.place
		done := Counts{uint64(b.count), 1, uint64(len(b.bodies))}
		j.total.add(done)
		j.seconds.add(time.Now(), done)
	} else if j.err == nil {
		j.err = fmt.Errorf("%w: %w", ErrEnded, err)
	}
	b.err = j.err
	close(b.done)
}

// Err is the error that ended the journal, or nil.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Last is the number of the newest durable group.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Mark is the number of the group where replay begins.
func (j *Journal) Mark() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.place
}

// Checkpoint moves the mark. keep returns the first group that must stay, 0 for none; groups
// that become durable later stay anyway. sync makes everything before durable elsewhere. If
// it fails, the mark stays, and its error is returned.
func (j *Journal) Checkpoint(sync func() error, keep func() uint64) error {
	j.checkpointMu.Lock()
	defer j.checkpointMu.Unlock()
	place := j.Last() + 1
	if k := keep(); k != 0 {
		place = min(place, k)
	}
	j.mu.Lock()
	j.filled = 0
	j.mu.Unlock()
	if err := sync(); err != nil {
		return err
	}
	j.mu.Lock()
	if place <= j.place || j.err != nil {
		defer j.mu.Unlock()
		return j.err
	}
	j.nextPlace = place
	b := &batch{done: make(chan struct{})}
	if n := len(j.queue); n > 0 {
		b = j.queue[n-1]
	} else {
		j.queue = append(j.queue, b)
		j.queued += blockSize
	}
	j.mu.Unlock()
	return j.wait(b)
}

// NeedsCheckpoint reports whether a segment was filled since the last checkpoint.
func (j *Journal) NeedsCheckpoint() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.filled > 0
}

// Freeze calls f while no group is written.
func (j *Journal) Freeze(f func() error) error {
	j.token <- struct{}{}
	defer func() { <-j.token }()
	return f()
}

// Close closes the files. What was added and not waited for is lost.
func (j *Journal) Close() error {
	j.token <- struct{}{}
	defer func() { <-j.token }()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = fmt.Errorf("%w: it is closed", ErrEnded)
	}
	return j.closeFiles()
}

func (j *Journal) closeFiles() (err error) {
	for _, s := range j.segments {
		err = errors.Join(err, s.file.Close())
	}
	return err
}
