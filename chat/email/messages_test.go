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

// Every language has every text, with the same placeholders.
func TestCatalogs(t *testing.T) {
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

// Our own emails decide nothing if they come back from an approver, with a valid token
// and without the fields that mark them as automatic.
func TestOwnEmailsDecideNothing(t *testing.T) {
	for _, language := range []string{"en", "it"} {
		w := newRig(t)
		w.people["home"][0].Language = language
		k := w.addPending("home", id1, longLived)
		ask := w.addPending("home", "00000000000000aa", longLived, func(p *approval.Pending) {
			p.Type, p.Options, p.Agent.Title = approval.TypeQuestion, []string{"1", "main"}, "Which?"
		})
		var card parsedEmail
		ours := w.runAndTakeSent()
		require.Len(t, ours, 2)
		for _, m := range ours {
			if o := parseEmail(t, m); strings.Contains(o.subject, k.ID) {
				card = o
			}
		}
		for _, text := range []string{"hm", "2 x", "4", "pending", "?"} {
			_, answers := w.deliver(replyTo(card, annMail, text))
			ours = append(ours, answers...)
		}
		require.Greater(t, len(ours), 5)
		w.Prover = annVerifier{}
		for i, m := range ours {
			raw := asReplyFromAnn(ownMarks.ReplaceAll(m.raw, nil), card)
			taken, _ := w.deliver(Incoming{Name: string(rune('a' + i)), Raw: withCRLF(raw)})
			require.NotEqual(t, Decided, taken.Status, string(raw))
			text := replyTo(card, annMail, parseEmail(t, m).text)
			taken, _ = w.deliver(text)
			require.NotEqual(t, Decided, taken.Status, string(text.Raw))
		}
		require.Nil(t, w.decision(k))
		require.Nil(t, w.decision(ask))
	}
}
