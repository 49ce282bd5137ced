package chat

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Decider has an answer written into the slot, or refuses with an
// *approval.Refusal. Whether the person may decide is its business.
type Decider interface {
	Decide(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error)
}

// Viewer lists what waits in the given workspaces, oldest first. It is never
// asked about no workspace at all, which some take to mean every one.
type Viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.Waiting, error)
}

// Finder knows the requests that wait no longer. A Viewer that is one lets a
// late answer hear what happened.
type Finder interface {
	Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error)
}

// Revoker knows remembered consent and takes it back.
type Revoker interface {
	// Given is the consent that a decision gives besides, nil where it gives none.
	Given(p *approval.Pending, d *approval.Decision) *approval.Grant
	// Remembered lists what holds in the given workspaces, and what is about to.
	Remembered(ctx context.Context, workspaces []string) ([]approval.Grant, error)
	// Revoke takes one back, durably, or refuses with an *approval.Refusal.
	// Whether the person may is its business. done is false where nothing was
	// left to take back.
	Revoke(ctx context.Context, g approval.Grant, by approval.Person) (done bool, err error)
}

// Message is something a person wrote.
type Message struct {
	From       approval.Person
	Via        string            // telegram, email, terminal …
	Text       string            // as it came
	Workspaces []string          // what this chat serves From; none: a stranger
	Card       *approval.Waiting // the card it replies to, if any
	Implicit   bool              // Card is only the one shown last
	Language   string
	Bots       []string // our names there, without @
}

// Command is the message understood, nothing done yet.
func (m Message) Command() Command {
	c := Context{Reply: m.Card != nil, Implicit: m.Implicit, Bots: m.Bots}
	if m.Card != nil {
		c.ID, c.Type, c.Options = m.Card.Pending.RequestID, m.Card.Pending.Type, len(m.Card.Pending.Options)
	}
	return Parse(m.Text, c)
}

// Reply is what to tell the person.
type Reply struct {
	Text   string
	Acted  bool         // a decision was recorded
	Key    approval.Key // … about this request
	Ignore bool         // say nothing: it was not for us
	Err    error        // for the log, never for the chat
}

// Interceptor turns messages into decisions. The zero value refuses all.
type Interceptor struct {
	Decider Decider
	Viewer  Viewer
	Zone    *time.Location
	Redact  Redactor
	Revoker Revoker // nil: nothing can be undone here
	// CanDecide is Decide without deciding: it says whether the person may answer
	// and the request still waits for an answer, with the *approval.Refusal that
	// Decide would give. nil: a question is answered without asking.
	CanDecide func(ctx context.Context, a approval.DecisionInput) error
	Paused    func(workspace string) *Pause // as of Style
}

// Handle understands a message and acts on it.
func (ic *Interceptor) Handle(ctx context.Context, m Message) Reply {
	t := ic.turn(m)
	cmd := m.Command()
	switch {
	case cmd.Kind == NotAddressed:
		return Reply{Ignore: true}
	case len(m.Workspaces) == 0 || ic.Decider == nil || ic.Viewer == nil:
		// A stranger learns nothing, not even which ids there are.
		return Reply{Text: t.notYours}
	}
	switch cmd.Kind {
	case Pending:
		return t.list(ctx)
	case Approve, Deny:
		return t.named(ctx, cmd)
	case Undo:
		return t.undo(ctx, cmd.ID)
	case Menu, Question, Option, Free:
		return t.card(ctx, cmd)
	}
	return Reply{Text: t.unclearText(cmd)}
}

// Confirm is what whoever decided d was told, or would have been: for a message
// to its card that came twice.
func (ic *Interceptor) Confirm(m Message, d *approval.Decision) string {
	a := approval.DecisionInput{Key: m.Card.Key(), Override: d.Override, Feedback: d.Feedback, Text: d.Answer}
	return ic.turn(m).confirm(a, d, m.Card)
}

func (ic *Interceptor) turn(m Message) turn {
	return turn{ic, m, catalogue(m.Language), Style{Language: m.Language, Zone: ic.Zone, Redact: ic.Redact, Paused: ic.Paused}}
}

// turn is one message being handled.
type turn struct {
	*Interceptor
	Message
	*words
	style Style
}

func (t turn) list(ctx context.Context) Reply {
	all, err := t.Viewer.Waiting(ctx, t.Workspaces)
	if err != nil {
		return Reply{Text: t.unconfirmed, Err: err}
	}
	if len(all) == 0 {
		return Reply{Text: t.none}
	}
	lines := make([]string, len(all))
	for i, w := range all {
		lines[i] = t.style.Line(w.Pending)
	}
	return Reply{Text: strings.Join(lines, "\n")}
}

