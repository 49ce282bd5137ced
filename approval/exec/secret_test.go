package exec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRedactor(t *testing.T) {
	var r redactor
	r.add("Bearer", `s3cr3t/"t0ken+`)
	r.add("", "1234567890")
	r.add("Basic", "YW5uOmh1bnRlcjI=")
	for _, row := range []struct{ why, text, want string }{
		{"no secret", "hello", "hello"},
		{"verbatim", `a s3cr3t/"t0ken+ b`, "a [redacted: secret of 14 characters] b"},
		{"percent-encoded", "?t=s3cr3t%2F%22t0ken%2B&", "?t=[redacted: secret of 20 characters]&"},
		{"in base64", "czNjcjN0LyJ0MGtlbis=", "[redacted: secret of 20 characters]"},
		{"the decoded password of Basic", "user ann:hunter2", "user [redacted: secret of 11 characters]"},
		{"twice", "1234567890 1234567890", "[redacted: secret of 10 characters] [redacted: secret of 10 characters]"},
	} {
		require.Equal(t, row.want, r.text(row.text), row.why)
	}
	for _, row := range []struct {
		why, json, want string
		ok              bool
	}{
		{"verbatim", ` {"a" : 1.50, "b":"\u00e9"}`, ` {"a" : 1.50, "b":"\u00e9"}`, true},
		{"escaped", `{"a":"x s3cr3t\/\"\u00740ken+"}`, `{"a":"x [redacted: secret of 14 characters]"}`, true},
		{"in a name", `{"1234567890":1}`, `{"[redacted: secret of 10 characters]":1}`, true},
		{"after an escaped quotation mark", `["\"","1234567890"]`, `["\"","[redacted: secret of 10 characters]"]`, true},
		{"a number", `{"a":1234567890}`, `{"a":1234567890}`, false},
		{"names that become equal", `{"1234567890":1,"[redacted: secret of 10 characters]":2}`, "", false},
	} {
		got, ok := r.json([]byte(row.json))
		require.Equal(t, row.ok, ok, row.why)
		if row.want != "" {
			require.Equal(t, row.want, string(got), row.why)
		}
	}
	for text, want := range map[string]string{
		"": "", "abc": "abc", "abc 12345678": "abc ", "abc 123": "abc 123", `x s3cr3t/"`: "x ", "12345678 ": "12345678 ",
	} {
		require.Equal(t, want, string(r.end([]byte(text))), text)
	}
}

// With any JSON escapes, the secret is redacted.
func TestSecretIsRedactedInAnyJSON(t *testing.T) {
	const secret = `pa"ss/w\rd`
	var r redactor
	r.add("Bearer", secret)
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for _, c := range secret {
			escapes := []string{string(c), `\u00` + string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15])}
			switch c {
			case '"', '\\':
				escapes[0] = `\` + string(c)
			case '/':
				escapes = append(escapes, `\/`)
			}
			b.WriteString(rapid.SampledFrom(escapes).Draw(t, "c"))
		}
		before, after := rapid.StringMatching(`[a ,:\[]{0,3}`).Draw(t, "before"), rapid.StringMatching(`(\\\\|\\"|a){0,2}`).Draw(t, "after")
		got, ok := r.json([]byte(`{"a":["` + before + b.String() + after + `"]}`))
		require.True(t, ok)
		require.Equal(t, `{"a":["`+before+`[redacted: secret of 10 characters]`+after+`"]}`, string(got))
	})
}
