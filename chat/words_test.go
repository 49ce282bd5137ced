package chat

import (
	"maps"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/messagestest"
)

var annsCard = Context{Reply: true, ID: cardID, Type: approval.TypeAction, Names: []string{"ann"}}

// verdictOf is what a reply to a card would do.
func verdictOf(c Command) string {
	switch {
	case c.Kind == Menu && c.Code == "4":
		return "note"
	case c.Kind == Menu && c.Code == "3", c.Kind == Deny:
		return "deny"
	case c.Kind == Menu && c.Code == "1", c.Kind == Approve:
		return "approve"
	case c.Kind == Question:
		return "question"
	case c.Kind == Unclear:
		return "unclear"
	}
	return "other"
}

// Of the ways to approve or deny at most one of twenty is not understood, and none is misunderstood.
func TestPhrases(t *testing.T) {
	deciding, other := messagestest.Phrases(t, "..")
	var missed []string
	for _, p := range deciding {
		got := verdictOf(Parse(p.Text, annsCard))
		if got == "unclear" {
			missed = append(missed, p.Text)
			continue
		}
		require.Equal(t, p.Verdict, got, "%q", p.Text)
	}
	t.Logf("%d of %d not understood: %q", len(missed), len(deciding), missed)
	require.LessOrEqual(t, len(missed)*20, len(deciding))
	for _, p := range other {
		c := Parse(p.Text, annsCard)
		require.Contains(t, []Kind{Unclear, Question}, c.Kind, "%q: %+v", p.Text, c)
	}
}

// An approval with any word that takes it back, sets a condition or doubts it is none: behind it,
// before it, on the next line, in the same language or another. The order of the maps is random: each run tries others.
func TestWordsThatTakeBack(t *testing.T) {
	n, harmless := 0, map[string]bool{}
	for _, w := range everyReplyWords() {
		for phrase := range merged(w.Approve, w.ApproveVerb, w.Fillers, w.Polite) {
			for word := range strings.FieldsSeq(phrase) {
				harmless[word] = true
			}
		}
		maps.Copy(harmless, w.Manner)
	}
	for _, w := range everyReplyWords() {
		for _, v := range everyReplyWords() {
			for approval := range merged(w.Approve, w.ApproveVerb) {
				for word := range merged(v.Not, v.When, v.Doubts) {
					if harmless[word] {
						continue // without an effect, or part of a phrase that approves
					}
					forms := []string{
						approval + " " + word, approval + ", " + word, approval + ". " + word, approval + "\n" + word, approval + ", but " + word, approval + " ma " + word,
						word + " " + approval, word + ", " + approval, approval + " " + word + " " + approval, approval + " and be " + word, approval + "?",
					}
					n++
					text := forms[n%len(forms)]
					c := Parse(text, annsCard)
					require.NotContains(t, []string{"approve", "note"}, verdictOf(c), "%q: %+v", text, c)
				}
			}
		}
	}
	require.Greater(t, n, 20_000)
}

// A denial with a word that approves is none, unless a colon says that a reason follows.
func TestDenialsThatApprove(t *testing.T) {
	for _, w := range everyReplyWords() {
		for denial := range merged(w.Deny, w.DenyVerb) {
			for approval := range merged(w.Approve, w.ApproveVerb) {
				for _, text := range []string{denial + " " + approval, denial + ", " + approval, denial + ". " + approval, approval + " " + denial, approval + ", " + denial} {
					if !isPhrase(w, text) {
						require.Equal(t, Command{Kind: Unclear}, Parse(text, annsCard), "%q", text)
					}
				}
			}
		}
		for verb := range w.DenyVerb {
			require.Equal(t, Command{Kind: Menu, Code: "3", Text: "ok for Bob"}, Parse(verb+": ok for Bob", annsCard), verb)
		}
	}
}

func isPhrase(w *replyWords, text string) bool {
	words, _ := splitWords(text)
	return w.knows(strings.Join(words, " "))
}

func merged[M ~map[string]bool](sets ...M) M {
	all := M{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}

// No phrase approves in one language and denies in another, and every word can be typed.
func TestPhrasesOfEveryLanguage(t *testing.T) {
	for _, w := range everyReplyWords() {
		for _, v := range everyReplyWords() {
			for phrase := range merged(w.Approve, w.ApproveVerb) {
				require.False(t, v.Deny[phrase] || v.DenyVerb[phrase], phrase)
			}
		}
		for phrase := range merged(w.Approve, w.ApproveVerb, w.Deny, w.DenyVerb, w.Fillers, w.Polite, w.Automatic) {
			words, ok := splitWords(phrase)
			require.True(t, ok && strings.Join(words, " ") == phrase && len(words) <= maxPhrase, phrase)
		}
	}
}

func TestNames(t *testing.T) {
	once := Command{Kind: Menu, Code: "1"}
	for text, want := range map[string]Command{
		"Yes\nAnn": once, "yes, ann": once, "Yes\nAnn!": once, "Yes\nBob": once, "Yes\n— Bob": once, "Yes\nThanks,\nBob Miller": once,
		"Yes\nThanks\nwait": {Kind: Unclear}, "Yes\nThanks\nTomorrow": {Kind: Unclear}, "Yes\n— No": {Kind: Unclear}, "Yes\nBob Miller": {Kind: Unclear}, "Yes\nTom Refused": {Kind: Unclear}, "Yes\nZbyszko": {Kind: Unclear},
		"deny\nBob": {Kind: Menu, Code: "3"}, "deny: ask\nBob": {Kind: Menu, Code: "3", Text: "ask\nBob"}, "yes\nTomorrow\nBob": {Kind: Unclear},
		"deny: too late\nAnn": {Kind: Menu, Code: "3", Text: "too late"}, "deny: too\nlate": {Kind: Menu, Code: "3", Text: "too\nlate"},
	} {
		require.Equal(t, want, Parse(text, annsCard), "%q", text)
	}
	for _, w := range everyReplyWords() {
		for name := range w.GivenNames {
			first, size := utf8.DecodeRuneInString(name)
			require.True(t, w.isName(string(unicode.ToUpper(first))+name[size:], nil, false), "%s has another meaning", name)
			require.False(t, hasWord([]string{name}, beginWords) || hasPhrase(name, approving) || hasPhrase(name, denying), "%s has another meaning", name)
		}
	}
	noName := annsCard
	noName.Names = []string{"no", "ok"}
	require.Equal(t, Command{Kind: Unclear}, Parse("yes no", noName), "a name is not read before the words")
}
