package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const (
	digestPrefix  = "digest-"
	maxLines      = 20 // of a digest
	maxLineLength = 160
	digestWindow  = time.Minute // a digest takes no line this long after its last one
)

// digest is one message about many requests: a line and a button for each. It is rendered from their current
// status. Two buttons are about all of them: one denies, one pauses the workspace. No button approves all.
type digest struct {
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"`
	Chat      ID        `json:"chat_id"`
	Thread    ID        `json:"thread_id,omitzero"`
	Language  string    `json:"language"`
	Message   ID        `json:"message_id,omitzero"`
	Requests  []string  `json:"requests"` // IDs, oldest first
	Added     time.Time `json:"added"`    // when the last ID was added
	Title     string    `json:"title,omitzero"`
	rendered  string    // last text sent in this session
	Views     []view    `json:"views,omitempty"` // the last ones, oldest first
}

// digests are the unfinished digests.
type digests struct {
	mu  sync.Mutex
	all map[string]*digest
}

func (d *digest) address() Address { return Address{d.Chat, d.Thread} }

func digestName(id string) string { return digestPrefix + id + ".json" }

// loadDigests reads the digests of earlier sessions.
func (s *session) loadDigests() error {
	names, err := s.State.List()
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
		d := &digest{}
		if err := s.load(name, d); err != nil || digestName(d.ID) != name {
			s.log(errors.Join(fmt.Errorf("unreadable digest %s removed, its requests get cards", name), err, s.State.Remove(name)))
			continue
		}
		s.digests.all[d.ID] = d
	}
	return nil
}

// digestFor adds a request to a digest of this workspace and place, durably, and returns the digest's ID.
func (s *session) digestFor(ws string, to Place, id string) (string, error) {
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	now := s.now().UTC()
	var d *digest
	for _, x := range s.digests.all {
		if x.Workspace == ws && x.address() == to.Address && x.Title == "" &&
			len(x.Requests) < maxLines && now.Sub(x.Added) < digestWindow {
			d = x
		}
	}
	if d == nil {
		d = &digest{ID: nonce(), Workspace: ws, Chat: to.Chat, Thread: to.Thread, Language: to.Language}
	}
	next := *d
	next.Requests, next.Added = append(slices.Clone(d.Requests), id), now
	if err := s.saveDigest(&next); err != nil {
		return "", err
	}
	return next.ID, nil
}

// saveDigest needs s.digests.mu.
func (s *session) saveDigest(d *digest) error {
	if err := s.save(digestName(d.ID), d); err != nil {
		return err
	}
	s.digests.all[d.ID] = d
	return nil
}

func (s *session) digest(id string) *digest {
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	return s.digests.all[id]
}

// queueDigest queues a job that syncs a digest with its requests.
func (s *session) queueDigest(id string) {
	if d := s.digest(id); d != nil {
		s.putDigest(d)
	}
}

func (s *session) putDigest(d *digest) {
	deliver := func(ctx context.Context) error { return s.deliverDigest(ctx, d.ID) }
	s.outbox.put(d.Chat, job{name: digestName(d.ID), rank: rankEdit, do: deliver}, 0)
}

func (s *session) deliverDigest(ctx context.Context, id string) error {
	d := s.digest(id)
	if d == nil {
		return nil
	}
	msg, shown, err := s.renderDigest(ctx, d)
	if err != nil {
		return err
	}
	open := len(shown)
	if open > 0 {
		buttons, err := s.digestButtons(d, shown)
		if err != nil {
			return err
		}
		msg.Buttons = append(msg.Buttons, buttons)
	}
	message := d.Message
	seen := msg.Text() + fmt.Sprint(msg.Buttons)
	switch {
	case seen == d.rendered:
		return nil
	case message == "" && open == 0:
	case message == "":
		message, err = s.send(ctx, d.address(), msg.silent(s.isQuiet(approval.Key{Workspace: d.Workspace})))
	default:
		err = s.edit(ctx, d.address(), message, msg)
	}
	if never(err) || err != nil && ClassOf(err) == Unreachable && open == 0 {
		s.jobFinished(d.Chat, err)
		return s.removeDigest(d)
	}
	if err != nil {
		return err
	}
	if open == 0 {
		return s.removeDigest(d)
	}
	return s.markDigestSent(d, message, seen)
}

