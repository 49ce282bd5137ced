package deliver

import (
	"context"
	"fmt"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// cardReply is one user's reply to one card, by a button or by text.
type cardReply struct {
	*session
	person     approval.Person
	language   string
	key        approval.Key
	status     status
	sha256     string   // of the pending that the card showed
	workspaces []string // where the user may decide, in this chat
}

// submit interprets the text as a reply to the card and returns the answer. Decide checks whether the user may
// decide.
func (a cardReply) submit(ctx context.Context, text string) (reply string, acted bool) {
	// A secret may be known by now that the card's sender did not know.
	if p := a.status.Pending; isPending(a.status.Story) && textApproves(text, p) && a.renderer(a.language).blocked(p) != "" {
		return a.renderer(a.language).blocked(p), false
	}
	card := approval.StoredPending{Pending: a.status.Pending, SHA256: a.sha256}
	m := chat.Message{
		From: a.person, Via: a.Name, Text: text, Workspaces: a.workspaces, Card: &card, Language: a.language, Bots: a.botNames(),
	}
	r := a.Interceptor.Handle(ctx, m)
	if r.Err != nil {
		a.log(fmt.Errorf("decide %s: %w", a.key, r.Err))
	}
	a.touch(a.key)
	if r.Acted {
		return r.Text, true
	}
	// This may be a repetition of an accepted decision: Telegram resends updates, and users tap twice. Then it
	// is confirmed again.
	now, err := a.Viewer.Story(ctx, a.key)
	if err == nil && a.sameDecision(now.Decision, m.Command()) {
		return a.Interceptor.Confirm(m, now.Decision), true
	}
	return r.Text, false
}

// sameDecision reports whether this user already made exactly this decision.
func (a cardReply) sameDecision(d *approval.Decision, c chat.Command) bool {
	if !a.DecidedBy(d, ID(a.person.ID)) {
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
		options := a.status.Pending.Options
		return d.Verdict == approval.Answered && c.Option <= len(options) && text == options[c.Option-1]
	}
	return false
}

// refusalText is the neutral answer to a user who may not decide.
func (s *session) refusalText(language string) string {
	return s.Interceptor.Handle(context.Background(), chat.Message{Text: "pending", Language: language}).Text
}
