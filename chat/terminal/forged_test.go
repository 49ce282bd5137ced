package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// replyLine is how a question is answered elsewhere.
const replyLine = "reply to this message with a number or with your own answer"

// Forged evidence is shown as the agent's text: the card equals the golden file, and
// the agent's text is dim if color is on.
func TestForgedEvidence(t *testing.T) {
	samples, err := filepath.Glob(filepath.Join("..", "..", "testdata", "forged", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, samples)
	for _, file := range samples {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		p, err := approval.ParsePending(b, approval.Key{Workspace: "personal", ID: first})
		require.NoError(t, err, file)
		want, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".en.txt")
		require.NoError(t, err)
		for _, color := range []bool{false, true} {
			var out bytes.Buffer
			v := (&Channel{Out: &out, Color: color}).newView()
			v.card(approval.StoredPending{Pending: p})
			v.flush()
			got := out.String()
			if color {
				for _, l := range v.style.Card(p).Prose {
					require.Contains(t, got, "\x1b[2m"+l+"\x1b[0m\n", file)
				}
				continue
			}
			there := strings.Replace(string(want), replyLine, v.messages.Answer, 1)
			require.Equal(t, "\n"+there, got, file)
		}
	}
}
