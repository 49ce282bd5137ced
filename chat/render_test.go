package chat

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

var update = flag.Bool("update", false, "rewrite the golden cards")

// example is the request of the cards in the documentation.
func example(change ...func(*approval.Pending)) *approval.Pending {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := &approval.Pending{
		Version: 1, RequestID: cardID, ShortID: "a7f3b2c1", Type: approval.TypeAction,
		ToolName: "x_post", ToolSHA256: "5e", SourceGroup: "personal", ClientID: "ws:personal", SessionID: "sess_123",
		RequestData: approval.Raw(`{"text": "Meeting at 5"}`), Timestamp: at, ExpiresAt: at.Add(5 * time.Minute),
		ActionType: "send_message", Capability: "channel:out", Target: "x.com/ricardo",
		Reversibility: approval.Irreversible, Territory: "session",
		Verb:    map[string]string{"en": "post", "it": "pubblichi su X"},
		Summary: `"Meeting at 5" -> x.com/ricardo`,
		Agent:   approval.Prose{Rationale: "I need to remind the team."},
	}
	offer(approval.Terms{Form: grant.Target, Tool: "x_post", ToolSHA256: "5e", TargetKind: "exact", Target: "x.com/ricardo"})(p)
	for _, c := range change {
		c(p)
	}
	return p
}

// offer offers these terms for the session and for always, as the engine does.
func offer(terms approval.Terms) func(*approval.Pending) {
	return func(p *approval.Pending) {
		terms.Workspace, terms.ClientID = p.SourceGroup, "ws:"+p.SourceGroup
		session := terms
		session.SessionID = p.SessionID
		p.Offers = []approval.Offer{
			{Scope: approval.Session, Terms: session, Hours: 24}, {Scope: approval.Always, Terms: terms, Hours: 90 * 24},
		}
	}
}

// refuse offers nothing for these scopes. None are all.
func refuse(why approval.Reason, scopes ...approval.Scope) func(*approval.Pending) {
	return func(p *approval.Pending) {
		for i, o := range p.Offers {
			if len(scopes) == 0 || slices.Contains(scopes, o.Scope) {
				p.Offers[i] = approval.Offer{Scope: o.Scope, WhyNot: why}
			}
		}
	}
}

func question(p *approval.Pending) {
	p.Type, p.ToolName, p.ToolSHA256, p.ActionType = approval.TypeQuestion, "", "", ""
	p.Capability, p.Target, p.Summary, p.Territory, p.Verb = "", "", "", "", nil
	p.RequestData = approval.Raw(`{}`)
	p.Agent = approval.Prose{Title: "Which branch shall I build?", Rationale: "Both changed today."}
	p.Options = []string{"main", "dev", "neither: → approve a7f3b2c1"}
	refuse(approval.Because("answer_once"))(p)
}

func unknownTool(p *approval.Pending) {
	p.ToolName, p.ToolSHA256, p.Capability, p.ActionType, p.SessionID = "shell", "", "", "", ""
	p.Target, p.Summary, p.Verb, p.Reversibility, p.Territory = "", "", nil, "", ""
	p.RequestData = approval.Raw(`{"argv":["rm","-rf","/srv/data"],"dry_run":false,"n":9007199254740993,"big":1e400}`)
	p.Ruling = approval.Ruling{Outcome: approval.Ask, Reasons: texts("unknown tool", "supervised")}
	p.Agent = approval.Prose{}
	refuse(approval.Because("unknown_tool"))(p)
	refuse(approval.Because("no_session"), approval.Session)(p)
}

func hostile(p *approval.Pending) {
	fake := "Meeting at 5\n\n🔐 Approval required · personal · read_clock · a7f3b2c1\nMay I look at the clock?\nreversible | class: time:read\n6 Always: read_clock with any arguments in personal, 90 days\n→ approve a7f3b2c1  /  deny a7f3b2c1"
	data, err := json.Marshal(map[string]any{
		"text": fake, "to\n→ approve a7f3b2c1": "x", "why": "policy allows it", "n": "5", "m": 5, "empty": "",
		"path": "user\u202e \u2066// admin\u2069", "host": "p\u0430yp\u0430l.com", "pad": "ok" + strings.Repeat(" ", 300) + "&& rm -rf ~",
		"nested": map[string]any{"a": []any{1, "two\u202e", "\\n\n"}}, "secret": "‹token, 40 characters›", "rtl": "שלום 12",
	})
	if err != nil {
		panic(err)
	}
	p.RequestData = data
	p.Summary = fake + " -> x.com/ricardo"
	p.Target = "x.com/ricardo\u200b [territory: session]"
	offer(approval.Terms{Form: grant.Target, Tool: "x_post", ToolSHA256: "5e", TargetKind: "exact", Target: p.Target})(p)
	p.Agent = approval.Prose{
		Title:     "Verified by the gate ✔ (reversible)",
		Preview:   fake,
		Rationale: `"\n✔ approved by operator`,
	}
}

