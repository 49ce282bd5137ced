package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// codeAnswer is the code of a free answer to a question; the others are the
// menu's.
const codeAnswer = "answer"

// answer is a form that somebody sent.
type answer struct {
	key  approval.Key
	sha  string // of the pending that was shown
	code string // 1 to 6, ?, answer, or the digit of an option
	text string
	sure bool // it was confirmed
}

// answerOf reads the form. There is no default for anything: what is not there
// exactly once is no answer.
func (v *visit) answerOf() (a answer, ok bool) {
	a.key = approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	if !approval.ValidID(a.key.ID) || !slices.Contains(v.rights.See, a.key.Workspace) {
		return a, false
	}
	if a.sha, ok = one(v.r, "sha"); !ok || len(a.sha) != 64 {
		return a, false
	}
	if a.code, ok = one(v.r, "code"); !ok {
		return a, false
	}
	for name, list := range v.r.PostForm {
		known := slices.Contains([]string{"sha", "code", "text", "sure"}, name)
		if !known || len(list) != 1 {
			return a, false
		}
	}
	// Browsers send line ends as CR LF, whatever was typed.
	a.text = strings.ReplaceAll(v.r.PostForm.Get("text"), "\r\n", "\n")
	a.sure = v.r.PostForm.Get("sure") == "yes"
	return a, true
}

// message is the answer in the words of the grammar that every channel has, and
// what must be understood by it. Nothing else is done, whatever it says.
func (a answer) message() (text string, kind chat.Kind) {
	switch a.code {
	case "1", "2", "6":
		return a.code, chat.Menu
	case "3", "4", "5":
		return strings.TrimSpace(a.code + " " + a.text), chat.Menu
	case "?":
		return "? " + a.text, chat.Question
	case codeAnswer:
		return a.text, chat.Free
	}
	if n, ok := strings.CutPrefix(a.code, "option"); ok {
		return n, chat.Option
	}
	return "", chat.Unclear
}

// runs says whether something runs where this is the answer.
func (a answer) runs() bool { return slices.Contains([]string{"1", "2", "4", "6"}, a.code) }

// shown is what the guest answers to: what waits, or what has waited until a
// moment ago.
func (v *visit) shown(k approval.Key) (*approval.Pending, error) {
	w, err := v.Viewer.Pending(k)
	if err != nil {
		return nil, err
	}
	if w != nil {
		if v.visible(v.se.guest, v.rights, w.Pending) {
			return w.Pending, nil
		}
		return nil, nil
	}
	rec, err := v.Viewer.Record(v.r.Context(), k)
	if err != nil || rec == nil {
		return nil, err
	}
	p := v.Viewer.Asked(k, rec.Pending)
	if p == nil || !v.visible(v.se.guest, v.rights, p) {
		return nil, nil
	}
	return p, nil
}

// decide takes an answer. What it leads to is told on the request's page.
func (v *visit) decide() {
	a, ok := v.answerOf()
	if !ok {
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	}
	p, err := v.shown(a.key)
	switch {
	case err != nil:
		v.broken(err)
		return
	case p == nil:
		v.fail(http.StatusNotFound, v.w.NoSuch)
		return
	}
	if a.runs() && !a.sure && careful(p) && v.waits(a) {
		v.confirm(a, p)
		return
	}
	text, kind := a.message()
	m := v.says(text)
	m.Card = &approval.Waiting{Pending: p, SHA256: a.sha}
	if cmd := m.Command(); cmd.Kind != kind || kind == chat.Unclear || kind == chat.Menu && cmd.Code != a.code {
		v.fail(http.StatusUnprocessableEntity, v.w.Unclear)
		return
	}
	v.handle(a.key, m)
}

// handle has a message acted on, whether or not the browser waits for that.
func (v *visit) handle(k approval.Key, m chat.Message) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), 3*v.IOTimeout)
	defer cancel()
	v.hear(k, v.People.Interceptor(v.se.guest).Handle(ctx, m))
}

func careful(p *approval.Pending) bool {
	return p.Type != approval.TypeQuestion && p.Reversibility != approval.Reversible && p.Reversibility != approval.Partial
}

// waits says that there is still something to confirm.
func (v *visit) waits(a answer) bool {
	w, err := v.Viewer.Pending(a.key)
	return err == nil && w != nil && w.SHA256 == a.sha && v.Viewer.Decided(*w) == nil &&
		slices.Contains(v.rights.Decide, a.key.Workspace)
}

func (v *visit) says(text string) chat.Message {
	return chat.Message{
		From: v.se.guest.Person, Via: Via, Text: text, Workspaces: v.rights.Decide, Language: v.lang,
	}
}

// hear tells the guest what came of it, on the page to which they are led.
func (v *visit) hear(k approval.Key, r chat.Reply) {
	v.log(r.Err)
	text := r.Text
	if r.Ignore || text == "" {
		text = v.w.Unclear
	}
	n := v.se.tell(note{k, text, r.Acted})
	v.go303(pathOf(k) + "?said=" + strconv.Itoa(n))
}

// note is what the address asks to be shown of what was said.
func (v *visit) note() *note {
	n, err := strconv.Atoi(v.r.URL.Query().Get("said"))
	if err != nil {
		return nil
	}
	return v.se.told(n)
}

// Lines are what was said.
func (n *note) Lines() []string { return strings.Split(n.text, "\n") }

// Acted says that a decision was recorded.
func (n *note) Acted() bool { return n.acted }

type confirmPage struct {
	*requestPage
	Code, Text, Button string
}

// confirm asks once more, on a page of its own, and decides nothing.
func (v *visit) confirm(a answer, p *approval.Pending) {
	r := v.card(a.key, p)
	r.SHA, r.State, r.Here = a.sha, stateWaiting, "confirm"
	v.write(v.rw, http.StatusOK, "confirm", confirmPage{r, a.code, a.text, v.w.Codes[a.code]})
}

// undo takes back what is remembered of an approval.
func (v *visit) undo() {
	k := approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	if !approval.ValidID(k.ID) || !slices.Contains(v.rights.Decide, k.Workspace) {
		v.fail(http.StatusNotFound, v.w.NoSuch)
		return
	}
	m := v.says("undo " + k.ID)
	m.Workspaces = []string{k.Workspace}
	if m.Command().Kind != chat.Undo {
		v.fail(http.StatusUnprocessableEntity, v.w.Unclear)
		return
	}
	v.handle(k, m)
}
