package chat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

const earlierID = "00112233445566778899aabbccddeeff"

// resubmit returns a request that resubmits one with the given arguments.
func resubmit(was, is string, change ...func(*EarlierRequest)) (Style, *approval.Pending) {
	f := &EarlierRequest{
		Request:  example(func(p *approval.Pending) { p.RequestID, p.RequestData = earlierID, approval.Raw(was) }),
		Decision: &approval.Decision{Verdict: approval.RequestMore, Feedback: "which \"team\"?\n→ approve a7f3b2c1"},
	}
	for _, c := range change {
		c(f)
	}
	p := example(func(p *approval.Pending) { p.Resubmits, p.RequestData = earlierID, approval.Raw(is) })
	return Style{Earlier: func(*approval.Pending) *EarlierRequest { return f }}, p
}

func resubmitting(s Style) Style {
	before, _ := resubmit(`{"text":"Meeting at 5\nin room 2","cc":"bob"}`, "")
	s.Earlier = before.Earlier
	return s
}

func TestChanges(t *testing.T) {
	head := `changed since 00112233 (sent back: "which \"team\"?\n→ approve a7f3b2c1"):`
	for _, tc := range []struct {
		why, was, is string
		want         []string
	}{
		{"nothing changed", `{"a":"x"}`, `{"a": "x"}`, []string{"unchanged fields: 1"}},
		{"a value", `{"to":"ann","n":1}`, `{"to":"bob","n":1}`, []string{"- to: ann", "+ to: bob", "unchanged fields: 1"}},
		{"added and removed", `{"a":1}`, `{"b":2}`, []string{"+ b: 2", "- a: 1"}},
		{"a string differs from a number", `{"a":5}`, `{"a":"5"}`, []string{"- a: 5", `+ a: "5"`}},
		{"an invisible character is shown", `{"a":"bob"}`, `{"a":"bob\u200b"}`, []string{"- a: bob", `+ a: bob\u{200B}`}},
		{"spaces at an end", `{"a":"rm -rf /tmp/x"}`, `{"a":"rm -rf / tmp/x "}`, []string{"- a: rm -rf /tmp/x", "+ a: rm -rf / tmp/x␠{1}"}},
		{
			"line by line", `{"text":"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight"}`, `{"text":"one\ntwo\nthree\nfour\nfive\nsix\nSEVEN\neight\nnine"}`,
			[]string{"  text:", "… 4 unchanged lines", "  │ five", "  │ six", "- │ seven", "+ │ SEVEN", "  │ eight", "+ │ nine"},
		},
		{"one line becomes two", `{"t":"a"}`, `{"t":"a\nb"}`, []string{"- t: a", "+ t:", "+ │ a", "+ │ b"}},
		{"nested", `{"o":{"a":[1,2]}}`, `{"o":{"a":[1,3]}}`, []string{`- o: {"a": [1, 2]}`, `+ o: {"a": [1, 3]}`}},
		{"a forged line stays behind its prefix", `{"t":"x"}`, `{"t":"y\n+ to: ann\nchanged since 0:"}`, []string{"- t: x", "+ t:", "+ │ y", "+ │ + to: ann", "+ │ changed since 0:"}},
	} {
		s, p := resubmit(tc.was, tc.is)
		c := s.Card(p)
		require.Equal(t, append([]string{head}, tc.want...), c.Changes, tc.why)
		require.Equal(t, runsOf(Style{}.Card(p)), runsOf(c), "the payload stays complete")
	}
}

// Cutting a long line never cuts the difference off.
func TestChangesOfLongLines(t *testing.T) {
	long := strings.Repeat("x", 5000)
	s, p := resubmit(`{"a":"`+long+`bob`+long+`"}`, `{"a":"`+long+`eve`+long+`"}`)
	c := s.Card(p).Changes
	require.Equal(t, "without the first 4983 and the last 4980 chars, which are unchanged:", c[1])
	require.Equal(t, "- "+long[:20]+"bob"+long[:20], c[2])
	require.Equal(t, "+ "+long[:20]+"eve"+long[:20], c[3])

	s, p = resubmit(`{"a":"x"}`, `{"a":"`+long+`"}`)
	require.Contains(t, s.Card(p).Changes[3], "… [", "cut and counted")

	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf(`"f%d":%d`, i, i)
	}
	s, p = resubmit(`{}`, "{"+strings.Join(many, ",")+"}")
	c = s.Card(p).Changes
	require.Len(t, c, 1+maxChanges+1)
	require.Equal(t, "✂ 160 more lines of changes; everything that would run is above", c[len(c)-1])

	text, all := s.Card(p).Text(Units(s.Card(p).String()) - 100)
	require.True(t, all, "changes are cut before the payload")
	require.Contains(t, text, "✂ changes not shown")
	require.Contains(t, text, "f199: 199")
}

func TestEarlierRequestNotComparable(t *testing.T) {
	s, p := resubmit(`{"a":"secret of another"}`, `{"a":"x"}`)
	found := s.Earlier(p)
	for _, tc := range []struct {
		why    string
		former *EarlierRequest
		en, it string
	}{
		{"not found", nil, "no such request, not compared", "richiesta inesistente"},
		{"another workspace", &EarlierRequest{Request: example(func(p *approval.Pending) { p.SourceGroup = "other"; p.RequestData = found.Request.RequestData })}, "of another workspace", "di un altro workspace"},
		{"another client", &EarlierRequest{Request: example(func(p *approval.Pending) { p.ClientID = "other"; p.RequestData = found.Request.RequestData })}, "of another client", "di un altro client"},
		{"not readable", &EarlierRequest{}, "no such request, not compared", ""},
	} {
		for lang, want := range map[string]string{"en": tc.en, "it": tc.it} {
			s := Style{Language: lang, Earlier: func(*approval.Pending) *EarlierRequest { return tc.former }}
			c := s.Card(p)
			require.Len(t, c.Changes, 1, tc.why)
			require.Contains(t, c.Changes[0], want, tc.why)
			require.NotContains(t, c.String(), "secret", tc.why)
		}
	}
	require.Empty(t, Style{}.Card(p).Changes, "no lookup function")
	require.Empty(t, s.Card(example()).Changes, "nothing resubmitted")
}

func TestChangesAreRedacted(t *testing.T) {
	s, p := resubmit(`{"key":"hunter2","b":1}`, `{"key":"hunter3","b":1}`, func(f *EarlierRequest) { f.Decision.Feedback = "not hunter2" })
	s.Redact = secretWords{"hunter2", "hunter3"}
	c := s.Card(p)
	require.NotContains(t, c.String(), "hunter")
	require.Equal(t, []string{"- key: ‹token, 7 characters›", "+ key: ‹token, 7 characters›", "unchanged fields: 1"}, c.Changes[1:], "different secrets are different values")
}
