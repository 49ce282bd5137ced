// Package codec reads and writes JSON as the documents of an approval need it: strictly,
// and byte for byte where an agent wrote it. It is pure: it imports nothing of ours.
package codec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deeply a document may nest objects and arrays.
const MaxDepth = 32

// ErrEndsEarly means that the bytes are a valid prefix: more bytes could fix it.
var ErrEndsEarly = errors.New("not valid JSON: the document ends too early")

// CheckDepth counts nesting without parsing, so that no parser reads a document
// nested deeper than limit.
func CheckDepth(b []byte, limit int) error {
	if bytes.Count(b, []byte{'{'})+bytes.Count(b, []byte{'['}) <= limit {
		return nil // fast path for almost every document
	}
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		c := b[i]
		if inString {
			switch c {
			case '\\':
				i++
			case '"':
				inString = false
			}
			continue
		}
		switch c {
		case '"':
			inString = true
		case '{', '[':
			if depth++; depth > limit {
				return fmt.Errorf("nested deeper than %d levels", limit)
			}
		case '}', ']':
			depth--
		}
	}
	return nil
}

// Decode reads one JSON value by the rules of every document. Its errors quote
// nothing of the value except keys that resemble known ones.
//
// It is strict: UTF-8, no duplicate or unknown names, exact letter
// case, nothing after the value, depth at most MaxDepth. Where RFC 8259 leaves
// the choice to the reader: numbers of any size are accepted, because their readers keep
// their digits. Half a surrogate pair, a byte order mark and any encoding but
// UTF-8 are refused, because two readers could decode them differently.
func Decode(b []byte, into any) error { return decode(b, into, MaxDepth, true) }

// DecodeOwn is Decode for the daemon's own documents. They may have members
// that a later version of the program has added.
func DecodeOwn(b []byte, into any) error { return decode(b, into, MaxDepth, false) }

// Document is DecodeOwn for a document that check accepts. what names it in errors.
func Document[T any](what string, b []byte, check func(*T) error) (*T, error) {
	d := new(T)
	err := DecodeOwn(b, d)
	if err == nil {
		err = check(d)
	}
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", what, err)
	}
	return d, nil
}

// DecodeOuter is DecodeOwn for documents that hold others verbatim.
func DecodeOuter(b []byte, into any) error {
	return decode(b, into, MaxDepth+outerDepth, false)
}

// outerDepth is the additional depth of a document that holds others: a record
// holds a pending, which holds an agent's object.
const outerDepth = 4

func decode(b []byte, into any, depth int, rejectUnknown bool) error {
	if err := CheckDepth(b, depth); err != nil {
		return err
	}
	if err := json.Unmarshal(b, into, json.RejectUnknownMembers(rejectUnknown)); err != nil {
		return plainJSONError(err)
	}
	return nil
}

// plainJSONError names the error and its place without quoting the document, whose
// bytes are the agent's.
func plainJSONError(err error) error {
	if errors.Is(err, json.ErrUnknownName) {
		var se *json.SemanticError
		if errors.As(err, &se) {
			return fmt.Errorf("unknown key %s", quoteKey(se.JSONPointer.LastToken()))
		}
		return errors.New("unknown key")
	}
	var syn *jsontext.SyntacticError
	if errors.As(err, &syn) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("duplicate key %s", quoteKey(syn.JSONPointer.LastToken()))
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return ErrEndsEarly
		}
		return fmt.Errorf("not valid JSON at byte %d: %s", syn.ByteOffset, truncate(syntaxReason(syn), 80))
	}
	var se *json.SemanticError
	if errors.As(err, &se) {
		return wrongType(se)
	}
	return errors.New("not valid JSON")
}

// nameable quotes a key that could be a misspelled known one. Anything else may be
// a secret, and errors appear in logs.
func quoteKey(key string) string {
	plain := func(r rune) bool { return r == '_' || 'a' <= r|0x20 && r|0x20 <= 'z' && r < 0x80 }
	if len(key) > 24 || strings.ContainsFunc(key, func(r rune) bool { return !plain(r) }) {
		return fmt.Sprintf("of %d bytes", len(key))
	}
	return strconv.Quote(key)
}

