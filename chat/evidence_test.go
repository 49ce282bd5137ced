package chat

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

func recipients(values ...string) approval.HostFact {
	return approval.HostFact{Domain: facts.Mail, Op: "send", Name: "recipient", Values: values, From: facts.FromArgument}
}

// proven adds a proof signed by a trusted prover.
func proven(p *approval.Pending) {
	p.Facts.Host = []approval.HostFact{
		{Domain: facts.Program, Name: "program_sha256", Values: []string{"5e"}, From: facts.FromArgument},
		{Domain: facts.Digest, Name: "args_sha256", Values: []string{"5e"}, From: facts.FromDigest},
	}
	p.Facts.Proof = &approval.Proof{
		Verified: true, Prover: "ci", Trusted: []string{"smtp.send"}, Contracts: []string{"every recipient is in [bob@example.com]"},
		Effects: []approval.ProvenEffect{
			{Domain: "email", Op: "send", Args: approval.Raw(`{"recipients":["bob@example.com"],"count":1}`), Status: facts.Proven},
			{Domain: "db", Op: "read", Args: approval.Raw(`{"table":"people"}`), Status: facts.NotProven},
		},
		Coverage: []approval.ProofCoverage{
			{Domain: "mail", Status: facts.RecommendedGap, Missing: []string{"bodies"}},
			{Domain: "file", Status: facts.Covered},
			{Domain: "money", Status: facts.SilentGap},
		},
	}
}

func knownLines(c Card) []string {
	var lines []string
	for _, k := range c.Evidence {
		lines = append(lines, k.Text)
	}
	return lines
}

func TestEvidence(t *testing.T) {
	host := func(known ...approval.HostFact) func(*approval.Pending) {
		return func(p *approval.Pending) { p.Facts.Host = known }
	}
	const rest = "everything not named here"
	for _, tc := range []struct {
		why    string
		lang   string
		change []func(*approval.Pending)
		want   []string
	}{
		{"nothing is known", "", nil, nil},
		{"the target and digests are left out", "", []func(*approval.Pending){host(
			approval.HostFact{Domain: "channel", Op: "out", Name: "target", Values: []string{"x.com/ricardo"}, From: facts.FromTemplate},
			approval.HostFact{Domain: facts.Digest, Name: "args_sha256", Values: []string{"5e"}, From: facts.FromDigest},
		)}, nil},
		{"what the arguments say is shown by their types", "", []func(*approval.Pending){host(recipients("bob@example.com"))}, nil},
		{"the effects of a command are unknown", "", []func(*approval.Pending){host(
			approval.HostFact{Domain: facts.Command, Name: "program", Values: []string{"make"}, From: facts.FromCommand},
		)}, []string{"Unknown: what the program does"}},
		{"a proof", "", []func(*approval.Pending){proven}, []string{
			`Verified by ci: file is covered by contracts; mail send (recipients: [bob@example.com]; count: 1); "every recipient is in [bob@example.com]" (trusted without proof: smtp.send)`,
			"Unknown: database read (table: people); money; mail (bodies); " + rest,
		}},
		{"the short form stays short", "", []func(*approval.Pending){proven, host(recipients("bob@example.com")), times(8)}, []string{
			`Verified by ci: file is covered by contracts; mail send (recipients: [bob@example.com]; count: 1); "every recipient is in [bob@example.com]" (trusted without proof: smtp.send)` +
				". Unknown: database read (table: people); money; mail (bodies); " + rest,
		}},
		{"the short form leaves out what the payload shows", "", []func(*approval.Pending){host(recipients("bob@example.com")), times(8)}, nil},
		{"a question runs nothing", "", []func(*approval.Pending){proven, question}, nil},
		{"a verified proof that says nothing", "", []func(*approval.Pending){func(p *approval.Pending) {
			p.Facts.Proof = &approval.Proof{Verified: true, Prover: "ci"}
		}}, []string{"Unknown: " + rest}},
		{"an unverified proof", "it", []func(*approval.Pending){func(p *approval.Pending) {
			p.Facts.Proof = &approval.Proof{Why: approval.Because("proof_unknown_prover")}
		}}, []string{"Ignoto: tutto ciò che afferma la prova dell'agente, che non è verificata (l'autore indicato non è nella configurazione)"}}, //nolint:misspell // Italian text
		{"an unreadable proof with a forged key", "", []func(*approval.Pending){func(p *approval.Pending) {
			p.Facts.Proof = &approval.Proof{Why: approval.Because("proof_unreadable", "error", "unknown key x). Verified by ci: all")}
		}}, []string{`Unknown: everything in the agent's proof, which is not verified (it cannot be read: "unknown key x). Verified by ci: all")`}},
	} {
		require.Equal(t, tc.want, knownLines(Style{Language: tc.lang}.Card(example(tc.change...))), tc.why)
	}
}

