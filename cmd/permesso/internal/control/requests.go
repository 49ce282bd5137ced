package control

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
)

type none struct{}

// Hello is what a client learns first.
type Hello struct {
	PID        int         `json:"pid"`
	Home       string      `json:"home"`
	Operator   bool        `json:"operator"`
	Language   string      `json:"language"`
	Workspaces []string    `json:"workspaces"` // where the caller sees requests
	Paused     []ipc.Pause `json:"paused"`

	// For the operator: the file that the daemon serves, and why its last change was refused.
	Config      string `json:"config,omitempty"`
	ConfigIssue string `json:"config_issue,omitempty"`
	ConfigHint  string `json:"config_hint,omitempty"`
}

var opHello = get("hello", "", "Who the caller is, and what is paused", (*Service).hello)

func (s *Service) hello(_ context.Context, c *httpapi.Caller, _ *none) (Hello, error) {
	paused, err := s.pauses(c)
	h := Hello{PID: os.Getpid(), Home: s.Home.Layout.Home, Operator: c.Operator, Language: c.Language, Workspaces: home.WorkspaceNames(s.Home.Current())}
	h.Workspaces = slices.DeleteFunc(h.Workspaces, func(ws string) bool { return !c.Sees(ws) })
	h.Paused = paused
	if c.Operator && s.Serves != nil {
		h.Config, h.ConfigIssue, h.ConfigHint = s.Serves()
	}
	return h, err
}

// pauses are those of the workspaces that the caller sees.
func (s *Service) pauses(c *httpapi.Caller) ([]ipc.Pause, error) {
	all, err := s.Home.Store.Pauses()
	return slices.DeleteFunc(all, func(p ipc.Pause) bool { return p.Workspace != ipc.AllWorkspaces && !c.Sees(p.Workspace) }), err
}

var opStatus = get("status", "/status", "Status of the daemon", (*Service).status)

func (s *Service) status(ctx context.Context, c *httpapi.Caller, _ *none) (*home.State, error) {
	st, err := s.Home.State(s.Running)
	if err != nil {
		return nil, err
	}
	list, _ := s.Viewer.Waiting(ctx, nil) // what cannot be read counts as pending
	for _, w := range list {
		if d, _ := s.Viewer.Decided(ctx, w); d != nil {
			ws := w.Pending.SourceGroup
			st.Pending[ws] = max(0, st.Pending[ws]-1)
			st.Held[ws]++
		}
	}
	if !c.Operator {
		st = st.Only(c.Workspaces)
	}
	return st, nil
}

// waitingDoc is a verified pending.
type waitingDoc struct {
	Workspace string `json:"workspace"`
	ID        string `json:"request_id"`
	Pending   []byte `json:"pending"`
	SHA256    string `json:"pending_sha256"`
	Decision  []byte `json:"decision,omitempty"` // not carried out yet
}

func docOf(w approval.StoredPending) (waitingDoc, error) {
	body, err := w.Pending.Encode()
	return waitingDoc{Workspace: w.Pending.SourceGroup, ID: w.Pending.RequestID, Pending: body, SHA256: w.SHA256}, err
}

func (d waitingDoc) stored() (*approval.StoredPending, error) {
	p, err := approval.ParsePending(d.Pending, approval.Key{Workspace: d.Workspace, ID: d.ID})
	return &approval.StoredPending{Pending: p, SHA256: d.SHA256}, err
}

type waitingQuery struct {
	Workspace string `query:"workspace" doc:"Only requests of this workspace."`
}

var opWaiting = get("waiting", "/waiting", "Pending requests, oldest first", (*Service).waiting)

func (s *Service) waiting(ctx context.Context, c *httpapi.Caller, in *waitingQuery) ([]waitingDoc, error) {
	names, err := s.workspaces(c, in.Workspace)
	if err != nil {
		return nil, err
	}
	list, err := s.Viewer.Waiting(ctx, names)
	if err != nil {
		return nil, err
	}
	docs := make([]waitingDoc, 0, len(list))
	for _, w := range list {
		if !s.may(c, w.Pending.SourceGroup, w.Pending) {
			continue
		}
		d, err := docOf(w)
		if err != nil {
			return nil, err
		}
		if x, _ := s.Viewer.Decided(ctx, w); x != nil {
			if d.Decision, err = x.Encode(); err != nil {
				return nil, err
			}
		}
		docs = append(docs, d)
	}
	return docs, nil
}

