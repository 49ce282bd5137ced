package chat

import (
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

var fieldLine = regexp.MustCompile(`^[A-Za-z0-9_.-]+:`)

func TestCatalogsHaveTheSamePlaceholders(t *testing.T) {
	for _, lang := range Languages()[1:] {
		requireSame(t, lang, reflect.ValueOf(*english()), reflect.ValueOf(*catalog(lang)))
	}
}

func requireSame(t *testing.T, lang string, en, other reflect.Value) {
	t.Helper()
	for i := range en.NumField() {
		name := en.Type().Field(i).Name
		switch en.Field(i).Kind() {
		case reflect.Map:
			require.Equal(t, sorted(en.Field(i)), sorted(other.Field(i)), "%s.%s", lang, name)
			continue
		case reflect.Struct:
			requireSame(t, lang, en.Field(i), other.Field(i))
			continue
		}
		a, b := en.Field(i).String(), other.Field(i).String()
		require.NotEmpty(t, a, name)
		require.NotEmpty(t, b, "%s.%s", lang, name)
		require.Equal(t, names(a), names(b), "%s.%s", lang, name)
	}
}

func sorted(m reflect.Value) []string {
	var keys []string
	for _, k := range m.MapKeys() {
		keys = append(keys, k.String())
	}
	slices.Sort(keys)
	return keys
}

func names(s string) []string {
	found := placeholder.FindAllString(s, -1)
	slices.Sort(found)
	return found
}

func TestCatalogsHaveEveryStatus(t *testing.T) {
	for _, lang := range Languages() {
		for _, s := range []approval.Status{
			approval.StatusApproved, approval.StatusAutoApproved, approval.StatusDenied, approval.StatusAutoRejected,
			approval.StatusExpired, approval.StatusCancelled, approval.StatusRequestMore, approval.StatusOverridden,
			approval.StatusAnswered, approval.StatusFailed, approval.StatusInterrupted, approval.StatusMalformed,
		} {
			require.Contains(t, catalog(lang).verdicts, string(s))
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
	require.Equal(t, "May I {verb}?", format("May I {verb}?", "verb", "{verb}"), "the value is not expanded again")
	require.Equal(t, "{id} b", format("{a} {b}", "a", "{id}", "b", "b"))
}
