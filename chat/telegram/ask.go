package telegram

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// maxDoubtful is how many cards that may have been sent are remembered for one place.
const maxDoubtful = 5

// ask has a card of a request that waits in every place of its workspace. The page that names their
// buttons is durable before anything is sent.
func (s *session) ask(ws Workspace, k approval.Key, sc scene) error {
	ws.Places = placesFor(ws.Places, sc.Pending)
	if p := s.book.page(k); p == nil || !s.complete(p, ws, sc) {
		err := s.book.change(k, func(p *page) error { return s.arrange(p, ws, k, sc) })
		if err != nil {
			return err
		}
	}
	p := s.book.page(k)
	for _, x := range p.Posts {
		if due(p, x, sc) {
			s.work(k, x, 0)
		}
		if x.Digest != "" && x.SentAt.IsZero() {
			s.tellDigest(x.Digest)
		}
	}
	return s.nudge(k, p, sc)
}

// placesFor leaves out the private chats of people whom a request is not for.
func placesFor(all []Place, p *approval.Pending) []Place {
	return slices.DeleteFunc(slices.Clone(all), func(to Place) bool {
		return p.Principal != "" && to.Person != "" && to.Person != p.Principal
	})
}

// complete says whether a page has all that a request which waits needs, and nothing else.
func (s *session) complete(p *page, ws Workspace, sc scene) bool {
	if p.SHA256 != sc.SHA256 {
		return false
	}
	for _, to := range ws.Places {
		if x := p.at(to); x == nil || s.left(x) || s.lostDigest(x) {
			return false
		}
	}
	for _, x := range p.Posts {
		if x.Stale == "" && !slices.ContainsFunc(ws.Places, x.in) {
			return false
		}
	}
	return true
}

func (x *post) in(to Place) bool { return x.Chat == to.Chat && x.Thread == to.Thread }

// left says whether a former life left it open whether this card was sent.
func (s *session) left(x *post) bool {
	return x.Message == 0 && x.SentAt.IsZero() && x.Life != s.life && (x.Digest == "" || x.Opened)
}

// lostDigest says whether the digest is gone in which this card was a line: then it is a card.
func (s *session) lostDigest(x *post) bool {
	return x.Digest != "" && !x.Opened && s.digest(x.Digest) == nil
}

// arrange brings a page into line with the places of its workspace. In a flood, what is new becomes a line
// of a digest.
func (s *session) arrange(p *page, ws Workspace, k approval.Key, sc scene) error {
	if p.SHA256 != sc.SHA256 {
		for _, x := range p.Posts {
			x.Stale = staleReplaced
		}
		p.SHA256, p.Began, p.Recalled, p.Reminded = sc.SHA256, s.now().UTC(), time.Time{}, false
	}
	for _, x := range p.Posts {
		if x.Stale == "" && !slices.ContainsFunc(ws.Places, x.in) {
			x.Stale = staleMoved
		}
	}
	for _, to := range ws.Places {
		if to.Language == "" {
			to.Language = ws.Language
		}
		x := p.at(to)
		if x != nil && s.left(x) {
			x.Doubtful = true
			x = nil
		}
		switch {
		case x == nil:
			x = s.add(p, to, sc)
			s.atNight(ws, k)
			if !s.flood.rises(ws.Name, to, s.now()) {
				continue
			}
			var err error
			if x.Digest, err = s.digestFor(ws.Name, to, k.ID); err != nil {
				return err
			}
		case s.lostDigest(x):
			x.Opened = true
		}
	}
	return nil
}

// add puts a card on the page that is to be sent, and forgets the oldest of many that may have been.
func (s *session) add(p *page, to Place, sc scene) *post {
	doubts := 0
	for _, x := range slices.Backward(p.Posts) {
		if x.in(to) && x.Doubtful && x.Message == 0 {
			if doubts++; doubts > maxDoubtful {
				p.drop(x.N)
			}
		}
	}
	return p.add(s.life, to, verbs(sc.Pending))
}

// due says whether something is to be done about a card: cheaply, without drawing it.
func due(p *page, x *post, sc scene) bool {
	switch {
	case x.Stale != "":
		return true
	case !sc.waits():
		to := sc.target(p, x)
		return x.Phase != to && (x.Message != 0 || to == over)
	case x.Doubtful && x.Message == 0, x.Digest != "" && !x.Opened:
		return false
	case x.Message == 0, x.Phase == unsent:
		return true
	}
	return x.Phase == partial && (x.Wanted || x.Whole)
}