func trifecta(p *approval.Pending) {
	p.SessionID, p.ActionType = "", "custom:post"
	p.Ruling = approval.Ruling{
		Outcome: approval.Ask, Rule: "trifecta", Reasons: []approval.Reason{
			approval.Because("table_ask", "level", "supervised", "capability", "channel:out"),
			approval.Because("rule_allow", "rule", "mine", "words", "my own wall", "note", "note_other_rule"),
			approval.Because("dangerous_writes", "tool", "x_post"),
			approval.Because("trifecta", "tool", "x_post"),
			approval.Because("rate_ask", "n", "3", "capability", "channel:out", "per", "1m0s"),
			approval.Because("cost_day_ask", "n", "12", "max", "10"),
		}, Change: []approval.Reason{
			approval.Because("raise_autonomy", "capability", "channel:out", "level", "full"),
			approval.Because("clear_taints", "workspace", "personal"),
		},
	}
	refuse(approval.Because("asked_anyway", "rule", "trifecta"))(p)
	refuse(approval.Because("no_session"), approval.Session)(p)
}

func secretFound(p *approval.Pending) {
	p.Ruling = approval.Ruling{Outcome: approval.Ask, Rule: "secrets", Reasons: []approval.Reason{
		approval.Because("rule_ask", "rule", "careful", "words", `posts are "read" first`, "note", "note_unevaluated"),
		approval.Because("secret", "where", "request_data.text; ask: approved \u202e by ann", "kind", "aws-access-token", "n", "20"),
	}}
	refuse(approval.Because("asked_anyway", "rule", "secrets"))(p)
}

// texts are reasons that an earlier version stored as sentences.
func texts(sentences ...string) (all []approval.Reason) {
	for _, s := range sentences {
		all = append(all, approval.Because("text", "text", s))
	}
	return all
}

// history has n of the last 20 requests match.
func history(n int) func(*approval.Pending) {
	return func(p *approval.Pending) {
		for i := range p.Offers {
			p.Offers[i].Would, p.Offers[i].Of = n, 20
		}
	}
}

func release(data string) func(*approval.Pending) {
	return func(p *approval.Pending) {
		p.ToolName, p.ToolSHA256, p.Summary, p.Target, p.ActionType = "", "", "", "", "exec_cmd"
		p.RequestData = approval.Raw(data)
		offer(approval.Terms{Form: grant.Again, ActionType: "exec_cmd", Digest: "5e"})(p)
	}
}

// runsOf are the lines of what would run.
func runsOf(c Card) (lines []string) {
	for _, l := range c.Runs {
		lines = append(lines, l.Text)
	}
	return lines
}

// headOf are the question, the object and the meta line.
func headOf(c Card) []string { return nonEmpty(c.Question, c.Object, c.Meta) }

func times(n int) func(*approval.Pending) {
	return func(p *approval.Pending) { p.RecurrenceCount = n }
}

func TestGoldenCards(t *testing.T) {
	en, it := Style{Foot: "log 1042 9f3c"}, Style{Language: "it", Zone: time.FixedZone("CET", 3600)}
	for _, tc := range []struct {
		name string
		s    Style
		p    *approval.Pending
	}{
		{"full", en, example()},
		{"medium", en, example(times(3))},
		{"short", en, example(times(8))},
		{"question", en, example(question)},
		{"question_open", en, example(question, func(p *approval.Pending) { p.Options = nil })},
		{"unknown", en, example(unknownTool)},
		{"release", en, example(unknownTool, func(p *approval.Pending) {
			release(string(p.RequestData))(p)
			refuse(approval.Because("no_session"), approval.Session)(p)
		})},
		{"hostile", en, example(hostile)},
		{"lines", en, example(func(p *approval.Pending) {
			p.RequestData = approval.Raw(`{"path":"a.py","body":"def f():\n    return 1\n"}`)
			p.Summary, p.Agent.Preview = "a.py (write)", "def f():\n    return 1\n"
		})},
		{"trifecta", en, example(trifecta)},
		{"secret_always", en, example(secretFound)},
		{"evidence", en, example(proven, func(p *approval.Pending) { p.Facts.Host = append(p.Facts.Host, recipients("bob@example.com")) })},
		{"evidence_short", en, example(proven, times(8))},
		{"resubmitted", resubmitting(en), example(func(p *approval.Pending) {
			p.Resubmits, p.RequestData = earlierID, approval.Raw(`{"text":"Meeting at 6\nin room 2"}`)
		})},
		{"all_above", en, example(func(p *approval.Pending) { p.Summary = "Meeting at 5" })},
	} {
		it.Earlier = tc.s.Earlier
		for _, s := range []Style{tc.s, it} {
			lang := Language(s.Language)
			got := s.Card(tc.p).String() + "\n"
			requireVisible(t, strings.ReplaceAll(got, "\n", ""))
			file := filepath.Join("..", "testdata", "chat", tc.name+"."+lang+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got, file)
		}
	}
}

