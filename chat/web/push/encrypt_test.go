package push

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/web/push/pushserver"
)

func decode(t *testing.T, s string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(s)
	require.NoError(t, err)
	return b
}

// The example of RFC 8291, section 5 and appendix A.
func TestEncryptsAsTheRFC(t *testing.T) {
	const receiverKey = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
	sender, err := ecdh.P256().NewPrivateKey(decode(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	require.NoError(t, err)
	to, err := newReceiver(receiverKey, "BTBZMqHH6r4Tts7J_aSIgg")
	require.NoError(t, err)
	body, err := encryptWith(to, []byte("When I grow up, I want to be a watermelon"), sender, decode(t, "DGv6ra1nlYgDCS1FRnbzlw"))
	require.NoError(t, err)
	require.Equal(t, "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6"+
		"cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN", base64.RawURLEncoding.EncodeToString(body))

	private, err := ecdh.P256().NewPrivateKey(decode(t, "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
	require.NoError(t, err)
	text, err := pushserver.Decrypt(private, decode(t, "BTBZMqHH6r4Tts7J_aSIgg"), body)
	require.NoError(t, err)
	require.Equal(t, "When I grow up, I want to be a watermelon", string(text))
}

func TestLargestPayload(t *testing.T) {
	s := pushserver.New(t)
	b := s.Subscribe("phone", "")
	to, err := newReceiver(b.Key, b.Auth)
	require.NoError(t, err)
	body, err := encrypt(to, bytes.Repeat([]byte("x"), maxPayload))
	require.NoError(t, err)
	require.Len(t, body, 4096)
	_, err = encrypt(to, bytes.Repeat([]byte("x"), maxPayload+1))
	require.Error(t, err)
	again, err := encrypt(to, []byte("x"))
	require.NoError(t, err)
	other, err := encrypt(to, []byte("x"))
	require.NoError(t, err)
	require.NotEqual(t, again[:16], other[:16], "a salt is used once")
	require.NotEqual(t, again[21:86], other[21:86], "a key is used once")
}

func TestReceiverIsRefused(t *testing.T) {
	b := pushserver.New(t).Subscribe("phone", "")
	point := decode(t, b.Key)
	point[64] ^= 1
	for why, keys := range map[string][2]string{
		"no base64url":            {"+" + b.Key[1:], b.Auth},
		"no key":                  {"", b.Auth},
		"no point of the curve":   {base64.RawURLEncoding.EncodeToString(point), b.Auth},
		"the point at infinity":   {"AA", b.Auth},
		"a short secret":          {b.Key, b.Auth[:20]},
		"a secret without digits": {b.Key, ""},
	} {
		_, err := newReceiver(keys[0], keys[1])
		require.Error(t, err, why)
	}
}
