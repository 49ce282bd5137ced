package httpapi_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// contract checks the generated document with an independent validator.
type contract struct {
	*rig
	t        *testing.T
	doc      map[string]any
	compiler *jsonschema.Compiler
	seen     map[string]map[int]bool // operation → statuses seen
}

var openapi = flag.String("openapi", "", "write the document to this file")

const docURL = "https://permesso.example/openapi.json"

func newContract(t *testing.T, h *rig) *contract {
	a := h.do("", "GET", "/openapi.json", nil)
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Equal(t, "3.1.0", a.json["openapi"])
	require.JSONEq(t, string(httpapi.Document("test")), string(a.body), "the served document is the generated one")
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(a.body))
	require.NoError(t, err)
	c := &contract{rig: h, t: t, doc: doc.(map[string]any), compiler: jsonschema.NewCompiler(), seen: map[string]map[int]bool{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	require.NoError(t, c.compiler.AddResource(docURL, doc))
	return c
}

// operation is the document's entry for a method and a path.
func (c *contract) operation(method, template string) map[string]any {
	paths := c.doc["paths"].(map[string]any)
	p, ok := paths[template].(map[string]any)
	require.True(c.t, ok, "the document has no path %s", template)
	o, ok := p[strings.ToLower(method)].(map[string]any)
	require.True(c.t, ok, "the document has no %s %s", method, template)
	return o
}

// schema compiles the schema at a path of the document.
func (c *contract) schema(at ...string) *jsonschema.Schema {
	for i, part := range at {
		at[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
	}
	s, err := c.compiler.Compile(docURL + "#/" + strings.Join(at, "/"))
	require.NoError(c.t, err)
	return s
}

func value(t *testing.T, b []byte) any {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err, "%s", b)
	return v
}

func fill(template, id string) string { return strings.Replace(template, "{id}", id, 1) }

// call makes one request and validates both sides of it against the document.
func (c *contract) call(key, method, template, id, query string, body any, want int, headers ...string) answer {
	c.t.Helper()
	o := c.operation(method, template)
	lower := strings.ToLower(method)
	if body != nil && want < 300 && !slices.Contains(headers, "Content-Type") {
		s := c.schema("paths", template, lower, "requestBody", "content", "application/json", "schema")
		require.NoError(c.t, s.Validate(value(c.t, []byte(jsonOf(c.t, body)))), "the body matches the document")
	}
	a := c.do(key, method, fill(template, id)+query, body, headers...)
	require.Equal(c.t, want, a.StatusCode, "%s %s%s: %s", method, fill(template, id), query, a.body)
	resp, ok := o["responses"].(map[string]any)[strconv.Itoa(want)].(map[string]any)
	require.True(c.t, ok, "the document has no status %d for %s %s", want, method, template)
	if content, has := resp["content"].(map[string]any); has {
		kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
		require.NoError(c.t, err)
		require.Contains(c.t, content, kind)
		if strings.Contains(kind, "json") {
			s := c.schema("paths", template, lower, "responses", strconv.Itoa(want), "content", kind, "schema")
			require.NoError(c.t, s.Validate(value(c.t, a.body)), "%s", a.body)
		}
	} else {
		require.Empty(c.t, a.body)
	}
	c.record(method, template, want)
	return a
}

func (c *contract) record(method, template string, status int) {
	name := method + " " + template
	if c.seen[name] == nil {
		c.seen[name] = map[int]bool{}
	}
	c.seen[name][status] = true
}

// fakeInbox is an email intake with a fixed result.
type fakeInbox struct {
	received []httpapi.InboxMail
	key      approval.Key
	err      error
}

// Take implements httpapi.Inbox.
func (m *fakeInbox) Take(_ context.Context, mail httpapi.InboxMail) (httpapi.InboxResult, error) {
	m.received = append(m.received, mail)
	return httpapi.InboxResult{Key: m.key, Status: "approved"}, m.err
}

// TestContract tests every operation of the generated document, with valid input and with
// input that the document refuses.
func TestContract(t *testing.T) {
	t.Parallel()
	inbox := &fakeInbox{}
	h := newRig(t, func(h *rig) { h.server.Inbox = inbox })
	c := newContract(t, h)
	h.newKey("watch", home, "", apikey.MayRead)
	h.newKey("mail", home, "ann", apikey.MayInbound)
	const one, all = "/v1/approvals/{id}", "/v1/approvals"
	request := map[string]any{
		"tool_name": "run", "session_id": "s1", "title": "t", "preview": "p", "rationale": "r", "request_data": map[string]any{"a": 1},
		"expires_in_sec": 60, "channel": "telegram", "target": map[string]any{"tg_chat_id": "123"}, "type": "action", "proof": map[string]any{},
		"resubmits": "appr_" + strings.Repeat("0", 16), "action_type": "send_message", "options": []string{},
	}
	id := c.call("agent", "POST", all, "", "", request, 201, "Idempotency-Key", "k1").json["approval_id"].(string)
	c.call("agent", "POST", all, "", "", request, 200, "Idempotency-Key", "k1")
	c.call("agent", "POST", all, "", "", map[string]any{"tool_name": "auto"}, 422, "Idempotency-Key", "k1")
	c.call("agent", "GET", one, id, "", nil, 200)
	c.call("agent", "GET", all, "", "?status=pending&limit=3", nil, 200)
	c.call("ann", "POST", one+"/decision", id, "", code("1"), 200)
	c.call("agent", "GET", one, id, "?wait=60", nil, 200)
	c.call("ann", "POST", one+"/decision", id, "", code("1"), 409)
	c.call("agent", "DELETE", one, id, "", nil, 409)
	receipt := c.call("agent", "GET", one, id, "", nil, 200).json["receipt"].(string)
	receiptBody := map[string]any{"receipt": receipt, "tool_name": "run", "request_data": map[string]any{"a": 1}}
	require.Equal(t, true, c.call("agent", "POST", "/v1/receipts/verify", "", "", receiptBody, 200).json["valid"])
	require.Equal(t, false, c.call("agent", "POST", "/v1/receipts/verify", "", "", map[string]any{"receipt": receipt, "tool_name": "other"}, 200).json["valid"])
	c.call("agent", "POST", "/v1/receipts/redeem", "", "", receiptBody, 200)
	c.call("agent", "POST", "/v1/receipts/redeem", "", "", receiptBody, 409)
	c.call("another", "POST", "/v1/receipts/redeem", "", "", receiptBody, 404)
	c.call("another", "POST", "/v1/receipts/verify", "", "", receiptBody, 404)

	cancelled := c.call("agent", "POST", all, "", "", map[string]any{"action_type": "exec_cmd"}, 201).json["approval_id"].(string)
	c.call("agent", "DELETE", one, cancelled, "?reason=done", nil, 200)
	c.call("agent", "GET", all, "", "?id="+cancelled[:13], nil, 200)
	late := c.call("agent", "POST", all, "", "", map[string]any{"tool_name": "run", "expires_in_sec": 1}, 201).json["approval_id"].(string)
	require.Equal(t, "expired", c.call("agent", "GET", one, late, "?wait=60", nil, 200).json["status"])
	c.call("ann", "POST", one+"/decision", late, "", code("1"), 410)
	c.call("agent", "DELETE", one, late, "", nil, 410)
	for _, tool := range []string{"auto", "never", "fails", "note"} {
		c.call("agent", "POST", all, "", "", map[string]any{"tool_name": tool}, 201)
	}
	question := c.call("agent", "POST", all, "", "", map[string]any{"type": "question", "title": "Which?", "options": []string{"a", "b"}}, 201).json["approval_id"].(string)
	c.call("bob", "POST", one+"/decision", question, "", map[string]any{"answer": "a"}, 200)
	require.Equal(t, "answered", c.call("agent", "GET", one, question, "?wait=60", nil, 200).json["outcome"])
	c.call("ann", "GET", all, "", "?limit=2", nil, 200)

	now := time.Now()
	for base, session := range map[string]string{"allow-rules": "", "session-allows": "s1", "grants": ""} {
		g := grant.Use{Uses: 1, LastUsed: now, Grant: grant.Grant{
			Version: grant.Version, ID: fmt.Sprintf("%016x", len(h.grants)+1), By: "ann", CreatedAt: now, ExpiresAt: now.Add(time.Hour),
			Terms: approval.Terms{
				Form: grant.Action, Workspace: home, ClientID: h.client("agent"), SessionID: session, ActionType: "write_file",
			},
		}}
		h.grants = append(h.grants, g)
		item := "/v1/" + base + "/{id}"
		require.NotEmpty(t, c.call("agent", "GET", "/v1/"+base, "", "", nil, 200).json["items"])
		c.call("agent", "GET", item, g.ID, "", nil, 200)
		c.call("agent", "DELETE", item, g.ID, "", nil, 204)
		require.Equal(t, "revoked", c.call("agent", "GET", item, g.ID, "", nil, 200).json["state"])
	}
	inbox.key = h.key(id)
	c.call("mail", "POST", "/v1/inbox/email-reply", "", "", map[string]any{"subject": "Re: [" + id + "]", "body": "1"}, 200)
	c.call("mail", "POST", "/v1/inbox/email-reply", "", "", "Subject: Re\r\n\r\n1", 200, "Content-Type", "message/rfc822")
	require.Equal(t, []httpapi.InboxMail{
		{Subject: "Re: [" + id + "]", Body: "1", Approver: "ann"}, {Raw: []byte("Subject: Re\r\n\r\n1"), Approver: "ann"},
	}, inbox.received)
	inbox.err = &decide.Refusal{Reason: decide.ErrDecided}
	c.call("mail", "POST", "/v1/inbox/email-reply", "", "", map[string]any{"subject": "", "body": "1"}, 409)
	inbox.err, inbox.key = &decide.Refusal{Reason: decide.ErrTooLate}, h.key(late)
	c.call("mail", "POST", "/v1/inbox/email-reply", "", "", map[string]any{"subject": "", "body": "1"}, 410)
	inbox.err = fmt.Errorf("%w: approval_id not found", httpapi.ErrInbox)
	h.requireProblem(c.call("mail", "POST", "/v1/inbox/email-reply", "", "", map[string]any{"subject": "", "body": "1"}, 422), 422, "approval_id not found")
	inbox.err, inbox.key = httpapi.ErrInboxStarting, approval.Key{}
	c.call("mail", "POST", "/v1/inbox/email-reply", "", "", map[string]any{"subject": "", "body": "1"}, 503)
	inbox.err = httpapi.ErrNoInbox
	c.call("mail", "POST", "/v1/inbox/email-reply", "", "", map[string]any{"subject": "", "body": "1"}, 404)

	c.call("watch", "GET", "/metrics", "", "", nil, 200)
	c.call("agent", "GET", "/metrics", "", "", nil, 403)
	c.call("", "GET", "/healthz", "", "", nil, 200)
	c.call("", "GET", "/readyz", "", "", nil, 200)
	c.events()
	c.refusals()
	c.complete()
}

// events follows the stream up to the first event, and validates it.
func (c *contract) events() {
	s := c.follow("ann", "0")
	id := c.ask()
	e := s.next(c.t)
	require.Equal(c.t, "approval_requested", e.event)
	require.NoError(c.t, c.schema("components", "schemas", "Event").Validate(value(c.t, []byte(e.data))))
	require.Contains(c.t, e.data, id)
	s.close()
	c.record("GET", "/v1/events", 200)
}

// refusals derives invalid requests from the document, and requires that they are
// refused.
func (c *contract) refusals() {
	for template, methods := range c.doc["paths"].(map[string]any) {
		for lower, raw := range methods.(map[string]any) {
			method, o := strings.ToUpper(lower), raw.(map[string]any)
			if template == "/healthz" || template == "/readyz" {
				c.call("", method, template, "", "", nil, 403, "Host", "evil.example")
				continue
			}
			var body any
			if method == "POST" {
				body = map[string]any{}
			}
			unknown := strings.Repeat("0", 32)
			if strings.HasPrefix(template, "/v1/approvals") {
				unknown = "appr_" + unknown
			}
			allowed, denied := c.keysFor(o)
			c.call("no key", method, template, unknown, "", body, 401)
			c.call(denied, method, template, unknown, "", body, 403)
			c.wrongParameters(allowed, method, template, unknown, body, o)
			if body != nil {
				c.call(allowed, method, template, unknown, "", "{}", 415, "Content-Type", "text/plain")
				c.call(allowed, method, template, unknown, "", "{"+strings.Repeat(" ", 10<<20), 413)
				c.wrongBodies(allowed, template, unknown)
			}
		}
	}
}

// keysFor finds a key that may and one that may not do an operation, by the scopes in the
// document.
func (c *contract) keysFor(o map[string]any) (allowed, denied string) {
	text := fmt.Sprint(o["description"], o["summary"])
	_, need, ok := strings.Cut(text, "Scope: ")
	require.True(c.t, ok, "%s: the document names no scope", text)
	for _, x := range []struct{ scope, key string }{{"request", "agent"}, {"decide", "ann"}, {"inbound", "mail"}, {"read", "watch"}} {
		if strings.HasPrefix(need, x.scope) || strings.Contains(need, " or "+x.scope) {
			allowed = x.key
			break
		}
	}
	require.NotEmpty(c.t, allowed)
	denied = "mail"
	if allowed == "mail" {
		denied = "agent"
	}
	return allowed, denied
}

func (c *contract) wrongParameters(key, method, template, unknown string, body any, o map[string]any) {
	params, _ := o["parameters"].([]any)
	for _, raw := range params {
		p := raw.(map[string]any)
		if p["in"] == "path" {
			for _, id := range []string{"nope", unknown, strings.ToUpper(unknown), "..%2F..%2Fkeys"} {
				c.call(key, method, template, id, "", validBody(template, body), 404)
			}
			c.call(key, method, template, unknown, "?no_such=1", validBody(template, body), 422)
		}
		if p["in"] == "query" {
			c.call(key, method, template, unknown, "?"+p["name"].(string)+"=%00wrong", nil, 422)
		}
		if p["in"] == "header" {
			bad := strings.Repeat("x", 300)
			c.call(key, method, template, unknown, "", validBody(template, body), 422, p["name"].(string), bad)
		}
	}
}

// validBody is a minimal valid body.
func validBody(template string, body any) any {
	switch {
	case body == nil:
		return nil
	case strings.HasSuffix(template, "/decision"):
		return code("1")
	case template == "/v1/approvals":
		return map[string]any{"tool_name": "run"}
	}
	return body
}

// wrongBodies gives every property of a body another type, adds an unknown one, and omits
// each required one.
func (c *contract) wrongBodies(key, template, id string) {
	at := []string{"paths", template, "post", "requestBody", "content", "application/json", "schema"}
	schema := c.schema(at...)
	for schema.Ref != nil {
		schema = schema.Ref
	}
	good := map[string]any{}
	for _, name := range schema.Required {
		good[name] = "x"
	}
	try := func(body map[string]any, why string) {
		if schema.Validate(value(c.t, []byte(jsonOf(c.t, body)))) == nil {
			require.Failf(c.t, "the document permits an invalid body", "%s: %s", template, why)
		}
		c.call(key, "POST", template, id, "", body, 422)
	}
	for name, p := range schema.Properties {
		for p.Ref != nil {
			p = p.Ref
		}
		for _, wrong := range []any{true, 1.5, []any{map[string]any{}}, nil} {
			body := maps.Clone(good)
			body[name] = wrong
			if p.Validate(value(c.t, []byte(jsonOf(c.t, wrong)))) == nil {
				continue // valid for this property
			}
			try(body, fmt.Sprintf("%s = %v", name, wrong))
		}
		if len(p.Properties) == 0 && p.Types != nil && slices.Contains(p.Types.ToStrings(), "string") && p.MaxLength != nil {
			body := maps.Clone(good)
			body[name] = strings.Repeat("a", *p.MaxLength+1)
			try(body, name+" is too long")
		}
	}
	for _, unknown := range []string{"surprise", "Title", "REQUEST_DATA", "ask_on"} {
		body := maps.Clone(good)
		body[unknown] = "x"
		try(body, unknown)
	}
	for name := range good {
		body := maps.Clone(good)
		delete(body, name)
		try(body, "without "+name)
	}
	for _, text := range []string{`{"a":1,"a":2}`, "{", `{}{}`, "\xef\xbb\xbf{}", `{"title":"` + "\xff" + `"}`, "", `[]`, "null"} {
		a := c.do(key, "POST", fill(template, id), text)
		require.Contains(c.t, []int{400, 422}, a.StatusCode, "%s %q: %s", template, text, a.body)
		c.record("POST", template, a.StatusCode)
	}
}

// complete requires that every documented status was seen, or is tested elsewhere or
// unreachable.
func (c *contract) complete() {
	elsewhere := map[int]string{
		408: "TestSlowClients", 429: "TestPendingLimit", 500: "no test causes it", 503: "TestDegradedAndPaused",
	}
	for template, methods := range c.doc["paths"].(map[string]any) {
		for lower, o := range methods.(map[string]any) {
			name := strings.ToUpper(lower) + " " + template
			for status := range o.(map[string]any)["responses"].(map[string]any) {
				n, err := strconv.Atoi(status)
				require.NoError(c.t, err)
				if _, ok := elsewhere[n]; !ok && !c.seen[name][n] && !unreachable[name+" "+status] {
					c.t.Errorf("%s: %s was never seen", name, status)
				}
			}
		}
	}
}

// unreachable are statuses that the document has for a group of operations and that this
// one cannot return.
var unreachable = map[string]bool{
	"GET /v1/events 404": true, // only without an audit log
}

// streamEvent is one event of a stream.
type streamEvent struct{ id, event, data string }

// What a linter of OpenAPI documents reports as an error, besides a document that does not
// follow the schema: make openapi runs one.
func TestDocumentIsComplete(t *testing.T) {
	t.Parallel()
	doc := newContract(t, newRig(t)).doc
	if *openapi != "" {
		require.NoError(t, os.WriteFile(*openapi, httpapi.Document("test"), 0o644))
	}
	require.Equal(t, []any{map[string]any{"url": "/", "description": "the daemon that gave this document"}}, doc["servers"])
	ids := map[string]bool{}
	for template, methods := range doc["paths"].(map[string]any) {
		for method, raw := range methods.(map[string]any) {
			o := raw.(map[string]any)
			id, _ := o["operationId"].(string)
			require.NotEmpty(t, id, "%s %s", method, template)
			require.False(t, ids[id], "%s is used twice", id)
			ids[id] = true
			require.NotEmpty(t, o["summary"], id)
			named := 0
			params, _ := o["parameters"].([]any)
			for _, p := range params {
				if p.(map[string]any)["in"] == "path" {
					named++
				}
			}
			require.Equal(t, strings.Count(template, "{"), named, id)
			classes := map[string]bool{}
			for status := range o["responses"].(map[string]any) {
				classes[status[:1]] = true
			}
			require.True(t, classes["2"] && classes["4"], "%s: a success and a refusal", id)
		}
	}
}

// The library accepts null for every optional member, so the document must say so.
func TestDocumentAllowsNull(t *testing.T) {
	t.Parallel()
	compiler := newContract(t, newRig(t)).compiler
	for name, text := range map[string]string{
		"CreateRequest": `{"tool_name":"run","title":null,"type":null,"channel":null,"target":null,"request_data":null,"options":null,"expires_in_sec":null}`,
		"Target":        `{"tg_chat_id":"1","email_to":null}`,
		"Verdict":       `{"code":null,"answer":"a"}`,
		"ReceiptBody":   `{"receipt":"r","tool_name":null,"request_data":null}`,
	} {
		schema, err := compiler.Compile(docURL + "#/components/schemas/" + name)
		require.NoError(t, err)
		body, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(body), name)
	}
}
