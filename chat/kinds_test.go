package chat_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

// A card of each kind, in each language.
func TestGoldenKinds(t *testing.T) {
	for _, k := range cardtest.Kinds() {
		for _, lang := range []string{"en", "it"} {
			got := chat.Style{Language: lang, Foot: "log 1042 9f3c"}.Card(k.Pending).String() + "\n"
			file := filepath.Join("..", "testdata", "chat", "kind_"+k.Name+"."+lang+".txt")
			if flag.Lookup("update").Value.String() == "true" {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got, file)
		}
	}
}
