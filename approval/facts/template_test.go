package facts

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

func jsonQuote(s string) (string, error) {
	b, err := jsontext.AppendQuote(nil, s)
	return string(b), err
}

// fillerOf is a filler with the members of a JSON object.
func fillerOf(t require.TestingT, data string) filler {
	fields, err := codec.Fields(approval.Raw(data))
	require.NoError(t, err)
	f := filler{fields: map[string]codec.Field{}}
	for _, field := range fields {
		f.fields[field.Name] = field
	}
	return f
}

// joined is a command line as it runs.
func joined(argv [][]approval.Part) (out []string) {
	for _, parts := range argv {
		out = append(out, Join(parts))
	}
	return out
}

// unfilled names the argument that does not fit, and why.
func unfilled(why approval.Reason) string {
	if why.IsZero() {
		return ""
	}
	return why.Args["name"] + " " + why.Args["why"]
}

func TestFillArgv(t *testing.T) {
	const args = ` { "s":"a b","e":"","d":"-x","n":-1.50,"big":9007199254740993,"exp":1e400,"t":true,"z":null,"l":[1],"o":{},"nul":"a\u0000b","u":"\u00e9" } `
	for _, tc := range []struct {
		why  string
		argv []string
		want []string // nil when refused
		err  string
	}{
		{"no placeholder", []string{"x", "", "-a"}, []string{"x", "", "-a"}, ""},
		{"a string is one element", []string{"x", "{s}"}, []string{"x", "a b"}, ""},
		{"an empty string stays an element", []string{"x", "{e}", "y"}, []string{"x", "", "y"}, ""},
		{"escapes are decoded", []string{"x", "{u}"}, []string{"x", "é"}, ""},
		{"numbers are never rounded", []string{"x", "{big}", "{exp}"}, []string{"x", "9007199254740993", "1e400"}, ""},
		{"a boolean", []string{"x", "{t}"}, []string{"x", "true"}, ""},
		{"embedded", []string{"x", "--a={s}", "<{s}|{t}>"}, []string{"x", "--a=a b", "<a b|true>"}, ""},
		{"braces", []string{"x", "{{s}", "{{{s}}"}, []string{"x", "{s}", "{a b}"}, ""},
		{"values are not templates", []string{"x", "{s}{{e}"}, []string{"x", "a b{e}"}, ""},
		{"a dash could be an option", []string{"x", "{d}"}, nil, "d fit_option"},
		{"a negative number too", []string{"x", "{n}"}, nil, "n fit_option"},
		{"after an empty value", []string{"x", "{e}{d}"}, nil, "d fit_option"},
		{"after text without =", []string{"x", "a{d}"}, nil, "d fit_option"},
		{"an empty value makes a literal dash come first", []string{"x", "{e}-{s}"}, nil, "e fit_dash"},
		{"after --", []string{"x", "--", "{d}", "{n}"}, []string{"x", "--", "-x", "-1.50"}, ""},
		{"-- after it does not help", []string{"x", "{d}", "--"}, nil, "d fit_option"},
		{"after =", []string{"x", "--a={d}", "{e}={d}"}, []string{"x", "--a=-x", "=-x"}, ""},
		{"missing", []string{"x", "{S}"}, nil, "S fit_missing"},
		{"null", []string{"x", "{z}"}, nil, "z fit_plain"},
		{"an array", []string{"x", "{l}"}, nil, "l fit_plain"},
		{"an object", []string{"x", "--a={o}"}, nil, "o fit_plain"},
		{"NUL", []string{"x", "--", "{nul}"}, nil, "nul fit_nul"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			got, why := fillerOf(t, args).argv(tc.argv)
			require.Equal(t, tc.want, joined(got))
			require.Equal(t, tc.err, unfilled(why))
		})
	}
}

// For all values, a checked template keeps its number of elements, and no element
// gets a leading dash.
func TestValuesNeverBecomeOptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		element := rapid.StringMatching(`[-=x{]{0,2}(\{[ab]\})?[-=x]{0,2}(\{[ab]\})?`)
		argv := append([]string{"x"}, rapid.SliceOfN(element, 1, 4).Draw(t, "argv")...)
		if CheckArgv(argv) != nil {
			return
		}
		a, _ := jsonQuote(rapid.StringMatching(`-{0,2}[a=]{0,2}`).Draw(t, "a"))
		b, _ := jsonQuote(rapid.StringMatching(`-{0,2}[b={}]{0,2}`).Draw(t, "b"))
		filled, why := fillerOf(t, `{"a":`+a+`,"b":`+b+`}`).argv(argv)
		if !why.IsZero() {
			return
		}
		got := joined(filled)
		require.Len(t, got, len(argv))
		for i, s := range got {
			if argv[i] == "--" {
				break
			}
			if argv[i] != "" && argv[i][0] != '-' {
				require.False(t, s != "" && s[0] == '-', "%q became %q", argv[i], s)
			}
		}
	})
}
