package email

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// hearing is a mail by somebody who was proved to have written it.
type hearing struct {
	*Channel
	name     string
	mail     *Mail
	sender   string
	key      approval.Key
	note     *note
	card     *asking // the sender's; nil: none was sent
	seen     asking  // what it said when the mail came
	opened   bool    // by its token
	closed   bool    // everybody was told how it ended
	approver approval.Approver
	text     string
	clear    bool
	words    *words
	how      string // to answer this kind of card
}

// weigh judges a mail whose sender is known.
func (c *Channel) weigh(ctx context.Context, name string, m *Mail, sender string) (Taken, error) {
	c.init()
	c.weighing.Lock() // what comes twice at once is seen twice
	defer c.weighing.Unlock()
	r := &hearing{Channel: c, name: name, mail: m, sender: sender}
	if why, err := r.identify(); why != "" || err != nil {
		return Taken{Status: Refused, Key: r.key, Why: why}, err
	}
	defer r.done()
	r.words = catalogue(c.Style(r.approver.Language).Language)
	r.text, r.clear = m.Answer()
	c.state.mu.Lock()
	duplicate := c.state.taken.known(name, r.print())
	c.state.mu.Unlock()
	switch {
	case duplicate:
		return Taken{Status: Duplicate, Key: r.key}, nil
	case !r.opened && r.closed:
		return r.settled(ctx) // "thank you", to the mail that told how it ended
	case !r.opened:
		return r.conclude(Refused, "without the token of a card of its sender's", r.words.wrongToken)
	}
	waiting, err := c.Viewer.Waiting(ctx, []string{r.key.Workspace})
	if err != nil {
		return Taken{}, err
	}
	i := slices.IndexFunc(waiting, func(w approval.Waiting) bool { return w.Key() == r.key })
	if i < 0 {
		return r.settled(ctx)
	}
	return r.decide(ctx, &waiting[i])
}

func (r *hearing) print() string {
	return printOfReply(r.sender, r.key.String(), r.mail.MessageID, r.mail.Text)
}

// identify finds the card that the mail is about: its id stands in the reply
// address, the thread, the subject or the body, the best of these counts, and the
// token that it carries must be one of that card.
func (r *hearing) identify() (why string, err error) {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if err := r.loadAll(); err != nil {
		return "", err
	}
	refs := r.mail.Refs(r.Addressing)
	id, why := r.about(refs)
	if why != "" {
		return why, nil
	}
	keys := r.state.pages.named(id)
	for _, k := range keys {
		n := r.state.pages.notes[k]
		card := n.card(r.sender)
		if card == nil {
			continue
		}
		r.key, r.note, r.card = k, n, card
		if r.opened = slices.ContainsFunc(refs, func(ref Ref) bool { return ref.Token != "" && card.opens(TokenDigest(ref.Token)) }); r.opened {
			break
		}
	}
	switch {
	case r.card != nil:
		r.seen, r.closed = *r.card, !r.note.Closed.IsZero()
	case len(keys) > 0:
		r.key = keys[0]
	}
	if why = r.authorised(); why == "" {
		r.state.heard = r.key
	}
	return why, nil
}

// done is the end of identify's heard.
func (r *hearing) done() {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	r.state.heard = approval.Key{}
	r.wake()
}

// authorised finds the approver. Whether they may decide is asked again by Decide.
func (r *hearing) authorised() (why string) {
	if r.key.ID == "" {
		return "no card of that id was sent"
	}
	for _, p := range r.People(r.key.Workspace) {
		if p.Email != "" && canonical(p.Email) == r.sender {
			r.approver = p
			return ""
		}
	}
	return "its sender is no approver of the workspace"
}

// about is the id of the request that the refs name, the best of them first. Of
// a thread the mail replied to counts, not what came before it; elsewhere two ids
// in one place are one too many.
func (r *hearing) about(refs []Ref) (found, why string) {
	where := ""
	for _, ref := range refs {
		id := r.idOf(ref)
		switch {
		case id == "":
		case where == "":
			found, where = id, ref.Where
		case ref.Where != where || where == InThread:
			return found, ""
		case id != found:
			return "", "several requests are named"
		}
	}
	if found == "" {
		return "", "no card of ours is named"
	}
	return found, ""
}

