package telegram

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
)

// tapPatience is how long a tap is left unanswered while its decision is being written.
const tapPatience = 2 * time.Second

// tapped is a button that somebody touched.
type tapped struct {
	*session
	query    *models.CallbackQuery
	chat     int64
	message  int
	thread   int
	private  bool
	person   approval.Person
	here     []Workspace
	language string

	mu       sync.Mutex
	answered bool
}

// tap handles a touched button. Nothing in it is believed but who touched it, where, and a nonce that we
// made ourselves.
func (s *session) tap(ctx context.Context, q *models.CallbackQuery) {
	t := &tapped{session: s, query: q, person: person(q.From.ID)}
	if !t.place() || q.From.IsBot {
		t.stranger(approval.Key{})
		return
	}
	timer := time.AfterFunc(tapPatience, func() { t.answer(catalogue(t.language).oneSec, false) })
	defer timer.Stop()
	verb, n, _ := strings.Cut(q.Data, ":")
	at, p, live := s.book.find(n)
	switch x := p.post(at.n); {
	case x == nil:
		t.unknown(ctx, verb, n)
	case at.verb != verb, x.Chat != t.chat, !t.on(x, verb), !t.serves(at.key.Workspace):
		t.stranger(at.key)
	default:
		t.language = x.Language
		t.press(ctx, at, p, x, live)
	}
}

// place finds out where the button stands. One on an inline message stands nowhere.
func (t *tapped) place() bool {
	q := t.query
	switch {
	case q.InlineMessageID != "":
		return false
	case q.Message.Message != nil:
		m := q.Message.Message
		t.chat, t.message, t.thread = m.Chat.ID, m.ID, threadOf(m)
		t.private = m.Chat.Type == models.ChatTypePrivate
	case q.Message.InaccessibleMessage != nil:
		m := q.Message.InaccessibleMessage
		t.chat, t.message = m.Chat.ID, m.MessageID
		t.private = m.Chat.Type == models.ChatTypePrivate
	}
	if t.chat == 0 || t.private && t.chat != q.From.ID {
		return false
	}
	t.here = t.session.here(t.chat, t.thread)
	t.language = languageHere(t.here, t.chat)
	return true
}

func (t *tapped) serves(ws string) bool {
	for _, w := range t.here {
		if w.Name == ws {
			return true
		}
	}
	return false
}

// answer answers the tap once, and without keeping anybody waiting.
func (t *tapped) answer(text string, alert bool) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answered {
		return false
	}
	t.answered = true
	ctx := t.outbox.ctx
	t.outbox.wg.Go(func() {
		if err := t.api.answer(ctx, t.query.ID, text, alert); err != nil && troubleOf(err) != refused && ctx.Err() == nil {
			t.log(err) // one that came too late is refused, and nobody waits for it
		}
	})
	return true
}

// tell answers the tap or, where somebody has been put off already, in the chat.
func (t *tapped) tell(text string, alert bool) {
	if !t.answer(text, alert) {
		t.reply(t.chat, t.thread, t.message, plain(text))
	}
}

// stranger refuses, in the same words whatever there is.
func (t *tapped) stranger(k approval.Key) {
	if !t.refuse(k, t.query.From.ID) {
		t.answer("", false)
		return
	}
	t.answer(t.neutral(t.language), true)
}

// on says whether the button stands on the very message that has it. One that only brings a card stands on
// lists, too.
func (t *tapped) on(x *post, verb string) bool {
	return verb == verbOpen || x.Message == t.message || x.Message == 0 && (x.Digest == "" || x.Opened)
}

// unknown is for a nonce that is on no page: it may be on a list.
func (t *tapped) unknown(ctx context.Context, verb, n string) {
	if c, ok := t.choices.find(n); ok {
		t.choose(ctx, verb, c)
		return
	}
	if len(t.theirs(t.here, t.person)) == 0 {
		t.stranger(approval.Key{})
		return
	}
	t.answer(catalogue(t.language).old, true)
}

// press does what a button of a card says.
func (t *tapped) press(ctx context.Context, at button, p *page, x *post, live bool) {
	sc, err := t.scene(ctx, at.key)
	if err != nil {
		t.log(err)
		t.tell(t.unsure(t.language), true)
		return
	}
	if _, ok := t.Guard.May(at.key.Workspace, sc.Pending, t.person); !ok {
		t.stranger(at.key)
		return
	}
	w := catalogue(t.language)
	if live && x.Message == 0 && at.verb != verbOpen {
		t.adopt(at.key, x.N, t.message, letsRun(at.verb))
	}
	switch {
	case sc.Pending == nil:
		t.tell(w.gone, true)
	case at.verb == verbOpen && sc.waits():
		t.bring(at.key, asker{person: t.person, chat: t.chat, thread: t.thread, language: t.language})
		t.answer("", false)
	case at.verb == verbAll && sc.waits():
		t.wantAll(at, x)
	case w.prompts[at.verb] != "" && sc.waits():
		t.prompt(at, x)
	case at.verb == verbUndo:
		t.undo(ctx, at)
	case at.verb == verbAll || at.verb == verbOpen || w.prompts[at.verb] != "":
		t.tell(strings.Join(t.painter(t.language).outcome(sc.Story), "\n"), true)
	default:
		t.decide(ctx, at, p, sc)
	}
}

// letsRun says whether a button with this verb lets something run. It is only ever sent below a card that
// shows everything.
func letsRun(verb string) bool {
	switch verb {
	case "1", "2", "4", "6":
		return true
	}
	return false
}

// adopt notes the id of a message that was sent without our knowing, and whether it shows everything.
func (s *session) adopt(k approval.Key, n, id int, whole bool) {
	err := s.book.note(k, func(p *page) error {
		y := p.post(n)
		if y == nil || y.Message != 0 {
			return errKept
		}
		y.Message, y.SentAt, y.Whole = id, s.now().UTC(), y.Whole || whole
		y.Phase = unsent // what it shows is not what it is to show, be that over
		return nil
	})
	if err != nil {
		s.log(err)
	}
	s.stir(k)
}

// wantAll has the whole card sent. That somebody wants it is durable before the update is finished.
func (t *tapped) wantAll(at button, x *post) {
	err := t.book.change(at.key, func(p *page) error {
		if y := p.post(x.N); y == nil || y.Wanted {
			return errKept
		}
		p.post(x.N).Wanted = true
		return nil
	})
	if err != nil {
		t.log(err)
		t.tell(t.unsure(t.language), true)
		return
	}
	t.stir(at.key)
	t.tell(catalogue(t.language).showing, false)
}

// decide has what the button says decided, as if its code had been written.
func (t *tapped) decide(ctx context.Context, at button, p *page, sc scene) {
	a := asking{
		session: t.session, person: t.person, language: t.language, key: at.key, scene: sc, sha256: p.SHA256,
		workspaces: []string{at.key.Workspace},
	}
	text, acted := a.say(ctx, wordsOf(at, sc.Pending))
	t.tell(text, !acted)
}

// wordsOf is what somebody would have written instead of touching the button.
func wordsOf(at button, p *approval.Pending) string {
	if option, ok := strings.CutPrefix(at.verb, verbOption); ok {
		return option
	}
	if at.verb == "3" && p.Type == approval.TypeQuestion {
		return "deny " + at.key.ID
	}
	return at.verb
}
