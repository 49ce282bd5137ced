package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
)

// openSigning finds the checkpoint to continue from.
func (l *Log) openSigning(keys Keys) error {
	if l.checkpoints == nil {
		return nil
	}
	end, err := readEnd(l.fs, filepath.Join(l.dir, checkpointFile), keys.Known)
	if err != nil {
		return err
	}
	l.checkpoints.good, l.checkpoints.newest, l.tree = end.good, end.newest, end.tree
	l.newest.Store(end.newest)
	l.lastTried = end.tree.size
	return nil
}

// extendTree adds the lines between the newest checkpoint and the last segment, which
// begins with number end. Usually there are none.
func (l *Log) extendTree(end int64) error {
	if l.checkpoints == nil || l.tree.size+1 >= end {
		return nil
	}
	all, err := segments(l.fs, l.dir)
	if err != nil {
		return err
	}
	w := &walk{fs: l.fs, dir: l.dir}
	from, err := w.find(all, l.tree.size+1)
	if err != nil {
		return err
	}
	return w.lines(all, from, end, func(line []byte, e event.Entry, _ place) error {
		l.addLeaf(e.Seq, line)
		return nil
	})
}

// addLeaf adds a line to the tree if the tree lacks it.
func (l *Log) addLeaf(seq int64, line []byte) {
	if l.checkpoints != nil && seq == l.tree.size+1 {
		l.tree.add(leafHash(line))
	}
}

// checkLength refuses a log that lacks signed entries.
func (l *Log) checkLength() error {
	if c := l.newest.Load(); c != nil && l.seq < c.Size {
		return hints.Add(fmt.Errorf("%w: it ends with number %d, but its newest checkpoint covers %d", ErrDamaged, l.seq, c.Size),
			"restore it from a backup, or move the folder "+l.dir+" away to begin a new log")
	}
	return nil
}

// Checkpoint makes all noted entries durable and signs the log, unless the same key
// has signed this size. The log stays usable after an error.
func (l *Log) Checkpoint() error {
	if err := l.Sync(); err != nil {
		return err
	}
	l.signMu.Lock()
	defer l.signMu.Unlock()
	return l.sign()
}

// Newest returns the newest checkpoint, or nil.
func (l *Log) Newest() *Checkpoint { return l.newest.Load() }

// sign writes a checkpoint of the durable entries. The caller holds signMu, not mu,
// so that other callers can write and sync.
func (l *Log) sign() error {
	if l.checkpoints == nil {
		return nil
	}
	l.mu.Lock()
	t := tree{l.tree.size, slices.Clone(l.tree.edge)}
	l.mu.Unlock()
	last := l.checkpoints.newest
	if t.size == 0 || last != nil && last.Size == t.size && last.Key == l.checkpoints.signer.KeyHash() {
		return nil
	}
	l.mu.Lock()
	l.lastTried, l.lastTriedAt = t.size, l.now()
	l.mu.Unlock()
	if err := l.checkpoints.write(t); err != nil {
		return err
	}
	l.newest.Store(l.checkpoints.newest)
	return nil
}

// markDurable records that the lines up to seq are durable.
func (l *Log) markDurable(seq int64) {
	if l.checkpoints != nil {
		n := seq - l.durable
		for _, leaf := range l.leaves[:n] {
			l.tree.add(leaf)
		}
		l.leaves = append(l.leaves[:0], l.leaves[n:]...)
	}
	l.durable = seq
}

// tree is the right edge of the RFC 6962 tree over the first size lines: the roots
// of its complete subtrees, the largest first. That is enough to add leaves and to
// compute the root.
type tree struct {
	size int64
	edge []tlog.Hash
}

// leafHash is the leaf of a line without its line feed.
func leafHash(line []byte) tlog.Hash { return tlog.RecordHash(line) }

func (t *tree) add(leaf tlog.Hash) {
	t.edge = append(t.edge, leaf)
	for n := t.size; n&1 == 1; n >>= 1 {
		last := len(t.edge) - 1
		t.edge[last-1] = tlog.NodeHash(t.edge[last-1], t.edge[last])
		t.edge = t.edge[:last]
	}
	t.size++
}

func (t *tree) root() tlog.Hash {
	if len(t.edge) == 0 {
		return sha256.Sum256(nil)
	}
	h := t.edge[len(t.edge)-1]
	for i := len(t.edge) - 2; i >= 0; i-- {
		h = tlog.NodeHash(t.edge[i], h)
	}
	return h
}

// newTree refuses an edge that does not give the signed root.
func newTree(size int64, edge []tlog.Hash, root tlog.Hash) (tree, error) {
	t := tree{size, edge}
	if len(edge) != bits.OnesCount64(uint64(size)) || t.root() != root {
		return tree{}, errors.New("right edge does not hash to the signed root")
	}
	return t, nil
}
