package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Stats are figures for the operator.
type Stats struct {
	Segments, Free int
	Size           int64     // of a segment, in bytes
	Reserved       int64     // bytes for outcomes
	Began          time.Time // the time of Begin
	Counts                   // since then
	LastMinute     Counts
}

// Counts count what was made durable.
type Counts struct {
	Commits uint64
	Groups  uint64 // one sync each
	Bytes   uint64
}

func (c *Counts) add(more Counts) {
	c.Commits += more.Commits
	c.Groups += more.Groups
	c.Bytes += more.Bytes
}

// window counts by seconds. Each has the place of its number modulo 60.
type window [60]struct {
	second int64
	Counts
}

func (w *window) add(now time.Time, more Counts) {
	at := &w[now.Unix()%60]
	if at.second != now.Unix() {
		at.second, at.Counts = now.Unix(), Counts{}
	}
	at.add(more)
}

func (w *window) sum(now time.Time) (c Counts) {
	for _, at := range w {
		if at.second > now.Unix()-60 && at.second <= now.Unix() {
			c.add(at.Counts)
		}
	}
	return c
}

// Inspect reads the figures of a journal that this process cannot open for writing.
func Inspect(fsys FS, dir string) (st Stats, err error) {
	j := &Journal{fs: fsys, dir: dir}
	defer func() { err = errors.Join(err, j.closeFiles()) }()
	for i := range count {
		f, err := fsys.OpenFile(j.path(i), os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return st, missingSegments([]int{i})
		}
		if err != nil {
			return st, fmt.Errorf("read journal: %w", err)
		}
		s, err := j.add(f, i)
		if err != nil {
			return st, fmt.Errorf("read journal: %w", err)
		}
		j.size = s.info.Size()
	}
	if err := j.read(); err != nil {
		return st, fmt.Errorf("read journal: %w", err)
	}
	return j.Stats(), nil
}

// Stats returns the current figures.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Stats{
		Segments: count, Free: len(j.free()), Size: j.size, Reserved: j.reserved,
		Began: j.began, Counts: j.total, LastMinute: j.seconds.sum(time.Now()),
	}
}
