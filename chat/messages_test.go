package chat

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/messagestest"
)

var fieldLine = regexp.MustCompile(`^[A-Za-z0-9_.-]+:`)

func TestEveryKeyIsReadAndWritten(t *testing.T) {
	messagestest.RequireKeys[messages](t, "messages", "card")
	messagestest.RequireKeys[noticeMessages](t, "messages", "notice")
	tables := slices.Sorted(maps.Keys(parseMessages(t, embedded, defaultLanguage)))
	require.Equal(t, []string{"card", "deliver", "email", "notice", "telegram", "telegram_setup", "terminal", "tui", "tui_pages", "web"}, tables, "each is tested by its package")
}

func TestLanguagesHaveTheSameMessages(t *testing.T) {
	require.Equal(t, []string{"en", "it"}, Languages())
	require.Empty(t, languageDifferences(t, embedded))
}

func TestLanguageDifferencesAreFound(t *testing.T) {
	require.Equal(t, []string{
		"en a.e is empty",
		"it a.b differs in its placeholders",
		"it a.c is missing",
		"it a.d is not a text",
		"it a.f is not English",
		"it a.m.2 is missing",
		"it a.m.3 is not English",
	}, languageDifferences(t, fstest.MapFS{
		"messages/en.toml": {Data: []byte("[a]\nb = '{x} {y}'\nc = 'c'\nd = 'd'\ne = ''\n[a.m]\n1 = '1'\n2 = '2'\n")},
		"messages/it.toml": {Data: []byte("[a]\nb = '{y} {z}'\nd = 1\ne = 'e'\nf = 'f'\n[a.m]\n1 = '1'\n3 = '3'\n")},
	}))
}

// languageDifferences compares every language with English.
func languageDifferences(t *testing.T, files fs.FS) (found []string) {
	english := flatten(t, "", parseMessages(t, files, defaultLanguage))
	for _, language := range (&catalogs{files: files}).languages() {
		other := flatten(t, "", parseMessages(t, files, language))
		for key, text := range other {
			switch of, known := english[key]; {
			case !known:
				found = append(found, language+" "+key+" is not English")
			case text == nil:
				found = append(found, language+" "+key+" is not a text")
			case strings.TrimSpace(*text) == "":
				found = append(found, language+" "+key+" is empty")
			case !slices.Equal(names(*text), names(*of)):
				found = append(found, language+" "+key+" differs in its placeholders")
			}
		}
		for key := range english {
			if _, ok := other[key]; !ok {
				found = append(found, language+" "+key+" is missing")
			}
		}
	}
	slices.Sort(found)
	return found
}

func parseMessages(t *testing.T, files fs.FS, language string) (tree map[string]any) {
	text, err := fs.ReadFile(files, "messages/"+language+".toml")
	require.NoError(t, err)
	require.NoError(t, toml.Unmarshal(text, &tree))
	return tree
}

// flatten returns the texts by their path, nil for what is none.
func flatten(t *testing.T, at string, tree map[string]any) map[string]*string {
	all := map[string]*string{}
	for key, value := range tree {
		switch v := value.(type) {
		case map[string]any:
			maps.Copy(all, flatten(t, at+key+".", v))
		case string:
			all[at+key] = &v
		default:
			all[at+key] = nil
		}
	}
	return all
}

func names(s string) []string {
	found := placeholder.FindAllString(s, -1)
	slices.Sort(found)
	return found
}

// What people are told to write decides, whatever they write in its place.
func TestCodesAreToldWithTheirColon(t *testing.T) {
	forms := regexp.MustCompile(`([1-6]:?) <\p{L}+>`)
	for _, language := range Languages() {
		told := 0
		for key, text := range flatten(t, "", parseMessages(t, embedded, language)) {
			for _, form := range forms.FindAllStringSubmatch(*text, -1) {
				told++
				require.Equal(t, Command{Kind: Menu, Code: form[1][:1], Text: "4 days, no?"}, Parse(form[1]+" 4 days, no?", annsCard), "%s %s: %s", language, key, form[0])
			}
		}
		require.Greater(t, told, 8)
	}
}

// A file is enough to add a language. What it lacks is in English.
func TestAFileAddsALanguage(t *testing.T) {
	english, err := fs.ReadFile(embedded, "messages/en.toml")
	require.NoError(t, err)
	marked := regexp.MustCompile(`(?m)^([a-zA-Z_]+) = "([^"])`).ReplaceAllString(string(english), `$1 = "§$2`)
	marked = regexp.MustCompile(`(?m)^(once|denied) = .*\n`).ReplaceAllString(marked, "")
	useMessages(t, fstest.MapFS{
		"messages/en.toml": {Data: english},
		"messages/xx.toml": {Data: []byte(marked)},
		"messages/aa.toml": {Data: []byte("[card]\nmayIUntranslated = 'A: {verb}'\n[later]\nn = 1\n")},
	})
	require.Equal(t, []string{"en", "aa", "xx"}, Languages())
	require.Equal(t, "xx", Language("XX-CH"))

	card := Style{Language: "xx"}.Card(example())
	require.Equal(t, "🔐 §May I? (post)", card.Question)
	require.Contains(t, card.Typed, "§→ approve")
	require.True(t, strings.HasPrefix(card.Menu[0], catalog("en").Choices.Once+" · §"), card.Menu[0])
	w := catalog("xx")
	require.Equal(t, "§approved", w.Verdicts["approved"])
	require.Equal(t, "denied", w.Verdicts["denied"])
	require.Contains(t, Style{Language: "aa"}.Card(example()).String(), "A: post")
	require.Contains(t, Style{}.Card(example()).String(), "May I post?", "English did not change")
	require.Same(t, w, catalog("xx"))
}

// useMessages replaces the messages for one test.
func useMessages(t *testing.T, files fs.FS) {
	before := shipped
	shipped = &catalogs{files: files}
	t.Cleanup(func() { shipped = before })
}

func TestCatalogsHaveEveryStatus(t *testing.T) {
	for _, lang := range Languages() {
		for _, s := range []approval.Status{
			approval.StatusApproved, approval.StatusAutoApproved, approval.StatusDenied, approval.StatusAutoRejected,
			approval.StatusExpired, approval.StatusCancelled, approval.StatusRequestMore, approval.StatusOverridden,
			approval.StatusAnswered, approval.StatusFailed, approval.StatusInterrupted, approval.StatusMalformed,
		} {
			require.Contains(t, catalog(lang).Verdicts, string(s))
		}
	}
}

func TestLanguage(t *testing.T) {
	for tag, want := range map[string]string{
		"": "en", "en": "en", "it": "it", "IT": "it", "it-CH": "it", "it_IT.UTF-8": "it",
		"fr": "en", "italian": "en", "-": "en",
	} {
		require.Equal(t, want, Language(tag), tag)
	}
}

func TestFormatFillsInOnce(t *testing.T) {
	require.Equal(t, "May I {verb}?", Format("May I {verb}?", "verb", "{verb}"), "the value is not expanded again")
	require.Equal(t, "{id} b", Format("{a} {b}", "a", "{id}", "b", "b"))
}
