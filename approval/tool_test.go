package approval_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func someTool() approval.Tool {
	return approval.Tool{
		Name: "x_post", Capability: "channel:out", ActionType: "custom:post", Verb: map[string]string{"en": "post", "it": "pubblicare"},
		Summary: "{text}", Target: "x.com/{account}", Reversibility: approval.Irreversible, Territory: "session",
		Trust: approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "true", DangerousWrites: "true"},
		Args:  map[string]approval.Argument{"a": {Type: "text", Writes: "b"}, "b": {Type: "path", Optional: true}, "c": {Type: "amount", Currency: "EUR"}}, Size: "b", CostArg: "c", Secrets: "deny", Undo: "x_delete",
		Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/post", "{text}"}, Dir: "/srv", Env: []string{"TOKEN"}, Timeout: time.Second, MaxOutput: 1024, MaxMemory: 1 << 30, MaxProcesses: 10, MCP: approval.MCP{Server: "s", Tool: "t"}, HTTP: approval.HTTP{
			Method: "POST", URL: "https://x.com/{id}", Body: "{text}", Headers: map[string]string{"A": "b"}, SecretHeaders: map[string]string{"B": "/c"},
			AllowPrivate: []string{"10.0.0.1"}, CAFile: "/ca.pem", Status: []int{200},
		}},
	}
}

// changes returns, for every settable part of v, a name and a function that changes
// only that part. For a new kind of field, add a case; without one the test fails.
func changes(t *testing.T, v reflect.Value, name string) map[string]func() {
	t.Helper()
	found := map[string]func(){}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			for n, change := range changes(t, v.Field(i), name+"."+v.Type().Field(i).Name) {
				found[n] = change
			}
		}
	case reflect.String:
		found[name] = func() { v.SetString(v.String() + "x") }
		found[name+" emptied"] = func() { v.SetString("") }
	case reflect.Bool:
		found[name] = func() { v.SetBool(!v.Bool()) }
	case reflect.Int, reflect.Int64:
		found[name] = func() { v.SetInt(v.Int() + 1) }
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Int {
			found[name+" longer"] = func() { v.Set(reflect.Append(v, reflect.ValueOf(0))) }
			found[name+" gone"] = func() { v.SetZero() }
			found[name+" other"] = func() { v.Set(reflect.ValueOf([]int{int(v.Index(0).Int()) + 1})) }
			break
		}
		found[name+" longer"] = func() { v.Set(reflect.Append(v, reflect.ValueOf(""))) }
		found[name+" gone"] = func() { v.SetZero() }
		found[name+" other"] = func() {
			v.Set(reflect.ValueOf(append([]string{v.Index(0).String() + "x"}, v.Slice(1, v.Len()).Interface().([]string)...)))
		}
	case reflect.Map:
		if v.Type().Elem() == reflect.TypeFor[approval.Argument]() {
			maps.Copy(found, argumentChanges(v, name))
			break
		}
		found[name+" more"] = func() { v.Set(reflect.ValueOf(map[string]string{"en": "post", "it": "pubblicare", "fr": ""})) }
		found[name+" other"] = func() { v.Set(reflect.ValueOf(map[string]string{"en": "read", "it": "pubblicare"})) }
		found[name+" exchanged"] = func() { v.Set(reflect.ValueOf(map[string]string{"en": "pubblicare", "it": "post"})) }
		found[name+" gone"] = func() { v.SetZero() }
	default:
		require.Fail(t, "unknown kind of field", "%s is a %s", name, v.Kind())
	}
	return found
}

// argumentChanges are the changes of declared arguments.
func argumentChanges(v reflect.Value, name string) map[string]func() {
	found := map[string]func(){}
	for i, change := range []func(args map[string]approval.Argument){
		func(args map[string]approval.Argument) { args["d"] = approval.Argument{} },
		func(args map[string]approval.Argument) { delete(args, "b") },
		func(args map[string]approval.Argument) { args["a"], args["b"] = args["b"], args["a"] },
		func(args map[string]approval.Argument) { args["a"] = approval.Argument{Type: "diff", Writes: "b"} },
		func(args map[string]approval.Argument) { args["a"] = approval.Argument{Type: "text"} },
		func(args map[string]approval.Argument) { args["a"] = approval.Argument{Type: "text", Currency: "b"} },
		func(args map[string]approval.Argument) { args["b"] = approval.Argument{Type: "path"} },
		func(args map[string]approval.Argument) {
			args["c"] = approval.Argument{Type: "amount", Currency: "USD"}
		},
		func(args map[string]approval.Argument) { clear(args) },
	} {
		found[fmt.Sprintf("%s %d", name, i)] = func() {
			args := maps.Clone(v.Interface().(map[string]approval.Argument))
			change(args)
			v.Set(reflect.ValueOf(args))
		}
	}
	found[name+" gone"] = func() { v.SetZero() }
	return found
}

