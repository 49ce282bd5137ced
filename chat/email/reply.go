package email

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
)

// reply is an email whose sender is proved.
type reply struct {
	*Channel
	name         string
	mail         *inboundMail
	sender       string
	key          approval.Key
	record       *sentRecord
	card         *cardCopy // the sender's card; nil: none was sent
	before       cardCopy  // the sender's card when the email came
	tokenMatched bool      // the email has a token of the card
	closed       bool      // every approver got the outcome
	approver     approval.Approver
	text         string
	clear        bool
	texts        *catalog
	instructions string // how to answer this kind of card
}

// handleReply handles an email whose sender is proved.
func (c *Channel) handleReply(ctx context.Context, name string, m *inboundMail, sender string) (Taken, error) {
	c.init()
	c.replyMu.Lock() // two deliveries of one email at once: the second sees the first
	defer c.replyMu.Unlock()
	r := &reply{Channel: c, name: name, mail: m, sender: sender}
	if why, err := r.identify(); why != "" || err != nil {
		return Taken{Status: Refused, Key: r.key, Why: why}, err
	}
	defer r.finish()
	r.texts = textsFor(c.Style(r.approver.Language).Language)
	r.text, r.clear = m.Answer()
	c.state.mu.Lock()
	duplicate := c.state.handled.known(name, r.digest())
	c.state.mu.Unlock()
	switch {
	case duplicate:
		return Taken{Status: Duplicate, Key: r.key}, nil
	case !r.tokenMatched && r.closed:
		return r.handleSettled(ctx) // for example "thank you", in reply to the outcome
	case !r.tokenMatched:
		return r.saveResult(Refused, "no token of the sender's card", r.texts.WrongToken)
	}
	waiting, err := c.Viewer.Waiting(ctx, []string{r.key.Workspace})
	if err != nil {
		return Taken{}, err
	}
	i := slices.IndexFunc(waiting, func(w approval.StoredPending) bool { return w.Key() == r.key })
	if i < 0 {
		return r.handleSettled(ctx)
	}
	return r.decide(ctx, &waiting[i])
}

func (r *reply) digest() string {
	return replyDigest(r.sender, r.key.String(), r.mail.MessageID, r.mail.Text)
}

// identify finds the card that the email answers. The id is in the reply address, the
// thread, the subject or the body; the first of these counts. The token must belong
// to that card.
func (r *reply) identify() (why string, err error) {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if err := r.loadAll(); err != nil {
		return "", err
	}
	refs := r.mail.Refs(r.Addressing)
	id, why := r.requestID(refs)
	if why != "" {
		return why, nil
	}
	keys := r.state.sent.withID(id)
	for _, k := range keys {
		n := r.state.sent.records[k]
		card := n.card(r.sender)
		if card == nil {
			continue
		}
		r.key, r.record, r.card = k, n, card
		if r.tokenMatched = slices.ContainsFunc(refs, func(ref cardRef) bool { return ref.Token != "" && card.hasToken(tokenDigest(ref.Token)) }); r.tokenMatched {
			break
		}
	}
	switch {
	case r.card != nil:
		r.before, r.closed = *r.card, !r.record.Closed.IsZero()
	case len(keys) > 0:
		r.key = keys[0]
	}
	if why = r.findApprover(); why == "" {
		r.state.replyKey = r.key
	}
	return why, nil
}

// finish releases the key that identify set, and wakes Run.
func (r *reply) finish() {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	r.state.replyKey = approval.Key{}
	r.wake()
}

// findApprover finds the approver. Decide checks the permission again.
func (r *reply) findApprover() (why string) {
	if r.key.ID == "" {
		return "no card with that id was sent"
	}
	for _, p := range r.People(r.key.Workspace) {
		if p.IDs[channelName] != "" && canonical(p.IDs[channelName]) == r.sender {
			r.approver = p
			return ""
		}
	}
	return "the sender is not an approver of the workspace"
}

