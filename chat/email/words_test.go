package email

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// Every language says everything, with the same gaps to be filled.
func TestWordsOfEveryLanguage(t *testing.T) {
	gaps := func(v reflect.Value) []string {
		found := regexp.MustCompile(`\{[a-z]+\}`).FindAllString(v.String(), -1)
		slices.Sort(found)
		return found
	}
	en, it := reflect.ValueOf(*english()), reflect.ValueOf(*italian())
	for i := range en.NumField() {
		name := en.Type().Field(i).Name
		if en.Field(i).Kind() == reflect.Map {
			require.Equal(t, en.Field(i).Len(), it.Field(i).Len(), name)
			continue
		}
		require.NotEmpty(t, en.Field(i).String(), name)
		require.NotEmpty(t, it.Field(i).String(), name)
		require.Equal(t, gaps(en.Field(i)), gaps(it.Field(i)), name)
	}
}

var ownMarks = regexp.MustCompile(`(?im)^(auto-submitted|x-auto-response-suppress):.*\r?\n`)

// What we write ourselves decides nothing when it comes back from an approver,
// with a live token and without any mark that it is ours.
func TestOurOwnWordsDecideNothing(t *testing.T) {
	for _, language := range []string{"en", "it"} {
		w := newWorld(t)
		w.people["home"][0].Language = language
		k := w.asks("home", id1, lasting)
		ask := w.asks("home", "00000000000000aa", lasting, func(p *approval.Pending) {
			p.Type, p.Options, p.Agent.Title = approval.TypeQuestion, []string{"1", "main"}, "Which?"
		})
		var card opened
		ours := w.looks()
		require.Len(t, ours, 2)
		for _, m := range ours {
			if o := open1(t, m); strings.Contains(o.subject, k.ID) {
				card = o
			}
		}
		for _, text := range []string{"hm", "2 x", "4", "pending", "?"} {
			_, answers := w.takes(letterTo(card, annMail, text))
			ours = append(ours, answers...)
		}
		require.Greater(t, len(ours), 5)
		w.Prover = believed{}
		for i, m := range ours {
			raw := readdressed(ownMarks.ReplaceAll(m.raw, nil), card)
			taken, _ := w.takes(Incoming{Name: string(rune('a' + i)), Raw: withCRLF(raw)})
			require.NotEqual(t, Decided, taken.Status, string(raw))
			text := letterTo(card, annMail, open1(t, m).text)
			taken, _ = w.takes(text)
			require.NotEqual(t, Decided, taken.Status, string(text.Raw))
		}
		require.Nil(t, w.decided(k))
		require.Nil(t, w.decided(ask))
	}
}
