package approval_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// request is a small valid request with more members appended.
func request(more ...string) string {
	members := append([]string{`"request_id":"` + someID + `"`, `"tool_name":"x_post"`}, more...)
	return "{" + strings.Join(members, ",") + "}"
}

func TestParseRequestSetsDefaults(t *testing.T) {
	r, err := approval.ParseRequest([]byte(request()), someID)
	require.NoError(t, err)
	require.Equal(t, &approval.Request{
		RequestID: someID, ToolName: "x_post", Type: approval.TypeAction, RequestData: approval.Raw("{}"),
	}, r)

	nulls := request(`"request_data":null`, `"proof":null`, `"metadata":null`, `"title":null`, `"options":null`, `"expires_in_sec":null`, `"type":null`)
	again, err := approval.ParseRequest([]byte(nulls), someID)
	require.NoError(t, err)
	require.Equal(t, r, again, "null equals a missing key")
}

func TestRequestsThatAreAccepted(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 4)
	for _, c := range []struct{ why, id, text string }{
		{"shortest id", "0123456789abcdef", `{"request_id":"0123456789abcdef","tool_name":"x"}`},
		{"longest id", long, `{"request_id":"` + long + `","tool_name":"x"}`},
		{"release-only", someID, `{"request_id":"` + someID + `","action_type":"exec_cmd"}`},
		{"a question needs no tool", someID, `{"request_id":"` + someID + `","type":"question","title":"Which?"}`},
		{"eight options of 200 bytes", someID, request(`"type":"question"`, `"title":"a"`, `"options":[`+strings.Repeat(`"`+strings.Repeat("o", 200)+`",`, 7)+`"é"]`)},
		{"every text at its limit", someID, request(
			`"session_id":"`+strings.Repeat("s", 128)+`"`, `"title":"`+strings.Repeat("t", 300)+`"`,
			`"preview":"`+strings.Repeat("p", 8<<10)+`"`, `"rationale":"`+strings.Repeat("r", 8<<10)+`"`,
		)},
		{"the longest expiry", someID, request(`"expires_in_sec":31622400`)},
		{"no expiry of its own", someID, request(`"expires_in_sec":0`)},
		{"white space around it", someID, " \r\n\t" + request() + "\n\n"},
		{"the longest tool name", someID, `{"request_id":"` + someID + `","tool_name":"` + strings.Repeat("A", 64) + `"}`},
		{"any keys inside request_data", someID, request(`"request_data":{"request_id":"../x","mac":"","Tool_Name":1}`)},
		{"a part of a list", someID, `{"request_id":"` + someID + `","action_type":"send_message","args_subset":["to"],"request_data":{"to":["a","b"]}}`},
		{"metadata of 4 KiB", someID, request(`"metadata":{"a":"` + strings.Repeat("x", 4<<10-8) + `"}`)},
		{"escaped characters in keys and values", someID, `{"request\u005fid":"` + someID + `","tool_name":"\u0078"}`},
	} {
		_, err := approval.ParseRequest([]byte(c.text), c.id)
		require.NoError(t, err, c.why)
	}
}

