package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const (
	digestPrefix = "digest-"
	mostLines    = 20 // of a digest
	maxLine      = 160
	digestOpen   = time.Minute // after its last line it takes no more
)

// digest is one message about many requests, a line each, with a button that brings the card. What it
// says of them it finds anew each time it is drawn; there is none that approves all.
type digest struct {
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"`
	Chat      int64     `json:"chat_id"`
	Thread    int       `json:"thread_id,omitzero"`
	Language  string    `json:"language"`
	Message   int       `json:"message_id,omitzero"`
	Requests  []string  `json:"requests"` // ids, in the order in which they came
	Added     time.Time `json:"added"`    // when the last one did
	Title     string    `json:"title,omitzero"`
	Reminded  bool      `json:"reminded,omitzero"`
	drawn     string    // what it showed last, in this life
}

// digests are those that are not over.
type digests struct {
	mu  sync.Mutex
	all map[string]*digest
}

func digestName(id string) string { return digestPrefix + id + ".json" }

// openDigests reads what a former life left.
func (s *session) openDigests() error {
	names, err := s.Notes.List()
	if err != nil {
		return fmt.Errorf("list digests: %w", err)
	}
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	s.digests.all = map[string]*digest{}
	for _, name := range names {
		if !strings.HasPrefix(name, digestPrefix) {
			continue
		}
		b, err := s.Notes.Get(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		d := &digest{}
		if err == nil {
			err = json.Unmarshal(b, d)
		}
		if err != nil || digestName(d.ID) != name {
			s.log(errors.Join(fmt.Errorf("%s cannot be read, its requests are asked by cards", name), err, s.Notes.Remove(name)))
			continue
		}
		s.digests.all[d.ID] = d
	}
	return nil
}

// digestFor is the digest that takes one more line about this workspace in this place, durably.
func (s *session) digestFor(ws string, to Place, id string) (string, error) {
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	now := s.now().UTC()
	var d *digest
	for _, x := range s.digests.all {
		if x.Workspace == ws && x.Chat == to.Chat && x.Thread == to.Thread && x.Title == "" &&
			len(x.Requests) < mostLines && now.Sub(x.Added) < digestOpen {
			d = x
		}
	}
	if d == nil {
		d = &digest{ID: nonce(), Workspace: ws, Chat: to.Chat, Thread: to.Thread, Language: to.Language}
	}
	next := *d
	next.Requests, next.Added = append(slices.Clone(d.Requests), id), now
	if err := s.keepDigest(&next); err != nil {
		return "", err
	}
	return next.ID, nil
}

// keepDigest wants s.digests.mu.
func (s *session) keepDigest(d *digest) error {
	b, err := json.Marshal(d)
	if err == nil {
		err = s.Notes.Put(digestName(d.ID), b)
	}
	if err != nil {
		return fmt.Errorf("write digest: %w", err)
	}
	s.digests.all[d.ID] = d
	return nil
}

func (s *session) digest(id string) *digest {
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	return s.digests.all[id]
}

// tellDigest has a digest brought into line with its requests.
func (s *session) tellDigest(id string) {
	d := s.digest(id)
	if d == nil {
		return
	}
	s.outbox.put(d.Chat, job{name: digestName(id), rank: rankEdit, do: func(ctx context.Context) error { return s.deliverDigest(ctx, id) }}, 0)
}

func (s *session) deliverDigest(ctx context.Context, id string) error {
	d := s.digest(id)
	if d == nil {
		return nil
	}
	l, open, err := s.drawDigest(ctx, d)
	if err != nil {
		return err
	}
	message := d.Message
	seen := l.text + fmt.Sprint(l.rows)
	switch {
	case seen == d.drawn:
		return nil
	case message == 0 && open == 0:
	case message == 0:
		message, err = s.api.send(ctx, d.Chat, l, how{thread: d.Thread, silent: s.quiet(approval.Key{Workspace: d.Workspace})})
	default:
		err = s.api.edit(ctx, d.Chat, message, l)
	}
	if vanished(err) || troubleOf(err) == refused || troubleOf(err) == unreached && open == 0 {
		s.sent(d.Chat, err)
		return s.dropDigest(d)
	}
	if err != nil {
		return err
	}
	if open == 0 {
		return s.dropDigest(d)
	}
	return s.digestSent(d.ID, message, seen)
}

// digestSent notes that a digest was sent, on the pages of its requests, too.
func (s *session) digestSent(id string, message int, seen string) error {
	s.digests.mu.Lock()
	next := *s.digests.all[id]
	first := next.Message == 0
	next.Message, next.drawn = message, seen
	var err error
	if first {
		err = s.keepDigest(&next)
	} else {
		s.digests.all[id] = &next
	}
	s.digests.mu.Unlock()
	for _, r := range next.Requests {
		k := approval.Key{Workspace: next.Workspace, ID: r}
		if p := s.book.page(k); p == nil || !slices.ContainsFunc(p.Posts, func(x *post) bool { return x.Digest == id && x.SentAt.IsZero() }) {
			continue
		}
		err = errors.Join(err, s.book.note(k, func(p *page) error {
			for _, x := range p.Posts {
				if x.Digest == id && x.SentAt.IsZero() {
					x.SentAt = s.now().UTC()
				}
			}
			return nil
		}))
	}
	return err
}

func (s *session) dropDigest(d *digest) error {
	s.digests.mu.Lock()
	delete(s.digests.all, d.ID)
	s.digests.mu.Unlock()
	return s.Notes.Remove(digestName(d.ID))
}

// drawDigest draws a digest and counts what still waits of it.
func (s *session) drawDigest(ctx context.Context, d *digest) (l look, open int, err error) {
	t := s.painter(d.Language)
	var lines []string
	var faces []face
	for _, id := range d.Requests {
		k := approval.Key{Workspace: d.Workspace, ID: id}
		sc, err := s.scene(ctx, k)
		if err != nil {
			return l, 0, err
		}
		line := chat.Escape(approval.ShortID(id))
		if sc.Pending != nil {
			line = t.Line(sc.Pending)
		}
		if sc.waits() {
			open++
			if n := s.opener(k, d.Chat); n != "" {
				faces = append(faces, face{approval.ShortID(id), verbOpen + ":" + n})
			}
			lines = append(lines, "⏳ "+cut(line, maxLine))
			continue
		}
		how := t.gone
		if o := t.outcome(sc.Story); len(o) > 0 {
			how = o[0]
		}
		lines = append(lines, cut(line, maxLine/2)+" · "+cut(how, maxLine/2))
	}
	title := d.Title
	if title == "" {
		title = say(t.digest, "n", strconv.Itoa(len(d.Requests)), "workspace", chat.Escape(d.Workspace))
	}
	l = plain(append([]string{title}, lines...)...)
	l.rows = slices.Collect(slices.Chunk(faces, 2))
	return l, open, nil
}

// remindOfDigest reminds people of a digest, once.
func (s *session) remindOfDigest(id string) {
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	d := s.digests.all[id]
	if d == nil || d.Reminded || d.Message == 0 {
		return
	}
	next := *d
	next.Reminded = true
	if err := s.keepDigest(&next); err != nil {
		s.log(err)
		return
	}
	s.outbox.put(d.Chat, job{rank: rankNotice, lossy: true, do: func(ctx context.Context) error {
		_, open, err := s.drawDigest(ctx, &next)
		if err != nil || open == 0 {
			return err
		}
		l := plain(say(catalogue(next.Language).waiting, "n", strconv.Itoa(open)))
		_, err = s.api.send(ctx, next.Chat, l, how{thread: next.Thread, replyTo: next.Message, silent: s.quiet(approval.Key{Workspace: next.Workspace})})
		return err
	}}, 0)
}

// refreshDigests has those looked at that were not drawn in this life, or not sent.
func (s *session) refreshDigests() {
	s.digests.mu.Lock()
	var ids []string
	for id, d := range s.digests.all {
		if d.drawn == "" {
			ids = append(ids, id)
		}
	}
	s.digests.mu.Unlock()
	for _, id := range ids {
		s.tellDigest(id)
	}
}
