package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
)

// Readers see an entry soon, also if no caller waits for it and nothing else is committed.
func TestNotesAreWrittenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, err := audit.OpenSigned(ipc.OS(), t.TempDir(), time.Now, audit.Keys{})
		require.NoError(t, err)
		audittest.Attach(log)
		s := &server{audit: log}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.runNotes(ctx)
		for n := range 3 {
			log.Note(event.Entry{Event: event.Forged})
			log.Note(event.Entry{Event: event.Forged})
			time.Sleep(2 * noteDelay)
			synctest.Wait()
			require.Equal(t, int64(2*n+2), log.Appended())
		}
	})
}
