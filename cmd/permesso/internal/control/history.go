package control

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
)

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
		strings.HasPrefix(r.Key.ID, q.Prefix)
}

// HistoryPage is what the log has of requests, newest first.
type HistoryPage struct {
	Items   []*read.Request `json:"items"`
	More    bool            `json:"more"`
	Damaged string          `json:"damaged"` // why older requests are missing
}

func (s *Service) history(_ context.Context, c *httpapi.Caller, q *HistoryQuery) (p HistoryPage, err error) {
	p.Items, p.More, err = s.Viewer.Requests(read.Query{
		Workspaces: workspaces(c, q.Workspace), Since: q.Since, Until: q.Until, Limit: q.Limit, Match: q.match,
	})
	if errors.Is(err, audit.ErrDamaged) {
		p.Damaged, err = err.Error(), nil
	}
	return p, err
}

var opHistory = get("history", "/history", "Requests from the audit log, newest first", (*Service).history)

// statsDoc is statistics of requests.
type statsDoc struct {
	Stats   *read.Stats `json:"stats"`
	Damaged string      `json:"damaged"`
}

var opStats = get("stats", "/stats", "Statistics of requests and decisions", (*Service).stats)

func (s *Service) stats(ctx context.Context, c *httpapi.Caller, in *HistoryQuery) (statsDoc, error) {
	p, err := s.history(ctx, c, in)
	return statsDoc{read.NewStats(p.Items), p.Damaged}, err
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

// ExplainNoLog explains a missing log.
func ExplainNoLog(h *home.Home, err error) error {
	if _, stat := os.Stat(h.Layout.Audit()); err != nil && errors.Is(stat, os.ErrNotExist) {
		return home.NoDaemon(h.Layout.Home)
	}
	return err
}

// tailOf are the newest entries about the workspaces of an approver.
func (s *Service) tailOf(ctx context.Context, c *httpapi.Caller, n int) (lines []audit.Line, err error) {
	list, _, err := read.Entries(ctx, s.Home.ReadLog, read.EntryQuery{Workspaces: c.Workspaces, Limit: n})
	for _, e := range slices.Backward(list) {
		b, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		lines = append(lines, audit.Line{Entry: e, Raw: b})
	}
	return lines, err
}
