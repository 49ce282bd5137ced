package telegram

import (
	"context"
	"fmt"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// asking is somebody who answers one card.
type asking struct {
	*session
	person     approval.Person
	language   string
	key        approval.Key
	scene      scene
	sha256     string   // of the pending that the card showed
	workspaces []string // where the person may decide, in this chat
}

// say has the text understood as an answer to the card, and gives the reply. Whether the person may decide
// is Decide's business.
func (a asking) say(ctx context.Context, text string) (reply string, acted bool) {
	card := approval.Waiting{Pending: a.scene.Pending, SHA256: a.sha256}
	m := chat.Message{
		From: a.person, Via: Via, Text: text, Workspaces: a.workspaces, Card: &card, Language: a.language, Bots: a.ourNames(),
	}
	r := a.Interceptor.Handle(ctx, m)
	if r.Err != nil {
		a.log(fmt.Errorf("decide %s: %w", a.key, r.Err))
	}
	a.stir(a.key)
	if r.Acted {
		return r.Text, true
	}
	// It may be the second time that we hear of what was decided a moment ago: Telegram sends again what it
	// thinks that we missed, and people touch twice.
	now, err := a.Viewer.Story(ctx, a.key)
	if err == nil && a.same(now.Decision, m.Command()) {
		return a.Interceptor.Confirm(m, now.Decision), true
	}
	return r.Text, false
}

// same says whether this person has decided exactly this before.
func (a asking) same(d *approval.Decision, c chat.Command) bool {
	if d == nil || d.DecidedByID != a.person.Channel+":"+a.person.ID {
		return false
	}
	text := d.Note + d.Override + d.Feedback + d.Answer
	switch c.Kind {
	case chat.Menu:
		return d.Code == c.Code && text == c.Text
	case chat.Deny:
		return d.Verdict == approval.Denied && text == c.Text
	case chat.Approve:
		return d.Verdict == approval.Approved && d.Scope == approval.Once && text == ""
	case chat.Question:
		return d.Verdict == approval.RequestMore && text == c.Text
	case chat.Free:
		return d.Verdict == approval.Answered && text == c.Text
	case chat.Option:
		options := a.scene.Pending.Options
		return d.Verdict == approval.Answered && c.Option <= len(options) && text == options[c.Option-1]
	}
	return false
}

// neutral is what a stranger hears, whatever there is.
func (s *session) neutral(language string) string {
	return s.Interceptor.Handle(context.Background(), chat.Message{Text: "pending", Language: language}).Text
}

// unsure is for what could not be done and might have been.
func (s *session) unsure(language string) string { return catalogue(language).unsure }
