package approval_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/grant"
)

var update = flag.Bool("update", false, "rewrite the golden documents")

const someID = "a7f3b2c1d4e5f6a7"

func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func someKey() approval.Key { return approval.Key{Workspace: "personal", ID: someID} }

// untidy is a valid request_data whose numbers do not fit a float and whose spaces
// no formatter would reproduce. It must be kept byte for byte.
const untidy = "{ \"big\" : 1e400,\n\t\"exact\":9007199254740993, \"minus\":-0.0, \"text\" : \"\\u0041\\/\u00e9\" ,\"list\":[ 1 ,2 ] }"

func ptr[T any](v T) *T { return &v }

func someRequest() *approval.Request {
	return &approval.Request{
		RequestID: someID, Type: approval.TypeAction, ToolName: "x_post", ActionType: "custom:post",
		RequestData: approval.Raw(untidy), SessionID: "sess_123", Title: "Post to X", Preview: "Meeting at 5",
		Rationale: "you asked for a reminder \U0001f514", ExpiresInSec: 300, Options: []string{},
		Metadata: approval.Raw(`{ "trace" : "\u0061" }`), Proof: approval.Raw(`{"quote":"at 5"}`), Resubmits: "00112233445566778899aabbccddeeff",
	}
}

func somePending() *approval.Pending {
	return &approval.Pending{
		Version: 1, RequestID: someID, ShortID: "a7f3b2c1", Type: approval.TypeAction, ToolName: "x_post",
		SourceGroup: "personal", ChatJID: "tg:42", RequestData: approval.Raw(untidy), Timestamp: noon(),
		RequestSHA256: approval.Digest([]byte("q")), ToolSHA256: approval.Digest([]byte("tool")),
		SessionID: "sess_123", ClientID: "ws:personal", ActionType: "custom:post", Capability: "channel:out",
		Target: "x.com/ricardo", Reversibility: approval.Irreversible,
		Verb: map[string]string{"it": "pubblicare", "en": "post", "de": "posten", "fr": "publier"}, Summary: `"Meeting at 5" -> x.com/ricardo`,
		Territory: "session", Principal: "ann",
		Ruling: approval.Ruling{Outcome: approval.Ask, Rule: "default", Reasons: []approval.Reason{
			approval.Because("table_ask", "level", "supervised", "capability", "channel:out"),
			approval.Because("rule_ask", "rule", "default", "words", "<taint> & more"), approval.Because("question"),
		}},
		ExpiresAt: noon().Add(5 * time.Minute), RecurrenceCount: 2,
		Agent:   approval.Prose{Title: "Post to X", Preview: "line one\nline two", Rationale: "\u202e"},
		Options: []string{}, Resubmits: "", Proof: approval.Raw(`{ "quote": "at 5" }`),
		Facts: approval.Evidence{Host: []approval.HostFact{{Domain: "host", Name: "host", Values: []string{"x.com"}, From: "template"}}},
		Runs: approval.Runs{
			Kind: "http", Method: "POST", URL: []approval.Part{{Text: "https://x.com/"}, {Text: "a%20b", Arg: "name"}},
			Headers: []approval.Header{{Name: "Accept", Value: "text/plain"}, {Name: "Authorization", Value: "Bearer ", File: "/etc/token"}},
			Body:    []approval.Part{{Text: `{"text":`}, {Text: `"\u0041"`, Arg: "text"}, {Text: "}"}},
			Args:    map[string]approval.Argument{"name": {Type: "text"}, "text": {Type: "text", Writes: "file"}, "sum": {Type: "amount", Currency: "EUR", Optional: true}},
		},
		OwnDomains: []string{"example.org"}, ObjectSize: new(int64(12)), Before: &approval.FileBefore{Arg: "text", Exists: true, Text: "old"},
		Metadata: approval.Raw(`{ "trace" : "\u0061" }`),
	}
}

func someDecision() *approval.Decision {
	return &approval.Decision{
		Version: 1, RequestID: someID, Approved: true, Verdict: approval.Approved, Code: "4", Scope: approval.Once,
		Note: "only today", PendingSHA256: approval.Digest([]byte("p")), RunBefore: noon().Add(10 * time.Minute),
		DecidedBy: "ann", DecidedByID: "123456789", Via: "telegram", DecidedAt: noon().Add(1500 * time.Millisecond),
	}
}

