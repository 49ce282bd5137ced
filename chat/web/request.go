package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// The states in which a request can be seen. A decided or settled one has its
// verdict or status behind a colon.
const (
	stateWaiting = "waiting"
	stateLate    = "late" // its time is over, and the gate has not said so yet
	stateDecided = "decided:"
	stateSettled = "settled:"
)

// requestPage is one request, whatever became of it.
type requestPage struct {
	page
	Key      approval.Key
	Path     string
	State    string
	SHA      string // of the pending that is shown
	Card     chat.Card
	Held     string // that nothing runs there for the time being
	Asks     bool   // a question
	Options  []string
	Until    clock
	Degree   approval.Reversibility
	Careful  bool // it cannot be taken back: an approval is confirmed once more
	May      bool
	No2      bool // not remembered for a session
	No6      bool
	Notes    []string // why, and what "always" would have let through
	Prose    []string
	Exact    []string // the arguments
	Why      []string
	Change   []string
	Rule     string
	Changes  []marked // what differs from the request that it resubmits
	Source   []string // of the program, line by line
	Verified bool     // … and it is the one that a prover has signed
	Result   string   // how it ended
	Output   []string // what came out
	Undo     string   // id of what can be taken back; "": nothing
	Asked    clock
	Short    string
	Like     string // where the history of the like is; "": nowhere
	LikeAll  string
}

// marked is a line with the class by which it is drawn.
type marked struct{ Class, Text string }

func changedLines(c chat.Card) (lines []marked) {
	for _, l := range c.Changes {
		class := "remark"
		switch {
		case strings.HasPrefix(l, "- "):
			class = "less"
		case strings.HasPrefix(l, "+ "):
			class = "more"
		case strings.HasPrefix(l, "  "):
			class = "same"
		}
		lines = append(lines, marked{class, l})
	}
	return lines
}

// request is the page of one request.
func (v *visit) request() {
	k := approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	p, err := v.look(k)
	switch {
	case err != nil:
		v.broken(err)
	case p == nil:
		v.fail(http.StatusNotFound, v.w.NoSuch)
	default:
		v.write(v.rw, http.StatusOK, "request", p)
	}
}

// look is a request as the guest may see it, or nil.
func (v *visit) look(k approval.Key) (*requestPage, error) {
	if !approval.ValidID(k.ID) || !slices.Contains(v.rights.See, k.Workspace) {
		return nil, nil
	}
	w, err := v.Viewer.Pending(k)
	if err != nil {
		return nil, err
	}
	if w != nil && !v.visible(v.se.guest, v.rights, w.Pending) {
		return nil, nil
	}
	// The record comes last, so it is looked for first: then nothing is missed.
	rec, err := v.Viewer.Record(v.r.Context(), k)
	switch {
	case err != nil:
		return nil, err
	case rec != nil:
		return v.settled(k, rec)
	case w == nil:
		return nil, nil
	}
	return v.pending(*w), nil
}

func (v *visit) pending(w approval.Waiting) *requestPage {
	p := w.Pending
	r := v.card(w.Key(), p)
	r.SHA, r.State = w.SHA256, stateWaiting
	r.May = slices.Contains(v.rights.Decide, p.SourceGroup) && v.People.May(v.se.guest, p.SourceGroup, p)
	d := v.Viewer.Decided(w)
	switch {
	case d != nil:
		r.State = stateDecided + string(d.Verdict)
		r.Result, r.Refresh = v.decidedLine(d), true // not while somebody may be typing an answer
		r.Undo = undoable(r.Key, d)
	case !v.Now().Before(p.ExpiresAt):
		r.State = stateLate
	}
	r.Stream = streamOf(r)
	return r
}

func streamOf(r *requestPage) string {
	return "events?ws=" + r.Key.Workspace + "&id=" + r.Key.ID + "&state=" + r.State
}

func undoable(k approval.Key, d *approval.Decision) string {
	if d.Verdict == approval.Approved && (d.Scope == approval.Session || d.Scope == approval.Always) {
		return k.ID
	}
	return ""
}

func (v *visit) decidedLine(d *approval.Decision) string {
	zone := v.Style(v.lang).Zone
	return say(v.w.DecidedLine, "verdict", v.w.Verdicts[string(d.Verdict)], "by", chat.Escape(d.DecidedBy), "via", chat.Escape(d.Via),
		"time", clockOf(d.DecidedAt, zone, v.Now()).Text)
}

