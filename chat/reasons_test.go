package chat

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
)

// Every form keeps its values, in every language.
func TestReasonsKeepTheirPlaceholders(t *testing.T) {
	for _, lang := range Languages() {
		for form, said := range catalog(lang).Reasons {
			require.Equal(t, names(form), names(said), "%s: %s", lang, form)
			filled := placeholder.ReplaceAllStringFunc(form, func(h string) string { return "part-" + strings.Trim(h, "{}") })
			want := placeholder.ReplaceAllStringFunc(said, func(h string) string { return "part-" + strings.Trim(h, "{}") })
			require.Equal(t, want, Style{Language: lang}.renderer(example()).reason(filled), "%s: no other form matches", form)
		}
	}
}

func TestReasonsOfTheOutcome(t *testing.T) {
	why := func(outcome approval.Outcome, reasons ...string) string {
		p := example(func(p *approval.Pending) { p.Ruling = approval.Ruling{Outcome: outcome, Reasons: reasons} })
		return strings.Join(Style{}.renderer(p).reasons(), "\n")
	}
	for _, tc := range []struct {
		why, got, want string
	}{
		{"no reasons", why(approval.Ask), ""},
		{"a reason to allow does not explain an ask", why(approval.Ask, "allow by rule \"a\"", "ask: 'x' makes dangerous writes"), "why: x makes dangerous writes"},
		{"a reason without an outcome comes last", why(approval.Ask, "a consent to this was revoked", "ask: z"), "why: z; a grant for this was revoked"},
		{"if there are only reasons to allow, those", why(approval.Ask, "allow: all is well"), "why: allow: all is well"},
		{"three", why(approval.Ask, "ask: 1", "ask: 2", "ask: 3"), "why: 1; 2; 3"},
		{
			"a reason that no grant lifts comes first", why(approval.Ask, "ask: 1", "ask: 2", "ask: 3", "ask: request_data.a holds what looks like a secret (k, 3 bytes)"),
			"why: request_data.a holds what looks like a secret (k, 3 bytes); 1; 2; and 1 more: permesso policy explain a7f3b2c1",
		},
		{"the rest is counted", why(approval.Ask, "ask: 1", "ask: 2", "ask: 3", "allow: x", "ask: 4", "ask: 5"), "why: 1; 2; 3; and 2 more: permesso policy explain a7f3b2c1"},
		{"an agent's value cannot add a reason", why(approval.Ask, "ask: request_data.a; b holds what looks like a secret (k, 3 bytes)"), `why: "request_data.a; b" holds what looks like a secret (k, 3 bytes)`},
	} {
		require.Equal(t, tc.want, tc.got, tc.why)
	}
}

func TestHistoryOnTheCard(t *testing.T) {
	menu := func(s Style, change ...func(*approval.Pending)) string {
		return strings.Join(s.Card(example(change...)).Menu[1:], "\n")
	}
	require.Equal(t, "6 would have allowed none of the last 20", menu(withHistory(Style{}, 0)))
	require.Equal(t, "6 would have allowed 1 of the last 20, among them x_post -> x.com/ricardo", menu(withHistory(Style{}, 1)))
	require.Equal(t, `6 would have allowed 14 of the last 20, among them x_post -> x.com/ricardo, "x_post -> a\", x_post -> b\u{202E}", x_post`,
		menu(withHistory(Style{}, 14)), "no duplicates, at most three, none looks like two")
	hidden := withHistory(Style{Redact: secretWords{"ricardo"}}, 2)
	require.NotContains(t, menu(hidden), "ricardo")
	require.Empty(t, menu(Style{WouldAllow: func(*approval.Pending) ([]string, int, int) { return nil, 0, 0 }}), "no history")

	calls := 0
	counted := Style{WouldAllow: func(*approval.Pending) ([]string, int, int) { calls++; return nil, 0, 20 }}
	menu(counted)
	require.Equal(t, 1, calls)
	require.NotContains(t, menu(counted, func(p *approval.Pending) { p.Capability = "mail:send" }), "would have allowed", "6 is not possible")
	counted.Card(example(question))
	require.Equal(t, 1, calls, "not computed if not shown")
}

// No text in a ruling can control the screen or add a line.
func TestRulingTextCannotControlTheScreen(t *testing.T) {
	word := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("ask: '\"\n\r\t\x1b[2J\u202e\u2066\u200b\u0301 ;→🔐␠"))))
	forms := make([]string, 0, len(reasonForms()))
	for _, s := range reasonForms() {
		forms = append(forms, s.form)
	}
	rapid.Check(t, func(rt *rapid.T) {
		reason := func() string {
			if rapid.Bool().Draw(rt, "of policy") {
				return placeholder.ReplaceAllStringFunc(rapid.SampledFrom(forms).Draw(rt, "form"), func(string) string { return word.Draw(rt, "part") })
			}
			return word.Draw(rt, "reason") + "x"
		}
		p := example(func(p *approval.Pending) {
			p.Ruling.Outcome = rapid.SampledFrom([]approval.Outcome{approval.Deny, approval.Ask, approval.Allow}).Draw(rt, "outcome")
			for range rapid.IntRange(0, 5).Draw(rt, "reasons") {
				p.Ruling.Reasons = append(p.Ruling.Reasons, reason())
			}
			for range rapid.IntRange(0, 2).Draw(rt, "changes") {
				p.Ruling.Change = append(p.Ruling.Change, reason())
			}
			p.Capability = rapid.OneOf(rapid.Just("channel:out"), word).Draw(rt, "capability")
		})
		which := rapid.SliceOfN(word, 0, 4).Draw(rt, "which")
		for _, lang := range Languages() {
			s := Style{Language: lang, WouldAllow: func(*approval.Pending) ([]string, int, int) { return which, len(which), 20 }}
			c := s.Card(p)
			bare := *p
			bare.Ruling = approval.Ruling{}
			plain := s.Card(&bare)
			require.Len(rt, strings.Split(c.String(), "\n"), len(strings.Split(plain.String(), "\n"))+added(p), "no additional line")
			requireVisible(t, strings.ReplaceAll(c.String(), "\n", ""))
		}
	})
}

// added is how many lines a ruling adds to the card.
func added(p *approval.Pending) (n int) {
	if len(p.Ruling.Reasons) > 0 {
		n++
	}
	if len(p.Ruling.Change) > 0 {
		n++
	}
	return n
}
