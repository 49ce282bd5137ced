package telegram

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// listRequest is a user who asked for a list, and where.
type listRequest struct {
	person     approval.Person
	chat       int64
	thread     int
	workspaces []string
	language   string
}

// perPage is the number of lines of a list.
const perPage = 8

// maxListButtons is how many list buttons stay in memory. A button that is dropped, also by a restart, only
// answers that it has expired.
const maxListButtons = 500

// listButton is the action of a list's button.
type listButton struct {
	listRequest
	page   int    // of the pending list
	revoke string // the ID of a grant; "": none
}

type listButtons struct {
	mu      sync.Mutex
	buttons map[string]listButton
	order   []string
}

// add returns the nonce of a new button.
func (c *listButtons) add(what listButton) (nonceOf string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buttons == nil {
		c.buttons = map[string]listButton{}
	}
	n := nonce()
	c.buttons[n], c.order = what, append(c.order, n)
	if len(c.order) > maxListButtons {
		delete(c.buttons, c.order[0])
		c.order = c.order[1:]
	}
	return n
}

func (c *listButtons) find(n string) (listButton, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what, ok := c.buttons[n]
	return what, ok
}

// The verbs of list buttons.
const (
	verbPage   = "page"
	verbRevoke = "revoke"
)

// pendingList is one page of the pending requests, with a button for each card.
func (s *session) pendingList(ctx context.Context, a listRequest, page int) message {
	t := s.renderer(a.language)
	all, err := s.Viewer.Waiting(ctx, a.workspaces)
	if err != nil {
		s.log(err)
		return plainMessage(t.Unsure)
	}
	all = slices.DeleteFunc(all, func(w approval.StoredPending) bool {
		_, ok := s.Guard.May(w.Pending.SourceGroup, w.Pending, a.person)
		return !ok
	})
	if len(all) == 0 {
		return plainMessage(t.NothingWaits)
	}
	pages := (len(all) + perPage - 1) / perPage
	page = min(max(page, 0), pages-1)
	lines := []string{chat.Format(t.WaitingCount, "n", strconv.Itoa(len(all)))}
	var buttons []button
	for _, w := range all[page*perPage : min(len(all), (page+1)*perPage)] {
		lines = append(lines, truncate(t.Line(w.Pending), maxText/perPage-20))
		if n := s.openNonce(w.Key(), a.chat); n != "" {
			buttons = append(buttons, button{w.Pending.ShortID, verbOpen + ":" + n})
		}
	}
	msg := plainMessage(lines...)
	msg.buttons = slices.Collect(slices.Chunk(buttons, 2))
	var turn []button
	for to, arrow := range map[int]string{page - 1: "‹", page + 1: "›"} {
		if to >= 0 && to < pages {
			turn = append(turn, button{arrow + " " + strconv.Itoa(to+1) + "/" + strconv.Itoa(pages), verbPage + ":" + s.listButtons.add(listButton{listRequest: a, page: to})})
		}
	}
	slices.SortFunc(turn, func(a, b button) int { return strings.Compare(a.text, b.text) })
	if len(turn) > 0 {
		msg.buttons = append(msg.buttons, turn)
	}
	return msg
}

// openNonce is the nonce that shows a request's card in a chat; "" if the chat has no copy.
func (s *session) openNonce(k approval.Key, chatID int64) string {
	p := s.sent.record(k)
	if p == nil {
		return ""
	}
	for _, x := range p.Copies {
		if x.Chat == chatID && x.StaleReason == "" {
			return x.Nonces[verbOpen]
		}
	}
	return ""
}

