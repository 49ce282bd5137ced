package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const (
	feedPrefix = "feed-"
	feedDelay  = 2 * time.Second // several lines come as one edit
)

// feed is the message that tells, without a sound, what policy allowed by itself. It grows in place; when
// it is full, or a day old, the next one begins.
type feed struct {
	Message int       `json:"message_id,omitzero"`
	Began   time.Time `json:"began"`
	IDs     []string  `json:"ids"`
	Lines   []string  `json:"lines"`
}

// feeds are the feeds by their names.
type feeds struct {
	sync.Mutex
	open map[string]*feed
}

func feedName(ws string, to Place) string {
	return feedPrefix + ws + "_" + strconv.FormatInt(to.Chat, 10) + "_" + strconv.Itoa(to.Thread) + ".json"
}

// feed tells of a request that nobody was asked about, where people want to hear of those. It may be lost:
// the audit log has it.
func (s *session) feed(ws Workspace, k approval.Key, sc scene) {
	if s.Feed == nil || !s.Feed() || sc.Record == nil || sc.Record.Status != approval.StatusAutoApproved {
		return
	}
	for _, to := range ws.Places {
		if to.Language == "" {
			to.Language = ws.Language
		}
		if s.feedLine(ws.Name, to, k, sc.Record) {
			name := feedName(ws.Name, to)
			s.outbox.put(to.Chat, job{name: name, rank: rankNotice, lossy: true, do: func(ctx context.Context) error {
				return s.deliverFeed(ctx, name, ws.Name, to)
			}}, feedDelay/firstRetry*s.unit())
		}
	}
}

// feedLine adds a line and says whether it is new.
func (s *session) feedLine(ws string, to Place, k approval.Key, rec *approval.Record) bool {
	t := catalogue(to.Language)
	rule := ""
	if rec.Ruling != nil {
		rule = rec.Ruling.Rule
	}
	line := say(t.allowed, "id", chat.Escape(approval.ShortID(k.ID)), "rule", chat.Escape(cut(rule, maxLine)))
	s.feeds.Lock()
	defer s.feeds.Unlock()
	f := s.openFeed(feedName(ws, to))
	if slices.Contains(f.IDs, k.ID) {
		return false
	}
	if len(f.Lines) >= mostLines || s.now().Sub(f.Began) > 24*time.Hour {
		*f = feed{}
	}
	if f.Began.IsZero() {
		f.Began = s.now().UTC()
	}
	f.IDs, f.Lines = append(f.IDs, k.ID), append(f.Lines, line)
	return true
}

// openFeed wants s.feeds.
func (s *session) openFeed(name string) *feed {
	if f := s.feeds.open[name]; f != nil {
		return f
	}
	f := &feed{}
	b, err := s.Notes.Get(name)
	if err == nil {
		err = json.Unmarshal(b, f)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log(fmt.Errorf("read %s: %w", name, err))
		f = &feed{}
	}
	if s.feeds.open == nil {
		s.feeds.open = map[string]*feed{}
	}
	s.feeds.open[name] = f
	return f
}

func (s *session) deliverFeed(ctx context.Context, name, ws string, to Place) error {
	s.feeds.Lock()
	f := s.openFeed(name)
	now := feed{f.Message, f.Began, slices.Clone(f.IDs), slices.Clone(f.Lines)}
	s.feeds.Unlock()
	l := plain(append([]string{say(catalogue(to.Language).feedTitle, "workspace", ws)}, now.Lines...)...)
	var err error
	if now.Message == 0 {
		now.Message, err = s.api.send(ctx, to.Chat, l, how{thread: to.Thread, silent: true})
	} else if err = s.api.edit(ctx, to.Chat, now.Message, l); vanished(err) {
		now, err = feed{}, nil // somebody deleted it
	}
	if err != nil {
		return err
	}
	b, err := json.Marshal(now)
	if err != nil {
		return err
	}
	s.feeds.Lock()
	if f.Began.Equal(now.Began) {
		f.Message = now.Message
	}
	s.feeds.Unlock()
	if err := s.Notes.Put(name, b); err != nil {
		s.log(fmt.Errorf("note the feed: %w", err))
	}
	return nil
}