// named decides about the one request that the typed digits fit.
func (t turn) named(ctx context.Context, cmd Command) Reply {
	w, key, reply := t.find(ctx, cmd.ID)
	if reply != nil {
		return *reply
	}
	a := approval.DecisionInput{Key: key, Verdict: approval.Approved, Scope: approval.Once}
	if cmd.Kind == Deny {
		a.Verdict, a.Scope, a.Feedback = approval.Denied, "", cmd.Text
	}
	if w != nil && w.Pending.Type == approval.TypeQuestion && cmd.Kind == Approve {
		return Reply{Text: say(t.isQuestion, "id", Escape(w.Pending.ShortID))}
	}
	return t.decide(ctx, a, w)
}

// find looks the digits up among the requests that wait and, where none fits,
// among those that are settled: Decide will say what became of one.
func (t turn) find(ctx context.Context, prefix string) (*approval.Waiting, approval.Key, *Reply) {
	mine := t.Card != nil && strings.HasPrefix(t.Card.Pending.RequestID, prefix)
	if mine && !t.Implicit {
		return t.Card, t.Card.Key(), nil
	}
	all, err := t.Viewer.Waiting(ctx, t.Workspaces)
	if err != nil {
		return nil, approval.Key{}, &Reply{Text: t.unconfirmed, Err: err}
	}
	var fit []approval.Waiting
	for _, w := range all {
		if strings.HasPrefix(w.Pending.RequestID, prefix) {
			fit = append(fit, w)
		}
	}
	if mine && len(fit) == 0 {
		fit = append(fit, *t.Card)
	}
	switch len(fit) {
	case 1:
		return &fit[0], fit[0].Key(), nil
	case 0:
		return t.findSettled(ctx, prefix)
	}
	return nil, approval.Key{}, &Reply{Text: say(t.ambiguous, "id", prefix)}
}

func (t turn) findSettled(ctx context.Context, prefix string) (*approval.Waiting, approval.Key, *Reply) {
	unknown := &Reply{Text: say(t.noSuchID, "id", prefix)}
	f, ok := t.Viewer.(Finder)
	if !ok {
		return nil, approval.Key{}, unknown
	}
	keys, err := f.Find(ctx, t.Workspaces, prefix)
	switch {
	case err != nil:
		return nil, approval.Key{}, &Reply{Text: t.unconfirmed, Err: err}
	case len(keys) == 0:
		return nil, approval.Key{}, unknown
	case len(keys) > 1:
		return nil, approval.Key{}, &Reply{Text: say(t.ambiguous, "id", prefix)}
	}
	return nil, keys[0], nil
}

// card decides about the card that was replied to.
func (t turn) card(ctx context.Context, cmd Command) Reply {
	p := t.Card.Pending
	if cmd.Kind == Question {
		if r, done := t.fromFacts(ctx, cmd.Text); done {
			return r
		}
	}
	a := t.answer(cmd)
	if why := approval.NotGrantable(p, a.Scope); why != "" {
		return Reply{Text: say(t.notHere, "code", cmd.Code, "why", t.style.renderer(p).reason(why))}
	}
	return t.decide(ctx, a, t.Card)
}

// answer translates the menu. What it does not know stays without a verdict,
// which nobody takes for an approval.
func (t turn) answer(cmd Command) approval.DecisionInput {
	a := approval.DecisionInput{Key: t.Card.Key(), Code: cmd.Code}
	switch cmd.Kind {
	case Question:
		a.Verdict, a.Feedback = approval.RequestMore, cmd.Text
	case Option:
		a.Verdict, a.Text = approval.Answered, t.Card.Pending.Options[cmd.Option-1]
	case Free:
		a.Verdict, a.Text = approval.Answered, cmd.Text
	}
	switch cmd.Code {
	case "1":
		a.Verdict, a.Scope = approval.Approved, approval.Once
	case "2":
		a.Verdict, a.Scope = approval.Approved, approval.Session
	case "3":
		a.Verdict, a.Feedback = approval.Denied, cmd.Text
	case "4":
		a.Verdict, a.Scope, a.Note = approval.Approved, approval.Once, cmd.Text
	case "5":
		a.Verdict, a.Override = approval.Overridden, cmd.Text
	case "6":
		a.Verdict, a.Scope = approval.Approved, approval.Always
	}
	return a
}

// fromFacts answers a question from the ruling and from what is known of the
// request, where that suffices. Nothing is written: what waits waits on.
func (t turn) fromFacts(ctx context.Context, question string) (Reply, bool) {
	r := t.style.renderer(t.Card.Pending)
	about := topicsOf(question)
	if question == "" {
		about = []topic{aboutWhy}
	}
	var text string
	if len(about) == 1 && about[0] == aboutWhy {
		if text = r.because(); text == "" && question == "" {
			text = t.noReason
		}
	} else if said, _, ok := r.answer(about); ok {
		text = said + "\n" + say(t.waitsOn, "id", Escape(t.Card.Pending.ShortID))
	}
	if text == "" {
		return Reply{}, false
	}
	return t.stillTrue(ctx, text)
}

