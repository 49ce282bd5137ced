package exec

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// tailSize is how much of stderr an error quotes.
const tailSize = 2 << 10

// maxStderr is how much a command may write to stderr.
const maxStderr = 16 << 20

// flood signals that a stream was larger than permitted: the command is killed then.
type flood struct {
	over chan struct{}
	once sync.Once
}

func (f *flood) signal() error {
	f.once.Do(func() { close(f.over) })
	return io.ErrShortWrite
}

func (f *flood) exceeded() bool { return isClosed(f.over) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// head keeps the first limit bytes.
type head struct {
	flood
	limit int
	kept  []byte
}

func newHead(limit int) *head { return &head{limit: limit, flood: flood{over: make(chan struct{})}} }

// Write returns an error once the limit is passed.
func (h *head) Write(b []byte) (int, error) {
	if len(h.kept)+len(b) > h.limit {
		return 0, h.signal()
	}
	h.kept = append(h.kept, b...)
	return len(b), nil
}

// tail keeps the last tailSize bytes of at most maxStderr, or of all.
type tail struct {
	flood
	endless bool
	size    int
	kept    []byte
}

func newTail() *tail { return &tail{flood: flood{over: make(chan struct{})}} }

// Write returns an error once there are more than maxStderr bytes, unless the tail is endless.
func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	if t.size += n; t.size > maxStderr && !t.endless {
		return 0, t.signal()
	}
	if n > tailSize {
		b = b[n-tailSize:]
	}
	if drop := len(t.kept) + len(b) - tailSize; drop > 0 {
		t.kept = append(t.kept[:0], t.kept[drop:]...)
	}
	t.kept = append(t.kept, b...)
	return n, nil
}

// String is the tail as text, cut at a character.
func (t *tail) String() string {
	b := t.kept
	for i := 0; i < utf8.UTFMax && len(b) == tailSize-i && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
		b = b[1:]
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(b)), "\uFFFD")
}

// collector copies one stream of a run into a sink.
type collector struct {
	file *os.File
	sink io.Writer
	done chan struct{}
}

func collect(file *os.File, sink io.Writer) *collector {
	c := &collector{file: file, sink: sink, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		_, err := io.CopyBuffer(onlyWriter{sink}, onlyReader{file}, make([]byte, 4<<10))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.drain()
		}
	}()
	return c
}

// onlyReader and onlyWriter keep io.CopyBuffer to its buffer.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// drain reads what is in the pipe without waiting for more. On a busy machine the
// deadline may expire before anything was read.
func (c *collector) drain() {
	conn, err := c.file.SyscallConn()
	if err != nil || c.file.SetReadDeadline(time.Time{}) != nil {
		return
	}
	buf := make([]byte, 4<<10)
	for n := 1; n > 0; {
		once := func(fd uintptr) bool {
			n, err = syscall.Read(int(fd), buf)
			return !errors.Is(err, syscall.EINTR)
		}
		if conn.Read(once) != nil {
			return
		}
		if n > 0 {
			if _, err := c.sink.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// finish reads the rest of the pipe and closes it. The sink may be read afterwards.
func (c *collector) finish() {
	// A pipe without writers ends at once. The deadline is for a pipe that a process
	// outside the run holds open. If deadlines are not supported, close instead.
	if err := c.file.SetReadDeadline(time.Now().Add(drainGrace)); err != nil {
		_ = c.file.Close()
	}
	<-c.done
	_ = c.file.Close()
}

// result is the job's result for stdout.
func result(stdout []byte) approval.Raw {
	trimmed := bytes.Trim(stdout, " \t\r\n")
	if isObject(trimmed) {
		return approval.Raw(trimmed)
	}
	return codec.Object([]codec.Field{{Name: "output", Value: codec.Quote(string(stdout))}})
}

// isObject is strict: one object, valid UTF-8, no duplicate names, limited depth.
func isObject(b []byte) bool {
	return len(b) > 0 && b[0] == '{' && codec.CheckDepth(b, codec.MaxDepth) == nil && approval.Raw(b).IsValid()
}
