package setup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// A trial permits its own job only. The zero value permits none that has a request.
func TestOneTrial(t *testing.T) {
	own := oneTrial{"w", "id", "tool", "sha"}
	require.NoError(t, own.Verify("", "w", "id", "tool", "sha"))
	for _, other := range []oneTrial{{"x", "id", "tool", "sha"}, {"w", "x", "tool", "sha"}, {"w", "id", "x", "sha"}, {"w", "id", "tool", "x"}} {
		require.Error(t, own.Verify("", other.workspace, other.id, other.tool, other.args))
		require.Error(t, oneTrial{}.Verify("", other.workspace, other.id, other.tool, other.args))
	}
}

// A line is split as a shell splits a plain command; {fields} stay as they are.
func TestWordsOf(t *testing.T) {
	for _, row := range []struct {
		line string
		want []string
	}{
		{`prog a {x}`, []string{"prog", "a", "{x}"}},
		{`prog "{a} to {b}" --c={d.e}`, []string{"prog", "{a} to {b}", "--c={d.e}"}},
		{`prog '{"a":1}' "it's"`, []string{"prog", `{"a":1}`, "it's"}},
		{`prog '{{literal}}' {x}`, []string{"prog", "{{literal}}", "{x}"}},
		{`prog a\ b`, nil},
		{`prog {x} | other`, nil},
		{`prog; other`, nil},
		{`prog >file`, nil},
		{`prog $(id)`, nil},
		{`prog ~`, nil},
		{`prog *`, nil},
		{`prog {a,b}`, nil},
		{`A=1 prog`, nil},
		{`prog "unended`, nil},
		{`prog # comment`, nil},
		{``, nil},
	} {
		words, ok := wordsOf(row.line)
		require.Equal(t, row.want != nil, ok, row.line)
		require.Equal(t, row.want, words, row.line)
	}
}

// A sample fits the arguments' types, whatever they are.
func TestSampleHasEveryArgument(t *testing.T) {
	tool := &Tool{Types: []string{"a=number"}, Stdin: []string{"b=json", "c=text?"}, New: config.NewTool{Argv: []string{"/bin/true", "{a}", "{to}"}}}
	require.NoError(t, tool.declare())
	got, err := tool.sample()
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1,"b":{},"to":"ann@example.org"}`, got)
}
