package audit

import (
	"crypto/sha256"
	"errors"
	"math/bits"
	"path/filepath"

	"golang.org/x/mod/sumdb/tlog"
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
	l.checkpoints.good = end.good
	l.newest.Store(end.newest)
	l.lastTried = end.entries()
	return nil
}

// addLeaf adds a line to the tree if the tree lacks it.
func (l *Log) addLeaf(seq int64, line []byte) {
	if l.checkpoints != nil && seq == l.tree.size+1 {
		l.tree.add(leafHash(line))
	}
}

// Checkpoint makes all noted entries durable and signs the log, unless the same key
// has signed this size. If another program has changed the files, it raises an Alarm. The log stays usable after an error.
func (l *Log) Checkpoint() error {
	if err := l.Sync(); err != nil {
		return err
	}
	l.files.Lock()
	defer l.files.Unlock()
	if err := l.checkFiles(); err != nil {
		return err
	}
	return l.sign()
}

// Newest returns the newest checkpoint, or nil.
func (l *Log) Newest() *Checkpoint { return l.newest.Load() }

// sign writes a checkpoint of the lines in the files, all of which are committed. The
// caller holds files.
func (l *Log) sign() error {
	last := l.newest.Load()
	if l.checkpoints == nil || l.tree.size == 0 || last != nil && last.Size == l.tree.size && last.Key == l.checkpoints.signer.KeyHash() {
		return nil
	}
	l.lastTried, l.lastTriedAt = l.tree.size, l.now()
	c, err := l.checkpoints.write(l.tree)
	if err != nil {
		return err
	}
	l.newest.Store(c)
	return nil
}

// signatureDue reports whether it is time for a periodic checkpoint.
func (l *Log) signatureDue() bool {
	if l.tree.size < l.lastTried+signAfter {
		return false
	}
	since := l.now().Sub(l.lastTriedAt)
	return since >= signEvery || since < 0 // the clock was set back
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
