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

// hearing is an email whose sender is proved.
type hearing struct {
	*Channel
	name     string
	mail     *Mail
	sender   string
	key      approval.Key
	note     *note
	card     *asking // the sender's card; nil: none was sent
	seen     asking  // the sender's card when the email came
	opened   bool    // the email has a token of the card
	closed   bool    // every approver got the outcome
	approver approval.Approver
	text     string
	clear    bool
	words    *words
	how      string // how to answer this kind of card
}

// weigh handles an email whose sender is proved.
func (c *Channel) weigh(ctx context.Context, name string, m *Mail, sender string) (Taken, error) {
	c.init()
	c.weighing.Lock() // two deliveries of one email at once: the second sees the first
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
		return r.settled(ctx) // for example "thank you", in reply to the outcome
	case !r.opened:
		return r.conclude(Refused, "no token of the sender's card", r.words.wrongToken)
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

// identify finds the card that the email answers. The id is in the reply address, the
// thread, the subject or the body; the first of these counts. The token must belong
// to that card.
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

// done releases the key that identify set, and wakes Run.
func (r *hearing) done() {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	r.state.heard = approval.Key{}
	r.wake()
}

// authorised finds the approver. Decide checks the permission again.
func (r *hearing) authorised() (why string) {
	if r.key.ID == "" {
		return "no card with that id was sent"
	}
	for _, p := range r.People(r.key.Workspace) {
		if p.Email != "" && canonical(p.Email) == r.sender {
			r.approver = p
			return ""
		}
	}
	return "the sender is not an approver of the workspace"
}

// about returns the id of the request that the refs name, from the best place. In a
// thread the message replied to counts, not older ones. In any other place two
// different ids are an error.
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
			return "", "more than one request is named"
		}
	}
	if found == "" {
		return "", "no card is named"
	}
	return found, ""
}

// idOf returns the request of a ref; "" if only an unknown token is given.
func (c *Channel) idOf(ref Ref) string {
	if ref.ID != "" {
		return ref.ID
	}
	k, _ := c.state.pages.opened(ref.Token)
	return k.ID
}

// decide applies the answer in the email.
func (r *hearing) decide(ctx context.Context, w *approval.Waiting) (Taken, error) {
	p := w.Pending
	r.how = r.words.howTo
	if p.Type == approval.TypeQuestion {
		r.how = r.words.howToAnswer
	}
	switch {
	case r.note.SHA256 != w.SHA256:
		return r.conclude(Refused, "the request changed since the card", r.words.otherRequest)
	case r.mail.Doubt != "":
		return r.unclear(r.mail.Doubt, fill(r.words.doubt, "why", r.mail.Doubt))
	case !r.clear:
		return r.unclear("no clear answer", r.words.unclear)
	}
	m := r.message(w)
	cmd := m.Command()
	if !byMail(p, cmd, r.text) {
		return r.unclear("answer not valid by email", r.words.unclear)
	}
	if approves(cmd) {
		switch ceiling := r.ceiling(r.key.Workspace); {
		case !r.seen.Whole:
			return r.conclude(Refused, "the card did not show the complete request", fill(r.words.notWhole, "id", p.ShortID))
		case above(p.Reversibility, ceiling):
			return r.conclude(Refused, "above the ceiling", r.words.aboveCeiling(p, ceiling))
		}
	}
	return r.handle(ctx, m, cmd)
}

// message is the input for the interceptor.
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

// serves lists the workspaces whose approvers include the sender.
func (r *hearing) serves() (all []string) {
	for _, ws := range r.Workspaces() {
		if slices.ContainsFunc(r.People(ws), func(p approval.Approver) bool { return canonical(p.Email) == r.sender }) {
			all = append(all, ws)
		}
	}
	return all
}

// handle executes the command and answers the sender.
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
		return Taken{Key: r.key}, said.Err // a disk error: the retry decides, or finds the decision
	case said.Ignore || cmd.Kind == chat.Unclear:
		return r.unclear("unclear", said.Text)
	case refusal != nil && (errors.Is(refusal, approval.ErrDecided) || errors.Is(refusal, approval.ErrTooLate) || errors.Is(refusal, approval.ErrUnknown)):
		return r.late(said.Text)
	case w.err != nil || cmd.Kind == chat.Menu:
		return r.conclude(Refused, "not possible", said.Text)
	}
	return r.conclude(Answered, "", said.Text)
}

// witness keeps the error of Decide.
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

// settled handles a reply to a card that is not pending any more. Such a reply can
// still undo a grant.
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
		return r.conclude(Decided, "decided before a restart", outcome)
	}
	return r.late(fill(r.words.late, "outcome", outcome))
}

// unnoted says whether the sender decided by email and we have no record of the
// reply. Then it was this reply, because an unrecorded one is retried first.
func (r *hearing) unnoted(rec *approval.Record) bool {
	resp, err := approval.ParseResponse(rec.Response)
	if err != nil || r.seen.Used || r.seen.Late {
		return false
	}
	by, via := resp.Decision.By, resp.Decision.Via
	return by != nil && via != nil && *by == r.approver.Name && *via == channelName
}

// late answers "too late", once for each card.
func (r *hearing) late(text string) (Taken, error) {
	if r.seen.Late {
		text = ""
	}
	return r.conclude(Late, "", text)
}

// unclear answers with the menu, up to maxUnclear times for each card.
func (r *hearing) unclear(why, text string) (Taken, error) {
	if r.seen.Unclear >= maxUnclear {
		return r.conclude(Unclear, why, "")
	}
	return r.conclude(Unclear, why, text+"\n\n"+r.how)
}

// conclude saves the result and the answer durably. An empty text means no answer.
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
	// The reply first: a card that records an answer which was never saved would
	// leave the sender without one. catchUp updates the card at the next start.
	if err := r.keepTaken(t); err != nil {
		return Taken{Key: r.key}, err
	}
	if err := r.mark(s); err != nil {
		r.Log.Error().Err(err).Msg("save sent record failed")
	}
	r.wake()
	return Taken{Status: s, Key: r.key, Why: why}, nil
}

// mark records on the card what its approver did and was told.
func (r *hearing) mark(s Status) error {
	if r.card == nil || r.state.pages.notes[r.key] != r.note {
		return nil // no card, or the request was asked again meanwhile
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

// fitIDs joins the last ten message ids that are valid in a header.
func fitIDs(ids []string) string {
	var fit []string
	for _, id := range ids[max(0, len(ids)-10):] {
		if id != "" && len(id) <= 250 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
			fit = append(fit, id)
		}
	}
	return strings.Join(fit, " ")
}