// card is what can be seen of p at any time.
func (v *visit) card(k approval.Key, p *approval.Pending) *requestPage {
	style := v.Style(v.lang)
	r := &requestPage{
		page: v.page("request", p.ShortID), Key: k, Path: pathOf(k), Short: chat.Escape(p.ShortID),
		Card: style.Card(p), Asks: p.Type == approval.TypeQuestion,
		Until: clockOf(p.ExpiresAt, style.Zone, v.Now()), Asked: clockOf(p.Timestamp, style.Zone, v.Now()),
		Degree: p.Reversibility, Careful: p.Reversibility != approval.Reversible && p.Reversibility != approval.Partial,
		No2: approval.NotGrantable(p, approval.Session) != "", No6: approval.NotGrantable(p, approval.Always) != "",
		Rule: style.OneLine(p, p.Ruling.Rule),
	}
	if kind := searched(cmp.Or(p.ToolName, p.ActionType)); kind != "" && v.Backend.History != nil {
		r.Like = "like?" + url.Values{"ws": {k.Workspace}, "kind": {kind}}.Encode()
		r.LikeAll = "history?" + url.Values{"kind": {kind}}.Encode()
	}
	if held := style.PauseLine(p.SourceGroup, p.Timestamp); held != "" && len(r.Card.Facts) > 1 && r.Card.Facts[0] == held {
		r.Held, r.Card.Facts = held, r.Card.Facts[1:] // the question comes first here
	}
	if len(r.Card.Menu) > 1 && !r.Asks {
		r.Notes = r.Card.Menu[1:]
	}
	for _, o := range p.Options {
		r.Options = append(r.Options, style.OneLine(p, o))
	}
	r.Exact, r.Changes = exact(style, p, r.Card), changedLines(r.Card)
	r.Why, r.Change = style.Why(p)
	if p.Facts.Proof != nil && p.Facts.Proof.Program != "" {
		r.Source, r.Verified = chat.Block(style.Redacted(p, p.Facts.Proof.Program)), p.Facts.Proof.Verified
	}
	return r
}

// exact is all of the arguments: the card leaves them out where its object line
// is all that there is.
func exact(style chat.Style, p *approval.Pending, c chat.Card) []string {
	if len(c.Payload) > 0 {
		return c.Payload
	}
	fields, err := approval.Fields(p.RequestData)
	if err != nil {
		return []string{style.OneLine(p, string(p.RequestData))}
	}
	var lines []string
	for _, f := range fields {
		lines = append(lines, style.OneLine(p, f.Name)+": "+style.Value(p, f.Value))
	}
	return lines
}

// settled is a request that has ended.
func (v *visit) settled(k approval.Key, rec *approval.Record) (*requestPage, error) {
	style := v.Style(v.lang)
	p := v.Viewer.Asked(k, rec.Pending)
	if p == nil { // nobody was asked
		p = &approval.Pending{RequestID: k.ID, ShortID: approval.ShortID(k.ID), SourceGroup: k.Workspace, Timestamp: rec.RequestedAt, Reversibility: approval.Reversible}
		if q, err := approval.Fields(rec.Request); err == nil {
			fill(p, q)
		}
		if rec.Ruling != nil {
			p.Ruling = *rec.Ruling
		}
	} else if !v.visible(v.se.guest, v.rights, p) {
		return nil, nil
	}
	r := v.card(k, p)
	r.SHA, r.State, r.Result, r.Notes, r.Held = rec.PendingSHA256, stateSettled+string(rec.Status), style.Outcome(rec), nil, ""
	if d := v.Viewer.Decision(k, rec.Decision); d != nil {
		r.Undo = undoable(k, d)
	}
	if a, err := approval.ParseResponse(rec.Response); err == nil {
		if a.Error != nil {
			r.Output = append(r.Output, style.OneLine(p, *a.Error))
		}
		if kind := a.Result.Kind(); kind != 'n' && kind != 0 {
			r.Output = append(r.Output, style.Value(p, a.Result))
		}
	}
	r.Stream = streamOf(r)
	return r, nil
}

// fill takes out of a request what a card of it shows.
func fill(p *approval.Pending, fields []approval.Field) {
	for _, f := range fields {
		text, _ := f.Text()
		switch f.Name {
		case "tool_name":
			p.ToolName = text
		case "action_type":
			p.ActionType = text
		case "request_data":
			p.RequestData = f.Value
		case "title":
			p.Agent.Title = text
		case "preview":
			p.Agent.Preview = text
		case "rationale":
			p.Agent.Rationale = text
		}
	}
}

// Open says that answers are still taken.
func (r *requestPage) Open() bool { return r.State == stateWaiting && r.May }

// ReadOnly says that it waits, and not for this guest.
func (r *requestPage) ReadOnly() bool { return r.State == stateWaiting && !r.May }

// Late says that its time is over.
func (r *requestPage) Late() bool { return r.State == stateLate }
