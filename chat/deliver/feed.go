package deliver

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

const (
	feedPrefix = "feed-"
	feedDelay  = 2 * time.Second // so that several lines become one edit
)

// feed is the silent message that lists what policy allowed. It is edited in place. When it is full or a day
// old, a new one begins.
type feed struct {
	Message ID        `json:"message_id,omitzero"`
	Began   time.Time `json:"began"`
	IDs     []string  `json:"ids"`
	Lines   []string  `json:"lines"`
}

// feeds maps names to feeds.
type feeds struct {
	sync.Mutex
	open map[string]*feed
}

func feedName(ws string, to Place) string {
	return feedPrefix + ws + "_" + to.Chat.inName() + "_" + to.Thread.inName() + ".json"
}

// feed lists a request that policy allowed, if the feed is enabled. A line may be lost: the audit log has it.
func (s *session) feed(ctx context.Context, ws Workspace, k approval.Key, st status) {
	if s.Feed == nil || !s.Feed() || !s.traits.Edits || st.Record == nil || st.Record.Status != approval.StatusAutoApproved {
		return
	}
	for _, to := range ws.Places {
		to.Language = cmp.Or(to.Language, ws.Language)
		if s.addFeedLine(ctx, ws.Name, to, k, st.Record) {
			name := feedName(ws.Name, to)
			s.outbox.put(to.Chat, job{name: name, rank: rankNotice, lossy: true, do: func(ctx context.Context) error {
				return s.deliverFeed(ctx, name, ws.Name, to)
			}}, feedDelay/firstRetry*s.outbox.retryUnit)
		}
	}
}

// addFeedLine adds a line and reports whether it is new.
func (s *session) addFeedLine(ctx context.Context, ws string, to Place, k approval.Key, rec *approval.Record) bool {
	t := catalogFor(to.Language)
	rule, despite := "", ""
	if rec.Ruling != nil {
		rule, despite = s.allowedBy(ctx, ws, rec.Ruling, to.Language), allowedDespite(rec.Ruling, to.Language)
	}
	line := chat.Format(t.FeedLine, "id", chat.Escape(rec.ShortID()), "what", s.feedWhat(k, rec, to.Language), "rule", rule) + despite
	s.feeds.Lock()
	defer s.feeds.Unlock()
	f := s.loadFeed(feedName(ws, to))
	if slices.Contains(f.IDs, k.ID) {
		return false
	}
	if len(f.Lines) >= maxLines || s.now().Sub(f.Began) > 24*time.Hour {
		*f = feed{}
	}
	if f.Began.IsZero() {
		f.Began = s.now().UTC()
	}
	f.IDs, f.Lines = append(f.IDs, k.ID), append(f.Lines, line)
	return true
}

// feedWhat is what a request did, and to whom: its tool, what the tool's summary says of it, and
// the target unless the summary says that.
func (s *session) feedWhat(k approval.Key, rec *approval.Record, language string) string {
	p := read.Requested(k, rec)
	name := cmp.Or(p.ToolName, p.ActionType)
	if tool, ok := s.tool(p.ToolName); ok {
		p.SummaryParts, p.Target, p.Runs.Args = facts.Parts(tool.Summary), facts.Expand(tool.Target, p.RequestData), tool.Args
	}
	style := s.Style(language)
	what, target := style.Brief(p), Truncate(style.OneLine(p, p.Target), maxLineLength)
	if words := cmp.Or(p.Agent.Preview, p.Agent.Title); p.ToolName == "" && p.Plan == nil && words != "" {
		what = chat.Quote(Truncate(style.Redacted(p, words), maxLineLength)) // the agent's
	}
	if !strings.Contains(what, target) {
		what += " → " + target
	}
	return chat.Escape(name) + ": " + what
}

func (s *session) tool(name string) (t approval.Tool, known bool) {
	if s.Tool == nil || name == "" {
		return t, false
	}
	return s.Tool(name)
}

// allowedBy is the sentence of the grant that allowed a request, else the name of the rule.
func (s *session) allowedBy(ctx context.Context, ws string, r *approval.Ruling, language string) string {
	if r.Grant != "" && s.Interceptor.Revoker != nil {
		all, err := s.Interceptor.Revoker.Remembered(ctx, []string{ws})
		s.log(err)
		for _, g := range all {
			if g.ID == r.Grant {
				return Truncate(chat.Style{Language: language, Redact: s.Interceptor.Redact}.Grant(&g), maxLineLength)
			}
		}
	}
	return chat.Escape(Truncate(r.Rule, maxLineLength))
}

// allowedDespite says what a rule lifted besides the table: the trifecta, secrets.
func allowedDespite(r *approval.Ruling, language string) (text string) {
	for _, x := range r.Reasons {
		if x.Code == "despite" {
			said := chat.Style{Language: language}.Reasons(&approval.Pending{}, []approval.Reason{x})
			text += " · " + Truncate(said[0], maxLineLength)
		}
	}
	return text
}

// loadFeed needs s.feeds.
func (s *session) loadFeed(name string) *feed {
	if f := s.feeds.open[name]; f != nil {
		return f
	}
	f := &feed{}
	if err := s.load(name, f); err != nil {
		s.log(err)
		f = &feed{}
	}
	s.feeds.open[name] = f
	return f
}

func (s *session) deliverFeed(ctx context.Context, name, ws string, to Place) error {
	s.feeds.Lock()
	f := s.loadFeed(name)
	now := feed{f.Message, f.Began, slices.Clone(f.IDs), slices.Clone(f.Lines)}
	s.feeds.Unlock()
	msg := plain(append([]string{chat.Format(catalogFor(to.Language).FeedTitle, "workspace", ws)}, now.Lines...)...)
	var err error
	if now.Message == "" {
		now.Message, err = s.send(ctx, to.Address, msg.silent(true))
	} else if err = s.edit(ctx, to.Address, now.Message, msg); gone(err) {
		now, err = feed{}, nil // a user deleted the message
	}
	if err != nil {
		return err
	}
	s.feeds.Lock()
	if f.Began.Equal(now.Began) {
		f.Message = now.Message
	}
	s.feeds.Unlock()
	s.log(s.save(name, now))
	return nil
}
