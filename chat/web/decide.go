package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// codeAnswer is the code of a free answer to a question. The other codes are those
// of the menu.
const codeAnswer = "answer"

// decisionForm is a form that a user sent.
type decisionForm struct {
	key       approval.Key
	sha       string // of the shown pending
	code      string // 1 to 6, ?, answer, or the digit of an option
	text      string
	commands  string // of code 6: the command pattern to remember instead of the same request
	confirmed bool   // of an irreversible action
}

// readDecisionForm reads the form. ok is false if it has an unknown field, a field
// twice, or lacks a required one. No field has a default.
func (v *visit) readDecisionForm() (a decisionForm, ok bool) {
	a.key = approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	if !approval.ValidID(a.key.ID) || !slices.Contains(v.rights.See, a.key.Workspace) {
		return a, false
	}
	if a.sha, ok = formValue(v.r, "sha"); !ok || len(a.sha) != 64 {
		return a, false
	}
	if a.code, ok = formValue(v.r, "code"); !ok {
		return a, false
	}
	for name, list := range v.r.PostForm {
		known := slices.Contains([]string{"sha", "code", "text", "commands", "sure"}, name)
		if !known || len(list) != 1 {
			return a, false
		}
	}
	// Browsers send line ends as CR LF.
	a.text = strings.ReplaceAll(v.r.PostForm.Get("text"), "\r\n", "\n")
	a.commands = v.r.PostForm.Get("commands")
	a.confirmed = v.r.PostForm.Get("sure") == "yes"
	return a, a.commands == "" || a.code == "6"
}

// message translates the form into a line of the grammar of all channels, and gives
// the kind that the parser must find. Any other kind is refused.
func (a decisionForm) message() (text string, kind chat.Kind) {
	switch a.code {
	case "1", "2", "6":
		return a.code, chat.Menu
	case "3", "4", "5", approval.CodeEdit:
		return strings.TrimSpace(a.code + ": " + a.text), chat.Menu
	case "?":
		if a.confirmed {
			return "? agent, " + a.text, chat.Question
		}
		return "? " + a.text, chat.Question
	case codeAnswer:
		return a.text, chat.Free
	}
	if n, ok := strings.CutPrefix(a.code, "option"); ok {
		return n, chat.Option
	}
	return "", chat.Unclear
}

// runs reports whether this decision lets the action run.
func (a decisionForm) runs() bool { return slices.Contains([]string{"1", "2", "4", "6"}, a.code) }

// shownPending returns the pending that the user decides about. It may have settled
// a moment ago.
func (v *visit) shownPending(k approval.Key) (*approval.Pending, error) {
	st, err := v.Viewer.Story(v.r.Context(), k)
	if err != nil || st.Pending == nil || !v.visible(v.se.user, v.rights, st.Pending) {
		return nil, err
	}
	return st.Pending, nil
}

// decide takes a decision. The request's page shows the result.
func (v *visit) decide() {
	a, ok := v.readDecisionForm()
	if !ok {
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	}
	p, err := v.shownPending(a.key)
	switch {
	case err != nil:
		v.internalError(err)
		return
	case p == nil:
		v.fail(http.StatusNotFound, v.w.RequestNotFound)
		return
	}
	if a.commands != "" && a.commands != chat.CommandPattern(p) {
		v.fail(http.StatusUnprocessableEntity, v.w.NotUnderstood)
		return
	}
	text, kind := a.message()
	m := v.newMessage(text)
	m.Card, m.Commands = &approval.StoredPending{Pending: p, SHA256: a.sha}, a.commands
	ends := kind == chat.Question && v.People.Interceptor(v.se.user).AnswerFromFacts(m) == ""
	if !a.confirmed && (ends || a.runs() && needsConfirmation(p)) && v.buttonOf(a, p) != "" && v.stillPending(a) {
		v.confirm(a, p)
		return
	}
	if cmd := m.Command(); cmd.Kind != kind || kind == chat.Unclear || kind == chat.Menu && cmd.Code != a.code {
		v.fail(http.StatusUnprocessableEntity, v.w.NotUnderstood)
		return
	}
	reply := v.handle(m)
	to := pathOf(a.key)
	if reply.Acted {
		to = v.nextPending(p)
	}
	v.showReply(to, a.key, reply)
}

// handle acts on a message, even if the browser disconnects meanwhile.
func (v *visit) handle(m chat.Message) chat.Reply {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), 3*v.IOTimeout)
	defer cancel()
	return v.People.Interceptor(v.se.user).Handle(ctx, m)
}

func needsConfirmation(p *approval.Pending) bool {
	return p.Type != approval.TypeQuestion && p.Reversibility != approval.Reversible && p.Reversibility != approval.Partial
}