func someClaim() *approval.Claim {
	return &approval.Claim{
		Version: 1, RequestID: someID, Workspace: "personal", ToolName: "x_post", ActionType: "custom:post",
		RequestSHA256: approval.Digest([]byte("q")), PendingSHA256: approval.Digest([]byte("p")),
		ArgsSHA256: approval.Digest([]byte(untidy)), ToolSHA256: approval.Digest([]byte("tool")),
		Request: approval.Raw("null"), Pending: approval.Raw(`{"request_data":` + untidy + `}`), Decision: approval.Raw(`{ "approved" : true }`),
		Ruling:      &approval.Ruling{Outcome: approval.Allow, Rule: "allow-post", Reasons: []approval.Reason{}},
		RequestedAt: noon(), ClaimedAt: noon().Add(2 * time.Second), Receipt: "permesso receipt\ntool x_post\n\n\u2014 gate sig\n",
	}
}

func someRecord() *approval.Record {
	return &approval.Record{
		Version: 1, RequestID: someID, Workspace: "personal", Status: approval.StatusApproved,
		RequestSHA256: approval.Digest([]byte("q")), PendingSHA256: approval.Digest([]byte("p")),
		Request: approval.Raw("null"), Pending: approval.Raw(`{"request_data":` + untidy + `}`), Decision: approval.Raw(`{ "approved" : true }`),
		Ruling: nil, Receipt: "permesso receipt\n", RequestedAt: noon(), DecidedAt: noon().Add(time.Second),
		StartedAt: noon().Add(2 * time.Second), EndedAt: noon().Add(3 * time.Second),
		Response: approval.Raw(`{"version":1,"result":{ "id" : 9007199254740993 }}`),
	}
}

func someResponse() *approval.Response {
	return &approval.Response{
		Version: 1, RequestID: someID, RequestSHA256: approval.Digest([]byte("q")), Status: approval.StatusDenied,
		Result: approval.Raw("null"), Error: ptr("Denied by user"),
		Decision: approval.ResponseDecision{Code: ptr("3"), By: ptr("ann"), Via: ptr("telegram")},
		Metadata: approval.Raw(`{ "trace" : "\u0061" }`), RespondedAt: noon(),
	}
}

// document is one kind, for tests that treat all kinds alike.
type document struct {
	name  string
	value interface{ Encode() ([]byte, error) }
	parse func(b []byte) (any, error)
}

func documents() []document {
	k := someKey()
	return []document{
		{"request", someRequest(), func(b []byte) (any, error) { return approval.ParseRequest(b, k.ID) }},
		{"pending", somePending(), func(b []byte) (any, error) { return approval.ParsePending(b, k) }},
		{"decision", someDecision(), func(b []byte) (any, error) { return approval.ParseDecision(b, k) }},
		{"claim", someClaim(), func(b []byte) (any, error) { return approval.ParseClaim(b, k) }},
		{"record", someRecord(), func(b []byte) (any, error) { return approval.ParseRecord(b, k) }},
		{"response", someResponse(), func(b []byte) (any, error) { return approval.ParseResponse(b) }},
	}
}

func encoded(t *testing.T, doc document) string {
	t.Helper()
	b, err := doc.value.Encode()
	require.NoError(t, err)
	return string(b)
}

// The files on disk are the interface to other programs and to later versions:
// they change only on purpose (-update).
func TestDocumentsAreGolden(t *testing.T) {
	for _, doc := range documents() {
		file := filepath.Join("..", "testdata", "documents", doc.name+".json")
		got := encoded(t, doc)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), got, doc.name)
		back, err := doc.parse(want)
		require.NoError(t, err, doc.name)
		require.Equal(t, doc.value, back, doc.name)
	}
}

