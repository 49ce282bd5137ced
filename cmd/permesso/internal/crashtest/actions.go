package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
)

type requestFile struct{ id, text string }

func request(id, tool, text string) requestFile {
	if text == "large" { // too large for the journal
		text = strings.Repeat("large ", 2000)
	}
	return requestFile{id, fmt.Sprintf(`{"request_id":%q,"tool_name":%q,"request_data":{"text":%q}}`, id, tool, text)}
}

func question(id string) requestFile {
	return requestFile{id, fmt.Sprintf(`{"request_id":%q,"type":"question","title":"Which?","options":["a","b"]}`, id)}
}

// agent writes a request as agents do: to another name, then a rename, without a
// sync.
func agent(r requestFile) action {
	return func(s *env) error {
		p := s.w.disk.Process("agent")
		dir := layout.Requests(workspace)
		temp := filepath.Join(dir, ".tmp-agent")
		if err := afero.WriteFile(p, temp, []byte(r.text), 0o666); err != nil {
			return err
		}
		return p.Rename(temp, filepath.Join(dir, r.id+".json"))
	}
}

// client is the origin of submissions. It marks every id as fresh, also a used one:
// the gate must not rely on that.
var client = submit.Origin{ClientID: "0123456789ab", Fresh: true}

// submit submits a request to the daemon and records that it was accepted.
func submission(r requestFile) action {
	return func(s *env) error {
		s.letOthersRun()
		if err := s.ensureRunning(); err != nil {
			return err
		}
		return s.w.submit(s.daemon.gate, r)
	}
}

// ensureRunning starts the gate if it could not start before.
func (s *env) ensureRunning() error {
	if s.daemon != nil {
		return nil
	}
	if err := s.settle(); err != nil || s.daemon == nil {
		return errors.Join(err, errors.New("the gate does not run"))
	}
	return nil
}

// submit submits, and records what the client was told. ErrIDTaken and ErrDegraded
// are valid results.
func (w *sim) submit(g *gate.Gate, r requestFile) error {
	taken, err := g.Submit(context.Background(), approval.Key{Workspace: workspace, ID: r.id}, []byte(r.text), client)
	switch {
	case errors.Is(err, crashfs.ErrKilled):
		return err
	case errors.Is(err, submit.ErrIDTaken) && w.submitted[r.id] == r.text:
		w.brokenPromises = append(w.brokenPromises, "I5 a client got ErrIDTaken for its own request")
	case err != nil:
	case w.submitted[r.id] != "" && w.submitted[r.id] != r.text:
		w.brokenPromises = append(w.brokenPromises, "I5 other bytes were accepted under a used id")
	case w.submitted[r.id] == r.text && !taken.Repeated:
		w.brokenPromises = append(w.brokenPromises, "I5 a repeated request was accepted as new")
	default:
		w.submitted[r.id] = r.text
		w.accepted[r.id] = true
	}
	return nil
}

// clientCancel is the client's cancel of its request.
func clientCancel(s *env) error {
	s.letOthersRun()
	if err := s.ensureRunning(); err != nil {
		return err
	}
	_, err := s.daemon.gate.Cancel(context.Background(), keyA, client, "")
	if err == nil {
		s.w.acknowledged = append(s.w.acknowledged, acknowledged{idA, approval.Cancelled})
	}
	return unlessRefused(err)
}

