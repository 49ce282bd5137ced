package mailbox

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

// tokenOf gets an access token with a device code.
func tokenOf(t *testing.T, o *mailserver.OAuth) string {
	t.Helper()
	ask := func(path string, form url.Values) (answer map[string]any) {
		form.Set("client_id", mailserver.ClientID)
		form.Set("client_secret", mailserver.ClientSecret)
		form.Set("scope", "mail")
		resp, err := http.PostForm(o.URL+path, form) //nolint:noctx // a test
		require.NoError(t, err)
		defer resp.Body.Close()
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
		return answer
	}
	device := ask("/device", url.Values{})
	o.Type(device["user_code"].(string), true)
	token := ask("/token", url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {device["device_code"].(string)}})
	return token["access_token"].(string)
}

// Both servers take an access token by either mechanism, and refuse one that is not valid.
func TestAccessTokensWithRealServers(t *testing.T) {
	for _, mechanism := range []string{"oauthbearer", "xoauth2", "xoauth2 oauthbearer"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			o := mailserver.StartOAuth(t)
			v := mailserver.StartWithOAuth(t, o, mechanism)
			token, asked := tokenOf(t, o), 0
			get := &AccessToken{Get: func(context.Context) (string, error) { asked++; return token, nil }, Refused: "ask anew"}
			smtp := &SMTP{Address: v.SMTP, Security: StartTLS, Username: mailserver.Gate, AccessToken: get, CAFile: v.CAFile, Timeout: testTimeout}
			imap := &IMAP{Address: v.IMAPS, Username: mailserver.Gate, AccessToken: get, CAFile: v.CAFile, Timeout: testTimeout}
			require.NoError(t, smtp.Check(t.Context()))
			require.NoError(t, smtp.Send(t.Context(), mailserver.Gate, []string{mailserver.Ann}, []byte(letter)))
			require.NoError(t, imap.Check(t.Context()))
			require.Equal(t, 3, asked, "a token for each login")

			o.Revoke()
			for _, check := range []func(context.Context) error{smtp.Check, imap.Check} {
				e := sendError(t, check(t.Context()))
				require.Equal(t, "log in", e.Stage)
				require.False(t, e.Temporary, e)
				require.Equal(t, "ask anew", e.Hint())
				require.NotContains(t, e.Error(), token)
			}
		})
	}
}

// A server without the mechanisms, and a token that cannot be had, are told.
func TestAccessTokenFailures(t *testing.T) {
	t.Parallel()
	v := mailserver.Start(t)
	var failure error
	get := &AccessToken{Get: func(context.Context) (string, error) { return "a-token-7", failure }}
	smtp := &SMTP{Address: v.SMTP, Security: StartTLS, Username: mailserver.Gate, AccessToken: get, CAFile: v.CAFile, Timeout: testTimeout}
	imap := &IMAP{Address: v.IMAPS, Username: mailserver.Gate, AccessToken: get, CAFile: v.CAFile, Timeout: testTimeout}
	for _, check := range []func(context.Context) error{smtp.Check, imap.Check} {
		failure = nil
		e := sendError(t, check(t.Context()))
		require.Contains(t, e.Error(), "the server accepts no access token")
		require.Contains(t, e.Hint(), "with a password")
		for _, temporary := range []bool{true, false} {
			failure = &Error{Stage: "refresh the access token", Temporary: temporary, Account: !temporary, Err: errors.New("no"), Help: "do this"}
			e = sendError(t, check(t.Context()))
			require.Equal(t, "refresh the access token: no", e.Error())
			require.Equal(t, "do this", e.Hint())
			require.Equal(t, temporary, e.Temporary)
			require.Equal(t, !temporary, e.Account)
		}
	}
}

// The name of an account cannot add a field to the mechanism's text.
func TestBearerText(t *testing.T) {
	get := &AccessToken{Get: func(context.Context) (string, error) { return "tok", nil }}
	c, secrets, err := get.login(t.Context(), "a=b,c@x.test", "mail.x.test:993", func(m string) bool { return m == oauthBearer })
	require.NoError(t, err)
	mechanism, response, err := c.Start()
	require.NoError(t, err)
	require.Equal(t, "OAUTHBEARER", mechanism)
	require.Equal(t, "n,a=a=3Db=2Cc@x.test,\x01host=mail.x.test\x01port=993\x01auth=Bearer tok\x01\x01", string(response))
	require.Contains(t, secrets, "tok")
	c, _, err = get.login(t.Context(), "a@x.test", "mail.x.test:993", func(m string) bool { return m == xoauth2 })
	require.NoError(t, err)
	mechanism, response, err = c.Start()
	require.NoError(t, err)
	require.Equal(t, "XOAUTH2", mechanism)
	require.Equal(t, "user=a@x.test\x01auth=Bearer tok\x01\x01", string(response))
}
