package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// Status is the state of the daemon as the caller may see it.
func (c *Client) Status(ctx context.Context) (*home.State, error) {
	return call(ctx, c, opStatus, none{})
}

// Waiting is a request that waits for a decision, or for it to be carried out.
type Waiting struct {
	approval.StoredPending
	Decision *approval.Decision // nil: none
}

// Waiting lists pending requests of a workspace ("": of all), oldest first.
func (c *Client) Waiting(ctx context.Context, workspace string) ([]Waiting, error) {
	docs, err := call(ctx, c, opWaiting, waitingQuery{workspace})
	if err != nil {
		return nil, err
	}
	return waitingOf(docs)
}

func waitingOf(docs []waitingDoc) ([]Waiting, error) {
	list := make([]Waiting, 0, len(docs))
	for _, d := range docs {
		w, err := d.stored()
		if err != nil {
			return nil, err
		}
		one := Waiting{StoredPending: *w}
		if len(d.Decision) > 0 {
			if one.Decision, err = approval.ParseDecision(d.Decision, w.Key()); err != nil {
				return nil, err
			}
		}
		list = append(list, one)
	}
	return list, nil
}

// Find lists the requests whose id begins with prefix, in a workspace ("": in all).
func (c *Client) Find(ctx context.Context, workspace, prefix string) ([]approval.Key, error) {
	return call(ctx, c, opFind, findQuery{workspace, prefix})
}

// Story is what is kept of one request: what waits, or how it ended.
type Story struct {
	Waiting   *approval.StoredPending
	Record    *approval.Record
	Asked     *approval.Pending  // the record's
	Decision  *approval.Decision // the record's, or one that is not carried out yet
	Running   bool               // it was started, and has not ended
	KeyEnded  string             // when and by whom the key of a waiting request was revoked
	Redeemed  []byte             // the mark of a redeemed receipt
	Timeline  []event.Entry      // oldest first
	Damaged   error              // why the timeline is incomplete
	Foot      string             // last line of a card
	Retention time.Duration      // how long records are kept
}

// Story returns what is kept of one request. It is empty if nothing is.
func (c *Client) Story(ctx context.Context, k approval.Key, timeline bool) (s Story, err error) {
	d, err := call(ctx, c, opStory, storyQuery{OneQuery{k.Workspace, k.ID}, timeline})
	if err != nil {
		return s, err
	}
	if d.Waiting != nil {
		s.Waiting, err = d.Waiting.stored()
	}
	if err == nil && len(d.Record) > 0 {
		s.Record, err = approval.ParseRecord(d.Record, k)
	}
	if err == nil && len(d.Asked) > 0 {
		s.Asked, err = approval.ParsePending(d.Asked, k)
	}
	if err == nil && len(d.Decision) > 0 {
		s.Decision, err = approval.ParseDecision(d.Decision, k)
	}
	s.Redeemed, s.Timeline, s.Damaged, s.Foot = d.Redeemed, d.Timeline, damaged(d.Damaged), d.Foot
	s.Running, s.KeyEnded = d.Running, d.KeyEnded
	s.Retention, _ = time.ParseDuration(d.Retention)
	return s, err
}

// Shown is the request that an approver was shown, or is shown now. nil: none was.
func (s *Story) Shown() *approval.Pending {
	if s.Waiting != nil {
		return s.Waiting.Pending
	}
	return s.Asked
}

// damaged is the error of a log that could not be read completely.
func damaged(text string) error {
	if text == "" {
		return nil
	}
	return console.Wrap(console.ExitError, damagedLog(text), "the shown entries are correct, older ones are unreadable; run permesso audit verify")
}

// damagedLog is an audit.ErrDamaged as the daemon described it.
type damagedLog string

// Error implements error.
func (e damagedLog) Error() string { return string(e) }

// Is implements errors.Is.
func (damagedLog) Is(target error) bool { return target == audit.ErrDamaged }

// Acknowledge ends the alarm of the audit log.
func (c *Client) Acknowledge(ctx context.Context, reason string) (*audit.Alarm, error) {
	return call(ctx, c, opAcknowledge, struct{ Body AcknowledgeBody }{AcknowledgeBody{reason}})
}

// Style is how cards look on this terminal.
func (c *Client) Style() chat.Style {
	return chat.Style{
		Language: c.Language, Zone: time.Local, Redact: home.NewRedaction(), Local: true,
		Paused:  func(ws string) *chat.Pause { return home.CardPause(c.PauseOf(ws)) },
		Earlier: c.earlier,
	}
}

