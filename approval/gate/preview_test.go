package gate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
)

// A preview is the pending that the gate writes for the same request, and its ruling.
func TestPreview(t *testing.T) {
	h, k := newRig(t, options{frozenClock: true, inline: true, tools: forecasts()}), key(1)
	q := request(k, "forecast", `{"city":"Roma","to":"a@b"}`)
	r, err := approval.ParseDraft([]byte(q))
	require.NoError(t, err)
	settings, policy := h.gate.Config()
	now := h.clock.now()
	p, ruling := gate.Preview(settings, policy, personal, r, now, nil)
	require.False(t, h.has(approval.DocPending, k), "it writes nothing")
	h.writeRequest(k, q)
	h.step(k)
	want := h.pending(k)
	require.Equal(t, want.Ruling, ruling)
	p.RequestSHA256 = want.RequestSHA256 // of a file that a preview does not have
	asked, err := want.Encode()
	require.NoError(t, err)
	previewed, err := p.Encode()
	require.NoError(t, err)
	require.Equal(t, string(asked), string(previewed))

	r, err = approval.ParseDraft([]byte(request(k, "forecast", `{"city":"..","to":"a@b"}`)))
	require.NoError(t, err)
	p, ruling = gate.Preview(settings, policy, personal, r, now, nil)
	require.Nil(t, p)
	require.Equal(t, gate.NotEvaluated, ruling.Rule)
}