// Documents of the version before hold reasons as sentences.
func TestSentencesOfTheVersionBeforeAreRead(t *testing.T) {
	read := func(name string) *approval.Pending {
		b, err := os.ReadFile(filepath.Join("..", "testdata", "documents", "before", name+".json"))
		require.NoError(t, err)
		p, err := approval.ParsePending(bytes.TrimSpace(b), someKey())
		require.NoError(t, err)
		return p
	}
	p := read("pending")
	want := somePending()
	want.Runs, want.OwnDomains, want.ObjectSize, want.Before, want.Metadata = approval.Runs{}, nil, nil, nil, nil // not in the first version
	want.Ruling.Reasons = []approval.Reason{
		approval.Because("text", "text", "no rule allows it"), approval.Because("text", "text", "<taint> & more"),
	}
	require.Equal(t, want, p)
	_, ok := p.Ruling.Reasons[0].Outcome()
	require.False(t, ok, "a sentence argues for no outcome")
	require.Equal(t, approval.Because("text", "text", "nobody has signed it"), read("proof").Facts.Proof.Why)

	var r approval.Ruling
	require.NoError(t, codec.Decode([]byte(`{"outcome":"allow","rule":"r","reasons":null,"proven":"by the arguments: x"}`), &r))
	require.Equal(t, `text text="by the arguments: x"`, r.Proven.String())
	require.NoError(t, codec.Decode([]byte(`{"outcome":"allow","rule":"r","reasons":[""],"proven":""}`), &r))
	require.True(t, r.Proven.IsZero())
	require.Error(t, codec.Decode([]byte(`{"outcome":"allow","rule":"r","reasons":[{"code":"a","other":1}]}`), &r), "strict, as before")
	require.Error(t, codec.Decode([]byte(`{"outcome":"allow","rule":"r","reasons":[1]}`), &r))
}

// Digests need the same bytes for the same document. Maps have no order.
func TestEncodeIsDeterministic(t *testing.T) {
	want := encoded(t, documents()[1])
	for range 100 {
		require.Equal(t, want, encoded(t, documents()[1]))
	}
	require.Contains(t, want, `"verb":{"de":"posten","en":"post","fr":"publier","it":"pubblicare"}`)
}

// Every key is written, so that readers need not distinguish "absent" from "null".
// The exceptions are times of events that did not happen, and what documents of the first
// version lack.
func TestDocumentsWriteEveryKey(t *testing.T) {
	mayBeMissing := map[string]bool{
		"run_before": true, "decided_at": true, "started_at": true, "commands": true, "claimed_by": true,
		"runs": true, "summary_parts": true, "own_domains": true, "object_size": true, "before": true, "offers": true, "metadata": true, "args_subset": true,
		"execution": true, "editable": true, "subagent": true, // but of what the agent executes
		"log":     true,                                                                        // before the first checkpoint
		"outline": true,                                                                        // of a request that was not refused at once
		"program": true, "continues": true, "program_sha256": true, "plan": true, "step": true, // but of programs
	}
	for _, doc := range documents() {
		zero := reflect.New(reflect.TypeOf(doc.value).Elem())
		b, err := zero.Interface().(interface{ Encode() ([]byte, error) }).Encode()
		require.NoError(t, err, doc.name)
		for i := range zero.Elem().NumField() {
			key, opts, _ := strings.Cut(zero.Elem().Type().Field(i).Tag.Get("json"), ",")
			require.NotEmpty(t, key, "%s, field %d", doc.name, i)
			if key == "-" {
				continue
			}
			if opts == "omitzero" {
				require.True(t, mayBeMissing[key], "%s: %s", doc.name, key)
				continue
			}
			require.Contains(t, string(b), `"`+key+`":`, doc.name)
		}
	}
	b, err := (&approval.Response{}).Encode()
	require.NoError(t, err)
	nulls := `{"version":0,"request_id":"","request_sha256":"","status":"","result":null,"error":null,` +
		`"decision":{"code":null,"note":null,"override":null,"by":null,"via":null,"auto":false},` +
		`"feedback":null,"required_response":null,"receipt":null,"metadata":null,"responded_at":"0001-01-01T00:00:00.000000000Z"}`
	require.Equal(t, nulls, string(b))
}