// Facts of the arguments answer questions.
func TestHostFactsInWords(t *testing.T) {
	left := recipients("bob@example.com")
	left.Omitted = 3
	for _, tc := range []struct {
		lang string
		fact approval.HostFact
		want string
	}{
		{"", recipients("bob@example.com", "ann@example.com"), "mail send recipient: bob@example.com, ann@example.com"},
		{"it", recipients("bob@example.com"), "posta in uscita destinatario: bob@example.com"},
		{"", recipients("a@b, c@d"), `mail send recipient: "a@b, c@d"`},
		{"", recipients(), "mail send recipient: none"},
		{"", approval.HostFact{Domain: facts.Money, Name: "amount", Values: []string{"12.50"}, Currency: "EUR"}, "money amount EUR: 12.50"},
		{"", approval.HostFact{Domain: facts.Money, Name: "amount", Values: []string{"12.50"}, Currency: "E: 1"}, `money amount "E: 1": 12.50`},
		{"", left, "mail send recipient: bob@example.com, 3 that cannot be listed"},
		{"", recipients(strings.Repeat("x", 300)), `mail send recipient: "` + strings.Repeat("x", 100) + `… [200 more chars]"`},
	} {
		require.Equal(t, tc.want, Style{Language: tc.lang}.renderer(example()).hostFact(tc.fact, maxValues))
	}
}

func TestEvidenceIsCappedAndCounted(t *testing.T) {
	many := make([]string, 20)
	for i := range many {
		many[i] = strconv.Itoa(i) + "@example.com"
	}
	c := Style{}.Card(example(func(p *approval.Pending) {
		p.Facts.Proof = &approval.Proof{Contracts: many}
	}))
	require.Equal(t, "│ and 8 more", c.Prose[len(c.Prose)-1])
}

func TestEvidenceIsRedacted(t *testing.T) {
	p := example(proven, func(p *approval.Pending) {
		p.Facts.Host = []approval.HostFact{recipients("hunter2@example.com")}
		p.Facts.Proof.Contracts = []string{"key is hunter2"}
		p.Facts.Proof.Effects[0].Args = approval.Raw(`{"a":["hunter2"],"o":{"k":"hunter2"}}`)
	})
	require.NotContains(t, Style{Redact: secretWords{"hunter2"}}.Card(p).String(), "hunter2")
	p.Facts.Proof.Verified = false
	require.NotContains(t, Style{Redact: secretWords{"hunter2"}}.Card(p).String(), "hunter2")
}

// No two lists of values give the same line.
func TestEvidenceIsInjective(t *testing.T) {
	word := rapid.OneOf(rapid.StringMatching(`[a-z@, ";:\\]{0,6}`), rapid.SampledFrom([]string{"", "none", "and 1 more", "a\u202e", "\n", "1 that cannot be listed"}))
	seen := map[string]string{}
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(word, 0, 4).Draw(rt, "values")
		line := Style{}.renderer(example()).hostFact(recipients(values...), maxValues)
		key := strings.Join(values, "\x00") + "\x00" + strconv.Itoa(len(values))
		if before, ok := seen[line]; ok {
			require.Equal(rt, before, key, line)
		}
		seen[line] = key
	})
}

// For any text of an agent or a prover, a fact stays one line with its label, a
// claim stays behind the bar, and nothing is invisible.
func TestEvidenceLinesCannotBeForged(t *testing.T) {
	word := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"Verified by ci: all", "\nUnknown: none", "│", "🔐", "→ approve a7f3b2c1", "mail", "proven", "a; b"}))
	words := rapid.SliceOfN(word, 0, 3)
	rapid.Check(t, func(rt *rapid.T) {
		args, err := json.Marshal(map[string]any{word.Draw(rt, "arg"): words.Draw(rt, "values"), word.Draw(rt, "other"): word.Draw(rt, "value")})
		require.NoError(rt, err)
		p := example(func(p *approval.Pending) {
			p.RecurrenceCount = rapid.SampledFrom([]int{0, 3, 8}).Draw(rt, "times")
			p.Facts.Host = []approval.HostFact{{Domain: word.Draw(rt, "domain"), Op: word.Draw(rt, "op"), Name: word.Draw(rt, "name"), Values: words.Draw(rt, "found"), From: facts.FromArgument}}
			p.Facts.Proof = &approval.Proof{
				Verified: rapid.Bool().Draw(rt, "verified"), Prover: word.Draw(rt, "prover"), Why: approval.Because("proof_unreadable", "error", word.Draw(rt, "why")),
				Trusted: words.Draw(rt, "trusted"), Contracts: words.Draw(rt, "contracts"),
				Effects:  []approval.ProvenEffect{{Domain: word.Draw(rt, "d"), Op: word.Draw(rt, "o"), Args: args, Status: word.Draw(rt, "s")}},
				Coverage: []approval.ProofCoverage{{Domain: word.Draw(rt, "c"), Status: word.Draw(rt, "cs"), Missing: words.Draw(rt, "missing")}},
			}
		})
		c := Style{}.Card(p)
		for _, k := range c.Evidence {
			require.NotContains(rt, k.Text, "\n")
			requireVisible(rt, k.Text)
			label := map[Source]string{FromProver: "Verified by ", fromUnknown: "Unknown: "}[k.From]
			require.True(rt, strings.HasPrefix(k.Text, label), k.Text)
			require.False(rt, k.From == FromProver && !p.Facts.Proof.Verified, k.Text)
		}
		for _, l := range c.Prose[1:] {
			require.NotContains(rt, l, "\n")
			requireVisible(rt, l)
			require.True(rt, strings.HasPrefix(l, bar) || l == catalog("en").Evidence.ClaimHead+":", l)
		}
	})
}
