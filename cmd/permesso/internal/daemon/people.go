package daemon

import (
	"cmp"
	"context"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// authorizer says who may decide: the script, too, if one decides.
func (s *server) authorizer() *gate.Authorizer {
	a := s.Authorizer()
	if s.script != nil {
		a.Script = scriptedApprover(s.script)
	}
	return a
}

// gateDecider returns a decider that wakes this daemon.
func (s *server) gateDecider() *gate.Decider {
	d := s.Decider(s.keys)
	d.May = s.authorizer().May
	d.Decided = func(k approval.Key) {
		s.gate.Wake(k)
		s.ui.Changed(k) // the gate reports only the end, which may take long
	}
	d.ClearSlot = func(ctx context.Context, k approval.Key) error {
		s.gate.Wake(k)
		return home.Sleep(ctx, 20*time.Millisecond)
	}
	d.Refused = func(k approval.Key, by approval.Person, via string) {
		local := by.Channel == approval.EntranceLocal || by.Channel == approval.EntranceSocket
		if local && !s.refusals.allow(by.ID) {
			return
		}
		s.audit.Note(event.Entry{
			Time: time.Now().UTC(), Event: event.RefusedDecider, Workspace: k.Workspace, RequestID: k.ID,
			By: by.StableID(), Via: via,
		})
	}
	return d
}

// style is the style of cards in a language; "" is the configured one.
func (s *server) style(language string) chat.Style {
	style := s.Style()
	style.Language = cmp.Or(language, style.Language)
	style.WouldAllow, style.Earlier = s.memory.WouldAllow, home.Earlier(s.Viewer(s.keys))
	return style
}

// interceptor decides for the people of this daemon's channels.
func (s *server) interceptor() *chat.Interceptor {
	decider := s.gateDecider()
	return &chat.Interceptor{
		Decider: decider, Viewer: s.Viewer(s.keys), Zone: time.Local, Redact: home.NewRedaction(), Revoker: s.memory.Revoker(),
		CanDecide: decider.CanDecide, Paused: s.PausedIn,
	}
}
