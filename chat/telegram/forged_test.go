package telegram

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-telegram/bot/models"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
)

var update = flag.Bool("update", false, "write the golden messages anew")

// Text that an agent forged stays in its quotation or in the payload.
func TestForgedEvidence(t *testing.T) {
	samples, err := filepath.Glob(filepath.Join("..", "..", "testdata", "forged", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, samples)
	for _, file := range samples {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		p, err := approval.ParsePending(b, approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"})
		require.NoError(t, err, name)
		msg := newShown(deliver.Card(chat.Style{}, p, nil, maxText, false))
		got, err := json.MarshalIndent(map[string]any{"text": strings.Split(msg.text, "\n"), "entities": msg.entities}, "", " ")
		require.NoError(t, err)
		file := filepath.Join("..", "..", "testdata", "forged", name+".telegram.txt")
		if *update {
			require.NoError(t, os.WriteFile(file, append(got, '\n'), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got)+"\n", file)
		for line := range strings.SplitSeq(ours(msg), "\n") {
			require.NotRegexp(t, `^(│|✔|Verified|Unknown: nothing|pre-approved)`, line, name)
		}
	}
}

// ours is the text of a message outside of its quotations and its payload.
func ours(msg shown) string {
	u := utf16.Encode([]rune(msg.text))
	for _, m := range msg.entities {
		if m.Type == block || m.Type == quote || m.Type == models.MessageEntityTypeExpandableBlockquote {
			for i := m.Offset; i < m.Offset+m.Length; i++ {
				u[i] = ' '
			}
		}
	}
	return string(utf16.Decode(u))
}
