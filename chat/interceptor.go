package chat

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
)

// Decider writes a decision into the slot, or refuses with an *decide.Refusal. It
// checks whether the person may decide.
type Decider interface {
	Decide(ctx context.Context, a decide.Input) (*approval.Decision, error)
}

// viewer finds requests in the given workspaces. The list is never empty, which some
// implementations take for all.
type viewer interface {
	// Waiting lists the pending requests, oldest first.
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
	// Find lists the requests, settled ones too, whose id begins with prefix. It is asked
	// what became of a request that is not pending.
	Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error)
}

// revoker lists and revokes grants.
type revoker interface {
	// Given is the grant that a decision gives, nil if it gives none.
	Given(p *approval.Pending, d *approval.Decision) *grant.Grant
	// Remembered lists the grants in the given workspaces, including those of
	// decisions not yet settled.
	Remembered(ctx context.Context, workspaces []string) ([]grant.Grant, error)
	// Revoke revokes a grant durably, or refuses with an *decide.Refusal. It
	// checks whether the person may revoke. done is false if the grant was
	// already revoked.
	Revoke(ctx context.Context, g grant.Grant, by approval.Person) (done bool, err error)
}

// Message is a text that a person wrote.
type Message struct {
	From       approval.Person
	Via        string                  // telegram, email, terminal …
	Text       string                  // as received
	Workspaces []string                // what this chat serves From; none: not authorized
	Card       *approval.StoredPending // the card it replies to, if any
	Implicit   bool                    // Card is the one shown last, not replied to
	Language   string
	Bots       []string // the bot's names, without @
	Commands   string   // with code 6, of a local channel: the command pattern to remember
	Buttons    bool     // see Style: the reply names no command
}

// Command parses the message and does nothing else.
func (m Message) Command() Command {
	c := Context{Reply: m.Card != nil, Implicit: m.Implicit, Bots: m.Bots, Names: looseWords(m.From.Name)}
	if m.Card != nil {
		p := m.Card.Pending
		c.ID, c.ShortID, c.Type, c.Options, c.Editable = p.RequestID, p.ShortID, p.Type, len(p.Options), p.Editable != ""
	}
	return Parse(m.Text, c)
}

// Reply is what to tell the person.
type Reply struct {
	Text   string
	Acted  bool         // a decision was recorded
	Key    approval.Key // the request of that decision
	Ignore bool         // not addressed to the gate: send no reply
	Err    error        // for the log, never for the chat
}

// Interceptor turns messages into decisions. The zero value refuses all messages.
type Interceptor struct {
	Decider Decider
	Viewer  viewer
	Zone    *time.Location
	Redact  Redactor
	Revoker revoker // nil: no grant can be revoked here
	// CanDecide checks whether the person may decide and the request is still
	// pending. It returns the *decide.Refusal that Decide would. nil: no check
	// before a question is answered.
	CanDecide func(ctx context.Context, a decide.Input) error
	Paused    func(workspace string) *Pause // see Style
	// Day returns what the agents did today, of what the person may see; nil: it is not available here.
	Day   func(ctx context.Context, m Message) (*Day, error)
	Local bool // see Style
}

// Handle parses a message and acts on it.
func (ic *Interceptor) Handle(ctx context.Context, m Message) Reply {
	t := ic.newReplier(m)
	cmd := m.Command()
	switch {
	case cmd.Kind == NotAddressed:
		return Reply{Ignore: true}
	case len(m.Workspaces) == 0 || ic.Decider == nil || ic.Viewer == nil:
		// An unauthorized person learns nothing, not even which ids exist.
		return Reply{Text: t.NotAuthorized}
	}
	switch cmd.Kind {
	case Pending:
		return t.list(ctx)
	case Today:
		return ic.Today(ctx, m)
	case Approve, Deny:
		return t.decideByID(ctx, cmd)
	case Undo:
		return t.undo(ctx, cmd.ID)
	case Menu, Question, Option, Free:
		return t.replyToCard(ctx, cmd)
	}
	return Reply{Text: t.notUnderstoodText(cmd)}
}

