package botapi

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	maxFile = 50 << 20         // bytes of a document
	maxBody = maxFile + 64<<10 // bytes of a request
)

// tooLarge refuses a document or a request.
var tooLarge = &refusal{Code: http.StatusRequestEntityTooLarge, Description: "Request Entity Too Large"}

// call is a method call with its parameters as text; objects are JSON.
type call struct {
	method string
	params map[string]string
	files  map[string][]*multipart.FileHeader
}

// readCall reads the parameters as the Bot API does: from the query, and from a body of one of three types.
func readCall(method string, r *http.Request) *call {
	c := &call{method: method, params: map[string]string{}}
	body := http.MaxBytesReader(nil, r.Body, maxBody)
	// Read to the end: before that, net/http does not notice when the client disconnects.
	defer func() { _, _ = io.Copy(io.Discard, body) }()
	r.Body = body
	switch err := r.ParseMultipartForm(maxBody); { //nolint:gosec // body is limited
	case err == nil, errors.Is(err, http.ErrNotMultipart), errors.Is(err, io.EOF): // a form may have no parts
	default:
		panic(unreadable(err))
	}
	for name, values := range r.Form {
		for _, value := range values {
			c.add(name, value)
		}
	}
	if r.MultipartForm != nil {
		c.files = r.MultipartForm.File
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "application/json" {
		c.readJSON(body)
	} else if len(readAll(body)) > 0 {
		panic(strict("Telegram ignores a body of type %q", kind))
	}
	return c
}

func readAll(r io.Reader) []byte {
	b, err := io.ReadAll(r)
	if err != nil {
		panic(unreadable(err))
	}
	return b
}

func (c *call) add(name, value string) {
	if _, twice := c.params[name]; twice {
		panic(strict("the parameter %q is repeated", name))
	}
	c.params[name] = value
}

// readJSON takes the members of an object; a member that is no string keeps its JSON.
func (c *call) readJSON(body io.Reader) {
	dec := json.NewDecoder(body)
	var object map[string]json.RawMessage
	if err := dec.Decode(&object); err != nil && !errors.Is(err, io.EOF) {
		panic(badRequest("can't parse request body JSON object"))
	}
	for name, raw := range object {
		value := string(raw)
		if value == "null" {
			panic(strict("the parameter %q is null", name))
		}
		var text string
		if json.Unmarshal(raw, &text) == nil {
			value = text
		}
		c.add(name, value)
	}
}

func unreadable(err error) *refusal {
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return tooLarge
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &refusal{Description: "the client disconnected during its request"}
	}
	return badRequest("can't read the request: %s", err)
}

// refuseUnknown refuses parameters that the method does not have. The real server ignores them, so a misspelled
// disable_notification would go unnoticed.
func (c *call) refuseUnknown(known []string) {
	for name := range c.params {
		if !slices.Contains(known, name) {
			panic(strict("%s has no supported parameter %q", c.method, name))
		}
	}
	for name := range c.files {
		if !slices.Contains(known, name) {
			panic(strict("%s has no supported file %q", c.method, name))
		}
	}
}

// integer is a parameter that is an integer; 0 if it is missing.
func (c *call) integer(name string) int64 {
	text := c.params[name]
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(strict("%s: %q is no integer", name, text))
	}
	return n
}

func (c *call) boolean(name string) bool {
	switch text := c.params[name]; text {
	case "true", "True", "1":
		return true
	case "", "false", "False", "0":
		return false
	default:
		panic(strict("%s: %q is neither true nor false", name, text))
	}
}

// object decodes a JSON parameter; what names it in errors. Unknown members are refused.
func (c *call) object(name, what string, into any) (there bool) {
	text := c.params[name]
	if text == "" {
		return false
	}
	if !json.Valid([]byte(text)) {
		panic(badRequest("can't parse %s JSON object", what))
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		panic(strict("%s: %s", name, err))
	}
	return true
}
