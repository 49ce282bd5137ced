package deliver

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

const (
	// tapTimeout is how long a tap stays unanswered while its decision is written.
	tapTimeout = 2 * time.Second
	// maxAnswering is how long an answer is retried: then the user's program no longer waits for it.
	maxAnswering = time.Minute
)

// incomingTap is a user's tap on a button.
type incomingTap struct {
	*session
	Tap
	person         approval.Person
	chatWorkspaces []Workspace
	language       string

	mu       sync.Mutex
	answered bool
	ended    chan bool // false: the run ended before the answer was sent
	release  func()    // the record
}

// handleTap handles a tap, and returns a channel that says whether the answer was sent. It trusts only the user's
// ID, the chat, and a nonce that this channel created.
func (s *session) handleTap(ctx context.Context, q Tap) (sent <-chan bool) {
	t := &incomingTap{session: s, Tap: q, person: s.person(q.By), ended: make(chan bool, 1)}
	_, n, _ := strings.Cut(q.Data, ":")
	at, _, _ := s.sent.findButton(n)
	release := s.sent.hold(at.key)
	t.release = func() {
		release()
		s.touch(at.key)
	}
	t.handle(ctx)
	t.answer("", false) // if nothing else was
	return t.ended
}

func (t *incomingTap) handle(ctx context.Context) {
	s, q := t.session, t.Tap
	if q.At.Chat == "" {
		t.refuseTap(approval.Key{})
		return
	}
	t.chatWorkspaces = s.workspacesAt(q.At)
	t.language = languageIn(t.chatWorkspaces, q.At.Chat)
	timer := time.AfterFunc(tapTimeout, func() { t.answer(catalogFor(t.language).PleaseWait, false) })
	defer timer.Stop()
	verb, n, _ := strings.Cut(q.Data, ":")
	at, p, live := s.sent.findButton(n)
	switch x := p.byNumber(at.number); {
	case x == nil:
		t.handleUnknown(ctx, verb, n)
	case at.verb != verb, x.Chat != q.At.Chat, !t.isOn(x, verb), !t.serves(at.key.Workspace):
		t.refuseTap(at.key)
	default:
		t.language = x.Language
		t.handleButton(ctx, at, p, x, live)
	}
}

func (t *incomingTap) serves(ws string) bool {
	return slices.ContainsFunc(t.chatWorkspaces, func(w Workspace) bool { return w.Name == ws })
}

// answer answers the tap once, in the background.
func (t *incomingTap) answer(text string, alert bool) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answered {
		return false
	}
	t.answered = true
	t.outbox.wg.Go(func() {
		done := t.sendAnswer(t.outbox.ctx, text, alert)
		if done {
			t.release()
		}
		t.ended <- done
	})
	return true
}

// sendAnswer sends the answer, and retries it. It returns false if the run ended first. A late answer is rejected,
// which is harmless.
func (t *incomingTap) sendAnswer(ctx context.Context, text string, alert bool) (done bool) {
	for tries, end := 0, time.Now().Add(maxAnswering); ; tries++ {
		err := t.Answer(ctx, text, alert)
		if ctx.Err() != nil {
			return err == nil
		}
		if err == nil || never(err) || time.Now().After(end) {
			return true
		}
		t.log(err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(t.outbox.retryDelay(min(tries, 3), err)):
		}
	}
}

// notify answers the tap or, if it was already answered, writes to the chat.
func (t *incomingTap) notify(text string, alert bool) {
	if !t.answer(text, alert) {
		t.reply(t.At, t.Message, plain(text))
	}
}

// refuseTap refuses with the neutral text.
func (t *incomingTap) refuseTap(k approval.Key) {
	if !t.auditRefusal(k, t.By) {
		t.answer("", false)
		return
	}
	t.answer(t.refusalText(t.language), true)
}

// isOn reports whether the tapped message is the one that the button belongs to. A button that shows a card may
// also be on lists.
func (t *incomingTap) isOn(x *sentCopy, verb string) bool {
	return verb == verbOpen || x.Message == t.Message || x.Message == "" && (x.Digest == "" || x.CardWanted)
}

// handleUnknown handles a nonce that is in no record: it may belong to a digest or a list.
func (t *incomingTap) handleUnknown(ctx context.Context, verb, n string) {
	if d, v := t.findView(n); d != nil {
		t.handleDigestButton(ctx, verb, d, v)
		return
	}
	if c, ok := t.listButtons.find(n); ok {
		t.handleListButton(ctx, verb, c)
		return
	}
	if len(t.mayDecideIn(t.chatWorkspaces, t.person)) == 0 {
		t.refuseTap(approval.Key{})
		return
	}
	t.answer(catalogFor(t.language).ButtonExpired, true)
}

