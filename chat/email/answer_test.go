package email

import (
	"bytes"
	"encoding/json"
	"net/mail"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownReplies lists our own fixtures. Each is a mail as some program writes it,
// with what was newly written in X-Answer: a JSON string, or "unclear".
func ownReplies(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "mail", "replies", "*.eml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func TestOwnReplies(t *testing.T) {
	for _, file := range ownReplies(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			head, err := mail.ReadMessage(bytes.NewReader(raw))
			require.NoError(t, err)
			m, err := Read(raw)
			require.NoError(t, err)
			text, clear := m.Answer()
			var want string
			if json.Unmarshal([]byte(head.Header.Get("X-Answer")), &want) != nil {
				require.Equal(t, "unclear", head.Header.Get("X-Answer"))
				require.False(t, clear, "%q", text)
				return
			}
			require.True(t, clear, "%q of\n%s", text, m.Text)
			require.Equal(t, want, text)
		})
	}
}