// stillTrue is an answer about a request that waits. Of one that does not the
// person hears what became of it; a stranger hears nothing.
func (t turn) stillTrue(ctx context.Context, text string) (Reply, bool) {
	if t.CanDecide == nil {
		return Reply{Text: text}, true
	}
	a := approval.DecisionInput{Key: t.Card.Key(), PendingSHA256: t.Card.SHA256, By: t.From, Via: t.Via}
	if err := t.CanDecide(ctx, a); err != nil {
		return t.refused(err, a.Key.Workspace), true
	}
	return Reply{Text: text}, true
}

// because says why p waits for somebody; "" where no reason is given.
func (r renderer) because() string {
	if len(r.p.Ruling.Reasons) == 0 {
		return ""
	}
	text := say(r.words.because, "id", Escape(r.p.ShortID), "reasons", r.whyAsked(len(r.p.Ruling.Reasons)))
	if c := r.p.Ruling.Change; len(c) > 0 {
		text += "\n" + r.instead + ": " + r.said(c)
	}
	return text
}

// unanswered says why a question went to the agent.
func (r renderer) unanswered(question string) string {
	if _, claimed, _ := r.answer(topicsOf(question)); claimed {
		return r.onlyClaimed
	}
	return r.notFromFacts
}

func (t turn) decide(ctx context.Context, a approval.DecisionInput, w *approval.Waiting) Reply {
	a.By, a.Via = t.From, t.Via
	if w != nil {
		a.PendingSHA256 = w.SHA256
	}
	d, err := t.Decider.Decide(ctx, a)
	switch {
	case err != nil:
		return t.refused(err, a.Key.Workspace)
	case d == nil || d.Verdict != a.Verdict:
		return Reply{Text: t.unconfirmed, Err: errors.New("decide: no decision of that kind came back")}
	}
	return Reply{Text: t.confirm(a, d, w), Acted: true, Key: a.Key}
}

func (t turn) confirm(a approval.DecisionInput, d *approval.Decision, w *approval.Waiting) string {
	what, r := Escape(approval.ShortID(a.Key.ID)), t.style.renderer(&approval.Pending{})
	if w != nil {
		r = t.style.renderer(w.Pending)
		what = r.deed()
	}
	switch d.Verdict {
	case approval.Approved:
		return say(t.approved, "what", what) + say(t.runBefore, "time", t.style.clock(d.RunBefore, d.DecidedAt)) + t.howToUndo(d, w)
	case approval.Denied:
		return say(t.denied, "what", what)
	case approval.Overridden:
		return say(t.overridden, "what", what, "text", r.quote(a.Override))
	case approval.RequestMore:
		return say(t.asked, "what", what, "text", r.quote(a.Feedback)) + r.unanswered(a.Feedback)
	}
	return say(t.answered, "text", r.quote(a.Text))
}

// refused turns a refusal into one sentence. Whoever may not decide hears the
// same whatever there is, and no name.
func (t turn) refused(err error, workspace string) Reply {
	var r *approval.Refusal
	if !errors.As(err, &r) {
		r = &approval.Refusal{Reason: err}
	}
	switch {
	case errors.Is(r.Reason, approval.ErrNotAuthorized):
		return Reply{Text: t.notYours}
	case errors.Is(r.Reason, approval.ErrUnknown):
		return Reply{Text: t.gone}
	case errors.Is(r.Reason, approval.ErrDecided):
		if r.By == "" || r.Verdict == "" {
			return Reply{Text: hinted(t.decided, r.Hint)}
		}
		text := say(t.decidedBy, "verdict", t.status(string(r.Verdict)), "by", Escape(r.By), "time", t.style.clock(r.At, r.At))
		if held := t.style.PauseLine(workspace, r.At); held != "" && r.Verdict == approval.Approved && r.Hint == "" {
			text += "\n" + held // a hint would say how it ended
		}
		return Reply{Text: text}
	case errors.Is(r.Reason, approval.ErrTooLate):
		return Reply{Text: hinted(t.tooLate, r.Hint)}
	case errors.Is(r.Reason, approval.ErrNotApplicable):
		return Reply{Text: hinted(t.notPossible, r.Hint)}
	}
	return Reply{Text: t.unconfirmed, Err: err}
}

func hinted(sentence, hint string) string {
	if hint == "" {
		return sentence
	}
	return sentence + " (" + Escape(hint) + ")"
}

func (t turn) unclearText(cmd Command) string {
	switch cmd.Problem {
	case NeedsText:
		return say(t.needsText, "code", cmd.Code)
	case TakesNoText:
		return say(t.takesNoText, "code", cmd.Code)
	case IDTooShort:
		return t.shortID
	case OtherCard:
		return say(t.otherCard, "id", Escape(t.Card.Pending.ShortID))
	}
	switch {
	case t.Card == nil:
		return t.unclear
	case t.Card.Pending.Type == approval.TypeQuestion:
		return t.unclearAsk
	}
	return t.unclearCard
}