// markDigestSent records that a digest was sent, in the records of the requests that it showed as well. A request
// that joined it meanwhile is not one of them.
func (s *session) markDigestSent(shown *digest, message ID, seen string) error {
	id := shown.ID
	s.digests.mu.Lock()
	next := *s.digests.all[id]
	first := next.Message == ""
	next.Message, next.rendered = message, seen
	var err error
	if first {
		err = s.saveDigest(&next)
	} else {
		s.digests.all[id] = &next
	}
	s.digests.mu.Unlock()
	for _, r := range shown.Requests {
		k := approval.Key{Workspace: shown.Workspace, ID: r}
		err = errors.Join(err, s.sent.updateSent(k, func(p *sentRecord) error {
			result := errUnchanged
			for _, x := range p.Copies {
				if x.Digest == id && x.SentAt.IsZero() {
					x.SentAt, result = s.now().UTC(), nil
				}
			}
			return result
		}))
	}
	return err
}

func (s *session) removeDigest(d *digest) error {
	s.digests.mu.Lock()
	delete(s.digests.all, d.ID)
	s.digests.mu.Unlock()
	return s.State.Remove(digestName(d.ID))
}

// renderDigest renders a digest. shown are the digests of its pending requests, by ID.
func (s *session) renderDigest(ctx context.Context, d *digest) (msg Message, shown map[string]string, err error) {
	t := s.renderer(d.Language)
	shown = map[string]string{}
	var lines []string
	var open []listed
	for i, id := range d.Requests {
		k := approval.Key{Workspace: d.Workspace, ID: id}
		st, err := s.status(ctx, k)
		if err != nil {
			return msg, nil, err
		}
		if isPending(st.Story) {
			shown[id] = st.SHA256
			open = append(open, listed{i + 1, st.Pending})
			lines = append(lines, t.openLine(open[len(open)-1]))
			continue
		}
		line := chat.Escape(st.label(k))
		if st.Pending != nil {
			line += " · " + t.VerbAndObject(st.Pending)
		}
		outcome := t.UnknownRequest
		if o := t.outcomeLines(st.Story); len(o) > 0 {
			outcome = o[0]
		}
		lines = append(lines, strconv.Itoa(i+1)+" · "+Truncate(line, maxLineLength/2)+" · "+Truncate(outcome, maxLineLength/2))
	}
	title := d.Title
	if title == "" {
		title = chat.Format(t.DigestTitle, "open", strconv.Itoa(len(shown)), "n", strconv.Itoa(len(d.Requests)), "workspace", chat.Escape(d.Workspace))
	}
	msg = plain(append([]string{title}, lines...)...)
	msg.Buttons = s.openButtons(t, open, d.Chat)
	return msg, shown, nil
}

// listed is a pending request in a list. Its line and its button have its number.
type listed struct {
	number int
	*approval.Pending
}

func (p renderer) openLine(w listed) string {
	return Truncate(strconv.Itoa(w.number)+" ⏳ "+p.Line(w.Pending), min(maxLineLength, p.maxText/(maxLines+2)))
}

// openButtons are the buttons that show the cards of pending requests, each in a row.
func (s *session) openButtons(t renderer, all []listed, chatID ID) (rows [][]Button) {
	var pending []*approval.Pending
	for _, w := range all {
		pending = append(pending, w.Pending)
	}
	for i, label := range t.Labels(pending) {
		w := all[i]
		if o := s.openNonce(approval.Key{Workspace: w.SourceGroup, ID: w.RequestID}, chatID); o != "" {
			rows = append(rows, []Button{{Truncate(strconv.Itoa(w.number)+" · "+label, maxOptionText), verbOpen + ":" + o}})
		}
	}
	return rows
}

// refreshDigests queues the digests that were not rendered or sent in this session.
func (s *session) refreshDigests() {
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	for _, d := range s.digests.all {
		if d.rendered == "" {
			s.putDigest(d)
		}
	}
}
