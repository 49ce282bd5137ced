package deliver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const (
	// recallInterval is the minimum time between two reminders after restarts.
	recallInterval = 10 * time.Minute
	// askTimeout is how long a request may lack a sent card before the operator is warned.
	askTimeout = time.Minute
)

// remind sends a reminder of a pending request: after a restart, and once halfway to its deadline.
func (s *session) remind(k approval.Key, p *sentRecord, st status) error {
	if s.traits.Letters != nil {
		return nil
	}
	cards, now, w := p.sentCards(), s.now(), st.Pending
	recall := len(cards) > 0 && s.firstPass && cards[0].SessionID != s.id && now.Sub(later(p.RecalledAt, cards[len(cards)-1].SentAt)) >= recallInterval
	remind := !p.Reminded && !now.Before(w.Timestamp.Add(w.ExpiresAt.Sub(w.Timestamp)/2))
	if !recall && !remind {
		return nil
	}
	// Recorded first: a missing reminder is better than a repeated one.
	err := s.sent.update(k, func(p *sentRecord) error {
		if recall {
			p.RecalledAt = now.UTC()
		}
		p.Reminded = p.Reminded || remind
		return nil
	})
	if err != nil {
		return err
	}
	for _, x := range p.Copies {
		if x.Digest != "" && !x.CardWanted {
			s.remindOfDigest(x.Digest)
		}
	}
	for _, x := range cards {
		t := s.renderer(x.Language)
		sentence := t.Reminder
		if recall {
			sentence = t.Recall
		}
		s.replyToCard(k, x, plain(chat.Format(sentence, "id", w.ShortID, "time", t.timeOfDay(w.ExpiresAt))))
	}
	return nil
}

// sentCards are the copies that a user can reply to.
func (p *sentRecord) sentCards() []*sentCopy {
	unsent := func(x *sentCopy) bool { return x.Message == "" || x.StaleReason != "" }
	return slices.DeleteFunc(slices.Clone(p.Copies), unsent)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// replyToCard sends a reply to a card. It may be lost.
func (s *session) replyToCard(k approval.Key, x *sentCopy, msg Message) {
	s.outbox.put(x.Chat, job{rank: rankNotice, lossy: true, do: func(ctx context.Context) error {
		if story, err := s.Viewer.Story(ctx, k); err != nil || !isPending(story) {
			return nil //nolint:nilerr // no longer pending: no reminder
		}
		_, err := s.send(ctx, x.address(), msg.follow(x.Message).silent(s.isQuiet(k)))
		return err
	}}, 0)
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
