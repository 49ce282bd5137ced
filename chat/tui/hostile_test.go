package tui

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// hostileTexts are texts that no terminal may get as they are.
var hostileTexts = map[string]string{
	"controls":  "a\x00b\x07c\bd\x0be\x0cf\rg\x7fh\u0085i\u009bj\u009dk\x1bl",
	"csi":       "\x1b[2J\x1b[H\x1b[31mred\x1b[0m\x1b[?1049l\x1b[10;10Hhere\x1b[6n\x1b[c\x1b[?1000h\x1b[3J\u009b2J",
	"osc":       "\x1b]0;title\x07\x1b]2;title\x1b\\\x1b]52;c;cm0gLXJm\x07\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\x1b]9;hi\x07\u009d0;x\u009c",
	"dcs":       "\x1bP$q\"p\x1b\\\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\\x1bc\x1b7\x1b8\x1bM\x1b(0qqq\x1b(B\u0090q\u009c",
	"bidi":      "\u202eevil\u202c \u2066x\u2069 \u200f \u200e \u061c שלום مرحبا",
	"invisible": "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg\u180eh\u3164i\u115fj\u2800k\ufe0fl\U000e0041m\U000e0100n",
	"combining": "e\u0301 Z\u0335\u0321\u0327\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307 \u0301 \u20dd a\u20e3 \u0e33 \u0995\u09be",
	"wide":      "漢字かな한글ＡＢＣ　全角 " + strings.Repeat("漢", 90),
	"emoji":     "👨‍👩‍👧‍👦 👩🏽‍🚀 🏳️‍🌈 ❤️ ☺︎ 1️⃣ 🇮🇹🇩🇪 👍🏿 " + strings.Repeat("❤️", 60) + strings.Repeat("👍🏿", 60) + strings.Repeat("🇮🇹", 60),
	"spaces":    "a" + strings.Repeat(" ", 300) + "b\tc" + strings.Repeat("\t", 40) + "d\u00a0e\u2003f\u2028g\u2029h\u3000i",
	"forged":    "\n  1 pending request\n\na approve · d deny\n↪ more\n  🔐 May I say?\n────────\n",
	"unpaired":  "\ud7ff \ufffd \uffff \U0010ffff \ue000",
}

// TestHostileText: whatever an agent writes, the terminal gets only the renderer's sequences, and each row of the screen
// stays at its place.
func TestHostileText(t *testing.T) {
	for name, text := range hostileTexts {
		for _, size := range [][2]int{{80, 24}, {40, 20}} {
			for _, graphemes := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%dx%d/%t", name, size[0], size[1], graphemes), func(t *testing.T) {
					inBubble(t, func(t *testing.T) { hostile(t, text, size, graphemes) })
				})
			}
		}
	}
}

// hostile shows a text everywhere where an agent's text may be.
func hostile(t *testing.T, text string, size [2]int, graphemes bool) {
	t.Helper()
	w := hostileRequest(text)
	other := say("2222222222222222", text, approval.Reversible)
	r := startRig(t, size[0], size[1], newGate(w, other), func(u *UI, _ *terminal) {
		u.Pages = []Page{{Key: "G", Name: "grants", Load: loadItems(w)}}
		if graphemes { // the terminal says that it can
			u.Env = []string{"TERM=xterm-256color", "CLICOLOR_FORCE=1"}
		}
	})
	r.awaitText("2 pending requests")
	check := func(where string) {
		t.Helper()
		r.checkFrame(where)
	}
	r.rest()
	check("list")
	r.press("\r")
	r.rest()
	check("card")
	r.requireWhole(w, r.readCard(check))
	for _, keys := range [][]string{{"a"}, {"w"}, {"s"}, {"e"}, {"e", "\t"}, {"?"}, {"D"}} {
		r.rest()
		r.press(keys...)
		r.rest()
		r.paste(text + " and more")
		r.rest()
		check(fmt.Sprintf("dialog %q", keys))
		r.press("\x1b")
	}
	r.rest()
	r.press("?")
	r.paste("why " + text)
	r.press("\r")
	r.rest()
	check("reply")
	r.press("\x1b", "\x1b")
	r.rest()
	r.gate.end(w.Key(), approval.Denied, text)
	r.rest()
	check("settled card")
	r.gate.end(other.Key(), approval.Denied, text)
	r.press("q")
	r.rest()
	check("list with settled rows")
	r.press("G")
	r.rest()
	check("page")
	require.Empty(t, foreignSequences(r.output()))
}

