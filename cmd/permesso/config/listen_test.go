package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestListen(t *testing.T) {
	standard := []config.Listen{{Network: "tcp", Address: "127.0.0.1:8765"}}
	for _, c := range []struct {
		why, text string
		want      []config.Listen
		isSet     bool
	}{
		{"not set", "", standard, false},
		{"off", `listen = ""`, nil, true},
		{"off, as a list", `listen = []`, nil, true},
		{"one address", `listen = "127.0.0.1:9"`, []config.Listen{{Network: "tcp", Address: "127.0.0.1:9"}}, true},
		{"IPv6 loopback", `listen = "[::1]:9"`, []config.Listen{{Network: "tcp", Address: "[::1]:9"}}, true},
		{"a socket", `listen = "unix:/run/p.sock"`, []config.Listen{{Network: "unix", Address: "/run/p.sock"}}, true},
		{"both", `listen = ["127.0.0.1:9", "unix:/run/p.sock"]`, []config.Listen{{Network: "tcp", Address: "127.0.0.1:9"}, {Network: "unix", Address: "/run/p.sock"}}, true},
	} {
		got, err := config.Parse("p.toml", []byte(c.text))
		require.NoError(t, err, c.why)
		require.Equal(t, c.want, got.Listen, c.why)
		require.Equal(t, c.isSet, got.ListenSet, c.why)
		require.Empty(t, got.Warnings, c.why)
	}
	open, err := config.Parse("p.toml", []byte(`listen = "0.0.0.0:9"`))
	require.NoError(t, err)
	require.Len(t, open.Warnings, 1)
	require.Contains(t, open.Warnings[0].Message, "keys and requests are sent unencrypted")
}

func TestListenRefuses(t *testing.T) {
	const where = "listen must be an address with a port, or unix: and a path"
	for text, want := range map[string]string{
		`listen = "8765"`:                        where,
		`listen = ":8765"`:                       where,
		`listen = "localhost:8765"`:              where,
		`listen = "http://127.0.0.1:8765"`:       where,
		`listen = "127.0.0.1"`:                   where,
		`listen = "127.0.0.1:99999"`:             where,
		`listen = ["127.0.0.1:9", ""]`:           where,
		`listen = ["127.0.0.1:9", 9]`:            "listen must hold strings",
		`listen = 8765`:                          "listen must be a string",
		`listen = true`:                          "listen must be a string",
		`listen = ["127.0.0.1:9","127.0.0.1:9"]`: "the same address twice",
		`listen = "unix:rest.sock"`:              "a socket's path must be absolute",
		`listen = "unix:/run/../rest.sock"`:      "a socket's path must be absolute",
		`listen_hosts = "gate"`:                  "listen_hosts must be an array",
		`listen_hosts = ["Gate"]`:                "host names in lower case",
		`listen_hosts = ["a b"]`:                 "host names in lower case",
		`listen_hosts = ["*"]`:                   "host names in lower case",
		`listen_hosts = ["gate:port"]`:           "host names in lower case",
		`listen_hosts = ["http://gate"]`:         "host names in lower case",
		`lisen = "127.0.0.1:9"`:                  "unknown key",
	} {
		_, err := config.Parse("p.toml", []byte(text))
		require.Contains(t, printed(err), want, text)
	}
}