// wrongType names the key, the wanted type and the found one: key "options/0" must
// be a string, not a number.
func wrongType(se *json.SemanticError) error {
	where := "the document"
	if p := strings.TrimPrefix(string(se.JSONPointer), "/"); p != "" {
		where = fmt.Sprintf("key %q", truncate(p, 60))
	}
	want, kind := describeType(se.GoType)
	switch {
	case errors.Is(se.Err, strconv.ErrRange):
		return fmt.Errorf("%s is out of range", where)
	case se.JSONKind == kind:
		return fmt.Errorf("%s must be %s", where, want)
	}
	return fmt.Errorf("%s must be %s, not %s", where, want, describeKind(se.JSONKind))
}

// wanted describes t in words and as a JSON kind.
func describeType(t reflect.Type) (string, jsontext.Kind) {
	switch {
	case t == nil:
		return "something else", 0
	case t == reflect.TypeFor[time.Time]():
		return "a time as in RFC 3339", '"'
	case t.Kind() == reflect.Uint8: // approval.Outcome
		return "deny, ask or allow", '"'
	}
	switch t.Kind() {
	case reflect.String:
		return "a string", '"'
	case reflect.Int, reflect.Int64:
		return "a whole number", '0'
	case reflect.Bool:
		return "true or false", 't'
	case reflect.Slice:
		return "a list", '['
	}
	return "an object", '{'
}

func describeKind(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case '0':
		return "a number"
	}
	return k.String() // null, true, false
}

func syntaxReason(e *jsontext.SyntacticError) string {
	if e.Err == nil {
		return "syntax error"
	}
	text := e.Err.Error()
	for _, what := range []string{"invalid escape sequence", "invalid surrogate pair"} {
		if strings.HasPrefix(text, what) {
			return what + " in a string" // the library would quote it
		}
	}
	return text
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Field is one member of an object, its value verbatim.
type Field struct {
	Name  string
	Value jsontext.Value
}

// Text returns the field's value if it is a string.
func (f Field) Text() (string, bool) {
	if f.Value.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, f.Value)
	return string(b), err == nil
}

// Fields lists an object's members in the order they were written.
func Fields(object jsontext.Value) ([]Field, error) {
	fields, err := readFields(object)
	if err != nil {
		return nil, err
	}
	return fields, nil
}

// FirstFields lists the members of what may be the beginning of an object, as far as they are
// valid.
func FirstFields(beginning jsontext.Value) []Field {
	fields, _ := readFields(beginning) // only the rest is not valid
	return fields
}

func readFields(object jsontext.Value) ([]Field, error) {
	object = bytes.Clone(object) // its parts are returned
	dec := jsontext.NewDecoder(bytes.NewBuffer(object))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, errors.New("not a JSON object")
	}
	var fields []Field
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return fields, plainJSONError(err)
		}
		name := tok.String()
		val, err := dec.ReadValue()
		if err != nil {
			return fields, plainJSONError(err)
		}
		fields = append(fields, Field{name, partOf(object, dec, val)})
	}
	return fields, nil
}

