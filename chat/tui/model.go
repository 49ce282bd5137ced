package tui

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	uv "github.com/charmbracelet/ultraviolet"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// What the program sends to the model, besides keys.
type (
	stateMsg struct {
		State
		err error
	}
	// repliedMsg is the reply to a decision.
	repliedMsg struct {
		key   approval.Key
		reply chat.Reply
		undo  bool // it was no decision, but revoked what one gave
	}
)

// model is the state of the screen.
type model struct {
	*UI
	*messages

	ctx           context.Context
	style         chat.Style
	width, height int
	sized         bool // the terminal has said so
	list          list
	card          *card   // the request that is shown; nil: the list or a page
	page          *view   // the page that is shown; nil: the list or a request
	dialog        *dialog // below the card or page; nil: none
	help          bool
	helpTop       int // the first row of the help on the screen
	barrier       barrier
	notifier      notifier
	state         State
	known         bool         // state has been read
	closed        *atomic.Bool // of the input
	leaving       tea.Cmd      // what follows once the terminal owes no answer; nil: the UI goes on
	down          error        // why the gate cannot be read
	paused        string       // what is paused; "": nothing
	said          line         // the last reply
	deciding      bool
}

func newModel(ctx context.Context, u *UI) *model {
	m := &model{UI: u, ctx: ctx, width: 80, height: 24, closed: &atomic.Bool{}}
	m.refreshStyle()
	return m
}

func (m *model) refreshStyle() {
	m.style = m.Style()
	m.style.Buttons = true // keys stand for the codes
	m.messages = catalog(m.style.Language)
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := m.handle(msg)
	return m, tea.Batch(cmd, m.barrier.show(m.shown(), m.now()))
}

func (m *model) handle(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		return m.resize(msg)
	case uv.PrimaryDeviceAttributesEvent:
		return m.afterAnswer()
	case settleMsg:
		return m.barrier.settled(msg)
	case silenceMsg:
		return m.barrier.lost(msg, m.now())
	case leaveMsg:
		return m.left()
	case tea.ResumeMsg:
		m.closed.Store(false)
		return m.barrier.restart(m.now()) // the screen was another program's
	case stateMsg:
		return m.update(msg)
	case storyMsg:
		return m.updateCard(msg)
	case revealedMsg:
		return m.updateRevealed(msg)
	case settledMsg:
		return m.updateSettled(msg)
	case itemsMsg:
		return m.updatePage(msg)
	case actedMsg:
		return m.acted(msg)
	case repliedMsg:
		return m.replied(msg)
	case noticeMsg:
		return m.sayUnsaid()
	case tea.FocusMsg:
		m.setFocus(true)
	case tea.BlurMsg:
		m.setFocus(false)
	case tea.PasteMsg:
		if m.dialog != nil {
			m.dialog.insert(msg.Content)
		}
	case tea.KeyPressMsg:
		return m.key(msg)
	}
	return nil
}

// afterAnswer handles an answer of the terminal to a query.
func (m *model) afterAnswer() tea.Cmd {
	cmd := m.barrier.answered(m.now())
	if m.leaving != nil && !m.barrier.owed() {
		return m.left()
	}
	if m.card != nil && m.barrier.onScreen() {
		m.card.noteShown(m.bodyHeight())
	}
	return cmd
}

// leaveTime is how long the UI waits for answers of the terminal before it leaves it.
const leaveTime = 500 * time.Millisecond

// leaveMsg says that leaveTime is over.
type leaveMsg struct{}

// leave gives the terminal to another program, once no answer of it is on its way: a shell would take it for typed text.
func (m *model) leave(how tea.Cmd) tea.Cmd {
	m.barrier.close()
	m.closed.Store(true)
	if !m.barrier.owed() {
		return how
	}
	m.leaving = how
	return tea.Tick(leaveTime, func(time.Time) tea.Msg { return leaveMsg{} })
}

// left is the end of leave.
func (m *model) left() (how tea.Cmd) {
	how, m.leaving = m.leaving, nil
	return how
}