// The agent receives these sentences verbatim.
func TestRequestsThatAreRefused(t *testing.T) {
	const (
		badID      = "request_id must be " + approval.IDForm
		badTool    = "tool_name must be 1 to 64 of A-Z a-z 0-9 _ . : -"
		badAction  = "action_type must be exec_cmd, http_request, write_file, send_message or custom:<name>"
		badExpiry  = "expires_in_sec must be 1 to 31622400, or left out"
		badOption  = "an option must be 1 to 200 bytes"
		noOptions  = "options belong to a question"
		noTitle    = "a question needs a title: it is the text of the question"
		noObject   = "request_data must be an object"
		noProof    = "proof must be an object"
		noMetadata = "metadata must be an object"
		noResubmit = "resubmits must be a request id"
	)
	const badSubset = "args_subset is only for an action_type but exec_cmd, without tool_name"
	const noList = "args_subset must name up to 8 lists in request_data, each once, by at most 64 bytes"
	long := strings.Repeat("n", 65)
	release := func(more ...string) string {
		return `{"request_id":"` + someID + `","action_type":"send_message",` + strings.Join(more, ",") + "}"
	}
	id := func(s string) string { return `{"request_id":"` + s + `","tool_name":"x"}` }
	tool := func(s string) string { return `{"request_id":"` + someID + `","tool_name":"` + s + `"}` }
	action := func(s string) string { return `{"request_id":"` + someID + `","action_type":"` + s + `"}` }
	question := func(options string) string { return request(`"type":"question"`, `"title":"a"`, `"options":`+options) }
	text := func(key string, n int) string { return request(`"` + key + `":"` + strings.Repeat("x", n) + `"`) }

	for _, c := range []struct{ why, text, err string }{
		{"a key that may be a secret is not quoted", request(`"AKIA1234":true`), `unknown key of 8 bytes`},
		{"unknown key", request(`"tool_nane":true`), `unknown key "tool_nane"`},
		{"an agent cannot claim authority", request(`"capability":"time:read"`), `unknown key "capability"`},
		{"a Decision's key", request(`"approved":true`), `unknown key "approved"`},
		{"a host program's key", request(`"short_id":"a7f3b2c1"`), `unknown key "short_id"`},
		{"another letter case", request(`"Title":"x"`), `unknown key "Title"`},
		{"a look-alike", request("\"t\u0131tle\":\"x\""), "unknown key of 6 bytes"},
		{"a long key is not quoted", request(`"` + strings.Repeat("k", 500) + `":1`), `unknown key of 500 bytes`},
		{"a key with special characters is not quoted", request(`"a\n\u202eb":1`), "unknown key of 6 bytes"},
		{"duplicate key", request(`"title":"a"`, `"title":"b"`), `duplicate key "title"`},
		{"duplicate by escape", request(`"title":"a"`, `"\u0074itle":"b"`), `duplicate key "title"`},
		{"duplicate inside", request(`"request_data":{"to":"ann","to":"eve"}`), `duplicate key "to"`},
		{"duplicate deep inside", request(`"proof":{"l":[{"to":1,"to":2}]}`), `duplicate key "to"`},

		{"a question without a title", request(`"type":"question"`), noTitle},
		{"a question with a blank title", request(`"type":"question"`, `"title":" \n"`), noTitle},
		{"no id", `{"tool_name":"x"}`, badID},
		{"null as id", `{"request_id":null,"tool_name":"x"}`, badID},
		{"null as request", `null`, badID},
		{"short id", id("0123456789abcde"), badID},
		{"long id", id(strings.Repeat("0", 65)), badID},
		{"uppercase id", id("A7F3B2C1D4E5F6A7"), badID},
		{"UUID in capitals", id("123E4567-E89B-12D3-A456-426614174000"), badID},
		{"UUID in braces", id("{123e4567-e89b-12d3-a456-426614174000}"), badID},
		{"a path as id", id("../../../etc/passwd"), badID},
		{"digits of another script", id("\uff11\uff12\uff13\uff14\uff15\uff16"), badID},
		{"NUL after the id", id(someID + `\u0000`), badID},
		{"another file's id", id("ffffffffffffffff"), "request_id differs from the file's name"},
		{"an id with the same prefix", id(someID + "00"), "request_id differs from the file's name"},

		{"no tool or action type", `{"request_id":"` + someID + `"}`, "tool_name, action_type or program is required"},
		{"empty names", `{"request_id":"` + someID + `","tool_name":"","action_type":""}`, "tool_name, action_type or program is required"},
		{"space in a tool name", tool("x post"), badTool},
		{"line feed in a tool name", tool(`x\n`), badTool},
		{"slash in a tool name", tool("x/y"), badTool},
		{"a Cyrillic look-alike letter", tool("x_\u0440ost"), badTool},
		{"invisible letters", tool(`x\u200b`), badTool},
		{"long tool name", tool(strings.Repeat("x", 65)), badTool},
		{"unknown action type", action("rm"), badAction},
		{"action type in capitals", action("EXEC_CMD"), badAction},
		{"custom without a name", action("custom:"), badAction},
		{"custom with a space", action("custom:a b"), badAction},
		{"custom with a long name", action("custom:" + strings.Repeat("x", 65)), badAction},
		{"unknown type", request(`"type":"order"`), "type must be action or question"},
		{"type in capitals", request(`"type":"Question"`), "type must be action or question"},

		{"options without a question", request(`"options":["a"]`), noOptions},
		{"options of an action", request(`"type":"action"`, `"options":["a"]`), noOptions},
		{"nine options", question(`["1","2","3","4","5","6","7","8","9"]`), "at most 8 options"},
		{"empty option", question(`["a",""]`), badOption},
		{"long option", question(`["` + strings.Repeat("o", 201) + `"]`), badOption},
		{"bytes count, not letters", question(`["` + strings.Repeat("é", 101) + `"]`), badOption},
		{"an option that is not text", question(`["a",1]`), `key "options/1" must be a string, not a number`},
		{"options that are not a list", question(`{"a":1}`), `key "options" must be a list, not an object`},

		{"negative expiry", request(`"expires_in_sec":-1`), badExpiry},
		{"more than a year", request(`"expires_in_sec":31622401`), badExpiry},
		{"an expiry that would overflow", request(`"expires_in_sec":9223372036854775807`), badExpiry},
		{"more than 64 bits", request(`"expires_in_sec":9223372036854775808`), `key "expires_in_sec" is out of range`},
		{"half seconds", request(`"expires_in_sec":1.5`), `key "expires_in_sec" must be a whole number`},
		{"a whole number written as a float", request(`"expires_in_sec":3e2`), `key "expires_in_sec" must be a whole number`},
		{"infinity", request(`"expires_in_sec":1e400`), `key "expires_in_sec" must be a whole number`},
		{"expiry as text", request(`"expires_in_sec":"300"`), `key "expires_in_sec" must be a whole number, not a string`},
		{"expiry as a boolean", request(`"expires_in_sec":true`), `key "expires_in_sec" must be a whole number, not true`},

		{"long session", text("session_id", 129), "session_id is longer than 128 bytes"},
		{"long title", text("title", 301), "title is longer than 300 bytes"},
		{"long preview", text("preview", 8<<10+1), "preview is longer than 8192 bytes"},
		{"long rationale", text("rationale", 8<<10+1), "rationale is longer than 8192 bytes"},
		{"a title that is not text", request(`"title":["x"]`), `key "title" must be a string, not a list`},

		{"data that is a list", request(`"request_data":[]`), noObject},
		{"data that is text", request(`"request_data":"{}"`), noObject},
		{"data that is false", request(`"request_data":false`), noObject},
		{"data that is a number", request(`"request_data":0`), noObject},
		{"proof that is a list", request(`"proof":[]`), noProof},
		{"proof that is text", request(`"proof":"yes"`), noProof},
		{"proof that is true", request(`"proof":true`), noProof},
		{"metadata that is a list", request(`"metadata":[]`), noMetadata},
		{"metadata that is text", request(`"metadata":"{}"`), noMetadata},
		{"metadata over 4 KiB", request(`"metadata":{"a":"` + strings.Repeat("x", 4<<10-7) + `"}`), "metadata is longer than 4096 bytes"},
		{"a part of a tool's arguments", request(`"args_subset":["to"]`, `"request_data":{"to":["a"]}`), badSubset},
		{"a part of a command", `{"request_id":"` + someID + `","action_type":"exec_cmd","args_subset":["argv"],"request_data":{"argv":["a"]}}`, badSubset},
		{"a part of a text", release(`"args_subset":["to"]`, `"request_data":{"to":"ab"}`), noList},
		{"a part of what is missing", release(`"args_subset":["to"]`), noList},
		{"a part twice", release(`"args_subset":["to","to"]`, `"request_data":{"to":["a"]}`), noList},
		{"a part of a long name", release(`"args_subset":["`+long+`"]`, `"request_data":{"`+long+`":["a"]}`), noList},
		{"a flat request without a workspace", `{"type":"service:x_post","request_id":"` + someID + `","source_group":""}`, "source_group must be the name of the workspace"},
		{"a flat request whose workspace is no text", `{"type":"service:x_post","request_id":"` + someID + `","source_group":7}`, "source_group must be the name of the workspace"},
		{"a flat request for no tool", `{"type":"service:","request_id":"` + someID + `"}`, "tool_name, action_type or program is required"},
		{"a flat request for no possible tool", `{"type":"service:x/y","request_id":"` + someID + `"}`, badTool},
		{"a flat request of another id", `{"type":"service:x","request_id":"ffffffffffffffff"}`, "request_id differs from the file's name"},
		{"a flat request that is a number", `{"type":"service:x","request_id":7}`, badID},
		{"a duplicate in a flat request", `{"type":"service:x","request_id":"` + someID + `","to":1,"to":2}`, `duplicate key "to"`},
		{"a type twice", `{"type":"service:x","request_id":"` + someID + `","type":"service:y"}`, `duplicate key "type"`},
		{"a flat request nested too deeply", `{"type":"service:x","request_id":"` + someID + `","a":` + nested(codec.MaxDepth) + `}`, "nested deeper than 32 levels"},
		{"resubmits is not an id", request(`"resubmits":"the last one"`), noResubmit},
		{"resubmits is a path", request(`"resubmits":"../../a7f3b2c1d4e5f6a7"`), noResubmit},

		{"a list", `[]`, "the document must be an object, not a list"},
		{"a number", `7`, "the document must be an object, not a number"},
		{"two requests", request() + request(), "not valid JSON at byte 54: invalid character '{' after top-level value"},
		{"byte order mark", "\xef\xbb\xbf" + request(), `not valid JSON at byte 0: invalid character '\ufeff' at start of value`},
		{"UTF-16", "\xff\xfe{\x00", `not valid JSON at byte 0: invalid character '\xff' at start of value`},
		{"a key without quotation marks", `{request_id:1}`, `not valid JSON at byte 1: invalid character 'r' at start of value`},
		{"an extra comma", `{"title":"",}`, `not valid JSON at byte 11: invalid character ',' at start of value`},
		{"nested too deeply", request(`"request_data":` + nested(codec.MaxDepth)), "nested deeper than 32 levels"},
	} {
		_, err := approval.ParseRequest([]byte(c.text), someID)
		require.EqualError(t, err, "malformed request: "+c.err, c.why)
		require.ErrorIs(t, err, approval.ErrMalformed, c.why)
		require.NotErrorIs(t, err, approval.ErrIncomplete, c.why)
	}
}

