package deliver

import (
	"context"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// incomingText is a text from a user.
type incomingText struct {
	*session
	Said
	text           string // without a slash and the bot's name
	slash          bool   // it began with a slash, so it is a command for a bot
	person         approval.Person
	chatWorkspaces []Workspace
	workspaces     []string // those of the chat in which the user may decide
	language       string
	decided        approval.Key
}

// handleSaid handles a user's text. In a private chat each one is answered; in a group, texts that do not address
// the bot are ignored.
func (s *session) handleSaid(ctx context.Context, m Said) {
	s.outbox.retryNow(m.At.Chat) // a user's message may mean that the chat is reachable again
	w := &incomingText{session: s, Said: m, chatWorkspaces: s.workspacesAt(m.At), person: s.person(m.By)}
	w.language = languageIn(w.chatWorkspaces, m.At.Chat)
	w.workspaces = s.mayDecideIn(w.chatWorkspaces, w.person)
	var ours bool
	w.text, w.slash, ours = StripSlash(m.Text, s.botNames())
	at, replied := s.cardRepliedTo(m)
	if !w.isAddressed(replied, ours) {
		return
	}
	switch {
	case !m.Direct:
		w.handleIndirect()
	case (!replied || w.slash) && w.handleStart():
	case len(w.workspaces) == 0 && replied && w.decidesNothing(at):
	case len(w.workspaces) == 0:
		w.refuseSender(at.key)
	default:
		w.handleText(ctx, at, replied)
	}
}

// handleText handles a text that may decide. Until its answer is known, the chat is not told that what it approved
// waits for the end of a pause.
func (w *incomingText) handleText(ctx context.Context, at messageRef, replied bool) {
	w.answering.add(w.At.Chat, 1)
	defer func() {
		w.answering.add(w.At.Chat, -1)
		if w.decided.ID != "" {
			w.touch(w.decided)
		}
	}()
	if replied {
		w.handleReply(ctx, at)
	} else {
		w.handleCommand(ctx)
	}
}

// StripSlash reads a command with a slash and perhaps the bot's name: "/deny@our_bot a7f3b2c1 no". ours is false if it names
// another bot.
func StripSlash(text string, names []string) (rest string, slash, ours bool) {
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

// cardRepliedTo returns the card that a message replies to, directly or through a prompt. A card whose message
// ID was not recorded is identified by its buttons.
func (s *session) cardRepliedTo(m Said) (at messageRef, replied bool) {
	if at, replied = s.sent.findMessage(m.At.Chat, m.ReplyTo); replied {
		return at, replied
	}
	whole := false
	for _, data := range m.Buttons {
		verb, n, _ := strings.Cut(data, ":")
		found, p, live := s.sent.findButton(n)
		x := p.byNumber(found.number)
		if x == nil || !live || verb == verbOpen || found.verb != verb || x.Chat != m.At.Chat || x.Message != "" {
			continue
		}
		at, replied, whole = messageRef{found.key, x.Number, ""}, true, whole || approves(verb)
	}
	if replied {
		s.claimMessage(at.key, at.number, m.ReplyTo, whole)
	}
	return at, replied
}

// isAddressed reports whether a message is for the bot: anything in a private chat; in a group a reply to a card, a
// command, or a text that begins with the bot's name.
func (w *incomingText) isAddressed(replied, ours bool) bool {
	switch {
	case !w.Group:
		return w.Text != "" || w.Other
	case !ours || w.text == "":
		return false
	case replied || w.slash:
		return true
	}
	m := chat.Message{Text: w.text, Bots: w.botNames()}
	word, _ := w.ownCommand()
	return word != "" || m.Command().Kind != chat.NotAddressed
}

// decidesNothing reports whether a reply to a card is no decision, from any author.
func (w *incomingText) decidesNothing(at messageRef) bool {
	kind := chat.Parse(w.text, chat.Context{Reply: true, ID: at.key.ID, Bots: w.botNames()}).Kind
	return kind == chat.Unclear || kind == chat.Question && !strings.HasPrefix(w.text, "?")
}

// handleIndirect handles a text that no person wrote here and now: it decides nothing.
func (w *incomingText) handleIndirect() {
	switch {
	case w.By == "" || w.Group && len(w.chatWorkspaces) == 0:
	case w.Group || len(w.workspaces) == 0:
		w.refuseSender(approval.Key{})
	default:
		w.explain(catalogFor(w.language).Forwarded)
	}
}

// explain answers a text that does nothing, at a limited rate. The last answer announces the silence.
func (w *incomingText) explain(text string) {
	speak, last := w.refusals.count(w.By, w.now())
	if last {
		text += "\n" + catalogFor(w.language).NoMoreAnswers
	}
	if speak {
		w.replyText(text)
	}
}

// refuseSender sends the neutral refusal, at a limited rate.
func (w *incomingText) refuseSender(k approval.Key) {
	if w.auditRefusal(k, w.By) {
		w.replyText(w.refusalText(w.language))
	}
}

// replyText answers the message.
func (w *incomingText) replyText(text string) { w.replyWith(plain(text)) }

// replyWith answers with a rendered message.
func (w *incomingText) replyWith(msg Message) { w.reply(w.At, w.Message, msg) }

// reply sends an answer. It may be lost: the user can ask again.
func (s *session) reply(at Address, to ID, msg Message) {
	if msg.Text() == "" {
		return
	}
	if chat.Units(msg.Text()) > s.maxText() { // it quotes what the user wrote
		msg.Lines = []string{Truncate(msg.Text(), s.maxText())}
	}
	s.outbox.put(at.Chat, job{rank: rankAnswer, lossy: true, do: func(ctx context.Context) error {
		_, err := s.send(ctx, at, msg.follow(to))
		return err
	}}, 0)
}

// handleReply handles a reply to a card or to a prompt.
func (w *incomingText) handleReply(ctx context.Context, at messageRef) {
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
		w.replyText(catalogFor(w.language).Unsure)
		return
	case st.Pending == nil:
		w.replyText(catalogFor(w.language).UnknownRequest)
		return
	}
	name, ok := w.Guard.May(at.key.Workspace, st.Pending, w.person)
	if !ok {
		w.refuseSender(at.key)
		return
	}
	w.person.Name = name // which may stand below the reply
	text := w.text
	switch at.verb {
	case "4", "5", approval.CodeEdit:
		text = at.verb + ": " + text
	case "?":
		text = "? " + strings.TrimLeft(text, "? ")
	}
	if !x.FullyShown && isPending(st.Story) && textApproves(text, st.Pending) {
		w.replyText(w.renderer(w.language).notShown(st.Pending))
		return
	}
	a := cardReply{
		session: w.session, person: w.person, language: w.language, key: at.key, status: st, sha256: p.SHA256,
		workspaces: []string{at.key.Workspace},
	}
	reply, acted := a.submit(ctx, text)
	if acted {
		w.decided = at.key
		w.notePauseTold(ctx, at.key, w.At)
	}
	w.replyText(reply)
}

// textApproves reports whether a text, as a reply to this card, would run an action.
func textApproves(text string, p *approval.Pending) bool {
	if p.Type == approval.TypeQuestion {
		return false // the answers are on the card, or are the user's own words
	}
	c := chat.Message{Text: text, Card: &approval.StoredPending{Pending: p}}.Command()
	return c.Kind == chat.Approve || c.Kind == chat.Menu && c.Code != "3" && c.Code != "5" && c.Code != approval.CodeEdit
}

// handleCommand handles a text that is no reply to a card.
func (w *incomingText) handleCommand(ctx context.Context) {
	if w.handleOwnCommand(ctx) {
		return
	}
	m := chat.Message{
		From: w.person, Via: w.Name, Text: w.text, Workspaces: w.workspaces, Language: w.language, Bots: w.botNames(),
	}
	c := m.Command()
	if c.Kind == chat.Pending {
		w.replyWith(w.pendingList(ctx, w.listRequest(), 0))
		return
	}
	shown := chatViewer{w.Viewer, w.sent, w.At.Chat, w.renderer(w.language).blocked}
	if c.Kind == chat.Approve {
		if p := shown.partlyShown(ctx, w.workspaces, c.ID); p != nil {
			w.replyText(w.renderer(w.language).notShown(p))
			return
		}
	}
	ic := *w.Interceptor
	ic.Viewer = shown
	r := ic.Handle(ctx, m)
	w.log(r.Err)
	if r.Acted {
		w.decided = r.Key
		w.notePauseTold(ctx, r.Key, w.At)
	}
	if r.Ignore && !w.Group {
		t := catalogFor(w.language)
		w.explain(t.NotUnderstood + "\n" + t.Help)
		return
	}
	w.replyText(r.Text)
}

// chatViewer is limited to the pending requests that have a card in one chat: only those can be decided there
// by a short ID.
type chatViewer struct {
	viewer
	sent    *sentIndex
	chat    ID
	blocked func(*approval.Pending) string // see renderer.blocked
}

// Waiting leaves out what has no card in this chat.
func (v chatViewer) Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error) {
	all, err := v.viewer.Waiting(ctx, workspaces)
	return slices.DeleteFunc(all, func(w approval.StoredPending) bool { return v.shownCopy(w) == nil }), err
}

// Find is for late decisions. It leaves out pending requests: a user must not decide one without having seen
// its card.
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
		if !isPending(story) {
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
	return p.find(func(x *sentCopy) bool { return x.Chat == v.chat && x.Message != "" && x.StaleReason == "" })
}

// partlyShown is the one request here that the short ID fits, if its card does not show everything, else nil.
func (v chatViewer) partlyShown(ctx context.Context, workspaces []string, prefix string) *approval.Pending {
	all, err := v.Waiting(ctx, workspaces)
	all = approval.Named(all, prefix)
	if err != nil || len(all) != 1 || v.shownCopy(all[0]).FullyShown && v.blocked(all[0].Pending) == "" {
		return nil
	}
	return all[0].Pending
}
