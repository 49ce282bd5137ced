package tui

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func TestSmoke(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := say("1111111111111111", "hello", approval.Reversible)
		r := start(t, 80, 24, newGate(w), nil)
		r.awaitText("1 pending request")
		t.Log(r.now())
		r.press("\r")
		r.rest()
		t.Log(r.now())
		r.press("a")
		r.rest()
		t.Log(r.now())
		t.Logf("%q", r.written.String())
		require.Len(t, r.decisions(), 1)
	})
}