// earlier finds the request that another one resubmits.
func (c *Client) earlier(p *approval.Pending) *chat.EarlierRequest {
	if !approval.ValidID(p.Resubmits) {
		return nil
	}
	e, _ := call(context.Background(), c, opEarlier, OneQuery{p.SourceGroup, p.RequestID}) // without it the card shows no changes
	return e
}

// Reveal returns a request to show what its card masks; the audit log then says so.
func (c *Client) Reveal(ctx context.Context, k approval.Key) (*approval.StoredPending, error) {
	d, err := call(ctx, c, opReveal, revealBody{OneQuery: OneQuery{k.Workspace, k.ID}})
	if err != nil {
		return nil, err
	}
	return d.stored()
}

// ProposeRule returns the rule that would allow a request.
func (c *Client) ProposeRule(ctx context.Context, k approval.Key) (chat.Proposal, error) {
	return call(ctx, c, opRule, OneQuery{k.Workspace, k.ID})
}

// Decide decides a request as the caller.
func (c *Client) Decide(ctx context.Context, a decide.Input) (*approval.Decision, error) {
	d, err := call(ctx, c, opDecide, decideBody{OneQuery{a.Key.Workspace, a.Key.ID}, VerdictBody{
		PendingSHA256: a.PendingSHA256, Verdict: a.Verdict, Code: a.Code, Scope: a.Scope,
		Note: a.Note, Override: a.Override, Feedback: a.Feedback, Answer: a.Text, Commands: a.Commands,
		ClaimedBy: a.ClaimedBy,
	}})
	return decided(d, a.Key, err)
}

// Cancel cancels a pending request as the operator, with the reason in Feedback.
func (c *Client) Cancel(ctx context.Context, a decide.Input) (*approval.Decision, error) {
	d, err := call(ctx, c, opCancel, cancelQuery{OneQuery{a.Key.Workspace, a.Key.ID}, a.PendingSHA256, a.Feedback})
	return decided(d, a.Key, err)
}

func decided(doc []byte, k approval.Key, err error) (*approval.Decision, error) {
	if err != nil {
		return nil, err
	}
	x, err := approval.ParseDecision(doc, k)
	if err != nil {
		return nil, fmt.Errorf("the decision is not confirmed: %w", err)
	}
	return x, nil
}

// History lists requests from the log, newest first. With an error it also returns the
// requests that could be read.
func (c *Client) History(ctx context.Context, q HistoryQuery) (found []*read.Request, more bool, err error) {
	more, err = c.eachRequest(ctx, q, func(r *read.Request) error {
		found = append(found, r)
		return nil
	}, func() { found = nil })
	return found, more, err
}

// EachRequest calls each for requests from the log, newest first, while the log is read. It
// returns the error of each; after another one it has called each for those that could be read.
func (c *Client) EachRequest(ctx context.Context, q HistoryQuery, each func(*read.Request) error) (more bool, err error) {
	return c.eachRequest(ctx, q, each, nil)
}

// eachRequest begins anew if the daemon ends: after it has called each only if forget is given,
// which is called then.
func (c *Client) eachRequest(ctx context.Context, q HistoryQuery, each func(*read.Request) error, forget func()) (more bool, err error) {
	begun := false
	counted := func(r *read.Request) error {
		begun = true
		return each(r)
	}
	for tries := 0; ; tries++ {
		if c.service != nil {
			end, err := c.service.eachRequest(c.caller, &q, each)
			return end.More, errors.Join(err, damaged(end.Damaged))
		}
		end, err := c.streamHistory(ctx, q, counted)
		lost, ok := errors.AsType[*lostError](err)
		switch {
		case !ok:
			return end.More, errors.Join(err, damaged(end.Damaged))
		case begun && forget == nil:
			return false, console.Fail(console.ExitError, "try again", "%s; the list is incomplete", c.ending(ctx))
		}
		if err := c.afterLoss(ctx, lost, change{}, tries); err != nil {
			return false, err
		}
		if forget != nil {
			forget()
		}
	}
}

