package tui

import (
	"cmp"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// entry is a request in the list. It stays at its place when it is decided, until the person leaves the list.
type entry struct {
	stored  approval.StoredPending
	text    string
	settled bool
	how     string // how it was settled, "" until that is known
	final   bool   // nothing follows
}

// list is what waits, the oldest first, and what waited.
type list struct {
	entries []*entry
	at      int    // the index of the entry under the cursor
	top     int    // the first row on the screen
	filter  string // only entries with this text, in lower case
}

// maxSettled is how many settled entries stay.
const maxSettled = 1000

// update adds what is new at the end, and marks what is gone. It returns the keys of those of which the outcome is to
// be read. The row under the cursor stays where it is.
func (l *list) update(waiting []approval.StoredPending, style chat.Style) (read []approval.Key) {
	current := l.current()
	defer l.keep(current, l.at)
	now := map[approval.Key]approval.StoredPending{}
	for _, w := range waiting {
		now[w.Key()] = w
	}
	for _, e := range l.entries {
		w, waits := now[e.stored.Key()]
		delete(now, e.stored.Key())
		switch {
		case waits && w.SHA256 != e.stored.SHA256: // replaced by another with the same key
			*e = entry{stored: w, text: style.Line(w.Pending)}
		case waits:
			e.settled = false
		case !e.final:
			e.settled = true
			read = append(read, e.stored.Key())
		}
	}
	for _, w := range waiting {
		if _, isNew := now[w.Key()]; isNew {
			l.entries = append(l.entries, &entry{stored: w, text: style.Line(w.Pending)})
		}
	}
	if len(l.entries) > len(waiting)+maxSettled {
		l.tidy()
	}
	return read
}

// keep moves the cursor back to an entry that has moved, together with the rows around it.
func (l *list) keep(e *entry, from int) {
	if i := slices.Index(l.visible(), e); i >= 0 {
		l.at, l.top = i, max(0, l.top+i-from)
	}
}

func (l *list) waiting() (n int) {
	for _, e := range l.entries {
		if !e.settled {
			n++
		}
	}
	return n
}

// tidy removes what is settled. The cursor stays on its entry, or goes to the next one that waits.
func (l *list) tidy() {
	all := l.visible()
	next := l.current()
	for _, e := range all[min(l.at, len(all)):] {
		if next = e; !e.settled {
			break
		}
	}
	l.entries = slices.DeleteFunc(l.entries, func(e *entry) bool { return e.settled })
	l.at = max(0, min(l.at, len(l.visible())-1))
	l.keep(next, l.at)
}

// visible are the entries that the filter shows.
func (l *list) visible() []*entry {
	if l.filter == "" {
		return l.entries
	}
	return slices.DeleteFunc(slices.Clone(l.entries), func(e *entry) bool { return !strings.Contains(strings.ToLower(e.text), l.filter) })
}

// current is the entry under the cursor, nil if there is none.
func (l *list) current() *entry {
	all := l.visible()
	if l.at >= len(all) {
		return nil
	}
	return all[l.at]
}

func (l *list) find(k approval.Key) *entry {
	for _, e := range l.entries {
		if e.stored.Key() == k {
			return e
		}
	}
	return nil
}

// next is the first request after k that waits, else the first of all; the zero Key if there is no other.
func (l *list) next(k approval.Key) (next approval.Key) {
	passed := false
	for _, e := range l.entries {
		switch key := e.stored.Key(); {
		case key == k:
			passed = true
		case e.settled:
		case passed:
			return key
		case next.ID == "":
			next = key
		}
	}
	return next
}

// move moves the cursor.
func (l *list) move(by, height int) {
	l.at = max(0, min(l.at+by, len(l.visible())-1))
	l.follow(height)
}

// follow scrolls to the cursor.
func (l *list) follow(height int) {
	l.top = max(0, min(l.top, l.at))
	if l.at >= l.top+height {
		l.top = l.at - height + 1
	}
}

func (m *model) listRows(n int) []row {
	all := m.list.visible()
	if len(all) == 0 && m.known {
		text := m.None
		switch {
		case m.list.filter != "":
			text = m.NoMatch
		case !m.state.Served: // nothing appears
			text = ""
		}
		return window(wrap([]line{{dim, text, true}}, m.width), 0, n)
	}
	top := max(0, min(m.list.top, len(all)-n))
	var rows []row
	for i, e := range all[top:min(len(all), top+n)] {
		rows = append(rows, m.entryRow(e, top+i == m.list.at))
	}
	return window(rows, 0, n)
}

// wideList is the width from which a list has all columns.
const wideList = 60

// entryRow is one row of the list. What cannot be undone has a mark.
func (m *model) entryRow(e *entry, current bool) row {
	lead, attr, short := "  ", plain, chat.Escape(e.stored.Pending.ShortID)
	if current {
		lead, attr = "› ", bold
	}
	switch {
	case e.settled:
		how := strings.TrimPrefix(e.how, short+" · ")
		return row{dim, lead + "  " + strings.Join([]string{short, cmp.Or(how, "…"), m.style.Brief(e.stored.Pending)}, " · ")}
	case e.stored.Pending.CannotBeUndone():
		lead += "! "
	default:
		lead += "  "
	}
	if m.width < wideList {
		return row{attr, lead + short + " " + m.style.VerbAndObject(e.stored.Pending)}
	}
	end := strings.LastIndex(e.text, " · ")
	return row{attr, between(lead+e.text[:end], e.text[end+len(" · "):], m.width)}
}

func (m *model) listKeys() []string {
	keys := []string{m.Keys.Open, m.Keys.Filter}
	for _, p := range m.Pages {
		keys = append(keys, p.Key+" "+m.Titles[p.Name])
	}
	return append(keys, m.Keys.Help, m.Keys.Quit)
}

// listKey handles a key of the list. None decides.
func (m *model) listKey(name string) tea.Cmd {
	l, height := &m.list, m.bodyHeight()
	switch name {
	case "q":
		return m.leave(tea.Quit)
	case "esc": // does not quit: on a slow line an arrow key may begin with it
		l.filter = ""
		l.move(0, height)
	case "up", "k":
		l.move(-1, height)
	case "down", "j":
		l.move(1, height)
	case "pgup":
		l.move(-height, height)
	case "pgdown":
		l.move(height, height)
	case "home":
		l.move(-len(l.entries), height)
	case "end":
		l.move(len(l.entries), height)
	case "enter", "right", "l":
		if e := l.current(); e != nil {
			return m.open(e.stored.Key())
		}
	case "/":
		m.dialog = m.filterDialog()
	default:
		return m.openPage(name)
	}
	return nil
}

// settledMsg says how a request was settled.
type settledMsg struct {
	key   approval.Key
	story read.Story
	err   error
}

// readSettled reads what became of a request.
func (m *model) readSettled(k approval.Key) tea.Cmd {
	return func() tea.Msg {
		st, _, err := m.Requests.Story(m.ctx, k)
		return settledMsg{k, st, err}
	}
}

func (m *model) updateSettled(s settledMsg) tea.Cmd {
	m.log(s.err)
	if e := m.list.find(s.key); e != nil && s.err == nil {
		e.how, e.final = m.outcome(s.story), s.story.Record != nil || !s.story.Exists()
	}
	return nil
}

// outcome says how a request was settled, and by whom.
func (m *model) outcome(st read.Story) string {
	switch {
	case st.Record != nil:
		return m.style.Outcome(st.Record)
	case st.Decision != nil:
		verdict := chat.Messages[struct{ Verdicts map[string]string }](m.style.Language, "card").Verdicts[string(st.Decision.Verdict)]
		return chat.Format(m.DecidedBy, "verdict", verdict, "by", chat.Escape(st.Decision.DecidedBy))
	}
	return m.Gone
}