// Today answers the word today.
func (ic *Interceptor) Today(ctx context.Context, m Message) Reply {
	t := ic.newReplier(m)
	if ic.Day == nil || len(m.Workspaces) == 0 {
		return Reply{Text: t.DayUnavailable}
	}
	d, err := ic.Day(ctx, m)
	if err != nil {
		return Reply{Text: t.DayUnreadable, Err: err}
	}
	return Reply{Text: t.style.Day(d)}
}

// Confirm returns the confirmation of decision d again, for a message that was
// delivered twice.
func (ic *Interceptor) Confirm(m Message, d *approval.Decision) string {
	a := decide.Input{Key: m.Card.Key(), Override: d.Override, Feedback: d.Feedback, Text: d.Answer}
	return ic.newReplier(m).confirm(a, d, m.Card)
}

func (ic *Interceptor) newReplier(m Message) replier {
	return replier{ic, m, catalog(m.Language), Style{
		Language: m.Language, Zone: ic.Zone, Redact: ic.Redact, Paused: ic.Paused, Local: ic.Local, Buttons: m.Buttons,
	}}
}

// replier handles one message.
type replier struct {
	*Interceptor
	Message
	*messages
	style Style
}

func (t replier) list(ctx context.Context) Reply {
	all, err := t.Viewer.Waiting(ctx, t.Workspaces)
	if err != nil {
		return Reply{Text: t.PendingUnreadable, Err: err}
	}
	if len(all) == 0 {
		return Reply{Text: t.NonePending}
	}
	lines := make([]string, len(all))
	for i, w := range all {
		lines[i] = t.style.Line(w.Pending)
	}
	return Reply{Text: strings.Join(lines, "\n")}
}

// decideByID decides the one request whose id begins with the typed digits.
func (t replier) decideByID(ctx context.Context, cmd Command) Reply {
	w, key, reply := t.findByID(ctx, cmd.ID)
	if reply != nil {
		return *reply
	}
	a := decide.Input{Key: key, Verdict: approval.Approved, Scope: approval.Once}
	if cmd.Kind == Deny {
		a.Verdict, a.Scope, a.Feedback = approval.Denied, "", cmd.Text
	}
	if w != nil && w.Pending.Type == approval.TypeQuestion && cmd.Kind == Approve {
		return Reply{Text: Format(t.IsQuestion, "id", Escape(w.Pending.ShortID))}
	}
	return t.decide(ctx, a, w)
}

// findByID searches the pending requests and the settled ones. For a settled one Decide
// returns what happened to it. Digits that fit a pending request and a settled one are
// refused: the person may have read the card of either.
func (t replier) findByID(ctx context.Context, prefix string) (*approval.StoredPending, approval.Key, *Reply) {
	cardFits := t.Card != nil && t.Card.Pending.IsNamed(prefix)
	if cardFits && !t.Implicit {
		return t.Card, t.Card.Key(), nil
	}
	all, err := t.Viewer.Waiting(ctx, t.Workspaces)
	if err != nil {
		return nil, approval.Key{}, &Reply{Text: t.Unconfirmed, Err: err}
	}
	found, err := t.Viewer.Find(ctx, t.Workspaces, prefix)
	if err != nil {
		return nil, approval.Key{}, &Reply{Text: t.Unconfirmed, Err: err}
	}
	fit := approval.Named(all, prefix)
	if cardFits && len(fit) == 0 {
		fit = append(fit, *t.Card)
	}
	settled := without(found, slices.Concat(all, fit))
	switch {
	case len(fit) > 0 && len(settled) > 0:
		both := Format(t.FitsSettled, "id", prefix, "pending", Escape(fit[0].Key().String()), "settled", Escape(settled[0].String()))
		return nil, approval.Key{}, &Reply{Text: both}
	case len(fit) == 1:
		return &fit[0], fit[0].Key(), nil
	case len(fit) == 0 && len(settled) == 1:
		return nil, settled[0], nil
	case len(fit)+len(settled) == 0:
		return nil, approval.Key{}, &Reply{Text: Format(t.UnknownID, "id", prefix)}
	}
	return nil, approval.Key{}, &Reply{Text: Format(t.Ambiguous, "id", prefix)}
}

