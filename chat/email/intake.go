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

// Status says what became of a mail that came in.
type Status string

// What can become of a mail. Only the first one moves anything.
const (
	Decided   Status = "decided"
	Answered  Status = "answered"  // a question about the card, answered; it waits on
	Unclear   Status = "unclear"   // an approver's, and no answer that could be understood
	Late      Status = "late"      // the request is settled
	Refused   Status = "refused"   // not proved, not an approver's, without its token, or not possible by mail
	Ignored   Status = "ignored"   // not for us, automatic, or too large
	Duplicate Status = "duplicate" // taken before
)

// Taken is what became of a mail.
type Taken struct {
	Status Status
	Key    approval.Key // the request it is about; zero where none was found
	Why    string       // for the log: never the mail's words
}

// doubtFor is how long we wait for a proof that cannot be looked up.
const doubtFor = time.Hour

// maxUnclear is how often one card is answered with the menu: an automatic
// answer that is not known as one must not go on for ever.
const maxUnclear = 3

// Take has a mail decide, or says why it does not. An error means that it should
// be handed in again later; until then it has decided nothing, or what it decided
// is found again. What is taken twice decides once.
func (c *Channel) Take(ctx context.Context, in Incoming) (Taken, error) {
	t, err := c.take(ctx, in, "")
	c.logTaken(in.Name, t, err)
	return t, err
}

// TakeRaw is Take for a mail that somebody hands over who speaks for one approver
// only: others' mails are refused.
func (c *Channel) TakeRaw(ctx context.Context, in Incoming, approver approval.Person) (Taken, error) {
	only := canonical(approver.ID)
	if approver.Channel != channelName || only == "" {
		return Taken{Status: Refused, Why: "handed over by somebody without an e-mail address"}, nil
	}
	t, err := c.take(ctx, in, only)
	c.logTaken(in.Name, t, err)
	return t, err
}

// TakeForwarded is Take for a mail of which only subject and text are left.
// Nothing is left to prove then, so approver is who wrote it, by the word of who
// hands it over, and the subject or the text must hold the token of their card.
// approver's Channel is "email", and its ID the address.
func (c *Channel) TakeForwarded(ctx context.Context, subject, body string, approver approval.Person) (Taken, error) {
	sender := canonical(approver.ID)
	m := &Mail{Subject: subject, Text: newlines.Replace(body)}
	name := "forwarded " + printOfReply(sender, "", subject, body)
	t, err := func() (Taken, error) {
		if approver.Channel != channelName || sender == "" {
			return Taken{Status: Refused, Why: "handed over by somebody without an e-mail address"}, nil
		}
		if len(subject)+len(body) > MaxMail {
			return Taken{Status: Ignored, Why: "too large"}, nil
		}
		return c.weigh(ctx, name, m, sender)
	}()
	c.logTaken(name, t, err)
	return t, err
}

const channelName = "email"

func (c *Channel) receive(ctx context.Context, in Incoming) error {
	_, err := c.Take(ctx, in)
	return err
}

func (c *Channel) logTaken(name string, t Taken, err error) {
	event := c.Log.Info()
	if t.Status == Ignored || t.Status == Duplicate {
		event = c.Log.Debug()
	}
	if err != nil {
		event = c.Log.Warn().Err(err)
	}
	event.Str("mail", name).Str("status", string(t.Status)).Str("ws", t.Key.Workspace).Str("id", t.Key.ID).Str("why", t.Why).Msg("mail taken")
}

// take goes from what costs nothing to what does: whether the mail is read at
// all, then whether a machine wrote it, whether it is about a card, and only then
// who wrote it.
func (c *Channel) take(ctx context.Context, in Incoming, only string) (Taken, error) {
	c.init()
	if in.TooLarge || len(in.Raw) > MaxMail {
		return Taken{Status: Ignored, Why: "too large"}, nil
	}
	if known, err := c.before(in.Name); known || err != nil {
		return Taken{Status: Duplicate}, err
	}
	if why := Automatic(in.Raw); why != "" {
		return Taken{Status: Ignored, Why: why}, nil
	}
	m, err := Read(in.Raw)
	if err != nil {
		return Taken{Status: Ignored, Why: err.Error()}, nil //nolint:nilerr // it will not get better
	}
	if c.rehearsed(m, in.Raw) {
		return Taken{Status: Ignored, Why: "it answers a test"}, nil
	}
	if ours, err := c.concerns(m); !ours || err != nil {
		return Taken{Status: Ignored, Why: "it is about no card"}, err
	}
	if c.Prover == nil {
		return Taken{Status: Refused, Why: "nothing proves who wrote it"}, nil
	}
	sender, how, err := c.Prover.Sender(ctx, in.Raw)
	if err != nil {
		return c.unproved(in.Name, err)
	}
	c.state.mu.Lock()
	delete(c.state.doubted, in.Name)
	c.state.mu.Unlock()
	if sender = canonical(sender); only != "" && sender != only {
		return Taken{Status: Refused, Why: "it is not by whom the key stands for"}, nil
	}
	t, err := c.weigh(ctx, in.Name, m, sender)
	if t.Why == "" {
		t.Why = "proved: " + how
	}
	return t, err
}

// before says whether that very delivery was taken.
func (c *Channel) before(name string) (bool, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if err := c.loadTaken(); err != nil {
		return false, err
	}
	return c.state.taken.known(name, ""), nil
}

// concerns says whether a mail names a card that was sent. To look further costs
// questions to other people's name servers.
func (c *Channel) concerns(m *Mail) (bool, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if err := c.loadAll(); err != nil {
		return false, err
	}
	for _, ref := range m.Refs(c.Addressing) {
		if len(c.state.pages.named(c.idOf(ref))) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// loadAll reads what the notebook and the drawer say of every workspace.
func (c *Channel) loadAll() error {
	for _, ws := range c.Workspaces() {
		if err := c.load(ws); err != nil {
			return err
		}
	}
	return c.loadTaken()
}

// unproved refuses, or waits where the proof could not be looked up.
func (c *Channel) unproved(name string, err error) (Taken, error) {
	var e *AuthError
	if !errors.As(err, &e) {
		return Taken{}, err
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	since, known := c.state.doubted[name]
	if e.Undecided && (!known || c.now().Sub(since) < doubtFor) {
		if c.state.doubted == nil {
			c.state.doubted = map[string]time.Time{}
		}
		if !known {
			c.state.doubted[name] = c.now()
		}
		return Taken{}, err
	}
	delete(c.state.doubted, name)
	return Taken{Status: Refused, Why: e.Reason}, nil
}

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
	return r.authorised(), nil
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
func (w *witness) Decide(ctx context.Context, a approval.Answer) (d *approval.Decision, err error) {
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
	return r.late(fill(r.words.late, "outcome", r.Style(r.approver.Language).Outcome(rec)))
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
	if text != "" && r.state.taken.answered(r.sender, now.Add(-time.Hour)) < answersAnHour {
		t.Answer = r.answer(text)
	}
	if err := r.mark(s); err != nil {
		return Taken{Key: r.key}, err
	}
	if err := r.keepTaken(t); err != nil {
		return Taken{Key: r.key}, err
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
