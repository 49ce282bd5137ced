package email

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

var update = flag.Bool("update", false, "rewrite the golden emails")

// preParts match the parts of the HTML that contain text by the agent.
var preParts = regexp.MustCompile(`(?s)<pre.*?</pre>`)

// Forged text of an agent appears only in its quotation or in the payload, in both
// parts of the email, and never as markup.
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
		m := &cardMail{pending: p, style: chat.Style{}, texts: textsFor("en")}
		letter, err := m.render()
		require.NoError(t, err)
		require.True(t, letter.Complete)
		text, page := letter.Text()+"\n", letter.Page
		got := headline(m.style, p) + "\n\n" + text + "\n" + page
		file := filepath.Join("..", "..", "testdata", "forged", name+".email.txt")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), got, file)
		require.NotContains(t, page, "<b>")
		for line := range strings.SplitSeq(text, "\n") {
			require.NotRegexp(t, `^(✔|Verified|Unknown: nothing|pre-approved)`, line, name)
		}
		require.NotRegexp(t, `>(✔|Verified|Unknown: nothing|pre-approved)`, preParts.ReplaceAllString(page, ""), name)
	}
}
