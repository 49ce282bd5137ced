package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestUI(t *testing.T) {
	for _, c := range []struct {
		why, text, want string
		isSet           bool
	}{
		{"not set", "", "127.0.0.1:8766", false},
		{"off", `ui = false`, "", true},
		{"off, as for listen", `ui = ""`, "", true},
		{"on", `ui = true`, "127.0.0.1:8766", true},
		{"another port", `ui = "127.0.0.1:9"`, "127.0.0.1:9", true},
		{"any port", `ui = "127.0.0.1:0"`, "127.0.0.1:0", true},
		{"IPv6 loopback", `ui = "[::1]:9"`, "[::1]:9", true},
		{"another loopback address", `ui = "127.0.0.2:9"`, "127.0.0.2:9", true},
	} {
		got, err := config.Parse("p.toml", []byte(c.text))
		require.NoError(t, err, c.why)
		require.Equal(t, c.want, got.UI, c.why)
		require.Equal(t, c.isSet, got.UISet, c.why)
	}
	for text, want := range map[string]string{
		`ui = "0.0.0.0:8766"`:            "must be a loopback address",
		`ui = "192.168.1.5:8766"`:        "must be a loopback address",
		`ui = "[::]:8766"`:               "must be a loopback address",
		`ui = "[::ffff:127.0.0.1]:8766"`: "must be a loopback address",
		`ui = "localhost:8766"`:          "must be an address with a port, or false",
		`ui = "8766"`:                    "must be an address with a port, or false",
		`ui = "off"`:                     "must be an address with a port, or false",
		`ui = 8766`:                      "ui must be a string",
		`ui = ["127.0.0.1:8766"]`:        "ui must be a string",
		"listen = \"127.0.0.1:9\"\nui = \"127.0.0.1:9\"": "ui and listen have the same address",
		`[workspaces.x]` + "\nui = false":                "unknown key",
	} {
		_, err := config.Parse("p.toml", []byte(text))
		require.Contains(t, printed(err), want, text)
	}
}