// grantList lists the active grants, with a button for each that revokes it.
func (s *session) grantList(ctx context.Context, a listRequest) message {
	t := s.renderer(a.language)
	if s.Interceptor.Revoker == nil {
		return plainMessage(t.Unavailable)
	}
	all, err := s.Interceptor.Revoker.Remembered(ctx, a.workspaces)
	if err != nil {
		s.log(err)
		return plainMessage(t.Unsure)
	}
	if len(all) == 0 {
		return plainMessage(t.NoGrants)
	}
	more := len(all) - 2*perPage
	if more > 0 {
		all = all[:2*perPage]
	}
	var lines []string
	var buttons []button
	for _, g := range all {
		lines = append(lines, truncate(t.grantLine(g), maxText/(2*perPage)-20))
		buttons = append(buttons, button{"✖ " + approval.ShortID(g.ID), verbRevoke + ":" + s.listButtons.add(listButton{listRequest: a, revoke: g.ID})})
	}
	if more > 0 {
		lines = append(lines, chat.Format(t.AndMore, "n", strconv.Itoa(more)))
	}
	msg := plainMessage(lines...)
	msg.buttons = slices.Collect(slices.Chunk(buttons, 2))
	return msg
}

// grantLine is a grant in one line.
func (p renderer) grantLine(g approval.Grant) string {
	what := g.ActionType
	if g.Kind == approval.GrantTarget {
		what = strings.TrimSpace(g.Capability + " " + g.Target)
	}
	line := chat.Escape(approval.ShortID(g.ID)) + " · " + chat.Escape(g.Workspace) + " · " + p.OneLine(&approval.Pending{}, truncate(what, maxTapAnswer))
	if g.SessionID != "" {
		line += " · " + p.OneSession
	}
	return line + " · " + chat.Format(p.GrantedBy, "by", chat.Escape(truncate(g.By, 100)), "until", p.dateTime(g.ExpiresAt))
}

// handleListButton runs the action of a list's button.
func (t *incomingTap) handleListButton(ctx context.Context, verb string, c listButton) {
	a := c.listRequest
	a.person = t.person
	a.workspaces = slices.DeleteFunc(slices.Clone(a.workspaces), func(ws string) bool {
		_, ok := t.Guard.May(ws, nil, t.person)
		return !ok || !t.serves(ws)
	})
	switch {
	case a.chat != t.chat || len(a.workspaces) == 0:
		t.refuseTap(approval.Key{})
	case verb == verbPage && c.revoke == "":
		t.updateList(func(ctx context.Context) message { return t.pendingList(ctx, a, c.page) })
		t.answer("", false)
	case verb == verbRevoke && c.revoke != "":
		m := chat.Message{From: t.person, Via: Via, Text: "undo " + c.revoke, Workspaces: a.workspaces, Language: a.language}
		r := t.Interceptor.Handle(ctx, m)
		if r.Err != nil {
			t.log(r.Err)
		}
		for _, ws := range a.workspaces {
			k := approval.Key{Workspace: ws, ID: c.revoke}
			if t.sent.record(k) != nil && !t.grantActive(ctx, k) {
				t.markUndone(k)
			}
		}
		t.updateList(func(ctx context.Context) message { return t.grantList(ctx, a) })
		t.notify(r.Text, true)
	default:
		t.answer(catalogFor(t.language).ButtonExpired, true)
	}
}

// updateList renders the tapped list again.
func (t *incomingTap) updateList(draw func(context.Context) message) {
	s, chatID, id := t.session, t.chat, t.message
	s.outbox.put(chatID, job{rank: rankAnswer, lossy: true, do: func(ctx context.Context) error {
		err := s.api.edit(ctx, chatID, id, draw(ctx))
		if messageGone(err) {
			return nil
		}
		return err
	}}, 0)
}

// showCard points a chat to a request's card, or sends it if it is not there.
func (s *session) showCard(k approval.Key, a listRequest) {
	var there int
	err := s.sent.update(k, func(p *sentRecord) error {
		for _, x := range p.Copies {
			if x.Chat != a.chat || x.StaleReason != "" || x.MaybeSent && x.Message == 0 {
				continue
			}
			if there = x.Message; there != 0 || x.Digest == "" || x.CardWanted {
				return errUnchanged // sent, or about to be
			}
			x.CardWanted = true
			return nil
		}
		return errUnchanged
	})
	if err != nil {
		s.log(err)
	}
	if there != 0 {
		s.reply(a.chat, a.thread, there, plainMessage(chat.Format(catalogFor(a.language).CardAbove, "id", approval.ShortID(k.ID))))
	}
	s.touch(k)
}
