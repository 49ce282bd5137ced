package chat

import (
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Pause says who paused a workspace, when and why.
type Pause struct {
	By     string
	Since  time.Time
	Reason string // may be empty
}

// PauseLine says who paused a workspace and when, with the date if that was not
// today. It returns "" if the workspace is not paused.
func (s Style) PauseLine(workspace string, today time.Time) string {
	p := s.pauseOf(workspace)
	if p == nil {
		return ""
	}
	w := catalog(s.Language)
	line := Format(w.PausedSince, "time", s.clock(p.Since, today), "by", Escape(p.By))
	if p.Reason != "" {
		line += " (" + Escape(clip(p.Reason, maxFact)) + ")"
	}
	return line
}

// ApprovedInPause says that an approved request waits for the end of a pause, and when
// its approval expires. It returns "" if the workspace is not paused.
func (s Style) ApprovedInPause(workspace string, d *approval.Decision) string {
	p := s.pauseOf(workspace)
	if p == nil {
		return ""
	}
	return Format(catalog(s.Language).ApprovedInPause, "time", s.clock(p.Since, d.DecidedAt), "by", Escape(p.By),
		"until", s.clock(d.RunBefore, d.DecidedAt))
}

func (s Style) pauseOf(workspace string) *Pause {
	if s.Paused == nil {
		return nil
	}
	return s.Paused(workspace)
}