// readCard scrolls through a card and returns its rows.
func (r *rig) readCard(check func(where string)) (rows []string) {
	r.t.Helper()
	r.press("\x1b[H")
	r.rest()
	for {
		s := r.now()
		check("card, scrolled")
		i := slices.IndexFunc(s.rows, positionPattern.MatchString)
		if i < 0 { // all of it is on the screen
			i = slices.IndexFunc(s.rows, isHint)
			return slices.DeleteFunc(slices.Clone(s.rows[1:i]), func(row string) bool { return row == "" || row == r.messages().Wait })
		}
		var from, to, of int
		_, err := fmt.Sscanf(s.rows[i], "lines %d-%d of %d", &from, &to, &of)
		require.NoError(r.t, err)
		require.LessOrEqual(r.t, from, len(rows)+1, "rows were passed over")
		rows = append(rows[:from-1], s.rows[1:to-from+2]...)
		if to == of {
			return rows
		}
		require.Regexp(r.t, "read to the end before you approve$|read on$", s.rows[i])
		r.press("a") // off: the end was not on the screen
		r.press("\x1b[6~")
		r.await("the next page", func(now screen) bool { return now.String() != s.String() })
		time.Sleep(50 * time.Millisecond)
	}
}

// requireWhole requires that the rows have all that package chat says of a request.
func (r *rig) requireWhole(w approval.StoredPending, rows []string) {
	r.t.Helper()
	require.Empty(r.t, r.decisions(), "before the end was on the screen")
	var read strings.Builder
	for _, row := range rows {
		require.True(r.t, isBody(row+" "), row)
		read.WriteString(strings.TrimPrefix(strings.TrimPrefix(row, begins), strings.TrimSpace(goesOn)))
	}
	unspaced := strings.NewReplacer(" ", "", "\t", "")
	got := unspaced.Replace(read.String())
	card := r.ui.Style().Card(w.Pending)
	keys := strings.NewReplacer("2 ", "s ", "6 ", "w ") // in place of the codes of an offer
	for _, line := range strings.Split(card.String(), "\n") {
		switch {
		case line == card.Typed, line == card.Foot, slices.Contains(card.Menu, line) && card.ListsCodes(line):
			continue // codes to type
		case slices.Contains(card.Menu, line):
			line = keys.Replace(line[:2]) + line[2:]
		}
		require.Contains(r.t, got, unspaced.Replace(line))
	}
}

// hostileRequest has a text in each place where an agent, or a tool, may put one.
func hostileRequest(text string) approval.StoredPending {
	w := say("1111111111111111", text, approval.Irreversible)
	p := *w.Pending
	p.Agent = approval.Prose{Title: text, Preview: text, Rationale: text}
	p.Target, p.Territory, p.ClientID, p.SessionID = text, text, text, text
	p.Ruling.Reasons = append(p.Ruling.Reasons, approval.Because("table_ask", "capability", text, "level", text))
	return stored(&p)
}

// checkFrame checks the screen cell by cell: the header, the footer and the column before each line are the UI's.
func (r *rig) checkFrame(where string) {
	r.t.Helper()
	s := r.now()
	cells := r.cells()
	width, height := len(cells[0]), len(cells)
	fail := func(why string, y int) {
		r.t.Helper()
		require.FailNow(r.t, why, "%s, row %d:\n%s", where, y, s)
	}
	if !headerPattern.MatchString(s.rows[0]) {
		fail("not the header", 0)
	}
	last := height - 1
	for r.isOpen() && isBody(s.rows[last]) { // a reply stands below a dialog
		last--
	}
	if !isHint(s.rows[last]) {
		fail("not the keys", last)
	}
	for y := last; y > 1 && isHint(s.rows[y]); y-- {
		last = y
	}
	body := s.rows[1:last]
	for i, row := range body {
		y := i + 1
		switch {
		case row == "", row == strings.TrimSpace(goesOn), isBody(row), strings.HasPrefix(row, "› "), positionPattern.MatchString(row), row == strings.Repeat("─", width):
		case row == r.messages().Wait:
		default:
			fail("a row of the body is not the UI's", y)
		}
	}
	for y := range height {
		for x := 0; x < width; {
			c := cells[y][x]
			if c == nil || c.Width == 0 {
				fail(fmt.Sprintf("half of a wide character at %d", x), y)
			}
			for i, ch := range []rune(c.Content) {
				if ch < ' ' || ch >= 0x7f && ch < 0xa0 || i > maxMarks {
					fail(fmt.Sprintf("%q at %d", c.Content, x), y)
				}
			}
			x += c.Width
		}
	}
}