// handleButton runs the action of a card's button.
func (t *incomingTap) handleButton(ctx context.Context, at buttonRef, p *sentRecord, x *sentCopy, live bool) {
	st, err := t.status(ctx, at.key)
	if err != nil {
		t.log(err)
		t.notify(catalogFor(t.language).Unsure, true)
		return
	}
	if _, ok := t.Guard.May(at.key.Workspace, st.Pending, t.person); !ok {
		t.refuseTap(at.key)
		return
	}
	w := catalogFor(t.language)
	if live && x.Message == "" && at.verb != verbOpen {
		t.claimMessage(at.key, x.Number, t.Message, approves(at.verb))
	}
	switch {
	case st.Pending == nil:
		t.notify(w.UnknownRequest, true)
	case at.verb == verbOpen && isPending(st.Story):
		t.showCard(st.Pending, listRequest{person: t.person, at: t.At, language: t.language})
		t.answer("", false)
	case at.verb == verbAll && isPending(st.Story):
		t.showAll(at, x, st)
	case w.Prompts[at.verb] != "" && isPending(st.Story):
		t.sendPrompt(at, x, st)
	case at.verb == verbWhy && isPending(st.Story):
		reply, _ := t.cardReply(at, p, st).submit(ctx, "?")
		t.answer("", false)
		t.reply(t.At, t.Message, plain(reply))
	case at.verb == verbUndo:
		t.undo(ctx, at)
	case slices.Contains([]string{verbAll, verbOpen, verbWhy}, at.verb) || w.Prompts[at.verb] != "":
		t.notify(strings.Join(t.renderer(t.language).outcomeLines(st.Story), "\n"), true)
	default:
		t.decide(ctx, at, p, st)
	}
}

// approves reports whether a button with this verb runs an action. Such a button is only sent with a card that
// shows everything.
func approves(verb string) bool {
	return slices.Contains([]string{"1", "2", "4", "6"}, verb)
}

// claimMessage records the ID of a message that was sent but not recorded, and whether it shows everything.
func (s *session) claimMessage(k approval.Key, n int, id ID, whole bool) {
	err := s.sent.updateSent(k, func(p *sentRecord) error {
		y := p.byNumber(n)
		if y == nil || y.Message != "" {
			return errUnchanged
		}
		y.Message, y.SentAt, y.FullyShown = id, s.now().UTC(), y.FullyShown || whole
		y.Phase = phaseUnsent // its content is unknown: edit it again
		return nil
	})
	s.log(err)
	s.touch(k)
}

// showAll asks for the complete card, unless a part of it does not leave the host.
func (t *incomingTap) showAll(at buttonRef, x *sentCopy, st status) {
	if why := t.renderer(t.language).blocked(st.Pending); why != "" {
		t.notify(why, true)
		return
	}
	t.requestDocument(at, x)
}

// requestDocument asks for the complete card. The request is durable before the update is finished.
func (t *incomingTap) requestDocument(at buttonRef, x *sentCopy) {
	err := t.sent.update(at.key, func(p *sentRecord) error {
		if y := p.byNumber(x.Number); y == nil || y.ShowAll {
			return errUnchanged
		}
		p.byNumber(x.Number).ShowAll = true
		return nil
	})
	if err != nil {
		t.log(err)
		t.notify(catalogFor(t.language).Unsure, true)
		return
	}
	t.touch(at.key)
	t.notify(catalogFor(t.language).Showing, false)
}

// decide submits the button's code as a decision.
func (t *incomingTap) decide(ctx context.Context, at buttonRef, p *sentRecord, st status) {
	text, acted := t.cardReply(at, p, st).submit(ctx, textOf(at, st.Pending))
	t.notify(text, !acted)
}

func (t *incomingTap) cardReply(at buttonRef, p *sentRecord, st status) cardReply {
	return cardReply{
		session: t.session, person: t.person, language: t.language, key: at.key, status: st, sha256: p.SHA256,
		workspaces: []string{at.key.Workspace},
	}
}

// textOf is the text that is equivalent to the button.
func textOf(at buttonRef, p *approval.Pending) string {
	if option, ok := strings.CutPrefix(at.verb, verbOption); ok {
		return option
	}
	if at.verb == "3" && p.Type == approval.TypeQuestion {
		return "deny " + at.key.ID
	}
	return at.verb
}
