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
	"strings"
	"syscall"

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

// Options are the shape of a new journal. An existing one keeps its own.
type Options struct {
	Size int64 // of a segment, in bytes, whole blocks of 4 KiB; 0: 8 MiB
	// Complete says that all segments were created: one that is missing is damage.
	Complete bool
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
	name   string
	info   fs.FileInfo // of the file, when it was opened
	header header
	last   uint64 // number of its last group; 0: it has none
	end    int64  // where its last group ends
	read   []group
}

// Open opens the journal in dir, and creates segments that never existed. It makes everything
// durable that can be read, and reads: Records yields it. The caller is the only process that
// has it open. A journal that is damaged is ErrDamaged, with a hint; one that lacks a segment
// is a MissingError.
func Open(fsys FS, dir string, o Options) (j *Journal, err error) {
	j = &Journal{fs: fsys, dir: dir, size: cmp.Or(o.Size, defaultSize), token: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			if _, missing := errors.AsType[*MissingError](err); !missing {
				err = fmt.Errorf("open journal: %w", err)
			}
			j, err = nil, errors.Join(err, j.closeFiles())
		}
	}()
	if err := j.openFiles(o.Complete); err != nil {
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

func segmentName(i int) string { return fmt.Sprintf("segment-%d", i+1) }

func (j *Journal) path(i int) string { return filepath.Join(j.dir, segmentName(i)) }

// openFiles opens the segments, and creates missing ones. A segment is used only after all were
// created: beside a used one, or if complete says so, a missing one is damage.
func (j *Journal) openFiles(complete bool) error {
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
		s, err := j.add(f, i)
		if err != nil {
			return err
		}
		j.size, sizes[s.info.Size()] = s.info.Size(), true
	}
	if len(missing) > 0 && (complete || j.used()) {
		return missingSegments(missing)
	}
	if j.size < minSize || j.size%blockSize != 0 || len(sizes) > 1 {
		return damaged("its segments must have one size, of whole blocks of 4 KiB, and at least 64 KiB")
	}
	for _, i := range missing {
		f, err := j.create(j.path(i))
		if err != nil {
			return fmt.Errorf("create segment: %w", err)
		}
		if _, err := j.add(f, i); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return errors.Join(j.fs.SyncDir(j.dir), j.fs.SyncDir(filepath.Dir(j.dir)))
	}
	return nil
}

// add adds an open file to the segments.
func (j *Journal) add(f afero.File, i int) (*segment, error) {
	s := &segment{file: f, name: j.path(i)}
	j.segments = append(j.segments, s)
	var err error
	s.info, err = f.Stat()
	return s, err
}

// used reports whether a segment has a header.
func (j *Journal) used() bool {
	return slices.ContainsFunc(j.segments, func(s *segment) bool {
		b := make([]byte, headersEnd)
		_, err := s.file.ReadAt(b, 0)
		_, ok := parseHeader(b)
		return err == nil && ok
	})
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

// goOnWithout is what an operator does who has nothing to put back.
const goOnWithout = "restore HOME from a backup; to go on with the files as they are, move the folder journal and the file version away from HOME: what was decided last may then be lost"

func damaged(what string, a ...any) error {
	return hints.Add(fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(what, a...)), goOnWithout)
}

// MissingError says that segments are missing. It is ErrDamaged.
type MissingError struct{ names []string }

func (e *MissingError) Error() string {
	last := len(e.names) - 1
	if last == 0 {
		return "journal: " + e.names[0] + " is missing"
	}
	return "journal: " + strings.Join(e.names[:last], ", ") + " and " + e.names[last] + " are missing"
}

// Is reports that the error is ErrDamaged.
func (e *MissingError) Is(target error) bool { return target == ErrDamaged }

func missingSegments(numbers []int) error {
	e := &MissingError{}
	for _, i := range numbers {
		e.names = append(e.names, segmentName(i))
	}
	return hints.Add(e, "put it back, or "+goOnWithout)
}

// CheckComplete returns the error of Open about missing segments. It opens nothing.
func CheckComplete(fsys afero.Fs, dir string) error {
	var missing []int
	for i := range count {
		if _, err := fsys.Stat(filepath.Join(dir, segmentName(i))); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, i)
		} else if err != nil {
			return fmt.Errorf("check journal: %w", err)
		}
	}
	if len(missing) > 0 {
		return missingSegments(missing)
	}
	return nil
}

// CheckNames returns an error if a segment's name no longer leads to the file that is open: a
// start would not find what is committed to it.
func (j *Journal) CheckNames() error {
	for _, s := range j.segments {
		info, err := j.fs.Stat(s.name)
		switch name := filepath.Base(s.name); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return fmt.Errorf("journal: %s was removed while it was in use", name)
		case err != nil:
			continue // the next write tells whether it can be used
		case !sameFile(s.info, info):
			return fmt.Errorf("journal: %s was replaced while it was in use", name)
		}
	}
	return nil
}

// sameFile compares device and inode. A simulated disk has neither.
func sameFile(a, b fs.FileInfo) bool {
	_, real := b.Sys().(*syscall.Stat_t)
	return !real || os.SameFile(a, b)
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
