package telegram

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

const (
	// undoFor is how long the card of what is remembered from then on can take it back.
	undoFor = 24 * time.Hour
	// outcomePatience is how long an edit waits for the outcome, so that it can tell both.
	outcomePatience = time.Second
	// orphanFor is how long a settled request's page is kept for a card that was perhaps sent, and of which
	// only a tap can tell where it stands.
	orphanFor = 7 * 24 * time.Hour
	// maxOrphans is how many pages are kept for that.
	maxOrphans = 500
)

// scene is a request's story as its cards tell it.
type scene struct {
	Story
	undo bool // what was decided is remembered, and may be taken back on the card
}

// scene finds out what became of a request.
func (s *session) scene(ctx context.Context, k approval.Key) (scene, error) {
	st, err := s.Viewer.Story(ctx, k)
	if err != nil {
		return scene{}, err
	}
	sc := scene{Story: st}
	if d := st.Decision; d != nil && d.Verdict == approval.Approved && st.Record != nil && st.Pending != nil && s.Interceptor.Revoker != nil {
		sc.undo = s.now().Before(d.DecidedAt.Add(undoFor)) && s.Interceptor.Revoker.Given(st.Pending, d) != nil
	}
	return sc, nil
}

// waits says whether somebody is still to decide.
func (st Story) waits() bool {
	return st.SHA256 != "" && st.Pending != nil && st.Decision == nil && st.Record == nil
}

// target is what the card of a request that waits no more is to show.
func (sc scene) target(p *page, x *post) phase {
	switch {
	case sc.Record == nil && sc.Decision != nil:
		return decided
	case sc.undo && !p.Undone && x.Message != 0 && x.Nonces[verbUndo] != "":
		return undoing
	}
	return over
}

// settle has the cards of a request that waits no more say what became of it.
func (s *session) settle(k approval.Key, p *page, sc scene) error {
	var after time.Duration
	if sc.target(p, &post{}) == decided {
		after = outcomePatience
	}
	for _, x := range p.Posts {
		if due(p, x, sc) {
			s.work(k, x, after)
		}
		if x.Digest != "" {
			s.tellDigest(x.Digest)
		}
	}
	if p.over() && !s.lingers(p) {
		return s.book.remove(k)
	}
	return nil
}

// over says whether there is nothing left to say on any card.
func (p *page) over() bool {
	return !slices.ContainsFunc(p.Posts, func(x *post) bool { return x.Phase != over })
}

// lingers says whether a page on which all is said stays for a card that may stand somewhere with its
// buttons: whoever taps on it, in a later life of the gate, too, is to hear how it ended.
func (s *session) lingers(p *page) bool {
	lost := func(x *post) bool { return x.Message == 0 && (x.Doubtful || s.left(x)) }
	return s.now().Before(p.Began.Add(orphanFor)) && p.over() && slices.ContainsFunc(p.Posts, lost)
}

// thin tears out the oldest of many pages that linger; given is when each began.
func (s *session) thin(began map[approval.Key]time.Time) {
	if len(began) <= maxOrphans {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(began), func(a, b approval.Key) int { return began[a].Compare(began[b]) })
	for _, k := range oldest[:len(oldest)-maxOrphans] {
		s.told(k, s.book.remove(k))
	}
}

// finish has one card say that it is over, or what came of it so far. One that cannot be changed any more
// is left as it is: its buttons do nothing.
func (s *session) finish(ctx context.Context, k approval.Key, x *post, sc scene) error {
	p := s.book.page(k)
	if p == nil {
		return nil
	}
	to := sc.target(p, x)
	if x.Stale != "" {
		to = over
	}
	shown := x.Shown
	if l := s.last(k, p, x, sc); x.Message != 0 && l.digest() != shown {
		shown = l.digest()
		err := s.api.edit(ctx, x.Chat, x.Message, l)
		switch t := troubleOf(err); {
		case err == nil:
		case t == unreached, t == refused:
			to = over
			s.sent(x.Chat, err)
		default:
			return err
		}
	}
	err := s.book.note(k, func(p *page) error {
		y := p.post(x.N)
		switch {
		case y == nil:
			return errKept
		case y.Stale != "":
			p.drop(x.N)
		default:
			y.Phase, y.Shown = to, shown
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p = s.book.page(k); p != nil && !sc.waits() && p.over() && !s.lingers(p) {
		return s.book.remove(k)
	}
	return nil
}

// last is what a card shows that can decide nothing any more.
func (s *session) last(k approval.Key, p *page, x *post, sc scene) look {
	t := s.painter(x.Language)
	if x.Stale != "" {
		why := t.replaced
		if x.Stale == staleMoved {
			why = t.elsewhere
		}
		return t.withdrawn(approval.ShortID(k.ID), why)
	}
	return t.ended(sc, k, p, x)
}