// nested is an object that is n objects deep.
func nested(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }

// The daemon waits for a file that is still being written, but not for one that
// can never become a request.
func TestEveryPrefixIsIncomplete(t *testing.T) {
	b, err := someRequest().Encode()
	require.NoError(t, err)
	texts := []string{
		string(b),
		request(`"title":"\u00e9\ud83d\udd14 é🔔 \\ \" \n"`, `"request_data":{"t":true,"f":false,"n":null,"x":[-1.5e+10,0,{}]}`),
		" \n\t" + request(),
		"{ \"request_id\" : \"" + someID + "\" ,\r\n \"tool_name\" : \"x\" }",
		flatRequest,
	}
	for _, text := range texts {
		_, err := approval.ParseRequest([]byte(text), someID)
		require.NoError(t, err)
		for i := range len(text) {
			_, err := approval.ParseRequest([]byte(text[:i]), someID)
			require.ErrorIs(t, err, approval.ErrIncomplete, "%d bytes: %q", i, text[:i])
			require.NotErrorIs(t, err, approval.ErrMalformed)
			// These bytes are not allowed anywhere in JSON.
			for _, garbage := range []string{"\x00", "\xff", "\x00\"}"} {
				_, err = approval.ParseRequest([]byte(text[:i]+garbage), someID)
				require.ErrorIs(t, err, approval.ErrMalformed, "%d bytes and %q", i, garbage)
				require.NotErrorIs(t, err, approval.ErrIncomplete)
			}
		}
		_, err = approval.ParseRequest([]byte(text+"\x00"), someID)
		require.ErrorIs(t, err, approval.ErrMalformed)
	}
}

