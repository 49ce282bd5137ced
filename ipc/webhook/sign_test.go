package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/webhook"
)

// The vector of the specification's own libraries.
func TestSignVector(t *testing.T) {
	key, err := webhook.ParseKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		key.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)))
}

func TestNewSecret(t *testing.T) {
	one, two := webhook.NewSecret(), webhook.NewSecret()
	require.NotEqual(t, one, two)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, "whsec_"))
	require.NoError(t, err)
	require.Len(t, raw, 32)
	key, err := webhook.ParseKey(one)
	require.NoError(t, err)
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte("msg_1.1700000000.{}"))
	require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), key.Sign("msg_1", time.Unix(1700000000, 0), []byte("{}")))
}

func TestBadSecrets(t *testing.T) {
	of := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for why, secret := range map[string]string{
		"empty": "", "no prefix": strings.TrimPrefix(of(32), "whsec_"), "an asymmetric key": "whsk_" + strings.TrimPrefix(of(32), "whsec_"),
		"not base64": "whsec_!!!!", "too short": of(23), "too long": of(65), "nothing": "whsec_",
	} {
		_, err := webhook.ParseKey(secret)
		require.Error(t, err, why)
		if secret != "" {
			require.NotContains(t, err.Error(), secret, "an error never quotes a secret")
		}
	}
	for _, n := range []int{24, 32, 64} {
		_, err := webhook.ParseKey(of(n))
		require.NoError(t, err)
	}
}

func TestMessageID(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 1, time.UTC)
	id := webhook.MessageID("settled", "personal", "a7f3b2c1d4e5f6a7", at)
	require.Regexp(t, "^msg_[0-9a-f]{32}$", id)
	require.Equal(t, id, webhook.MessageID("settled", "personal", "a7f3b2c1d4e5f6a7", at.Local()))
	for _, other := range []string{
		webhook.MessageID("test", "personal", "a7f3b2c1d4e5f6a7", at), webhook.MessageID("settled", "work", "a7f3b2c1d4e5f6a7", at),
		webhook.MessageID("settled", "personal", "b7f3b2c1d4e5f6a7", at), webhook.MessageID("settled", "personal", "a7f3b2c1d4e5f6a7", at.Add(1)),
	} {
		require.NotEqual(t, id, other)
	}
}
