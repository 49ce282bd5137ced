package mailbox

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/emersion/go-sasl"
)

// AccessToken is how to log in with OAuth, in place of a password.
type AccessToken struct {
	// Get gives a token that is valid now. It is called at each login. Its error is an *Error.
	Get     func(ctx context.Context) (string, error)
	Refused string // what the operator can do if a server refuses a token
}

// The mechanisms that send an access token: OAUTHBEARER (RFC 7628), and the one before it.
const (
	oauthBearer = "OAUTHBEARER"
	xoauth2     = "XOAUTH2"
)

// login is a mechanism that sends a token, and what of it must not be logged. offers says which
// mechanisms the server has.
func (a *AccessToken) login(ctx context.Context, username, address string, offers func(string) bool) (sasl.Client, []string, error) {
	token, err := a.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := &bearerClient{response: "user=" + username + "\x01auth=Bearer " + token + "\x01\x01"}
	i := slices.IndexFunc([]string{oauthBearer, xoauth2}, offers)
	switch i {
	case 0:
		host, port, _ := net.SplitHostPort(address)
		b.mechanism = oauthBearer
		b.response = "n,a=" + saslEscapes.Replace(username) + ",\x01host=" + host + "\x01port=" + port + "\x01auth=Bearer " + token + "\x01\x01"
	case 1:
		b.mechanism = xoauth2
	default:
		return nil, nil, &Error{
			Stage: "log in", Account: true, Err: errors.New("the server accepts no access token (neither OAUTHBEARER nor XOAUTH2)"),
			Help: "log in to this server with a password",
		}
	}
	return b, []string{token, encode([]byte(b.response))}, nil
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

var saslEscapes = strings.NewReplacer("=", "=3D", ",", "=2C")

// bearerClient sends the token at once.
type bearerClient struct{ mechanism, response string }

// Start implements sasl.Client.
func (c *bearerClient) Start() (string, []byte, error) { return c.mechanism, []byte(c.response), nil }

// Next implements sasl.Client. The server says why it refuses, and refuses after any answer.
func (*bearerClient) Next([]byte) ([]byte, error) { return []byte{1}, nil }
