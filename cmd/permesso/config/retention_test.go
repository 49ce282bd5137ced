package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestRetention(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		text string
		want config.Retention
	}{
		{"", config.Retention{Responses: 7 * day, Records: 90 * day}},
		{"[retention]", config.Retention{Responses: 7 * day, Records: 90 * day}},
		{"[retention]\nresponses = \"36h\"\nrecords = \"365d\"", config.Retention{Responses: 36 * time.Hour, Records: 365 * day}},
		{"[retention]\nresponses = \"1h30m\"", config.Retention{Responses: 90 * time.Minute, Records: 90 * day}},
		{"[retention]\nrecords = \"7d\"", config.Retention{Responses: 7 * day, Records: 7 * day}},
		{"[retention]\nresponses = \"100d\"", config.Retention{Responses: 100 * day, Records: 100 * day}}, // records are kept at least as long
	} {
		got, err := config.Parse("p.toml", []byte(c.text))
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, got.Retention, c.text)
	}
	require.Equal(t, config.Retention{Responses: 7 * day, Records: 90 * day}, config.Default().Retention)
}

func TestRetentionIssues(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"retention = \"7d\"", "retention must be a table"},
		{"[retention]\nresponses = 7", `hint: write it with its unit: "90d", "36h"`},
		{"[retention]\nresponses = \"a week\"", "responses is not a duration"},
		{"[retention]\nresponses = \"-1d\"", "responses is not a duration"},
		{"[retention]\nresponses = \"99999d\"", "responses is not a duration"},
		{"[retention]\nresponses = \"1m\"", "responses must be 1h to 36600d"},
		{"[retention]\nrecords = \"0d\"", "records must be 24h to 36600d"},
		{"[retention]\nrecords = \"40000d\"", "records must be 24h to 36600d"},
		{"[retention]\nrecords = \"3d\"", "records must be kept at least as long as responses"},
		{"[retention]\nresponse = \"3d\"", "did you mean"},
		{"records = \"3d\"", "it belongs in [retention]"},
	} {
		_, err := config.Parse("p.toml", []byte(c.text))
		require.Contains(t, printed(err), c.want, c.text)
	}
}
