package ipc

import (
	"errors"
	"path/filepath"
	"sync"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

const (
	maxSpares    = 4096
	maxSpareSize = 16 << 10 // bytes of a document whose file is kept
)

// spares are files of removed documents, which later documents use again. Some file systems
// create and remove files slowly: ext4 without a journal passes over every inode that was
// freed in the last minute, 0.2 to 0.5 ms a file when these are thousands; writing into a
// file that exists takes 0.02 ms anywhere.
//
// Only files that this process wrote become spares, so no other process has one open for
// writing. A spare is used after two checkpoints. The first makes the removal durable: no
// old name leads to new bytes. Then a reader that had the old name open has long read it, and
// the old bytes are spoilt, which the second makes durable: no new name leads to old bytes,
// which a start after a power cut would take for a valid document.
//
// A response is never written into a spare: an agent with our UID could read the old bytes,
// of another workspace, before they are overwritten.
type spares struct {
	mu      sync.Mutex
	own     map[string]int // size by name, of documents whose files can become spares
	cooling []string       // removed since the last checkpoint
	waiting []string       // durably removed
	free    []string
}

// wrote notes a document's file that this process wrote.
func (p *spares) wrote(d approval.Doc, name string, size int) {
	switch d {
	case approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocAgain:
	default:
		return // it stays, or others see it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		p.own = map[string]int{}
	}
	p.own[name] = size
}

// retires reports whether the file of a document that is being removed can become a spare.
func (p *spares) retires(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	size, own := p.own[name]
	delete(p.own, name)
	return own && size <= maxSpareSize && len(p.cooling)+len(p.waiting)+len(p.free) < maxSpares
}

func (p *spares) retired(spare string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cooling = append(p.cooling, spare)
}

// spoil prepares the spares for the checkpoint that begins, and returns what to call when it
// has ended. Only one checkpoint is under way.
func (s *Store) spoil() (ended func(error)) {
	p := &s.spares
	p.mu.Lock()
	n, waiting := len(p.cooling), p.waiting
	p.waiting = nil
	p.mu.Unlock()
	var spoilt []string
	for _, spare := range waiting {
		if err := s.overwriteStart(spare); err != nil {
			s.discard(spare)
			continue
		}
		spoilt = append(spoilt, spare)
	}
	return func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil {
			p.waiting = spoilt
			return
		}
		p.free = append(p.free, spoilt...)
		p.waiting, p.cooling = p.cooling[:n:n], p.cooling[n:]
	}
}

// overwriteStart makes a document invalid.
func (s *Store) overwriteStart(name string) error {
	f, err := s.FS.OpenFile(name, writeExisting, 0)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte{0})
	return errors.Join(err, f.Close())
}

func (p *spares) take() (spare string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return "", false
	}
	spare, p.free = p.free[n-1], p.free[:n-1]
	return spare, true
}

// removeSpares removes the spares of an earlier process. A power cut may have left one under
// two names, of which the other is a document's: it must not be used again.
func (s *Store) removeSpares() error {
	p := &s.spares
	p.mu.Lock()
	p.own, p.cooling, p.waiting, p.free = nil, nil, nil, nil
	p.mu.Unlock()
	return s.empty(s.Layout.Spares())
}

// retire removes a document's file by making it a spare, if it can.
func (s *Store) retire(name string) bool {
	if s.writer() == nil || s.SyncEach || !s.spares.retires(name) {
		return false
	}
	spare := filepath.Join(s.Layout.Spares(), randomHex())
	if err := s.FS.Rename(name, spare); err != nil {
		return false
	}
	s.spares.retired(spare)
	return true
}

// reuse opens a spare under a new name. It is nil if there is none, or if it cannot be moved
// there: the folder may be on another file system.
func (s *Store) reuse(name string) afero.File {
	spare, ok := s.spares.take()
	if !ok {
		return nil
	}
	if err := s.FS.Rename(spare, name); err != nil {
		s.discard(spare)
		return nil
	}
	f, err := s.FS.OpenFile(name, writeExisting, 0)
	if err != nil {
		s.discard(name)
		return nil
	}
	return f
}