func (c *Client) streamHistory(ctx context.Context, q HistoryQuery, each func(*read.Request) error) (end historyEnd, err error) {
	path, _, err := encodeInput(historyPath, q)
	if err != nil {
		return end, err
	}
	var stopped error
	err = c.ask(ctx, http.MethodGet, path, nil, func(r io.Reader) error {
		lines, err := newSpool(r)
		if err != nil {
			return err
		}
		defer lines.Close()
		d := jsontext.NewDecoder(lines)
		for {
			var line historyLine
			switch err := json.UnmarshalDecode(d, &line); {
			case errors.Is(err, io.EOF):
				return io.ErrUnexpectedEOF // without an end
			case err != nil:
				return err
			case line.Problem != nil:
				stopped = problemFrom(line.Problem)
			case line.End != nil:
				end = *line.End
				return nil
			default:
				stopped = each(line.Request)
			}
			if stopped != nil {
				return stopped
			}
		}
	})
	return end, cmp.Or(stopped, err)
}

// Stats returns the statistics of requests, as far as the log can be read.
func (c *Client) Stats(ctx context.Context, q HistoryQuery) (*read.Stats, error) {
	d, err := call(ctx, c, opStats, q)
	return d.Stats, errors.Join(err, damaged(d.Damaged))
}

// Today returns what agents did since a time, in a workspace or in all. An error beside it says that the log is damaged.
func (c *Client) Today(ctx context.Context, workspace string, since time.Time) (*chat.Day, error) {
	d, err := call(ctx, c, opToday, todayQuery{workspace, since})
	return d.Day, errors.Join(err, damaged(d.Damaged))
}

// Tail returns the newest entries of the audit log, oldest first.
func (c *Client) Tail(ctx context.Context, lines int) ([]audit.Line, error) {
	return call(ctx, c, opTail, tailQuery{lines})
}

// Grants lists grants, newest first.
func (c *Client) Grants(ctx context.Context) ([]grant.Use, error) {
	return call(ctx, c, opGrants, none{})
}

// AddGrant creates a grant.
func (c *Client) AddGrant(ctx context.Context, b GrantBody) (*grant.Grant, error) {
	return call(ctx, c, opGrantAdd, struct{ Body GrantBody }{b})
}

// Revoke revokes a grant by its id or the beginning of it: "revoked", or "no-op".
func (c *Client) Revoke(ctx context.Context, id string) (result string, err error) {
	return call(ctx, c, opRevoke, grantQuery{id})
}

// Taints lists taints by workspace and session.
func (c *Client) Taints(ctx context.Context) ([]Taints, error) {
	return call(ctx, c, opTaints, none{})
}

// ClearTaints clears the taints of a workspace or session, and returns them.
func (c *Client) ClearTaints(ctx context.Context, b ClearBody) ([]string, error) {
	return call(ctx, c, opClearTaints, struct{ Body ClearBody }{b})
}

// Pause pauses executions in a workspace ("": in all).
func (c *Client) Pause(ctx context.Context, workspace, reason string) (Paused, error) {
	return call(ctx, c, opPause, struct{ Body PauseBody }{PauseBody{workspace, reason}})
}

// Resume ends the pause of a workspace ("": of all).
func (c *Client) Resume(ctx context.Context, workspace string) (Resumed, error) {
	return call(ctx, c, opResume, resumeQuery{workspace})
}

// Link returns a link that opens the web UI once, and how long it is valid.
func (c *Client) Link(ctx context.Context) (address string, life time.Duration, err error) {
	d, err := call(ctx, c, opLink, struct{ Body none }{})
	return d.URL, time.Duration(d.LifeSec) * time.Second, err
}

// Redeem marks the receipt of a request as used.
func (c *Client) Redeem(ctx context.Context, k approval.Key) error {
	_, err := call(ctx, c, opRedeem, struct{ Body RedemptionBody }{RedemptionBody{k.Workspace, k.ID}})
	return err
}

// Keys lists the keys of the HTTP API, oldest first.
func (c *Client) Keys(ctx context.Context) (KeyList, error) {
	return call(ctx, c, opKeys, none{})
}

// CreateKey creates a key of the HTTP API.
func (c *Client) CreateKey(ctx context.Context, b KeyBody) (NewKey, error) {
	return call(ctx, c, opKeyCreate, struct{ Body KeyBody }{b})
}

// RevokeKey revokes a key by its id or the beginning of it.
func (c *Client) RevokeKey(ctx context.Context, id string) (RevokedKey, error) {
	return call(ctx, c, opKeyRevoke, keyQuery{id})
}

// PauseOf is the pause of a workspace, nil if it is not paused.
func (c *Client) PauseOf(workspace string) *ipc.Pause {
	for _, name := range []string{workspace, ipc.AllWorkspaces} {
		if i := slices.IndexFunc(c.Paused, func(p ipc.Pause) bool { return p.Workspace == name }); i >= 0 {
			return &c.Paused[i]
		}
	}
	return nil
}