// update handles a change of what waits.
func (m *model) update(s stateMsg) tea.Cmd {
	m.refreshStyle()
	if m.down = s.err; s.err != nil {
		return nil
	}
	m.state, m.paused = s.State, m.pauseLine()
	settled := m.list.update(s.Waiting, m.style)
	first := !m.known
	m.known = true
	cmds := []tea.Cmd{m.reloadPage(), m.notify(s.Waiting)}
	for _, k := range settled {
		cmds = append(cmds, m.readSettled(k))
	}
	switch {
	case first && m.Only.ID != "":
		cmds = append(cmds, m.open(m.Only))
	case m.card != nil && m.card.changedBy(s.Waiting, m.style):
		cmds = append(cmds, m.readCard(m.card.key))
	}
	return tea.Batch(cmds...)
}

// shown is all that keys may decide about: the rows of the card, and what a dialog is about.
func (m *model) shown() string {
	if m.card == nil && m.dialog == nil {
		return strconv.Itoa(m.width) + "x" + strconv.Itoa(m.height)
	}
	var b strings.Builder
	if m.card != nil {
		b.WriteString(m.card.key.String() + " " + m.card.stored.SHA256 + "\n")
	}
	b.WriteString(strconv.Itoa(m.width) + "x" + strconv.Itoa(m.height) + "\n")
	for _, r := range m.body() {
		b.WriteString(r.text + "\n")
	}
	if m.dialog != nil {
		b.WriteString(m.dialog.identity())
	}
	return b.String()
}

// key handles a key.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	switch {
	case m.leaving != nil:
		return nil
	case name == "ctrl+c":
		return m.leave(tea.Interrupt)
	case name == "ctrl+z":
		return m.leave(tea.Suspend)
	case name == "ctrl+l":
		return tea.Sequence(tea.ClearScreen, m.barrier.restart(m.now())) // in this order: the card leaves the screen
	case m.deciding:
		return nil
	case m.dialog != nil:
		return m.dialogKey(k)
	case m.help:
		m.helpKey(name)
		return nil
	case name == "h" || name == "f1":
		m.help, m.helpTop, m.said = true, 0, line{}
		return nil
	case m.card != nil:
		return m.cardKey(name)
	case m.page != nil:
		return m.pageKey(name)
	}
	return m.listKey(name)
}

// resetMargins lets the whole screen scroll, and leaves the cursor where it is.
const resetMargins = "\x1b7\x1b[r\x1b8"

// resize fits everything to another size, and draws it again: a frame for the old size may have been on its way, and the
// renderer scrolls with margins, which end at the last row of that size.
func (m *model) resize(size tea.WindowSizeMsg) tea.Cmd {
	m.width, m.height = size.Width, size.Height
	m.layout()
	if !m.sized || m.barrier.closed { // the first one; or the card is shown anew when the UI goes on
		m.sized = true
		return nil
	}
	m.barrier.shown = m.shown()
	return tea.Sequence(tea.Raw(resetMargins), tea.ClearScreen, m.barrier.restart(m.now())) // in this order
}

// layout fits everything to the size of the screen.
func (m *model) layout() {
	if m.card != nil {
		m.card.wrap(m.width)
	}
	m.list.follow(m.bodyHeight())
}

// bodyHeight is the number of rows between the header and the footer.
func (m *model) bodyHeight() int {
	return max(1, m.height-len(m.header())-m.footerHeight()-len(m.dialogRows()))
}

// body are the rows of the list, of the card or of the page.
func (m *model) body() []row {
	n := m.bodyHeight()
	switch {
	case m.help:
		return window(m.helpRows(), m.helpTop, n)
	case m.card != nil:
		return m.card.window(n)
	case m.page != nil:
		return m.page.window(m, n)
	}
	return m.listRows(n)
}

// tooSmall reports whether a card, or a dialog with its keys, cannot be read on this screen.
func (m *model) tooSmall() bool { return m.width < minWidth || m.height < minHeight }

const (
	minWidth  = 20
	minHeight = 8
)

// window are n rows from top on, filled with empty ones.
func window(rows []row, top, n int) []row {
	top = max(0, min(top, len(rows)-n))
	part := slices.Clone(rows[top:min(len(rows), top+n)])
	for len(part) < n {
		part = append(part, row{})
	}
	return part
}

