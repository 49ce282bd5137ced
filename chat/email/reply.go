package email

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/email/authentic"
)

// reply is an email whose sender is proved.
type reply struct {
	*Adapter
	run          *deliver.Channel
	name         string
	mail         *inboundMail
	automatic    string           // why a program wrote it, or ""
	proof        *authentic.Proof // nil: the caller vouches for the email
	sender       string
	key          approval.Key
	card         deliver.Letter // the sender's card; zero: none was sent
	tokenMatched bool           // the email has a token of the card, or needs none

	authenticated bool // the caller has authenticated the sender: the id of the card suffices

	refused      string // see refuse
	approver     deliver.Place
	text         string
	clear        bool
	texts        *catalog
	instructions string // how to answer this kind of card
}

// handleReply handles an email whose sender is proved.
func (r *reply) handle(ctx context.Context) (Taken, error) {
	r.replyMu.Lock() // two deliveries of one email at once: the second sees the first
	defer r.replyMu.Unlock()
	r.sender = r.asConfigured(r.sender)
	why, err := r.identify()
	if err != nil || why != "" && !r.tokenMatched {
		return Taken{Status: r.silent(), Key: r.key, Why: cmp.Or(r.automatic, why)}, err
	}
	r.texts = textsFor(r.style().Language)
	r.text, r.clear = r.mail.Answer()
	switch {
	case r.repeats() || r.handledBefore(r.name) != nil:
		return Taken{Status: Duplicate, Key: r.key}, nil
	case r.automatic != "" && !r.tokenMatched:
		return Taken{Status: Ignored, Key: r.key, Why: r.automatic}, nil
	case r.automatic != "":
		return r.refuse(refusedAutomatic, r.automatic)
	case why != "":
		return r.refuse(refusedSeveral, why)
	case !r.tokenMatched && r.card.Closed:
		return r.handleSettled(ctx) // for example "thank you", in reply to the outcome
	case !r.tokenMatched:
		return r.saveResult(Refused, "no token of the sender's card", r.texts.WrongToken, true)
	}
	if refusal := r.notAnswer(); refusal != "" {
		return r.refuse(refusal, r.Addressing.refusal(refusal, textsFor("")))
	}
	waiting, err := r.run.Viewer.Waiting(ctx, []string{r.key.Workspace})
	if err != nil {
		return Taken{}, err
	}
	i := slices.IndexFunc(waiting, func(w approval.StoredPending) bool { return w.Key() == r.key })
	if i < 0 {
		return r.handleSettled(ctx)
	}
	return r.decide(ctx, &waiting[i])
}

// silent is the result for an email of which nothing is recorded.
func (r *reply) silent() Status {
	if r.automatic != "" {
		return Ignored
	}
	return Refused
}

func (r *reply) notAnswer() string {
	switch {
	case r.proof != nil:
		return r.mail.notAnswer(r.Addressing, *r.proof, sentCard{r.card.Title, r.card.SentAt, func(ref cardRef) bool { return ref.of(r.card) }})
	case r.mail.forwards(r.card.Title):
		return refusedForward
	}
	return ""
}

// refuse refuses an email with a token of the sender's card. An automatic one is not
// answered. An unsigned field may be the reason, which another delivery of the same
// email does not have: so the reason belongs to the digest.
func (r *reply) refuse(refusal, why string) (Taken, error) {
	if r.refused = refusal; r.repeats() {
		return Taken{Status: Duplicate, Key: r.key}, nil
	}
	return r.saveResult(r.silent(), why, chat.Format(r.texts.Refused, "why", r.Addressing.refusal(refusal, r.texts)), r.automatic == "")
}

// asConfigured spells an address as the configuration does. Local parts compare without case.
func (r *reply) asConfigured(sender string) string {
	found := sender
	for _, ws := range r.run.Workspaces() {
		for _, p := range ws.Places {
			if string(p.Chat) == sender {
				return sender
			}
			if chat.LowerASCII(string(p.Chat)) == chat.LowerASCII(sender) {
				found = string(p.Chat)
			}
		}
	}
	return found
}

func (r *reply) digest() string {
	return replyDigest(r.sender, r.key.String(), r.mail.MessageID, r.mail.Text+r.refused)
}

func (r *reply) repeats() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handled.repeats(r.digest(), r.proof == nil)
}