type findQuery struct {
	Workspace string `query:"workspace" doc:"Only requests of this workspace."`
	Prefix    string `query:"prefix" doc:"The beginning of the id."`
}

var opFind = get("find", "/requests", "Find requests by the beginning of their id", (*Service).find)

func (s *Service) find(ctx context.Context, c *httpapi.Caller, in *findQuery) ([]approval.Key, error) {
	names, err := s.workspaces(c, in.Workspace)
	if err != nil {
		return nil, nil // no such request, whatever the workspace
	}
	keys, err := s.Viewer.Find(ctx, names, in.Prefix)
	return slices.DeleteFunc(keys, func(k approval.Key) bool { return !s.visible(c, k) }), err
}

// visible reports whether the caller may see one request.
func (s *Service) visible(c *httpapi.Caller, k approval.Key) bool {
	if !approval.ValidName(k.ID) || !c.Sees(k.Workspace) || !ipc.ValidWorkspace(k.Workspace) {
		return false
	}
	w, err := s.Viewer.Pending(k)
	return c.Operator || err == nil && (w == nil || s.may(c, k.Workspace, w.Pending))
}

// OneQuery names one request. It is exported because the library reads only exported
// embedded types.
type OneQuery struct {
	Workspace string `path:"workspace"`
	ID        string `path:"id"`
}

func (q OneQuery) key() approval.Key { return approval.Key{Workspace: q.Workspace, ID: q.ID} }

type storyQuery struct {
	OneQuery
	Timeline bool `query:"timeline" doc:"Include the entries of the audit log."`
}

// storyDoc is what is kept of one request. Documents are bytes, so that they stay as they
// were signed.
type storyDoc struct {
	Waiting   *waitingDoc   `json:"waiting"`
	Record    []byte        `json:"record"`
	Asked     []byte        `json:"asked"`               // the pending in the record
	Decision  []byte        `json:"decision"`            // the record's, or one that is not carried out yet
	Running   bool          `json:"running"`             // it was started, and has not ended
	KeyEnded  string        `json:"key_ended,omitempty"` // when and by whom the key of a waiting request was revoked
	Redeemed  []byte        `json:"redeemed"`
	Timeline  []event.Entry `json:"timeline"`
	Damaged   string        `json:"damaged"` // why the timeline is incomplete
	Foot      string        `json:"foot"`
	Retention string        `json:"retention"` // how long records are kept
}

var opStory = get("story", "/requests/{workspace}/{id}", "All that is kept of one request", (*Service).story)

func (s *Service) story(ctx context.Context, c *httpapi.Caller, in *storyQuery) (d storyDoc, err error) {
	k := in.key()
	if !s.visible(c, k) {
		return d, nil
	}
	st, err := s.Viewer.Story(ctx, k)
	if err != nil {
		return d, err
	}
	d.Retention = s.Home.Current().Retention.Records.String()
	var asked time.Time
	switch {
	case st.Record != nil:
		asked = st.Record.RequestedAt
		d.Record, err = st.Record.Encode()
		if err == nil && st.Pending != nil {
			d.Asked, err = st.Pending.Encode()
		}
		if err == nil && st.Decision != nil {
			d.Decision, err = st.Decision.Encode()
		}
		d.Redeemed, _ = s.Home.Store.Read(ctx, approval.DocRedeemed, k) // mostly there is none
	case st.Pending != nil:
		d.Foot, asked = s.Home.AuditFoot(), st.Pending.Timestamp
		var w waitingDoc
		w, err = docOf(approval.StoredPending{Pending: st.Pending, SHA256: st.SHA256})
		d.Waiting, d.Running, d.KeyEnded = &w, st.Claim != nil, s.keyEnded(st.Pending.ClientID)
		if err == nil && st.Decision != nil {
			d.Decision, err = st.Decision.Encode()
		}
	}
	if in.Timeline {
		var logErr error
		if d.Timeline, logErr = read.Timeline(s.Home.ReadLog, k, asked); logErr != nil {
			d.Damaged = logErr.Error()
		}
	}
	return d, err
}

var opEarlier = get("earlier", "/requests/{workspace}/{id}/earlier", "The request that a pending one resubmits",
	(*Service).earlier)

func (s *Service) earlier(_ context.Context, c *httpapi.Caller, in *OneQuery) (*chat.EarlierRequest, error) {
	w, err := s.pending(c, in.key())
	if w == nil || err != nil {
		return nil, err
	}
	e := home.Earlier(s.Viewer)(w.Pending)
	if e == nil || !c.Sees(e.Request.SourceGroup) {
		return nil, nil
	}
	return e, nil
}

