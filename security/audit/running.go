package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/afero"
)

// checkFiles raises an Alarm if the open files are not what this process has written: they were
// cut, replaced or removed, or grew. What follows goes into a new segment. The caller holds
// files.
func (l *Log) checkFiles() error {
	changed := l.changedFile()
	if changed == "" {
		return nil
	}
	h := head{size: l.appended, tree: l.tree, known: l.checkpoints != nil && l.tree.size == l.appended}
	a := h.promise(&Alarm{Want: l.appended, Reason: fmt.Sprintf("%s while the daemon was running; entries up to %d were durable", changed, l.appended)})
	if err := Raise(l.fs, l.dir, *a); err != nil {
		return err
	}
	l.closeSegment()
	if l.checkpoints != nil {
		l.checkpoints.close()
		l.checkpoints.good = min(l.checkpoints.good, sizeOf(l.fs, l.checkpoints.path()))
	}
	return nil
}

// changedFile says which open file was changed by another program, and how; "": none.
func (l *Log) changedFile() string {
	if l.file != nil {
		if what := changed(l.fs, segmentPath(l.dir, l.segment), l.file, l.size); what != "" {
			return what
		}
	}
	if l.checkpoints != nil && l.checkpoints.file != nil {
		return changed(l.fs, l.checkpoints.path(), l.checkpoints.file, l.checkpoints.good)
	}
	return ""
}

// changed compares the file of that name with the one that is open and has size bytes. A file
// that cannot be examined is not compared.
func changed(fsys FS, path string, open afero.File, size int64) string {
	name := filepath.Base(path)
	there, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return name + " was removed"
	}
	mine, openErr := open.Stat()
	if err != nil || openErr != nil {
		return ""
	}
	switch n := there.Size(); {
	case !sameFile(there, mine):
		return name + " was replaced"
	case n != size:
		return fmt.Sprintf("%s was changed from %d to %d bytes", name, size, n)
	}
	return ""
}

func sameFile(a, b fs.FileInfo) bool {
	return a.Sys() == nil || b.Sys() == nil || os.SameFile(a, b) // a simulated disk has neither
}

// sizeOf is 0 for a file that does not exist.
func sizeOf(fsys FS, path string) int64 {
	info, err := fsys.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