// requestID returns the id of the request that the refs name, from the best place. In a
// thread the message replied to counts, not older ones. In any other place two
// different ids are an error.
func (r *reply) requestID(refs []cardRef) (found, why string) {
	where := ""
	for _, ref := range refs {
		id := r.idOf(ref)
		switch {
		case id == "":
		case where == "":
			found, where = id, ref.Where
		case ref.Where != where || where == inThread:
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
func (c *Channel) idOf(ref cardRef) string {
	if ref.ID != "" {
		return ref.ID
	}
	k, _ := c.state.sent.byToken(ref.Token)
	return k.ID
}

// decide applies the answer in the email.
func (r *reply) decide(ctx context.Context, w *approval.StoredPending) (Taken, error) {
	p := w.Pending
	r.instructions = r.texts.HowTo
	if p.Type == approval.TypeQuestion {
		r.instructions = r.texts.HowToAnswer
	}
	switch {
	case r.record.SHA256 != w.SHA256:
		return r.saveResult(Refused, "the request changed since the card", r.texts.OtherRequest)
	case r.mail.Doubt != "":
		return r.answerUnclear(r.mail.doubtText(textsFor("")), chat.Format(r.texts.Doubt, "why", r.mail.doubtText(r.texts)))
	case !r.clear:
		return r.answerUnclear("no clear answer", r.texts.Unclear)
	}
	m := r.message(w)
	cmd := m.Command()
	if !byMail(p, cmd, r.text) {
		return r.answerUnclear("answer not valid by email", r.texts.Unclear)
	}
	if approves(cmd) {
		switch ceiling := r.ceiling(r.key.Workspace); {
		case !r.before.Complete:
			return r.saveResult(Refused, "the card did not show the complete request", chat.Format(r.texts.Incomplete, "id", p.ShortID))
		case exceeds(p.Reversibility, ceiling):
			return r.saveResult(Refused, "above the ceiling", r.texts.aboveCeiling(p, ceiling))
		}
	}
	return r.handle(ctx, m, cmd)
}

// message is the input for the interceptor.
func (r *reply) message(w *approval.StoredPending) chat.Message {
	m := chat.Message{
		From: approval.Person{Channel: channelName, ID: r.sender, Name: r.approver.Name}, Via: channelName,
		Text: r.text, Workspaces: r.senderWorkspaces(), Card: w, Language: r.Style(r.approver.Language).Language,
	}
	if w != nil {
		m.Text = fullForm(r.text, w.Pending)
	}
	return m
}

// senderWorkspaces lists the workspaces whose approvers include the sender.
func (r *reply) senderWorkspaces() (all []string) {
	for _, ws := range r.Workspaces() {
		if slices.ContainsFunc(r.People(ws), func(p approval.Approver) bool { return canonical(p.IDs[channelName]) == r.sender }) {
			all = append(all, ws)
		}
	}
	return all
}

// handle executes the command and answers the sender.
func (r *reply) handle(ctx context.Context, m chat.Message, cmd chat.Command) (Taken, error) {
	ic := *r.Interceptor
	w := &errorKeeper{Decider: ic.Decider}
	ic.Decider = w
	result := ic.Handle(ctx, m)
	var refusal *decide.Refusal
	errors.As(w.err, &refusal)
	switch {
	case result.Acted:
		return r.saveResult(Decided, "", result.Text)
	case result.Err != nil:
		return Taken{Key: r.key}, result.Err // a disk error: the retry decides, or finds the decision
	case result.Ignore || cmd.Kind == chat.Unclear:
		return r.answerUnclear("unclear", result.Text)
	case refusal != nil && (errors.Is(refusal, decide.ErrDecided) || errors.Is(refusal, decide.ErrTooLate) || errors.Is(refusal, decide.ErrUnknown)):
		return r.answerLate(result.Text)
	case w.err != nil || cmd.Kind == chat.Menu:
		return r.saveResult(Refused, "not possible", result.Text)
	}
	return r.saveResult(Answered, "", result.Text)
}

// errorKeeper keeps the error of Decide.
type errorKeeper struct {
	chat.Decider
	err error
}

// Decide implements chat.Decider.
func (w *errorKeeper) Decide(ctx context.Context, a decide.Input) (d *approval.Decision, err error) {
	d, err = w.Decider.Decide(ctx, a)
	w.err = err
	return d, err
}

// handleSettled handles a reply to a card that is not pending any more. Such a reply can
// still undo a grant.
func (r *reply) handleSettled(ctx context.Context) (Taken, error) {
	if cmd := chat.Parse(r.text, chat.Context{}); r.tokenMatched && r.clear && cmd.Kind == chat.Undo && strings.HasPrefix(r.key.ID, cmd.ID) {
		result := r.Interceptor.Handle(ctx, r.message(nil))
		if result.Err != nil {
			return Taken{Key: r.key}, result.Err
		}
		return r.saveResult(Answered, "undo", result.Text)
	}
	rec, err := r.Records.Record(ctx, r.key)
	if err != nil {
		return Taken{Key: r.key}, err
	}
	if rec == nil {
		return r.answerLate(r.texts.Gone)
	}
	outcome := r.Style(r.approver.Language).Outcome(rec)
	if r.tokenMatched && r.decisionUnrecorded(rec) {
		return r.saveResult(Decided, "decided before a restart", outcome)
	}
	return r.answerLate(chat.Format(r.texts.Late, "outcome", outcome))
}

// decisionUnrecorded says whether the sender decided by email and we have no record of the
// reply. Then it was this reply, because an unrecorded one is retried first.
func (r *reply) decisionUnrecorded(rec *approval.Record) bool {
	resp, err := approval.ParseResponse(rec.Response)
	if err != nil || r.before.Used || r.before.Late {
		return false
	}
	by, via := resp.Decision.By, resp.Decision.Via
	return by != nil && via != nil && *by == r.approver.Name && *via == channelName
}

// answerLate answers "too late", once for each card.
func (r *reply) answerLate(text string) (Taken, error) {
	if r.before.Late {
		text = ""
	}
	return r.saveResult(Late, "", text)
}

// answerUnclear answers with the menu, up to maxUnclear times for each card.
func (r *reply) answerUnclear(why, text string) (Taken, error) {
	if r.before.Unclear >= maxUnclear {
		return r.saveResult(Unclear, why, "")
	}
	return r.saveResult(Unclear, why, text+"\n\n"+r.instructions)
}

// saveResult saves the result and the answer durably. An empty text means no answer.
func (r *reply) saveResult(s Status, why, text string) (Taken, error) {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	now := r.now()
	t := &handledEmail{
		Version: 1, Name: r.name, Digest: r.digest(), Sender: r.sender, At: now.UTC(), Status: s,
		Workspace: r.key.Workspace, ID: r.key.ID,
	}
	if r.record != nil {
		t.SHA256 = r.record.SHA256
	}
	if text != "" && r.state.handled.answersSince(r.sender, now.Add(-time.Hour)) < maxAnswersPerHour {
		t.Answer = r.newAnswer(text)
	}
	// The reply first: a card that records an answer which was never saved would
	// leave the sender without one. applyHandled updates the card at the next start.
	if err := r.saveHandled(t); err != nil {
		return Taken{Key: r.key}, err
	}
	if err := r.updateCard(s); err != nil {
		r.Log.Error().Err(err).Msg("save sent record failed")
	}
	r.wake()
	return Taken{Status: s, Key: r.key, Why: why}, nil
}

// updateCard records on the card what its approver did and was told.
func (r *reply) updateCard(s Status) error {
	if r.card == nil || r.state.sent.records[r.key] != r.record {
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
	return r.save(r.key, r.record)
}

func (r *reply) newAnswer(text string) *answerTo {
	a := &answerTo{Text: text, MessageID: r.messageID(r.key.ID), InReplyTo: fitIDs([]string{r.mail.MessageID}), Open: r.tokenMatched}
	a.References = strings.Fields(fitIDs(append(slices.Clone(r.mail.References), r.mail.MessageID)))
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