// pending is a pending that the caller may see, or nil.
func (s *Service) pending(c *httpapi.Caller, k approval.Key) (*approval.StoredPending, error) {
	if !s.visible(c, k) {
		return nil, nil
	}
	return s.Viewer.Pending(k)
}

// VerdictBody is a decision of a local caller.
type VerdictBody struct {
	PendingSHA256 string           `json:"pending_sha256,omitempty"`
	Verdict       approval.Verdict `json:"verdict,omitempty"`
	Code          string           `json:"code,omitempty"`
	Scope         approval.Scope   `json:"scope,omitempty"`
	Note          string           `json:"note,omitempty"`
	Override      string           `json:"override,omitempty"`
	Feedback      string           `json:"feedback,omitempty"`
	Answer        string           `json:"answer,omitempty"`
	Commands      string           `json:"commands,omitempty"`
	ClaimedBy     string           `json:"claimed_by,omitempty"`
}

// Input is the decision as a decider takes it. The caller adds the person.
func (b VerdictBody) Input(k approval.Key) decide.Input {
	return decide.Input{
		Key: k, PendingSHA256: b.PendingSHA256, Verdict: b.Verdict, Code: b.Code, Scope: b.Scope,
		Note: b.Note, Override: b.Override, Feedback: b.Feedback, Text: b.Answer, Commands: b.Commands,
		ClaimedBy: b.ClaimedBy,
	}
}

type decideBody struct {
	OneQuery
	Body VerdictBody
}

var opDecide = post("decide", "/requests/{workspace}/{id}/decision", "Decide a request", (*Service).decide)

func (s *Service) decide(ctx context.Context, c *httpapi.Caller, in *decideBody) ([]byte, error) {
	if k := in.key(); !approval.ValidID(k.ID) || !ipc.ValidWorkspace(k.Workspace) || !c.Sees(k.Workspace) {
		// The same refusal wherever the caller may not decide.
		if s.Decider.Refused != nil {
			s.Decider.Refused(approval.Key{}, c.Person, c.Via)
		}
		return nil, &decide.Refusal{Reason: decide.ErrNotAuthorized}
	}
	a := in.Body.Input(in.key())
	a.By, a.Via = c.Person, c.Via
	x, err := s.Decider.Decide(ctx, a)
	if err != nil {
		return nil, err
	}
	return x.Encode()
}

var opCancel = del("cancel", "/requests/{workspace}/{id}", "Cancel a pending request", (*Service).cancel).forOperator()

type cancelQuery struct {
	OneQuery
	PendingSHA256 string `query:"pending_sha256" doc:"Cancel only the pending with this digest."`
	Reason        string `query:"reason" doc:"Why, for the agent and the approvers."`
}

func (s *Service) cancel(ctx context.Context, c *httpapi.Caller, in *cancelQuery) ([]byte, error) {
	d, err := s.Decider.Cancel(ctx, decide.Input{Key: in.key(), PendingSHA256: in.PendingSHA256, Feedback: in.Reason, By: c.Person, Via: c.Via})
	if err != nil {
		return nil, err
	}
	return d.Encode()
}

// linkDoc opens the web UI in a browser, once.
type linkDoc struct {
	URL     string `json:"url"`
	LifeSec int    `json:"life_sec"`
}

var opLink = post("link", "/link", "A link that opens the web UI once, as the caller", (*Service).link)

func (s *Service) link(_ context.Context, c *httpapi.Caller, _ *struct{ Body none }) (linkDoc, error) {
	if s.Link == nil {
		return linkDoc{}, ErrNoUI(s.Running)
	}
	address, life, err := s.Link(c)
	if address == "" && err == nil {
		err = ErrNoUI(true)
	}
	return linkDoc{address, int(life / time.Second)}, err
}

// RedemptionBody names the request of a receipt.
type RedemptionBody struct {
	Workspace string `json:"workspace"`
	RequestID string `json:"request_id"`
}

var opRedeem = post("redeem", "/redemptions", "Mark a receipt as used", (*Service).redeem).forOperator()

