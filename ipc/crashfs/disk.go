// Package crashfs is a simulated disk for crash tests. It separates what running
// programs see (the volatile state) from what a power cut would leave (the
// durable state). A copy takes about a microsecond. A cut can leave any state
// that a weak file system is allowed to leave.
//
// # Model
//
// A file has visible data and the data of its last fsync. A folder has visible
// entries, the entries of its last SyncDir, and the ordered list of changes
// between the two. The rules are the weakest that POSIX permits, so that code
// which is correct here is correct on any local file system:
//
//   - Sync on a file makes its data durable, not its name.
//   - SyncDir makes the names in that one folder durable, not the data behind
//     them and not the folder's own name in its parent.
//   - SyncFS makes everything durable.
//   - A create, a mkdir and a remove are one change each. A rename within a
//     folder is one change with two halves that survive together or not at all.
//     A rename between folders is one change in each, independent of the other.
//   - Unsynced changes of one folder may survive in any combination. (Where the
//     middle of several renames is lost, a file can end up under two names.)
//   - A failed fsync drops the data it could not write: as on Linux the pages
//     count as clean, so every later Sync of that file returns nil and makes
//     nothing durable. Only a new file becomes durable. A failed SyncFS does this
//     to every file with unsynced data.
//   - A failed SyncDir does the same to the names in its folder: every later one
//     returns nil without effect, until a SyncFS succeeds. One that could not
//     open the folder (EMFILE, EACCES …) changes nothing.
//
// Modes and times are durable at once. Permission bits are stored but not
// enforced, as for root. There are no links, and a folder cannot be moved to
// another folder (EXDEV).
//
// # Use
//
// Programs run against a [Proc], one per process. The harness uses the hooks of
// the [Disk]: it takes a [Disk.Snapshot] before an operation, and later derives
// from it what a kill ([Disk.Kill]) or a power cut ([Disk.Cut]) leaves.
package crashfs

import (
	"errors"
	"io/fs"
	"sync"
	"time"
)

// ErrKilled is what every operation of a killed process returns, wrapped in a
// path or link error.
var ErrKilled = errors.New("process was killed")

// ErrLocked is returned by [Proc.TryLock] while another holder has the lock.
var ErrLocked = errors.New("already locked")

// Disk is one simulated disk. Its exported fields are settings: set them
// before the first operation, or while none is under way.
type Disk struct {
	// Before is called before every mutating operation, BeforeRead before every other.
	// The disk is not locked then, so that hooks may take snapshots, kill processes, wait
	// for other processes, or use the disk.
	Before, BeforeRead func(op Op)

	// Fail makes an operation fail with the error it returns, after the hook and without
	// effect. A write may take half its effect: see [Short]. Fail is called for reads
	// too.
	Fail func(op Op) error

	// Now is the clock for modification times; nil is the real time.
	Now func() time.Time

	// Normal maps a file name (without its folder) to the name that [Disk.Hash] uses, so
	// that random temporary names count as equal.
	Normal func(name string) string

	// NormalData maps a file's data to the form that [Disk.Hash] uses, so that random parts
	// of it count as equal. It is called once for each version of a file; nil: none is mapped.
	NormalData func(data []byte) []byte

	// Umask is removed from the mode of new files and folders.
	Umask fs.FileMode

	// Ignore makes a sync report success without effect, as a faulty program or device
	// does; nil: none does.
	Ignore func(op Op) bool
	// ReplaceOnNoReplace makes RenameNoReplace overwrite, as Rename does.
	ReplaceOnNoReplace bool

	mu     sync.Mutex
	owner  *owner
	nodes  []*node // by number; 0 stands for "none"
	free   []ino
	locks  map[ino]*lock
	ops    int
	counts [opKinds]int
}

// New returns a disk that holds an empty root folder.
func New() *Disk {
	d := &Disk{owner: new(owner), nodes: make([]*node, 2, 64)}
	d.nodes[root] = &node{owner: d.owner, dir: true, mode: fs.ModeDir | 0o755}
	return d
}

// Process returns the disk as a new process of that name.
func (d *Disk) Process(name string) *Proc { return &Proc{disk: d, name: name} }

// Ops returns how many mutating operations were announced so far.
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// Count returns how many operations of one kind were announced so far.
func (d *Disk) Count(kind Kind) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if kind >= opKinds {
		return 0
	}
	return d.counts[kind]
}

// Snapshot copies the disk, volatile and durable state alike. The copy has the settings
// but no hooks, no processes, no locks, and counts from zero. The two share what neither
// changes.
func (d *Disk) Snapshot() *Disk {
	s := &Disk{
		Now: d.Now, Normal: d.Normal, NormalData: d.NormalData, Umask: d.Umask, Ignore: d.Ignore,
		ReplaceOnNoReplace: d.ReplaceOnNoReplace,
		owner:              new(owner),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// From here on no disk owns the shared nodes: both disks copy before writing.
	d.owner = new(owner)
	s.nodes = append(make([]*node, 0, len(d.nodes)+8), d.nodes...)
	s.free = append(s.free, d.free...)
	return s
}

// Kill returns the disk after SIGKILL of every process: visible files stay visible, and
// unsynced changes stay unsynced. The disk itself and its processes go on.
func (d *Disk) Kill() *Disk { return d.Snapshot() }

// Files returns the visible files by absolute path. It calls no hook. The data must not
// be changed.
func (d *Disk) Files() map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := map[string][]byte{}
	d.collect(files, "", d.nodes[root])
	return files
}

// File returns a visible file's data by absolute path, and whether there is such a file.
// The data must not be changed.
func (d *Disk) File(name string) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := d.existing(name)
	if err != nil || d.nodes[at.ino].dir {
		return nil, false
	}
	return d.nodes[at.ino].data.bytes(), true
}

// Names returns the visible names in a folder, sorted; nil if there is no such folder.
func (d *Disk) Names(name string) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := d.existing(name)
	if err != nil {
		return nil
	}
	for _, e := range d.nodes[at.ino].entries {
		names = append(names, e.name)
	}
	return names
}

func (d *Disk) collect(files map[string][]byte, prefix string, folder *node) {
	for _, e := range folder.entries {
		path, n := prefix+"/"+e.name, d.nodes[e.ino]
		if n.dir {
			d.collect(files, path, n)
			continue
		}
		files[path] = n.data.bytes()
	}
}

func (d *Disk) now() time.Time {
	if d.Now == nil {
		return time.Now()
	}
	return d.Now()
}

// syncAll makes everything durable, except files whose sync failed. The caller holds the
// lock.
func (d *Disk) syncAll() {
	for i, n := range d.nodes {
		if n != nil && n.unsynced() {
			n = d.own(ino(i))
			n.syncFailed = n.syncFailed && !n.dir
			n.sync()
		}
	}
}

// markAllSyncFailed is the effect of a failed SyncFS. The caller holds the lock.
func (d *Disk) markAllSyncFailed() {
	for i, n := range d.nodes {
		if n != nil && !n.dir && n.unsynced() {
			d.own(ino(i)).markSyncFailed()
		}
	}
}

// Blocks returns a visible file's data, and what a power cut would leave of it if nothing
// unsynced survived; a large file's in blocks of 4 KiB. It calls no hook, and the data must
// not be changed.
func (d *Disk) Blocks(name string) (visible, durable [][]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := d.existing(name)
	if err != nil || d.nodes[at.ino].dir {
		return nil, nil
	}
	n := d.nodes[at.ino]
	return n.data.parts(), n.durable.parts()
}