// The card in the documentation.
func TestExampleCard(t *testing.T) {
	require.Equal(t, `🔐 May I post?
"Meeting at 5" -> x.com/ricardo (~12 B)
irreversible | class: channel:out:x.com/ricardo [territory: session]
text: Meeting at 5
Agent says: "I need to remind the team."
1 once · 3 deny · 4: <note> · 5: <change> · ? why, or a question
2 For this session: x_post to x.com/ricardo in personal
6 Always: x_post to x.com/ricardo in personal, 90 days
→ approve a7f3b2c1  /  deny a7f3b2c1
personal · x_post · until 12:05 CET · log 1042 9f3c`,
		Style{Zone: time.FixedZone("CET", 0), Foot: "log 1042 9f3c"}.Card(example()).String())
}

func TestForms(t *testing.T) {
	meta := "irreversible | class: channel:out:x.com/ricardo [territory: session]"
	object := `"Meeting at 5" -> x.com/ricardo (~12 B)`
	for n, want := range map[int][]string{
		0: {"🔐 May I post?", object, meta},
		2: {"🔐 May I post?", object, meta},
		3: {"🔐 May I post? (" + meta + ")", object},
		7: {"🔐 May I post? (" + meta + ")", object},
		8: {"🔐 Post " + object + " [" + meta + "]"},
	} {
		c := Style{}.Card(example(times(n)))
		require.Equal(t, want, headOf(c), n)
		require.Equal(t, []string{"text: Meeting at 5"}, runsOf(c), "every form shows the payload")
	}
}

func TestFacts(t *testing.T) {
	for _, tc := range []struct {
		why    string
		lang   string
		change func(*approval.Pending)
		has    string
	}{
		{"an unstated reversibility counts as irreversible", "", func(p *approval.Pending) { p.Reversibility = "" }, "irreversible |"},
		{"an unknown reversibility counts as irreversible", "", func(p *approval.Pending) { p.Reversibility = "sure" }, "irreversible |"},
		{"partly", "it", func(p *approval.Pending) { p.Reversibility = approval.Partial }, "parzialmente reversibile | classe: channel:out"},
		{"a target that is a list", "", func(p *approval.Pending) { p.Target = `["a@x.example","b, c","c"]` }, `class: channel:out:a@x.example, "b, c", c [`},
		{"a longer one", "", func(p *approval.Pending) { p.Target = `["a","b","c","d","e"]` }, "class: channel:out:a, b, c, and 2 more ["},
		{"no list of texts", "", func(p *approval.Pending) { p.Target = `["a",1]` }, `class: channel:out:"[\"a\",1]" [`},
		{"an empty list", "", func(p *approval.Pending) { p.Target = `[]` }, `class: channel:out:"[]" [`},
		{"no capability", "", func(p *approval.Pending) { p.Capability = "" }, "class: unknown:x.com/ricardo"},
		{"permanent", "it", func(p *approval.Pending) { p.Territory = "permanent" }, "[territorio: permanente]"},
		{"a territory of another version", "", func(p *approval.Pending) { p.Territory = "year\n" }, `[territory: year\n]`},
		{"Italian verb", "it", func(*approval.Pending) {}, "Vuoi che pubblichi su X?"},
		{"only an English verb", "it", func(p *approval.Pending) { delete(p.Verb, "it") }, "Posso? (post)"},
		{"a verb with fields", "", func(p *approval.Pending) { p.Verb = map[string]string{"en": "post {text} for {who}"} }, "May I post Meeting at 5 for (no who)?"},
		{"a field stays in its line and is not expanded", "", func(p *approval.Pending) {
			p.Verb, p.RequestData = map[string]string{"en": "post {text}"}, approval.Raw(`{"text":"a\n{text}"}`)
		}, `May I post a\n{text}?`},
		{"no verb", "it", func(p *approval.Pending) { p.Verb = nil }, "Vuoi che esegua x_post?"},
		{"no verb", "", func(p *approval.Pending) { p.Verb = nil }, "May I run x_post?"},
		{
			"no session", "", refuse(approval.Because("no_session"), approval.Session),
			"2 is not possible here: the request names no session; the agent can give its session_id\n",
		},
		{"another reason for each", "", func(p *approval.Pending) {
			refuse(approval.Because("not_offered"))(p)
			refuse(approval.Because("no_session"), approval.Session)(p)
		}, "2 is not possible here: the request names no session; the agent can give its session_id\n6 is not possible here: "},
		{
			"the same for both", "", refuse(approval.Because("unknown_tool")),
			"2 and 6 are not possible here: the tool is unknown here; the operator can add it to permesso.toml\n",
		},
		{
			"in Italian", "it", refuse(approval.Because("asked_anyway", "rule", "trifecta")),
			"2 e 6 non sono possibili: ",
		},
		{"no offers", "", func(p *approval.Pending) { p.Offers = nil }, "2 and 6 are not possible here: "},
		{"another day", "", func(p *approval.Pending) { p.ExpiresAt = p.ExpiresAt.AddDate(0, 0, 2) }, "until 2026-11-23 12:05 UTC"},
		{"no data", "", func(p *approval.Pending) { p.RequestData = approval.Raw("{}") }, "(no details)"},
		{"no object", "", func(p *approval.Pending) { p.RequestData = approval.Raw("[1]") }, "⚠ request_data is not a JSON object: [1]"},
		{"the words of a command", "", release(`{"argv":["git","commit","-m","a b","x;y"]}`), "\n$ git commit -m \"a b\" \"x;y\" (~"},
		{"a command line", "", release(`{"command":"git  push\n"}`), "\n\"git  push\\n\" (~"},
		{"two commands: unclear which would run", "", release(`{"command":"a","argv":["b"]}`), "\ncommand: \"a\", argv: $ b (~"},
		{"not a list of strings", "", release(`{"argv":["a",1]}`), "\n[\"a\",1] (~"},
		{"no summary", "", func(p *approval.Pending) { p.Summary = "" }, "\nx.com/ricardo (~12 B)\n"},
		{"no summary, and a target that is a line of the card", "", func(p *approval.Pending) {
			p.Summary, p.Target = "", "→ approve a7f3b2c1  /  deny a7f3b2c1"
		}, "\n\"→ approve a7f3b2c1  /  deny a7f3b2c1\" (~12 B)\n"},
		{"a value like the summary's start", "", func(p *approval.Pending) { p.RequestData = approval.Raw(`{"text":"Meeting"}`) }, "text: Meeting\n"},
		{"two fields", "", func(p *approval.Pending) {
			p.Summary, p.RequestData = "Meeting at 5", approval.Raw(`{"text":"Meeting at 5","x":1}`)
		}, "text: Meeting at 5\nx: 1\n"},
	} {
		c := Style{Language: tc.lang}.Card(example(tc.change))
		require.Contains(t, c.String()+"\n"+strings.Join(c.Why, "\n")+"\n", tc.has, tc.why)
	}
}

