package tui

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// hostileWords is in every text that an agent can choose.
const hostileWords = "EVIL\x1b]0;x\a\x1b[2J\u202e\u200b;\u009b31m"

// noRequests has none.
type noRequests struct{}

func (noRequests) Follow(context.Context, int64) (State, error) { return State{}, errors.New("unused") }

func (noRequests) Story(context.Context, approval.Key) (read.Story, string, error) {
	return read.Story{}, "", errors.New("unused")
}

// noticeModel is a model with a clock that the test sets.
func noticeModel(env ...string) (*model, *time.Time) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return newModel(context.Background(), &UI{
		Env: env, Requests: noRequests{}, Style: func() chat.Style { return chat.Style{Language: "en", Zone: time.UTC} }, Now: func() time.Time { return now },
	}), &now
}

// arriving is a request in which all that an agent can choose is hostileWords.
func arriving(n int) approval.StoredPending {
	id := fmt.Sprintf("%016x", n)
	return approval.StoredPending{SHA256: id, Pending: &approval.Pending{
		RequestID: id, ShortID: id[8:], SourceGroup: "work", ToolName: "post", ToolSHA256: "00", Target: hostileWords, Summary: hostileWords, SessionID: hostileWords,
		Verb: map[string]string{"en": "post {text}"}, RequestData: []byte(`{"text":"EVIL"}`),
	}}
}

// sent is what a state with these requests writes to the terminal besides the frame.
func sent(t *testing.T, m *model, waiting ...approval.StoredPending) string {
	t.Helper()
	return written(m.notify(waiting))
}

// written is what a command writes at once; "later" if it waits. It needs a bubble.
func written(cmd tea.Cmd) string {
	if cmd == nil {
		return ""
	}
	began := time.Now()
	msg := cmd()
	if raw, ok := msg.(tea.RawMsg); ok && time.Since(began) == 0 {
		return fmt.Sprint(raw.Msg)
	}
	return "later"
}

func TestNotificationBytes(t *testing.T) {
	n := chat.Notice{Title: "🔐 May I post?", Text: "post · work; a"}
	const (
		bell  = "\a"
		osc9  = "\a\x1b]9;🔐 May I post? post · work, a\x1b\\"
		osc77 = "\a\x1b]777;notify;🔐 May I post?;post · work, a\x1b\\"
	)
	osc99 := "\a\x1b]99;i=permesso:e=1:o=unfocused:d=0:p=title;" + base64.StdEncoding.EncodeToString([]byte("🔐 May I post?")) + "\x1b\\" +
		"\x1b]99;i=permesso:e=1:o=unfocused:d=1:p=body;" + base64.StdEncoding.EncodeToString([]byte("post · work, a")) + "\x1b\\"
	for env, want := range map[string]string{
		"":                                                bell,
		"TERM=xterm-256color":                             bell,
		"TERM=alacritty":                                  bell,
		"TERM=linux":                                      bell,
		"WT_SESSION=1 TERM=xterm-256color":                bell,
		"TERM_PROGRAM=Apple_Terminal":                     bell,
		"TERM=xterm-kitty":                                osc99,
		"TERM=xterm-256color KITTY_WINDOW_ID=":            bell,
		"TERM=xterm-256color KITTY_WINDOW_ID=1":           osc99,
		"TERM_PROGRAM=iTerm.app TERM=xterm-256color":      osc9,
		"TERM_PROGRAM=WarpTerminal TERM=xterm-256color":   osc9,
		"TERM_PROGRAM=WezTerm TERM=xterm-256color":        osc77,
		"TERM_PROGRAM=WezTerm KITTY_WINDOW_ID=1":          osc77, // started from a shell in kitty
		"TERM_PROGRAM=ghostty TERM=xterm-ghostty":         osc77,
		"TERM=xterm-ghostty SSH_TTY=/dev/pts/1":           osc77,
		"TERM=foot":                                       osc77,
		"TERM=rxvt-unicode-256color":                      osc77,
		"TERM=tmux-256color TMUX=/tmp/t,1,0":              bell,
		"TERM=xterm-kitty TMUX=/tmp/t,1,0":                bell,
		"TERM_PROGRAM=ghostty TERM=screen STY=1.pts":      bell,
		"TERM=screen-256color KITTY_WINDOW_ID=1":          bell, // ssh out of tmux
		"TERM_PROGRAM=iTerm.app TERM_PROGRAM=tmux TERM=x": bell, // the last one counts
	} {
		require.Equal(t, want, notification(strings.Fields(env), n), env)
	}
}

