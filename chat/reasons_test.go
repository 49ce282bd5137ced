package chat

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
)

// Each code of the closed list has a sentence in every language, which names the code's
// args.
func TestEachReasonHasASentence(t *testing.T) {
	codes := approval.ReasonCodes()
	for _, lang := range Languages() {
		said := catalog(lang).Reasons
		require.Len(t, said, len(codes), lang)
		for code, args := range codes {
			sentence := said[code]
			require.NotEmpty(t, sentence, "%s: %s", lang, code)
			var needed []string
			for _, name := range args {
				always := !strings.HasSuffix(name, "?") || name == "strangers?" || name == "secrets?" // unknown ones are said, too
				if name == "rule" && code == "asked_anyway" {
					name = "asks" // in words
				}
				if always {
					needed = append(needed, "{"+strings.TrimSuffix(name, "?")+"}")
				}
			}
			optional, needless := "", sentence
			for {
				before, rest, found := strings.Cut(needless, "[[")
				part, after, closed := strings.Cut(rest, "]]")
				require.Equal(t, found, closed, sentence)
				if !found {
					break
				}
				optional, needless = optional+part, before+after
			}
			require.Subset(t, needed, names(needless), "%s: %s", lang, code)
			require.Subset(t, names(needless), needed, "%s: %s", lang, code)
			for _, name := range names(optional) {
				name = strings.Trim(name, "{}")
				require.True(t, slices.Contains(args, name) || slices.Contains(args, name+"?"), "%s: %s: %s", lang, code, name)
			}
		}
	}
}

func TestReasonSentences(t *testing.T) {
	for _, tc := range []struct {
		r        approval.Reason
		english  string
		inItaly  string
		whatItIs string
	}{
		{
			approval.Because("argument_type", "name", "dry_run", "value", `"true"`, "why", "is_bool"),
			`argument dry_run must be true or false, not "true"`, `l'argomento dry_run deve essere true o false, non "true"`, "a text is no flag",
		},
		{approval.Because("rule_ask", "rule", "careful"), "rule careful asks", "la regola careful chiede un'approvazione", "the parts without values are left out"},
		{
			approval.Because("rule_deny", "rule", "never ever", "words", "no {rule} [[x]]", "clause", "mail: at most 1", "gap", "gap_claim", "why", "proof_no_field", "field", "code"),
			`rule "never ever" denies it: no {rule} [[x]] (not proven: mail: at most 1 (the proof is not verified: the request has no program in code))`,
			`la regola "never ever" lo nega: no {rule} [[x]] (non dimostrato: mail: at most 1 (la prova non è verificata: la richiesta non ha un programma in code))`,
			"codes nest, and values are not expanded again",
		},
		{
			approval.Because("rule_unproven", "rule", "r", "clause", "c", "gap", "gap_claim", "why", "text", "text", "not mine"),
			"rule r does not apply: not proven: c (the proof is not verified: not mine)",
			"la regola r non si applica: non dimostrato: c (la prova non è verificata: not mine)", "a sentence of an earlier version",
		},
		{approval.Because("text", "text", "ask: 'x' makes\nnoise"), `ask: 'x' makes\nnoise`, `ask: 'x' makes\nnoise`, "another one"},
		{approval.Because("new_code", "what", "a\u202eb"), `new_code what="a\\u202eb"`, `new_code what="a\\u202eb"`, "an unknown code in its technical form"},
		{approval.Because("gap_claim", "why", "gap_claim"), "the proof is not verified: the proof is not verified: the proof is not verified: gap_claim why=gap_claim", "", "no loop"},
	} {
		require.Equal(t, []string{tc.english}, Style{}.Reasons(&approval.Pending{}, []approval.Reason{tc.r}), tc.whatItIs)
		if tc.inItaly != "" {
			require.Equal(t, []string{tc.inItaly}, Style{Language: "it"}.Reasons(&approval.Pending{}, []approval.Reason{tc.r}), tc.whatItIs)
		}
	}
	require.Equal(t, "no rule allows it; rule a asks", Words{}.Reasons([]approval.Reason{approval.Because("no_rule"), approval.Because("rule_ask", "rule", "a")}))
}

func TestReasonsOfTheOutcome(t *testing.T) {
	why := func(outcome approval.Outcome, reasons ...approval.Reason) string {
		p := example(func(p *approval.Pending) { p.Ruling = approval.Ruling{Outcome: outcome, Reasons: reasons} })
		return strings.Join(Style{}.Card(p).Why, "; ")
	}
	writes := func(tool string) approval.Reason {
		return approval.Because("dangerous_writes", "tool", tool)
	}
	secret := func(where string) approval.Reason {
		return approval.Because("secret", "where", where, "kind", "k", "n", "3")
	}
	allows, asks := approval.Because("rule_allow", "rule", "a"), approval.Because("rule_ask", "rule", "b")
	for _, tc := range []struct {
		why, got, want string
	}{
		{"no reasons", why(approval.Ask), ""},
		{"a reason to allow does not explain an ask", why(approval.Ask, allows, writes("x")), "x: dangerous writes"},
		{"a reason without an outcome comes last", why(approval.Ask, approval.Because("grant_revoked"), writes("z")), "z: dangerous writes; a grant for this was revoked"},
		{"if there are only reasons to allow, those", why(approval.Ask, allows), "rule a allows it"},
		{"three", why(approval.Ask, writes("1"), writes("2"), writes("3")), "1: dangerous writes; 2: dangerous writes; 3: dangerous writes"},
		{
			"a reason that no grant lifts comes first", why(approval.Ask, writes("1"), writes("2"), asks, secret("request_data.a")),
			"request_data.a holds what looks like a secret (k, 3 bytes); rule b asks; 1: dangerous writes; 2: dangerous writes",
		},
		{"sentences of an earlier version stay in their order", why(approval.Ask, texts("ask: 1", "allow: 2")...), "ask: 1; allow: 2"},
		{"an agent's value cannot add a reason", why(approval.Ask, secret("request_data.a; b")), `"request_data.a; b" holds what looks like a secret (k, 3 bytes)`},
		{
			"a secret that spans values", why(approval.Ask, secret("request_data.a + request_data.command + request_data.the z")),
			`request_data.a + request_data.command + "request_data.the z" holds what looks like a secret (k, 3 bytes)`,
		},
		{
			"a name that is a secret", why(approval.Ask, secret("request_data.a + request_data."+approval.RedactedName)),
			"request_data.a + the name of an argument holds what looks like a secret (k, 3 bytes)",
		},
	} {
		require.Equal(t, tc.want, tc.got, tc.why)
	}
}

