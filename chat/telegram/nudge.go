package telegram

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
)

const (
	// recallEvery is how often the restarts of a gate may remind people of one request.
	recallEvery = 10 * time.Minute
	// askedWithin is how long a request may wait for its card before somebody should see to it.
	askedWithin = time.Minute
)

// nudge reminds people of a request that waits: after a restart, and once half-way to its end.
func (s *session) nudge(k approval.Key, p *page, sc scene) error {
	cards, now, w := p.cards(), s.now(), sc.Pending
	recall := len(cards) > 0 && s.fresh && cards[0].Life != s.life && now.Sub(later(p.Recalled, cards[len(cards)-1].SentAt)) >= recallEvery
	remind := !p.Reminded && !now.Before(w.Timestamp.Add(w.ExpiresAt.Sub(w.Timestamp)/2))
	if !recall && !remind {
		return nil
	}
	// Noted first: rather one reminder less than one over and over.
	err := s.book.change(k, func(p *page) error {
		if recall {
			p.Recalled = now.UTC()
		}
		p.Reminded = p.Reminded || remind
		return nil
	})
	if err != nil {
		return err
	}
	for _, x := range p.Posts {
		if x.Digest != "" && !x.Opened {
			s.remindOfDigest(x.Digest)
		}
	}
	for _, x := range cards {
		t := s.painter(x.Language)
		sentence := t.reminder
		if recall {
			sentence = t.recall
		}
		s.remark(k, x, plain(say(sentence, "id", w.ShortID, "time", t.clock(w.ExpiresAt))))
	}
	return nil
}

// cards are those that can be replied to.
func (p *page) cards() []*post {
	var all []*post
	for _, x := range p.Posts {
		if x.Message != 0 && x.Stale == "" {
			all = append(all, x)
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// remark says something below a card. It may be lost.
func (s *session) remark(k approval.Key, x *post, l look) {
	s.outbox.put(x.Chat, job{rank: rankNotice, lossy: true, do: func(ctx context.Context) error {
		if st, err := s.Viewer.Story(ctx, k); err != nil || !st.waits() {
			return nil //nolint:nilerr // what waits no more needs no reminder
		}
		_, err := s.api.send(ctx, x.Chat, l, how{thread: x.Thread, replyTo: x.Message, silent: s.quiet(k)})
		return err
	}}, 0)
}

// unasked keeps what waits and could not be asked about before the eyes of those who look after the gate.
func (s *session) unasked(waiting []approval.Waiting) {
	n := 0
	for _, w := range waiting {
		p := s.book.page(w.Key())
		if s.now().Sub(w.Pending.Timestamp) > askedWithin && (p == nil || p.State != stateSent) {
			n++
		}
	}
	if n == 0 {
		s.troubles.clear("asked")
		return
	}
	s.troubles.set("asked", fmt.Sprintf("nobody could be asked by Telegram about %d of the requests that wait", n),
		"permesso pending lists them, permesso approve and deny decide")
}

// membership hears that the bot was put out of a chat, or let in again.
func (s *session) membership(m *models.ChatMemberUpdated) {
	if len(s.everywhere(m.Chat.ID)) == 0 {
		return
	}
	switch m.NewChatMember.Type {
	case models.ChatMemberTypeBanned, models.ChatMemberTypeLeft:
		s.troubles.set(chatTrouble(m.Chat.ID), fmt.Sprintf("Telegram chat %d cannot be written to: the bot was put out of it, or blocked", m.Chat.ID),
			"write /start to the bot in a private chat, or add it to the group, and do not block it")
	default:
		s.troubles.clear(chatTrouble(m.Chat.ID))
		s.outbox.hurry(m.Chat.ID)
	}
}

// everywhere lists the workspaces that are asked about in a chat, in whichever topic.
func (s *session) everywhere(chatID int64) []Workspace {
	var all []Workspace
	for _, ws := range s.Workspaces() {
		for _, p := range ws.Places {
			if p.Chat == chatID {
				all = append(all, ws)
				break
			}
		}
	}
	return all
}

// forgetChats ends the troubles of chats in which nobody is asked any more.
func (s *session) forgetChats() {
	chats := map[string]bool{}
	for _, ws := range s.Workspaces() {
		for _, p := range ws.Places {
			chats[chatTrouble(p.Chat)] = true
		}
	}
	for _, name := range s.troubles.names() {
		if strings.HasPrefix(name, chatTroubles) && !chats[name] {
			s.troubles.clear(name)
		}
	}
}
