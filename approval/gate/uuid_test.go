package gate_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
)

// newUUID returns a random UUID of version 4, or one of version 7: RFC 9562. The first 8
// digits of version 7 stay the same for 65 s.
func newUUID(version byte, now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	binary.BigEndian.PutUint64(b[8:], rand.Uint64())
	if version == 7 {
		binary.BigEndian.PutUint64(b[:], uint64(now.UnixMilli())<<16|uint64(binary.BigEndian.Uint16(b[6:])))
	}
	b[6], b[8] = b[6]&0x0f|version<<4, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Clients with UUIDs send a thousand requests within a minute. Every request is asked about
// under a short id of its own, by which people find it, and has its response.
func TestUUIDClients(t *testing.T) {
	t.Parallel()
	each := 250
	if os.Getenv("PERMESSO_SOAK") == "" {
		each = (each + 19) / 20
	}
	h := newRig(t, options{limits: approval.Limits{Pending: 10_000, AskPerMinute: 100_000, PerMinute: 100_000}})
	h.run(time.Second)

	began := time.Now()
	var wg sync.WaitGroup
	keys := make([][]approval.Key, 4)
	for client := range keys {
		for range each {
			k := approval.Key{Workspace: []string{personal, other}[client/2], ID: newUUID([]byte{4, 7}[client%2], time.Now())}
			keys[client] = append(keys[client], k)
		}
		wg.Go(func() {
			for _, k := range keys[client] {
				h.writeRequest(k, request(k, "run", ""))
			}
		})
	}
	wg.Wait()
	shown, alike := map[string]approval.Key{}, map[string]bool{}
	for _, list := range keys {
		for _, k := range list {
			h.waitFor(time.Minute, "pending of "+k.ID, func() bool { return h.has(approval.DocPending, k) })
			short := h.pending(k).ShortID
			require.Regexp(t, "^[0-9a-f]{8,32}$", short)
			require.NotContains(t, shown, short, "%s and %s", shown[short], k)
			shown[short], alike[approval.ShortID(k.ID)] = k, true
		}
	}
	require.Less(t, len(alike), 3*each, "first digits of version 7 collide")
	h.requireFound(shown)
	for _, k := range shown {
		h.decide(decision(k, approval.Approved))
	}
	for _, k := range shown {
		require.Equal(t, approval.StatusApproved, h.waitResponse(k, time.Minute).Status)
		require.Len(t, h.executor.argsOf(k), 1)
	}
	took := time.Since(began)
	require.Less(t, took, time.Minute)
	t.Logf("%d requests asked, approved and answered in %v", len(shown), took.Round(time.Millisecond))
}

// requireFound wants the one pending that a person means by its short id, and by its whole
// id with and without dashes.
func (h *rig) requireFound(shown map[string]approval.Key) {
	h.t.Helper()
	all, err := h.viewer().Waiting(context.Background(), nil)
	require.NoError(h.t, err)
	for short, k := range shown {
		for _, typed := range []string{short, k.ID, strings.ReplaceAll(k.ID, "-", "")} {
			fit := approval.Named(all, typed)
			require.Len(h.t, fit, 1, typed)
			require.Equal(h.t, k, fit[0].Key(), typed)
		}
	}
}

// An upper-case UUID gets a response that says what is wrong, through a real folder.
func TestUpperCaseUUID(t *testing.T) {
	h := newRig(t, options{})
	h.run(time.Second)
	k := approval.Key{Workspace: personal, ID: strings.ToUpper(newUUID(7, time.Now()))}
	h.writeRequest(k, request(k, "auto", ""))
	h.waitFor(waitLimit, "end of "+k.String(), func() bool { return h.has(approval.DocResponse, k) && h.isSettled(k) })
	h.requireBadName(k)
	require.Equal(t, []event.Kind{event.Malformed}, h.history(k))
	h.reopen()
	found, err := h.viewer().Find(t.Context(), nil, strings.ToLower(k.ID))
	require.NoError(t, err)
	require.Equal(t, []approval.Key{k}, found)
}
