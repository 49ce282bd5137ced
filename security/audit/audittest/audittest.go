// Package audittest commits the entries of an audit log in memory, for tests of packages
// that have no store.
package audittest

import (
	"slices"
	"sync"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/audit"
)

// Journal is an audit.Committer. Its lines survive whatever happens to the log's files.
type Journal struct {
	// Fail makes a commit fail, after its entry has a number; nil: none does.
	Fail func() error

	log *audit.Log

	mu      sync.Mutex
	lines   [][]byte // since the last Mark
	first   int64    // number of the first of them
	durable int64    // number of the last durable line
	flushed int64    // number of the last line that joined
}

// Attach makes a new journal the committer of l.
func Attach(l *audit.Log) *Journal {
	j := &Journal{log: l}
	l.Committer = j
	return j
}

// CommitEntry implements audit.Committer.
func (j *Journal) CommitEntry(e event.Entry) (wait func() error, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	line, seq, err := j.log.Next(e)
	if err != nil {
		return nil, err
	}
	if len(j.lines) == 0 {
		j.first = seq
		j.durable = max(j.durable, seq-1)
	}
	j.lines, j.flushed = append(j.lines, line), seq
	return func() error {
		err := j.commit(seq)
		if err == nil {
			_ = j.log.Durable(seq) // a later commit writes the line again
		}
		return err
	}, nil
}

// Flush implements audit.Committer.
func (j *Journal) Flush() error {
	j.mu.Lock()
	upTo := j.flushed
	j.mu.Unlock()
	if err := j.commit(upTo); err != nil {
		return err
	}
	return j.log.Durable(upTo)
}

func (j *Journal) commit(seq int64) error {
	if j.Fail != nil {
		if err := j.Fail(); err != nil {
			return err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.durable = max(j.durable, seq)
	return nil
}

// Lines returns what a crash leaves in the journal: the durable lines since the last Mark,
// and with tail also those that joined, which may be durable.
func (j *Journal) Lines(tail bool) [][]byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	if tail {
		return slices.Clone(j.lines)
	}
	return slices.Clone(j.lines[:max(0, j.durable-j.first+1)])
}

// Durable returns the number of the last durable line.
func (j *Journal) Durable() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durable
}

// Mark is a checkpoint: if sync succeeds, the journal drops the lines that the log's files
// have.
func (j *Journal) Mark(sync func() error) error {
	appended := j.log.Appended()
	if err := sync(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	n := min(max(0, appended-j.first+1), int64(len(j.lines)))
	j.lines, j.first = slices.Clone(j.lines[n:]), j.first+n
	return nil
}
