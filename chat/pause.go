package chat

import "time"

// Pause says who paused a workspace, when and why.
type Pause struct {
	By     string
	Since  time.Time
	Reason string // may be empty
}

// PauseLine says who paused a workspace and when, with the date if that was not
// today. It returns "" if the workspace is not paused.
func (s Style) PauseLine(workspace string, today time.Time) string {
	if s.Paused == nil {
		return ""
	}
	p := s.Paused(workspace)
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