func TestMalformedPrefixIsNotIncomplete(t *testing.T) {
	for _, c := range []struct{ why, text string }{
		{"a duplicate key", `{"title":"a","title":`},
		{"deeper than MaxDepth", strings.Repeat(`{"a":`, codec.MaxDepth+1)},
		{"brackets that do not match", `{"proof":[}`},
		{"an unknown key", `{"tool_nane":`},
		{"a wrong type", `{"title":[],"`},
		{"a list instead of an object", `[`},
		{"a number instead of an object", `-1`},
		{"another encoding", "{\x00\"\x00"},
	} {
		_, err := approval.ParseRequest([]byte(c.text), someID)
		require.ErrorIs(t, err, approval.ErrMalformed, c.why)
		require.NotErrorIs(t, err, approval.ErrIncomplete, c.why)
	}
	for _, text := range []string{"", " ", "\n\n", "{", "\t{ ", `{"`, `{"titl`, `{"any key so far`, `{"type":"\u`, `{"type":nul`} {
		_, err := approval.ParseRequest([]byte(text), someID)
		require.ErrorIs(t, err, approval.ErrIncomplete, "%q", text)
	}
}

// Errors go into responses, logs and error files. They must not contain an agent's
// values, which may be passwords.
func TestErrorsNeverQuoteAValue(t *testing.T) {
	const secret = "xqzvwkj" // no three letters of it occur in the error messages
	for _, c := range []struct{ why, text string }{
		{"id", `{"request_id":"` + secret + `","tool_name":"x"}`},
		{"id that differs", `{"request_id":"` + fmt.Sprintf("%x", secret+secret) + `","tool_name":"x"}`},
		{"tool", `{"request_id":"` + someID + `","tool_name":"` + secret + ` "}`},
		{"action type", `{"request_id":"` + someID + `","action_type":"` + secret + `"}`},
		{"type", request(`"type":"` + secret + `"`)},
		{"resubmits", request(`"resubmits":"` + secret + `"`)},
		{"long text", request(`"title":"` + strings.Repeat(secret, 100) + `"`)},
		{"option", request(`"type":"question"`, `"title":"a"`, `"options":["`+strings.Repeat(secret, 100)+`"]`)},
		{"text for a number", request(`"expires_in_sec":"` + secret + `"`)},
		{"object for a text", request(`"title":{"` + secret + `":1}`)},
		{"data", request(`"request_data":"` + secret + `"`)},
		{"proof", request(`"proof":["` + secret + `"]`)},
		{"value of an unknown key", request(`"password":"` + secret + `"`)},
		{"values of a duplicate key", request(`"title":"`+secret+`"`, `"title":"`+secret+`"`)},
		{"no quotation marks", request(`"title":` + secret)},
		{"bad escape", request(`"title":"\` + secret + `"`)},
		{"bad unicode escape", request(`"title":"\u` + secret + `"`)},
		{"half a pair", request(`"title":"\ud83d` + secret + `"`)},
		{"bad UTF-8", request("\"title\":\"" + secret + "\xff\"")},
		{"control character", request("\"title\":\"" + secret + "\x00\"")},
		{"after the request", request() + secret},
		{"before the request", secret + request()},
		{"unfinished", strings.TrimSuffix(request(`"title":"`+secret+`"`), `"}`)},
		{"too deep", request(`"request_data":{"` + secret + `":` + nested(codec.MaxDepth) + `}`)},
	} {
		for _, parse := range []func([]byte, string) (*approval.Request, error){approval.ParseRequest, approval.ParseHostRequest} {
			_, err := parse([]byte(c.text), someID)
			require.Error(t, err, c.why)
			for i := range len(secret) - 2 {
				require.NotContains(t, err.Error(), secret[i:i+3], "%s: no part of the secret", c.why)
			}
			require.Less(t, len(err.Error()), 200, c.why)
		}
	}
	_, err := approval.ParseRequest([]byte(request(`"`+secret+`":1`)), someID)
	require.ErrorContains(t, err, secret, "the error names the key")
}

// A host program may write the predecessor's keys, which are ignored. Other keys
// are refused.
func TestParseHostRequest(t *testing.T) {
	own := []string{
		`"short_id":"ffffffff"`, `"source_group":"other"`, `"chat_jid":"tg:1"`, `"handler_type":"shell"`,
		`"timestamp":"2026-11-21T12:00:00Z"`, `"request_data":` + untidy,
	}
	r, err := approval.ParseHostRequest([]byte(request(own...)), someID)
	require.NoError(t, err)
	require.Equal(t, &approval.Request{
		RequestID: someID, ToolName: "x_post", Type: approval.TypeAction, RequestData: approval.Raw(untidy), SourceGroup: "other",
	}, r)
	r, err = approval.ParseHostRequest([]byte(request(`"source_group":null`, `"notification_sent":true`)), someID)
	require.NoError(t, err)
	require.Empty(t, r.SourceGroup)
	_, err = approval.ParseHostRequest([]byte(`{"request_id":`), someID)
	require.ErrorIs(t, err, approval.ErrIncomplete, "it may be written just now")

	for _, c := range []struct{ why, text, err string }{
		{"a forged pending with facts", request(`"capability":"time:read"`), `unknown key "capability"`},
		{"a forged pending with a MAC", request(`"mac":"00"`), `unknown key "mac"`},
		{"a duplicate", request(`"short_id":"a"`, `"short_id":"b"`), `duplicate key "short_id"`},
		{"another id", strings.Replace(request(), someID, "ffffffffffffffff", 1), "request_id differs from the file's name"},
		{"too deep", request(`"request_data":` + nested(codec.MaxDepth)), "nested deeper than 32 levels"},
	} {
		_, err := approval.ParseHostRequest([]byte(c.text), someID)
		require.EqualError(t, err, "malformed request: "+c.err, c.why)
		require.ErrorIs(t, err, approval.ErrMalformed)
	}
}

// flatRequest is a request in the predecessor's flat form.
const flatRequest = `{ "type": "service:x_post", "request_id": "` + someID + `", "source_group": "personal", "text" : "Meeting at 5", ` +
	`"n":1.50, "title": "an argument", "\u0065ffect":{ "metadata": null} }`

// Every member of the flat form but three is an argument, byte for byte.
func TestFlatRequest(t *testing.T) {
	want := &approval.Request{
		RequestID: someID, ToolName: "x_post", Type: approval.TypeAction, SourceGroup: "personal",
		RequestData: approval.Raw(`{"text":"Meeting at 5","n":1.50,"title":"an argument","effect":{ "metadata": null}}`),
	}
	for name, parse := range map[string]func([]byte, string) (*approval.Request, error){
		"request": approval.ParseRequest, "pending": approval.ParseHostRequest,
		"draft": func(b []byte, _ string) (*approval.Request, error) { return approval.ParseDraft(b) },
	} {
		r, err := parse([]byte(flatRequest), someID)
		require.NoError(t, err, name)
		require.Equal(t, want, r, name)
	}
	r, err := approval.ParseRequest([]byte(`{"request_id":"`+someID+`","type":"service:x_post"}`), someID)
	require.NoError(t, err)
	require.Equal(t, "{}", string(r.RequestData), "no arguments")
	r, err = approval.ParseDraft([]byte(`{"type":"service:x_post"}`))
	require.NoError(t, err)
	require.NotEmpty(t, r.RequestID)
}
