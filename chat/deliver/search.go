package deliver

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// maxCandidates is how many messages a search looks at.
const maxCandidates = 30

// searches are the searches of this session, and what they have found.
type searches struct {
	mu     sync.Mutex
	active map[string]bool       // by job
	texts  map[messageKey]string // of the messages that were looked at
	sent   map[messageKey]bool   // messages of this session, which are not lost
}

// noteSent remembers a message of this session.
func (f *searches) noteSent(chatID, id ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sent) > 1000 || f.sent == nil {
		f.sent = map[messageKey]bool{}
	}
	f.sent[messageKey{chatID, id}] = true
}

// begin reports whether a search is not active yet, and notes that it is.
func (f *searches) begin(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active[name] {
		return false
	}
	if f.active == nil {
		f.active, f.texts = map[string]bool{}, map[messageKey]string{}
	}
	f.active[name] = true
	return true
}

func (f *searches) end(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.active, name)
}

// lost reports whether a message may exist whose ID is unknown.
func (s *session) lost(x *sentCopy) bool {
	return x.Letter == "" && x.Message == "" && (x.MaybeSent || s.sendUnknown(x))
}

// toSearch reports whether a record has a lost copy that was not searched for.
func (s *session) toSearch(p *sentRecord) bool {
	return s.traits.Disarm != nil && slices.ContainsFunc(p.Copies, func(x *sentCopy) bool { return s.lost(x) && !x.Searched })
}

// replaceLost adds a copy for each lost one in whose chat no newer copy of a settled request is: it shows the outcome,
// and its ID is where the search begins.
func (s *session) replaceLost(k approval.Key, p *sentRecord, st status) error {
	alone := func(p *sentRecord, x *sentCopy) bool {
		return s.lost(x) && !x.Searched && p.find(func(y *sentCopy) bool { return y.Chat == x.Chat && y.Number > x.Number && !s.lost(y) }) == nil
	}
	if s.traits.Disarm == nil || st.Pending == nil || !slices.ContainsFunc(p.Copies, func(x *sentCopy) bool { return alone(p, x) }) {
		return nil
	}
	return s.sent.update(k, func(p *sentRecord) error {
		for _, x := range slices.Clone(p.Copies) {
			if alone(p, x) {
				x.MaybeSent = true
				s.addCopy(p, Place{Address: x.address(), Language: x.Language}, st)
			}
		}
		return nil
	})
}

// sendSettled sends the second copy of a card whose request was settled meanwhile.
func (s *session) sendSettled(ctx context.Context, k approval.Key, x *sentCopy, to phase, msg Message) error {
	id, err := s.send(ctx, x.address(), msg.silent(true))
	if err != nil && ClassOf(err) != Unreachable && !never(err) {
		return err
	}
	saved := s.sent.updateSent(k, changeCopy(x.Number, func(y *sentCopy) {
		y.TwoSteps, y.Phase = false, to
		if err == nil {
			y.Message, y.SentAt, y.ShownHash = id, s.now().UTC(), msg.hash()
		}
	}))
	s.touch(k)
	return saved
}

// search looks for the messages of lost copies: below the copy that replaces them, because a chat's messages have
// ascending numbers. It removes the buttons of each message of the bot that is in no record, until it has found them.
// Buttons of other such messages no longer work: a list's end with the session.
func (s *session) search(k approval.Key, p *sentRecord, st status) {
	if p == nil || !s.toSearch(p) {
		return
	}
	for _, x := range p.Copies {
		newer := s.newerMessage(p, x)
		name := k.String() + " search " + string(x.Chat)
		if !s.lost(x) || x.Searched || newer == "" || !s.searches.begin(name) {
			continue
		}
		c := &candidates{session: s, key: k, name: name, at: x.address(), next: newer.Number(), short: st.label(k), since: p.CreatedAt}
		s.outbox.put(x.Chat, job{name: name, rank: rankEdit, do: c.step}, 0)
	}
}