// idOf is the request of a ref; of a token that we do not know it is none.
func (c *Channel) idOf(ref Ref) string {
	if ref.ID != "" {
		return ref.ID
	}
	k, _ := c.state.pages.opened(ref.Token)
	return k.ID
}

// decide has the answer acted on.
func (r *hearing) decide(ctx context.Context, w *approval.Waiting) (Taken, error) {
	p := w.Pending
	r.how = r.words.howTo
	if p.Type == approval.TypeQuestion {
		r.how = r.words.howToAnswer
	}
	switch {
	case r.note.SHA256 != w.SHA256:
		return r.conclude(Refused, "the request is another than the card shows", r.words.otherRequest)
	case r.mail.Doubt != "":
		return r.unclear(r.mail.Doubt, fill(r.words.doubt, "why", r.mail.Doubt))
	case !r.clear:
		return r.unclear("no clear answer", r.words.unclear)
	}
	m := r.message(w)
	cmd := m.Command()
	if !byMail(p, cmd, r.text) {
		return r.unclear("no answer that counts by mail", r.words.unclear)
	}
	if approves(cmd) {
		switch ceiling := r.ceiling(r.key.Workspace); {
		case !r.seen.Whole:
			return r.conclude(Refused, "the card did not show all of it", fill(r.words.notWhole, "id", p.ShortID))
		case above(p.Reversibility, ceiling):
			return r.conclude(Refused, "above the ceiling", r.words.aboveCeiling(p, ceiling))
		}
	}
	return r.handle(ctx, m, cmd)
}

// message is what the interceptor is told.
func (r *hearing) message(w *approval.Waiting) chat.Message {
	m := chat.Message{
		From: approval.Person{Channel: channelName, ID: r.sender, Name: r.approver.Name}, Via: channelName,
		Text: r.text, Workspaces: r.serves(), Card: w, Language: r.Style(r.approver.Language).Language,
	}
	if w != nil {
		m.Text = fullForm(r.text, w.Pending)
	}
	return m
}

// serves are the workspaces in which the sender is asked.
func (r *hearing) serves() (all []string) {
	for _, ws := range r.Workspaces() {
		if slices.ContainsFunc(r.People(ws), func(p approval.Approver) bool { return canonical(p.Email) == r.sender }) {
			all = append(all, ws)
		}
	}
	return all
}

// handle has a decision made and tells the sender.
func (r *hearing) handle(ctx context.Context, m chat.Message, cmd chat.Command) (Taken, error) {
	ic := *r.Interceptor
	w := &witness{Decider: ic.Decider}
	ic.Decider = w
	said := ic.Handle(ctx, m)
	var refusal *approval.Refusal
	errors.As(w.err, &refusal)
	switch {
	case said.Acted:
		return r.conclude(Decided, "", said.Text)
	case said.Err != nil:
		return Taken{Key: r.key}, said.Err // of the disk: handed in again, it is found decided or is decided then
	case said.Ignore || cmd.Kind == chat.Unclear:
		return r.unclear("unclear", said.Text)
	case refusal != nil && (errors.Is(refusal, approval.ErrDecided) || errors.Is(refusal, approval.ErrTooLate) || errors.Is(refusal, approval.ErrUnknown)):
		return r.late(said.Text)
	case w.err != nil || cmd.Kind == chat.Menu:
		return r.conclude(Refused, "not possible", said.Text)
	}
	return r.conclude(Answered, "", said.Text)
}

// witness remembers why nothing was decided.
type witness struct {
	chat.Decider
	err error
}

// Decide implements chat.Decider.
func (w *witness) Decide(ctx context.Context, a approval.DecisionInput) (d *approval.Decision, err error) {
	d, err = w.Decider.Decide(ctx, a)
	w.err = err
	return d, err
}

