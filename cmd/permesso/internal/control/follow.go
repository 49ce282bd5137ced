package control

import (
	"context"
	"errors"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// followWait is how long an answer waits for a change.
const followWait = 25 * time.Second

type followQuery struct {
	After     int64  `query:"after" doc:"The position of the last answer; 0: answer at once."`
	Entries   bool   `query:"entries" doc:"Answer with the entries of the log after that position, instead of what waits."`
	Workspace string `query:"workspace" doc:"Only entries of this workspace, and those of all."`
}

// followDoc is what waits at a position of the log, or the entries up to it.
type followDoc struct {
	At      int64         `json:"at"`
	Waiting []waitingDoc  `json:"waiting"`
	Paused  []ipc.Pause   `json:"paused,omitempty"`
	Entries []event.Entry `json:"entries,omitempty"`
}

// maxEntries is how many entries one answer has.
const maxEntries = 500

var opFollow = get("follow", "/waiting/changes", "Pending requests, after a change", (*Service).follow)

func (s *Service) follow(ctx context.Context, c *httpapi.Caller, in *followQuery) (d followDoc, err error) {
	end := time.NewTimer(followWait)
	defer end.Stop()
	gone, stopping := httpapi.Waiting(ctx)
	for waits := s.Moved != nil; waits; {
		var moved <-chan struct{}
		if d.At, moved = s.Moved(); d.At != in.After {
			break
		}
		select {
		case <-moved:
		case <-end.C:
			waits = false
		case <-stopping:
			waits = false
		case <-gone:
			return d, context.Canceled
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
	if in.Entries {
		return d, s.entriesAfter(c, in, &d)
	}
	if d.Waiting, err = s.waiting(ctx, c, &waitingQuery{}); err != nil {
		return d, err
	}
	d.Paused, err = s.pauses(c)
	return d, err
}

// entriesAfter adds the entries that the caller may see, as many as one answer has. A position
// that the log does not have is that of another log: the next answer begins at its end.
func (s *Service) entriesAfter(c *httpapi.Caller, in *followQuery, d *followDoc) error {
	if in.After <= 0 || in.After > d.At || s.Since == nil {
		return nil
	}
	full := errors.New("full")
	d.At = in.After
	err := s.Since(in.After, func(e event.Entry) error {
		if len(d.Entries) == maxEntries {
			return full
		}
		if d.At = e.Seq; s.shows(c, in.Workspace, &e) {
			d.Entries = append(d.Entries, e)
		}
		return nil
	})
	if errors.Is(err, full) {
		err = nil
	}
	return err
}

// shows reports whether the caller may see an entry, and asks for its workspace. A pause of all
// concerns every workspace.
func (s *Service) shows(c *httpapi.Caller, ws string, e *event.Entry) bool {
	switch {
	case e.Workspace == "" && (e.Event == event.Paused || e.Event == event.Resumed):
		return true
	case ws != "" && e.Workspace != ws, e.Workspace == "" && !c.Operator:
		return false
	case e.RequestID == "" || c.Operator:
		return c.Sees(e.Workspace)
	}
	return s.visible(c, approval.Key{Workspace: e.Workspace, ID: e.RequestID})
}

// Moment is what waits, and what is paused, at a position of the log.
type Moment struct {
	Waiting []Waiting // oldest first
	Paused  []ipc.Pause
	At      int64 // for the next call
}

// Undecided are the requests that wait for a decision.
func (m *Moment) Undecided() (list []approval.StoredPending) {
	for _, w := range m.Waiting {
		if w.Decision == nil {
			list = append(list, w.StoredPending)
		}
	}
	return list
}

// NextMoment returns what waits once the log is no longer at a position, or after a while. The first call is with 0.
func (c *Client) NextMoment(ctx context.Context, after int64) (Moment, error) {
	d, err := call(ctx, c, opFollow, followQuery{After: after})
	if err != nil {
		return Moment{}, err
	}
	list, err := waitingOf(d.Waiting)
	return Moment{list, d.Paused, d.At}, err
}

// Follow is NextMoment for who needs only the requests that wait for a decision.
func (c *Client) Follow(ctx context.Context, after int64) (list []approval.StoredPending, at int64, err error) {
	m, err := c.NextMoment(ctx, after)
	return m.Undecided(), m.At, err
}

// Greet returns an error if the daemon of a HOME takes connections and does not answer.
func Greet(ctx context.Context, a *console.Console, h *home.Home) error {
	if _, err := connect(ctx, a, h.Layout.Socket()); isSilent(err) {
		return silent(h, h.HealthAt(time.Now()))
	}
	return nil
}

// Entries returns the entries of the log after a position that the caller may see, of a workspace ("": of all), once
// there are any, or after a while; and the position for the next call. After 0 it returns only the newest position.
func (c *Client) Entries(ctx context.Context, after int64, workspace string) (list []event.Entry, at int64, err error) {
	d, err := call(ctx, c, opFollow, followQuery{after, true, workspace})
	return d.Entries, d.At, err
}

// recheck is how often AwaitRecord looks without a change of the log: another commit may have
// written the entry of an end just before the record was visible.
const recheck = time.Second

// AwaitRecord returns the story of a request that is to end, once it has ended. If the daemon
// ends before, that is an error: who waits must not lock the home, which the next daemon needs.
func (c *Client) AwaitRecord(ctx context.Context, k approval.Key) (s Story, err error) {
	c.reopen = nil
	for at := int64(0); ; {
		s, err = c.Story(ctx, k, false)
		if err != nil || s.Record != nil {
			return s, err
		}
		wait, cancel := context.WithTimeout(ctx, recheck)
		_, newest, err := c.Follow(wait, at)
		cancel()
		switch {
		case err == nil:
			at = newest
		case wait.Err() == nil || ctx.Err() != nil:
			return s, err
		}
	}
}
