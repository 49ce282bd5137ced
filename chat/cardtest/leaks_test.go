package cardtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// No part of a secret leaves the host in a text of a channel, whether the request can be approved there or not.
func TestNoSecretLeaves(t *testing.T) {
	style := Style(t, false)
	blocked := 0
	all := SecretiveRequests()
	for _, s := range all {
		for what, text := range Texts(style, s.Pending) {
			s.RequireHidden(t, what, text)
		}
		if style.Card(s.Pending).Blocked != "" {
			blocked++
		}
	}
	require.Greater(t, len(all), 300)
	require.Greater(t, blocked, 200, "most of them stand where no mask may be")
}