// Object writes an object with these members, in their order.
func Object(fields []Field) jsontext.Value {
	size := 2
	for _, f := range fields {
		size += len(f.Name) + len(f.Value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	for i, f := range fields {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(appendQuote(out, f.Name), ':'), f.Value...)
	}
	return append(out, '}')
}

// At is the part of a value that a JSON pointer (RFC 6901) names.
func At(v jsontext.Value, pointer string) (jsontext.Value, bool) {
	if pointer == "" {
		return v, v.IsValid()
	}
	if pointer[0] != '/' {
		return nil, false
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		name, next := strings.NewReplacer("~1", "/", "~0", "~").Replace(token), jsontext.Value(nil)
		if v.Kind() == '[' {
			items, err := Items(v)
			i, numErr := strconv.Atoi(name)
			if err != nil || numErr != nil || i < 0 || i >= len(items) || strconv.Itoa(i) != name {
				return nil, false
			}
			next = items[i]
		}
		for _, f := range FirstFields(v) {
			if f.Name == name {
				next = f.Value
			}
		}
		if v = next; v == nil {
			return nil, false
		}
	}
	return v, true
}

// Array writes an array of these elements.
func Array(items []jsontext.Value) jsontext.Value {
	out := []byte{'['}
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}

// ReadLine reads a message that ends with its line, and has at most so many bytes.
func ReadLine(r *bufio.Reader, limit int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > limit {
			return nil, fmt.Errorf("a message is larger than %d MiB", limit>>20)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Quote writes a string. What is not UTF-8 is replaced.
func Quote(text string) jsontext.Value { return appendQuote(nil, text) }

func appendQuote(out []byte, text string) []byte {
	out, _ = jsontext.AppendQuote(out, strings.ToValidUTF8(text, "\uFFFD")) // fails only for what is not UTF-8
	return out
}

// Items returns the elements of a JSON array, verbatim.
func Items(array jsontext.Value) ([]jsontext.Value, error) {
	if array.Kind() != '[' {
		return nil, errors.New("not an array")
	}
	array = bytes.Clone(array) // its parts are returned
	d := jsontext.NewDecoder(bytes.NewBuffer(array))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var items []jsontext.Value
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		items = append(items, partOf(array, d, v))
	}
	return items, nil
}

// partOf is the value that the decoder has just read, as a part of what it reads.
func partOf(whole jsontext.Value, d *jsontext.Decoder, read jsontext.Value) jsontext.Value {
	end := d.InputOffset()
	return whole[end-int64(len(read)) : end : end]
}

// timeForm is RFC 3339 with nine digits: times in it sort as text.
const timeForm = "2006-01-02T15:04:05.000000000Z07:00"

// Time writes a time in the one form that documents, answers and receipts have: UTC with
// nine digits.
func Time(t time.Time) string { return t.UTC().Format(timeForm) }

// Times makes the JSON package write times as Time does.
var Times = sync.OnceValue(func() json.Options { return json.WithMarshalers(json.MarshalFunc(encodeTime)) })

func encodeTime(t time.Time) ([]byte, error) {
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		return nil, errors.New("a time outside of the years 0 to 9999")
	}
	return jsontext.AppendQuote(nil, Time(t))
}

var (
	timeType   = reflect.TypeFor[time.Time]()
	rawType    = reflect.TypeFor[jsontext.Value]()
	stringType = reflect.TypeFor[string]()
)

// Encode writes doc, a struct, without white space of its own. It copies jsontext.Value
// members verbatim; the library would reformat them.
func Encode(doc any) ([]byte, error) {
	v := reflect.ValueOf(doc)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	buf := make([]byte, 0, 1024)
	buf = append(buf, '{')
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("json")
		name, opts, _ := strings.Cut(tag, ",")
		f := v.Field(i)
		if name == "" || name == "-" || opts == "omitzero" && f.IsZero() {
			continue
		}
		if len(buf) > 1 {
			buf = append(buf, ',')
		}
		buf = append(append(append(buf, '"'), name...), '"', ':')
		var err error
		if buf, err = appendValue(buf, f); err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
	}
	return append(buf, '}'), nil
}

func appendValue(buf []byte, f reflect.Value) ([]byte, error) {
	switch f.Type() {
	case rawType:
		if f.Len() == 0 {
			return append(buf, "null"...), nil
		}
		return append(buf, f.Bytes()...), nil
	case stringType: // fast path, same output as the library
		return jsontext.AppendQuote(buf, f.String())
	case timeType:
		t, _ := f.Interface().(time.Time)
		b, err := encodeTime(t)
		return append(buf, b...), err
	}
	// Deterministic sorts map keys: the same value gives the same bytes.
	b, err := json.Marshal(f.Interface(), json.FormatNilSliceAsNull(false), json.Deterministic(true), Times())
	return append(buf, b...), err
}
