package watcher

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	maxNames   = 16384 // limit of names that a poll reads in a folder
	maxStats   = 512   // limit of names up to which a poll also reads file stats
	namesChunk = 1024
)

// A scan is one job: it examines each folder of a group, compares the names of
// polled folders, and calls the group's Rescan if that is due. It runs outside the
// loop, at most one for each group.
type scan struct {
	group   *group
	rescan  bool // call Rescan, too
	asked   bool // for a reason: whatever the folders' times say
	began   time.Time
	polls   []*poll
	changes int  // changed names in flooding folders; -1: unknown
	changed bool // Rescan was called, and a folder may have changed
}

// A poll is one folder of a scan.
type poll struct {
	folder  *folder
	compare bool // it is polled: compare its names with the last listing
	counts  bool // its changes decide whether a flood is over
	watched fs.FileInfo
	current state
}

// runScan lists the names before the Rescan, so that the next scan detects a file
// that appears after the Rescan.
func (w *Watcher) runScan(k *scan, stopped func() bool) {
	for _, p := range k.polls {
		p.current = w.examine(p.folder.Path, p.watched)
		if !p.compare {
			p.folder.seen = nil
			continue
		}
		n := w.compare(k, p.folder)
		if p.counts && k.changes >= 0 {
			k.changes += n
			if n < 0 {
				k.changes = -1
			}
		}
	}
	if !k.rescan || stopped() {
		return
	}
	k.changed = k.asked
	for _, p := range k.polls {
		k.changed = !p.folder.unchanged(p) || k.changed
	}
	w.Rescan(k.group.name, k.changed)
}

// recent is how long after a change of a folder another may get the same time: two
// seconds on the coarsest file systems.
const recent = 3 * time.Second

// unchanged reports whether the folder has the same names as when unchanged last
// reported false. Its time is read before the names.
func (f *folder) unchanged(p *poll) bool {
	now, then := p.current.info, f.named
	if now == nil || p.compare || p.watched == nil {
		f.named = nil
		return false
	}
	if then != nil && os.SameFile(then, now) && then.ModTime().Equal(now.ModTime()) {
		return true
	}
	f.named = nil
	if age := time.Since(now.ModTime()); age >= recent {
		f.named = now
	}
	return false
}

// compare wakes every name that differs from the last listing. It returns their
// number, including names that are not wanted, or -1 if unknown. If the listing is
// incomplete, it requests a Rescan.
func (w *Watcher) compare(k *scan, f *folder) int {
	before, now := f.seen, list(&f.Folder)
	f.seen = now
	if before == nil {
		k.rescan = true
		return -1
	}
	changed := now.diff(before)
	for _, name := range changed {
		if _, there := now.names[name]; !there && f.IgnoreRemovals {
			continue
		}
		if f.wants(name) {
			w.Wake(f.Group, f.Kind, name)
		}
	}
	if now.truncated && !now.changed.Equal(before.changed) {
		k.rescan = true
		return -1
	}
	return len(changed)
}

// A listing is the content of a folder. An unreadable folder is empty.
type listing struct {
	names     map[string]stamp
	changed   time.Time // of the folder itself
	truncated bool      // not all names were read
}

// A stamp detects a changed file. The zero stamp means unknown.
type stamp struct {
	modified time.Time
	size     int64
}

func list(f *Folder) *listing {
	l := &listing{names: make(map[string]stamp)}
	dir, err := os.OpenFile(f.Path, os.O_RDONLY|onlyFolder, 0)
	if err != nil {
		return l
	}
	defer func() { _ = dir.Close() }()
	// Stat of the open folder, not of its path, makes NFS ask its server.
	if info, err := dir.Stat(); err == nil {
		l.changed = info.ModTime()
	}
	l.read(dir)
	if len(l.names) <= maxStats {
		l.stat(f)
	}
	return l
}

func (l *listing) read(dir *os.File) {
	for {
		names, err := dir.Readdirnames(namesChunk)
		for _, name := range names {
			l.names[name] = stamp{}
		}
		if err != nil || len(names) == 0 {
			return
		}
		if len(l.names) >= maxNames {
			l.truncated = true
			return
		}
	}
}

func (l *listing) stat(f *Folder) {
	for name := range l.names {
		if !f.wants(name) {
			continue
		}
		if info, err := os.Lstat(filepath.Join(f.Path, name)); err == nil {
			l.names[name] = stampOf(info)
		}
	}
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{modified: info.ModTime(), size: info.Size()}
}

// diff returns the names that are in only one listing, or have different stamps.
func (l *listing) diff(before *listing) []string {
	var names []string
	for name, now := range l.names {
		then, known := before.names[name]
		if !known || (then != now && then != stamp{} && now != stamp{}) {
			names = append(names, name)
		}
	}
	for name := range before.names {
		if _, still := l.names[name]; !still {
			names = append(names, name)
		}
	}
	return names
}
