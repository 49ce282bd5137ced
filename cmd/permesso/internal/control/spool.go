package control

import (
	"errors"
	"io"
	"os"
	"sync"
)

// spool keeps what has arrived and is not read yet in a temporary file without a name: the
// daemon does not wait for a caller that reads slowly, such as a pager.
type spool struct {
	file *os.File
	at   int64 // read so far

	mu      sync.Mutex
	arrived sync.Cond
	size    int64
	end     error // why no more arrives
}

// newSpool begins to read all of r.
func newSpool(r io.Reader) (*spool, error) {
	f, err := os.CreateTemp("", "permesso-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &spool{file: f}
	s.arrived.L = &s.mu
	go func() {
		_, err := io.Copy(s, r)
		if err == nil {
			err = io.EOF
		}
		s.grow(0, err)
	}()
	return s, nil
}

func (s *spool) grow(n int, end error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size, s.end = s.size+int64(n), end
	s.arrived.Broadcast()
}

// Write implements io.Writer for what arrives.
func (s *spool) Write(b []byte) (int, error) {
	n, err := s.file.Write(b)
	s.grow(n, err)
	return n, err
}

// Read implements io.Reader. It waits until there is something to read.
func (s *spool) Read(b []byte) (int, error) {
	s.mu.Lock()
	for s.at == s.size && s.end == nil {
		s.arrived.Wait()
	}
	n, end := min(int64(len(b)), s.size-s.at), s.end
	s.mu.Unlock()
	if n == 0 {
		return 0, end
	}
	read, err := s.file.ReadAt(b[:n], s.at)
	s.at += int64(read)
	return read, err
}

// Close implements io.Closer.
func (s *spool) Close() error { return s.file.Close() }