// What is shown, approved, run and stored must be the same bytes: P, R, C and S
// neither round, unescape nor reformat them.
func TestRawIsKeptByteForByte(t *testing.T) {
	k := someKey()
	r, err := approval.ParseRequest([]byte(`{"request_id":"`+someID+`","tool_name":"x","request_data":  `+untidy+` }`), someID)
	require.NoError(t, err)
	require.Equal(t, untidy, string(r.RequestData))

	p := somePending()
	p.RequestData = r.RequestData
	pBody, err := p.Encode()
	require.NoError(t, err)
	p, err = approval.ParsePending(pBody, k)
	require.NoError(t, err)
	require.Equal(t, untidy, string(p.RequestData), "in P")

	c := someClaim()
	c.Pending = pBody
	cBody, err := c.Encode()
	require.NoError(t, err)
	c, err = approval.ParseClaim(cBody, k)
	require.NoError(t, err)
	require.Equal(t, string(pBody), string(c.Pending), "in R")

	s := someResponse()
	s.Result = r.RequestData
	sBody, err := s.Encode()
	require.NoError(t, err)
	rec := someRecord()
	rec.Pending, rec.Response = c.Pending, sBody
	recBody, err := rec.Encode()
	require.NoError(t, err)
	rec, err = approval.ParseRecord(recBody, k)
	require.NoError(t, err)
	require.Equal(t, string(pBody), string(rec.Pending), "in C")
	require.Equal(t, string(sBody), string(rec.Response), "S in C")
	s, err = approval.ParseResponse(rec.Response)
	require.NoError(t, err)
	require.Equal(t, untidy, string(s.Result), "in S")
}

// An accepted request of the greatest depth must be settled, too.
func TestDeepestRequestCanBeSettled(t *testing.T) {
	k := someKey()
	deep := strings.Repeat(`{"a":`, codec.MaxDepth-1) + "1" + strings.Repeat("}", codec.MaxDepth-1)
	request := `{"request_id":"` + someID + `","tool_name":"x","request_data":` + deep + `}`
	r, err := approval.ParseRequest([]byte(request), someID)
	require.NoError(t, err)

	p := somePending()
	p.RequestData = r.RequestData
	pBody, err := p.Encode()
	require.NoError(t, err)
	_, err = approval.ParsePending(pBody, k)
	require.NoError(t, err)

	s := someResponse()
	s.Result = approval.Raw(`{"a":` + deep + `}`) // a command's output may be that deep
	require.NoError(t, codec.CheckDepth(s.Result, codec.MaxDepth))
	sBody, err := s.Encode()
	require.NoError(t, err)
	_, err = approval.ParseResponse(sBody)
	require.NoError(t, err)

	c, rec := someClaim(), someRecord()
	c.Request, c.Pending = approval.Raw(request), pBody
	rec.Request, rec.Pending, rec.Response = approval.Raw(request), pBody, sBody
	cBody, err := c.Encode()
	require.NoError(t, err)
	_, err = approval.ParseClaim(cBody, k)
	require.NoError(t, err)
	recBody, err := rec.Encode()
	require.NoError(t, err)
	_, err = approval.ParseRecord(recBody, k)
	require.NoError(t, err)
}

// with returns doc with one member of the outer object replaced; "" removes it.
func with(t *testing.T, doc, key, value string) string {
	t.Helper()
	fields, err := codec.Fields(approval.Raw(doc))
	require.NoError(t, err)
	var members []string
	found := false
	for _, f := range fields {
		text := string(f.Value)
		if f.Name == key {
			found, text = true, value
		}
		if text != "" {
			members = append(members, `"`+f.Name+`":`+text)
		}
	}
	require.True(t, found, "no key %s", key)
	return "{" + strings.Join(members, ",") + "}"
}

