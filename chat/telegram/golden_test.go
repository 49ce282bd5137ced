package telegram

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-telegram/bot/models"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/cardtest"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// A message of each kind, with marks for its formats and its buttons below.
func TestGoldenMessages(t *testing.T) {
	nonces := map[string]string{
		"1": "n", "2": "n", "3": "n", "4": "n", "5": "n", "6": "n", "7": "n", "?": "n", "why": "n", "all": "n",
		"o1": "n", "o2": "n", "o3": "n", "say": "n",
	}
	style := cardtest.Style(t, false)
	style.Foot = "log 1042 9f3c"
	for _, k := range cardtest.Kinds() {
		has := maps.Clone(nonces)
		if k.Pending.Type == approval.TypeQuestion {
			delete(has, "why")
		}
		if k.Pending.Editable == "" {
			delete(has, approval.CodeEdit)
		}
		msg := deliver.Card(style, k.Pending, has, maxText, false)
		text, entities := layOut(msg)
		require.LessOrEqual(t, len(utf16.Encode([]rune(text))), maxText, k.Name)
		got := marked(text, entities) + "\n"
		for _, row := range msg.Buttons {
			got += "\n"
			for i, b := range row {
				got += strings.Repeat(" ", min(i, 1)) + "( " + b.Text + " )"
			}
		}
		cardtest.Golden(t, "telegram_"+k.Name+".txt", got)
	}
}

// In a preview the question is followed by the object within the first 40 characters.
func TestPreviewOfKinds(t *testing.T) {
	objects := map[string]string{
		"mail": `"Bo`, "shell": `"cu`, "edit": "/sr", "payment": "125", "post": `"Me`, "question": `"Wh`,
		"json": `"ni`, "long": "han", "release": `"gi`, "call": "npm", "program": "12",
	}
	for _, k := range cardtest.Kinds() {
		for _, language := range []string{"en", "it"} {
			style := cardtest.Style(t, false)
			style.Language = language
			text, _ := layOut(deliver.Card(style, k.Pending, nil, maxText, false))
			require.NotEmpty(t, objects[k.Name], k.Name)
			require.Contains(t, string([]rune(text)[:40]), objects[k.Name], language+" "+k.Name)
		}
	}
}

// marked writes the formats of a text as [bold]…[/bold].
func marked(text string, entities []models.MessageEntity) string {
	units := utf16.Encode([]rune(text))
	var b strings.Builder
	for i := range len(units) + 1 {
		for _, e := range slices.Backward(entities) {
			if e.Offset+e.Length == i {
				fmt.Fprintf(&b, "[/%s]", e.Type)
			}
		}
		for _, e := range entities {
			if e.Offset == i {
				fmt.Fprintf(&b, "[%s]", e.Type)
			}
		}
		if i < len(units) && (i == 0 || !utf16.IsSurrogate(rune(units[i])) || units[i] < 0xdc00) {
			b.WriteString(string(utf16.Decode(units[i:min(i+2, len(units))])[:1]))
		}
	}
	return b.String()
}

// Only the codes, the commands and the foot are folded: never what decides.
func TestNothingThatDecidesIsFolded(t *testing.T) {
	for _, k := range cardtest.Kinds() {
		for _, language := range []string{"en", "it"} {
			style := cardtest.Style(t, false)
			style.Language = language
			card := style.Card(k.Pending)
			text, entities := layOut(deliver.Card(style, k.Pending, nil, maxText, false))
			units, folded := utf16.Encode([]rune(text)), 0
			for _, e := range entities {
				if e.Type != fold {
					continue
				}
				folded++
				for line := range strings.SplitSeq(string(utf16.Decode(units[e.Offset:e.Offset+e.Length])), "\n") {
					require.True(t, line == card.Typed || line == card.Foot || card.ListsCodes(line), "%s: %q", k.Name, line)
				}
				require.Equal(t, len(units), e.Offset+e.Length, "nothing is below")
			}
			require.Equal(t, 1, folded, k.Name)
		}
	}
}

// The README shows a card as a person sees it.
func TestReadmeShowsACard(t *testing.T) {
	style := cardtest.Style(t, false)
	style.Foot = "log 1042 9f3c"
	nonces := map[string]string{"1": "n", "2": "n", "3": "n", "4": "n", "5": "n", "6": "n", "?": "n", "why": "n"}
	for _, k := range cardtest.Kinds() {
		if k.Name != "post" {
			continue
		}
		msg := deliver.Card(style, k.Pending, nonces, maxText, false)
		text, _ := layOut(msg)
		for _, row := range msg.Buttons {
			text += "\n"
			for i, b := range row {
				text += strings.Repeat(" ", min(i, 1)) + "[ " + b.Text + " ]"
			}
		}
		readme, err := os.ReadFile("README.md")
		require.NoError(t, err)
		require.Contains(t, string(readme), "```text\n"+text+"\n```")
	}
}
