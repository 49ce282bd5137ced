package oauth

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

// A new refresh token that cannot be saved is kept in memory: the old one is of no use any more.
func TestTokenThatCannotBeSaved(t *testing.T) {
	o := mailserver.StartOAuth(t)
	o.Rotate, o.Lifetime = true, time.Minute
	s := authorized(t, o)
	f, err := os.Open(s.File)
	require.NoError(t, err)
	defer f.Close()
	s.File = fmt.Sprintf("/proc/self/fd/%d", f.Fd()) // its folder takes no new file
	for range 3 {
		token, err := s.AccessToken(t.Context())
		require.NoError(t, err)
		require.True(t, o.Valid(token))
	}
	require.Equal(t, 3, o.Refreshed())
}
