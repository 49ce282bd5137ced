package config_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func settings(c *config.Config) map[string]config.Setting {
	all := map[string]config.Setting{}
	for _, s := range c.Settings {
		all[s.Key] = s
	}
	return all
}

// Every key of the commented example is a setting. A key with a default has it if
// the file does not set it.
func TestSettings(t *testing.T) {
	on := regexp.MustCompile(`(?m)^#(\S)`).ReplaceAllString(config.Example(), "$1")
	c, err := config.Parse("on.toml", []byte(strings.Replace(on, "approvers = []", `approvers = ["ann"]`, 1)))
	require.NoError(t, err)
	all := settings(c)
	keys := regexp.MustCompile(`(?m)^([a-z_]+) = (?:[^{\[\n]|\[[^{\n])`).FindAllStringSubmatch(on, -1)
	require.Greater(t, len(keys), 15)
	for _, k := range keys {
		found := false
		for name, s := range all {
			found = found || strings.HasSuffix("."+name, "."+k[1]) && s.Line > 0
		}
		require.True(t, found, "%s is not shown", k[1])
	}
	require.Equal(t, `["/bin/echo", "hello"]`, all["tools.hello.handler.argv"].Text())
	require.Equal(t, `workspaces.default.limits.pending = 32`, all["workspaces.default.limits.pending"].String())
	require.Equal(t, "say hello", all["tools.hello.verb.en"].Value)
	require.Equal(t, "hello", all["rules[1].match.tool"].Value)
	require.Equal(t, false, all["tools.hello.trust"].Value)

	defaults := settings(config.Default())
	for key, want := range map[string]string{
		"gate":                                    `gate = "permesso"  # default`,
		"run_before":                              `run_before = "10m"  # default`,
		"log_format":                              `log_format = "auto"  # default`,
		"workspaces.default.approval_timeout":     `workspaces.default.approval_timeout = "5m"  # default`,
		"workspaces.default.limits.request_size":  `workspaces.default.limits.request_size = 262144  # default`,
		"workspaces.default.approvers":            `workspaces.default.approvers = []  # default`,
		"workspaces.default.principal":            `# workspaces.default.principal is not set`,
		"workspaces.default.approval_timeout_max": `workspaces.default.approval_timeout_max = "24h"  # default`,
	} {
		require.Equal(t, want, defaults[key].String())
	}
}