func TestHistoryOnTheCard(t *testing.T) {
	why := func(change ...func(*approval.Pending)) string {
		return strings.Join(Style{}.Card(example(change...)).Why, "\n")
	}
	require.Equal(t, "6 would have allowed none of the last 20", why(history(0)))
	require.Equal(t, "6 would have allowed 14 of the last 20", why(history(14)))
	require.Empty(t, why(), "no history")
	buttons := Style{Buttons: true}.Card(example(history(14)))
	require.Equal(t, `"Always" would have allowed 14 of the last 20`, strings.Join(buttons.Why, "\n"))
	require.NotContains(t, why(history(14), refuse(approval.Because("not_offered"))), "would have allowed")
}

// No text in a ruling can control the screen or add a line.
func TestRulingTextCannotControlTheScreen(t *testing.T) {
	word := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("ask: '\"\n\r\t\x1b[2J\u202e\u2066\u200b\u0301 ;→🔐␠"))))
	codes := approval.ReasonCodes()
	rapid.Check(t, func(rt *rapid.T) {
		reason := func() approval.Reason {
			if rapid.Bool().Draw(rt, "of an earlier version") {
				return approval.Because("text", "text", word.Draw(rt, "reason")+"x")
			}
			r := approval.Reason{Code: rapid.SampledFrom(slices.Sorted(maps.Keys(codes))).Draw(rt, "code"), Args: map[string]string{}}
			for _, name := range codes[r.Code] {
				r.Args[strings.TrimSuffix(name, "?")] = rapid.OneOf(word, rapid.SampledFrom(slices.Sorted(maps.Keys(codes)))).Draw(rt, name)
			}
			return r
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
		for _, lang := range Languages() {
			s := Style{Language: lang}
			c := s.Card(p)
			bare := *p
			bare.Ruling = approval.Ruling{}
			plain := s.Card(&bare)
			more := 0
			if !p.Ruling.Reason("changes_asking").IsZero() { // it warns, in one line
				more = 1
			}
			require.Len(rt, strings.Split(c.String(), "\n"), len(strings.Split(plain.String(), "\n"))+more, "no additional line")
			requireVisible(t, strings.ReplaceAll(c.String(), "\n", ""))
			requireVisible(t, strings.Join(c.Why, ""))
		}
	})
}

// A number that is none is shown like any other text.
func TestNumberOfReadsIsText(t *testing.T) {
	x := approval.Because("taint", "strangers", "mail:read", "strangers_n", "2\r\n3")
	found := false
	for code, args := range approval.ReasonCodes() {
		if slices.Contains(args, "strangers") || slices.Contains(args, "strangers?") {
			x.Code, found = code, true
			shown := strings.Join(Style{}.Reasons(&approval.Pending{}, []approval.Reason{x}), "")
			require.Contains(t, shown, "2\\r\\n3")
			requireVisible(t, shown)
		}
	}
	require.True(t, found)
}

// A reason without text still has its line.
func TestEmptyReasonIsShown(t *testing.T) {
	reasons := Style{}.Reasons(&approval.Pending{}, []approval.Reason{approval.Because("text", "text", "")})
	require.Equal(t, []string{"text"}, reasons)
}

// A kind of secret is said in words.
func TestKindOfASecret(t *testing.T) {
	for kind, want := range map[string][2]string{
		"aws-access-token": {"AWS access key", "chiave di accesso AWS"},
		"beamer-api-token": {"beamer api token", "beamer api token"},
	} {
		why := []approval.Reason{approval.Because("secret", "where", "request_data.text", "kind", kind, "n", "20")}
		require.Contains(t, Style{}.Reasons(&approval.Pending{}, why)[0], "("+want[0]+",")
		require.Contains(t, Style{Language: "it"}.Reasons(&approval.Pending{}, why)[0], "("+want[1]+",")
	}
}

// On a page with buttons no line has a code: the name of the button stands there.
func TestImpossibleChoicesOfButtons(t *testing.T) {
	p := example()
	p.Offers = []approval.Offer{
		{Scope: approval.Session, WhyNot: approval.Because("no_session")}, {Scope: approval.Always, WhyNot: approval.Because("no_session")},
	}
	require.Contains(t, strings.Join(Style{}.Card(p).Why, "\n"), "2 and 6 are not possible here: the request names no session")
	for language, want := range map[string]string{
		"en": `"For this session" is not possible here: the request names no session`, "it": `"Per questa sessione" non è `,
	} {
		why := strings.Join(Style{Language: language, Buttons: true}.Card(p).Why, "\n")
		require.Contains(t, why, want)
		require.NotRegexp(t, `(?m)^[1-6] `, why)
	}
}
