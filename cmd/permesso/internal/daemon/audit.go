package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
)

// logAlarm reports what the log lost, in the log itself, too.
func (s *server) logAlarm() {
	alarm, err := audit.ReadAlarm(s.FS, s.Layout.Audit())
	switch {
	case err != nil:
		s.log.Error().Err(err).Msg("read alarm of audit log failed")
	case alarm != nil:
		s.audit.Note(event.Entry{Event: event.LogAlarm, Detail: alarm.Reason})
		s.log.Error().Time("since", alarm.Since).Str("hint", console.AlarmHint).Msg("audit log alarm: " + alarm.Reason)
	}
}

// noteDelay is how long an entry that no caller waits for may be missing in the log's file.
const noteDelay = 100 * time.Millisecond

// runNotes lets readers see entries that no caller waits for, until ctx ends.
func (s *server) runNotes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.audit.Noted():
		}
		if home.Sleep(ctx, noteDelay) != nil {
			return
		}
		if err := s.audit.Sync(); err != nil {
			s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Msg("write audit log failed")
		}
	}
}

// pauseAudit writes pauses and resumes to the audit log, each once, even if the
// daemon is killed in between: a pause has an id, and its file stays until the
// log has the entry.
type pauseAudit struct {
	store *ipc.Store
	once  func(event.Entry) error // adds an entry that the log does not have
}

func pausedFact(p ipc.Pause) event.Entry {
	ws := p.Workspace
	if ws == ipc.AllWorkspaces {
		ws = ""
	}
	return event.Entry{Event: event.Paused, Workspace: ws, By: p.By, Via: cmp.Or(p.Via, "cli"), Reason: p.Reason, Detail: "pause " + p.ID}
}

func resumedFact(r ipc.Resumed) event.Entry {
	e := pausedFact(r.Pause)
	e.Event, e.By, e.Via, e.Reason = event.Resumed, r.By, cmp.Or(r.Via, "cli"), ""
	return e
}

// recordNew audits what is not in the log yet.
func (m *pauseAudit) recordNew() error {
	now, err := m.store.Pauses()
	if err != nil {
		return err
	}
	over, err := m.store.Ended()
	if err != nil {
		return err
	}
	for _, p := range now {
		if err := m.once(pausedFact(p)); err != nil {
			return fmt.Errorf("audit pause: %w", err)
		}
	}
	for _, r := range over {
		if err := errors.Join(m.once(pausedFact(r.Pause)), m.once(resumedFact(r))); err != nil {
			return fmt.Errorf("audit pause: %w", err)
		}
		if err := m.store.Forget(r.Pause.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// refreshPauses updates log, health and queue after a change of the pauses. The
// gate itself reads them before every claim.
func (s *server) refreshPauses() {
	s.gate.Resumed()
	s.pausing.Lock()
	defer s.pausing.Unlock()
	err := s.pauseAudit.recordNew()
	if err != nil {
		s.log.Error().Err(err).Msg("audit pauses failed")
	}
	list, err := s.Store.Pauses()
	if err != nil {
		s.log.Error().Err(err).Msg("list pauses failed")
		return
	}
	now := map[string]bool{}
	for _, p := range list {
		now[p.ID] = true
		if !s.paused[p.ID] {
			s.log.Warn().Str("ws", pausedFact(p).Workspace).Str("by", p.By).Msg("paused: nothing runs until permesso resume")
		}
	}
	for id := range s.paused {
		if !now[id] {
			s.log.Info().Msg("resumed")
		}
	}
	s.paused = now
	s.health.Refresh()
	s.notify("STATUS=" + s.statusLine())
	s.changed(approval.Key{})
}

// pauser is the caller of a pause that was checked before: by is a person who may pause
// the workspace, or all of them ("").
func pauser(ws string, by approval.Person, via string) *httpapi.Caller {
	return &httpapi.Caller{Person: by, Via: via, Operator: ws == "", Workspaces: []string{ws}}
}
