package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Viewer shows what lies in the folders.
type Viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
	Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error)
	Documents
}

// Documents opens single documents; each is nil where there is none.
type Documents interface {
	Pending(k approval.Key) (*approval.StoredPending, error)
	Record(ctx context.Context, k approval.Key) (*approval.Record, error)
	OpenDecision(k approval.Key, raw approval.Raw) *approval.Decision
}

// Server answers those who connect. All fields but Log and Link
// must be filled in.
type Server struct {
	Decider chat.Decider
	Viewer  Viewer
	// Who says who a uid is and where they may decide. Nowhere: a stranger.
	Who func(uid string) (p approval.Person, workspaces []string)
	// May says whether the person may decide, and so see, this pending.
	May func(workspace string, pending *approval.Pending, by approval.Person) bool
	// Status is what to say of these workspaces, as JSON.
	Status func(workspaces []string) ([]byte, error)
	// Link is an address that opens the pages for a person, once, and for how
	// long; nil: there are no pages.
	Link func(p approval.Person) (address string, life time.Duration, err error)
	// Refused is told of a stranger who connected.
	Refused func(by approval.Person)
	Log     func(error) // errors that a client cannot fix; may be nil
	// Language is what is told to clients, whose own configuration is another.
	Language  func(p approval.Person) string
	IOTimeout time.Duration // with who does not ask, or does not read; 0: 10 s

	mu   sync.Mutex
	open map[string]int // connections by uid
}

// Via is how decisions that came through the socket are marked.
const Via = "socket"

// Run serves l until ctx ends; then it closes l, and waits for the answers
// under way, which hear of ctx's end.
func (s *Server) Run(ctx context.Context, l *net.UnixListener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			s.log(err) // out of descriptors, mostly: that passes
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		s.admit(ctx, &wg, c)
	}
}

// admit sends strangers away before they can occupy anything, and unread.
func (s *Server) admit(ctx context.Context, wg *sync.WaitGroup, c *net.UnixConn) {
	uid, err := peer(c)
	if err != nil && !errors.Is(err, errNested) {
		s.log(err)
		c.Close()
		return
	}
	id := strconv.FormatUint(uint64(uid), 10)
	p, workspaces := s.Who(id)
	if err != nil || len(workspaces) == 0 {
		s.Refused(p)
		s.say(c, refused(&approval.Refusal{Reason: approval.ErrNotAuthorized}))
		c.Close()
		return
	}
	if !s.enter(id) {
		s.say(c, answer{Error: "you have too many connections to the gate: close some", End: true})
		c.Close()
		return
	}
	wg.Go(func() {
		defer s.leave(id)
		defer c.Close()
		defer context.AfterFunc(ctx, func() { s.hurry(c) })()
		s.converse(ctx, c, id)
	})
}

// hurry ends a conversation, but not an answer under way: what was decided is
// told.
func (s *Server) hurry(c net.Conn) {
	s.log(errors.Join(c.SetReadDeadline(time.Unix(1, 0)), c.SetWriteDeadline(time.Now().Add(time.Second))))
}

func (s *Server) patience() time.Duration {
	if s.IOTimeout > 0 {
		return s.IOTimeout
	}
	return patience
}

func (s *Server) enter(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]int{}
	}
	if s.open[uid] >= maxPerUID {
		return false
	}
	s.open[uid]++
	return true
}

func (s *Server) leave(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[uid]--; s.open[uid] == 0 {
		delete(s.open, uid)
	}
}

// say writes one line, or fails within patience. It says whether that went well.
func (s *Server) say(c net.Conn, a answer) bool {
	b, err := json.Marshal(a)
	if err != nil {
		s.log(err)
		return false
	}
	if err := c.SetWriteDeadline(time.Now().Add(s.patience())); err != nil {
		return false
	}
	_, err = c.Write(append(b, '\n'))
	return err == nil
}

// converse answers line by line until the other side is done, slow or wrong.
func (s *Server) converse(ctx context.Context, c *net.UnixConn, uid string) {
	lines := bufio.NewReaderSize(c, 4096)
	for {
		if err := c.SetReadDeadline(time.Now().Add(s.patience())); err != nil || ctx.Err() != nil {
			return
		}
		line, err := readLine(lines, maxRequest)
		if errors.Is(err, errTooLong) {
			s.say(c, answer{Error: "that is too long: nothing was decided", End: true})
		}
		if err != nil {
			return
		}
		r, err := parse(line)
		if err != nil {
			s.say(c, answer{Error: "not a request that this gate understands: is permesso of the same version?", End: true})
			return
		}
		// Asked anew each time: the configuration may have changed.
		p, workspaces := s.Who(uid)
		if len(workspaces) == 0 {
			s.Refused(p)
			s.say(c, refused(&approval.Refusal{Reason: approval.ErrNotAuthorized}))
			return
		}
		t := turn{Server: s, conn: c, person: p, theirs: workspaces}
		if !t.answer(ctx, r) {
			return
		}
	}
}

var errTooLong = errors.New("line too long")

// readLine reads to the line's end, and no more than limit.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, errTooLong
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, errors.Join(err, io.ErrUnexpectedEOF) // half a line is none
		}
	}
}

func (s *Server) log(err error) {
	if s.Log != nil && err != nil {
		s.Log(err)
	}
}
