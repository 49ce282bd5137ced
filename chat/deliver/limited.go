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
	noticeInterval  = time.Hour        // likewise, where each line is a notification
)

// limitedCount counts the requests of a workspace that a limit refused.
type limitedCount struct {
	Count   int       `json:"count"` // not told yet
	First   time.Time `json:"first,omitzero"`
	Told    time.Time `json:"told,omitzero"`
	changed bool      // since it was stored
	sending bool
}

// limitedCounts are the counts by workspace.
type limitedCounts struct {
	sync.Mutex
	of map[string]*limitedCount
}

// Limited counts a request of a workspace that a limit refused, so that no approver was asked. Their number is
// told in one line, at a limited rate. The last few may be lost at a restart.
func (c *Channel) Limited(workspace string) {
	s := c.running.Load()
	if s == nil || s.traits.Letters != nil && !s.traits.OneWay {
		return
	}
	s.limited.Lock()
	defer s.limited.Unlock()
	n := s.limitedIn(workspace)
	n.Count++
	n.First, n.changed = cmp.Or(n.First, s.now().UTC()), true
}

func limitedName(ws string) string { return "limited-" + ws + ".json" }

// limitedIn needs s.limited.
func (s *session) limitedIn(ws string) *limitedCount {
	if n := s.limited.of[ws]; n != nil {
		return n
	}
	n := &limitedCount{}
	s.log(s.load(limitedName(ws), n))
	s.limited.of[ws] = n
	return n
}

// tellLimited stores the counts, and tells those that are due.
func (s *session) tellLimited() {
	s.limited.Lock()
	defer s.limited.Unlock()
	interval := limitedInterval
	if s.traits.OneWay {
		interval = noticeInterval
	}
	for _, ws := range s.Workspaces() {
		n := s.limitedIn(ws.Name)
		if n.sending {
			continue
		}
		if n.changed {
			s.log(s.save(limitedName(ws.Name), n))
			n.changed = false
		}
		now := s.now()
		if n.Count > 0 && now.Sub(n.First) >= limitedDelay && now.Sub(n.Told) >= interval {
			s.queueLimited(ws, n, now)
		}
	}
}

// queueLimited queues one line for each place. The stored count is cleared when the first one was sent. It needs
// s.limited.
func (s *session) queueLimited(ws Workspace, n *limitedCount, now time.Time) {
	count := n.Count
	n.Count, n.First, n.Told, n.sending = 0, time.Time{}, now.UTC(), true
	for _, to := range ws.Places {
		t := catalogFor(cmp.Or(to.Language, ws.Language))
		line := chat.Format(t.Limited, "workspace", chat.Escape(ws.Name), "n", strconv.Itoa(count))
		msg := plain(line)
		if s.traits.OneWay {
			msg = s.newNotice(approval.Key{}, chat.Notice{Title: chat.Escape(ws.Name), Text: line})
		}
		s.outbox.put(s.queueOf(to.Chat), job{rank: rankNotice, do: func(ctx context.Context) error {
			_, err := s.send(ctx, to.Address, msg.silent(s.isQuiet(approval.Key{Workspace: ws.Name})))
			if err != nil && !never(err) {
				return err
			}
			s.limited.Lock()
			defer s.limited.Unlock()
			n.changed, n.sending = n.changed || n.sending, false
			return nil
		}}, 0)
	}
}