// An approver approved the tool as shown, so any change must change the digest.
func TestToolDigestNoticesEveryField(t *testing.T) {
	seen := map[string]string{someTool().SHA256(): "unchanged"}
	first := someTool()
	names := changes(t, reflect.ValueOf(&first).Elem(), "Tool")
	for name := range names {
		tool := someTool()
		changes(t, reflect.ValueOf(&tool).Elem(), "Tool")[name]()
		digest := tool.SHA256()
		require.Empty(t, seen[digest], "%s is not digested", name)
		seen[digest] = name
	}
	require.Greater(t, len(names), 25)
	for range 50 {
		require.Equal(t, "unchanged", seen[someTool().SHA256()], "maps have no order")
	}
	require.Len(t, someTool().SHA256(), 64)
}

// An upgrade must not change the digest of a tool that a pending shows.
func TestToolDigestIsStableAcrossVersions(t *testing.T) {
	tool := someTool()
	tool.Handler.HTTP, tool.Handler.MCP, tool.Args, tool.Size, tool.CostArg, tool.Secrets = approval.HTTP{}, approval.MCP{}, nil, "", "", ""
	tool.Reads, tool.Undo = false, ""
	tool.Handler.MaxMemory, tool.Handler.MaxProcesses = 0, 0
	require.Equal(t, "3ea849a2093c8ed2020e506952be45c8bf175a32eef72accc72fc94196b76464", tool.SHA256())
}

// Moving text from one field to the next must change the digest.
func TestToolDigestKeepsFieldsApart(t *testing.T) {
	pairs := []struct {
		why  string
		a, b approval.Tool
	}{
		{"name and capability", approval.Tool{Name: "ab"}, approval.Tool{Name: "a", Capability: "b"}},
		{"text that looks like a length", approval.Tool{Name: "1:a"}, approval.Tool{Name: "1", Capability: "a"}},
		{"one element, two elements", handled(approval.Handler{Argv: []string{"a b"}}), handled(approval.Handler{Argv: []string{"a", "b"}})},
		{"no element, an empty element", handled(approval.Handler{Argv: []string{}}), handled(approval.Handler{Argv: []string{""}})},
		{"argument, variable", handled(approval.Handler{Argv: []string{"A"}}), handled(approval.Handler{Env: []string{"A"}})},
		{
			"header, secret header",
			handled(approval.Handler{HTTP: approval.HTTP{Headers: map[string]string{"A": "b"}}}),
			handled(approval.Handler{HTTP: approval.HTTP{SecretHeaders: map[string]string{"A": "b"}}}),
		},
		{
			"address, status",
			handled(approval.Handler{HTTP: approval.HTTP{AllowPrivate: []string{"200"}}}),
			handled(approval.Handler{HTTP: approval.HTTP{Status: []int{200}}}),
		},
		{
			"verb, property",
			approval.Tool{
				Verb:    map[string]string{"x": "y"},
				Trust:   approval.Trust{PublicSource: "a", SecretData: "b", PublicSink: "c", DangerousWrites: "2"},
				Handler: approval.Handler{Kind: "k"},
			},
			approval.Tool{
				Trust:   approval.Trust{PublicSource: "x", SecretData: "y", PublicSink: "a", DangerousWrites: "b"},
				Handler: approval.Handler{Kind: "c", Argv: []string{"k", "0"}},
			},
		},
	}
	for _, p := range pairs {
		require.NotEqual(t, p.a.SHA256(), p.b.SHA256(), p.why)
	}
	require.Equal(t, handled(approval.Handler{Argv: nil}).SHA256(), handled(approval.Handler{Argv: []string{}}).SHA256(), "nil equals empty")
}

func handled(h approval.Handler) approval.Tool { return approval.Tool{Name: "x", Handler: h} }

func TestToolRuns(t *testing.T) {
	require.False(t, approval.Tool{}.Runs(), "the unknown tool runs nothing")
	require.False(t, handled(approval.Handler{Kind: approval.HandlerNone}).Runs())
	require.True(t, handled(approval.Handler{Kind: approval.HandlerCommand}).Runs())
}