// Nothing that an agent can choose is in a notification, and nothing in it ends a sequence.
func TestNotificationsHaveOnlyTheGatesWords(t *testing.T) {
	tool := arriving(1)
	unknown, question := arriving(2), arriving(3)
	unknown.Pending.ToolName, unknown.Pending.ToolSHA256, unknown.Pending.ActionType = hostileWords, "", "code_exec"
	question.Pending.Type, question.Pending.Options = approval.TypeQuestion, nil
	for _, list := range [][]approval.StoredPending{{tool}, {unknown}, {question}, {tool, unknown, question}} {
		for _, language := range []string{"en", "it"} {
			for _, term := range []string{"TERM=dumb", "TERM=xterm-kitty", "TERM=foot", "TERM_PROGRAM=iTerm.app"} {
				n := notice(chat.Style{Language: language, Zone: time.UTC}, list)
				require.NotContains(t, n.Title+n.Text, "EVIL")
				require.Contains(t, n.Text, list[0].Pending.ShortID)
				rest, _ := strings.CutPrefix(notification([]string{term}, n), "\a")
				for part := range strings.SplitSeq(strings.TrimSuffix(rest, "\x1b\\"), "\x1b\\") {
					part = strings.TrimPrefix(part, "\x1b]")
					require.NotContains(t, part, "EVIL")
					require.False(t, strings.ContainsFunc(part, unicode.IsControl), "%q", part)
				}
			}
		}
	}
	field := noticeField("a;b\x1b\\\a\u009c\u202e")
	require.False(t, strings.ContainsFunc(field, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == ';' }), "%q", field)
}

func TestNotificationsOfWhatArrives(t *testing.T) { inBubble(t, notificationsOfWhatArrives) }

func notificationsOfWhatArrives(t *testing.T) {
	t.Helper()
	m, now := noticeModel("TERM=foot")
	one, two, three, four := arriving(1), arriving(2), arriving(3), arriving(4)
	require.Empty(t, sent(t, m, one), "it was there at the start")
	require.Contains(t, sent(t, m, one, two), two.Pending.ShortID)
	require.Empty(t, sent(t, m, one, two), "once")

	*now = now.Add(noticeInterval - time.Millisecond)
	require.Equal(t, "later", sent(t, m, one, two, three))
	require.Equal(t, "later", sent(t, m, one, two, three, four))
	*now = now.Add(time.Millisecond)
	text := written(m.sayUnsaid())
	require.Contains(t, text, three.Pending.ShortID)
	require.Contains(t, text, "1 more requests wait")
	require.Empty(t, written(m.sayUnsaid()))

	*now = now.Add(time.Millisecond)
	five := arriving(5)
	require.Equal(t, "later", sent(t, m, one, five))
	require.Empty(t, sent(t, m, one), "it was decided before the notification")
	*now = now.Add(time.Hour)
	require.Empty(t, written(m.sayUnsaid()))

	*now = now.Add(-24 * time.Hour)
	require.Contains(t, sent(t, m, one, arriving(6)), arriving(6).Pending.ShortID, "the clock was set back")
}

func TestNotificationsWithFocus(t *testing.T) { inBubble(t, notificationsWithFocus) }

func notificationsWithFocus(t *testing.T) {
	t.Helper()
	m, now := noticeModel("TERM=foot")
	require.True(t, m.View().ReportFocus)
	list := []approval.StoredPending{arriving(1)}
	arrive := func() string {
		*now = now.Add(time.Minute)
		list = append(list, arriving(len(list)+1))
		return sent(t, m, list...)
	}
	sent(t, m, list...)
	m.handle(tea.FocusMsg{})
	require.Empty(t, arrive())
	m.handle(tea.BlurMsg{})
	require.NotEmpty(t, arrive())
	require.NotContains(t, arrive(), "more requests wait", "what came while the terminal had the focus was seen")
	list = append(list, arriving(100))
	require.Equal(t, "later", sent(t, m, list...))
	m.handle(tea.FocusMsg{})
	require.Empty(t, written(m.handle(noticeMsg{})))
}

// One flag turns all of it off, and who looks at one request hears of no other.
func TestQuiet(t *testing.T) { inBubble(t, quiet) }

func quiet(t *testing.T) {
	t.Helper()
	for _, change := range []func(*UI){func(u *UI) { u.Quiet = true }, func(u *UI) { u.Only = arriving(1).Key() }} {
		m, now := noticeModel("TERM=foot")
		change(m.UI)
		list := []approval.StoredPending{arriving(1)}
		sent(t, m, list...)
		*now = now.Add(time.Minute)
		require.Empty(t, sent(t, m, append(list, arriving(2))...))
	}
	m, _ := noticeModel()
	m.Quiet = true
	m.list.update([]approval.StoredPending{arriving(1)}, m.style)
	require.Empty(t, m.View().WindowTitle)
	require.False(t, m.View().ReportFocus)
	m.Quiet = false
	require.Equal(t, "(1) permesso", m.View().WindowTitle)
}

// All of the card is copied, or nothing.
func TestCopyLimits(t *testing.T) {
	m, _ := noticeModel()
	m.card = &card{key: arriving(1).Key(), stored: arriving(1)}
	require.Nil(t, m.cardKey("y"), "nothing is shown yet")
	m.card.loaded = true
	m.card.lines = []line{{text: "one"}, {text: "tw\x1bo"}}
	copied := fmt.Sprint(m.cardKey("y")())
	require.Equal(t, "one\ntw"+chat.Escape("\x1b")+"o\n", copied)
	require.Equal(t, m.Copied, m.said.text)

	m.card.lines = slices.Repeat([]line{{text: strings.Repeat("x", 999)}}, maxCopy/1000)
	require.Len(t, fmt.Sprint(m.cardKey("y")()), maxCopy)
	m.card.lines = append(m.card.lines, line{})
	require.Nil(t, m.cardKey("y"))
	require.Contains(t, m.said.text, "permesso show 00000001")
	require.Contains(t, m.said.text, "75 KB")
}
