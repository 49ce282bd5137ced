package tui

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// noticeInterval is the shortest time between two notifications.
const noticeInterval = 2 * time.Second

// notifier tells of requests that arrive while the terminal shows something else.
type notifier struct {
	seen    map[string]bool // digests of requests
	unsaid  []approval.StoredPending
	last    time.Time
	focused bool // the terminal has reported that it has the focus
}

// noticeMsg says that noticeInterval is over.
type noticeMsg struct{}

// notify notes what waits now, and tells of what has arrived since the first time.
func (m *model) notify(waiting []approval.StoredPending) tea.Cmd {
	n := &m.notifier
	silent := m.Quiet || m.Only.ID != "" || n.focused
	if n.seen == nil {
		n.seen, silent = map[string]bool{}, true
	}
	for _, w := range waiting {
		if !n.seen[w.SHA256] && !silent {
			n.unsaid = append(n.unsaid, w)
		}
		n.seen[w.SHA256] = true
	}
	n.unsaid = slices.DeleteFunc(n.unsaid, func(u approval.StoredPending) bool {
		return !slices.ContainsFunc(waiting, func(w approval.StoredPending) bool { return w.SHA256 == u.SHA256 })
	})
	return m.sayUnsaid()
}

// sayUnsaid sends one notification for all that have arrived, now or when the interval is over.
func (m *model) sayUnsaid() tea.Cmd {
	n, now := &m.notifier, m.now()
	if len(n.unsaid) == 0 {
		return nil
	}
	if wait := noticeInterval - now.Sub(n.last); wait > 0 && wait <= noticeInterval {
		return tea.Tick(wait, func(time.Time) tea.Msg { return noticeMsg{} })
	}
	text := notification(m.Env, notice(m.style, n.unsaid))
	n.unsaid, n.last = nil, now
	return tea.Raw(text)
}

// setFocus handles a report of the terminal's focus. What the person sees needs no notification.
func (m *model) setFocus(focused bool) {
	m.notifier.focused = focused
	if focused {
		m.notifier.unsaid = nil
	}
}

// notice is the notice of the first request, which says how many more there are. A target may be filled in from the
// request, so it is left out.
func notice(style chat.Style, list []approval.StoredPending) chat.Notice {
	p := *list[0].Pending
	p.Target = ""
	n := style.Notice(&p)
	if more := len(list) - 1; more > 0 {
		n.Text += " · " + style.MoreNotices(more)
	}
	return n
}

// notification is the bell, and the sequence with which the terminal shows a notification, if it knows one. A program
// in tmux or screen does not know the terminal, and they tell of the bell.
func notification(env []string, n chat.Notice) string {
	title, text := noticeField(n.Title), noticeField(n.Text)
	const bell, end = "\a", "\x1b\\"
	switch notificationOf(env) {
	case 9:
		return bell + "\x1b]9;" + title + " " + text + end
	case 99: // base64, by e=1; o=unfocused: the terminal shows it only if it has not the focus
		part := func(meta, s string) string {
			return "\x1b]99;i=permesso:e=1:o=unfocused:" + meta + ";" + base64.StdEncoding.EncodeToString([]byte(s)) + end
		}
		return bell + part("d=0:p=title", title) + part("d=1:p=body", text)
	case 777:
		return bell + "\x1b]777;notify;" + title + ";" + text + end
	}
	return bell
}

// noticeField is a text without what ends a field.
func noticeField(s string) string { return strings.ReplaceAll(safe(s), ";", ",") }

// notificationOf is the number of the sequence for notifications that the terminal of an environment knows, 0 if none
// is known.
func notificationOf(env []string) int {
	get := func(name string) string {
		for _, v := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	term := get("TERM")
	begins := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(term, name) })
	}
	switch program := get("TERM_PROGRAM"); {
	case get("TMUX") != "", get("STY") != "", begins("tmux", "screen"):
		return 0
	case program == "WezTerm", program == "ghostty", begins("wezterm", "xterm-ghostty", "foot", "rxvt-unicode", "contour"):
		return 777
	case program == "iTerm.app", program == "WarpTerminal":
		return 9
	case begins("xterm-kitty"), get("KITTY_WINDOW_ID") != "":
		return 99
	}
	return 0
}
