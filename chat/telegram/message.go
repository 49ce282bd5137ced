package telegram

import (
	"context"
	"slices"
	"strings"

	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// written is a message that somebody wrote.
type written struct {
	*session
	m        *models.Message
	text     string // as chat's grammar knows it, without a slash and our name
	slash    bool   // it began with a slash: it was meant for a bot
	person   approval.Person
	here     []Workspace
	theirs   []string // the workspaces here in which the person may decide
	language string
}

// message handles what somebody wrote. What is not meant for us is left alone.
func (s *session) message(ctx context.Context, m *models.Message) {
	s.outbox.hurry(m.Chat.ID) // whoever writes to us may have made it possible to answer
	thread := threadOf(m)
	w := &written{session: s, m: m, here: s.here(m.Chat.ID, thread)}
	w.language = languageHere(w.here, m.Chat.ID)
	var ours bool
	if w.text, w.slash, ours = unslashed(m.Text, s.ourNames()); !ours || w.text == "" {
		return
	}
	by, real := personOf(m)
	w.person = by
	at, replied := s.card(m)
	if !w.meant(replied) {
		return
	}
	if !real {
		w.unreal()
		return
	}
	w.theirs = s.theirs(w.here, by)
	switch {
	case w.start():
	case len(w.theirs) == 0 && replied && w.talk(at):
	case len(w.theirs) == 0:
		w.stranger(at.key)
	case replied:
		w.answer(ctx, at)
	default:
		w.command(ctx)
	}
}

// unslashed reads a command as Telegram writes them: "/deny@our_bot a7f3b2c1 no". ours is false where it is
// another bot's.
func unslashed(text string, names []string) (rest string, slash, ours bool) {
	text = strings.Trim(text, " \t\r\n")
	tail, ok := strings.CutPrefix(text, "/")
	if !ok {
		return text, false, true
	}
	end := strings.IndexAny(tail, " \t\r\n")
	if end < 0 {
		end = len(tail)
	}
	word, name, named := strings.Cut(tail[:end], "@")
	if named && !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
		return "", true, false
	}
	return word + tail[end:], true, true
}

// card finds the card that a message answers: it is a reply to one, or to a message of ours that asked for
// the words.
func (s *session) card(m *models.Message) (at spot, replied bool) {
	if m.ReplyToMessage == nil {
		return spot{}, false
	}
	r := m.ReplyToMessage
	if at, replied = s.book.spot(m.Chat.ID, r.ID); replied || r.From == nil || r.From.ID != s.api.bot.ID() {
		return at, replied
	}
	return s.unnoted(m.Chat.ID, r)
}

// unnoted is the card that a message of ours is whose sending was not noted: its buttons tell.
func (s *session) unnoted(chatID int64, r *models.Message) (at spot, ok bool) {
	if r.ReplyMarkup == nil {
		return at, false
	}
	whole := false
	for _, b := range slices.Concat(r.ReplyMarkup.InlineKeyboard...) {
		verb, n, _ := strings.Cut(b.CallbackData, ":")
		found, p, live := s.book.find(n)
		x := p.post(found.n)
		if x == nil || !live || verb == verbOpen || found.verb != verb || x.Chat != chatID || x.Message != 0 {
			continue
		}
		at, ok, whole = spot{found.key, x.N, ""}, true, whole || letsRun(verb)
	}
	if ok {
		s.adopt(at.key, at.n, r.ID, whole)
	}
	return at, ok
}

// meant says whether a message is for us. A reply to a card is; so is a command, and what begins with our
// name. All else is other people's talk.
func (w *written) meant(replied bool) bool {
	if replied || w.slash {
		return true
	}
	m := chat.Message{Text: w.text, Bots: w.ourNames()}
	word, _ := w.own()
	return word != "" || m.Command().Kind != chat.NotAddressed
}

// talk says whether a reply to a card could decide nothing, whoever had written it.
func (w *written) talk(at spot) bool {
	return chat.Parse(w.text, chat.Context{Reply: true, ID: at.key.ID, Bots: w.ourNames()}).Kind == chat.Unclear
}

// unreal is for what no person wrote with their own hands: it decides nothing. What was sent in the name of
// a group or by a bot is refused; what was forwarded or edited is only let pass.
func (w *written) unreal() {
	from := w.m.SenderChat
	switch {
	case len(w.here) == 0, w.m.ForwardOrigin != nil, w.m.EditDate != 0, w.m.ViaBot != nil:
	case from != nil:
		w.refuseFrom(from.ID, approval.Key{})
	case w.m.From != nil && w.m.From.IsBot:
		w.refuseFrom(w.m.From.ID, approval.Key{})
	}
}

func (w *written) stranger(k approval.Key) { w.refuseFrom(w.m.From.ID, k) }

// refuseFrom refuses, in the same words whatever there is, and not for ever.
func (w *written) refuseFrom(id int64, k approval.Key) {
	if w.refuse(k, id) {
		w.say(w.neutral(w.language))
	}
}

// say answers the message.
func (w *written) say(text string) { w.reply(w.m.Chat.ID, threadOf(w.m), w.m.ID, plain(text)) }

