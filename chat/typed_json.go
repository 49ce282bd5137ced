package chat

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// json displays a value on one line, or nested on as many as it needs.
func (t typedValue) json(v approval.Raw) ([]Line, bool) {
	w := jsonWriter{quote: t.quoted, label: t.member}
	if !w.write(v) {
		return nil, false
	}
	if line := w.oneLine(); line != "" {
		return t.inline(LineCode, line), true
	}
	lines := []Line{t.head()}
	for _, l := range w.lines {
		lines = append(lines, Line{LineCode, withBar(l)})
	}
	return lines, true
}

// maxOneLine is how long nested JSON on one line may be, in characters.
const maxOneLine = 40

// oneLine is short JSON on one line, "" if it is longer.
func (w *jsonWriter) oneLine() string {
	if len(w.lines) == 1 {
		return w.lines[0]
	}
	var b strings.Builder
	opened := true
	for _, l := range w.lines {
		l = strings.TrimLeft(l, " ")
		if !opened && l[0] != ']' && l[0] != '}' {
			b.WriteByte(' ')
		}
		b.WriteString(l)
		opened = strings.HasSuffix(l, "[") || strings.HasSuffix(l, "{")
		if b.Len() > 4*maxOneLine {
			break
		}
	}
	if s := b.String(); utf8.RuneCountInString(s) <= maxOneLine {
		return s
	}
	return ""
}

// member is the name of a member, never masked. It may be withheld.
func (t typedValue) member(name string) string {
	if kind := t.withheld(name); kind != "" {
		return t.maskText(&hidden{Span: Span{Kind: kind}, withheld: true}, name)
	}
	return Quote(name)
}

// jsonWriter writes each value of a JSON text on its own line. Strings and names
// are decoded, and then escaped once.
type jsonWriter struct {
	quote func(string) string
	label func(string) string // of a member's name
	lines []string
	name  string // of the value that follows, with its colon
	open  bool   // the last token opened an object or a list
}

// write says false if v is not one JSON value.
func (w *jsonWriter) write(v approval.Raw) bool {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		tok, err := d.ReadToken()
		if err != nil {
			return errors.Is(err, io.EOF) && d.StackDepth() == 0 && len(w.lines) > 0
		}
		in, n := d.StackIndex(d.StackDepth())
		if d.StackDepth() == 0 && n > 1 {
			return false
		}
		switch kind := tok.Kind(); {
		case kind == '}' || kind == ']':
			w.end(d.StackDepth(), kind.String())
		case kind == '{' || kind == '[':
			w.begin(d.StackDepth()-1, kind.String())
			w.open = true
		case kind == '"' && in == '{' && n%2 == 1:
			w.name = w.label(tok.String()) + ": "
		case kind == '"':
			w.begin(d.StackDepth(), w.quote(tok.String()))
		default:
			w.begin(d.StackDepth(), tok.String())
		}
	}
}

// begin writes a value, or the beginning of one.
func (w *jsonWriter) begin(depth int, text string) {
	if n := len(w.lines); n > 0 && !w.open {
		w.lines[n-1] += ","
	}
	w.lines = append(w.lines, indent(depth)+w.name+text)
	w.name, w.open = "", false
}

func (w *jsonWriter) end(depth int, text string) {
	if w.open {
		w.lines[len(w.lines)-1] += text
	} else {
		w.lines = append(w.lines, indent(depth)+text)
	}
	w.open = false
}

func indent(depth int) string { return strings.Repeat("  ", min(depth, codec.MaxDepth)) }