// without leaves out the keys of pending requests.
func without(keys []approval.Key, pending []approval.StoredPending) []approval.Key {
	return slices.DeleteFunc(slices.Clone(keys), func(k approval.Key) bool {
		return slices.ContainsFunc(pending, func(w approval.StoredPending) bool { return w.Key() == k })
	})
}

// replyToCard acts on a reply to a card.
func (t replier) replyToCard(ctx context.Context, cmd Command) Reply {
	p := t.Card.Pending
	if cmd.Kind == Question && !cmd.ToAgent {
		text := t.factsText(cmd.Text)
		if text == "" {
			text = t.style.renderer(p).askAgent(cmd.Text)
		}
		return t.ifUndecided(ctx, text)
	}
	a := t.decisionInput(cmd)
	scope := a.Scope
	if a.Commands != "" {
		scope = approval.Commands
	}
	if why := t.style.renderer(p).whyNot(scope); why != "" {
		lines := append([]string{Format(t.CodeImpossible, "code", cmd.Code, "why", why)}, nonEmpty(t.style.ProposeRule(p))...)
		return Reply{Text: strings.Join(lines, "\n")}
	}
	return t.decide(ctx, a, t.Card)
}

// decisionInput translates a code or an answer. An unknown one has no verdict, and
// Decide refuses it.
func (t replier) decisionInput(cmd Command) decide.Input {
	a := decide.ByCode(cmd.Code, cmd.Text)
	a.Key = t.Card.Key()
	if cmd.Kind == Menu && cmd.Code == "6" {
		a.Commands = t.Commands
	}
	switch cmd.Kind {
	case Question:
		a.Verdict, a.Feedback = approval.RequestMore, cmd.Text
	case Option:
		a.Verdict, a.Text = approval.Answered, t.Card.Pending.Options[cmd.Option-1]
	case Free:
		a.Verdict, a.Text = approval.Answered, cmd.Text
	}
	return a
}

// AnswerFromFacts answers a question about a card without the agent, "" if the facts do not
// suffice or it is for the agent. The request goes on waiting.
func (ic *Interceptor) AnswerFromFacts(m Message) string {
	cmd := m.Command()
	if cmd.Kind != Question || cmd.ToAgent {
		return ""
	}
	return ic.newReplier(m).factsText(cmd.Text)
}

// factsText answers a question from the ruling, the invocation and the evidence, "" if they do
// not suffice.
func (t replier) factsText(question string) string {
	r := t.style.renderer(t.Card.Pending)
	about := topicsOf(question)
	if question == "" {
		about = []topic{aboutWhy}
	}
	if len(about) == 1 && about[0] == aboutWhy {
		if text := r.whyWaiting(); text != "" || question != "" {
			return text
		}
		return t.WriteQuestion
	}
	if facts, _, ok := r.factsAnswer(about); ok {
		return facts + "\n" + Format(t.StillWaiting, "id", Escape(t.Card.Pending.ShortID))
	}
	return ""
}

// ifUndecided returns text if the request is pending. Otherwise the approver is told
// what happened to it, and an unauthorized person learns nothing.
func (t replier) ifUndecided(ctx context.Context, text string) Reply {
	if t.CanDecide == nil {
		return Reply{Text: text}
	}
	a := decide.Input{Key: t.Card.Key(), PendingSHA256: t.Card.SHA256, By: t.From, Via: t.Via}
	if err := t.CanDecide(ctx, a); err != nil {
		return t.refusalReply(err, a.Key.Workspace)
	}
	return Reply{Text: text}
}

// whyWaiting says why p needs an approver, "" if the ruling has no reason.
func (r renderer) whyWaiting() string {
	lines := append(r.why(), nonEmpty(r.ProposeRule(r.p))...)
	if len(lines) == 0 {
		return ""
	}
	return Format(r.WaitsBecause, "id", Escape(r.p.ShortID), "reasons", strings.Join(lines, "\n"))
}

// askAgent says what sending a question to the agent would do, and how.
func (r renderer) askAgent(question string) string {
	why := r.FactsInsufficient
	if _, claimed, _ := r.factsAnswer(topicsOf(question)); claimed {
		why = r.OnlyUnverified
	}
	return why + " " + Format(r.AskAgent, "id", Escape(r.p.ShortID), "text", Escape(question))
}

