package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"

	terminalchat "github.com/permesso-dev/permesso/chat/terminal"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// LogWriter is the destination and format of the log. A reload may change level
// and format while loggers write.
//
// zerolog writes each line as JSON, so text cannot add fields. It leaves
// invisible and control characters as they are; LogWriter escapes them.
type LogWriter struct {
	out     io.Writer
	level   atomic.Int32 // a zerolog.Level
	console atomic.Bool
	// above writes to the same terminal as out, above the line that an approver is
	// typing. nil: write to out.
	above atomic.Pointer[terminalchat.Channel]
	held  heldLog
}

// maxHeld is how many lines of the log are kept while a screen is shown.
const maxHeld = 1000

// heldLog keeps the last lines while a screen is shown on their terminal.
type heldLog struct {
	mu      sync.Mutex
	on      bool
	lines   [][]byte
	dropped int
}

// hold keeps lines for a terminal until show, which writes them.
func (w *LogWriter) hold() (show func()) {
	h := &w.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = console.IsTerminal(w.out)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.dropped > 0 {
			fmt.Fprintf(w.out, "(%d older lines of the log were dropped)\n", h.dropped)
		}
		for _, line := range h.lines {
			_, _ = w.out.Write(line) // as zerolog ignores it
		}
		h.on, h.lines, h.dropped = false, nil, 0
	}
}

// keep keeps a line, if lines are held.
func (h *heldLog) keep(line []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on {
		return false
	}
	if len(h.lines) == maxHeld {
		h.lines, h.dropped = h.lines[1:], h.dropped+1
	}
	h.lines = append(h.lines, line)
	return true
}

// NewLog creates a logger with level and format.
func NewLog(out io.Writer, level, format string) (zerolog.Logger, *LogWriter) {
	w := &LogWriter{out: out}
	w.set(level, format)
	return zerolog.New(w).With().Timestamp().Logger(), w
}

// takeStandardLog makes each line of the standard library's log one of ours, until it is given back:
// what net/http says of its servers and clients, for example. A client may cause such a line, so
// each kind of them is limited.
func takeStandardLog(to zerolog.Logger) (giveBack func()) {
	flags := log.Flags()
	log.SetFlags(0)
	log.SetOutput(&standardLog{log: to})
	return func() {
		log.SetFlags(flags)
		log.SetOutput(os.Stderr)
	}
}

type standardLog struct {
	log   zerolog.Logger
	kinds rateLimited // by their first words
}

// Write implements io.Writer.
func (l *standardLog) Write(line []byte) (int, error) {
	text := strings.TrimRight(string(line), "\n")
	words := strings.Fields(text)
	if !l.kinds.allow(strings.Join(words[:min(3, len(words))], " ")) {
		return len(line), nil
	}
	const panicked = "http: panic serving"
	_, stack, trace := strings.Cut(text, "\ngoroutine ")
	switch {
	case trace && strings.HasPrefix(text, panicked):
		// The value of the panic is left out: it may have an agent's text.
		l.log.Error().Str("err", "goroutine "+stack).Msg(panicked)
	case strings.HasPrefix(text, "http: superfluous response.WriteHeader"):
		l.log.Debug().Msg(text) // a client went away while its answer was sent
	default:
		l.log.Warn().Msg(text)
	}
	return len(line), nil
}

// set applies a level and a format. "auto" is console on a terminal and JSON
// elsewhere.
func (w *LogWriter) set(level, format string) {
	l, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		l = zerolog.InfoLevel
	}
	w.level.Store(int32(l))
	w.console.Store(format == "console" || format != "json" && console.IsTerminal(w.out))
}

// Write is for lines without a level. There are none.
func (w *LogWriter) Write(line []byte) (int, error) { return w.WriteLevel(zerolog.ErrorLevel, line) }

// WriteLevel implements zerolog.LevelWriter: it writes one line with one Write.
func (w *LogWriter) WriteLevel(l zerolog.Level, line []byte) (int, error) {
	if int32(l) < w.level.Load() {
		return len(line), nil
	}
	text := line
	if w.console.Load() {
		text = consoleLine(line)
	}
	text = escape(text)
	if w.held.keep(text) {
		return len(line), nil
	}
	out := w.out
	if c := w.above.Load(); c != nil {
		out = c
	}
	_, err := out.Write(text)
	return len(line), err
}

// escape replaces deceptive characters by \u escapes. Outside of strings a line has none.
func escape(line []byte) []byte {
	line = bytes.TrimRight(line, "\n")
	out := make([]byte, 0, len(line)+1)
	for i := 0; i < len(line); {
		r, size := utf8.DecodeRune(line[i:])
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			out = appendEscaped(out, r)
		} else {
			out = append(out, line[i:i+size]...)
		}
		i += size
	}
	return append(out, '\n')
}

func appendEscaped(out []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		out = appendEscaped(out, 0xd800+r>>10)
		r = 0xdc00 + r&0x3ff
	}
	const hex = "0123456789abcdef"
	return append(out, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// consoleLine formats a line as "15:04:05 WRN message ws=personal id=…". A value
// that is not one plain word is quoted. Keys that identify the line's subject come first.
func consoleLine(line []byte) []byte {
	var b bytes.Buffer
	w := zerolog.ConsoleWriter{
		Out: &b, NoColor: true, TimeFormat: time.TimeOnly, FormatMessage: sentence,
		FieldsOrder: []string{"ws", "id", "tool", "status", "by", "via"},
	}
	if _, err := w.Write(line); err != nil {
		return line
	}
	return b.Bytes()
}

// sentence formats a message: quoted if it has what looks like a field or must be escaped.
func sentence(message any) string {
	s, _ := message.(string)
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.ContainsAny(s, `=\`) {
		return strconv.Quote(s)
	}
	return s
}
