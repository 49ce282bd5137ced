package crashfs

import "encoding/binary"

// Hash returns a fingerprint of the whole state: what is visible, what is durable, and
// which changes are pending in which groups. Two disks with equal hashes behave alike
// under every kill and cut. It does not depend on inode numbers, times, the order of
// unrelated changes, or differences that [Disk.Normal] removes. Open files without a name
// do not count.
//
// Every node contributes its own state and the set of all names that lead to it,
// volatile, durable or pending. The contributions are added, so their order does not
// matter.
func (d *Disk) Hash() [16]byte { return d.fingerprint(false) }

// TimedHash is [Disk.Hash] with the times of files and folders.
func (d *Disk) TimedHash() [16]byte { return d.fingerprint(true) }

func (d *Disk) fingerprint(timed bool) [16]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := hasher{disk: d, seen: make([]seen, len(d.nodes)), queue: make([]folder, 0, 32)}
	h.refer(sum{}, 0, entry{ino: root})
	for i := 0; i < len(h.queue); i++ {
		h.folder(h.queue[i])
	}
	for i := range h.seen {
		if s := &h.seen[i]; s.reached {
			n := d.nodes[i]
			if timed {
				s.names = s.names.mix(uint64(n.mtime.UnixNano()))
			}
			h.total = h.total.add(n.state(s.names, d.NormalData))
		}
	}
	var out [16]byte
	binary.LittleEndian.PutUint64(out[:8], h.total.a)
	binary.LittleEndian.PutUint64(out[8:], h.total.b)
	return out
}

type hasher struct {
	disk  *Disk
	seen  []seen // by ino
	queue []folder
	total sum
}

// seen is what is known of a node: the sum of all names that lead to it.
type seen struct {
	names   sum
	reached bool
}

// folder is a folder that was reached, and the first path to it.
type folder struct {
	node *node
	path sum
}

// The kind of a name that leads to a node: odd numbers far apart, added to the hash of
// the name.
const (
	hashSettled uint64 = 0x9e3779b97f4a7c15 // visible and durable, nothing pending in the folder
	hashVisible uint64 = 0xbf58476d1ce4e5b9
	hashDurable uint64 = 0x94d049bb133111eb
	hashPending uint64 = 0xd6e8feb86659fd93
)

// folder adds all names in one folder.
func (h *hasher) folder(f folder) {
	if len(f.node.pending) == 0 {
		h.names(f.path, hashSettled, f.node.entries)
		return
	}
	h.names(f.path, hashVisible, f.node.entries)
	h.names(f.path, hashDurable, f.node.synced)
	for _, c := range f.node.pending {
		group := f.path
		for _, e := range c {
			group = group.add(sum{}.mix(e.hash).mix(uint64(e.order)))
		}
		for _, e := range c {
			h.refer(group, hashPending, e.entry)
		}
	}
}

func (h *hasher) names(path sum, tag uint64, entries []entry) {
	for _, e := range entries {
		h.refer(path, tag, e)
	}
}

// refer adds a name that leads to a node. A pending removal leads to none and counts by
// itself.
func (h *hasher) refer(from sum, tag uint64, e entry) {
	name := from.mix(e.hash + tag)
	if e.ino == 0 {
		h.total = h.total.add(name)
		return
	}
	s := &h.seen[e.ino]
	s.names = s.names.add(name)
	if s.reached {
		return
	}
	s.reached = true
	if n := h.disk.nodes[e.ino]; n.dir {
		h.queue = append(h.queue, folder{node: n, path: from.mix(e.hash)})
	}
}

// state returns the node's contribution to the hash.
func (n *node) state(names sum, normal func([]byte) []byte) sum {
	flags := uint64(n.mode) << 2
	if n.syncFailed {
		flags |= 1
	}
	for _, i := range n.lost {
		names = names.mix(uint64(i) + 3)
	}
	data, durable := n.data.sum(normal), n.durable.sum(normal)
	if data == durable {
		return names.mix(flags).mix2(data)
	}
	return names.mix(flags | 2).mix2(data).mix2(durable)
}

// sum is a 128-bit hash in two independent lanes.
type sum struct{ a, b uint64 }

func (s sum) mix(x uint64) sum { return s.mix2(sum{x, x}) }

func (s sum) mix2(x sum) sum {
	return sum{
		fmix(s.a*0x9e3779b97f4a7c15 + x.a + 0x632be59bd9b4e019),
		fmix(s.b*0xd1342543de82ef95 + x.b + 0x8cb92ba72f3d8dd7),
	}
}

func (s sum) add(x sum) sum { return sum{s.a + x.a, s.b + x.b} }

// fmix is the finalizer of splitmix64.
func fmix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