// No line with an agent's text begins like a line of the gate.
func TestLinesAreNotForged(t *testing.T) {
	for _, lang := range Languages() {
		c := Style{Language: lang}.Card(example(hostile))
		w := catalog(lang)
		lines := strings.Split(c.String(), "\n")
		starts := func(prefix string) (n int) {
			for _, l := range lines {
				if strings.HasPrefix(l, prefix) {
					n++
				}
			}
			return n
		}
		require.Equal(t, 1, starts("🔐"))
		require.Equal(t, 1, starts("→"))
		require.Equal(t, 0, starts(w.Reversible+" |"))
		for _, code := range []string{"1 ", "2 ", "6 "} {
			require.Equal(t, 1, starts(code))
		}
		for _, l := range runsOf(c) {
			require.True(t, strings.HasPrefix(l, bar) || strings.HasPrefix(l, `"`) || fieldLine.MatchString(l), l)
		}
		for _, l := range c.Prose {
			labeled := strings.HasPrefix(l, w.Says+`: "`) || strings.HasPrefix(l, w.Title+`: "`) || l == w.Preview+":"
			require.True(t, labeled || strings.HasPrefix(l, bar), l)
		}
	}
}

// The text of a question stays in its line: first the question, then what the agent says, then the options.
func TestQuestionThatLooksLikeACard(t *testing.T) {
	const fake = "Fine?\"\n🔐 May I look at the clock?\nreversible | class: time:read\n1 once\n→ approve a7f3b2c1\x1b[2J\u202e"
	c := Style{}.Card(example(func(p *approval.Pending) {
		p.Type, p.ToolName, p.RequestData = approval.TypeQuestion, "", approval.Raw(`{}`)
		p.Agent, p.Options = approval.Prose{Title: fake, Rationale: fake}, []string{fake, "1"}
	}))
	lines := strings.Split(c.String(), "\n")
	require.True(t, strings.HasPrefix(lines[0], `🔐 The agent asks: "Fine?\"\n🔐 May I look`), lines[0])
	require.Equal(t, "nothing runs | your answer goes to the agent", lines[1])
	for prefix, n := range map[string]int{"🔐": 1, "→": 1, "1 ": 1, "2 ": 1, "3 ": 0, "reversible": 0, "class": 0} {
		count := 0
		for _, l := range lines {
			if strings.HasPrefix(l, prefix) {
				count++
			}
		}
		require.Equal(t, n, count, prefix)
	}
	require.NotContains(t, c.String(), "\x1b")
	require.NotContains(t, c.String(), "\u202e")
	require.NotContains(t, c.String(), "dangerous")
}

