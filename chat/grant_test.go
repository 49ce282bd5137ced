package chat

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
)

// terms of each form, in workspace personal, for the agent with its folder.
func terms(change func(*approval.Terms)) approval.Terms {
	t := approval.Terms{Workspace: "personal", ClientID: "ws:personal", Tool: "x_post", ToolSHA256: "5e"}
	change(&t)
	return t
}

// pathTerms are of a tool that writes what a glob matches.
func pathTerms(glob string) approval.Terms {
	return terms(func(t *approval.Terms) {
		t.Form, t.Tool, t.TargetKind, t.Target = grant.Target, "write_file", "path_glob", glob
	})
}

func exactTerms(target string) approval.Terms {
	return terms(func(t *approval.Terms) { t.Form, t.TargetKind, t.Target = grant.Target, "exact", target })
}

func hostTerms(origin string) approval.Terms {
	return terms(func(t *approval.Terms) {
		t.Form, t.Tool, t.TargetKind, t.Target = grant.Target, "fetch", "host", origin
	})
}

// releaseTerms are of requests that the agent carries out itself.
func releaseTerms(form, action string) approval.Terms {
	return terms(func(t *approval.Terms) {
		t.Form, t.Tool, t.ToolSHA256, t.ActionType = form, "", "", action
		if form == grant.Again {
			t.Digest = "5e"
		}
	})
}

// offered is a card's request with an offer of these terms.
func offered(t approval.Terms) *approval.Pending {
	return example(func(p *approval.Pending) {
		p.Offers = []approval.Offer{{Scope: approval.Always, Terms: t, Hours: 90 * 24}}
	})
}

// The sentence of each form, as an offer and as a grant.
func TestSentenceOfAGrant(t *testing.T) {
	for _, row := range []struct {
		terms        approval.Terms
		english, ita string
	}{
		{
			terms(func(t *approval.Terms) { t.Form = grant.Tool }), "x_post with any arguments",
			"x_post con qualsiasi argomento",
		},
		{exactTerms("x.com/ricardo"), "x_post to x.com/ricardo", "x_post verso x.com/ricardo"},
		{exactTerms(`["a@x.example","b, c"]`), `x_post to [a@x.example, "b, c"]`, `x_post verso [a@x.example, "b, c"]`},
		{exactTerms(`["a", "b"]`), `x_post to "[\"a\", \"b\"]"`, `x_post verso "[\"a\", \"b\"]"`},
		{hostTerms("api.example.org"), "fetch at api.example.org", "fetch presso api.example.org"},
		{hostTerms("https://api.example.org"), "fetch at https://api.example.org", "fetch presso https://api.example.org"},
		{hostTerms("http://api.example.org"), "fetch at http://api.example.org", "fetch presso http://api.example.org"},
		{pathTerms("/srv/a.txt"), "write_file on /srv/a.txt", "write_file su /srv/a.txt"},
		{pathTerms(`/srv/\[1\] a.txt`), `write_file on "/srv/[1] a.txt"`, `write_file su "/srv/[1] a.txt"`},
		{pathTerms(`/srv/\*`), `write_file on "/srv/*"`, `write_file su "/srv/*"`},
		{pathTerms(`/srv/**`), `write_file on every path like /srv/**`, `write_file su ogni percorso come /srv/**`},
		{
			releaseTerms(grant.Action, "http_request"), "every http_request that the agent does itself, but no tool,",
			"ogni http_request che l'agente fa da sé, ma nessuno strumento,",
		},
		{
			releaseTerms(grant.Action, "exec_cmd"), "any command that the agent runs itself, but no tool,",
			"qualsiasi comando che l'agente esegue da sé, ma nessuno strumento,",
		},
		{
			terms(func(t *approval.Terms) { t.Form, t.Words = grant.Command, []string{"go", "test", "..."} }),
			`x_post like "go test ..." without other options`, `x_post come "go test ..." senza altre opzioni`,
		},
	} {
		p := offered(row.terms)
		require.Equal(t, "Always: "+row.english+" in personal, 90 days", Style{}.Offer(p, approval.Always))
		require.Equal(t, "Sempre: "+row.ita+" in personal, 90 giorni", Style{Language: "it"}.Offer(p, approval.Always))
		g := &grant.Grant{ID: cardID, Terms: row.terms, ExpiresAt: time.Date(2027, 2, 19, 23, 0, 0, 0, time.UTC)}
		require.Equal(t, "Always: "+row.english+" in personal, until 2027-02-19", Style{}.Grant(g))
		g.SessionID = "sess 1"
		require.Equal(t, `In session "sess 1": `+row.english+" in personal, until 2027-02-19", Style{}.Grant(g))
	}
}