// header is the first row: what waits, and the place of the cursor. Others say what is wrong.
func (m *model) header() []row {
	var text, place string
	switch n := m.list.waiting(); {
	case !m.known:
		text = m.Connecting
	case n == 1:
		text = m.CountOne
	default:
		text = chat.Format(m.Count, "n", strconv.Itoa(n))
	}
	switch {
	case m.help || m.card != nil:
	case m.page != nil:
		text, place = m.Titles[m.page.Name]+" · "+text, m.place(m.page.at, len(m.page.items))
	default:
		place = m.place(m.list.at, len(m.list.visible()))
		if m.list.filter != "" {
			text = m.FilterLabel + ": " + m.list.filter + " · " + text
		}
	}
	var notices []line
	if m.paused != "" && m.card == nil { // a card says so itself
		notices = append(notices, line{warn, m.paused, true})
	}
	switch {
	case m.down != nil:
		notices = append(notices, line{bad, chat.Format(m.NoAnswer, "why", chat.Escape(firstLine(m.down.Error()))), true})
	case m.known && !m.state.Served:
		notices = append(notices, line{warn, m.NotServed, true})
	}
	if m.card != nil && m.barrier.silent {
		notices = append(notices, line{warn, m.Silent, true})
	}
	return append([]row{{inverse, between(" "+text, place+" ", m.width)}}, wrap(notices, m.width)...)
}

// place says which of n items is under the cursor.
func (m *model) place(at, n int) string {
	if n == 0 {
		return ""
	}
	return chat.Format(m.Place, "n", strconv.Itoa(at+1), "of", strconv.Itoa(n))
}

// pauseLine says which workspaces are paused, and since when the first is.
func (m *model) pauseLine() (text string) {
	var names []string
	all := m.Workspaces()
	for _, ws := range all {
		if line := m.style.PauseLine(ws, m.now()); line != "" {
			names, text = append(names, chat.Escape(ws)), cmp.Or(text, line)
		}
	}
	if len(names) == len(all) {
		return text
	}
	return strings.TrimPrefix(strings.Join(names, ", ")+": "+text, ": ")
}

func firstLine(s string) string {
	head, _, _ := strings.Cut(s, "\n")
	return head
}

// footer are the last rows: the last reply, the position, and the keys.
func (m *model) footer() []row {
	rows := m.saidRows()
	if m.dialog != nil {
		return rows
	}
	if m.card != nil && !m.help {
		rows = append(rows, m.card.position(m))
	}
	for _, text := range hintRows(m.keys(), m.width) {
		rows = append(rows, row{m.hintAttr(), text})
	}
	return rows
}

func (m *model) footerHeight() int {
	n := len(m.saidRows())
	if m.dialog != nil {
		return n
	}
	if m.card != nil && !m.help {
		n++
	}
	return n + len(hintRows(m.keys(), m.width))
}

// maxSaid is how many rows of a reply are shown.
const maxSaid = 4

func (m *model) saidRows() []row {
	if m.said.text == "" {
		return nil
	}
	var lines []line
	for text := range strings.SplitSeq(m.said.text, "\n") {
		lines = append(lines, line{m.said.attr, text, true})
	}
	rows := wrap(lines, m.width)
	return rows[:min(len(rows), maxSaid)]
}

// hintAttr shows whether keys decide now.
func (m *model) hintAttr() attribute {
	if m.card != nil && m.barrier.counts(m.now()) {
		return bold
	}
	return dim
}

// keys are the keys of what is shown. They are the same whether or not they count.
func (m *model) keys() []string {
	switch {
	case m.help && m.helpGoesOn():
		return []string{m.Keys.More, m.Keys.Back}
	case m.help:
		return []string{m.Keys.Back}
	case m.card != nil:
		return m.cardKeys()
	case m.page != nil:
		return m.page.keys(m)
	}
	return m.listKeys()
}

// maxHintRows is how many rows of keys are shown.
const maxHintRows = 2

// hintRows puts the keys into as few rows as possible. On a narrow screen some are left out: the last two, back and
// help, stay.
func hintRows(keys []string, width int) (rows []string) {
	for keys = slices.Clone(keys); ; keys = slices.Delete(keys, len(keys)-3, len(keys)-2) {
		if rows = joinKeys(keys, width); len(rows) <= maxHintRows || len(keys) < 3 {
			return rows
		}
	}
}