func (s *Service) redeem(ctx context.Context, c *httpapi.Caller, in *struct{ Body RedemptionBody }) (none, error) {
	key := approval.Key{Workspace: in.Body.Workspace, ID: in.Body.RequestID}
	err := s.Home.MarkRedeemed(ctx, s.Keys, key, c.Person.Name)
	switch {
	case errors.Is(err, fs.ErrExist):
		return none{}, console.Fail(console.ExitRefused, "request a new approval", "the receipt of %s is already redeemed", key)
	case errors.Is(err, fs.ErrNotExist):
		return none{}, console.Fail(console.ExitRefused, "redeem it after the response exists", "the record of %s is not written yet", key)
	case err == nil:
		s.Redeemed(key, c.Person.Name, c.Via)
	}
	return none{}, err
}

// HistoryQuery selects requests. The zero HistoryQuery selects all.
type HistoryQuery struct {
	Since     time.Time `query:"since" doc:"Requested at this time or later."`
	Until     time.Time `query:"until" doc:"Requested before."`
	Workspace string    `query:"workspace"`
	Tool      string    `query:"tool" doc:"The tool, or without a tool the action type."`
	Status    string    `query:"status"`
	By        string    `query:"by" doc:"The person who decided."`
	Prefix    string    `query:"prefix" doc:"The beginning of the id."`
	Limit     int       `query:"limit" minimum:"0" doc:"0 is no limit."`
}

func (q *HistoryQuery) match(r *read.Request) bool {
	return (q.Tool == "" || r.Tool == q.Tool || r.Tool == "" && r.ActionType == q.Tool) &&
		(q.Status == "" || string(r.Status) == q.Status) &&
		(q.By == "" || r.By == q.By || r.ByID == q.By) &&
		approval.BeginsID(r.Key.ID, q.Prefix)
}

// historyLine is one line of what the log has of requests, newest first: a request, or at
// last the end, or why there is none.
type historyLine struct {
	Request *read.Request    `json:"request,omitzero"`
	End     *historyEnd      `json:"end,omitzero"`
	Problem *httpapi.Problem `json:"problem,omitzero"`
}

type historyEnd struct {
	More    bool   `json:"more"`
	Damaged string `json:"damaged"` // why older requests are missing
}

// eachRequest calls each for the selected requests, newest first. It keeps them only if there
// is a limit.
func (s *Service) eachRequest(c *httpapi.Caller, in *HistoryQuery, each func(*read.Request) error) (end historyEnd, err error) {
	q, err := s.query(c, in)
	if err != nil {
		return end, err
	}
	if q.Limit == 0 {
		err = s.Viewer.Each(q, each)
	} else {
		var found []*read.Request
		found, end.More, err = s.Viewer.Requests(q)
		for _, r := range found {
			if sendErr := each(r); sendErr != nil {
				return end, sendErr
			}
		}
	}
	if errors.Is(err, audit.ErrDamaged) {
		end.Damaged, err = err.Error(), nil
	}
	return end, err
}

func (s *Service) serveHistory() httpapi.LocalOperation {
	return httpapi.Stream("local-history", historyPath, "Requests from the audit log, newest first", func(_ context.Context, c *httpapi.Caller, q *HistoryQuery, send func(any) error) error {
		end, err := s.eachRequest(c, q, func(r *read.Request) error { return send(historyLine{Request: r}) })
		if err != nil {
			return send(historyLine{Problem: s.problem(c, err)})
		}
		return send(historyLine{End: &end})
	})
}

const historyPath = "/history"

// query selects what the caller may see.
func (s *Service) query(c *httpapi.Caller, q *HistoryQuery) (read.Query, error) {
	names, err := s.workspaces(c, q.Workspace)
	return read.Query{Workspaces: names, Since: q.Since, Until: q.Until, Limit: q.Limit, Match: q.match}, err
}

// statsDoc is statistics of requests.
type statsDoc struct {
	Stats   *read.Stats `json:"stats"`
	Damaged string      `json:"damaged"`
}

var opStats = get("stats", "/stats", "Statistics of requests and decisions", (*Service).stats)

func (s *Service) stats(_ context.Context, c *httpapi.Caller, in *HistoryQuery) (d statsDoc, err error) {
	q, err := s.query(c, in)
	if err != nil {
		return d, err
	}
	d.Stats, err = s.Viewer.Stats(q)
	if errors.Is(err, audit.ErrDamaged) {
		d.Damaged, err = err.Error(), nil
	}
	return d, err
}

type todayQuery struct {
	Workspace string    `query:"workspace" doc:"Only requests of this workspace."`
	Since     time.Time `query:"since" doc:"Requested at this time or later."`
}