func TestEveryDocumentIsStrict(t *testing.T) {
	for _, doc := range documents() {
		complete := encoded(t, doc)
		inner := strings.TrimSuffix(complete, "}")
		for _, c := range []struct{ why, text, err string }{
			{"an unknown key may change the meaning of known ones", inner + `,"surprise":1}`, `unknown key "surprise"`},
			{"two readers may read two documents", inner + `,"request_id":"` + someID + `"}`, `duplicate key "request_id"`},
			{"letter case differs", strings.Replace(complete, `"request_id"`, `"Request_ID"`, 1), `unknown key "Request_ID"`},
			{"a second key in another letter case", inner + `,"REQUEST_ID":"` + someID + `"}`, `unknown key "REQUEST_ID"`},
			{"a second document after the first", complete + "{}", "after top-level value"},
			{"a word after the document", complete + "x", "after top-level value"},
			{"a NUL after the document", complete + "\x00", "after top-level value"},
			{"byte order mark", "\xef\xbb\xbf" + complete, "at start of value"},
			{"bad UTF-8 in a text", with(t, complete, "request_id", "\"a7f3b2c1d4e5f6\xff\""), "invalid UTF-8"},
			{"bad UTF-8 in a key", inner + ",\"\xc3\":1}", "invalid UTF-8"},
			{"half a surrogate pair", with(t, complete, "request_id", `"\ud800"`), "invalid surrogate pair in a string"},
			{"a list", "[" + complete + "]", "the document must be an object, not a list"},
			{"a wrong type", with(t, complete, "request_id", "7"), `key "request_id" must be a string, not a number`},
			{"nothing", "null", ""},
			{"an empty object", "{}", ""},
		} {
			if doc.name != "request" && strings.HasPrefix(c.err, "unknown key") {
				continue // the daemon's own, sealed: see TestDocumentsOfLaterVersions
			}
			_, err := doc.parse([]byte(c.text))
			require.ErrorContains(t, err, c.err, "%s: %s", doc.name, c.why)
		}
	}
}

// A document's content must match its place.
func TestDocumentsInTheWrongPlaceAreRefused(t *testing.T) {
	other := `"ffffffffffffffff"`
	refused := map[string][][3]string{
		"pending": {
			{"request_id", other, "another request's"},
			{"source_group", `"work"`, "another workspace's"},
			{"version", "2", "a later version's"},
			{"version", "", "no version's"},
			{"expires_at", "", "without a deadline it would never expire"},
			{"timestamp", "", "no time of asking"},
			{"expires_at", `"2026-11-21T12:05:00"`, "a time without a zone"},
			{"expires_at", `"tomorrow"`, "not a time"},
			{"expires_at", "1795262400", "seconds"},
			{"ruling", `{"outcome":"maybe","rule":"","reasons":[]}`, "no outcome"},
			{"recurrence_count", "1.5", "not a whole number"},
		},
		"decision": {
			{"request_id", other, "another request's"},
			{"version", "2", "a later version's"},
			{"verdict", `"maybe"`, "no verdict"},
			{"decided_at", "", "no time of deciding"},
			{"approved", `"true"`, "not a boolean"},
		},
		"claim": {
			{"request_id", other, "another request's"},
			{"workspace", `"work"`, "another workspace's"},
			{"version", "2", "a later version's"},
			{"claimed_at", "", "no time of claiming"},
		},
		"record": {
			{"request_id", other, "another request's"},
			{"workspace", `"work"`, "another workspace's"},
			{"version", "2", "a later version's"},
			{"ended_at", "", "its retention needs it"},
			{"response", "", "no response"},
			{"response", "null", "no response"},
			{"response", `"ok"`, "not an object"},
		},
		"response": {
			{"request_id", `"../x"`, "not an id"}, {"version", "2", "a later version's"}, {"status", "", "no outcome"}, {"status", `""`, "no outcome"},
		},
	}
	for _, doc := range documents() {
		for _, c := range refused[doc.name] {
			_, err := doc.parse([]byte(with(t, encoded(t, doc), c[0], c[1])))
			require.Error(t, err, "%s of %s as %s: %s", c[0], doc.name, c[1], c[2])
		}
	}
}