func joinKeys(keys []string, width int) (rows []string) {
	text := ""
	for _, k := range keys {
		if joined := strings.TrimPrefix(text+" · "+k, " · "); textWidth(joined) <= width {
			text = joined
			continue
		}
		rows, text = append(rows, text), k
	}
	return append(rows, text)
}

// View implements tea.Model.
func (m *model) View() tea.View {
	rows := slices.Concat(m.header(), m.body(), m.dialogRows(), m.footer())
	if m.tooSmall() {
		rows = wrap([]line{{warn, m.TooSmall, true}}, m.width)
	}
	rows = rows[:min(len(rows), m.height)]
	lines := make([]string, len(rows))
	for i, r := range rows {
		lines[i] = r.paint(m.width)
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	v.WindowTitle, v.ReportFocus = m.title(), !m.Quiet
	if m.dialog != nil && m.dialog.takesText() {
		x, y := m.dialog.cursor(m.width)
		v.Cursor = tea.NewCursor(x, min(m.height-1, len(m.header())+m.bodyHeight()+y))
	}
	return v
}

func (m *model) title() string {
	if m.Quiet {
		return ""
	}
	if n := m.list.waiting(); n > 0 {
		return "(" + strconv.Itoa(n) + ") permesso"
	}
	return "permesso"
}

// say shows a reply until the next one.
func (m *model) say(attr attribute, text string) { m.said = line{attr: attr, text: text} }

// message is a command about the card, in the grammar of all channels. ok is false if its text would be read as
// something else.
func (m *model) message(c chat.Command) (msg chat.Message, ok bool) {
	stored := m.card.stored // as it is now: the card may be replaced before the decision is taken
	msg = chat.Message{
		From: m.Person, Via: Via, Text: c.String(), Workspaces: m.Workspaces(), Language: m.style.Language, Card: &stored, Buttons: true,
	}
	read := msg.Command()
	return msg, read.Kind == c.Kind && read.Code == c.Code && read.Option == c.Option && read.ToAgent == c.ToAgent
}

// undoMessage revokes the grant of the card's approval.
func (m *model) undoMessage() chat.Message {
	c := chat.Command{Kind: chat.Undo, ID: m.card.key.ID}
	return chat.Message{From: m.Person, Via: Via, Text: c.String(), Workspaces: []string{m.card.key.Workspace}, Language: m.style.Language, Buttons: true}
}

// decide sends a decision about the card.
func (m *model) decide(c chat.Command) tea.Cmd { return m.decideWith(c, "") }

// decideWith is decide with a command pattern to remember.
func (m *model) decideWith(c chat.Command, pattern string) tea.Cmd {
	msg, ok := m.message(c)
	if !ok { // the dialog keeps the text
		m.say(warn, m.NotUnderstood)
		return nil
	}
	m.dialog = nil
	msg.Commands = pattern
	return m.handleMessage(msg)
}

// handleMessage acts on a message about the card.
func (m *model) handleMessage(msg chat.Message) tea.Cmd {
	m.deciding = true
	m.say(dim, m.Deciding)
	ic, key, undo := *m.Interceptor, m.card.key, msg.Command().Kind == chat.Undo
	return func() tea.Msg { return repliedMsg{key, ic.Handle(context.WithoutCancel(m.ctx), msg), undo} }
}

// replied shows the reply to a decision.
func (m *model) replied(r repliedMsg) tea.Cmd {
	m.deciding = false
	m.log(r.reply.Err)
	attr, text := plain, cmp.Or(r.reply.Text, m.NotUnderstood)
	switch {
	case r.reply.Acted:
		attr = good
	case r.reply.Err != nil:
		attr, text = bad, text+"\n"+chat.Escape(firstLine(r.reply.Err.Error()))
	}
	m.say(attr, text)
	if r.undo && r.reply.Err == nil && m.card != nil && m.card.key == r.key {
		m.card.undone = true
	}
	if m.card == nil || m.card.key != r.key {
		return nil
	}
	return m.readCard(r.key)
}
