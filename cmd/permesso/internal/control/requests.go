package control

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
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
}

func opHello() operation[none, Hello] {
	return operation[none, Hello]{
		id: "local-hello", method: http.MethodGet, path: "", summary: "Who the caller is, and what is paused",
		do: func(s *Service, _ context.Context, c *httpapi.Caller, _ *none) (Hello, error) {
			paused, err := s.Home.Store.Pauses()
			h := Hello{PID: os.Getpid(), Home: s.Home.Layout.Home, Operator: c.Operator, Language: c.Language, Workspaces: home.WorkspaceNames(s.Home.Current())}
			h.Workspaces = slices.DeleteFunc(h.Workspaces, func(ws string) bool { return !c.Sees(ws) })
			h.Paused = slices.DeleteFunc(paused, func(p ipc.Pause) bool { return p.Workspace != ipc.AllWorkspaces && !c.Sees(p.Workspace) })
			return h, err
		},
	}
}

func opStatus() operation[none, *home.State] {
	return operation[none, *home.State]{
		id: "local-status", method: http.MethodGet, path: "/status", summary: "Status of the daemon",
		do: func(s *Service, _ context.Context, c *httpapi.Caller, _ *none) (*home.State, error) {
			st, err := s.Home.State(s.Running)
			if err == nil && !c.Operator {
				st = st.Only(c.Workspaces)
			}
			return st, err
		},
	}
}

// waitingDoc is a verified pending.
type waitingDoc struct {
	Workspace string `json:"workspace"`
	ID        string `json:"request_id"`
	Pending   []byte `json:"pending"`
	SHA256    string `json:"pending_sha256"`
}

func docOf(w approval.StoredPending) (waitingDoc, error) {
	body, err := w.Pending.Encode()
	return waitingDoc{w.Pending.SourceGroup, w.Pending.RequestID, body, w.SHA256}, err
}

func (d waitingDoc) stored() (*approval.StoredPending, error) {
	p, err := approval.ParsePending(d.Pending, approval.Key{Workspace: d.Workspace, ID: d.ID})
	return &approval.StoredPending{Pending: p, SHA256: d.SHA256}, err
}

type waitingQuery struct {
	Workspace string `query:"workspace" doc:"Only requests of this workspace."`
}

func opWaiting() operation[waitingQuery, []waitingDoc] {
	return operation[waitingQuery, []waitingDoc]{
		id: "local-waiting", method: http.MethodGet, path: "/waiting", summary: "Pending requests, oldest first",
		do: func(s *Service, ctx context.Context, c *httpapi.Caller, in *waitingQuery) ([]waitingDoc, error) {
			list, err := s.Viewer.Waiting(ctx, workspaces(c, in.Workspace))
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
				docs = append(docs, d)
			}
			return docs, nil
		},
	}
}

type findQuery struct {
	Workspace string `query:"workspace" doc:"Only requests of this workspace."`
	Prefix    string `query:"prefix" doc:"The beginning of the id."`
}

func opFind() operation[findQuery, []approval.Key] {
	return operation[findQuery, []approval.Key]{
		id: "local-find", method: http.MethodGet, path: "/requests", summary: "Find requests by the beginning of their id",
		do: func(s *Service, ctx context.Context, c *httpapi.Caller, in *findQuery) ([]approval.Key, error) {
			keys, err := s.Viewer.Find(ctx, workspaces(c, in.Workspace), in.Prefix)
			return slices.DeleteFunc(keys, func(k approval.Key) bool { return !s.visible(c, k) }), err
		},
	}
}

