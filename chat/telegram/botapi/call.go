package botapi

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	maxFile         = 50 << 20            // bytes of a document
	maxFormOverhead = 64 << 10            // bytes of the form around it
	maxForm         = maxTextSize + 1<<20 // bytes of all other parameters together
)

// call is a method call with its parameters as text; objects are JSON.
type call struct {
	method string
	params map[string]string
	files  map[string]upload
}

type upload struct {
	name, kind string
	content    []byte
}

// readCall reads the parameters as the Bot API does: from the query, and from a body of one of three types. A
// file may have limit bytes.
func readCall(method string, r *http.Request, limit int64) *call {
	c := &call{method: method, params: map[string]string{}, files: map[string]upload{}}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		panic(&refusal{Code: http.StatusNotFound, Description: "Not Found"})
	}
	c.addForm(r.URL.Query())
	body := http.MaxBytesReader(nil, r.Body, limit+maxFormOverhead)
	// Read to the end: before that, net/http does not notice when the client disconnects.
	defer func() { _, _ = io.Copy(io.Discard, body) }()
	kind, options, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "multipart/form-data":
		c.readMultipart(multipart.NewReader(body, options["boundary"]))
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(readAll(io.LimitReader(body, maxForm))))
		if err != nil {
			panic(unreadable(err))
		}
		c.addForm(form)
	case "application/json":
		c.readJSON(body)
	default:
		if len(readAll(io.LimitReader(body, 1))) > 0 {
			panic(strict("Telegram ignores a body of type %q", kind))
		}
	}
	readAll(body)
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

func (c *call) addForm(form url.Values) {
	for name, values := range form {
		for _, value := range values {
			c.add(name, value)
		}
	}
}

// readJSON takes the members of an object; a member that is no string keeps its JSON.
func (c *call) readJSON(body io.Reader) {
	dec := json.NewDecoder(io.LimitReader(body, maxForm))
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

// readMultipart reads the parts of a form. A request without parameters may have no parts.
func (c *call) readMultipart(parts *multipart.Reader) {
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "EOF") && len(c.params) == 0 {
			return
		}
		if err != nil {
			panic(unreadable(err))
		}
		b := readAll(part)
		if part.FileName() != "" {
			c.files[part.FormName()] = upload{part.FileName(), part.Header.Get("Content-Type"), b}
			continue
		}
		c.add(part.FormName(), string(b))
	}
}

func unreadable(err error) *refusal {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &refusal{Code: http.StatusRequestEntityTooLarge, Description: "Request Entity Too Large"}
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
