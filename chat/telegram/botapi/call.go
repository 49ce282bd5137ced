package botapi

import (
	"bytes"
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
func readCall(method string, r *http.Request, limit int64) (*call, *refusal) {
	c := &call{method: method, params: map[string]string{}, files: map[string]upload{}}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return nil, &refusal{Code: http.StatusNotFound, Description: "Not Found"}
	}
	if refused := c.addForm(r.URL.Query()); refused != nil {
		return nil, refused
	}
	body := http.MaxBytesReader(nil, r.Body, limit+maxFormOverhead)
	kind, options, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var refused *refusal
	switch kind {
	case "multipart/form-data":
		refused = c.readMultipart(multipart.NewReader(body, options["boundary"]))
	case "application/x-www-form-urlencoded":
		refused = c.readForm(body)
	case "application/json":
		refused = c.readJSON(body)
	default:
		refused = c.readNothing(body, kind)
	}
	// Read to the end: before that, net/http does not notice when the client disconnects.
	if _, err := io.Copy(io.Discard, body); err != nil && refused == nil {
		refused = unreadable(err)
	}
	if refused != nil {
		return nil, refused
	}
	return c, nil
}

func (c *call) add(name, value string) *refusal {
	if _, twice := c.params[name]; twice {
		return strict("the parameter %q is repeated", name)
	}
	c.params[name] = value
	return nil
}

func (c *call) addForm(form url.Values) *refusal {
	for name, values := range form {
		for _, value := range values {
			if refused := c.add(name, value); refused != nil {
				return refused
			}
		}
	}
	return nil
}

func (c *call) readForm(body io.Reader) *refusal {
	b, err := io.ReadAll(io.LimitReader(body, maxForm))
	if err != nil {
		return unreadable(err)
	}
	form, err := url.ParseQuery(string(b))
	if err != nil {
		return unreadable(err)
	}
	return c.addForm(form)
}

// readJSON takes the members of an object; a member that is no string keeps its JSON.
func (c *call) readJSON(body io.Reader) *refusal {
	dec := json.NewDecoder(io.LimitReader(body, maxForm))
	var object map[string]json.RawMessage
	if err := dec.Decode(&object); err != nil && !errors.Is(err, io.EOF) {
		return badRequest("can't parse request body JSON object")
	}
	for name, raw := range object {
		value := string(raw)
		var text string
		switch {
		case json.Unmarshal(raw, &text) == nil && value != "null":
			value = text
		case value == "null":
			return strict("the parameter %q is null", name)
		}
		if refused := c.add(name, value); refused != nil {
			return refused
		}
	}
	return nil
}

// readMultipart reads the parts of a form. A request without parameters may have no parts.
func (c *call) readMultipart(parts *multipart.Reader) *refusal {
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "EOF") && len(c.params) == 0 {
			return nil
		}
		if err != nil {
			return unreadable(err)
		}
		b, err := io.ReadAll(part)
		if err != nil {
			return unreadable(err)
		}
		if part.FileName() != "" {
			c.files[part.FormName()] = upload{part.FileName(), part.Header.Get("Content-Type"), b}
			continue
		}
		if refused := c.add(part.FormName(), string(b)); refused != nil {
			return refused
		}
	}
}

func (c *call) readNothing(body io.Reader, kind string) *refusal {
	b, err := io.ReadAll(io.LimitReader(body, 1))
	if err != nil {
		return unreadable(err)
	}
	if len(b) > 0 {
		return strict("Telegram ignores a body of type %q", kind)
	}
	return nil
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
func (c *call) refuseUnknown(known []string) *refusal {
	for name := range c.params {
		if !slices.Contains(known, name) {
			return strict("%s has no supported parameter %q", c.method, name)
		}
	}
	for name := range c.files {
		if !slices.Contains(known, name) {
			return strict("%s has no supported file %q", c.method, name)
		}
	}
	return nil
}

// integer is a parameter that is an integer; 0 if it is missing.
func (c *call) integer(name string) (int64, *refusal) {
	text, ok := c.params[name]
	if !ok || text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, strict("%s: %q is no integer", name, text)
	}
	return n, nil
}

func (c *call) boolean(name string) (bool, *refusal) {
	switch text := c.params[name]; text {
	case "true", "True", "1":
		return true, nil
	case "", "false", "False", "0":
		return false, nil
	default:
		return false, strict("%s: %q is neither true nor false", name, text)
	}
}

// object decodes a JSON parameter; what names it in errors. Unknown members are refused.
func (c *call) object(name, what string, into any) (there bool, refused *refusal) {
	text := c.params[name]
	if text == "" {
		return false, nil
	}
	if !json.Valid([]byte(text)) {
		return false, badRequest("can't parse %s JSON object", what)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return false, strict("%s: %s", name, err)
	}
	return true, nil
}