// The same request is this one on its card, and named where grants are listed.
func TestSentenceOfTheSameRequest(t *testing.T) {
	again := releaseTerms(grant.Again, "exec_cmd")
	said := Style{}.Offer(offered(again), approval.Always)
	require.Equal(t, "Always: exactly this exec_cmd request again in personal, 90 days", said)
	g := &grant.Grant{ID: cardID, Terms: again, ExpiresAt: time.Date(2027, 2, 19, 23, 0, 0, 0, time.UTC)}
	require.Equal(t, "Always: exactly the exec_cmd request a7f3b2c1 again in personal, until 2027-02-19", Style{}.Grant(g))
}

// A grant holds for one agent: one with an API key is named.
func TestSentenceNamesTheClient(t *testing.T) {
	x := exactTerms("x.com")
	x.ClientID = "5f0a1c2b3d4e"
	said := Style{}.Offer(offered(x), approval.Always)
	require.Equal(t, "Always: x_post to x.com in personal (API key 5f0a1c2b3d4e), 90 days", said)
}

// hostileTargets are those that an agent may choose so that the sentence reads as another.
var hostileTargets = []string{
	"x.com in other, 90 days", " in other, 90 days", "x.com\n6 Always: x_post with any arguments in personal, 90 days",
	"x.com\u202e", "\u2066x.com\u2069", "x.com\u00a0in\u00a0other", "x.com\u2028in other", `"x.com" in other`, `x.com"`,
	`\`, "[x.com]", `["x.com in other"]`, "x.com, x.org", "‹token›", "", " ", "x.com ", "x.com  x", "a\x00b", "\xff",
	"x.com\u200b", "x.com · To undo: no",
	strings.Repeat("very", 2000), "x.com in personal, 90 days · Always: x_post to x.org",
}

// A hostile value does not read as a part of the sentence: it is one word, or stands in
// quotation marks on the sentence's line.
func TestHostileTargetsInTheSentence(t *testing.T) {
	seen := map[string]string{}
	for _, target := range hostileTargets {
		for _, x := range []approval.Terms{exactTerms(target), pathTerms(target), hostTerms("https://" + target)} {
			said := Style{}.Offer(offered(x), approval.Always)
			requireVisible(t, said)
			require.Empty(t, seen[said], said)
			seen[said] = target
			value := strings.TrimSuffix(strings.TrimPrefix(said, "Always: "), " in personal, 90 days")
			for _, head := range []string{"x_post to ", "write_file on every path like ", "write_file on ", "fetch at "} {
				value = strings.TrimPrefix(value, head)
			}
			between := func(open, closed string) bool {
				return strings.HasPrefix(value, open) && strings.HasSuffix(value, closed)
			}
			require.True(t, between(`"`, `"`) || between("[", "]") || !strings.ContainsAny(value, " \",[]"), said)
			require.NotContains(t, said, "  ", "some surfaces show two spaces as one")
		}
	}
}

// Terms that differ have sentences that differ, in each language, but for what the card
// shows itself: the request and the tool's definition.
func TestSentencesDiffer(t *testing.T) {
	part := rapid.OneOf(
		rapid.SampledFrom(hostileTargets), rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune(`ax/*?[]{}\" ,.-"in`))),
		rapid.SampledFrom([]string{
			"x", "/x", `/\x`, `["x"]`, "x in personal", "exec_cmd", "http_request", "custom:x", "https://x", "http://x",
		}),
	)
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string) (approval.Terms, string) {
			x := terms(func(t *approval.Terms) {
				t.Form = rapid.SampledFrom([]string{grant.Tool, grant.Target, grant.Command, grant.Action}).Draw(rt, name+" form")
				t.Tool = rapid.SampledFrom([]string{"x_post", "fetch"}).Draw(rt, name+" tool")
				t.ClientID = rapid.SampledFrom([]string{"ws:personal", "ws:other", "5f"}).Draw(rt, name+" client")
				switch t.Form {
				case grant.Target:
					t.TargetKind = rapid.SampledFrom([]string{"exact", "host", "path_glob"}).Draw(rt, name+" kind")
					t.Target = part.Draw(rt, name+" target")
					if t.TargetKind == "host" {
						t.Target = "https://" + t.Target
					}
				case grant.Command:
					t.Words = rapid.SliceOfN(part, 1, 3).Draw(rt, name+" words")
				case grant.Action:
					t.Tool, t.ActionType = "", part.Draw(rt, name+" action")
				}
			})
			if path, literal := literalPath(x.Target); literal && x.TargetKind == "path_glob" {
				return x, "path " + path // an escaped letter is that letter
			}
			return x, strings.Join(append([]string{x.TargetKind, x.Target, x.ActionType}, x.Words...), "\x00")
		}
		a, what := draw("one")
		b, other := draw("another")
		same := what == other && a.Form == b.Form && a.Tool == b.Tool && a.ClientID == b.ClientID
		for _, lang := range Languages() {
			said := func(x approval.Terms) string { return Style{Language: lang}.Offer(offered(x), approval.Always) }
			require.Equal(rt, same, said(a) == said(b), "%+v\n%+v", a, b)
		}
	})
}

// No mask hides a part of a target: what would be masked or withheld is not offered, by a
// line of the menu, a code or a button.
func TestNoMaskInTheSentence(t *testing.T) {
	x := exactTerms("x.com/hunter2")
	p := offered(x)
	p.Offers[0].Would, p.Offers[0].Of = 1, 2
	p.Summary, p.RequestData, p.Target = "post", approval.Raw(`{"text":"hunter2"}`), x.Target
	for name, redact := range map[string]Redactor{"masked": secretWords{"hunter2"}, "withheld": withholder("hunter2")} {
		s := Style{Redact: redact}
		require.Empty(t, s.Offer(p, approval.Always), name)
		c := s.Card(p)
		require.NotContains(t, c.String(), "Always", name)
		require.Contains(t, strings.Join(c.Why, "\n"), "6 is not possible here: it would name what looks like a secret", name)
		w := approval.StoredPending{Pending: p, SHA256: "sha"}
		d := &fakeGate{waiting: []approval.StoredPending{w}}
		ic := &Interceptor{Decider: d, Viewer: d, Redact: redact}
		r := ic.Handle(t.Context(), Message{Text: "6", Card: &w, From: ann, Workspaces: []string{"personal"}})
		require.False(t, r.Acted, name)
		require.Empty(t, d.asked, name)
		require.Contains(t, r.Text, "6 is not possible here", name)
		require.NotContains(t, r.Text+strings.Join(c.Why, ""), "hunter2", name)
	}
	require.Equal(t, "Always: x_post to x.com/hunter2 in personal, 90 days",
		Style{Redact: withholder("hunter2"), Local: true}.Offer(p, approval.Always), "on this host nothing is withheld")
	listed := Style{Redact: secretWords{"hunter2"}}.Grant(&grant.Grant{ID: cardID, Terms: x})
	require.Contains(t, listed, "x.com/‹token, 7 characters›", "no person consents to a list")
}

// withholder is a Redactor that withholds each value with a word.
type withholder string

func (x withholder) For(*approval.Pending) Redactor { return x }
func (withholder) Tokens(string) []Span             { return nil }
func (x withholder) Secrets(text string) []Span     { return secretWords{string(x)}.Secrets(text) }
func (withholder) Unmaskable() []string             { return nil }

func (x withholder) Withheld(value string) string {
	if strings.Contains(value, string(x)) {
		return "private-key"
	}
	return ""
}

// A long sentence is cut only on a card that must not be approved.
func TestLongSentenceOnACutCard(t *testing.T) {
	c := Style{}.Card(offered(exactTerms(strings.Repeat("y", 9000))))
	require.Contains(t, c.String(), strings.Repeat("y", 9000))
	text, all := c.Text(4096)
	require.False(t, all)
	require.LessOrEqual(t, Units(text), 4096)
}

// On this host the card leads to two things: what Always gives, and a rule.
func TestProposeRule(t *testing.T) {
	const line = "Propose a rule: permesso rule add --from a7f3b2c1"
	card := waiting(refuse(approval.Because("no_target"), approval.Always))
	card.Pending.Ruling.Reasons = texts("careful")
	says := func(text string, local bool) string {
		d := &fakeGate{waiting: []approval.StoredPending{card}}
		ic := &Interceptor{Decider: d, Viewer: d, Local: local}
		return ic.Handle(t.Context(), Message{Text: text, Card: &card, From: ann, Workspaces: []string{"personal"}}).Text
	}
	require.True(t, strings.HasSuffix(says("?", true), "\n"+line), says("?", true))
	require.True(t, strings.HasSuffix(says("6", true), "\n"+line), says("6", true))
	require.NotContains(t, says("?", false)+says("6", false), "rule add", "only where there is a command line")
	require.Empty(t, Style{Local: true}.ProposeRule(example(question)))
	require.Empty(t, Style{Local: true}.ProposeRule(example(release(`{}`))), "a rule names a tool")
	for _, code := range noRuleLifts {
		p := example()
		p.Ruling.Reasons = append(p.Ruling.Reasons, approval.Because(code))
		require.Contains(t, approval.ReasonCodes(), code)
		require.Empty(t, Style{Local: true}.ProposeRule(p), "no rule lifts that: "+code)
	}
	unlisted := example()
	unlisted.Runs.Unlisted = true
	require.Empty(t, Style{Local: true}.ProposeRule(unlisted), "no rule allows what no table declares")
	said := Style{Local: true, Language: "it"}.ProposeRule(example())
	require.Equal(t, "Proponi una regola: permesso rule add --from a7f3b2c1", said)
}
