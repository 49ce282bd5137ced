package approval

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// marshal's own path for strings must give the library's output.
func TestStringEncodingMatchesLibrary(t *testing.T) {
	type doc struct {
		Text string `json:"text"`
	}
	for _, text := range []string{"", "a", "\"\\/\b\f\n\r\t", "\x00\x1f\x7f\u0080\u2028\u2029<>&", "\ufffd\U0010ffff", "\xff", "a\xc3", "\xed\xa0\x80"} {
		requireSameEncoding(t, text, doc{text})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		requireSameEncoding(t, text, doc{text})
	})
}

func requireSameEncoding(t require.TestingT, text string, v any) {
	got, err := marshal(v)
	want, otherErr := json.Marshal(v)
	require.Equal(t, otherErr != nil, err != nil, "%q: %v, %v", text, err, otherErr)
	if err == nil {
		require.Equal(t, string(want), string(got), "%q", text)
	}
}
