package deliver

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat"
)

// storedStates are states in memory.
type storedStates struct {
	chat.StateStore
	of map[string][]byte
}

func (s storedStates) Get(name string) ([]byte, error) {
	if b, ok := s.of[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (s storedStates) Put(name string, b []byte) error { s.of[name] = b; return nil }

// What a session was telling as it ended is told by the next one, with what was refused since.
func TestRefusalsOfAnInterruptedMessage(t *testing.T) {
	c := &Channel{State: storedStates{of: map[string][]byte{}}}
	for range 3 {
		c.Limited("home")
	}
	n := c.limitedIn("home")
	require.NoError(t, c.save(limitedName("home"), n))
	n.Count, n.sending = 0, true // as queueLimited leaves it until the message was sent
	c.Limited("home")
	c.resumeLimited()
	n = c.limitedIn("home")
	require.Equal(t, 4, n.Count)
	require.False(t, n.sending)
	require.False(t, n.First.IsZero())
	c.resumeLimited()
	require.Equal(t, 4, c.limitedIn("home").Count, "once")
}