// identify finds the card that the email answers. The id is in the reply address, the
// thread, the subject or the body; the first of these counts. The token must belong
// to that card. What is signed counts before what is not.
func (r *reply) identify() (why string, err error) {
	all, err := r.inbox().Letters()
	if err != nil {
		return "", err
	}
	refs := r.mail.Refs(r.Addressing)
	if r.proof != nil {
		signed := r.mail.signedRefs(r.Addressing, *r.proof)
		if slices.ContainsFunc(signed, func(ref cardRef) bool { return ref.Token != "" && idOf(ref, all) != "" }) {
			refs = signed
		}
	}
	id, why := requestID(refs, all)
	for _, card := range all {
		if why == "" && card.Key.ID != id {
			continue
		}
		if r.key.ID == "" && why == "" {
			r.key = card.Key
		}
		if string(card.To) != r.sender || r.tokenMatched {
			continue
		}
		matched := slices.ContainsFunc(refs, func(ref cardRef) bool {
			return ref.of(card) || r.authenticated && ref == cardRef{ID: card.Key.ID, Where: ref.Where}
		})
		if matched || why == "" {
			r.key, r.card, r.tokenMatched = card.Key, card, matched
		}
	}
	if not := r.findApprover(); not != "" {
		r.tokenMatched = false
		return cmp.Or(why, not), nil
	}
	return why, nil
}

// findApprover finds the approver. Decide checks the permission again.
func (r *reply) findApprover() (why string) {
	if r.key.ID == "" {
		return "no card with that id was sent"
	}
	for _, ws := range r.run.Workspaces() {
		if i := slices.IndexFunc(ws.Places, r.isSenders); ws.Name == r.key.Workspace && i >= 0 {
			r.approver = ws.Places[i]
			r.approver.Language = cmp.Or(r.approver.Language, ws.Language)
			return ""
		}
	}
	return "the sender is not an approver of the workspace"
}

func (r *reply) isSenders(p deliver.Place) bool { return string(p.Chat) == r.sender }

func (r *reply) style() chat.Style { return r.run.Style(r.approver.Language) }