// stillPending reports whether the request can still be decided, unchanged.
func (v *visit) stillPending(a decisionForm) bool {
	st, err := v.Viewer.Story(v.r.Context(), a.key)
	return err == nil && st.SHA256 != "" && st.SHA256 == a.sha && st.Decision == nil &&
		slices.Contains(v.rights.Decide, a.key.Workspace)
}

func (v *visit) newMessage(text string) chat.Message {
	return chat.Message{
		From: v.se.user.Person, Via: Via, Text: text, Workspaces: v.rights.Decide, Language: v.lang, Buttons: true,
	}
}

// showReply redirects to a page that shows the reply to a message about a request.
func (v *visit) showReply(to string, k approval.Key, r chat.Reply) {
	v.log(r.Err)
	text := r.Text
	if r.Ignore || text == "" {
		text = v.w.NotUnderstood
	}
	v.redirectWithNote(to, note{text: text, Acted: r.Acted, Key: k})
}

// redirectWithNote redirects to a page that shows the result of an action.
func (v *visit) redirectWithNote(path string, n note) {
	v.redirect(path + "?said=" + strconv.Itoa(v.se.addNote(n)))
}

// currentNote returns the note that the address names.
func (v *visit) currentNote() *note {
	number, err := strconv.Atoi(v.r.URL.Query().Get("said"))
	if err != nil {
		return nil
	}
	n := v.se.noteAt(number)
	if n == nil || !n.Acted || !slices.Contains(v.rights.See, n.Key.Workspace) {
		return n
	}
	st, err := v.Viewer.Story(v.r.Context(), n.Key)
	if err == nil && st.Pending != nil && st.Decision != nil && v.visible(v.se.user, v.rights, st.Pending) {
		r := requestPage{Key: n.Key, Pending: st.Pending}
		v.addGrant(&r, st.Decision)
		n.Number, n.Path, n.Undo = number, pathOf(n.Key), r.Undo
		v.addAftermath(n, &st, r.Grant)
	}
	return n
}

// addAftermath makes the note about an approval say what went wrong since then.
func (v *visit) addAftermath(n *note, st *read.Story, given string) {
	style := v.Style(v.lang)
	why := style.ApprovedInPause(n.Key.Workspace, st.Decision)
	switch n.Told = st.Aftermath(why != ""); {
	case n.Told == "" && st.Decision.Verdict == approval.Approved:
		n.text, _, _ = strings.Cut(n.text, "\n") // the second line tells of a pause that has ended
		return
	case n.Told == "":
		return
	case st.Record != nil:
		why = style.Outcome(st.Record)
	}
	happened := chat.Format(chat.Messages[aftermaths](v.lang, "deliver").Aftermath[n.Told], "what", style.Action(st.Pending))
	n.text = strings.TrimSpace(strings.Join([]string{happened, why, given}, "\n"))
}

// Lines returns the lines of the note.
func (n *note) Lines() []string { return strings.Split(n.text, "\n") }

type confirmPage struct {
	*requestPage
	Code, Text, Commands, Button, Careful string
}

// confirm asks for a confirmation on a separate page. It decides nothing.
func (v *visit) confirm(a decisionForm, p *approval.Pending) {
	r := v.newRequestPage(a.key, p)
	r.SHA, r.State, r.Here = a.sha, stateWaiting, "confirm"
	careful := v.w.ConfirmText
	if a.code == "?" {
		careful = v.w.ConfirmAsk
	}
	v.write(v.rw, http.StatusOK, "confirm", confirmPage{r, a.code, a.text, a.commands, v.buttonOf(a, p), careful})
}

// buttonOf says what the decision of a form does, and all that it grants.
func (v *visit) buttonOf(a decisionForm, p *approval.Pending) string {
	scope := map[string]approval.Scope{"2": approval.Session, "6": approval.Always}[a.code]
	if a.commands != "" {
		scope = approval.Commands
	}
	if scope == "" {
		return v.w.Confirm[a.code]
	}
	return v.Style(v.lang).OfferAs(p, scope, v.w.Confirm["2"], v.w.Confirm["6"])
}

// undo revokes the grant of an approval.
func (v *visit) undo() {
	k := approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	if !approval.ValidID(k.ID) || !slices.Contains(v.rights.Decide, k.Workspace) {
		v.fail(http.StatusNotFound, v.w.RequestNotFound)
		return
	}
	m := v.newMessage("undo " + k.ID)
	m.Workspaces = []string{k.Workspace}
	if m.Command().Kind != chat.Undo {
		v.fail(http.StatusUnprocessableEntity, v.w.NotUnderstood)
		return
	}
	v.showReply(pathOf(k), k, v.handle(m))
}