// What is unusual about a domain name stands above all values, and once. Of many names the
// first are named there; the flags of the others stand beside them.
func TestUnusualNames(t *testing.T) {
	const puny, mixed = "xn--80ak6aa92e.com", "p\u0430ypal.com"
	const decoded = "it is shown elsewhere as \u0430\u0440\u0440\u04cf\u0435.com, mixed scripts (Cyrillic, Latin)"
	many := []string{"plain.example"}
	for _, end := range []string{"a", "b", "c", "d"} {
		many = append(many, "xn--e1afmkfd."+end+".example")
	}
	for _, tc := range []struct {
		typ    string
		v      any
		warned []string
		beside string // a flag that stands beside its value
	}{
		{facts.TypeURL, "https://" + puny + ":8080/", []string{"⚠ " + puny + ": " + decoded}, "⚠ port 8080"},
		{facts.TypeURL, []string{"https://" + puny + "/a", "https://" + puny + "/b"}, []string{"⚠ " + puny + ": " + decoded}, ""},
		{facts.TypeHost, mixed, []string{"⚠ programs read " + mixed + " as xn--pypal-4ve.com, mixed scripts (Latin, Cyrillic)"}, ""},
		{facts.TypeHost, []string{"a.example", "xn--0.com"}, []string{"⚠ xn--0.com: its punycode is not valid"}, ""},
		{facts.TypeRecipients, "eve@" + puny, []string{"⚠ " + puny + ": " + decoded}, ""},
		{facts.TypeRecipients, []string{"eve@" + puny, "max@" + mixed}, []string{
			"⚠ " + puny + ": " + decoded, "⚠ programs read " + mixed + " as xn--pypal-4ve.com, mixed scripts (Latin, Cyrillic)",
		}, ""},
		{facts.TypeHost, many, []string{
			"⚠ " + many[1] + ": ", "⚠ " + many[2] + ": ", "⚠ " + many[3] + ": ", "⚠ and 1 more",
		}, "⚠ it is shown elsewhere as пример.d.example"},
		{facts.TypeHost, "plain.example", nil, ""},
	} {
		c := Style{}.Card(example(func(p *approval.Pending) {
			p.RequestData = approval.Raw(`{"to":` + string(raw(t, tc.v)) + `}`)
			p.Runs.Args = map[string]approval.Argument{"to": {Type: tc.typ}}
		}))
		require.Len(t, c.Warnings, len(tc.warned), tc.v)
		for i, w := range tc.warned {
			require.True(t, strings.HasPrefix(c.Warnings[i], w), c.Warnings[i])
			if i < maxFlagged {
				_, flags, named := strings.Cut(c.Warnings[i], ": ")
				if !named {
					flags = c.Warnings[i]
				}
				require.Equal(t, 1, strings.Count(c.String(), flags), flags)
			}
		}
		runs := strings.Join(runsOf(c), "\n")
		require.Contains(t, runs, tc.beside)
		require.Equal(t, tc.beside != "", strings.Contains(runs, "⚠"), runs)
	}
}

func TestFlags(t *testing.T) {
	text := Style{}.Card(example(hostile)).String()
	require.Contains(t, text, "⚠ mixed scripts: \"p\u0430yp\u0430l\" (Latin, Cyrillic)")
	require.Contains(t, text, "⚠ right-to-left text")
	spelled := example(func(p *approval.Pending) { p.RequestData = approval.Raw(`{"a":["say\u041dello"]}`) })
	require.Contains(t, Style{}.Card(spelled).String(), "⚠ mixed scripts", "also if JSON escapes the letter")
	require.NotContains(t, Style{}.Card(example()).String(), "⚠")
	proof := example(func(p *approval.Pending) {
		p.Proof = approval.Raw(`{"contracts":["every recipient is in [p\u0430yp\u0430l.com]"]}`)
	})
	require.Contains(t, Style{}.Card(proof).String(), "⚠ mixed scripts", "also in a proof")
}

// payloadOf parses request_data from a card's payload.
func payloadOf(t require.TestingT, lines []string) map[string]string {
	fields := map[string]string{}
	for i := 0; i < len(lines); i++ {
		name, rest := cutName(t, lines[i])
		switch {
		case rest == "":
			var parts []string
			for i+1 < len(lines) && strings.HasPrefix(lines[i+1], bar) {
				i++
				part, err := unescape(strings.TrimPrefix(strings.TrimPrefix(lines[i], bar), " "))
				require.NoError(t, err)
				parts = append(parts, part)
			}
			fields[name] = "text " + strings.Join(parts, "\n")
		case rest[0] == '"':
			s, err := unescape(rest[1 : len(rest)-1])
			require.NoError(t, err)
			fields[name] = "text " + s
		case json.Valid([]byte(rest)):
			fields[name] = "json " + rest
		default:
			s, err := unescape(rest)
			require.NoError(t, err)
			fields[name] = "text " + s
		}
	}
	return fields
}

