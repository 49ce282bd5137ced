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

// judge turns an answer into an effect.
func (c *call) judge(a answer) approval.Effect {
	if c.wanted(a.code) {
		return approval.Effect{Result: c.result(a), Started: true}
	}
	said := "status " + strconv.Itoa(a.code)
	if text := http.StatusText(a.code); text != "" {
		said += " " + text
	}
	if a.redirect != "" {
		said += ", a redirect that is not followed: " + a.redirect
	}
	// Behind these the work may have been done, or be done later.
	if a.code >= 500 || a.code == http.StatusRequestTimeout {
		said += "; outcome unknown: the server may have acted, check before you ask again"
	}
	if body := c.plain(string(a.body)); body != "" {
		said += ": " + body
	}
	return failed(true, "%s", said)
}

func (c *call) wanted(code int) bool {
	if list := c.handler.HTTP.Status; len(list) > 0 {
		return slices.Contains(list, code)
	}
	return code >= 200 && code <= 299
}

// result is {"status":…,"body":…}, with "location" and "note" where there is
// something to say.
func (c *call) result(a answer) approval.Raw {
	head := `{"status":` + strconv.Itoa(a.code)
	if to := a.header.Get("Location"); to != "" {
		head += `,"location":` + c.quote(to)
	}
	foot := "}"
	if a.note != "" {
		foot = `,"note":` + c.quote(a.note) + foot
	}
	if body, ok := c.jsonBody(a); ok {
		if whole := approval.Raw(head + `,"body":` + string(body) + foot); isJSON(whole) {
			return whole
		}
	}
	return approval.Raw(head + `,"body":` + c.quote(string(a.body)) + foot)
}

// jsonBody is the body verbatim, when it says that it is JSON, and is.
func (c *call) jsonBody(a answer) ([]byte, bool) {
	if a.note != "" || !saysJSON(a.header) {
		return nil, false
	}
	body := []byte(strings.Trim(string(a.body), " \t\r\n"))
	if !isJSON(body) {
		return nil, false
	}
	return c.redactor.json(body)
}

func saysJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// quote is text as a JSON string: without secrets, and valid.
func (c *call) quote(s string) string {
	b, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(c.redactor.text(s), "\uFFFD"))
	if err != nil {
		return `""` // out of reach: the text is valid UTF-8
	}
	return string(b)
}