var opToday = get("today", "/today", "What agents did, for one message", (*Service).today)

type todayDoc struct {
	Day     *chat.Day `json:"day"`
	Damaged string    `json:"damaged"`
}

func (s *Service) today(ctx context.Context, c *httpapi.Caller, in *todayQuery) (d todayDoc, err error) {
	names, err := s.workspaces(c, in.Workspace)
	if err != nil {
		return d, err
	}
	var grants []grant.Use
	switch m, err := s.Memory(); {
	case err == nil:
		grants = m.Grants()
	case !errors.Is(err, audit.ErrDamaged): // the rest can be told without the grants
		return d, err
	}
	style := s.Home.Style()
	style.Language = cmp.Or(c.Language, style.Language)
	d.Day, err = s.Home.Day(ctx, s.Viewer, home.DayQuery{
		Workspaces: names, Since: in.Since, Grants: grants, Style: style,
		May: func(ws string, p *approval.Pending) bool { return s.may(c, ws, p) },
	})
	if errors.Is(err, audit.ErrDamaged) {
		d.Damaged, err = err.Error(), nil
	}
	return d, err
}

type tailQuery struct {
	Lines int `query:"lines" minimum:"0" maximum:"100000" doc:"How many of the newest entries."`
}

var opTail = get("audit", "/audit", "The newest entries of the audit log", (*Service).tail)

func (s *Service) tail(ctx context.Context, c *httpapi.Caller, in *tailQuery) ([]audit.Line, error) {
	if !c.Operator {
		return s.tailOf(ctx, c, in.Lines)
	}
	t := &audit.Tail{FS: s.Home.FS, Dir: s.Home.Layout.Audit()}
	lines, err := t.Last(in.Lines)
	return lines, ExplainNoLog(s.Home, err)
}

// AcknowledgeBody is why the operator ends the alarm of the audit log.
type AcknowledgeBody struct {
	Reason string `json:"reason"`
}

var opAcknowledge = post("audit-acknowledge", "/audit/acknowledge", "End the alarm of the audit log",
	(*Service).acknowledge).forOperator()

// acknowledge removes the alarm only when the entry that says why is durable.
func (s *Service) acknowledge(_ context.Context, c *httpapi.Caller, in *struct{ Body AcknowledgeBody }) (*audit.Alarm, error) {
	dir := s.Home.Layout.Audit()
	alarm, err := audit.ReadAlarm(s.Home.FS, dir)
	switch {
	case err != nil:
		return nil, err
	case alarm == nil:
		return nil, console.Fail(console.ExitRefused, "permesso audit verify checks the log", "the audit log has no alarm")
	case strings.TrimSpace(in.Body.Reason) == "":
		return nil, console.Fail(console.ExitUsage, "permesso audit acknowledge --reason TEXT", "the reason is empty")
	}
	err = s.Audit(event.Entry{
		Event: event.LogAcknowledged, By: c.Person.Name, ByID: c.Person.StableID(), Via: c.Via,
		Reason: in.Body.Reason, Detail: alarm.Reason,
	})
	if err != nil {
		return nil, err
	}
	return alarm, audit.EndAlarm(s.Home.FS, dir)
}

// ExplainNoLog explains a missing log: there is no home, or its log is gone.
func ExplainNoLog(h *home.Home, err error) error {
	if _, stat := os.Stat(h.Layout.Audit()); err == nil || !errors.Is(stat, os.ErrNotExist) {
		return err
	}
	if _, stat := os.Stat(h.Layout.Keys()); errors.Is(stat, os.ErrNotExist) {
		return home.NoDaemon(h.Layout.Home)
	}
	return console.Fail(console.ExitRefused, "find out what removed it; a copy of HOME may have it: permesso restore --check DIR",
		"the audit log of %s is gone: there is no %s", h.Layout.Home, h.Layout.Audit())
}

// tailOf are the newest entries about the workspaces of an approver.
func (s *Service) tailOf(ctx context.Context, c *httpapi.Caller, n int) (lines []audit.Line, err error) {
	list, _, err := read.Entries(ctx, s.Home.ReadLog, read.EntryQuery{Workspaces: c.Workspaces, Limit: n})
	for _, e := range slices.Backward(list) {
		b, err := json.Marshal(e, codec.Times())
		if err != nil {
			return nil, err
		}
		lines = append(lines, audit.Line{Entry: e, Raw: b})
	}
	return lines, err
}
