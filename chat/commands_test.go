package chat

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The words of every language are commands in each chat, but only in the exact forms.
func TestParseCommandsInItalian(t *testing.T) {
	for text, want := range map[string]Command{
		"approva a7f3b2c1":               {Kind: Approve, ID: "a7f3b2c1"},
		"@permesso_bot Approva A7F3":     {Kind: Approve, ID: "a7f3"},
		"nega a7f3b2c1":                  {Kind: Deny, ID: "a7f3b2c1"},
		"nega a7f3b2c1 troppo presto":    {Kind: Deny, ID: "a7f3b2c1", Text: "troppo presto"},
		"rifiuta a7f3b2c1":               {Kind: Deny, ID: "a7f3b2c1"},
		"annulla a7f3b2c1":               {Kind: Undo, ID: "a7f3b2c1"},
		"revoca a7f3":                    {Kind: Undo, ID: "a7f3"},
		"@permesso_bot in attesa":        {Kind: Pending},
		"in attesa":                      {},
		"in attesa di Bob":               {},
		"approva a7f3b2c1 pure":          {Kind: Unclear},
		"approva a7f3b2c1? no":           {Kind: Unclear},
		"approva\na7f3b2c1":              {Kind: Unclear},
		"approva a7f":                    {Kind: Unclear, Problem: idTooShort},
		"approva":                        {Kind: Unclear},
		"approva pure domani":            {},
		"@permesso_bot approva il piano": {Kind: Unclear},
		"nega che sia vero":              {},
		"annulla tutto":                  {},
		"annulla a7f3b2c1, per favore":   {Kind: Unclear},
		"approvato a7f3b2c1":             {},
		"approva\u00a0a7f3b2c1":          {},
		"\u0430pprova a7f3b2c1":          {},
	} {
		require.Equal(t, want, Parse(text, noCard), "%q", text)
	}
	require.Equal(t, Command{Kind: Deny, ID: "a7f3", Text: "no"}, Parse("nega a7f3 no", askCard), "names the card")
	require.Equal(t, Command{Kind: Unclear, Problem: otherCard}, Parse("annulla beef", actionCard))
	require.Equal(t, Command{Kind: Free, Text: "approva beef"}, Parse("approva beef", askCard), "an answer")
}

// No words mean two commands, of whatever languages, and every command has words in each language.
func TestCommandWordsAreUnique(t *testing.T) {
	means := map[string]string{}
	for _, language := range Languages() {
		for command, words := range catalog(language).CommandWords {
			require.NotEmpty(t, words, "%s %s", language, command)
			for phrase := range words {
				require.Contains(t, []string{"", command}, means[phrase], phrase)
				means[phrase] = command
			}
		}
	}
	for phrase, want := range means {
		command, rest, _ := CutCommand(phrase + " a7f3 no")
		require.Equal(t, []string{want, "a7f3 no"}, []string{command, rest}, phrase)
	}
}

// A language tells people to begin with one and the same word of the grammar.
func TestAgentIsNamedInOneWay(t *testing.T) {
	told := regexp.MustCompile(`\? (agent\p{L}*,)`)
	for language, word := range map[string]string{"en": "agent,", "it": "agente,"} {
		n := 0
		for key, text := range flatten(t, "", parseMessages(t, embedded, language)) {
			for _, found := range told.FindAllStringSubmatch(*text, -1) {
				n++
				require.Equal(t, word, found[1], "%s %s", language, key)
			}
		}
		require.Greater(t, n, 1, language)
		require.True(t, Parse("? "+word+" why", actionCard).ToAgent)
	}
}