// isOpen reports whether a dialog is on the screen.
func (r *rig) isOpen() bool { return r.now().has(r.messages().Keys.Send) }

func (r *rig) messages() *messages { return catalog("en") }

var (
	headerPattern   = regexp.MustCompile(`^ (grants · )?\d+ pending requests?( +\d+ of \d+)?$`)
	hintPattern     = regexp.MustCompile(`^(\S+ [a-z0-9 ]+|Tab .+)( · (\S+ [a-z0-9 ]+|Tab .+))*$`)
	positionPattern = regexp.MustCompile(`^lines \d+-\d+ of \d+( · .+)?$`)
)

func isHint(row string) bool { return !isBody(row) && hintPattern.MatchString(row) }

// The sequences that the renderer makes.
var (
	allowedCSI = "ABCDEFGHIJKLMPSTX@`abdefghlmrsu"
	allowedOSC = regexp.MustCompile(`^(2;(\(\d+\) )?permesso|2;|52;c;[A-Za-z0-9+/=]*)$`)
)

// foreignSequences are what was written besides text and the renderer's sequences.
func foreignSequences(written string) (found []string) {
	p := ansi.NewParser()
	p.SetDataSize(1 << 22)
	bad := func(format string, a ...any) { found = append(found, fmt.Sprintf(format, a...)) }
	p.SetHandler(ansi.Handler{
		Print: func(r rune) {
			if r < ' ' || r >= 0x7f && r < 0xa0 {
				bad("character %U", r)
			}
		},
		Execute: func(b byte) {
			if !slices.Contains([]byte("\r\n\b\t"), b) {
				bad("control %#x", b)
			}
		},
		HandleCsi: func(c ansi.Cmd, params ansi.Params) {
			switch {
			case c.Prefix() == 0 && c.Intermediate() == 0 && (strings.ContainsRune(allowedCSI, rune(c.Final())) || c.Final() == 'c'):
			case c.Prefix() == '?' && (c.Final() == 'h' || c.Final() == 'l' || c.Final() == 'u'):
			case c.Prefix() == '>' && (c.Final() == 'm' || c.Final() == 'u'), c.Prefix() == '<' && c.Final() == 'u':
			case c.Prefix() == '?' && c.Intermediate() == '$' && c.Final() == 'p', c.Intermediate() == ' ' && c.Final() == 'q':
			default:
				bad("CSI %c %c %c %v", c.Prefix(), c.Intermediate(), c.Final(), params)
			}
		},
		HandleEsc: func(c ansi.Cmd) {
			if c.Intermediate() != 0 || !strings.ContainsRune("M78", rune(c.Final())) {
				bad("ESC %c", c.Final())
			}
		},
		HandleDcs: func(c ansi.Cmd, _ ansi.Params, data []byte) { bad("DCS %q", data) },
		HandleOsc: func(_ int, data []byte) {
			if !allowedOSC.Match(data) {
				bad("OSC %q", data)
			}
		},
		HandlePm:  func(data []byte) { bad("PM %q", data) },
		HandleApc: func(data []byte) { bad("APC %q", data) },
		HandleSos: func(data []byte) { bad("SOS %q", data) },
	})
	for _, b := range []byte(written) {
		p.Advance(b)
	}
	return found
}

// TestLargePayload: a line of 1 MiB and 100,000 lines are shown whole, and approved only when the end was on the screen.
func TestLargePayload(t *testing.T) {
	for name, text := range map[string]string{
		"line":  strings.Repeat("0123456789abcde漢", 1<<16),
		"tabs":  strings.Repeat("x\t", 1<<19),
		"lines": strings.Repeat("x\n", 100_000) + "end",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := say("1111111111111111", text, approval.Reversible)
				r := startRig(t, 80, 24, newGate(w), nil)
				r.awaitText("1 pending request")
				r.press("\r")
				r.rest()
				r.checkFrame("card")
				for range 20 {
					r.press("a", "\x1b[6~")
					r.rest()
					r.checkFrame("card, scrolled")
				}
				require.Empty(t, r.decisions())
				r.press("\x1b[F")
				r.rest()
				r.checkFrame("end")
				r.press("a")
				r.rest()
				require.Len(t, r.decisions(), 1)
				require.Empty(t, foreignSequences(r.output()))
			})
		})
	}
}