func (t replier) decide(ctx context.Context, a decide.Input, w *approval.StoredPending) Reply {
	a.By, a.Via = t.From, t.Via
	if w != nil {
		a.PendingSHA256 = w.SHA256
	}
	d, err := t.Decider.Decide(ctx, a)
	switch {
	case err != nil:
		return t.refusalReply(err, a.Key.Workspace)
	case d == nil || d.Verdict != a.Verdict:
		return Reply{Text: t.Unconfirmed, Err: errors.New("decide: no decision of that kind came back")}
	}
	return Reply{Text: t.confirm(a, d, w), Acted: true, Key: a.Key}
}

func (t replier) confirm(a decide.Input, d *approval.Decision, w *approval.StoredPending) string {
	what, r := Escape(approval.ShortID(a.Key.ID)), t.style.renderer(&approval.Pending{})
	if w != nil {
		r = t.style.renderer(w.Pending)
		what = r.actAndBrief()
	}
	switch d.Verdict {
	case approval.Approved:
		text := Format(t.Approved, "what", what)
		if held := t.style.ApprovedInPause(a.Key.Workspace, d); held != "" {
			text += "\n" + held
		} else if w == nil || w.Pending.ToolName != "" || w.Pending.Plan != nil { // release-only: nothing starts on this host
			text += Format(t.RunBefore, "time", t.style.clock(d.RunBefore, d.DecidedAt))
		}
		return text + t.undoHint(d, w)
	case approval.Denied:
		return Format(t.Denied, "what", what)
	case approval.Overridden:
		return Format(t.Overridden, "what", what, "text", r.quote(a.Override))
	case approval.RequestMore:
		return Format(t.SentBack, "what", what, "text", r.quote(a.Feedback))
	}
	return Format(t.Answered, "text", r.quote(a.Text))
}

// refusalReply turns a refusal into one sentence. An unauthorized person gets the
// same sentence in every case, without a name.
func (t replier) refusalReply(err error, workspace string) Reply {
	var r *decide.Refusal
	if !errors.As(err, &r) {
		r = &decide.Refusal{Reason: err}
	}
	switch {
	case errors.Is(r.Reason, decide.ErrNotAuthorized):
		return Reply{Text: t.NotAuthorized}
	case errors.Is(r.Reason, decide.ErrUnknown):
		return Reply{Text: t.UnknownRequest}
	case errors.Is(r.Reason, decide.ErrDecided):
		if r.By == "" || r.Verdict == "" {
			return Reply{Text: withHint(t.Decided, r.Hint)}
		}
		text := Format(t.DecidedBy, "verdict", t.status(string(r.Verdict)), "by", Escape(r.By), "time", t.style.clock(r.At, r.At))
		if pauseLine := t.style.PauseLine(workspace, r.At); pauseLine != "" && r.Verdict == approval.Approved && r.Hint == "" {
			text += "\n" + pauseLine // a hint says how the request was settled
		}
		return Reply{Text: text}
	case errors.Is(r.Reason, decide.ErrChanged):
		return Reply{Text: t.Changed}
	case errors.Is(r.Reason, decide.ErrTooLate):
		return Reply{Text: withHint(t.TooLate, r.Hint)}
	case errors.Is(r.Reason, decide.ErrNotApplicable):
		return Reply{Text: withHint(t.NotPossible, r.Hint)}
	}
	return Reply{Text: t.Unconfirmed, Err: err}
}

func withHint(sentence, hint string) string {
	if hint == "" {
		return sentence
	}
	return sentence + " (" + Escape(hint) + ")"
}

func (t replier) notUnderstoodText(cmd Command) string {
	switch cmd.Problem {
	case needsText:
		return Format(t.NeedsText, "code", cmd.Code)
	case takesNoText:
		return Format(t.TakesNoText, "code", cmd.Code)
	case continues:
		return Format(t.Continues, "code", cmd.Code)
	case idTooShort:
		return t.ShortID
	case otherCard:
		return Format(t.OtherCard, "id", Escape(t.Card.Pending.ShortID))
	}
	switch {
	case t.Card == nil:
		return t.NotUnderstood
	case t.Card.Pending.Type == approval.TypeQuestion:
		return t.NotUnderstoodAnswer
	}
	return t.NotUnderstoodReply
}
