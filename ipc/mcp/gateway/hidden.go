package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
)

// show writes text on one line, every character that a person would not see as \u{…}.
func show(text string) string {
	text, _ = visible(text, false)
	return text
}

// visible is text with each hidden character as \u{…}, and whether there is one: control characters, and those that Unicode
// calls format, separator of lines, private, or ignorable: bidirectional controls, zero-width characters, tags, variation
// selectors. Emoji need some of them: they count as hidden unless they follow a symbol.
func visible(text string, lines bool) (string, bool) {
	var b strings.Builder
	hidden := false
	var last rune
	for i, r := range text {
		switch {
		case lines && (r == '\n' || r == '\t' || r == '\r'):
			b.WriteRune(r)
		case joins(r) && isSymbol(last):
			b.WriteRune(r)
		case !seen(r) || r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], "\ufffd"):
			hidden = true
			fmt.Fprintf(&b, `\u{%04X}`, r)
		default:
			b.WriteRune(r)
		}
		if !joins(r) {
			last = r
		} else if last != 0 && r != zeroWidthJoiner {
			last = symbolWithSelector
		}
		if r == zeroWidthJoiner {
			last = 0 // one between two symbols
		}
	}
	return b.String(), hidden
}

const (
	zeroWidthJoiner    = '\u200d'
	symbolWithSelector = '\u2600'
)

func joins(r rune) bool { return r == '\ufe0e' || r == '\ufe0f' || r == zeroWidthJoiner }

func isSymbol(r rune) bool {
	return unicode.In(r, unicode.So, unicode.Sk, unicode.Sm) || r >= '0' && r <= '9' || r == '#' || r == '*' || r == '\u203c' || r == '\u2049'
}

func seen(r rune) bool {
	if r == '\u2800' || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
		return false
	}
	return r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Zs, r) || r == '\u00a0'
}

// visibleJSON is a value with the hidden characters of all its strings shown, and whether there is one. A line break or a
// tab is none.
func visibleJSON(value approval.Raw) (approval.Raw, bool, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out)
	hidden := false
	for {
		tok, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimRight(out.Bytes(), "\n"), hidden, nil
		}
		if err != nil {
			return nil, false, err
		}
		if tok.Kind() == '"' {
			text, has := visible(tok.String(), true)
			if has {
				hidden, tok = true, jsontext.String(text)
			}
		}
		if err := enc.WriteToken(tok); err != nil {
			return nil, false, err
		}
	}
}
