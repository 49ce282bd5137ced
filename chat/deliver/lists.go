package deliver

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
)

// listRequest is a user who asked for a list, and where.
type listRequest struct {
	person     approval.Person
	at         Address
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
func (s *session) pendingList(ctx context.Context, a listRequest, page int) Message {
	t := s.renderer(a.language)
	all, err := s.decidable(ctx, a)
	if err != nil {
		s.log(err)
		return plain(t.Unsure)
	}
	if len(all) == 0 {
		return plain(t.NothingWaits)
	}
	pages := (len(all) + perPage - 1) / perPage
	page = min(max(page, 0), pages-1)
	lines := []string{chat.Format(t.WaitingCount, "n", strconv.Itoa(len(all)))}
	var shown []listed
	for i, w := range all[page*perPage : min(len(all), (page+1)*perPage)] {
		shown = append(shown, listed{page*perPage + i + 1, w.Pending})
		lines = append(lines, t.openLine(shown[i]))
	}
	msg := plain(lines...)
	msg.Buttons = s.openButtons(t, shown, a.at.Chat)
	var turn []Button
	for to, arrow := range map[int]string{page - 1: "‹", page + 1: "›"} {
		if to >= 0 && to < pages {
			turn = append(turn, Button{arrow + " " + strconv.Itoa(to+1) + "/" + strconv.Itoa(pages), verbPage + ":" + s.listButtons.add(listButton{listRequest: a, page: to})})
		}
	}
	slices.SortFunc(turn, func(a, b Button) int { return strings.Compare(a.Text, b.Text) })
	if len(turn) > 0 {
		msg.Buttons = append(msg.Buttons, turn)
	}
	return msg
}

// decidable lists the requests that the user may decide. Those that are decided and did not end yet are none.
func (s *session) decidable(ctx context.Context, a listRequest) ([]approval.StoredPending, error) {
	all, err := s.Viewer.Waiting(ctx, a.workspaces)
	return slices.DeleteFunc(all, func(w approval.StoredPending) bool {
		_, ok := s.Guard.May(w.Pending.SourceGroup, w.Pending, a.person)
		return !ok || !s.isOpen(w.Key())
	}), err
}

// openNonce is the nonce that shows a request's card in a chat; "" if the chat has no copy.
func (s *session) openNonce(k approval.Key, chatID ID) string {
	x := s.sent.record(k).find(func(x *sentCopy) bool { return x.Chat == chatID && x.StaleReason == "" })
	if x == nil {
		return ""
	}
	return x.Nonces[verbOpen]
}

// grantList lists the active grants, with a button for each that revokes it.
func (s *session) grantList(ctx context.Context, a listRequest) Message {
	t := s.renderer(a.language)
	if s.Interceptor.Revoker == nil {
		return plain(t.Unavailable)
	}
	all, err := s.Interceptor.Revoker.Remembered(ctx, a.workspaces)
	if err != nil {
		s.log(err)
		return plain(t.Unsure)
	}
	if len(all) == 0 {
		return plain(t.NoGrants)
	}
	var lines []string
	var buttons []Button
	for _, g := range all[:min(len(all), 2*perPage)] {
		lines = append(lines, Truncate(t.grantLine(g), t.maxText/(2*perPage)-20))
		buttons = append(buttons, Button{"✖ " + approval.ShortID(g.ID), verbRevoke + ":" + s.listButtons.add(listButton{listRequest: a, revoke: g.ID})})
	}
	if more := len(all) - 2*perPage; more > 0 {
		lines = append(lines, chat.Format(t.AndMore, "n", strconv.Itoa(more)))
	}
	msg := plain(lines...)
	msg.Buttons = slices.Collect(slices.Chunk(buttons, 2))
	return msg
}

// grantLine is a grant in one line.
func (p renderer) grantLine(g grant.Grant) string {
	line := chat.Escape(approval.ShortID(g.ID)) + " · " + p.Grant(&g)
	return line + " · " + chat.Format(p.GrantedBy, "by", chat.Escape(Truncate(g.By, 100)))
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
	case a.at.Chat != t.At.Chat || len(a.workspaces) == 0:
		t.refuseTap(approval.Key{})
	case verb == verbPage && c.revoke == "":
		t.updateList(func(ctx context.Context) Message { return t.pendingList(ctx, a, c.page) })
		t.answer("", false)
	case verb == verbRevoke && c.revoke != "":
		m := chat.Message{From: t.person, Via: t.Name, Text: "undo " + c.revoke, Workspaces: a.workspaces, Language: a.language}
		r := t.Interceptor.Handle(ctx, m)
		t.log(r.Err)
		for _, ws := range a.workspaces {
			k := approval.Key{Workspace: ws, ID: c.revoke}
			if t.sent.record(k) != nil && !t.grantActive(ctx, k) {
				t.markUndone(k)
			}
		}
		t.updateList(func(ctx context.Context) Message { return t.grantList(ctx, a) })
		t.notify(r.Text, true)
	default:
		t.answer(catalogFor(t.language).ButtonExpired, true)
	}
}

// updateList renders the tapped list again.
func (t *incomingTap) updateList(draw func(context.Context) Message) {
	s, at, id := t.session, t.At, t.Message
	s.outbox.put(at.Chat, job{rank: rankAnswer, lossy: true, do: func(ctx context.Context) error {
		err := s.edit(ctx, at, id, draw(ctx))
		if gone(err) {
			return nil
		}
		return err
	}}, 0)
}

// showCard points a chat to a request's card, or sends it if it is not there.
func (s *session) showCard(p *approval.Pending, a listRequest) {
	k := approval.Key{Workspace: p.SourceGroup, ID: p.RequestID}
	var there ID
	err := s.sent.update(k, func(p *sentRecord) error {
		for _, x := range p.Copies {
			if x.Chat != a.at.Chat || x.StaleReason != "" || x.MaybeSent && x.Message == "" {
				continue
			}
			if there = x.Message; there != "" || x.Digest == "" || x.CardWanted {
				return errUnchanged // sent, or about to be
			}
			x.CardWanted = true
			return nil
		}
		return errUnchanged
	})
	s.log(err)
	if there != "" {
		s.reply(a.at, there, plain(chat.Format(catalogFor(a.language).CardAbove, "id", chat.Escape(p.ShortID))))
	}
	s.touch(k)
}
