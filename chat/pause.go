package chat

import "time"

// Pause is why nothing runs.
type Pause struct {
	By     string
	Since  time.Time
	Reason string // may be empty
}

// PauseLine says who paused a workspace, with the date where that was not today,
// or "" where it is not paused.
func (s Style) PauseLine(workspace string, today time.Time) string {
	if s.Paused == nil {
		return ""
	}
	p := s.Paused(workspace)
	if p == nil {
		return ""
	}
	w := catalogue(s.Language)
	line := say(w.paused, "time", s.clock(p.Since, today), "by", Escape(p.By))
	if p.Reason != "" {
		line += " (" + Escape(clip(p.Reason, maxFact)) + ")"
	}
	return line
}
