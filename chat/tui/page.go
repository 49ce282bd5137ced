package tui

import (
	"context"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Page is a list besides that of what waits: grants, history and their like.
type Page struct {
	Key  string // opens it, from the list
	Name string // of its title in the messages
	Load func(ctx context.Context) ([]Item, error)
	// Act changes an item, and says what it did. nil: nothing can be changed.
	Act func(ctx context.Context, i Item) (string, error)
}

// Item is one item of a page.
type Item struct {
	Text     string // one line, rendered by package chat
	ID       string
	Question string       // what Act would do; "": nothing
	Open     approval.Key // the request that Enter shows, in place of Act
}

// view is a page on the screen.
type view struct {
	*Page
	items   []Item
	loaded  bool
	reads   bool // its items are being read
	again   bool // something has changed since that began
	at, top int
}

type itemsMsg struct {
	page  *view
	items []Item
	err   error
}

type actedMsg struct {
	text string
	err  error
}

// openPage shows the page that a key opens.
func (m *model) openPage(key string) tea.Cmd {
	i := slices.IndexFunc(m.Pages, func(p Page) bool { return p.Key == key })
	if i < 0 {
		return nil
	}
	m.page, m.said = &view{Page: &m.Pages[i]}, line{}
	return m.reloadPage()
}

func (m *model) reloadPage() tea.Cmd {
	p := m.page
	if p == nil {
		return nil
	}
	if p.again = p.reads; p.again {
		return nil
	}
	p.reads = true
	return func() tea.Msg {
		items, err := p.Load(m.ctx)
		return itemsMsg{p, items, err}
	}
}

// updatePage shows items. The cursor stays on its item.
func (m *model) updatePage(s itemsMsg) tea.Cmd {
	if m.page != s.page {
		return nil
	}
	p := m.page
	var next tea.Cmd
	if p.reads = false; p.again {
		next = m.reloadPage()
	}
	if s.err != nil {
		m.say(bad, chat.Escape(firstLine(s.err.Error())))
		return next
	}
	if p.at < len(p.items) {
		id := p.items[p.at].ID
		if i := slices.IndexFunc(s.items, func(i Item) bool { return i.ID == id }); i >= 0 {
			p.at = i
		}
	}
	p.items, p.loaded, p.at = s.items, true, max(0, min(p.at, len(s.items)-1))
	return next
}

func (p *view) window(m *model, n int) []row {
	var rows []row
	switch {
	case !p.loaded:
		return window(wrap([]line{{dim, m.Loading, true}}, m.width), 0, n)
	case len(p.items) == 0:
		return window(wrap([]line{{dim, m.Empty[p.Name], true}}, m.width), 0, n)
	}
	first, last := 0, 0 // rows of the current item
	for i, item := range p.items {
		if i == p.at {
			first = len(rows)
		}
		part := wrap([]line{{plain, item.Text, true}}, m.width)
		if i == p.at {
			for j := range part {
				part[j].attr = bold
			}
			part[0].text = "› " + strings.TrimPrefix(part[0].text, begins)
		}
		if rows = append(rows, part...); i == p.at {
			last = len(rows)
		}
	}
	p.top = min(max(p.top, last-n), first)
	return window(rows, p.top, n)
}

func (p *view) keys(m *model) []string {
	keys := []string{m.Keys.Scroll}
	if p.at < len(p.items) {
		switch i := p.items[p.at]; {
		case i.Open.ID != "":
			keys = append(keys, m.Keys.Open)
		case i.Question != "":
			keys = append(keys, m.Keys.Act)
		}
	}
	return append(keys, m.Keys.Back, m.Keys.Help)
}

// pageKey handles a key of a page.
func (m *model) pageKey(name string) tea.Cmd {
	p, height := m.page, m.bodyHeight()
	m.said = line{}
	by := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -height, "pgdown": height, "home": -len(p.items), "end": len(p.items)}
	switch name {
	case "q", "esc", "left":
		m.page = nil
	case "enter":
		if p.at < len(p.items) {
			return m.choose(p, p.items[p.at])
		}
	default:
		p.at = max(0, min(p.at+by[name], len(p.items)-1))
		return m.openPage(name)
	}
	return nil
}

// choose opens the request of an item, or asks before it changes it.
func (m *model) choose(p *view, i Item) tea.Cmd {
	switch {
	case i.Open.ID != "":
		return m.open(i.Open)
	case p.Act == nil || i.Question == "":
		m.say(dim, m.Unchangeable)
	default:
		m.dialog = &dialog{sentence: i.Question, submit: func(string) tea.Cmd { return m.act(p, i) }}
	}
	return nil
}

// act changes an item.
func (m *model) act(p *view, i Item) tea.Cmd {
	m.dialog = nil
	return func() tea.Msg {
		text, err := p.Act(context.WithoutCancel(m.ctx), i)
		return actedMsg{text, err}
	}
}

func (m *model) acted(a actedMsg) tea.Cmd {
	if a.err != nil {
		m.say(bad, chat.Escape(firstLine(a.err.Error())))
		return nil
	}
	m.say(good, a.text)
	return m.reloadPage()
}

func (m *model) helpRows() []row {
	var lines []line
	for text := range strings.SplitSeq(m.Help, "\n") {
		lines = append(lines, line{plain, text, true})
	}
	return wrap(lines, m.width)
}

// helpGoesOn reports whether there is more help than fits. The keys take one row.
func (m *model) helpGoesOn() bool { return m.helpTop+m.height-len(m.header())-1 < len(m.helpRows()) }

// helpKey shows more help, or leaves it.
func (m *model) helpKey(name string) {
	if (name == "space" || name == "pgdown") && m.helpGoesOn() {
		m.helpTop += m.bodyHeight()
		return
	}
	m.help = false
}
