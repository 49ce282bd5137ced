package deliver

import (
	"context"
	"fmt"
	"slices"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
)

// sendPrompt asks for the text that a button needs, with a message that opens a reply. The user's reply to it
// counts as a reply to the card.
func (t *incomingTap) sendPrompt(at buttonRef, x *sentCopy, st status) {
	w := catalogFor(t.language)
	msg := plain(chat.Format(w.Prompts[at.verb], "id", chat.Escape(st.label(at.key)))).follow(t.Message) // the copy may not have it yet
	msg.Prompt = w.Placeholders[at.verb]
	s := t.session
	s.outbox.put(t.At.Chat, job{rank: rankAnswer, lossy: true, do: func(ctx context.Context) error {
		id, err := s.send(ctx, x.address(), msg)
		if err != nil {
			return err
		}
		err = s.sent.updateSent(at.key, changeCopy(x.Number, func(y *sentCopy) {
			y.Prompts = append(y.Prompts, prompt{id, at.verb})
		}))
		if err != nil {
			s.log(fmt.Errorf("write prompt: %w", err))
		}
		return nil
	}}, 0)
	t.answer("", false)
}

// undo revokes the grant that an approval created.
func (t *incomingTap) undo(ctx context.Context, at buttonRef) {
	m := chat.Message{
		From: t.person, Via: t.Name, Text: "undo " + at.key.ID, Workspaces: []string{at.key.Workspace}, Language: t.language,
	}
	r := t.Interceptor.Handle(ctx, m)
	if r.Err != nil {
		t.log(fmt.Errorf("undo %s: %w", at.key, r.Err))
	}
	if r.Err == nil && !t.grantActive(ctx, at.key) {
		t.markUndone(at.key)
	}
	t.notify(r.Text, true)
}

// grantActive reports whether a request's grant is active, or may be.
func (s *session) grantActive(ctx context.Context, k approval.Key) bool {
	all, err := s.Interceptor.Revoker.Remembered(ctx, []string{k.Workspace})
	if err != nil {
		return true
	}
	return slices.ContainsFunc(all, func(g grant.Grant) bool { return g.ID == k.ID && g.RevokedAt.IsZero() })
}

func (s *session) markUndone(k approval.Key) {
	err := s.sent.update(k, func(p *sentRecord) error {
		if p.Undone || len(p.Copies) == 0 {
			return errUnchanged
		}
		p.Undone = true
		return nil
	})
	s.log(err)
	s.touch(k)
}
