package audit

import (
	"crypto/sha256"
	"errors"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

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
