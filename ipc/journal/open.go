package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/hints"
)

// FS is the file system of a journal.
type FS interface {
	afero.Fs
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// Datasync makes the bytes of a file that it opened durable, and not its times.
	Datasync(f afero.File) error
}

const (
	count       = 4 // segments
	minSize     = 64 << 10
	defaultSize = 8 << 20
	maxGroup    = 1 << 20 // bytes of a group, unless the segments are small
)

// segment is one file.
type segment struct {
	file   afero.File
	header header
	last   uint64 // number of its last group; 0: it has none
	end    int64  // where its last group ends
	read   []group
}

// Open opens the journal in dir, and creates what is missing: segments of size bytes, whole
// blocks of 4 KiB, or of 8 MiB if size is 0. An existing journal keeps its own. It makes everything durable
// that can be read, and reads: Records yields it. The caller is the only process that has it
// open. A journal that is damaged is ErrDamaged, with a hint.
func Open(fsys FS, dir string, size int64) (j *Journal, err error) {
	j = &Journal{fs: fsys, dir: dir, size: cmp.Or(size, defaultSize), token: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			j, err = nil, fmt.Errorf("open journal: %w", errors.Join(err, j.closeFiles()))
		}
	}()
	if err := j.openFiles(); err != nil {
		return j, err
	}
	for _, s := range j.segments {
		// After a kill, groups can be read that are not durable.
		if err := j.fs.Datasync(s.file); err != nil {
			return j, err
		}
	}
	return j, j.read()
}

func (j *Journal) path(i int) string { return filepath.Join(j.dir, fmt.Sprintf("segment-%d", i+1)) }

// openFiles opens the segments, and creates missing ones.
func (j *Journal) openFiles() error {
	if err := j.fs.Mkdir(j.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var missing []int
	sizes := map[int64]bool{}
	for i := range count {
		f, err := j.fs.OpenFile(j.path(i), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, i)
			continue
		}
		if err != nil {
			return err
		}
		j.segments = append(j.segments, &segment{file: f})
		info, err := f.Stat()
		if err != nil {
			return err
		}
		j.size, sizes[info.Size()] = info.Size(), true
	}
	if j.size < minSize || j.size%blockSize != 0 || len(sizes) > 1 {
		return damaged("its segments must have one size, of whole blocks of 4 KiB, and at least 64 KiB")
	}
	for _, i := range missing {
		f, err := j.create(j.path(i))
		if err != nil {
			return fmt.Errorf("create segment: %w", err)
		}
		j.segments = append(j.segments, &segment{file: f})
	}
	if len(missing) > 0 {
		return errors.Join(j.fs.SyncDir(j.dir), j.fs.SyncDir(filepath.Dir(j.dir)))
	}
	return nil
}

// create makes a segment of zeros. It has its name only when it is complete.
func (j *Journal) create(name string) (afero.File, error) {
	temp := filepath.Join(j.dir, ".new")
	f, err := j.fs.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, minSize)
	for at := int64(0); at < j.size && err == nil; at += minSize {
		_, err = f.WriteAt(zeros[:min(minSize, j.size-at)], at)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = j.fs.Rename(temp, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ErrDamaged says that groups are missing which were durable.
var ErrDamaged = errors.New("the journal is damaged")

func damaged(what string, a ...any) error {
	return hints.Add(fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(what, a...)),
		"restore HOME from a backup; to go on with the files as they are, move the folder journal away: what was decided last may then be lost")
}

// read finds the mark and the groups behind it.
func (j *Journal) read() error {
	var used []*segment
	for _, s := range j.segments {
		b := make([]byte, headersEnd)
		if _, err := s.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var ok bool
		if s.header, ok = parseHeader(b); ok {
			used = append(used, s)
		}
	}
	slices.SortFunc(used, func(a, b *segment) int { return cmp.Compare(a.header.first, b.header.first) })
	if len(used) == 0 {
		return nil
	}
	newest := used[len(used)-1]
	if err := j.readSegment(newest); err != nil {
		return err
	}
	j.place, j.last = newest.header.place, newest.header.first-1
	if n := len(newest.read); n > 0 {
		j.place, j.last = newest.read[n-1].place, newest.last
	}
	return j.readBack(used)
}

// readBack reads the segments before the newest, down to the mark.
func (j *Journal) readBack(used []*segment) error {
	needed := used[len(used)-1:]
	for i := len(used) - 2; needed[0].header.first > j.place; i-- {
		if i < 0 {
			return damaged("the segment with group %d is missing", j.place)
		}
		s := used[i]
		if err := j.readSegment(s); err != nil {
			return err
		}
		if len(s.read) == 0 || s.last+1 != needed[0].header.first {
			return damaged("group %d is missing", needed[0].header.first-1)
		}
		needed = used[i:]
	}
	for _, s := range needed {
		for _, g := range s.read {
			if g.number >= j.place {
				j.records = append(j.records, g)
			}
		}
		s.read = nil
	}
	return nil
}

// readSegment reads the groups of a segment, to the first that is bad.
func (j *Journal) readSegment(s *segment) error {
	b := make([]byte, j.size)
	if _, err := s.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	at := int64(headersEnd)
	for next := s.header.first; at < j.size; next++ {
		g, ok := parseGroup(b[at:], &s.header.nonce)
		if !ok || g.number != next {
			break
		}
		s.read, s.last = append(s.read, g), next
		at += inBlocks(int64(groupSize + len(g.bodies)))
	}
	s.end = at
	for ; at < j.size; at += blockSize {
		if g, ok := parseGroup(b[at:], &s.header.nonce); ok {
			return damaged("group %d is whole, and one before it is not", g.number)
		}
	}
	return nil
}