// visible reports whether the caller may see one request.
func (s *Service) visible(c *httpapi.Caller, k approval.Key) bool {
	if !approval.ValidID(k.ID) || !c.Sees(k.Workspace) || !ipc.ValidWorkspace(k.Workspace) {
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
	Waiting   *waitingDoc      `json:"waiting"`
	Record    []byte           `json:"record"`
	Asked     []byte           `json:"asked"`    // the pending in the record
	Decision  []byte           `json:"decision"` // the record's
	Redeemed  []byte           `json:"redeemed"`
	Timeline  []approval.Entry `json:"timeline"`
	Damaged   string           `json:"damaged"` // why the timeline is incomplete
	Foot      string           `json:"foot"`
	Retention string           `json:"retention"` // how long records are kept
}

func opStory() operation[storyQuery, storyDoc] {
	return operation[storyQuery, storyDoc]{
		id: "local-story", method: http.MethodGet, path: "/requests/{workspace}/{id}", summary: "All that is kept of one request",
		do: func(s *Service, ctx context.Context, c *httpapi.Caller, in *storyQuery) (storyDoc, error) {
			if !s.visible(c, in.key()) {
				return storyDoc{}, nil
			}
			return s.story(ctx, in.key(), in.Timeline)
		},
	}
}

func (s *Service) story(ctx context.Context, k approval.Key, timeline bool) (d storyDoc, err error) {
	d.Retention = s.Home.Current().Retention.Records.String()
	var asked time.Time
	rec, err := s.Viewer.Record(ctx, k)
	if err != nil {
		return d, err
	}
	if rec == nil {
		w, err := s.Viewer.Pending(k)
		if err != nil {
			return d, err
		}
		if w != nil {
			doc, err := docOf(*w)
			if err != nil {
				return d, err
			}
			d.Waiting, d.Foot, asked = &doc, s.Home.AuditFoot(), w.Pending.Timestamp
		}
	} else {
		asked = rec.RequestedAt
		if err := s.addRecord(&d, k, rec); err != nil {
			return d, err
		}
	}
	if timeline {
		var logErr error
		if d.Timeline, logErr = s.Home.Timeline(k, asked); logErr != nil {
			d.Damaged = logErr.Error()
		}
	}
	return d, nil
}

func (s *Service) addRecord(d *storyDoc, k approval.Key, rec *approval.Record) (err error) {
	if d.Record, err = rec.Encode(); err != nil {
		return err
	}
	if p := s.Viewer.OpenPending(k, rec.Pending); p != nil {
		if d.Asked, err = p.Encode(); err != nil {
			return err
		}
	}
	if x := s.Viewer.OpenDecision(k, rec.Decision); x != nil {
		if d.Decision, err = x.Encode(); err != nil {
			return err
		}
	}
	if d.Redeemed, err = s.Home.Store.Read(approval.DocRedeemed, k); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// earlierDoc is a request that another one resubmits, as much of it as is kept.
type earlierDoc struct {
	Request  *approval.Pending  `json:"request"`
	Decision *approval.Decision `json:"decision"`
}

func opEarlier() operation[OneQuery, earlierDoc] {
	return operation[OneQuery, earlierDoc]{
		id: "local-earlier", method: http.MethodGet, path: "/requests/{workspace}/{id}/earlier", summary: "The request that a pending one resubmits",
		do: func(s *Service, _ context.Context, c *httpapi.Caller, in *OneQuery) (d earlierDoc, err error) {
			w, err := s.pending(c, in.key())
			if w == nil || err != nil {
				return d, err
			}
			if e := home.Earlier(s.Viewer)(w.Pending); e != nil && c.Sees(e.Request.SourceGroup) {
				d = earlierDoc{e.Request, e.Decision}
			}
			return d, nil
		},
	}
}

// pending is a pending that the caller may see, or nil.
func (s *Service) pending(c *httpapi.Caller, k approval.Key) (*approval.StoredPending, error) {
	if !s.visible(c, k) {
		return nil, nil
	}
	return s.Viewer.Pending(k)
}

// alwaysDoc is what "always" for a pending would have allowed.
type alwaysDoc struct {
	Which []string `json:"which"`
	N     int      `json:"n"`
	Of    int      `json:"of"`
}

func opAlways() operation[OneQuery, alwaysDoc] {
	return operation[OneQuery, alwaysDoc]{
		id: "local-always", method: http.MethodGet, path: "/requests/{workspace}/{id}/always", summary: "What code 6 for a pending would have allowed",
		do: func(s *Service, _ context.Context, c *httpapi.Caller, in *OneQuery) (d alwaysDoc, err error) {
			w, err := s.pending(c, in.key())
			if w == nil || err != nil {
				return d, err
			}
			m, err := s.Memory()
			if err == nil {
				d.Which, d.N, d.Of = m.WouldAllow(w.Pending)
			}
			return d, err
		},
	}
}

// VerdictBody is a decision of a local caller.
type VerdictBody struct {
	PendingSHA256 string `json:"pending_sha256,omitempty"`
	Verdict       string `json:"verdict,omitempty"`
	Code          string `json:"code,omitempty"`
	Scope         string `json:"scope,omitempty"`
	Note          string `json:"note,omitempty"`
	Override      string `json:"override,omitempty"`
	Feedback      string `json:"feedback,omitempty"`
	Answer        string `json:"answer,omitempty"`
}

type decideBody struct {
	OneQuery
	Body VerdictBody
}

// decidedDoc is a valid decision.
type decidedDoc struct {
	Decision []byte `json:"decision"`
}

func opDecide() operation[decideBody, decidedDoc] {
	return operation[decideBody, decidedDoc]{
		id: "local-decide", method: http.MethodPost, path: "/requests/{workspace}/{id}/decision", summary: "Decide a request",
		do: func(s *Service, ctx context.Context, c *httpapi.Caller, in *decideBody) (out decidedDoc, err error) {
			b := in.Body
			if k := in.key(); !approval.ValidID(k.ID) || !ipc.ValidWorkspace(k.Workspace) || !c.Sees(k.Workspace) {
				// The same refusal wherever the caller may not decide.
				if s.Decider.Refused != nil {
					s.Decider.Refused(approval.Key{}, c.Person, c.Via)
				}
				return out, &approval.Refusal{Reason: approval.ErrNotAuthorized}
			}
			x, err := s.Decider.Decide(ctx, approval.DecisionInput{
				Key: in.key(), PendingSHA256: b.PendingSHA256, Verdict: approval.Verdict(b.Verdict), Code: b.Code, Scope: approval.Scope(b.Scope),
				Note: b.Note, Override: b.Override, Feedback: b.Feedback, Text: b.Answer, By: c.Person, Via: c.Via,
			})
			if err == nil {
				out.Decision, err = x.Encode()
			}
			return out, err
		},
	}
}

func opCancel() operation[OneQuery, decidedDoc] {
	return operation[OneQuery, decidedDoc]{
		id: "local-cancel", method: http.MethodDelete, path: "/requests/{workspace}/{id}", summary: "Cancel a pending request", operator: true,
		do: func(s *Service, ctx context.Context, c *httpapi.Caller, in *OneQuery) (out decidedDoc, err error) {
			d, err := s.Decider.Cancel(ctx, approval.DecisionInput{Key: in.key(), By: c.Person, Via: c.Via})
			if err == nil {
				out.Decision, err = d.Encode()
			}
			return out, err
		},
	}
}

// linkDoc opens the web UI in a browser, once.
type linkDoc struct {
	URL     string `json:"url"`
	LifeSec int    `json:"life_sec"`
}

func opLink() operation[struct{ Body none }, linkDoc] {
	return operation[struct{ Body none }, linkDoc]{
		id: "local-link", method: http.MethodPost, path: "/link", summary: "A link that opens the web UI once, as the caller",
		do: func(s *Service, _ context.Context, c *httpapi.Caller, _ *struct{ Body none }) (linkDoc, error) {
			if s.Link == nil {
				return linkDoc{}, ErrNoUI(s.Running)
			}
			address, life, err := s.Link(c)
			if address == "" && err == nil {
				err = ErrNoUI(true)
			}
			return linkDoc{address, int(life / time.Second)}, err
		},
	}
}

// RedemptionBody names the request of a receipt.
type RedemptionBody struct {
	Workspace string `json:"workspace"`
	RequestID string `json:"request_id"`
}

func opRedeem() operation[struct{ Body RedemptionBody }, none] {
	return operation[struct{ Body RedemptionBody }, none]{
		id: "local-redeem", method: http.MethodPost, path: "/redemptions", summary: "Mark a receipt as used", operator: true,
		do: func(s *Service, ctx context.Context, c *httpapi.Caller, in *struct{ Body RedemptionBody }) (none, error) {
			return none{}, s.redeem(ctx, c, approval.Key{Workspace: in.Body.Workspace, ID: in.Body.RequestID})
		},
	}
}

// findPause is the pause of a workspace, nil if it is not paused.
func findPause(paused []ipc.Pause, ws string) *ipc.Pause {
	for _, name := range []string{ws, ipc.AllWorkspaces} {
		if i := slices.IndexFunc(paused, func(p ipc.Pause) bool { return p.Workspace == name }); i >= 0 {
			return &paused[i]
		}
	}
	return nil
}
