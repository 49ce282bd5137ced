package deliver

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const (
	limitedDelay    = 2 * time.Second  // so that a burst is one number
	limitedInterval = 10 * time.Minute // between two lines
	letterDelay     = time.Minute      // the same for letters
	letterInterval  = time.Hour        // and for notifications
)

// limitedCount counts the requests of a workspace that a limit refused.
type limitedCount struct {
	Count   int       `json:"count"` // not told yet
	First   time.Time `json:"first,omitzero"`
	Told    time.Time `json:"told,omitzero"`
	changed bool      // since it was stored
	sending bool
}

// limitedCounts are the counts by workspace. They count before a session begins, too.
type limitedCounts struct {
	sync.Mutex
	of map[string]*limitedCount
}

// Limited counts a request of a workspace that a limit refused, so that no approver was asked. Their number is
// told in one line, at a limited rate. The last few may be lost if the process ends.
func (c *Channel) Limited(workspace string) {
	c.limited.Lock()
	defer c.limited.Unlock()
	n := c.limitedIn(workspace)
	n.Count++
	n.First, n.changed = cmp.Or(n.First, c.now().UTC()), true
}

func limitedName(ws string) string { return "limited-" + ws + ".json" }

// limitedIn needs c.limited.
func (c *Channel) limitedIn(ws string) *limitedCount {
	if n := c.limited.of[ws]; n != nil {
		return n
	}
	n := &limitedCount{}
	c.log(c.load(limitedName(ws), n))
	if c.limited.of == nil {
		c.limited.of = map[string]*limitedCount{}
	}
	c.limited.of[ws] = n
	return n
}

// resumeLimited takes back the counts that an earlier session did not tell to the end. Those are stored.
func (c *Channel) resumeLimited() {
	c.limited.Lock()
	defer c.limited.Unlock()
	for ws, since := range c.limited.of {
		if since.sending {
			delete(c.limited.of, ws)
			n := c.limitedIn(ws)
			n.Count += since.Count
			n.changed = true
		}
	}
}

// tellLimited stores the counts, and tells those that are due. A letter tells of all workspaces.
func (s *session) tellLimited() {
	s.limited.Lock()
	defer s.limited.Unlock()
	now, delay, interval, last := s.now(), limitedDelay, limitedInterval, time.Time{}
	if s.traits.Letters != nil {
		interval = letterInterval
		if !s.traits.OneWay {
			delay = letterDelay
		}
	}
	var due []Workspace
	for _, ws := range s.Workspaces() {
		n := s.limitedIn(ws.Name)
		if s.traits.Letters != nil && n.Told.After(last) {
			last = n.Told
		}
		if n.sending {
			continue
		}
		if n.changed {
			s.log(s.save(limitedName(ws.Name), n))
			n.changed = false
		}
		if n.Count > 0 && len(ws.Places) > 0 && now.Sub(n.First) >= delay && now.Sub(n.Told) >= interval {
			due = append(due, ws)
		}
	}
	if now.Sub(last) >= interval {
		s.queueLimited(due, now)
	}
}

// queueLimited queues one message for each place. The stored counts are cleared when the first one was sent. It needs
// c.limited.
func (s *session) queueLimited(due []Workspace, now time.Time) {
	messages := map[Address]Message{}
	var sent []*limitedCount
	for _, ws := range due {
		n, quiet := s.limitedIn(ws.Name), s.isQuiet(approval.Key{Workspace: ws.Name})
		count := strconv.Itoa(n.Count)
		n.Count, n.First, n.Told, n.sending = 0, time.Time{}, now.UTC(), true
		sent = append(sent, n)
		for _, to := range ws.Places {
			t := catalogFor(cmp.Or(to.Language, ws.Language))
			line := chat.Format(t.Limited, "workspace", chat.Escape(ws.Name), "n", count)
			m, more := messages[to.Address]
			m.Lines = append(m.Lines, line)
			switch {
			case more:
			case s.traits.OneWay:
				m = s.newNotice(approval.Key{}, chat.Notice{Title: chat.Escape(ws.Name), Text: line})
			case s.traits.Letters != nil:
				m.ID, m.Title, m.Lines = s.traits.Letters.NewID(""), line, []string{t.LimitedLetter, "", line}
			}
			m.Silent = quiet && (m.Silent || !more)
			messages[to.Address] = m
		}
	}
	for to, m := range messages {
		s.outbox.put(s.queueOf(to.Chat), job{rank: rankNotice, do: func(ctx context.Context) error {
			if _, err := s.send(ctx, to, m); err != nil && !never(err) {
				return err
			}
			s.limited.Lock()
			defer s.limited.Unlock()
			for _, n := range sent {
				n.changed, n.sending = n.changed || n.sending, false
			}
			return nil
		}}, 0)
	}
}