func remove(s *env) error {
	p := s.w.disk.Process("agent")
	err := p.Remove(filepath.Join(layout.Requests(workspace), idA+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the gate was faster
	}
	return err
}

func cancel(s *env) error {
	f, err := s.w.disk.Process("agent").Create(filepath.Join(layout.Requests(workspace), idA+".cancel"))
	if err != nil {
		return err
	}
	return f.Close()
}

// forge puts an approval without a MAC into the slot.
func forge(s *env) error {
	p := s.w.disk.Process("forger")
	name := filepath.Join(layout.Decisions(workspace), "forged")
	if err := afero.WriteFile(p, name, []byte(`{"request_id":"`+idA+`","approved":true}`), 0o666); err != nil {
		return err
	}
	err := p.RenameNoReplace(name, filepath.Join(layout.Decisions(workspace), idA+".json"))
	if errors.Is(err, fs.ErrExist) {
		return p.Remove(name)
	}
	return err
}

func wait(d time.Duration) action {
	return func(s *env) error {
		s.letOthersRun()
		s.w.now = s.w.now.Add(d)
		return nil
	}
}

// prune removes old documents. After that the id is new.
func prune(s *env) error {
	if err := s.ensureRunning(); err != nil {
		return err
	}
	if _, err := s.daemon.gate.Prune(context.Background(), nil); err != nil {
		// After a failed checkpoint the gate steps none of the keys until its next start.
		s.daemon.locked = s.daemon.locked || strings.Contains(err.Error(), "after removals")
		if !s.daemon.locked {
			s.w.endPrunes()
		}
		return err
	}
	if s.daemon.locked {
		return nil
	}
	s.w.endPrunes()
	return s.settle()
}

func step(s *env) error {
	s.letOthersRun()
	return s.settle()
}

// slotStaysBlocked is for deciders where no other process runs between two checks of
// the slot.
func slotStaysBlocked(context.Context, approval.Key) error { return errBlocked }

var errBlocked = errors.New("the slot stays blocked")

// settle steps all keys. If operations fail, it retries, and it starts a gate that
// could not start.
func (s *env) settle() error {
	if s.daemon == nil {
		if err := s.boot(); err != nil {
			if s.retries {
				return nil
			}
			return err
		}
	}
	if !s.retries {
		return s.daemon.settle()
	}
	for range 3 {
		s.w.now = s.w.now.Add(time.Second)
		if _, degraded := s.daemon.gate.Degraded(); degraded {
			s.daemon.gate.Examine(context.Background()) // as the ticker does
		}
		if err := s.daemon.settle(); err == nil {
			break
		}
	}
	return nil
}

func (s *env) letOthersRun() {
	if s.yield != nil {
		s.yield()
	}
}

// boot starts the daemon. It waits while a command has the lease.
func (s *env) boot() (err error) {
	var d *daemon
	for range 10_000 {
		if d, err = s.w.boot(); !errors.Is(err, store.ErrLocked) || s.yield == nil {
			break
		}
		s.letOthersRun()
	}
	if err == nil {
		s.daemon = d
	}
	return err
}

// interrupt lets another goroutine of the daemon run, right before the next operation of a
// kind in a folder.
func interrupt(kind, folder string, do action) action {
	return func(s *env) error {
		before, done := s.w.disk.Before, false
		s.w.disk.Before = func(op crashfs.Op) {
			if !done && op.Kind.String() == kind && path.Base(path.Dir(op.Path)) == folder {
				done = true
				s.w.disk.Before = before
				if err := do(s); err != nil {
					s.w.trace = append(s.w.trace, "interrupt: "+err.Error())
				}
			}
			if before != nil {
				before(op)
			}
		}
		return nil
	}
}

// stop is a clean stop of the daemon; kill is SIGKILL of it alone.
func stop(s *env) error {
	if s.daemon == nil {
		return nil
	}
	d := s.daemon
	s.daemon = nil
	return d.stop()
}

func kill(s *env) error {
	if s.daemon != nil {
		s.daemon.proc.Kill()
		s.daemon = nil
	}
	return nil
}

// makeCheckpoint is the daemon's periodic one. Without room for files it fails, which is valid.
func makeCheckpoint(s *env) error {
	if s.daemon == nil {
		return nil
	}
	err := s.daemon.store.Checkpoint(context.Background())
	if s.retries {
		return nil
	}
	return err
}

// noise is commits of other ids. It crashes nowhere but in the last one.
func noise(n int) action {
	return func(s *env) error {
		before := s.w.disk.Before
		s.w.disk.Before = nil
		defer func() { s.w.disk.Before = before }()
		if s.daemon == nil {
			return nil
		}
		for i := range n {
			if i == n-1 {
				s.w.disk.Before = before
			}
			if err := s.daemon.log.Append(event.Entry{Event: event.Malformed, Workspace: otherWorkspace, Reason: "noise"}); err != nil {
				return err
			}
			if i%12 == 11 {
				if err := makeCheckpoint(s); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// showHead is a card whose foot names the newest signed head.
func showHead(s *env) error {
	if s.daemon == nil {
		return nil
	}
	if err := s.daemon.log.Checkpoint(); err != nil {
		return err
	}
	if c := s.daemon.log.Newest(); c != nil {
		foot, err := audit.ParseFoot(c.Foot())
		if err != nil {
			return err
		}
		s.w.heads = append(s.w.heads, foot)
	}
	return nil
}

// pauseAll is permesso pause: after it returns, no claim may begin.
func pauseAll(s *env) error {
	store := s.w.store(s.w.disk.Process("operator"))
	err := store.Pause(ipc.Pause{ID: fmt.Sprint("p", s.w.actionIndex), Workspace: ipc.AllWorkspaces, By: "ann", At: s.w.now})
	if d := s.daemon; err == nil && d != nil {
		err = d.store.AwaitClaims(ipc.AllWorkspaces, func() error {
			s.letOthersRun()
			return nil
		})
	}
	s.w.paused = s.w.paused || err == nil
	s.w.actionIndex++
	return err
}

func resumeAll(s *env) error {
	s.w.paused = false
	_, err := s.w.store(s.w.disk.Process("operator")).Resume(ipc.AllWorkspaces, "ann", "", s.w.now)
	return err
}
