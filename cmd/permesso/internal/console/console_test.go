package console

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgressEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	step := (&Console{}).Progress(ctx, "pruning")
	require.NoError(t, step())
	cancel()
	require.ErrorIs(t, step(), context.Canceled)
}
