package email

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tokenLength is the length of what NewToken returns.
const tokenLength = 26

func TestToken(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token := NewToken()
		require.Regexp(t, `^[a-z2-7]{26}$`, token)
		require.Len(t, token, tokenLength)
		require.False(t, seen[token])
		seen[token] = true
	}
	// Every bit is drawn: the last letter holds 3 of the 128, the others 5.
	letters := map[int]map[byte]bool{}
	for token := range seen {
		for _, at := range []int{0, 12, tokenLength - 1} {
			if letters[at] == nil {
				letters[at] = map[byte]bool{}
			}
			letters[at][token[at]] = true
		}
	}
	require.Len(t, letters[0], 32)
	require.Len(t, letters[12], 32)
	require.Len(t, letters[tokenLength-1], 8)
}

func TestSameToken(t *testing.T) {
	token := NewToken()
	require.True(t, sameToken(token, token))
	require.True(t, sameToken(token, strings.ToUpper(token)), "a server may fold the address")
	for _, other := range []string{"", NewToken(), token + "a", token[1:], token[:25] + "\xff", " " + token} {
		require.False(t, sameToken(token, other), "%q", other)
		require.False(t, sameToken(other, token), "%q", other)
		require.NotEqual(t, tokenDigest(token), tokenDigest(other))
	}
	require.False(t, sameToken("", ""), "an empty token equals nothing")
	require.False(t, sameToken("\xfe", "\xff"))
	require.False(t, sameToken("k", "\u212a"), "the Kelvin sign is not k")
}

func TestTokenDigest(t *testing.T) {
	token := NewToken()
	require.Regexp(t, `^[0-9a-f]{64}$`, tokenDigest(token))
	require.Equal(t, tokenDigest(token), tokenDigest(strings.ToUpper(token)))
	require.NotContains(t, tokenDigest(token), token)
	require.Equal(t, "c8838f9ec3307cf3753941ea6be1cf7f246ad9ac38b668cd1eab642aa6d2dc20", tokenDigest("aaaaaaaaaaaaaaaaaaaaaaaaaa"), "stored digests must stay valid")
}
