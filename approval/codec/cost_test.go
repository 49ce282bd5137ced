package codec_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/codec"
)

// Costs are added exactly; what cannot be counted is more than any budget.
func TestCost(t *testing.T) {
	for text, want := range map[string]string{
		"5": "5", "12.50": "12.5", "0.1": "0.1", "0.000001": "0.000001", "0.0000001": "0.000001", "007": "7", "0": "0",
		"99999999999999999999": codec.MaxCost.String(),
	} {
		c, ok := codec.ParseCost(text)
		require.True(t, ok, text)
		require.Equal(t, want, c.String(), text)
		b, err := json.Marshal(c)
		require.NoError(t, err)
		var back codec.Cost
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, c, back, text)
	}
	for _, text := range []string{"", "-1", "1e3", "+1", ".5", "5.", "1.2.3", "1,5", "0x10", "NaN", "1_000", "1/3"} {
		c, ok := codec.ParseCost(text)
		require.False(t, ok, text)
		require.Equal(t, codec.MaxCost, c, text)
	}
	sum := codec.Cost(0)
	tenth, _ := codec.ParseCost("0.1")
	for range 10 {
		sum = sum.Plus(tenth)
	}
	require.Equal(t, codec.Units(1), sum)
	require.Equal(t, codec.MaxCost, codec.MaxCost.Plus(tenth))
	var c codec.Cost
	require.NoError(t, json.Unmarshal([]byte(`"free"`), &c))
	require.Equal(t, codec.MaxCost, c)
}
