package audit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/event"
)

// maxValue is how many bytes of one value are logged. The record has the complete
// value.
const maxValue = 4096

// texts are the indices of an entry's fields that are text, by their names in JSON.
var texts = func() map[string]int {
	byName := map[string]int{}
	for f := range reflect.TypeFor[event.Entry]().Fields() {
		if f.Type.Kind() == reflect.String {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			byName[name] = f.Index[0]
		}
	}
	return byName
}()

// encode encodes an entry as one line of ASCII.
func encode(e event.Entry) ([]byte, error) {
	e.Time = e.Time.UTC()
	fields := reflect.ValueOf(&e).Elem()
	for _, i := range texts {
		fields.Field(i).SetString(truncate(fields.Field(i).String()))
	}
	e.Taints = slices.Clone(e.Taints)
	for i := range e.Taints {
		e.Taints[i] = truncate(e.Taints[i])
	}
	// Invalid UTF-8 in an agent's text must not prevent logging.
	b, err := json.Marshal(e, jsontext.AllowInvalidUTF8(true), codec.Times())
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	return append(ascii(b), '\n'), nil
}

func truncate(s string) string {
	if len(s) <= maxValue {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:maxValue], "\ufffd"), len(s))
}

// ascii escapes characters that are not ASCII. In JSON they occur only in strings, where
// \u is allowed.
func ascii(b []byte) []byte {
	line := make([]byte, 0, len(b)+1)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		switch {
		case r < 0x7f:
			line = append(line, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
	}
	return line
}

// decode reads one line without its line feed.
func decode(line []byte) (event.Entry, error) {
	var e event.Entry
	if err := json.Unmarshal(line, &e, json.RejectUnknownMembers(true)); err != nil {
		return event.Entry{}, fmt.Errorf("decode entry: %w", err)
	}
	return e, nil
}
