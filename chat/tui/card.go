package tui

import (
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// card is the request on the screen.
type card struct {
	key      approval.Key
	stored   approval.StoredPending // as it is shown
	lines    []line
	rows     []row
	width    int
	top      int    // the first row on the screen
	endShown bool   // its end was on the screen
	pause    string // what it says of a pause
	loaded   bool
	settled  bool // it needs no decision any more
	final    bool // its outcome is known
	offers   offers
	masks    bool   // it masks something
	revealed string // the digest of what it shows without masks; "": it masks
	undo     bool   // its approval gave a grant
	undone   bool   // … which was revoked here
}

// storyMsg is a request as it was read, rendered.
type storyMsg struct {
	key   approval.Key
	story read.Story
	lines []line
	pause string
	at    int64 // the position of the log before it was read
	err   error

	offers offers
	masks  bool
}

// offers are the sentences of what an approval may remember, by scope.
type offers map[approval.Scope]string

func offersOf(style chat.Style, p *approval.Pending) offers {
	o := offers{}
	for _, scope := range []approval.Scope{approval.Session, approval.Always, approval.Commands} {
		if text := style.Offer(p, scope); text != "" {
			o[scope] = text
		}
	}
	return o
}

// lines are the sentences, each with its key.
func (o offers) lines() (texts []string) {
	pattern := "w "
	if o[approval.Always] != "" {
		pattern = "w Tab "
	}
	for _, x := range []struct {
		key   string
		scope approval.Scope
	}{{"s ", approval.Session}, {"w ", approval.Always}, {pattern, approval.Commands}} {
		if o[x.scope] != "" {
			texts = append(texts, x.key+o[x.scope])
		}
	}
	return texts
}

// open shows a request.
func (m *model) open(k approval.Key) tea.Cmd {
	m.card, m.dialog, m.said = &card{key: k}, nil, line{}
	return m.readCard(k)
}

// readCard reads a request and renders it: a large one takes longer than a frame.
func (m *model) readCard(k approval.Key) tea.Cmd {
	style, now, revealed, at := m.style, m.now(), m.card.revealed, m.state.At
	return func() tea.Msg {
		st, foot, err := m.Requests.Story(m.ctx, k)
		s := storyMsg{key: k, story: st, err: err, at: at, pause: style.PauseLine(k.Workspace, now)}
		if err != nil || st.Pending == nil {
			return s
		}
		style.Foot = foot
		if waits := st.Decision == nil && st.Record == nil; waits {
			style.Reveal = revealed != "" && revealed == st.SHA256
			s.offers, s.masks = offersOf(style, st.Pending), !style.Reveal && len(style.Masked(st.Pending)) > 0
		}
		s.lines = cardLines(cardOf(style, st.Pending, s.offers))
		return s
	}
}

// lineAttributes are those of the lines of what would run.
var lineAttributes = map[chat.LineKind]attribute{
	chat.LineStrong: bold, chat.LineWarn: warn, chat.LineAdded: good, chat.LineRemoved: bad, chat.LineSame: dim,
}

// cardOf is a card with keys in place of codes. One that needs no decision any more has no offers, not even none.
func cardOf(style chat.Style, p *approval.Pending, o offers) chat.Card {
	c := style.Card(p)
	switch {
	case o == nil:
		c.Menu, c.Why = nil, nil
	case p.Type == approval.TypeQuestion:
		c.Menu = c.Menu[:len(c.Menu)-1] // the last line says what to reply
	default:
		c.Menu = o.lines()
	}
	return c
}

// cardLines are the lines of a card: all that its text has, but for what to type.
func cardLines(c chat.Card) (lines []line) {
	add := func(attr attribute, sentence bool, texts ...string) {
		for _, t := range texts {
			if t != "" {
				lines = append(lines, line{attr, t, sentence})
			}
		}
	}
	add(bold, true, c.Question)
	add(plain, true, c.Object, c.Meta)
	add(warn, true, c.Warnings...)
	for _, k := range c.Evidence {
		add(plain, true, k.Text)
	}
	for _, l := range c.Runs {
		lines = append(lines, line{lineAttributes[l.Kind], l.Text, false})
	}
	for _, t := range c.Changes {
		lines = append(lines, line{plain, t, false})
	}
	add(dim, true, c.Prose...)
	add(warn, true, c.Blocked)
	add(plain, true, c.Menu...)
	add(dim, true, c.Foot)
	add(dim, true, c.Why...)
	return lines
}

// updateCard shows a request as it was read.
func (m *model) updateCard(s storyMsg) tea.Cmd {
	c := m.card
	if c == nil || c.key != s.key {
		return nil
	}
	if s.err != nil {
		m.log(s.err)
		m.say(bad, chat.Format(m.NoAnswer, "why", chat.Escape(firstLine(s.err.Error()))))
		return nil
	}
	if !s.story.Exists() {
		m.say(warn, chat.Format(m.NoRequest, "id", chat.Escape(approval.ShortID(s.key.ID))))
		if m.Only == s.key {
			return m.leave(tea.Quit)
		}
		m.card, m.dialog = nil, nil
		return nil
	}
	c.settled, c.final = s.story.Decision != nil || s.story.Record != nil, s.story.Record != nil
	c.offers, c.masks, c.undo = s.offers, s.masks, m.gave(s.story) && !c.undone
	lines := s.lines
	if c.settled {
		m.dialog = nil
		lines = append(m.settledLines(s.story), lines...)
	}
	if !slices.Equal(lines, c.lines) || s.story.SHA256 != c.stored.SHA256 && !c.settled {
		c.setLines(lines, m.width)
		if m.dialog != nil {
			m.dialog = nil
			m.say(warn, m.Changed)
		}
	}
	c.stored, c.pause, c.loaded = approval.StoredPending{Pending: s.story.Pending, SHA256: s.story.SHA256}, s.pause, true
	switch {
	case c.final && m.Only == s.key:
		return m.leave(tea.Quit)
	case s.at != m.state.At && c.changedBy(m.state.Waiting, m.style): // it was replaced while it was read
		return m.readCard(s.key)
	}
	return nil
}

// settledLines say how a request was settled, above its card.
func (m *model) settledLines(st read.Story) (lines []line) {
	attr := good
	if st.Record != nil && !slices.Contains([]approval.Status{approval.StatusApproved, approval.StatusAutoApproved, approval.StatusAnswered}, st.Record.Status) {
		attr = bad
	}
	for text := range strings.SplitSeq(m.outcome(st), "\n") {
		lines = append(lines, line{attr, text, true})
	}
	return append(lines, line{})
}

// gave reports whether an approval gave a grant, which can be revoked here.
func (m *model) gave(st read.Story) bool {
	r := m.Interceptor.Revoker
	return r != nil && st.Pending != nil && st.Decision != nil && r.Given(st.Pending, st.Decision) != nil
}

// setLines shows other lines, from their beginning.
func (c *card) setLines(lines []line, width int) {
	c.lines, c.top, c.endShown = lines, 0, false
	c.wrap(width)
}

func (c *card) wrap(width int) {
	c.width, c.rows = width, wrap(c.lines, width)
}

func (c *card) window(n int) []row { return window(c.rows, c.top, n) }

// noteShown records that the terminal shows the rows from top on.
func (c *card) noteShown(height int) {
	if c.loaded && c.top+height >= len(c.rows) {
		c.endShown = true
	}
}

func (c *card) scroll(by, height int) { c.top = max(0, min(c.top+by, len(c.rows)-height)) }

// changedBy reports whether the request has to be read again.
func (c *card) changedBy(waiting []approval.StoredPending, style chat.Style) bool {
	i := slices.IndexFunc(waiting, func(w approval.StoredPending) bool { return w.Key() == c.key })
	switch {
	case !c.loaded || c.final:
		return false
	case i < 0:
		return true
	}
	return c.settled || waiting[i].SHA256 != c.stored.SHA256 || style.PauseLine(c.key.Workspace, waiting[i].Pending.Timestamp) != c.pause
}

// position says which part of the card is shown, and whether it can be decided.
func (c *card) position(m *model) row {
	n, all := m.bodyHeight(), len(c.rows)
	var parts []string
	if all > n {
		parts = append(parts, chat.Format(m.Position, "from", strconv.Itoa(c.top+1), "to", strconv.Itoa(min(c.top+n, all)), "of", strconv.Itoa(all)))
	}
	switch {
	case !c.loaded:
		parts = append(parts, m.Loading)
	case c.settled:
	case !c.endShown && c.top+n < all:
		parts = append(parts, m.ReadOn)
		if m.said.text == m.ReadOn || textWidth(strings.Join(parts, " · ")) > m.width {
			parts[1] = m.ReadOnShort
		}
	case !c.endShown, !m.barrier.counts(m.now()):
		parts = append(parts, m.Wait)
	}
	return row{dim, strings.Join(parts, " · ")}
}

// isQuestion reports whether the card is a question of the agent.
func (c *card) isQuestion() bool { return c.stored.Pending.Type == approval.TypeQuestion }

func (m *model) cardKeys() []string {
	c, k := m.card, m.Keys
	end := []string{k.Next, k.Copy, k.Back}
	if m.Only.ID != "" {
		end = []string{k.Copy, k.Quit}
	}
	switch {
	case c.undo:
		return append([]string{k.Undo}, end...)
	case !c.loaded || c.settled:
		return end
	case c.isQuestion() && len(c.stored.Pending.Options) > 0:
		return append(append([]string{k.Option, k.Answer, k.Deny, k.Reason, k.Ask}, end...), k.Help)
	case c.isQuestion():
		return append(append([]string{k.Answer, k.Deny, k.Reason, k.Ask}, end...), k.Help)
	}
	keys := []string{k.Approve, k.Deny}
	if c.offers[approval.Session] != "" {
		keys = append(keys, k.Session)
	}
	if c.offers[approval.Always] != "" || c.offers[approval.Commands] != "" {
		keys = append(keys, k.Always)
	}
	if c.masks && m.Reveal != nil {
		keys = append(keys, k.Reveal)
	}
	return append(append(append(keys, k.Text, k.Ask, k.Reason), end...), k.Help)
}

// cardKey handles a key while a request is shown.
func (m *model) cardKey(name string) tea.Cmd {
	c, height := m.card, m.bodyHeight()
	if m.said.text == m.ReadOn { // until something else is done
		m.said = line{}
	}
	switch name {
	case "q", "esc", "left":
		return m.leaveCard()
	case "n":
		if next := m.list.next(c.key); next.ID != "" && m.Only.ID == "" {
			return m.open(next)
		}
		return m.leaveCard()
	case "up", "k":
		c.scroll(-1, height)
	case "down", "j":
		c.scroll(1, height)
	case "pgup", "b":
		c.scroll(-height, height)
	case "pgdown", "space":
		c.scroll(height, height)
	case "home":
		c.scroll(-len(c.rows), height)
	case "end":
		c.scroll(len(c.rows), height)
	case "y":
		if c.loaded {
			return m.copyCard()
		}
	case "u":
		if c.undo && m.barrier.counts(m.now()) {
			return m.handleMessage(m.undoMessage())
		}
	default:
		return m.decisionKey(name)
	}
	return nil
}

// leaveCard goes back to the list, or ends the UI if it was started for this request.
func (m *model) leaveCard() tea.Cmd {
	if m.Only.ID != "" {
		return m.leave(tea.Quit)
	}
	m.card, m.said = nil, line{}
	m.list.tidy()
	m.list.follow(m.bodyHeight())
	return nil
}

// maxCopy is how many bytes can be copied: many terminals take 100,000 bytes of base64, and cut or drop more.
const maxCopy = 74_000

// copyCard copies the card as it is shown to the terminal's clipboard, or nothing of it if it is too long.
func (m *model) copyCard() tea.Cmd {
	texts := make([]string, len(m.card.lines))
	for i, l := range m.card.lines {
		texts[i] = safe(l.text)
	}
	text := strings.Join(texts, "\n") + "\n"
	if len(text) > maxCopy {
		m.say(warn, chat.Format(m.TooLong, "n", strconv.Itoa((len(text)+999)/1000), "max", strconv.Itoa(maxCopy/1000), "id", chat.Escape(m.card.stored.Pending.ShortID)))
		return nil
	}
	m.say(dim, m.Copied)
	return tea.SetClipboard(text)
}

// counts reports whether a key decides now: the whole screen is shown, and has been there for a while.
func (m *model) counts() bool {
	fits := !m.tooSmall() && len(m.header())+1+len(m.dialogRows())+m.footerHeight() <= m.height
	return fits && m.barrier.counts(m.now()) && m.card.loaded && !m.card.settled
}

// decisionKey handles a key that decides, or begins to. It is dropped if the card has not been on the screen long enough.
func (m *model) decisionKey(name string) tea.Cmd {
	c := m.card
	if !m.counts() {
		return nil
	}
	m.said = line{}
	p, question := c.stored.Pending, c.isQuestion()
	switch {
	case name == "d":
		return m.decide(m.denial(""))
	case name == "D":
		m.dialog = m.textDialog(m.Reason, m.denial)
	case name == "?":
		m.dialog = m.questionDialog()
	case name == "r" && c.masks && m.Reveal != nil:
		return m.reveal()
	case question && name == "e":
		m.dialog = m.textDialog(m.Answer, m.answer)
	case question:
		if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= len(p.Options) {
			return m.decide(chat.Command{Kind: chat.Option, Option: n})
		}
	case name == "e":
		m.dialog = m.noteDialog()
	case !c.endShown && (name == "a" || name == "s" || name == "w"):
		m.say(warn, m.ReadOn)
	case name == "a":
		return m.approve(chat.Command{Kind: chat.Menu, Code: "1"}, "")
	case name == "s":
		m.remember(approval.Session)
	case name == "w":
		m.remember(approval.Always, approval.Commands)
	}
	return nil
}

// denial denies the card. A digit is an option of a question.
func (m *model) denial(reason string) chat.Command {
	if m.card.isQuestion() {
		return chat.Command{Kind: chat.Deny, ID: m.card.key.ID, Text: reason}
	}
	return chat.Command{Kind: chat.Menu, Code: "3", Text: reason}
}

// answer answers a question, with the number of an option or with a text.
func (m *model) answer(text string) chat.Command {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= len(m.card.stored.Pending.Options) {
		return chat.Command{Kind: chat.Option, Option: n}
	}
	return chat.Command{Kind: chat.Free, Text: text}
}

// approve approves, after a confirmation if it cannot be undone. pattern is what code 6 remembers instead of the same
// request.
func (m *model) approve(c chat.Command, pattern string) tea.Cmd {
	if !m.card.stored.Pending.CannotBeUndone() {
		return m.decideWith(c, pattern)
	}
	m.dialog = m.wordDialog(func() tea.Cmd { return m.decideWith(c, pattern) })
	return nil
}

// revealedMsg says whether a card may show what it masks.
type revealedMsg struct {
	key    approval.Key
	sha256 string
	err    error
}

// reveal shows what the card masks, until the person leaves it. The audit log has it before.
func (m *model) reveal() tea.Cmd {
	key := m.card.key
	return func() tea.Msg {
		w, err := m.Reveal(m.ctx, key)
		if err != nil {
			return revealedMsg{key: key, err: err}
		}
		return revealedMsg{key: key, sha256: w.SHA256}
	}
}

func (m *model) updateRevealed(r revealedMsg) tea.Cmd {
	switch {
	case r.err != nil:
		m.say(bad, chat.Format(m.NotRevealed, "why", chat.Escape(firstLine(r.err.Error()))))
	case m.card != nil && m.card.key == r.key && r.sha256 == m.card.stored.SHA256:
		m.card.revealed = r.sha256
		m.say(warn, m.Revealed)
		return m.readCard(r.key)
	}
	return nil
}

// remember shows what would be remembered. Tab shows the other scope, if there is one.
func (m *model) remember(scopes ...approval.Scope) {
	var all []*dialog
	for _, scope := range scopes {
		if m.card.offers[scope] != "" {
			all = append(all, m.rememberDialog(scope))
		}
	}
	switch len(all) {
	case 0:
		m.say(warn, chat.Format(m.NoGrant, "why", m.style.WhyNot(m.card.stored.Pending, scopes[0])))
		return
	case 2:
		all[0].other, all[1].other = all[1], all[0]
	}
	m.dialog = all[0]
}

func (m *model) rememberDialog(scope approval.Scope) *dialog {
	p, code, pattern := m.card.stored.Pending, "6", ""
	switch scope {
	case approval.Session:
		code = "2"
	case approval.Commands:
		pattern = chat.CommandPattern(p)
	}
	sentence := strings.TrimSpace(m.card.offers[scope] + ". " + m.style.OfferCount(p, scope))
	return &dialog{name: m.Scopes[string(scope)], sentence: sentence, yes: m.Keys.ApproveIt, submit: func(string) tea.Cmd {
		return m.approve(chat.Command{Kind: chat.Menu, Code: code}, pattern)
	}}
}
