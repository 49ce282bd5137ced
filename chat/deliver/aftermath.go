package deliver

import (
	"context"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// aftermath is what approvers are told of an approved request, in a new message.
type aftermath string

const (
	tellPause aftermath = "paused" // it waits for the end of a pause
	tellEnd   aftermath = "ended"  // it failed, was interrupted, or expired
)

const (
	// maxTellings is how often an outcome is told if the daemon died each time before it recorded that.
	maxTellings = 2
	// tellGrace is how long a message that is being sent may take after the end of the run.
	tellGrace = 2 * time.Second
)

// aftermath is what there is to tell now, "" if nothing.
func (st status) aftermath() aftermath {
	d := st.Decision
	bad := []approval.Status{approval.StatusFailed, approval.StatusInterrupted, approval.StatusExpired}
	switch {
	case d == nil || d.Verdict != approval.Approved || st.Pending == nil:
	case st.Record != nil && slices.Contains(bad, st.Record.Status):
		return tellEnd
	case st.Record == nil && st.Claim == nil && st.pause != nil:
		return tellPause
	}
	return ""
}

// hasToTell reports whether the place of a copy has to be told. Only one of several copies there is answered.
// Where messages cannot be edited, each outcome is a new message anyway.
func (s *session) hasToTell(p *sentRecord, x *sentCopy, st status) bool {
	what := st.aftermath()
	switch {
	case what == "" || x.StaleReason != "" || x.Message == "" && x.SentAt.IsZero(),
		what == tellEnd && (!s.traits.Edits || s.now().Sub(st.Record.EndedAt) > maxOutcomeAge),
		what == tellPause && s.traits.Letters != nil && s.needsNoLetter(x, st):
		return false
	}
	return p.find(func(y *sentCopy) bool { return y.address() == x.address() && (y.Told == what || y.Told == tellEnd) }) == nil
}

// needsNoLetter reports whether the approver of a letter need not be told of a pause: the answer to the approval
// told it, or this approver did not decide, and outcomes are not wanted.
func (s *session) needsNoLetter(x *sentCopy, st status) bool {
	if s.DecidedBy(st.Decision, x.Chat) {
		return st.pause.Since.Before(st.Decision.DecidedAt)
	}
	return !s.traits.Outcomes
}

// messageOf is the message that shows a copy: its card, or its digest; "" if that has ended.
func (s *session) messageOf(x *sentCopy) ID {
	if d := s.digest(x.Digest); x.Message == "" && d != nil {
		return d.Message
	}
	return x.Message
}

// tell replies to a card. The attempt is recorded before: if the daemon dies before it knows the result, it tells
// again, but not for ever.
func (s *session) tell(ctx context.Context, k approval.Key, x *sentCopy, st status) error {
	what := st.aftermath()
	var err error
	if x.Tellings < maxTellings {
		if err := s.sent.update(k, changeCopy(x.Number, func(y *sentCopy) { y.Tellings++ })); err != nil {
			return err
		}
		msg := s.renderer(x.Language).aftermath(what, st)
		msg.Key, msg.Title = k, "Re: "+x.Title
		ctx, stop := outlive(ctx, tellGrace)
		defer stop()
		_, err = s.send(ctx, x.address(), msg.follow(s.messageOf(x)).silent(s.isQuiet(k)))
	}
	if never(err) {
		s.jobFinished(x.Chat, err)
		err = nil
	}
	saved := s.sent.updateSent(k, changeCopy(x.Number, func(y *sentCopy) {
		if y.Tellings = 0; err == nil {
			y.Told = what
		}
	}))
	if err == nil {
		err = saved
	}
	return err
}

// outlive returns a context that ends this long after another one.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return late, func() { stop(); cancel() }
}

// aftermath is the message: what happened, the request, and why.
func (p renderer) aftermath(what aftermath, st status) Message {
	if what == tellPause {
		return plain(p.ApprovedInPause(st.Pending.SourceGroup, st.Decision), p.Line(st.Pending))
	}
	title := chat.Format(p.Aftermath[st.Record.Status], "what", p.Action(st.Pending))
	return plain(title, Truncate(p.Outcome(st.Record), p.maxText/8))
}

// notePauseTold records that approvers have read in a chat that a request waits for the end of a pause.
func (s *session) notePauseTold(ctx context.Context, k approval.Key, at Address) {
	st, err := s.status(ctx, k)
	if err != nil || st.aftermath() != tellPause {
		return
	}
	s.log(s.sent.updateSent(k, func(p *sentRecord) error {
		for _, x := range p.Copies {
			if x.Chat == at.Chat && x.Told == "" {
				x.Told = tellPause
			}
		}
		return nil
	}))
}
