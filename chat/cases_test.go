package chat

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// differences lists the cases of earlier public gates, about cards and grammar, in
// which this gate differs, with the reason. Any other case must pass. A listed case
// that passes fails the test.
var differences = map[string]string{
	"command.approval/parse 'approve a7'":         "a prefix has at least four digits; the reply asks for more",
	"command.approval/parse '@pynchy approve a7'": "the same, addressed to the bot",
	"command.approval/parse 'approve zq'":         "an id is hexadecimal, so this is conversation",
	"menu/'1 no wait'":                            "a code with text after it is not guessed",
	"menu/'approve'":                              "as a reply to a card, a word decides, too",
	"menu/'２'":                                    "a full-width digit is a digit",
	"notify/basic":                                "the card has another layout: question, object, meta line, menu",
	"notify/internal fields hidden":               "what is shown is what runs: the handler gets every field of request_data, so every field is shown",
	"notify/value over 100 chars cut":             "the card is what is approved and shows all of it; one-line summaries cut, and count the rest",
}

type sharedCase struct {
	Suite, Name string
	Input       json.RawMessage
	Expected    json.RawMessage
}

func casesOf(t *testing.T, file string, suites ...string) map[string]sharedCase {
	b := sharedSample(t, "cases", file)
	if b == nil {
		return nil
	}
	var doc struct{ Cases []sharedCase }
	require.NoError(t, json.Unmarshal(b, &doc))
	found := map[string]sharedCase{}
	for _, c := range doc.Cases {
		for _, s := range suites {
			if c.Suite == s {
				found[c.Suite+"/"+c.Name] = c
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

// requireCase compares, except for the cases in differences.
func requireCase(t *testing.T, key string, want, got any) {
	t.Helper()
	if why, ok := differences[key]; ok {
		require.NotEqual(t, want, got, "%s: does not differ any more (%s)", key, why)
		return
	}
	require.Equal(t, want, got, key)
}

func TestCasesOfCommands(t *testing.T) {
	for key, c := range casesOf(t, "files-chat-trust.json", "command.approval", "command.pending") {
		var in struct{ Text string }
		require.NoError(t, json.Unmarshal(c.Input, &in))
		cmd := Parse(in.Text, Context{Bots: []string{"pynchy"}})
		if c.Suite == "command.pending" {
			var want struct{ Result bool }
			require.NoError(t, json.Unmarshal(c.Expected, &want))
			requireCase(t, key, want.Result, cmd.Kind == Pending)
			continue
		}
		var want struct{ Result []string }
		require.NoError(t, json.Unmarshal(c.Expected, &want))
		var got []string
		if cmd.Kind == Approve || cmd.Kind == Deny {
			got = strings.Fields(cmd.String())
		}
		requireCase(t, key, want.Result, got)
	}
}

func TestCasesOfTheMenu(t *testing.T) {
	type result struct{ Code, Note, Override, Error string }
	for key, c := range casesOf(t, "rest-menu-email.json", "menu") {
		var in struct{ Text string }
		var want result
		require.NoError(t, json.Unmarshal(c.Input, &in))
		require.NoError(t, json.Unmarshal(c.Expected, &want))
		cmd := Parse(in.Text, Context{Reply: true, Type: approval.TypeAction, ID: cardID})
		got := result{Code: cmd.Code}
		switch {
		case cmd.Kind == Unclear && want.Error != "":
			got = result{Error: want.Error} // any refusal is accepted, the sentences differ
		case cmd.Kind == Unclear:
			got = result{Error: "unclear"}
		case cmd.Code == "4":
			got.Note = cmd.Text
		case cmd.Code == "5":
			got.Override = cmd.Text
		}
		requireCase(t, key, want, got)
	}
}

func TestCasesOfReplies(t *testing.T) {
	for key, c := range casesOf(t, "rest-menu-email.json", "integration", "e2e") {
		var in struct{ Reply string }
		var want struct {
			Decision struct{ Code, Note, Override string }
		}
		require.NoError(t, json.Unmarshal(c.Input, &in))
		require.NoError(t, json.Unmarshal(c.Expected, &want))
		d, card := &fakeGate{}, waiting()
		require.True(t, handle(d, Message{Text: in.Reply, Card: &card}).Acted, key)
		got := d.asked[0]
		require.Equal(t, []string{want.Decision.Code, want.Decision.Note, want.Decision.Override}, []string{got.Code, got.Note, got.Override}, key)
		// Code 5 differs: nothing ran, so it is not approved.
		require.Equal(t, got.Code == "4", got.Verdict == approval.Approved, key)
	}
}

func TestCasesOfCards(t *testing.T) {
	checks := map[string]func(t *testing.T, c sharedCase) (want, got any){
		"notify/basic": func(t *testing.T, c sharedCase) (any, any) {
			card := Style{}.Card(example(func(p *approval.Pending) { p.RequestData = approval.Raw(`{"text":"Hello world"}`) })).String()
			for _, part := range []string{"🔐 May I post?", "x_post", "text: Hello world", "→ approve a7f3b2c1  /  deny a7f3b2c1"} {
				require.Contains(t, card, part, "the same facts")
			}
			return expected(t, c, "text"), card
		},
		"notify/internal fields hidden": func(t *testing.T, c sharedCase) (any, any) {
			var in struct{ Data json.RawMessage }
			require.NoError(t, json.Unmarshal(c.Input, &in))
			card := Style{}.Card(example(func(p *approval.Pending) { p.RequestData = approval.Raw(in.Data) })).String()
			for _, all := range []string{"text: visible", "type: service:x_post", "request_id: secret-id", "source_group: grp", "_x: hidden"} {
				require.Contains(t, card, all)
			}
			return false, strings.Contains(card, "hidden")
		},
		"notify/value over 100 chars cut": func(t *testing.T, _ sharedCase) (any, any) {
			p := example(func(p *approval.Pending) {
				p.RequestData, p.Summary, p.Target = approval.Raw(`{"body":"`+strings.Repeat("x", 200)+`"}`), "", ""
			})
			require.Contains(t, Style{}.Line(p), "body: "+strings.Repeat("x", 100)+"… [100 more chars]")
			return false, strings.Contains(Style{}.Card(p).String(), strings.Repeat("x", 200))
		},
		"notify/no data": func(*testing.T, sharedCase) (any, any) {
			card := Style{}.Card(example(func(p *approval.Pending) { p.RequestData = approval.Raw(`{}`) }))
			return []string{"(no details)"}, runsOf(card)
		},
		"pending/none": func(t *testing.T, c sharedCase) (any, any) {
			return expected(t, c, "broadcast"), handle(&fakeGate{}, Message{Text: "pending"}).Text
		},
	}
	cases := casesOf(t, "files-chat-trust.json", "notify", "pending")
	for key, c := range cases {
		check, ok := checks[key]
		require.True(t, ok, "no check for %s", key)
		want, got := check(t, c)
		requireCase(t, key, want, got)
	}
}

func expected(t *testing.T, c sharedCase, name string) string {
	var m map[string]string
	require.NoError(t, json.Unmarshal(c.Expected, &m))
	return m[name]
}

func TestCasesOfForms(t *testing.T) {
	b := sharedSample(t, "cases", "policy-grants-cards.json")
	if b == nil {
		return
	}
	var doc struct {
		CardStrings map[string]json.RawMessage `json:"card_strings"`
		Cases       []struct{ Name, Input, Expect string }
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	facts := func(n int, territory string) []string {
		return headOf(Style{}.Card(example(times(n), func(p *approval.Pending) { p.Territory = territory })))
	}
	// The marker is [territory: …]. The short form starts with a capital letter.
	// Every form is followed by payload, prose, menu and commands.
	known := map[string]func(){
		"card.full_permanent": func() {
			require.Len(t, facts(0, "permanent"), 3)
			require.True(t, strings.HasSuffix(facts(0, "permanent")[2], "[territory: permanent]"), "at the end of the third line")
		},
		"card.medium": func() {
			require.Len(t, facts(4, ""), 2)
			require.Regexp(t, `^🔐 May I post\? \(irreversible \| class: .*\)$`, facts(4, "")[0])
		},
		"card.short": func() {
			require.Len(t, facts(10, ""), 1)
			require.Regexp(t, `^🔐 Post .* \[irreversible \| class: .*\]$`, facts(10, "")[0])
		},
	}
	for _, c := range doc.Cases {
		if strings.HasPrefix(c.Name, "card.") {
			require.Contains(t, known, c.Name)
			known[c.Name]()
		}
	}
	for _, lang := range Languages() {
		w := catalog(lang)
		var s struct {
			Question, Meta string
			Rev            []string
		}
		require.NoError(t, json.Unmarshal(doc.CardStrings[lang], &s))
		require.Equal(t, []string{w.Reversible, w.Irreversible, w.Partial}, s.Rev)
		require.Contains(t, s.Meta, "| "+w.Class+": ", "reversibility, bar, class")
		if lang == "it" {
			require.Equal(t, strings.Replace(w.MayI, "verb", "action", 1), s.Question)
		} else {
			require.Equal(t, "May I {verb}?", w.MayI, "the predecessor wrote %s", s.Question)
		}
	}
}

// The cards of an earlier service with proofs. ipc/httpapi tests its server.
func TestCasesOfTheProofService(t *testing.T) {
	b := sharedSample(t, "cases", "dialog-receipts.json")
	var doc struct{ Cases []struct{ Name string } }
	if b != nil {
		require.NoError(t, json.Unmarshal(b, &doc))
	}
	var names []string
	for _, c := range doc.Cases {
		names = append(names, c.Name)
	}
	known := map[string]func(){
		"service.ui_list_and_detail": func() {
			card := Style{}.Card(example(proven)).String()
			for _, part := range []string{"🔐 May I post?", `"every recipient is in [bob@example.com]"`, "Verified by ci", "3 deny"} {
				require.Contains(t, card, part)
			}
			require.Equal(t, "No pending approvals.", handle(&fakeGate{}, Message{Text: "pending"}).Text)
		},
		"service.ui_coverage_order": func() {
			p := example(func(p *approval.Pending) {
				p.Facts.Proof = &approval.Proof{Verified: true, Prover: "ci", Coverage: []approval.ProofCoverage{
					{Domain: "email", Status: facts.RecommendedGap}, {Domain: "db", Status: facts.SilentGap},
				}}
			})
			require.Contains(t, Style{}.Card(p).String(), "Unknown: database; mail; ", "the silent gap first")
			p.Facts.Proof.Coverage[0].Status, p.Facts.Proof.Coverage[1].Status = facts.SilentGap, facts.RecommendedGap
			require.Contains(t, Style{}.Card(p).String(), "Unknown: mail; database; ")
		},
	}
	for name, check := range known {
		require.True(t, b == nil || slices.Contains(names, name), name)
		check()
	}
}

func TestEveryDifferenceNamesACase(t *testing.T) {
	known := casesOf(t, "files-chat-trust.json", "command.approval", "command.pending", "notify", "pending")
	for key := range differences {
		_, here := known[key]
		_, there := casesOf(t, "rest-menu-email.json", "menu")[key]
		require.True(t, here || there || known == nil, key)
	}
}
