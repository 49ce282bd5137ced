package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An agent that is started again is not told its prompt again, and goes on with the other arguments.
func TestDeferring(t *testing.T) {
	const asks = "|--output-format|json"
	for _, row := range []struct {
		argv, first, again string
		json               bool
	}{
		{"claude|-p|build it", "claude|-p|build it", "claude|-p", false},
		{"claude|-p|build it|--model|opus", "claude|-p|build it|--model|opus", "claude|-p|--model|opus", false},
		{"claude|--model|opus|--print|build it", "claude|--model|opus|--print|build it", "claude|-p|--model|opus", false},
		{"claude|-p=build it|--verbose", "claude|-p=build it|--verbose", "claude|-p|--verbose", false},
		{"claude|-p|--model|opus", "claude|-p|--model|opus", "claude|-p|--model|opus", false},
		{"claude|-p|x|--output-format|json|--verbose", "claude|-p|x|--verbose", "claude|-p|--verbose", true},
		{"claude|-p|x|--output-format=text", "claude|-p|x", "claude|-p", false},
		{"claude|-p|--resume|9f2d|-c|--model|opus", "claude|-p|--resume|9f2d|-c|--model|opus", "claude|-p|--model|opus", false},
	} {
		first, again, asJSON, err := deferring(strings.Split(row.argv, "|"))
		require.NoError(t, err, row.argv)
		require.Equal(t, row.first+asks, strings.Join(first, "|"), row.argv)
		require.Equal(t, row.again+asks, strings.Join(again, "|"), row.argv)
		require.Equal(t, row.json, asJSON, row.argv)
	}
}