// newerMessage is the message that shows the request instead of a lost copy, "" if there is none yet.
func (s *session) newerMessage(p *sentRecord, lost *sentCopy) ID {
	for _, x := range p.Copies {
		if x.Chat != lost.Chat || x.Number <= lost.Number {
			continue
		}
		if d := s.digest(x.Digest); x.Message == "" && d != nil {
			return d.Message
		}
		if x.Message != "" {
			return x.Message
		}
	}
	return ""
}

// candidates are the messages that a search looks at, from the newest to older ones.
type candidates struct {
	*session
	key   approval.Key
	name  string
	at    Address
	next  int64 // the last message that was looked at
	tries int
	short string    // the request's short ID
	since time.Time // when the record began
}

// step looks at one message, then queues the next step: other jobs may come between.
func (c *candidates) step(ctx context.Context) error {
	for c.next > 1 && c.tries < maxCandidates {
		id := NumberID(c.next - 1)
		known, older := c.isKnown(id)
		if older {
			break
		}
		if known {
			c.next--
			continue
		}
		text, looked := c.text(id)
		if !looked {
			var err error
			if text, err = c.traits.Disarm(ctx, c.at, id); err != nil {
				return err
			}
			c.keep(id, text)
			c.tries++
		}
		c.next--
		if c.isCard(text) && !c.claim(id) {
			break
		}
		if !looked {
			c.outbox.put(c.at.Chat, job{name: c.name, rank: rankEdit, do: c.step}, 0)
			return nil
		}
	}
	defer c.touch(c.key)
	defer c.searches.end(c.name)
	return c.sent.updateSent(c.key, func(p *sentRecord) error {
		for _, x := range p.Copies {
			x.Searched = x.Searched || x.Chat == c.at.Chat && c.lost(x)
		}
		return nil
	})
}

// isKnown reports whether a message is in a record or of this session, and whether it is a card older than the record.
func (c *candidates) isKnown(id ID) (known, older bool) {
	if at, ok := c.sent.findMessage(c.at.Chat, id); ok {
		_, x := c.sent.findCopy(at)
		return true, x != nil && x.Message == id && x.SentAt.Before(c.since)
	}
	c.digests.mu.Lock()
	defer c.digests.mu.Unlock()
	for _, d := range c.digests.all {
		known = known || d.Chat == c.at.Chat && d.Message == id
	}
	c.searches.mu.Lock()
	defer c.searches.mu.Unlock()
	return known || c.searches.sent[messageKey{c.at.Chat, id}], false
}

func (c *candidates) text(id ID) (text string, looked bool) {
	c.searches.mu.Lock()
	defer c.searches.mu.Unlock()
	text, looked = c.searches.texts[messageKey{c.at.Chat, id}]
	return text, looked
}

func (c *candidates) keep(id ID, text string) {
	c.searches.mu.Lock()
	defer c.searches.mu.Unlock()
	c.searches.texts[messageKey{c.at.Chat, id}] = text
}

// isCard reports whether a text is this request's card. Only the gate begins a line with an arrow.
func (c *candidates) isCard(text string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "→ ") && strings.Contains(line, " "+c.short) {
			return true
		}
	}
	return false
}

// claim gives a found message to the newest lost copy, so that it is edited, and reports whether there may be more. Both
// go from the newest to the oldest, so that the buttons of a message are those of its copy before the edit, too.
func (c *candidates) claim(id ID) (more bool) {
	isLost := func(x *sentCopy) bool { return x.Chat == c.at.Chat && c.lost(x) }
	p := c.sent.record(c.key)
	newest := p.find(isLost)
	if newest == nil {
		return false
	}
	for _, x := range p.Copies {
		if isLost(x) {
			newest = x
		}
	}
	c.claimMessage(c.key, newest.Number, id, false)
	return c.sent.record(c.key).find(isLost) != nil
}