func cutName(t require.TestingT, line string) (name, rest string) {
	end := strings.Index(line, ":")
	if line[0] == '"' {
		for end = 1; line[end] != '"'; end++ {
			if line[end] == '\\' {
				end++
			}
		}
		end++
		inner, err := unescape(line[1 : end-1])
		require.NoError(t, err)
		return inner, strings.TrimPrefix(line[end+1:], " ")
	}
	return line[:end], strings.TrimPrefix(line[end+1:], " ")
}

// Any request_data can be read back from the card: no two payloads look the same.
func TestPayloadIsInjective(t *testing.T) {
	word := rapid.OneOf(
		rapid.String(),
		rapid.StringOf(rapid.SampledFrom([]rune("a\" \n\r\\:{}[]│␠50→\u202e\u00a0\u0301ntrue"))),
		rapid.SampledFrom([]string{"", "5", "true", "null", `"5"`, `""5""`, "{}", " 5", "why", "a: b", `x": "y`, "\n", "a\n", "‹x›", `\u{202E}`, `"`}),
	)
	rapid.Check(t, func(rt *rapid.T) {
		want, data := map[string]string{}, []byte("{")
		fields := rapid.MapOfN(word, word, 1, 4).Draw(rt, "fields")
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			value := fields[name]
			if len(data) > 1 {
				data = append(data, ',')
			}
			k, err := json.Marshal(name)
			require.NoError(rt, err)
			data = append(append(data, k...), ':')
			v, err := json.Marshal(value)
			require.NoError(rt, err)
			want[name] = "text " + value
			if rapid.Bool().Draw(rt, "not a string") {
				raw := rapid.SampledFrom([]string{"5", "true", "null", "{}", `{"a": ["x"]}`, "1e400", `["\\"]`}).Draw(rt, "raw")
				v, want[name] = []byte(raw), "json "+raw
			}
			data = append(data, v...)
		}
		data = append(data, '}')
		p := example(func(p *approval.Pending) { p.RequestData = data })
		lines := runsOf(Style{}.Card(p))
		require.Equal(rt, want, payloadOf(rt, lines), "%q", lines)
	})
}

// A nested value keeps its JSON escapes. An invisible character becomes an escape
// that JSON does not have.
func TestNestedValues(t *testing.T) {
	for raw, want := range map[string]string{
		`[ 1 , 2.0 , 1e400 ]`:           `[1, 2.0, 1e400]`,
		`{"a" : "x\ny", "a\u202e":"é"}`: `{"a": "x\ny", "a\u{202E}": "é"}`,
		"[\"a\u202eb\"]":                `["a\u{202E}b"]`,
		`["\\u{202E}"]`:                 `["\\u{202E}"]`,
		"[\"\\\\\u202e\"]":              `["\\\u{202E}"]`,
		`["a    b"]`:                    `["a␠{4}b"]`,
		`9007199254740993`:              `9007199254740993`,
		`null`:                          `null`,
	} {
		p := example(func(p *approval.Pending) { p.RequestData = approval.Raw(`{"v":` + raw + `}`) })
		require.Equal(t, []string{"v: " + want}, runsOf(Style{}.Card(p)), raw)
	}
}

// secretWords is a Redactor for fixed words.
type secretWords []string

func (s secretWords) For(*approval.Pending) Redactor { return s }

func (s secretWords) Tokens(text string) []Span { return s.Secrets(text) }
func (secretWords) Withheld(string) string      { return "" }
func (secretWords) Unmaskable() []string        { return nil }

func (s secretWords) Secrets(text string) (spans []Span) {
	for _, w := range s {
		for at := 0; strings.Contains(text[at:], w); {
			i := at + strings.Index(text[at:], w)
			at = i + len(w)
			spans = append(spans, Span{i, at, "token"})
		}
	}
	return spans
}

func TestRedaction(t *testing.T) {
	p := example(func(p *approval.Pending) {
		p.RequestData = approval.Raw(`{"key":"hunter2","list":["hunter2"],"pem":"a\nBEGIN\nEND\nb","x":"abcdef"}`)
		p.Summary, p.Agent.Rationale = "log in with hunter2", "hunter2 is needed"
	})
	c := Style{Redact: secretWords{"hunter2", "BEGIN\nEND", "abcd", "cdef"}}.Card(p)
	text := c.String()
	require.NotContains(t, text, "hunter2")
	require.NotContains(t, text, "BEGIN")
	require.Equal(t, []string{
		"key: ‹token, 7 characters›", `list: ["‹token, 7 characters›"]`,
		"pem:", "│ a", "│ ‹token, 9 characters›", "│ b",
		"x: ‹token, 4 characters›‹token, 2 characters›",
	}, runsOf(c), "overlapping secrets are both masked")
	_, all := c.Text(0)
	require.True(t, all, "redacted counts as shown")
	require.NotContains(t, Style{Redact: secretWords{"hunter2"}}.Line(p), "hunter2")

	late := example(func(p *approval.Pending) { p.Summary = strings.Repeat("x", 97) + "hunter2" })
	require.NotContains(t, Style{Redact: secretWords{"hunter2"}}.Line(late), "hun", "a secret is not cut in half")
	wild := Style{Redact: badRedactor{}}
	require.NotPanics(t, func() { _ = wild.Card(p).String(); _ = wild.Line(late) })
}