func TestDecisionCheckRefusals(t *testing.T) {
	require.NoError(t, someDecision().Check(someKey()))
	for _, v := range []approval.Verdict{
		approval.Denied, approval.Answered, approval.Overridden, approval.RequestMore, approval.Cancelled, approval.Expired,
	} {
		d := someDecision()
		d.Verdict, d.Approved, d.RunBefore = v, false, time.Time{}
		require.NoError(t, d.Check(someKey()), "%s runs nothing, so it needs no run_before", v)
		d.Approved = true
		require.EqualError(t, d.Check(someKey()), "approved and verdict contradict each other", v)
	}
	for _, c := range []struct {
		why    string
		damage func(*approval.Decision)
		err    string
	}{
		{"no verdict", func(d *approval.Decision) { d.Verdict = "" }, "unknown verdict"},
		{"a verdict of a later version", func(d *approval.Decision) { d.Verdict = "delegated" }, "unknown verdict"},
		{"a status is not a verdict", func(d *approval.Decision) { d.Verdict = "auto_approved" }, "unknown verdict"},
		{"another letter case", func(d *approval.Decision) { d.Verdict = "Approved" }, "unknown verdict"},
		{"verdict approved, approved false", func(d *approval.Decision) { d.Approved = false }, "approved and verdict contradict each other"},
		{"another request's", func(d *approval.Decision) { d.RequestID = "ffffffffffffffff" }, "version or request_id does not match"},
		{"no request_id", func(d *approval.Decision) { d.RequestID = "" }, "version or request_id does not match"},
		{"a later version", func(d *approval.Decision) { d.Version = 2 }, "version or request_id does not match"},
		{"no version", func(d *approval.Decision) { d.Version = 0 }, "version or request_id does not match"},
		{"no time", func(d *approval.Decision) { d.DecidedAt = time.Time{} }, "decided_at or pending_sha256 is missing"},
		{"no pending_sha256", func(d *approval.Decision) { d.PendingSHA256 = "" }, "decided_at or pending_sha256 is missing"},
		{"no run_before", func(d *approval.Decision) { d.RunBefore = time.Time{} }, "run_before is missing"},
		{"the zero decision", func(d *approval.Decision) { *d = approval.Decision{} }, "unknown verdict"},
	} {
		d := someDecision()
		c.damage(d)
		require.EqualError(t, d.Check(someKey()), c.err, c.why)
		b, err := d.Encode()
		require.NoError(t, err)
		_, err = approval.ParseDecision(b, someKey())
		require.EqualError(t, err, "parse decision: "+c.err, "%s: ParseDecision checks, too", c.why)
	}
}

func TestOutcomeDefaultsToDeny(t *testing.T) {
	require.Equal(t, "deny", approval.Outcome(0).String())
	require.Equal(t, "deny", approval.Outcome(99).String(), "an unknown outcome denies")
	for _, o := range []approval.Outcome{approval.Deny, approval.Ask, approval.Allow} {
		text, err := o.MarshalText()
		require.NoError(t, err)
		back := approval.Outcome(99)
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, o, back)
	}
	for _, s := range []string{"", "Allow", "allow ", "yes", "1"} {
		o := approval.Deny
		require.Error(t, o.UnmarshalText([]byte(s)), s)
		require.Equal(t, approval.Deny, o, "refusing %q changes nothing", s)
	}
}

// The daemon's own documents may have members that a later version has added, and
// are refused from a later major version. What agents write has no unknown members.
func TestDocumentsOfLaterVersions(t *testing.T) {
	key := apikey.New("secret")
	key.Workspace, key.Scopes, key.CreatedBy, key.CreatedAt = "personal", []string{apikey.MayRequest}, "operator:root", noon()
	given := &grant.Grant{
		Version: grant.Version, ID: someID, By: "ann",
		Terms:     approval.Terms{Form: grant.Action, Workspace: "personal", ClientID: "ws:personal", ActionType: "send_message"},
		CreatedAt: noon(), ExpiresAt: noon().Add(time.Hour),
	}
	all := append(documents(),
		document{"api key", key, func(b []byte) (any, error) { return apikey.Parse(b, key.ID) }},
		document{"grant", given, func(b []byte) (any, error) { return grant.Parse(b, given.ID) }},
	)
	for _, doc := range all {
		text := encoded(t, doc)
		later := strings.TrimSuffix(text, "}") + `,"added_later":{"x":[1]}}`
		back, err := doc.parse([]byte(later))
		if doc.name == "request" {
			require.ErrorContains(t, err, "unknown key", doc.name)
			continue
		}
		require.NoError(t, err, doc.name)
		require.Equal(t, doc.value, back, doc.name)
		version := `"version":1,`
		if doc.name == "grant" {
			version = `"version":2,`
		}
		require.Contains(t, text, version, doc.name)
		_, err = doc.parse([]byte(strings.Replace(text, version, `"version":3,`, 1)))
		require.Error(t, err, "%s of a later major version", doc.name)
	}
}