// settled is for a reply to a card that waits no longer. Consent can still be
// taken back by one.
func (r *hearing) settled(ctx context.Context) (Taken, error) {
	if cmd := chat.Parse(r.text, chat.Context{}); r.opened && r.clear && cmd.Kind == chat.Undo && strings.HasPrefix(r.key.ID, cmd.ID) {
		said := r.Interceptor.Handle(ctx, r.message(nil))
		if said.Err != nil {
			return Taken{Key: r.key}, said.Err
		}
		return r.conclude(Answered, "undo", said.Text)
	}
	rec, err := r.Records.Record(ctx, r.key)
	if err != nil {
		return Taken{Key: r.key}, err
	}
	if rec == nil {
		return r.late(r.words.gone)
	}
	outcome := r.Style(r.approver.Language).Outcome(rec)
	if r.opened && r.unnoted(rec) {
		return r.conclude(Decided, "in an earlier life", outcome)
	}
	return r.late(fill(r.words.late, "outcome", outcome))
}

// unnoted says whether a mail of the sender's has decided that we have no note of:
// it is this one, then, for what was not noted is handed in again first.
func (r *hearing) unnoted(rec *approval.Record) bool {
	resp, err := approval.ParseResponse(rec.Response)
	if err != nil || r.seen.Used || r.seen.Late {
		return false
	}
	by, via := resp.Decision.By, resp.Decision.Via
	return by != nil && via != nil && *by == r.approver.Name && *via == channelName
}

// late tells once that it is too late.
func (r *hearing) late(text string) (Taken, error) {
	if r.seen.Late {
		text = ""
	}
	return r.conclude(Late, "", text)
}

// unclear answers with the menu, a few times.
func (r *hearing) unclear(why, text string) (Taken, error) {
	if r.seen.Unclear >= maxUnclear {
		return r.conclude(Unclear, why, "")
	}
	return r.conclude(Unclear, why, text+"\n\n"+r.how)
}

// conclude makes durable what became of the mail and what is answered; "" is
// nothing.
func (r *hearing) conclude(s Status, why, text string) (Taken, error) {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	now := r.now()
	t := &taken{
		Version: 1, Name: r.name, Print: r.print(), Sender: r.sender, At: now.UTC(), Status: s,
		Workspace: r.key.Workspace, ID: r.key.ID,
	}
	if r.note != nil {
		t.SHA256 = r.note.SHA256
	}
	if text != "" && r.state.taken.answered(r.sender, now.Add(-time.Hour)) < answersAnHour {
		t.Answer = r.answer(text)
	}
	// The mail first: a card that says what its person heard, without the answer
	// that says it, would leave them unanswered. A start brings the card up to it.
	if err := r.keepTaken(t); err != nil {
		return Taken{Key: r.key}, err
	}
	if err := r.mark(s); err != nil {
		r.Log.Error().Err(err).Msg("email")
	}
	r.wake()
	return Taken{Status: s, Key: r.key, Why: why}, nil
}

// mark notes on the card what its person did and heard.
func (r *hearing) mark(s Status) error {
	if r.card == nil || r.state.pages.notes[r.key] != r.note {
		return nil // none, or it was asked anew meanwhile
	}
	was := *r.card
	r.card.Used = was.Used || s == Decided
	r.card.Late = was.Late || s == Late
	if s == Unclear {
		r.card.Unclear++
	}
	if was.Used == r.card.Used && was.Late == r.card.Late && was.Unclear == r.card.Unclear {
		return nil
	}
	return r.save(r.key, r.note)
}

func (r *hearing) answer(text string) *answerTo {
	a := &answerTo{Text: text, MessageID: r.messageID(r.key.ID), InReplyTo: fitIDs([]string{r.mail.MessageID}), Open: r.opened}
	a.References = strings.Fields(fitIDs(append(slices.Clone(r.mail.References), r.mail.MessageID)))
	a.Language = r.approver.Language
	if r.card != nil {
		a.Subject = r.card.Subject
	}
	return a
}

// fitIDs are the last of some message ids that may stand in a header of ours.
func fitIDs(ids []string) string {
	var fit []string
	for _, id := range ids[max(0, len(ids)-10):] {
		if id != "" && len(id) <= 250 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
			fit = append(fit, id)
		}
	}
	return strings.Join(fit, " ")
}
