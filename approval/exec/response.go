package exec

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
)

// effectOf turns a server's response into an effect.
func (c *call) effectOf(a response) approval.Effect {
	if c.isSuccess(a.code) {
		return approval.Effect{Result: c.result(a)}
	}
	message := "status " + strconv.Itoa(a.code)
	if text := http.StatusText(a.code); text != "" {
		message += " " + text
	}
	if a.redirect != "" {
		message += ", a redirect that is not followed: " + a.redirect
	}
	// After these codes the server may have acted, or may act later.
	if a.code >= 500 || a.code == http.StatusRequestTimeout {
		message += "; outcome unknown: the server may have acted, check before you ask again"
	}
	if body := c.sanitize(string(a.body)); body != "" {
		message += ": " + body
	}
	return failed("%s", message)
}

func (c *call) isSuccess(code int) bool {
	if list := c.handler.HTTP.Status; len(list) > 0 {
		return slices.Contains(list, code)
	}
	return code >= 200 && code <= 299
}

// result is {"status":…,"body":…}, with "location" and "note" if present.
func (c *call) result(a response) approval.Raw {
	head := `{"status":` + strconv.Itoa(a.code)
	if to := a.header.Get("Location"); to != "" {
		head += `,"location":` + c.quote(to)
	}
	foot := "}"
	if a.note != "" {
		foot = `,"note":` + c.quote(a.note) + foot
	}
	if body, ok := c.jsonBody(a); ok {
		if complete := approval.Raw(head + `,"body":` + string(body) + foot); isJSON(complete) {
			return complete
		}
	}
	return approval.Raw(head + `,"body":` + c.quote(string(a.body)) + foot)
}

// jsonBody returns the body verbatim if the server declares it as JSON and it is
// valid JSON.
func (c *call) jsonBody(a response) ([]byte, bool) {
	if a.note != "" || !declaresJSON(a.header) {
		return nil, false
	}
	body := []byte(strings.Trim(string(a.body), " \t\r\n"))
	if !isJSON(body) {
		return nil, false
	}
	return c.redactor.json(body)
}

func declaresJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// quote returns s as a JSON string, valid and without secrets.
func (c *call) quote(s string) string {
	b, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(c.redactor.text(s), "\uFFFD"))
	if err != nil {
		return `""` // unreachable: the text is valid UTF-8
	}
	return string(b)
}