func TestValidID(t *testing.T) {
	for id, valid := range map[string]bool{
		"0123456789abcdef":                 true,
		strings.Repeat("f", 64):            true,
		"":                                 false,
		"0123456789abcde":                  false,
		strings.Repeat("f", 65):            false,
		"0123456789ABCDEF":                 false,
		"0123456789abcdeg":                 false,
		"0123456789abcde/":                 false,
		"0123456789abcdef\n":               false,
		"..0123456789abcdef":               false,
		"0123456789abcdef.json":            false,
		"0123456789-abcdef":                false,
		"\uff10123456789abcdef":            false,
		"0123456789abcdef\x00":             false,
		"123e4567e89b12d3a456426614174000": true, // a UUID without its dashes

		"123e4567-e89b-12d3-a456-426614174000":   true,
		"0190f3c2-1b7e-7c4a-9d2e-5f60718293a4":   true, // version 7
		"00000000-0000-0000-0000-000000000000":   true,
		"123E4567-E89B-12D3-A456-426614174000":   false,
		"123e4567-e89b-12d3-a456-42661417400":    false,
		"123e4567-e89b-12d3-a456-4266141740000":  false,
		"123e4567-e89b-12d3a456-4266-14174000":   false,
		"123e4567-e89b-12d3-a456426614174000":    false,
		"{123e4567-e89b-12d3-a456-426614174000}": false,
		"123e4567-e89b-12d3-a456-42661417400g":   false,
		"----------------":                       false,
		"------------------------------------":   false,
	} {
		require.Equal(t, valid, approval.ValidID(id), "%q", id)
	}
	require.False(t, approval.ValidID(" 0123456789abcdef"))
	for c := range 256 {
		b := byte(c)
		hex := b >= '0' && b <= '9' || b >= 'a' && b <= 'f'
		require.Equal(t, hex, approval.ValidID("0123456789abcde"+string([]byte{b})), "%q", b)
	}
}

func TestShortID(t *testing.T) {
	require.Equal(t, "a7f3b2c1", approval.ShortID(someID))
	require.Equal(t, "a7f3b2c1", approval.ShortID("a7f3b2c1"))
	require.Equal(t, "a7f", approval.ShortID("a7f"), "a shorter string is returned as is")
	require.Empty(t, approval.ShortID(""))
	require.Equal(t, "123e4567", approval.ShortID("123e4567-e89b-12d3-a456-426614174000"))
	require.Equal(t, "123e4567e89b12d3a456426614174000", approval.Digits("123e4567-e89b-12d3-a456-426614174000"))
	require.Equal(t, "-------", approval.ShortID("-------"))
}

func TestValidName(t *testing.T) {
	for name, valid := range map[string]bool{
		"a": true, "A-b_9": true, "-": true, strings.Repeat("x", 64): true, "0190F3C2-1B7E-7C4A-9D2E-5F60718293A4": true,
		"": false, strings.Repeat("x", 65): false, ".": false, "..": false, "a.b": false, "a/b": false, "a b": false, "a\x00": false,
		"ä": false, "\xff": false, "a\n": false,
	} {
		require.Equal(t, valid, approval.ValidName(name), "%q", name)
	}
}

func TestMaybeID(t *testing.T) {
	for typed, maybe := range map[string]bool{
		"123e": true, "123E4567": true, "123e4567-": true, "123e4567-e": true, "123E4567-E89B-12D3-A456-426614174000": true,
		"": false, "-": false, "123-4": false, "dead-bee": false, "123e4567e-": false, "123e4567--": false,
		"123e4567-e89b-12d3-a456-426614174000-": false, "123e4567-g": false, "ä": false,
	} {
		require.Equal(t, maybe, approval.MaybeID(typed), "%q", typed)
	}
}

func TestValidActionType(t *testing.T) {
	for s, valid := range map[string]bool{
		"exec_cmd": true, "http_request": true, "write_file": true, "send_message": true,
		"custom:x": true, "custom:x.y:z-1_A": true, "custom:" + strings.Repeat("x", 64): true,
		"custom:custom:x": true,
		"":                false, "custom": false, "custom:": false, "custom:a b": false, "custom:a\n": false,
		"custom:" + strings.Repeat("x", 65): false, "Custom:x": false, "exec_cmd ": false, "exec": false, "read_file": false,
	} {
		require.Equal(t, valid, approval.ValidActionType(s), "%q", s)
	}
	require.Len(t, approval.ActionTypes(), 4)
}

func TestValidToolName(t *testing.T) {
	require.False(t, approval.ValidToolName(""))
	require.False(t, approval.ValidToolName(strings.Repeat("x", 65)))
	for r := range rune(0x250) {
		want := r < 128 && strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-", r)
		require.Equal(t, want, approval.ValidToolName("x"+string(r)), "%q", r)
	}
	require.False(t, approval.ValidToolName("x\xff"))
}

func TestDigest(t *testing.T) {
	// FIPS 180-2, appendix B.1.
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", approval.Digest([]byte("abc")))
	require.Equal(t, approval.Digest(nil), approval.Digest([]byte{}))
}

func TestLimitsWithDefaults(t *testing.T) {
	require.Equal(t, approval.Limits{Pending: 32, AskPerMinute: 60, PerMinute: 600, RequestSize: 256 << 10, Running: 8, Stored: 256 << 20}, approval.Limits{}.WithDefaults())
	own := approval.Limits{Pending: 1, AskPerMinute: 2, PerMinute: 3, RequestSize: 4, Running: 5, Stored: 6}
	require.Equal(t, own, own.WithDefaults())
}
