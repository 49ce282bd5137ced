package cardtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

// The requests are those that the gate would take.
func TestKinds(t *testing.T) {
	ids := map[string]bool{}
	for _, k := range cardtest.Kinds() {
		fields, err := codec.Fields(k.Pending.RequestData)
		require.NoError(t, err, k.Name)
		for _, f := range fields {
			if text, _ := f.Text(); k.Pending.ObjectSize != nil && int64(len(text)) > *k.Pending.ObjectSize {
				require.Failf(t, "the size is not the object's", "%s: %d", k.Name, len(text))
			}
		}
		ids[k.Pending.ShortID] = true
	}
	require.Len(t, ids, 11)
}
