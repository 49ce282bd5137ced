package telegram

import (
	"context"
	"slices"
	"strings"

	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// incomingMessage is a message from a user.
type incomingMessage struct {
	*session
	m              *models.Message
	text           string // without a slash and the bot's name
	slash          bool   // it began with a slash, so it is a command for a bot
	person         approval.Person
	chatWorkspaces []Workspace
	workspaces     []string // those of the chat in which the user may decide
	language       string
}

// handleMessage handles a user's message. Messages that do not address the bot are ignored.
func (s *session) handleMessage(ctx context.Context, m *models.Message) {
	s.outbox.retryNow(m.Chat.ID) // a user's message may mean that the chat is reachable again
	thread := threadOf(m)
	w := &incomingMessage{session: s, m: m, chatWorkspaces: s.workspacesAt(m.Chat.ID, thread)}
	w.language = languageIn(w.chatWorkspaces, m.Chat.ID)
	var ours bool
	if w.text, w.slash, ours = stripSlash(m.Text, s.botNames()); !ours || w.text == "" {
		return
	}
	by, real := directSender(m)
	w.person = by
	at, replied := s.cardRepliedTo(m)
	if !w.isAddressed(replied) {
		return
	}
	if !real {
		w.refuseIndirect()
		return
	}
	w.workspaces = s.mayDecideIn(w.chatWorkspaces, by)
	switch {
	case w.handleStart():
	case len(w.workspaces) == 0 && replied && w.decidesNothing(at):
	case len(w.workspaces) == 0:
		w.refuseSender(at.key)
	case replied:
		w.handleReply(ctx, at)
	default:
		w.handleCommand(ctx)
	}
}

// stripSlash reads a command as Telegram writes it: "/deny@our_bot a7f3b2c1 no". ours is false if it names
// another bot.
func stripSlash(text string, names []string) (rest string, slash, ours bool) {
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

// cardRepliedTo returns the card that a message replies to, directly or through a prompt.
func (s *session) cardRepliedTo(m *models.Message) (at messageRef, replied bool) {
	if m.ReplyToMessage == nil {
		return messageRef{}, false
	}
	r := m.ReplyToMessage
	if at, replied = s.sent.findMessage(m.Chat.ID, r.ID); replied || r.From == nil || r.From.ID != s.api.bot.ID() {
		return at, replied
	}
	return s.findUnrecorded(m.Chat.ID, r)
}

// findUnrecorded identifies, by its buttons, a card whose message ID was not recorded.
func (s *session) findUnrecorded(chatID int64, r *models.Message) (at messageRef, ok bool) {
	if r.ReplyMarkup == nil {
		return at, false
	}
	whole := false
	for _, b := range slices.Concat(r.ReplyMarkup.InlineKeyboard...) {
		verb, n, _ := strings.Cut(b.CallbackData, ":")
		found, p, live := s.sent.findButton(n)
		x := p.byNumber(found.number)
		if x == nil || !live || verb == verbOpen || found.verb != verb || x.Chat != chatID || x.Message != 0 {
			continue
		}
		at, ok, whole = messageRef{found.key, x.Number, ""}, true, whole || approves(verb)
	}
	if ok {
		s.claimMessage(at.key, at.number, r.ID, whole)
	}
	return at, ok
}

// isAddressed reports whether a message is for the bot: a reply to a card, a command, or a text that begins
// with the bot's name.
func (w *incomingMessage) isAddressed(replied bool) bool {
	if replied || w.slash {
		return true
	}
	m := chat.Message{Text: w.text, Bots: w.botNames()}
	word, _ := w.ownCommand()
	return word != "" || m.Command().Kind != chat.NotAddressed
}

// decidesNothing reports whether a reply to a card is no decision, from any author.
func (w *incomingMessage) decidesNothing(at messageRef) bool {
	return chat.Parse(w.text, chat.Context{Reply: true, ID: at.key.ID, Bots: w.botNames()}).Kind == chat.Unclear
}

// refuseIndirect handles a message that no user wrote directly. One in the name of a group, or from a bot, is
// refused; a forwarded or edited one is ignored.
func (w *incomingMessage) refuseIndirect() {
	from := w.m.SenderChat
	switch {
	case len(w.chatWorkspaces) == 0, w.m.ForwardOrigin != nil, w.m.EditDate != 0, w.m.ViaBot != nil:
	case from != nil:
		w.refuseFrom(from.ID, approval.Key{})
	case w.m.From != nil && w.m.From.IsBot:
		w.refuseFrom(w.m.From.ID, approval.Key{})
	}
}

func (w *incomingMessage) refuseSender(k approval.Key) { w.refuseFrom(w.m.From.ID, k) }

// refuseFrom sends the neutral refusal, at a limited rate.
func (w *incomingMessage) refuseFrom(id int64, k approval.Key) {
	if w.auditRefusal(k, id) {
		w.replyText(w.refusalText(w.language))
	}
}

// replyText answers the message.
func (w *incomingMessage) replyText(text string) {
	w.reply(w.m.Chat.ID, threadOf(w.m), w.m.ID, plainMessage(text))
}

// reply sends an answer. It may be lost: the user can ask again.
func (s *session) reply(chatID int64, thread, to int, msg message) {
	if msg.text == "" {
		return
	}
	s.outbox.put(chatID, job{rank: rankAnswer, lossy: true, do: func(ctx context.Context) error {
		_, err := s.api.send(ctx, chatID, msg, sendOptions{thread: thread, replyTo: to})
		return err
	}}, 0)
}

// handleReply handles a reply to a card or to a prompt.
func (w *incomingMessage) handleReply(ctx context.Context, at messageRef) {
	p, x := w.sent.findCopy(at)
	if x == nil || !slices.Contains(w.workspaces, at.key.Workspace) {
		w.refuseSender(at.key)
		return
	}
	w.language = x.Language
	st, err := w.status(ctx, at.key)
	switch {
	case err != nil:
		w.log(err)
		w.replyText(w.unsureText(w.language))
		return
	case st.Pending == nil:
		w.replyText(catalogFor(w.language).UnknownRequest)
		return
	}
	if _, ok := w.Guard.May(at.key.Workspace, st.Pending, w.person); !ok {
		w.refuseSender(at.key)
		return
	}
	text := w.text
	switch at.verb {
	case "4", "5", "?":
		text = at.verb + " " + text
	}
	if !x.FullyShown && st.isPending() && textApproves(text, st.Pending) {
		w.replyText(chat.Format(catalogFor(w.language).NotShown, "id", approval.ShortID(at.key.ID)))
		return
	}
	a := cardReply{
		session: w.session, person: w.person, language: w.language, key: at.key, status: st, sha256: p.SHA256,
		workspaces: []string{at.key.Workspace},
	}
	reply, _ := a.submit(ctx, text)
	w.replyText(reply)
}

// textApproves reports whether a text, as a reply to this card, would run an action.
func textApproves(text string, p *approval.Pending) bool {
	if p.Type == approval.TypeQuestion {
		return false // the answers are on the card, or are the user's own words
	}
	c := chat.Message{Text: text, Card: &approval.StoredPending{Pending: p}}.Command()
	return c.Kind == chat.Approve || c.Kind == chat.Menu && c.Code != "3" && c.Code != "5"
}

// handleCommand handles a text that is no reply to a card.
func (w *incomingMessage) handleCommand(ctx context.Context) {
	if w.handleOwnCommand(ctx) {
		return
	}
	m := chat.Message{
		From: w.person, Via: Via, Text: w.text, Workspaces: w.workspaces, Language: w.language, Bots: w.botNames(),
	}
	c := m.Command()
	if c.Kind == chat.Pending {
		w.replyWith(w.pendingList(ctx, w.listRequest(), 0))
		return
	}
	shown := chatViewer{w.Viewer, w.sent, w.m.Chat.ID}
	if c.Kind == chat.Approve {
		if k, ok := shown.partlyShown(ctx, w.workspaces, c.ID); ok {
			w.replyText(chat.Format(catalogFor(w.language).NotShown, "id", approval.ShortID(k.ID)))
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
		w.touch(r.Key)
	}
	w.replyText(r.Text)
}

// chatViewer is limited to the pending requests that have a card in one chat: only those can be decided there
// by a short ID.
type chatViewer struct {
	viewer
	sent *sentIndex
	chat int64
}

// Waiting implements chat.viewer.
func (v chatViewer) Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error) {
	all, err := v.viewer.Waiting(ctx, workspaces)
	return slices.DeleteFunc(all, func(w approval.StoredPending) bool { return v.shownCopy(w) == nil }), err
}

// Find is for late decisions. It leaves out pending requests: a user must not decide one
// without having seen its card.
func (v chatViewer) Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error) {
	all, err := v.viewer.Find(ctx, workspaces, prefix)
	if err != nil {
		return nil, err
	}
	var late []approval.Key
	for _, k := range all {
		story, err := v.Story(ctx, k)
		if err != nil {
			return nil, err
		}
		if !story.isPending() {
			late = append(late, k)
		}
	}
	return late, nil
}

// shownCopy returns the card of a pending request in this chat, or nil.
func (v chatViewer) shownCopy(w approval.StoredPending) *sentCopy {
	p := v.sent.record(w.Key())
	if p == nil || p.SHA256 != w.SHA256 {
		return nil
	}
	for _, x := range p.Copies {
		if x.Chat == v.chat && x.Message != 0 && x.StaleReason == "" {
			return x
		}
	}
	return nil
}

// partlyShown reports whether the short ID fits exactly one card here, and that card does not show everything.
func (v chatViewer) partlyShown(ctx context.Context, workspaces []string, prefix string) (k approval.Key, ok bool) {
	all, err := v.Waiting(ctx, workspaces)
	if err != nil {
		return k, false
	}
	all = slices.DeleteFunc(all, func(w approval.StoredPending) bool { return !strings.HasPrefix(w.Pending.RequestID, prefix) })
	if len(all) != 1 {
		return k, false
	}
	return all[0].Key(), !v.shownCopy(all[0]).FullyShown
}
