package crashfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ino numbers a file or folder; 0 is none.
type ino uint32

const root ino = 1

// owner marks the only disk that may change a node in place. It is not empty, so that two
// owners never have the same address.
type owner struct{ _ byte }

// node is a file or a folder. Only the disk whose owner it has changes it in place.
// Slices and blobs are never changed, only replaced.
type node struct {
	owner *owner
	dir   bool
	mode  fs.FileMode
	mtime time.Time

	// A file: the visible data, and the data of the last successful fsync.
	data, durable *blob
	syncFailed    bool  // an fsync failed: nothing becomes durable any more
	lost          []int // blocks of a large file that a failed fsync dropped: durable only when they are written again

	// A folder: entries sorted by name. Without pending changes, entries and
	// synced are equal.
	entries, synced []entry
	pending         []change
}

type entry struct {
	name string
	hash uint64 // of the normal form of name
	ino  ino
}

// edit sets one entry, or removes it if ino is 0.
type edit struct {
	entry
	order int // number of earlier pending edits of the same name
}

// change is a list of edits that survive a power cut together or not at all.
type change []edit

// own returns the node for a change. The caller holds the lock.
func (d *Disk) own(i ino) *node {
	n := d.nodes[i]
	if n.owner != d.owner {
		c := *n
		c.owner = d.owner
		n, d.nodes[i] = &c, &c
	}
	return n
}

func (d *Disk) newNode(dir bool, mode fs.FileMode) ino {
	n := &node{owner: d.owner, dir: dir, mode: mode.Perm() &^ d.Umask, mtime: d.now()}
	n.mode |= mode & (fs.ModeSticky | fs.ModeSetuid | fs.ModeSetgid)
	if dir {
		n.mode |= fs.ModeDir
	}
	if last := len(d.free) - 1; last >= 0 {
		i := d.free[last]
		d.free, d.nodes[i] = d.free[:last], n
		return i
	}
	d.nodes = append(d.nodes, n)
	return ino(len(d.nodes) - 1)
}

// edit makes one change to a folder: every name in it is set to its node, or removed. The
// caller holds the lock.
func (d *Disk) edit(folder ino, entries ...entry) {
	n := d.own(folder)
	c := make(change, len(entries))
	for i, e := range entries {
		e.hash = d.nameHash(e.name)
		c[i] = edit{entry: e, order: n.order(e.name)}
		n.entries = set(n.entries, e)
	}
	n.pending = append(n.pending[:len(n.pending):len(n.pending)], c)
	n.mtime = d.now()
}

func (d *Disk) nameHash(name string) uint64 {
	if d.Normal != nil {
		name = d.Normal(name)
	}
	h := uint64(14695981039346656037) // inlined because hash/fnv allocates
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// order returns the number of pending edits of a name.
func (n *node) order(name string) int {
	for _, c := range slices.Backward(n.pending) {
		for _, e := range slices.Backward(c) {
			if e.name == name {
				return e.order + 1
			}
		}
	}
	return 0
}

// unsynced reports whether a power cut could change the node.
func (n *node) unsynced() bool {
	return len(n.pending) > 0 || n.data != n.durable
}

// sync makes the data or the names durable, unless an earlier sync failed.
func (n *node) sync() {
	if n.syncFailed {
		return
	}
	n.durable, n.synced, n.pending = n.withoutLost(), n.entries, nil
}

// withoutLost is what a sync makes durable.
func (n *node) withoutLost() *blob {
	if len(n.lost) == 0 || !n.data.inPlace(n.durable) {
		return n.data
	}
	b := &blob{blocks: slices.Clone(n.data.blocks), size: n.data.size}
	for _, i := range n.lost {
		b.blocks[i] = n.durable.blocks[i]
	}
	return b
}

// markSyncFailed is the effect of a failed fsync: the kernel drops what it could not write,
// and reports it once. A block that is overwritten later counts again; a file that grew, or
// the names in a folder, do not.
func (n *node) markSyncFailed() {
	if !n.dir && n.data.inPlace(n.durable) {
		n.lost = slices.Compact(slices.Sorted(slices.Values(append(n.data.changed(n.durable), n.lost...))))
		return
	}
	n.syncFailed = true
}

func (n *node) child(name string) ino {
	if i, found := find(n.entries, name); found {
		return n.entries[i].ino
	}
	return 0
}

func find(entries []entry, name string) (int, bool) {
	return slices.BinarySearchFunc(entries, name, func(e entry, name string) int {
		return strings.Compare(e.name, name)
	})
}

// set returns a copy of entries with e added or replaced, or removed if e.ino is 0.
func set(entries []entry, e entry) []entry {
	i, found := find(entries, e.name)
	rest := entries[i:]
	if found {
		rest = rest[1:]
	}
	changed := make([]entry, 0, len(entries)+1)
	changed = append(changed, entries[:i]...)
	if e.ino != 0 {
		changed = append(changed, e)
	}
	return append(changed, rest...)
}

// place is where a path leads: a name in a folder, and its node, 0 if there is none. The
// root is in no folder.
type place struct {
	folder, ino ino
	name        string
}

// resolve finds a path. It fails if a folder above it does not exist. The caller holds
// the lock.
func (d *Disk) resolve(name string) (place, error) {
	rest, err := clean(name)
	if err != nil {
		return place{}, err
	}
	at := place{ino: root, name: "/"}
	for rest != "" {
		if at.ino == 0 {
			return place{}, syscall.ENOENT
		}
		at.folder = at.ino
		at.name, rest, _ = strings.Cut(rest, "/")
		if !d.nodes[at.folder].dir {
			return place{}, syscall.ENOTDIR
		}
		if len(at.name) > 255 {
			return place{}, syscall.ENAMETOOLONG
		}
		at.ino = d.nodes[at.folder].child(at.name)
	}
	return at, nil
}

// existing is resolve for a path that must exist.
func (d *Disk) existing(name string) (place, error) {
	at, err := d.resolve(name)
	if err == nil && at.ino == 0 {
		err = syscall.ENOENT
	}
	return at, err
}

// clean returns the path from the root, without a slash at either end.
func clean(name string) (string, error) {
	switch {
	case name == "":
		return "", syscall.ENOENT
	case strings.IndexByte(name, 0) >= 0:
		return "", syscall.EINVAL
	case name[0] != '/':
		name = "/" + name
	}
	return path.Clean(name)[1:], nil
}
