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

// asker is who wants to see a list, and where.
type asker struct {
	person   approval.Person
	chat     int64
	thread   int
	theirs   []string
	language string
}

// perPage is how many lines a list has.
const perPage = 8

// maxChoices is how many buttons of lists are remembered. Those that are forgotten, by a restart too, only
// say that they are old: no request waits for them.
const maxChoices = 500

// choice is what a button of a list stands for.
type choice struct {
	asker
	page   int    // of pendings
	revoke string // the id of a grant; "": none
}

type choices struct {
	mu    sync.Mutex
	known map[string]choice
	order []string
}

// add makes a button for a choice.
func (c *choices) add(what choice) (nonceOf string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]choice{}
	}
	n := nonce()
	c.known[n], c.order = what, append(c.order, n)
	if len(c.order) > maxChoices {
		delete(c.known, c.order[0])
		c.order = c.order[1:]
	}
	return n
}

func (c *choices) find(n string) (choice, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what, ok := c.known[n]
	return what, ok
}

// The verbs of lists' buttons.
const (
	verbPage   = "page"
	verbRevoke = "revoke"
)

// pendings is one page of what waits, with a button for each that brings its card.
func (s *session) pendings(ctx context.Context, a asker, page int) look {
	t := s.painter(a.language)
	all, err := s.Viewer.Waiting(ctx, a.theirs)
	if err != nil {
		s.log(err)
		return plain(t.unsure)
	}
	all = slices.DeleteFunc(all, func(w approval.Waiting) bool {
		_, ok := s.Guard.May(w.Pending.SourceGroup, w.Pending, a.person)
		return !ok
	})
	if len(all) == 0 {
		return plain(t.nothingWaits)
	}
	pages := (len(all) + perPage - 1) / perPage
	page = min(max(page, 0), pages-1)
	lines := []string{say(t.waiting, "n", strconv.Itoa(len(all)))}
	var faces []face
	for _, w := range all[page*perPage : min(len(all), (page+1)*perPage)] {
		lines = append(lines, cut(t.Line(w.Pending), maxText/perPage-20))
		if n := s.opener(w.Key(), a.chat); n != "" {
			faces = append(faces, face{w.Pending.ShortID, verbOpen + ":" + n})
		}
	}
	l := plain(lines...)
	l.rows = slices.Collect(slices.Chunk(faces, 2))
	var turn []face
	for to, arrow := range map[int]string{page - 1: "‹", page + 1: "›"} {
		if to >= 0 && to < pages {
			turn = append(turn, face{arrow + " " + strconv.Itoa(to+1) + "/" + strconv.Itoa(pages), verbPage + ":" + s.choices.add(choice{asker: a, page: to})})
		}
	}
	slices.SortFunc(turn, func(a, b face) int { return strings.Compare(a.text, b.text) })
	if len(turn) > 0 {
		l.rows = append(l.rows, turn)
	}
	return l
}

// opener is the nonce that brings a request's card to a chat, where it has one there.
func (s *session) opener(k approval.Key, chatID int64) string {
	p := s.book.page(k)
	if p == nil {
		return ""
	}
	for _, x := range p.Posts {
		if x.Chat == chatID && x.Stale == "" {
			return x.Nonces[verbOpen]
		}
	}
	return ""
}

// grants lists what is remembered, with a button for each that takes it back.
func (s *session) grants(ctx context.Context, a asker) look {
	t := s.painter(a.language)
	if s.Interceptor.Revoker == nil {
		return plain(t.notHere)
	}
	all, err := s.Interceptor.Revoker.Remembered(ctx, a.theirs)
	if err != nil {
		s.log(err)
		return plain(t.unsure)
	}
	if len(all) == 0 {
		return plain(t.noGrants)
	}
	more := len(all) - 2*perPage
	if more > 0 {
		all = all[:2*perPage]
	}
	var lines []string
	var faces []face
	for _, g := range all {
		lines = append(lines, cut(t.grant(g), maxText/(2*perPage)-20))
		faces = append(faces, face{"✖ " + approval.ShortID(g.ID), verbRevoke + ":" + s.choices.add(choice{asker: a, revoke: g.ID})})
	}
	if more > 0 {
		lines = append(lines, say(t.more, "n", strconv.Itoa(more)))
	}
	l := plain(lines...)
	l.rows = slices.Collect(slices.Chunk(faces, 2))
	return l
}

// grant is one remembered consent in a line.
func (p painter) grant(g approval.Grant) string {
	what := g.ActionType
	if g.Kind == approval.GrantTarget {
		what = strings.TrimSpace(g.Capability + " " + g.Target)
	}
	line := chat.Escape(approval.ShortID(g.ID)) + " · " + chat.Escape(g.Workspace) + " · " + p.OneLine(&approval.Pending{}, cut(what, maxToast))
	if g.SessionID != "" {
		line += " · " + p.oneSession
	}
	return line + " · " + say(p.grantedBy, "by", chat.Escape(cut(g.By, 100)), "until", p.date(g.ExpiresAt))
}

// choose does what a button of a list says.
func (t *tapped) choose(ctx context.Context, verb string, c choice) {
	a := c.asker
	a.person = t.person
	a.theirs = slices.DeleteFunc(slices.Clone(a.theirs), func(ws string) bool {
		_, ok := t.Guard.May(ws, nil, t.person)
		return !ok || !t.serves(ws)
	})
	switch {
	case a.chat != t.chat || len(a.theirs) == 0:
		t.stranger(approval.Key{})
	case verb == verbPage && c.revoke == "":
		t.redraw(func(ctx context.Context) look { return t.session.pendings(ctx, a, c.page) })
		t.answer("", false)
	case verb == verbRevoke && c.revoke != "":
		m := chat.Message{From: t.person, Via: Via, Text: "undo " + c.revoke, Workspaces: a.theirs, Language: a.language}
		r := t.Interceptor.Handle(ctx, m)
		if r.Err != nil {
			t.log(r.Err)
		}
		for _, ws := range a.theirs {
			k := approval.Key{Workspace: ws, ID: c.revoke}
			if t.book.page(k) != nil && !t.stillRemembered(ctx, k) {
				t.noteUndone(k)
			}
		}
		t.redraw(func(ctx context.Context) look { return t.session.grants(ctx, a) })
		t.tell(r.Text, true)
	default:
		t.answer(catalogue(t.language).old, true)
	}
}

// redraw has the list that was touched drawn anew.
func (t *tapped) redraw(draw func(context.Context) look) {
	s, chatID, id := t.session, t.chat, t.message
	s.outbox.put(chatID, job{rank: rankAnswer, lossy: true, do: func(ctx context.Context) error {
		err := s.api.edit(ctx, chatID, id, draw(ctx))
		if vanished(err) {
			return nil
		}
		return err
	}}, 0)
}

// bring has the card of a request in a chat: by pointing at it where it is there, else by sending it.
func (s *session) bring(k approval.Key, a asker) {
	var there int
	err := s.book.change(k, func(p *page) error {
		for _, x := range p.Posts {
			if x.Chat != a.chat || x.Stale != "" || x.Doubtful && x.Message == 0 {
				continue
			}
			if there = x.Message; there != 0 || x.Digest == "" || x.Opened {
				return errKept // it is there, or about to be
			}
			x.Opened = true
			return nil
		}
		return errKept
	})
	if err != nil {
		s.log(err)
	}
	if there != 0 {
		s.reply(a.chat, a.thread, there, plain(say(catalogue(a.language).here, "id", approval.ShortID(k.ID))))
	}
	s.stir(k)
}
