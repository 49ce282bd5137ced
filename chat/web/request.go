package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// The states of a request on its page. A decided or settled one has its verdict or
// status after the colon.
const (
	stateWaiting = "waiting"
	stateLate    = "late" // expired, but the gate has not recorded that yet
	stateDecided = "decided:"
	stateSettled = "settled:"
)

// requestPage is the page of one request, in any state.
type requestPage struct {
	page
	Key             approval.Key
	State           string
	SHA             string // of the shown pending
	Card            chat.Card
	IsQuestion      bool // a question
	Options         []string
	Pending         *approval.Pending
	MayDecide       bool
	MayReveal       bool    // it masks something, and this user may see it
	Revealed        bool    // it masks nothing
	MayClear        bool    // what the agent has read stands in the way, and this user may clear that
	MayPropose      bool    // of a rule
	Proposes        bool    // a rule might help: without, the page says why
	Session, Always string  // sentences of what codes 2 and 6 would remember; "": nothing
	Commands        string  // the sentence with a command pattern that code 6 may remember instead; "": none
	Pattern         string  // the pattern of Commands
	CommandsCount   string  // what it would have allowed; "": nothing was asked before
	Exact           []block // what would run
	Prose           []block // the agent's text
	Tag, Class      string  // the two parts of the meta line: how far the action can be undone, and its class
	Rule            string
	Source          []block  // lines of the program
	Verified        bool     // Source is the program that a prover has signed
	Result          string   // how it ended
	Output          []string // lines of the handler
	Complete        string   // the complete result, as JSON; "": Output is all
	Grant           string   // sentence of the grant that the approval gave; "": none
	Undo            bool     // this user can revoke it
	SimilarURL      string   // history of similar requests; "": none
	AllSimilarURL   string
}

// changeClass is the CSS class of a line of changes.
func changeClass(line string) string {
	switch {
	case strings.HasPrefix(line, "- "):
		return "less"
	case strings.HasPrefix(line, "+ "):
		return "more"
	case strings.HasPrefix(line, "  "):
		return "same"
	}
	return "remark"
}

// request is the page of one request.
func (v *visit) request() {
	k := approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	v.open = v.revealsNow(k)
	p, err := v.loadRequest(k)
	switch {
	case err != nil:
		v.internalError(err)
	case p == nil:
		v.fail(http.StatusNotFound, v.w.RequestNotFound)
	default:
		v.write(v.rw, http.StatusOK, "request", p)
	}
}

// loadRequest returns the page of a request, nil if it does not exist or the user
// may not see it.
func (v *visit) loadRequest(k approval.Key) (*requestPage, error) {
	if !approval.ValidName(k.ID) || !slices.Contains(v.rights.See, k.Workspace) {
		return nil, nil
	}
	st, err := v.Viewer.Story(v.r.Context(), k)
	switch {
	case err != nil:
		return nil, err
	case st.Pending == nil && st.Record == nil, st.Pending != nil && !v.visible(v.se.user, v.rights, st.Pending):
		return nil, nil
	case st.Record != nil:
		return v.settledPage(k, st), nil
	}
	return v.pendingPage(k, st), nil
}

func (v *visit) pendingPage(k approval.Key, st read.Story) *requestPage {
	p := st.Pending
	r := v.newRequestPage(k, p)
	r.SHA, r.State = st.SHA256, stateWaiting
	r.MayDecide = v.mayDecide(p)
	switch d := st.Decision; {
	case d != nil:
		r.State = stateDecided + string(d.Verdict)
		r.Result, r.Refresh = v.decidedLine(d), true // not in other states: a reload would lose typed text
		v.addGrant(r, d)
		if held := v.Style(v.lang).ApprovedInPause(k.Workspace, d); st.Aftermath(held != "") != "" {
			r.State, r.Result = r.State+":paused", r.Result+" · "+held
		}
	case !v.Now().Before(p.ExpiresAt):
		r.State = stateLate
	}
	r.MayClear = r.State == stateWaiting && isTainted(p) && v.mayClear(k.Workspace)
	r.Stream = streamURL(r)
	return r
}

func streamURL(r *requestPage) string {
	return "events?ws=" + r.Key.Workspace + "&id=" + r.Key.ID + "&state=" + r.State
}

// addGrant says what the approval of a request remembers, unless that was taken back.
func (v *visit) addGrant(r *requestPage, d *approval.Decision) {
	g := grant.From(r.Pending, d)
	if g == nil {
		return
	}
	if now := v.grantNamed(r.Key.Workspace, g.ID); now != nil && !now.RevokedAt.IsZero() {
		return
	}
	r.Grant, r.Undo = v.Style(v.lang).Grant(g), slices.Contains(v.rights.Decide, r.Key.Workspace)
}

func (v *visit) decidedLine(d *approval.Decision) string {
	zone := v.Style(v.lang).Zone
	return chat.Format(v.w.DecidedLine, "verdict", v.w.Verdicts[string(d.Verdict)], "by", chat.Escape(d.DecidedBy), "via", chat.Escape(d.Via),
		"time", newDisplayTime(d.DecidedAt, zone, v.Now()).Text)
}

