package audit

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

// tailSize is more than the longest possible line.
const tailSize = 512 << 10

// Last returns the last complete entries of the log in dir, at most n, oldest first,
// and fewer if a new segment has just begun. The daemon may be writing: bytes after
// the last line feed are ignored. If an entry cannot be read, the error wraps
// ErrDamaged. Earlier entries are not checked.
func Last(fsys afero.Fs, dir string, n int) ([]approval.Entry, error) {
	all, err := segments(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	path := segmentPath(dir, all[len(all)-1])
	lines, err := tail(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	lines = lines[max(0, len(lines)-n):]
	entries := make([]approval.Entry, 0, len(lines))
	for i, line := range lines {
		e, err := decode(line)
		if err != nil {
			return entries, fmt.Errorf("read audit log: %w: a line at the end of %s is not an entry", ErrDamaged, path)
		}
		if i > 0 && e.Seq != entries[i-1].Seq+1 {
			return entries, fmt.Errorf("read audit log: %w: %s lacks number %d", ErrDamaged, path, entries[i-1].Seq+1)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// tail returns the complete lines among the last bytes of a file.
func tail(fsys afero.Fs, path string) ([][]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-tailSize)
	b, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return nil, err
	}
	if from > 0 { // it may begin inside a line
		_, b, _ = bytes.Cut(b, []byte{'\n'})
	}
	end := bytes.LastIndexByte(b, '\n')
	if end < 0 {
		return nil, nil
	}
	return bytes.Split(b[:end], []byte{'\n'}), nil
}