// work has a card looked at in its chat's turn.
func (s *session) work(k approval.Key, x *post, after time.Duration) {
	rank, n := rankEdit, x.N
	if x.Message == 0 || x.Wanted {
		rank = rankCard
	}
	s.outbox.put(x.Chat, job{
		name: k.String() + " " + strconv.Itoa(n), rank: rank,
		do: func(ctx context.Context) error { return s.deliver(ctx, k, n) },
	}, after)
}

// deliver brings one card into line with what became of its request, in one step after the other.
func (s *session) deliver(ctx context.Context, k approval.Key, n int) error {
	for range 10 { // more steps than there are
		sc, err := s.scene(ctx, k)
		if err != nil {
			return fmt.Errorf("look at %s: %w", k, err)
		}
		p := s.book.page(k)
		x := p.post(n)
		if x == nil || !due(p, x, sc) {
			return nil
		}
		if x.Stale != "" || !sc.waits() {
			err = s.finish(ctx, k, x, sc)
		} else {
			err = s.show(ctx, k, x, sc)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// show makes the next step towards a card with all its buttons.
func (s *session) show(ctx context.Context, k approval.Key, x *post, sc scene) error {
	switch {
	case x.Message == 0:
		return s.post(ctx, k, x, sc)
	case x.Phase == partial && x.Wanted && !x.Whole:
		return s.showAll(ctx, k, x, sc)
	}
	l := s.painter(x.Language).card(sc.Pending, x, x.Whole)
	err := s.api.edit(ctx, x.Chat, x.Message, l)
	if err != nil && !vanished(err) {
		return err
	}
	return s.book.note(k, func(p *page) error {
		y := p.post(x.N)
		if err != nil { // somebody deleted it: it is asked anew
			p.drop(x.N)
			return nil
		}
		y.Whole, y.Shown = y.Whole || l.all, l.digest()
		y.Phase = phaseOf(y)
		return nil
	})
}

func phaseOf(x *post) phase {
	if x.Whole {
		return asked
	}
	return partial
}

// post sends a card. Where nobody can say whether it was sent, another one with other buttons is sent in
// its place, and both are understood.
func (s *session) post(ctx context.Context, k approval.Key, x *post, sc scene) error {
	l := s.painter(x.Language).card(sc.Pending, x, false)
	id, err := s.api.send(ctx, x.Chat, l, how{thread: x.Thread, silent: s.quiet(k)})
	if troubleOf(err) == doubtful && ctx.Err() == nil {
		return s.doubt(k, x, sc, err)
	}
	if err != nil {
		return err
	}
	return s.book.note(k, func(p *page) error {
		y := p.post(x.N)
		if y == nil {
			return errKept
		}
		y.Message, y.SentAt, y.Whole, y.Shown = id, s.now().UTC(), l.all, l.digest()
		y.Phase = phaseOf(y)
		return nil
	})
}

func (s *session) doubt(k approval.Key, x *post, sc scene, why error) error {
	var next *post
	tries := 0
	err := s.book.note(k, func(p *page) error {
		y := p.post(x.N)
		if y == nil || y.Message != 0 {
			return errKept // somebody tapped on it: it was sent
		}
		y.Doubtful = true
		for _, z := range p.Posts {
			if z.Doubtful && z.Chat == x.Chat {
				tries++
			}
		}
		next = s.add(p, Place{Chat: x.Chat, Thread: x.Thread, Language: x.Language}, sc)
		return nil
	})
	s.sent(x.Chat, why)
	if next != nil {
		s.work(k, next, s.outbox.retry(tries-1, why))
	}
	return err
}

// showAll sends the whole card as a file. The buttons come when it is durable here that it was sent.
func (s *session) showAll(ctx context.Context, k approval.Key, x *post, sc scene) error {
	p := s.painter(x.Language)
	short := approval.ShortID(k.ID)
	id, err := s.api.document(ctx, x.Chat, short+".txt", p.Card(sc.Pending).String()+"\n",
		plain(say(p.document, "id", short)), how{thread: x.Thread, replyTo: x.Message, silent: true})
	if err != nil {
		return err
	}
	return s.book.change(k, func(p *page) error {
		y := p.post(x.N)
		if y == nil {
			return errKept
		}
		y.Whole, y.Document = true, id
		return nil
	})
}

// quiet says whether cards of this workspace come without a sound at the moment.
func (s *session) quiet(k approval.Key) bool {
	ws, ok := s.workspace(k.Workspace)
	return ok && ws.Quiet.Covers(s.now())
}
