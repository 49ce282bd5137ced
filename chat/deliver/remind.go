package deliver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const (
	// recallInterval is the minimum time between two recalls of a card after restarts. The recall of a younger card
	// is silent. No reminder comes so soon after a recall.
	recallInterval = 10 * time.Minute
	// recallDelay is how long a reminder waits for decisions that were made while the daemon was stopped.
	recallDelay = 2 * time.Second
	// askTimeout is how long a request may lack a sent card before the operator is warned.
	askTimeout = time.Minute
)

// reminder is one message about all that waits in a place.
type reminder struct {
	due, recall, silent bool
	counts              bool // it is no silent recall, so no other one is needed
	language            string
	waiting             []remindedCopy
}

// remindedCopy is a waiting request with its copy in the place.
type remindedCopy struct {
	key    approval.Key
	number int
	late   bool // the reminder is not too early for it
}

// remind reminds each place of what waits there: after a restart, and when a request is halfway to its deadline.
func (s *session) remind(ctx context.Context, waiting []approval.StoredPending) {
	if s.traits.Letters != nil {
		return
	}
	places := map[Address]*reminder{}
	for _, w := range waiting {
		k := w.Key()
		p := s.sent.record(k)
		if p == nil || p.SHA256 != w.SHA256 {
			continue
		}
		for _, x := range p.Copies {
			if x.StaleReason != "" || x.MaybeSent || x.SentAt.IsZero() {
				continue
			}
			r := places[x.address()]
			if r == nil {
				r = &reminder{silent: true, language: x.Language}
				places[x.address()] = r
			}
			s.addTo(ctx, r, w.Pending, p, x)
		}
	}
	for at, r := range places {
		if r.due {
			s.queueReminder(at, r)
		}
	}
}

// addTo adds a request to a reminder.
func (s *session) addTo(ctx context.Context, r *reminder, w *approval.Pending, p *sentRecord, x *sentCopy) {
	k := approval.Key{Workspace: w.SourceGroup, ID: w.RequestID}
	now, life := s.now(), w.ExpiresAt.Sub(w.Timestamp)
	age := now.Sub(w.Timestamp)
	rested := now.Sub(x.RecalledAt) >= recallInterval
	recall := s.firstPass && x.SessionID != s.id && rested
	remind := !x.Reminded && !p.Reminded && age >= life/2 && rested
	if recall || remind {
		if story, err := s.Viewer.Story(ctx, k); err != nil || !isPending(story) {
			return
		}
	}
	r.due, r.recall = r.due || recall || remind, r.recall || recall
	if remind || recall && now.Sub(x.SentAt) >= recallInterval {
		r.counts, r.silent = true, r.silent && s.isQuiet(k)
	}
	r.waiting = append(r.waiting, remindedCopy{k, x.Number, age >= life/4})
}

// queueReminder queues a reminder. It is recorded first: a missing reminder is better than a repeated one.
func (s *session) queueReminder(at Address, r *reminder) {
	for _, c := range r.waiting {
		err := s.sent.update(c.key, changeCopy(c.number, func(x *sentCopy) {
			if s.firstPass {
				x.RecalledAt = s.now().UTC()
			}
			x.Reminded = x.Reminded || c.late && r.counts
		}))
		if err != nil {
			s.logAskError(c.key, err)
			return
		}
	}
	s.outbox.put(at.Chat, job{rank: rankNotice, lossy: true, do: func(ctx context.Context) error {
		msg, err := s.renderReminder(ctx, at, r)
		if err != nil || msg.Text() == "" {
			return err
		}
		_, err = s.send(ctx, at, msg.silent(r.silent))
		return err
	}}, recallDelay/firstRetry*s.outbox.retryUnit)
}

// renderReminder renders what still waits: one request as a reply to its card, several as a list.
func (s *session) renderReminder(ctx context.Context, at Address, r *reminder) (Message, error) {
	t := s.renderer(r.language)
	one, all, after := t.Reminder, t.Reminders, ID("")
	if r.recall {
		one, all = t.Recall, t.Recalls
	}
	var open []*approval.Pending
	for _, c := range r.waiting {
		story, err := s.Viewer.Story(ctx, c.key)
		if err != nil {
			return Message{}, err
		}
		if x := s.sent.record(c.key).byNumber(c.number); x != nil && isPending(story) {
			open, after = append(open, story.Pending), s.messageOf(x)
		}
	}
	switch len(open) {
	case 0:
		return Message{}, nil
	case 1:
		return plain(chat.Format(one, "id", chat.Escape(open[0].ShortID), "time", t.timeOfDay(open[0].ExpiresAt))).follow(after), nil
	}
	lines := []string{chat.Format(all, "n", strconv.Itoa(len(open)))}
	var shown []listed
	for i, w := range open[:min(len(open), maxLines)] {
		shown = append(shown, listed{i + 1, w})
		lines = append(lines, t.openLine(shown[i]))
	}
	if more := len(open) - maxLines; more > 0 {
		lines = append(lines, chat.Format(t.AndMore, "n", strconv.Itoa(more)))
	}
	msg := plain(lines...)
	msg.Buttons = s.openButtons(t, shown, at.Chat)
	return msg, nil
}

// warnUnasked warns the operator while pending requests have no sent card.
func (s *session) warnUnasked(waiting []approval.StoredPending) {
	n := 0
	for _, w := range waiting {
		p := s.sent.record(w.Key())
		if s.traits.Letters == nil && s.now().Sub(w.Pending.Timestamp) > askTimeout && (p == nil || p.State != stateSent) {
			n++
		}
	}
	if n == 0 {
		s.warnings.clear("asked")
		return
	}
	s.warnings.set("asked", fmt.Sprintf("%d pending requests could not be sent by %s", n, s.traits.Service),
		"decide them on another channel")
}

// handleReach notes that the bot was removed from a chat, or added again, or that the chat has a new ID.
func (s *session) handleReach(r Reach) {
	switch {
	case r.Moved != "":
		s.chatMoved(r.Chat, r.Moved)
	case len(s.workspacesInChat(r.Chat)) == 0:
	case r.Err != nil:
		s.warnUnreachable(r.Chat, r.Err)
	default:
		s.warnings.clear(chatWarning(r.Chat))
		s.outbox.retryNow(r.Chat)
	}
}

// workspacesInChat lists the workspaces that are asked in a chat, in any topic.
func (s *session) workspacesInChat(chatID ID) []Workspace {
	return slices.DeleteFunc(s.Workspaces(), func(ws Workspace) bool {
		return !slices.ContainsFunc(ws.Places, func(p Place) bool { return p.Chat == chatID })
	})
}

// clearChatWarnings clears the warnings of chats that are no longer configured.
func (s *session) clearChatWarnings() {
	chats := map[string]bool{}
	for _, ws := range s.Workspaces() {
		for _, p := range ws.Places {
			chats[chatWarning(p.Chat)] = true
		}
	}
	for _, name := range s.warnings.names() {
		if strings.HasPrefix(name, chatWarningPrefix) && !chats[name] {
			s.warnings.clear(name)
		}
	}
}