// requestID returns the id of the request that the refs name, from the best place. In a
// thread the message replied to counts, not older ones. In any other place two
// different ids are an error.
func requestID(refs []cardRef, cards []deliver.Letter) (found, why string) {
	where := ""
	for _, ref := range refs {
		id := idOf(ref, cards)
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
func idOf(ref cardRef, cards []deliver.Letter) string {
	if ref.ID != "" {
		return ref.ID
	}
	digest := tokenDigest(ref.Token)
	for _, card := range cards {
		if card.Carries(digest) {
			return card.Key.ID
		}
	}
	return ""
}

// decide applies the answer in the email.
func (r *reply) decide(ctx context.Context, w *approval.StoredPending) (Taken, error) {
	p := w.Pending
	why, refusal := r.noApproval(p)
	switch {
	case p.Type == approval.TypeQuestion:
		r.instructions = r.texts.HowToAnswer
	case refusal != "":
		r.instructions = r.texts.HowToDeny
	default:
		r.instructions = r.texts.HowTo
	}
	switch {
	case r.card.SHA256 != w.SHA256:
		return r.saveResult(Refused, "the request changed since the card", r.texts.OtherRequest, true)
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
	if approves(cmd) && refusal != "" {
		return r.saveResult(Refused, why, refusal, true)
	}
	return r.execute(ctx, m, cmd)
}

// noApproval says for us and for the sender why a reply cannot approve the request, "" if it can.
func (r *reply) noApproval(p *approval.Pending) (why, refusal string) {
	blocked := r.style().Card(p).Blocked // the rules may be newer than the card
	switch ceiling := r.ceiling(r.key.Workspace); {
	case blocked != "":
		return "a secret that cannot be masked", blocked
	case !r.card.Complete:
		return "the card did not show the complete request", chat.Format(r.texts.Incomplete, "id", p.ShortID)
	case exceeds(p.Reversibility, ceiling):
		return "above the ceiling", r.texts.aboveCeiling(p, ceiling)
	}
	return "", ""
}

// message is the input for the interceptor.
func (r *reply) message(w *approval.StoredPending) chat.Message {
	m := chat.Message{
		From: approval.Person{Channel: r.run.Name, ID: r.sender, Name: r.approver.Person}, Via: r.run.Name,
		Text: r.text, Workspaces: r.senderWorkspaces(), Card: w, Language: r.style().Language,
	}
	if w != nil {
		m.Text = fullForm(r.text, w.Pending)
	}
	return m
}

// senderWorkspaces lists the workspaces whose approvers include the sender.
func (r *reply) senderWorkspaces() (all []string) {
	for _, ws := range r.run.Workspaces() {
		if slices.ContainsFunc(ws.Places, r.isSenders) {
			all = append(all, ws.Name)
		}
	}
	return all
}

// execute executes the command and answers the sender.
func (r *reply) execute(ctx context.Context, m chat.Message, cmd chat.Command) (Taken, error) {
	ic := *r.run.Interceptor
	w := &errorKeeper{Decider: ic.Decider}
	ic.Decider = w
	result := ic.Handle(ctx, m)
	var refusal *decide.Refusal
	errors.As(w.err, &refusal)
	switch {
	case result.Acted:
		return r.saveResult(Decided, "", result.Text, true)
	case result.Err != nil:
		return Taken{Key: r.key}, result.Err // a disk error: the retry decides, or finds the decision
	case result.Ignore || cmd.Kind == chat.Unclear:
		return r.answerUnclear("unclear", result.Text)
	case refusal != nil && isLate(refusal.Reason):
		return r.answerLate(result.Text)
	case w.err != nil || cmd.Kind == chat.Menu:
		return r.saveResult(Refused, "not possible", result.Text, true)
	}
	return r.saveResult(Answered, "", result.Text, true)
}

// isLate reports whether the request is not the one, or not as it was, when the mail was sent.
func isLate(reason error) bool {
	return slices.Contains([]error{decide.ErrDecided, decide.ErrTooLate, decide.ErrUnknown, decide.ErrChanged}, reason)
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
	if cmd := chat.Parse(r.text, chat.Context{}); r.tokenMatched && r.clear && cmd.Kind == chat.Undo && approval.BeginsID(r.key.ID, cmd.ID) {
		result := r.run.Interceptor.Handle(ctx, r.message(nil))
		if result.Err != nil {
			return Taken{Key: r.key}, result.Err
		}
		return r.saveResult(Answered, "undo", result.Text, true)
	}
	story, err := r.run.Viewer.Story(ctx, r.key)
	if err != nil {
		return Taken{Key: r.key}, err
	}
	if story.Record == nil {
		return r.answerLate(r.texts.Gone)
	}
	outcome := r.style().Outcome(story.Record)
	if r.tokenMatched && r.run.DecidedBy(story.Decision, r.card.To) && r.count(Decided)+r.count(Late) == 0 {
		// The sender decided by email and we have no record of the reply. Then it was this
		// reply, because an unrecorded one is retried first.
		return r.saveResult(Decided, "decided before a restart", outcome, true)
	}
	return r.answerLate(chat.Format(r.texts.Late, "outcome", outcome))
}

// count counts the earlier replies to the card with a result.
func (r *reply) count(s Status) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handled.count(r.card, s)
}

// answerLate answers "too late", once for each card.
func (r *reply) answerLate(text string) (Taken, error) {
	return r.saveResult(Late, "the request is settled", text, r.count(Late) == 0)
}

// answerUnclear answers with the menu, up to maxUnclear times for each card.
func (r *reply) answerUnclear(why, text string) (Taken, error) {
	return r.saveResult(Unclear, why, text+"\n\n"+r.instructions, r.count(Unclear) < maxUnclear)
}

// saveResult saves the result and the answer durably, and then sends the answer. Without
// an answer, the status and the next card tell what it would have said.
func (r *reply) saveResult(s Status, why, text string, answer bool) (Taken, error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &handledEmail{
		Version: 1, Name: r.name, Digest: r.digest(), Sender: r.sender, At: now.UTC(), Status: s,
		Workspace: r.key.Workspace, ID: r.key.ID, SHA256: r.card.SHA256,
	}
	limited := s != Decided && r.handled.answersSince(r.sender, now.Add(-time.Hour)) >= maxAnswersPerHour
	switch {
	case answer && !limited:
		t.Answer = r.newAnswer(text)
	case r.tokenMatched:
		first, _, _ := strings.Cut(text, "\n")
		t.Untold, t.Sentence = why, chat.Format(r.texts.Unanswered, "id", approval.ShortID(r.key.ID), "why", first)
	}
	if answer && limited {
		r.Log.Warn().Str("from", chat.Escape(r.sender)).Str("id", r.key.ID).Str("status", string(s)).Int("limit", maxAnswersPerHour).
			Msg("email not answered: too many answers to this address in an hour")
	}
	if err := r.saveHandled(t); err != nil {
		return Taken{Key: r.key}, err
	}
	r.sendAnswer(t, 0)
	r.warnUnanswered()
	return Taken{Status: s, Key: r.key, Why: why}, nil
}

func (r *reply) newAnswer(text string) *answerTo {
	a := &answerTo{Text: text, MessageID: string(r.NewID(r.key.ID)), Open: r.tokenMatched, Subject: r.card.Title}
	a.InReplyTo = fitIDs([]string{r.mail.MessageID})
	a.References = strings.Fields(fitIDs(append(slices.Clone(r.mail.References), r.mail.MessageID)))
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
