package telegram

import (
	"context"
	"fmt"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// prompt asks for the words that a button needs, with a message that opens a reply. What is said to that
// message is said to the card.
func (t *tapped) prompt(at button, x *post) {
	w := catalogue(t.language)
	text := plain(say(w.prompts[at.verb], "id", chat.Escape(approval.ShortID(at.key.ID))))
	s, to := t.session, t.message // which may not be noted on the post yet
	s.outbox.put(t.chat, job{rank: rankAnswer, lossy: true, do: func(ctx context.Context) error {
		id, err := s.api.send(ctx, x.Chat, text, how{thread: x.Thread, replyTo: to, open: w.holders[at.verb]})
		if err != nil {
			return err
		}
		err = s.book.remember(at.key, func(p *page) error {
			y := p.post(x.N)
			if y == nil {
				return errKept
			}
			y.Prompts = append(y.Prompts, prompt{id, at.verb})
			return nil
		})
		if err != nil {
			s.log(fmt.Errorf("note a prompt: %w", err))
		}
		return nil
	}}, 0)
	t.answer("", false)
}

// undo takes back what was remembered of an approval.
func (t *tapped) undo(ctx context.Context, at button) {
	m := chat.Message{
		From: t.person, Via: Via, Text: "undo " + at.key.ID, Workspaces: []string{at.key.Workspace}, Language: t.language,
	}
	r := t.Interceptor.Handle(ctx, m)
	if r.Err != nil {
		t.log(fmt.Errorf("undo %s: %w", at.key, r.Err))
	}
	if r.Err == nil && !t.stillRemembered(ctx, at.key) {
		t.noteUndone(at.key)
	}
	t.tell(r.Text, true)
}

// stillRemembered says whether the approval of a request still lets others through, as far as we know.
func (s *session) stillRemembered(ctx context.Context, k approval.Key) bool {
	all, err := s.Interceptor.Revoker.Remembered(ctx, []string{k.Workspace})
	if err != nil {
		return true
	}
	for _, g := range all {
		if g.ID == k.ID && g.RevokedAt.IsZero() {
			return true
		}
	}
	return false
}

func (s *session) noteUndone(k approval.Key) {
	err := s.book.change(k, func(p *page) error {
		if p.Undone || len(p.Posts) == 0 {
			return errKept
		}
		p.Undone = true
		return nil
	})
	if err != nil {
		s.log(err)
	}
	s.stir(k)
}
