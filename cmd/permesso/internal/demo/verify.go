package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// verify checks, from the daemon's records and the board, that every request
// ended as announced.
func (s *demoSession) verify(ctx context.Context, k *home.Keys) error {
	records, err := s.records(ctx, k)
	if err != nil {
		return err
	}
	s.out.line(plain, "")
	s.out.line(bold, "What the host verifies afterwards, with the public key alone:")
	for _, e := range demoRequests() {
		rec := records[e.tool]
		if rec == nil {
			return fmt.Errorf("no record of %s", e.tool)
		}
		if err := s.checkOutcome(e, rec); err != nil {
			return fmt.Errorf("%s: %w", e.tool, err)
		}
	}
	if err := s.checkBoard(records["post_note"].Status == approval.StatusApproved); err != nil {
		return err
	}
	s.out.line(plain, "")
	s.out.line(plain, "Demo complete; everything is removed. Next: permesso init")
	return s.out.err
}

// records returns the one record of each tool.
func (s *demoSession) records(ctx context.Context, k *home.Keys) (map[string]*approval.Record, error) {
	ids, _, err := s.h.Store.List(ctx, approval.DocRecord, demoWorkspace)
	if err != nil {
		return nil, err
	}
	records := map[string]*approval.Record{}
	for _, id := range ids {
		key := approval.Key{Workspace: demoWorkspace, ID: id}
		st, err := s.h.Viewer(k).Story(ctx, key)
		if err != nil {
			return nil, err
		}
		if st.Pending == nil { // a rule decided
			st.Pending = read.Requested(key, st.Record)
		}
		tool := st.Pending.ToolName
		if records[tool] != nil {
			return nil, fmt.Errorf("two records of %s", tool)
		}
		records[tool] = st.Record
	}
	return records, nil
}

// checkOutcome compares one record with the expected status, and its receipt with
// the agent's arguments.
func (s *demoSession) checkOutcome(e demoRequest, rec *approval.Record) error {
	switch {
	case e.want != "" && rec.Status != e.want:
		return fmt.Errorf("status %s, expected %s", rec.Status, e.want)
	case rec.Status == approval.StatusExpired:
		return errors.New("no decision before the timeout")
	case rec.Status == approval.StatusFailed, rec.Status == approval.StatusInterrupted, rec.Status == approval.StatusMalformed:
		return fmt.Errorf("ended %s", rec.Status)
	}
	file := filepath.Join(s.h.Layout.Responses(demoWorkspace), rec.RequestID+".json")
	public := filepath.Join(s.h.Layout.Keys(), "signing.pub")
	ran := rec.Status == approval.StatusApproved || rec.Status == approval.StatusAutoApproved
	facts, err := home.VerifyReceipt(s.Console, file, home.ReceiptCheck{Tool: e.tool, Args: e.args, Key: public})
	switch {
	case ran && err != nil:
		return fmt.Errorf("receipt: %w", err)
	case !ran && err == nil:
		return errors.New("has a receipt, though it did not run")
	case !ran:
		s.out.line(plain, fmt.Sprintf("  ✓ %s: %s; no receipt, so nothing ran", e.tool, rec.Status))
		return nil
	}
	if _, err = home.VerifyReceipt(s.Console, file, home.ReceiptCheck{Tool: e.tool, Args: e.other, Key: public}); err == nil {
		return fmt.Errorf("receipt verifies for the wrong arguments %s", e.other)
	}
	s.out.line(good, fmt.Sprintf("  ✓ %s: receipt valid for %s, %s", e.tool, e.args, decidedBy(facts)))
	s.out.line(good, fmt.Sprintf("    for %s it is refused: %v", e.other, err))
	return nil
}

func decidedBy(f *approval.ReceiptFacts) string {
	if f.By != "" {
		return f.DecisionType + " by " + f.By + " via " + f.Via
	}
	return f.DecisionType + " by rule " + f.Rule
}

// checkBoard checks the one file that the demo changes.
func (s *demoSession) checkBoard(approved bool) error {
	b, err := os.ReadFile(filepath.Join(s.dir, "board.txt"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	want, says := "", "  ✓ the notice board is empty, as it was"
	if approved {
		want, says = "Meeting at 5\n", "  ✓ the notice board says, once: Meeting at 5"
	}
	if string(b) != want {
		return fmt.Errorf("the notice board holds %q, not %q", b, want)
	}
	s.out.line(good, says)
	return nil
}

// Styles of a line: parameters of an SGR sequence.
const (
	plain = 0
	bold  = 1
	dim   = 2
	bad   = 31
	good  = 32
	warn  = 33
)

// screen is shared by agent, channel and demo. Each writes complete lines.
type screen struct {
	mu    sync.Mutex
	to    io.Writer
	color bool
	shown strings.Builder
	err   error // first error
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.Write(b)
	n, err := s.to.Write(b)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

func (s *screen) contains(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.shown.String(), text)
}

func (s *screen) line(style int, text string) {
	if s.color && style != plain && text != "" {
		text = "\x1b[" + strconv.Itoa(style) + "m" + text + "\x1b[0m"
	}
	_, _ = io.WriteString(s, text+"\n")
}

// prefixer puts a prefix before every line.
type prefixer struct {
	to     *screen
	prefix string

	mu   sync.Mutex // standard output and standard error are copied at the same time
	rest string
}

func (p *prefixer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest += string(b)
	for {
		line, rest, complete := strings.Cut(p.rest, "\n")
		if !complete {
			return len(b), nil
		}
		p.rest = rest
		style := plain
		switch {
		case strings.HasPrefix(line, "# "):
			style = bold
			p.to.line(dim, p.prefix)
		case strings.HasPrefix(line, "permesso: "):
			style = dim
		}
		p.to.line(style, p.prefix+line)
	}
}
