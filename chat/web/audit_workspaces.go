package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// entryView is an entry with what is composed for its line.
type entryView struct {
	event.Entry
	Linked         bool // to its request
	What, By, Text string
}

type auditPage struct {
	page
	Query string
	List  []entryView
	More  string
	Error string
}

// audit is the page of the audit log.
func (v *visit) audit() {
	q := v.r.URL.Query()
	p := auditPage{page: v.page("audit", v.w.AuditTitle), Query: cleanQuery(q.Get("q"))}
	done, err := v.acquireLogReader()
	if err != nil {
		return // the browser has disconnected
	}
	defer done()
	before, _ := strconv.ParseInt(q.Get("before"), 10, 64)
	list, more, err := v.Backend.Audit.Entries(v.r.Context(), read.EntryQuery{
		Workspaces: v.rights.See, All: v.rights.Operator, Text: p.Query, Before: max(before, 0), Limit: perPage,
	})
	if err != nil {
		v.log(err)
		p.Error = v.w.LogUnreadable
	}
	for _, e := range list {
		p.List = append(p.List, v.entryView(e))
	}
	if more && len(list) > 0 {
		p.More = "audit?" + url.Values{"q": {p.Query}, "before": {itoa(list[len(list)-1].Seq)}}.Encode()
	}
	v.write(v.rw, http.StatusOK, "audit", p)
}

func (v *visit) entryView(e event.Entry) entryView {
	l := entryView{Entry: e, Linked: approval.ValidName(e.RequestID) && slices.Contains(v.rights.See, e.Workspace)}
	what := []string{e.Tool, e.Target}
	if e.Tool == "" {
		what[0] = e.ActionType
	}
	l.What = v.oneLine(strings.Join(slices.DeleteFunc(what, func(s string) bool { return s == "" }), " → "))
	if l.By = chat.Escape(e.By); e.Via != "" {
		l.By += " (" + chat.Escape(e.Via) + ")"
	}
	more := append([]string{e.Rule, e.Reason, e.Detail}, e.Taints...)
	l.Text = v.oneLine(strings.Join(slices.DeleteFunc(more, func(s string) bool { return s == "" }), " · "))
	return l
}

// verify checks the complete log. Only the operator may: it covers all workspaces.
func (v *visit) verify() {
	if !v.rights.Operator {
		v.fail(http.StatusForbidden, v.w.NotAllowed)
		return
	}
	found, err := v.Backend.Audit.Verify(v.r.Context())
	switch {
	case errors.Is(err, ErrBusy):
		v.redirectWithNote("audit", note{text: v.w.VerifyBusy})
	case err != nil:
		v.redirectWithNote("audit", note{text: chat.Format(v.w.VerifyBad, "why", chat.Escape(err.Error()))})
	default:
		v.redirectWithNote("audit", note{text: chat.Format(v.w.VerifyGood, "found", chat.Escape(found)), Acted: true})
	}
}

// workspaceView is a workspace with what the user may do there.
type workspaceView struct {
	*Workspace
	Paused, PausedOwn, MayPause bool
	MayClear                    bool // taints
}

type workspacesPage struct {
	page
	Workspaces  []workspaceView
	AllPaused   bool
	MayPauseAll bool
}

// workspaces is the page of the workspaces.
func (v *visit) workspaces() {
	p := workspacesPage{page: v.page("workspaces", v.w.WorkspacesTitle), MayPauseAll: v.rights.Operator}
	done, err := v.acquireLogReader()
	if err != nil {
		return // the browser has disconnected
	}
	defer done()
	for _, ws := range v.rights.See {
		place, err := v.Backend.WorkspaceInfo.Workspace(v.r.Context(), ws)
		if err != nil || place == nil {
			v.log(err)
			continue
		}
		own, all := v.Backend.WorkspaceInfo.Paused(ws)
		p.AllPaused = p.AllPaused || all
		p.Workspaces = append(p.Workspaces, workspaceView{place, own || all, own, v.mayPause(ws), v.mayClear(ws)})
	}
	v.write(v.rw, http.StatusOK, "workspaces", p)
}

// mayPause reports whether the user may pause a workspace: the operator may in all
// visible ones, other users where they may decide.
func (v *visit) mayPause(ws string) bool {
	return v.rights.Operator && slices.Contains(v.rights.See, ws) || slices.Contains(v.rights.Decide, ws)
}

// share is how many percent of the decisions of an approver allowed something.
func share(t read.Tally) string {
	if t.Decided == 0 {
		return "–"
	}
	return strconv.Itoa(100*t.Approved/t.Decided) + " %"
}

func secondsOrDash(s *float64) string {
	if s == nil {
		return "–"
	}
	return formatDuration(time.Duration(*s * float64(time.Second)))
}

// The workspace "" stands for all of them.
func (v *visit) pause()  { v.setPaused(true) }
func (v *visit) resume() { v.setPaused(false) }

const maxReasonLength = 300

func (v *visit) setPaused(paused bool) {
	ws, ok := formValue(v.r, "ws")
	reason := v.r.PostForm.Get("reason")
	switch {
	case !ok || len(reason) > maxReasonLength || strings.ContainsFunc(reason, unicode.IsControl):
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	case ws == "" && !v.rights.Operator, ws != "" && !v.mayPause(ws):
		v.fail(http.StatusForbidden, v.w.NotAllowed)
		return
	}
	var err error
	text := v.w.PausedNow
	if paused {
		err = v.Backend.Pauser.Pause(v.r.Context(), ws, v.se.user.Person, reason)
	} else {
		err, text = v.Backend.Pauser.Resume(v.r.Context(), ws, v.se.user.Person), v.w.ResumedNow
	}
	if err != nil {
		v.internalError(err)
		return
	}
	v.redirectWithNote("workspaces", note{text: text, Acted: true})
}