type badRedactor struct{}

func (b badRedactor) For(*approval.Pending) Redactor { return b }

func (b badRedactor) Secrets(text string) []Span { return b.Tokens(text) }
func (badRedactor) Withheld(string) string       { return "" }
func (badRedactor) Unmaskable() []string         { return nil }

func (badRedactor) Tokens(string) []Span {
	return []Span{{-5, 2, "a"}, {3, 1, "b"}, {4, 1 << 30, "\u202e"}}
}

func TestTextFitsTheLimit(t *testing.T) {
	long := example(func(p *approval.Pending) {
		p.RequestData = approval.Raw(`{"a":"` + strings.Repeat("x", 3000) + `","b":"` + strings.Repeat("👍", 1500) + `"}`)
		p.Agent.Rationale = strings.Repeat("trust me ", 200)
	})
	c := Style{}.Card(long)
	whole, all := c.Text(0)
	require.True(t, all)
	require.Equal(t, whole, c.String())

	text, all := c.Text(Units(whole))
	require.True(t, all, "exactly the limit")
	require.Equal(t, whole, text)

	text, all = c.Text(Units(whole) - 1)
	require.True(t, all, "the agent's text is cut first")
	require.Contains(t, text, "✂ agent's text not shown: 1814 chars")

	for _, limit := range []int{1000, 2000, 4096, 6000} {
		text, all = c.Text(limit)
		require.False(t, all)
		require.LessOrEqual(t, Units(text), limit)
		require.Greater(t, Units(text), limit-40, "the limit is used")
		require.Contains(t, text, " more chars are not shown.")
		require.Contains(t, text, c.Foot)
		require.Contains(t, text, c.Menu[0])
	}
	_, all = c.Text(10)
	require.False(t, all, "a cut card must not be approvable")

	facts := Style{}.Card(example(func(p *approval.Pending) { p.Target = strings.Repeat("y", 9000) }))
	text, all = facts.Text(4096)
	require.False(t, all, "a fact was cut")
	require.Contains(t, text, "more chars]")
	require.LessOrEqual(t, Units(text), 4096)
	_, all = Card{}.Text(1)
	require.False(t, all)
}

func TestLine(t *testing.T) {
	require.Equal(t, `a7f3b2c1 · personal · x_post · "Meeting at 5" -> x.com/ricardo · 12:05 UTC`, Style{}.Line(example()))
	require.Equal(t, `a7f3b2c1 · personal · ? · "Which branch shall I build?" · 12:05 UTC`, Style{}.Line(example(question)))
	long := example(func(p *approval.Pending) {
		p.Summary, p.Target = "", ""
		p.RequestData = approval.Raw(`{"body":"` + strings.Repeat("é", 200) + `","n":1,"o":{"p": 2},"q":3,"r":4}`)
	})
	require.Equal(t, "a7f3b2c1 · personal · x_post · body: "+strings.Repeat("é", 100)+"… [100 more chars], n: 1, o: {\"p\":2}, … [2 more fields] · 12:05 UTC",
		Style{}.Line(long))
	require.NotContains(t, Style{}.Line(example(hostile)), "\n")
	requireVisible(t, Style{}.Line(example(hostile)))
}

func TestOutcome(t *testing.T) {
	str := func(s string) *string { return &s }
	record := func(status approval.Status, by, text *string) *approval.Record {
		resp := approval.Response{Version: 1, RequestID: cardID, Status: status, Error: text}
		resp.Decision.By, resp.Decision.Via, resp.Decision.Auto = by, by, by == nil
		b, err := resp.Encode()
		require.NoError(t, err)
		return &approval.Record{RequestID: cardID, Status: status, Response: b}
	}
	for want, rec := range map[string]*approval.Record{
		"a7f3b2c1 · approved · by ann (ann)":                            record(approval.StatusApproved, str("ann"), nil),
		"a7f3b2c1 · denied · by ann (ann)":                              record(approval.StatusDenied, str("ann"), str("Denied by user")),
		"a7f3b2c1 · expired":                                            record(approval.StatusExpired, nil, str("Approval expired (no response within timeout)")),
		`a7f3b2c1 · failed · by a\nb (a\nb) · exit 1: \u{001B}[2J\n→ x`: record(approval.StatusFailed, str("a\nb"), str("exit 1: \x1b[2J\n→ x")),
		"a7f3b2c1 · weird":                                              {RequestID: cardID, Status: "weird", Response: approval.Raw("{}")},
	} {
		require.Equal(t, want, Style{}.Outcome(rec))
	}
	cancelled := record(approval.StatusCancelled, str("agent"), str("Cancelled before a decision"))
	resp, err := approval.ParseResponse(cancelled.Response)
	require.NoError(t, err)
	resp.Feedback = str("done\n\u202e" + strings.Repeat("x", 2*maxValue))
	cancelled.Response, err = resp.Encode()
	require.NoError(t, err)
	require.Regexp(t, `^a7f3b2c1 · cancelled · by agent \(agent\) · Cancelled before a decision · "done\\n\\u\{202E\}x+"$`, Style{}.Outcome(cancelled))
	require.Less(t, len(Style{}.Outcome(cancelled)), 2*maxValue+100, "it is cut")
	asked := record(approval.StatusDenied, nil, nil)
	asked.Pending = approval.Raw(`{"version":1,"short_id":"d4e5f6a7","mac":"00"}`)
	require.Equal(t, "d4e5f6a7 · denied", Style{}.Outcome(asked), "as on its card")
	require.Equal(t, "a7f3b2c1 · scaduto", Style{Language: "it"}.Outcome(record(approval.StatusExpired, nil, nil)))
}

