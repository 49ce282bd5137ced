package daemon

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// LogWriter is the destination and format of the log. A reload may change level
// and format while loggers write.
//
// zerolog writes each line as JSON, so text cannot add fields. It leaves
// invisible and control characters as they are; LogWriter escapes them. It also
// writes the console format, because zerolog's prints some values raw.
type LogWriter struct {
	out     io.Writer
	level   atomic.Int32 // a zerolog.Level
	console atomic.Bool
}

// NewLog creates a logger with level and format.
func NewLog(out io.Writer, level, format string) (zerolog.Logger, *LogWriter) {
	w := &LogWriter{out: out}
	w.set(level, format)
	return zerolog.New(w).With().Timestamp().Logger(), w
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
	safe := plainJSON(line)
	if w.console.Load() {
		safe = consoleLine(safe)
	}
	_, err := w.out.Write(safe)
	return len(line), err
}

// plainJSON replaces deceptive characters by \u escapes. Outside of strings a
// line of JSON has none.
func plainJSON(line []byte) []byte {
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
// that is not one plain word is quoted as in JSON.
func consoleLine(line []byte) []byte {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return line
	}
	var b bytes.Buffer
	at, err := time.Parse(time.RFC3339, word(fields[zerolog.TimestampFieldName]))
	if err == nil {
		b.WriteString(at.Local().Format(time.TimeOnly))
	}
	b.WriteString(" " + levelWord(word(fields[zerolog.LevelFieldName])))
	if m := fields[zerolog.MessageFieldName]; m != nil {
		b.WriteString(" " + sentence(m))
	}
	for _, k := range keyOrder(fields) {
		b.WriteString(" " + k + "=" + value(fields[k]))
	}
	b.WriteByte('\n')
	return b.Bytes()
}

func levelWord(level string) string {
	if l, ok := map[string]string{"debug": "DBG", "info": "INF", "warn": "WRN", "error": "ERR"}[level]; ok {
		return l
	}
	return "???"
}

// keyOrder puts the keys that identify the line's subject first.
func keyOrder(fields map[string]json.RawMessage) []string {
	first := []string{"ws", "id", "tool", "status", "by", "via"}
	var keys, rest []string
	for _, k := range first {
		if fields[k] != nil {
			keys = append(keys, k)
		}
	}
	for k := range fields {
		if !slices.Contains(first, k) && !slices.Contains([]string{zerolog.TimestampFieldName, zerolog.LevelFieldName, zerolog.MessageFieldName}, k) {
			rest = append(rest, k)
		}
	}
	slices.Sort(rest)
	return append(keys, rest...)
}

// word returns the text of a JSON string, "" for other values.
func word(v json.RawMessage) string {
	var s string
	_ = json.Unmarshal(v, &s) // not a string
	return s
}

// value formats a value: a plain word without quotes.
func value(v json.RawMessage) string {
	s := word(v)
	plain := func(r rune) bool { return r > ' ' && r < 0x7f && !strings.ContainsRune(`"'=\`, r) }
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return string(v)
	}
	return s
}

// sentence formats a message: quoted if it has what looks like a field or had
// to be escaped.
func sentence(v json.RawMessage) string {
	s := word(v)
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.ContainsAny(s, `=\\`) {
		return string(v)
	}
	return s
}
