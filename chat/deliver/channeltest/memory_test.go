package channeltest_test

import (
	"fmt"
	"testing"

	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/deliver/channeltest"
)

// A service may lack buttons, or edits, or a limit.
func TestMemory(t *testing.T) {
	for n := range 4 {
		traits := deliver.Traits{Service: "Memory", MaxText: 2000 * (n % 2), Buttons: n&1 != 0, Edits: n&2 != 0}
		t.Run(fmt.Sprintf("%+v", traits), func(t *testing.T) {
			t.Parallel()
			channeltest.Run(t, func(*testing.T) channeltest.Fixture { return channeltest.NewMemory(traits).Fixture() })
		})
	}
}
