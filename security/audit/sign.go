package audit

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/permesso-dev/permesso/approval"
)

// openSigning finds the checkpoint to go on from.
func (l *Log) openSigning(keys Keys) error {
	if l.signing == nil {
		return nil
	}
	end, err := readEnd(l.fs, filepath.Join(l.dir, checkpointFile), keys.Known)
	if err != nil {
		return err
	}
	l.signing.good, l.signing.newest, l.tree = end.good, end.newest, end.tree
	l.newest.Store(end.newest)
	l.tried = end.tree.size
	return nil
}

// grow adds to the tree what lies between the newest checkpoint and the last
// segment, which begins with number end. Mostly that is nothing.
func (l *Log) grow(end int64) error {
	if l.signing == nil || l.tree.size+1 >= end {
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
	return w.lines(all, from, end, func(line []byte, e approval.Entry, _ place) error {
		l.plant(e.Seq, line)
		return nil
	})
}

// plant adds a line to the tree that it does not have yet.
func (l *Log) plant(seq int64, line []byte) {
	if l.signing != nil && seq == l.tree.size+1 {
		l.tree.add(leafHash(line))
	}
}

// checkLength refuses a log from which something was cut that was signed.
func (l *Log) checkLength() error {
	if c := l.newest.Load(); c != nil && l.seq < c.Size {
		return fmt.Errorf("%w: it ends with number %d, and its newest checkpoint was signed for %d\nhint: restore it "+
			"from a backup, or keep it and begin a new one: move the folder %s away", ErrDamaged, l.seq, c.Size, l.dir)
	}
	return nil
}

// Checkpoint makes durable what was noted and signs the log as it is, unless
// that is signed already, by the same key. An error leaves the log in order.
func (l *Log) Checkpoint() error {
	if err := l.Sync(); err != nil {
		return err
	}
	l.marking.Lock()
	defer l.marking.Unlock()
	return l.sign()
}

// Newest is the newest checkpoint, or nil.
func (l *Log) Newest() *Checkpoint { return l.newest.Load() }

// sign writes a checkpoint of what is durable. The caller holds marking, not mu:
// others go on writing and syncing.
func (l *Log) sign() error {
	if l.signing == nil {
		return nil
	}
	l.mu.Lock()
	t := tree{l.tree.size, slices.Clone(l.tree.edge)}
	l.mu.Unlock()
	last := l.signing.newest
	if t.size == 0 || last != nil && last.Size == t.size && last.Key == l.signing.signer.KeyHash() {
		return nil
	}
	l.mu.Lock()
	l.tried, l.triedAt = t.size, l.now()
	l.mu.Unlock()
	if err := l.signing.write(t); err != nil {
		return err
	}
	l.newest.Store(l.signing.newest)
	return nil
}

// settle says that the lines up to seq are durable.
func (l *Log) settle(seq int64) {
	if l.signing != nil {
		n := seq - l.durable
		for _, leaf := range l.leaves[:n] {
			l.tree.add(leaf)
		}
		l.leaves = append(l.leaves[:0], l.leaves[n:]...)
	}
	l.durable = seq
}