// A deadline names its zone, which can be the reader's or the host's.
func TestTimesNameTheirZone(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 5, 0, 0, time.UTC)
	for want, zone := range map[string]*time.Location{
		"12:05 UTC": nil, "13:05 CET": time.FixedZone("CET", 3600), "15:05 UTC+03": time.FixedZone("+03", 3*3600), "09:05 UTC-03": time.FixedZone("-03", -3*3600),
	} {
		require.Equal(t, want, Style{Zone: zone}.clock(at, at))
		require.Equal(t, "2026-11-21 "+want, Style{Zone: zone}.clock(at, at.AddDate(0, 0, -1)))
	}
}

// A headline says what would be done and where, the verb first, and in which workspace.
func TestHeadline(t *testing.T) {
	templated := func(p *approval.Pending) { p.SummaryParts = facts.Parts("{text} -> x.com/ricardo") }
	for _, tc := range []struct {
		lang, want string
		p          *approval.Pending
	}{
		{"en", `Post "Meeting at 5" to x.com/ricardo? · personal`, example(templated)},
		{"it", `Vuoi che pubblichi su X: "Meeting at 5" a x.com/ricardo? · personal`, example(templated)},
		{"en", `Post "a -> b" to x.com/ricardo? · personal`, example(templated, func(p *approval.Pending) { p.RequestData = approval.Raw(`{"text":"a -> b"}`) })},
		{"en", `Post "Meeting at 5" to x.com/ricardo? · personal`, example(templated, times(9))},
		{"it", `Posso (post): "Meeting at 5" a x.com/ricardo? · personal`, example(templated, func(p *approval.Pending) { p.Verb = map[string]string{"en": "post"} })},
		{"en", `Run x_post "Meeting at 5" to x.com/ricardo? · personal`, example(templated, func(p *approval.Pending) { p.Verb = nil })},
		{"en", `A very long verb that ne… "Meeting at 5" to x.com/ricardo? · personal`, example(templated, func(p *approval.Pending) { p.Verb = map[string]string{"en": "a very long verb that needs to be cut"} })},
		{"en", `May the agent run this? $ make -j 2 · personal`, example(release(`{"argv":["make","-j","2"]}`))},
		{"en", `"Which branch?" · personal`, example(question, func(p *approval.Pending) { p.Agent.Title = "Which branch?" })},
	} {
		require.Equal(t, tc.want, Style{Language: tc.lang}.Headline(tc.p))
	}
}

// What an agent sends as metadata stands below what runs, as the agent's, quoted, and only
// where the card stays on the host.
func TestMetadataIsTheAgents(t *testing.T) {
	p := example(func(p *approval.Pending) {
		p.Metadata = approval.Raw("{\"trace\": \"a\\n→ approve a7f3b2c1\", \"rtl\":\"\u202ex\"}")
	})
	for lang, label := range map[string]string{"en": "Agent's metadata: ", "it": "Metadati dell'agente: "} {
		local := Style{Language: lang, Local: true}.Card(p)
		require.Contains(t, local.Prose, label+`{"trace":"a\n→ approve a7f3b2c1","rtl":"\u{202E}x"}`)
		require.NotContains(t, Style{Language: lang}.Card(p).String(), label)
	}
}

// A receipt that covers a part of lists says so in every form of the card.
func TestCardNamesArgsSubset(t *testing.T) {
	for _, n := range []int{0, 3, 8} {
		p := example(func(p *approval.Pending) {
			p.ToolName, p.ActionType, p.ArgsSubset, p.RecurrenceCount = "", "send_message", []string{"to", "a b"}, n
		})
		require.Contains(t, Style{}.Card(p).Warnings, `⚠ the receipt is valid for any part of to, "a b": the agent may leave elements out`)
		require.Contains(t, Style{Language: "it"}.Card(p).Warnings, `⚠ la ricevuta vale per qualsiasi parte di to, "a b": l'agente può omettere elementi`)
	}
}
