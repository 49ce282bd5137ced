package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

const ruleTool = `[workspaces.w]
[tools.keep]
capability = "fs:write"
args = { path = "path", to = "list", text = "text", sure = "bool" }
handler = { kind = "none" }
`

// A printed rule allows the request that it comes from, and none with another argument.
func TestRuleFromARequest(t *testing.T) {
	p := &approval.Pending{
		RequestID: "a7f3b2c1d4e5f6a7", ShortID: "a7f3b2c1", ToolName: "keep", SourceGroup: "w",
		RequestData: approval.Raw(`{"path":"/data/[a]*","text":"5 \"o'clock\"","sure":true}`),
	}
	rule, err := ruleFrom(p)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "permesso.toml")
	require.NoError(t, os.WriteFile(file, []byte(ruleTool+rule+"\n"), 0o600))
	cfg, err := (&config.Reader{}).Load(file)
	require.NoError(t, err, rule)
	e := &policy.Engine{}
	require.NoError(t, e.Load(policy.Config{Rules: cfg.Rules}))
	judge := func(args string) approval.Outcome {
		return e.Judge(approval.Facts{
			Workspace: "w", Autonomy: "supervised", Tool: "keep", KnownTool: true, Capability: "fs:write", Args: approval.Raw(args),
			Now: time.Now(),
		}).Outcome
	}
	require.Equal(t, approval.Allow, judge(string(p.RequestData)), rule)
	for _, other := range []string{
		`{"path":"/data/[a]b","text":"5 \"o'clock\"","sure":true}`, `{"path":"/data/a*","text":"5 \"o'clock\"","sure":true}`,
		`{"path":"/data/[a]*","text":"6","sure":true}`, `{"path":"/data/[a]*","text":"5 \"o'clock\"","sure":false}`, `{}`,
	} {
		require.Equal(t, approval.Ask, judge(other), other)
	}
	for _, data := range []string{`{"a":1.5}`, `{"a":{}}`, `{"a":""}`, `{"a":"x\u202ey"}`, `{"a":[1]}`, `{"a":null}`, `{"a":"\\"}`} {
		p.RequestData = approval.Raw(data)
		_, err := ruleFrom(p)
		require.Error(t, err, data)
	}
	p.ToolName = ""
	_, err = ruleFrom(p)
	require.Error(t, err, "no tool is opened for a release-only request")
}