// reply sends an answer. It may be lost: whoever gets none asks again.
func (s *session) reply(chatID int64, thread, to int, l look) {
	if l.text == "" {
		return
	}
	s.outbox.put(chatID, job{rank: rankAnswer, lossy: true, do: func(ctx context.Context) error {
		_, err := s.api.send(ctx, chatID, l, how{thread: thread, replyTo: to})
		return err
	}}, 0)
}

// answer is a reply to a card, or to a prompt of it.
func (w *written) answer(ctx context.Context, at spot) {
	p, x := w.book.either(at)
	if x == nil || !slices.Contains(w.theirs, at.key.Workspace) {
		w.stranger(at.key)
		return
	}
	w.language = x.Language
	sc, err := w.scene(ctx, at.key)
	switch {
	case err != nil:
		w.log(err)
		w.say(w.unsure(w.language))
		return
	case sc.Pending == nil:
		w.say(catalogue(w.language).gone)
		return
	}
	if _, ok := w.Guard.May(at.key.Workspace, sc.Pending, w.person); !ok {
		w.stranger(at.key)
		return
	}
	text := w.text
	switch at.verb {
	case "4", "5", "?":
		text = at.verb + " " + text
	}
	if !x.Whole && sc.waits() && approves(text, sc.Pending) {
		w.say(say(catalogue(w.language).notShown, "id", approval.ShortID(at.key.ID)))
		return
	}
	a := asking{
		session: w.session, person: w.person, language: w.language, key: at.key, scene: sc, sha256: p.SHA256,
		workspaces: []string{at.key.Workspace},
	}
	reply, _ := a.say(ctx, text)
	w.say(reply)
}

// approves says whether a text, as an answer to this card, lets something run.
func approves(text string, p *approval.Pending) bool {
	if p.Type == approval.TypeQuestion {
		return false // its answers are on the card, or in the person's own words
	}
	c := chat.Message{Text: text, Card: &approval.Waiting{Pending: p}}.Command()
	return c.Kind == chat.Approve || c.Kind == chat.Menu && c.Code != "3" && c.Code != "5"
}

// command is what was written without a card.
func (w *written) command(ctx context.Context) {
	if w.special(ctx) {
		return
	}
	m := chat.Message{
		From: w.person, Via: Via, Text: w.text, Workspaces: w.theirs, Language: w.language, Bots: w.ourNames(),
	}
	c := m.Command()
	if c.Kind == chat.Pending {
		w.send(w.pendings(ctx, w.asker(), 0))
		return
	}
	shown := shownHere{w.Viewer, w.book, w.m.Chat.ID}
	if c.Kind == chat.Approve {
		if k, ok := shown.partly(ctx, w.theirs, c.ID); ok {
			w.say(say(catalogue(w.language).notShown, "id", approval.ShortID(k.ID)))
			return
		}
	}
	ic := *w.Interceptor
	ic.Viewer = shown
	r := ic.Handle(ctx, m)
	if r.Err != nil {
		w.log(r.Err)
	}
	if r.Acted {
		w.stir(r.Key)
	}
	w.say(r.Text)
}

// shownHere is what waits and has a card in one chat: only that can be decided there by its first digits.
type shownHere struct {
	Viewer
	book *book
	chat int64
}

// Waiting implements chat.Viewer.
func (v shownHere) Waiting(ctx context.Context, workspaces []string) ([]approval.Waiting, error) {
	all, err := v.Viewer.Waiting(ctx, workspaces)
	return slices.DeleteFunc(all, func(w approval.Waiting) bool { return v.card(w) == nil }), err
}

// Find implements chat.Finder, for those who come late: what waits is not among what it finds, or it could
// be decided by whoever has not seen it.
func (v shownHere) Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error) {
	all, err := v.Viewer.Find(ctx, workspaces, prefix)
	if err != nil {
		return nil, err
	}
	var late []approval.Key
	for _, k := range all {
		st, err := v.Story(ctx, k)
		if err != nil {
			return nil, err
		}
		if !st.waits() {
			late = append(late, k)
		}
	}
	return late, nil
}

// card is the card of what waits in this chat; nil: there is none.
func (v shownHere) card(w approval.Waiting) *post {
	p := v.book.page(w.Key())
	if p == nil || p.SHA256 != w.SHA256 {
		return nil
	}
	for _, x := range p.Posts {
		if x.Chat == v.chat && x.Message != 0 && x.Stale == "" {
			return x
		}
	}
	return nil
}

// partly says whether the digits fit one card here that does not show everything.
func (v shownHere) partly(ctx context.Context, workspaces []string, prefix string) (k approval.Key, ok bool) {
	all, err := v.Waiting(ctx, workspaces)
	if err != nil {
		return k, false
	}
	all = slices.DeleteFunc(all, func(w approval.Waiting) bool { return !strings.HasPrefix(w.Pending.RequestID, prefix) })
	if len(all) != 1 {
		return k, false
	}
	return all[0].Key(), !v.card(all[0]).Whole
}
