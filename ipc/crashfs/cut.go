package crashfs

import (
	"fmt"
	"slices"
)

// Survive selects what of the unsynced state survives a power cut.
type Survive uint64

// The fixed ways. [Seeded] has the others.
const (
	// OnlySynced leaves the synced state: new names vanish, removed ones come back, files
	// have the data of their last fsync or none.
	OnlySynced Survive = iota
	// Everything leaves the visible state.
	Everything
	// NamesNotData leaves every name, with the data of the last fsync or none.
	NamesNotData
	// DataNotNames leaves all data, behind the names of the last SyncDir.
	DataNotNames
	// Torn leaves every name, and the first half of the unsynced part of a file. After
	// the tear the synced data remains.
	Torn
	// Zeroed leaves every name and every length; unsynced parts read as zeros, or as the
	// synced data where there was some.
	Zeroed
	fixedWays

	garbage = fixedWays // of a block: only in seeded ways

	seeded Survive = 1 << 63
)

// Seeded leaves an arbitrary part, the same one for the same number: each change of a
// folder survives or not by itself. Of each file's unsynced data it leaves all, nothing,
// a torn part or zeros. Of the blocks that were overwritten in a large file it leaves a
// prefix, the next one torn or with garbage, or each as it comes.
func Seeded(n uint64) Survive { return seeded | Survive(n) }

// Ways returns the fixed ways, in order.
func Ways() []Survive {
	ways := make([]Survive, fixedWays)
	for i := range ways {
		ways[i] = Survive(i)
	}
	return ways
}

// String names the way, for reports.
func (v Survive) String() string {
	names := [...]string{"only synced", "everything", "names, not data", "data, not names", "torn", "zeroed"}
	switch {
	case v&seeded != 0:
		return fmt.Sprintf("seeded %d", uint64(v&^seeded))
	case v < fixedWays:
		return names[v]
	}
	return fmt.Sprintf("survive(%d)", uint64(v))
}

// Cut returns what a power cut now would leave. On the result everything is durable. The
// disk itself and its processes go on.
func (d *Disk) Cut(v Survive) *Disk {
	s := d.Snapshot()
	// The finalizer spreads neighboring seeds over the whole range.
	c := cut{way: v, random: fmix(uint64(v))}
	for i, n := range s.nodes {
		if n == nil || !n.unsynced() && !n.syncFailed {
			continue
		}
		n = s.own(ino(i))
		if n.dir {
			n.entries = c.names(n)
		} else {
			n.data = c.data(n)
		}
		n.syncFailed, n.lost = false, nil
		n.sync()
	}
	s.sweep()
	return s
}

// cut is one power cut in progress.
type cut struct {
	way    Survive
	random uint64
}

// names returns the entries of a folder after the cut.
func (c *cut) names(n *node) []entry {
	switch {
	case c.way == OnlySynced || c.way == DataNotNames:
		return n.synced
	case c.way < fixedWays:
		return n.entries
	}
	left := n.synced
	for _, change := range n.pending {
		if c.pick(2) == 0 {
			continue
		}
		for _, e := range change {
			left = set(left, e.entry)
		}
	}
	return left
}

// data returns a file's data after the cut.
func (c *cut) data(n *node) *blob {
	if n.data.inPlace(n.durable) {
		return c.overwrites(n)
	}
	volatile, durable := n.data.bytes(), n.durable.bytes()
	same := commonPrefix(volatile, durable)
	unsynced := len(volatile) - same
	way := c.way
	if way&seeded != 0 {
		way = [...]Survive{Everything, OnlySynced, Torn, Zeroed}[c.pick(4)]
	}
	switch way {
	case Everything, DataNotNames:
		return n.data
	case Torn:
		tear := same + unsynced/2
		if c.way != Torn {
			tear = same + c.pick(unsynced+1)
		}
		return newBlob(torn(volatile, durable, tear))
	case Zeroed:
		return newBlob(resized(durable, len(volatile)))
	}
	return n.durable
}

// overwrites returns the data of a large file of which blocks were overwritten. Of each such
// block the disk may have the new bytes, the old ones, some of both, or none of them.
func (c *cut) overwrites(n *node) *blob {
	changed := n.data.changed(n.durable)
	all := &blob{blocks: slices.Clone(n.durable.blocks), size: n.durable.size}
	prefix := c.pick(len(changed) + 1) // of a prefix, the blocks that are new
	inOrder := c.pick(2) == 0
	for at, i := range changed {
		volatile, durable := n.data.blocks[i], n.durable.blocks[i]
		way := c.way
		switch {
		case way&seeded == 0:
		case !inOrder:
			way = [...]Survive{Everything, OnlySynced, Torn, Zeroed}[c.pick(4)]
		case at < prefix:
			way = Everything
		case at == prefix:
			way = [...]Survive{OnlySynced, Torn, Zeroed, garbage}[c.pick(4)]
		default:
			way = OnlySynced
		}
		all.blocks[i] = c.block(way, volatile, durable, at < len(changed)/2, at == len(changed)/2)
	}
	return all
}

// block returns one overwritten block: whether it is in the first half of them, or in the
// middle, decides what a fixed way leaves.
func (c *cut) block(way Survive, volatile, durable []byte, first, middle bool) []byte {
	switch {
	case way == Everything || way == DataNotNames:
		return volatile
	case way == Zeroed:
		return zeroBlock[:len(volatile)]
	case way == garbage:
		b := slices.Clone(volatile)
		for i := c.pick(len(b)); i < len(b); i++ {
			b[i] = byte(c.random >> (i % 57))
		}
		return b
	case way != Torn:
		return durable
	case c.way != Torn:
		return torn(volatile, durable, c.pick(len(volatile)+1))
	case first:
		return volatile
	case middle:
		return torn(volatile, durable, min(groupTear, len(volatile)))
	}
	return durable
}

// groupTear is where the fixed way tears a block: within its first bytes, which are those
// that a short record has.
const groupTear = 100

// pick returns a number below n, the next of the seed's sequence.
func (c *cut) pick(n int) int {
	c.random += 0x9e3779b97f4a7c15
	return int((fmix(c.random) >> 33) % uint64(n))
}

func commonPrefix(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// torn returns the new data up to the tear and the old data after it.
func torn(volatile, durable []byte, tear int) []byte {
	return slices.Concat(volatile[:tear], durable[min(tear, len(durable)):])
}

// resized returns a copy of b with n bytes, zeros where b has none.
func resized(b []byte, n int) []byte {
	left := make([]byte, n)
	copy(left, b)
	return left
}

// sweep frees the nodes that have no name. After a cut no process has one open, and no
// unsynced change can restore one.
func (d *Disk) sweep() {
	reached := make([]bool, len(d.nodes))
	d.reach(reached, root)
	d.free = d.free[:0]
	for i := int(root); i < len(d.nodes); i++ {
		if !reached[i] {
			d.nodes[i] = nil
			d.free = append(d.free, ino(i))
		}
	}
}

func (d *Disk) reach(reached []bool, i ino) {
	reached[i] = true
	for _, e := range d.nodes[i].entries {
		d.reach(reached, e.ino)
	}
}
