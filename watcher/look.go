package watcher

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	mostNames  = 16384 // a poll reads no more names of a folder
	mostStats  = 512   // and looks at the files of a folder with no more than these
	namesChunk = 1024
)

// A look is one job: a glance at each folder of a group, with a comparison of its
// names where it is polled, and the group's Rescan where that is due. It runs
// outside the loop, at most one a group.
type look struct {
	group  *group
	full   bool // Rescan too
	began  time.Time
	polls  []*poll
	change int // names that appeared, vanished or changed where floods count; -1: unknown
}

// A poll is one folder of a look.
type poll struct {
	folder  *folder
	compare bool // it is polled: compare its names with those seen before
	counts  bool // its changes say whether a flood goes on
	current state
}

// do performs the look. The names are listed before the Rescan, so that a file
// which comes after the Rescan differs from the list next time.
func (w *Watcher) do(k *look, stopped func() bool) {
	for _, p := range k.polls {
		p.current = w.examine(p.folder.Path)
		if !p.compare {
			p.folder.seen = nil
			continue
		}
		n := w.compare(k, p.folder)
		if p.counts && k.change >= 0 {
			k.change += n
			if n < 0 {
				k.change = -1
			}
		}
	}
	if k.full && !stopped() {
		w.Rescan(k.group.name)
	}
}

// compare wakes every name that differs from the last listing and returns how
// many did, wanted or not; -1 if it cannot know. What a list cannot say, a Rescan
// must find.
func (w *Watcher) compare(k *look, f *folder) int {
	before, now := f.seen, list(&f.Folder)
	f.seen = now
	if before == nil {
		k.full = true
		return -1
	}
	changed := now.diff(before)
	for _, name := range changed {
		if f.wants(name) {
			w.Wake(f.Group, f.Kind, name)
		}
	}
	if now.crowded && !now.changed.Equal(before.changed) {
		k.full = true
		return -1
	}
	return len(changed)
}

// A listing is what stood in a folder. A folder that cannot be read is empty.
type listing struct {
	names   map[string]stamp
	changed time.Time // of the folder itself
	crowded bool      // there were more names than we read
}

// A stamp tells two contents of a name apart; the zero stamp says nothing.
type stamp struct {
	modified time.Time
	size     int64
}

func list(f *Folder) *listing {
	l := &listing{names: make(map[string]stamp)}
	dir, err := os.OpenFile(f.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return l
	}
	defer func() { _ = dir.Close() }()
	// Asking the open folder, not its path, makes NFS ask its server.
	if info, err := dir.Stat(); err == nil {
		l.changed = info.ModTime()
	}
	l.read(dir)
	if len(l.names) <= mostStats {
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
		if len(l.names) >= mostNames {
			l.crowded = true
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

// diff names what is in one listing only, or in both with different stamps.
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
