package gate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

func TestAnswerResult(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `{"answer":""}`},
		{"five\n", `{"answer":"five\n"}`},
		{`"},"status":"approved`, `{"answer":"\"},\"status\":\"approved"}`},
		{"<a href=\"x\">&</a>", `{"answer":"<a href=\"x\">&</a>"}`},
		{"caff\xe8", `{"answer":"caff` + "\ufffd" + `"}`},
		{"\x00\x1b[2J", `{"answer":"\u0000\u001b[2J"}`},
	} {
		got := answerResult(c.text)
		require.Equal(t, c.want, string(got))
		require.NoError(t, codec.Decode(got, new(approval.Raw)))
	}
}
