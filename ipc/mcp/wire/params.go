package wire

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/net/http/httpguts"

	"github.com/permesso-dev/permesso/approval"
)

// paramHeader begins the headers that repeat arguments of a tool, as its inputSchema wants by x-mcp-header.
const paramHeader = "Mcp-Param-"

const (
	maxParamHeaders = 64
	maxSafeInteger  = 1<<53 - 1
)

type schemaKey struct{}

// WithSchema tells Call the inputSchema of the tool that it calls. A server over HTTP refuses a call that lacks the headers
// that the schema wants.
func WithSchema(ctx context.Context, inputSchema approval.Raw) context.Context {
	return context.WithValue(ctx, schemaKey{}, inputSchema)
}

type headersKey struct{}

// withHeaders adds the headers of a call to what its round trip knows.
func withHeaders(ctx context.Context, params approval.Raw) context.Context {
	schema, _ := ctx.Value(schemaKey{}).(approval.Raw)
	arguments, has, err := Member(params, "arguments")
	if len(schema) == 0 || !has || err != nil {
		return ctx
	}
	h := http.Header{}
	addParams(h, schema, arguments)
	return context.WithValue(ctx, headersKey{}, h)
}

func addParams(h http.Header, schema, arguments approval.Raw) {
	var s struct {
		Header     string                  `json:"x-mcp-header"`
		Properties map[string]approval.Raw `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return // what cannot be read is no annotation
	}
	if value, ok := headerValue(arguments); ok && httpguts.ValidHeaderFieldName(s.Header) && len(h) < maxParamHeaders {
		h.Set(paramHeader+s.Header, value)
	}
	for name, property := range s.Properties {
		if value, has, err := Member(arguments, name); has && err == nil {
			addParams(h, property, value)
		}
	}
}

// headerValue is an argument as a header: text, true or false, or a whole number that every reader takes for the same.
func headerValue(v approval.Raw) (string, bool) {
	switch v.Kind() {
	case '"':
		var text string
		if json.Unmarshal(v, &text) != nil {
			return "", false
		}
		if plainHeader(text) {
			return text, true
		}
		return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?=", true
	case 't', 'f':
		return string(v), true
	case '0':
		n, err := strconv.ParseFloat(string(v), 64)
		if err != nil || n != float64(int64(n)) || n > maxSafeInteger || n < -maxSafeInteger {
			return "", false
		}
		return strconv.FormatInt(int64(n), 10), true
	}
	return "", false
}

func plainHeader(s string) bool {
	if strings.Trim(s, " \t") != s || strings.HasPrefix(s, "=?base64?") && strings.HasSuffix(s, "?=") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
