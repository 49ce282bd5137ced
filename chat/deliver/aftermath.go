package deliver

import (
	"context"
	"sync"
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

// tellGrace is how long a message that is being sent may take after the end of the run.
const tellGrace = 2 * time.Second

// aftermath is what there is to tell now, "" if nothing.
func (st status) aftermath() aftermath {
	switch what := aftermath(st.Aftermath(st.pause != nil)); what {
	case "", tellPause:
		return what
	}
	return tellEnd
}

// hasToTell reports whether the place of a copy has to be told. Only one of several copies there is answered.
// Where messages can neither be edited nor replaced, each outcome is a new message anyway.
func (s *session) hasToTell(p *sentRecord, x *sentCopy, st status) bool {
	what := st.aftermath()
	switch {
	case what == "" || x.StaleReason != "" || x.Message == "" && x.SentAt.IsZero(),
		what == tellEnd && (!s.traits.Edits && !s.traits.OneWay || s.now().Sub(st.Record.EndedAt) > maxOutcomeAge),
		what == tellPause && s.traits.Letters != nil && s.needsNoLetter(x, st),
		what == tellPause && s.answering.in(x.Chat): // the answer may tell it
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

// tell replies to a card, and records that. If the daemon dies in between, it tells again.
func (s *session) tell(ctx context.Context, k approval.Key, x *sentCopy, st status) error {
	what := st.aftermath()
	msg := s.renderer(x.Language).aftermath(what, st).follow(s.messageOf(x))
	status := string(tellPause)
	if what == tellEnd {
		status = string(st.Record.Status)
	}
	msg.Key, msg.Title = k, s.titleAfter(x, status)
	if s.traits.OneWay {
		msg = s.newNotice(k, s.renderer(x.Language).aftermathNotice(what, st))
	}
	ctx, stop := outlive(ctx, tellGrace)
	defer stop()
	_, err := s.send(ctx, x.address(), msg.silent(s.isQuiet(k)))
	if err != nil && !never(err) {
		return err
	}
	if err != nil {
		s.jobFinished(x.Chat, err)
	}
	return s.sent.updateSent(k, changeCopy(x.Number, func(y *sentCopy) { y.Told = what }))
}

// outlive returns a context that ends this long after another one.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return late, func() { stop(); cancel() }
}

// aftermath is the message: what happened, the request, and why.
func (p renderer) aftermath(what aftermath, st status) Message {
	lines := []string{p.ApprovedInPause(st.Pending.SourceGroup, st.Decision), p.settledFoot(st.Pending)}
	if what == tellEnd {
		lines = []string{Truncate(p.Outcome(st.Record), p.maxText/8)}
	}
	return plain(append([]string{p.happened(what, st, p.Action(st.Pending))}, lines...)...)
}

// aftermathNotice is the same in the host's words.
func (p renderer) aftermathNotice(what aftermath, st status) chat.Notice {
	n := p.Notice(st.Pending)
	n.Title = p.happened(what, st, n.Question())
	return n
}

func (p renderer) happened(what aftermath, st status, to string) string {
	if what == tellEnd {
		what = aftermath(st.Record.Status)
	}
	return chat.Format(p.Aftermath[string(what)], "what", to)
}

// answering counts the texts of each chat whose answers are not known yet.
type answering struct {
	mu sync.Mutex
	of map[ID]int
}

func (a *answering) in(chatID ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[chatID] > 0
}

func (a *answering) add(chatID ID, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[ID]int{}
	}
	if a.of[chatID] += n; a.of[chatID] == 0 {
		delete(a.of, chatID)
	}
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