// newRequestPage returns the parts of the page that do not depend on the state.
func (v *visit) newRequestPage(k approval.Key, p *approval.Pending) *requestPage {
	style := v.Style(v.lang)
	mayReveal := v.mayReveal(p)
	style.Reveal = v.open && mayReveal
	r := &requestPage{
		page: v.page("request", v.Style(v.lang).VerbAndObject(p)), Key: k, Pending: p,
		Card: style.Card(p), IsQuestion: p.Type == approval.TypeQuestion,
		Session: style.Offer(p, approval.Session), Always: style.Offer(p, approval.Always),
		Pattern: chat.CommandPattern(p), Commands: style.Offer(p, approval.Commands), CommandsCount: style.OfferCount(p, approval.Commands),
		Rule: v.grantOrRule(k.Workspace, p.Ruling.Grant, p.Ruling.Rule), Revealed: style.Reveal,
		MayPropose: v.Backend.ProposeRule != nil && p.ToolSHA256 != "", Proposes: chat.Proposable(p),
	}
	r.MayReveal = mayReveal && !style.Reveal && len(style.Masked(p)) > 0
	if kind := cleanQuery(cmp.Or(p.ToolName, p.ActionType)); kind != "" {
		r.SimilarURL = "like?" + url.Values{"ws": {k.Workspace}, "kind": {kind}}.Encode()
		r.AllSimilarURL = "history?" + url.Values{"kind": {kind}}.Encode()
	}
	if style.PauseLine(p.SourceGroup, p.Timestamp) != "" && len(r.Card.Warnings) > 0 {
		r.Card.Warnings = r.Card.Warnings[1:] // the banner of the page says it
	}
	for _, o := range p.Options {
		r.Options = append(r.Options, style.OneLine(p, o))
	}
	r.Exact, r.Prose = blocksOf(r.Card.Runs), textBlocks(r.Card.Prose)
	r.Tag, r.Class, _ = strings.Cut(r.Card.Meta, " | ")
	if p.Facts.Proof != nil && p.Facts.Proof.Program != "" {
		r.Source, r.Verified = textBlock(style.Lines(p, p.Facts.Proof.Program)), p.Facts.Proof.Verified
	}
	return r
}

// settledPage is the page of a request that has ended.
func (v *visit) settledPage(k approval.Key, st read.Story) *requestPage {
	style, p, rec := v.Style(v.lang), st.Pending, st.Record
	if p == nil { // policy decided, so there was no pending
		p = read.Requested(k, rec)
	}
	r := v.newRequestPage(k, p)
	asked := st.Pending != nil // an approver was asked
	r.MayReveal, r.MayPropose = r.MayReveal && asked, r.MayPropose && asked
	r.SHA, r.State, r.Result = rec.PendingSHA256, stateSettled+string(rec.Status), style.Outcome(rec)
	if st.Decision != nil {
		v.addGrant(r, st.Decision)
	}
	out := v.w.outputOf(style, p, rec)
	r.Output, r.Complete = out.rendered, out.complete
	for _, text := range out.texts {
		r.Output = append(r.Output, style.Lines(p, text)...)
	}
	r.Stream = streamURL(r)
	return r
}

// output is the error and the result of a request.
type output struct {
	rendered []string // the error, and a result that is not told in words
	texts    []string // what the result says, not rendered yet
	complete string   // the result as JSON, if texts tell it
}

func (w *words) outputOf(style chat.Style, p *approval.Pending, rec *approval.Record) (o output) {
	a, err := approval.ParseResponse(rec.Response)
	if err != nil {
		return o
	}
	if a.Error != nil {
		o.rendered = append(o.rendered, style.OneLine(p, *a.Error))
	}
	if kind := a.Result.Kind(); kind == 'n' || kind == 0 || string(a.Result) == "{}" {
		return o
	}
	o.complete = style.Result(p, a.Result)
	if o.texts = w.textsOf(a.Result); o.texts == nil {
		o.rendered, o.complete = append(o.rendered, o.complete), ""
	}
	return o
}

// textsOf tells a result in words: the output of a command, or the status and the texts of a response. It is nil for
// any other JSON, of which no part may be left out.
func (w *words) textsOf(result approval.Raw) (texts []string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(result, &fields) != nil {
		return nil
	}
	for _, name := range []string{"output", "status", "location", "body", "note"} {
		value, ok := fields[name]
		delete(fields, name)
		var text string
		if _, err := strconv.Atoi(string(value)); name == "status" && err == nil {
			text = chat.Format(w.ResultStatus, "n", string(value))
		} else if ok && (name == "status" || value[0] != '"' || json.Unmarshal(value, &text) != nil) {
			return nil
		}
		if text = strings.TrimRight(text, "\n"); text != "" {
			texts = append(texts, text)
		}
	}
	if len(fields) > 0 {
		return nil
	}
	if texts == nil {
		texts = []string{w.ResultEmpty}
	}
	return texts
}

// Irreversible reports that an approval needs a confirmation.
func (r *requestPage) Irreversible() bool { return needsConfirmation(r.Pending) }

// Open reports whether the user can still decide.
func (r *requestPage) Open() bool { return r.State == stateWaiting && r.MayDecide }

// ReadOnly reports a pending request that this user may not decide.
func (r *requestPage) ReadOnly() bool { return r.State == stateWaiting && !r.MayDecide }

// Late reports that the request has expired.
func (r *requestPage) Late() bool { return r.State == stateLate }
