package policy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
)

// cases reads what public predecessors do; without the shared folder there are
// none, which CI does not accept.
func cases(t *testing.T, name string, into any) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../shared/cases", name))
	if err != nil {
		require.Empty(t, os.Getenv("CI"), "in CI the cases must be there: %v", err)
		return false
	}
	require.NoError(t, json.Unmarshal(b, into))
	return true
}

// trustCase is one of the file-backed gate's.
type trustCase struct {
	Suite string `json:"suite"`
	Name  string `json:"name"`
	Input struct {
		Defaults        map[string]any            `json:"defaults"`
		Services        map[string]map[string]any `json:"services"`
		ContainsSecrets bool                      `json:"contains_secrets"`
		Ops             []string                  `json:"ops"`
	} `json:"input"`
	Expected struct {
		Allowed    *bool  `json:"allowed"`
		Reason     string `json:"reason"`
		NeedsCop   *bool  `json:"needs_cop"`
		NeedsHuman *bool  `json:"needs_human"`
		Corruption *bool  `json:"corruption"`
		Secret     *bool  `json:"secret"`
	} `json:"expected"`
}

func property(v any) approval.Property {
	switch v := v.(type) {
	case bool:
		if v {
			return "true"
		}
		return "false"
	case string:
		return approval.Property(v)
	}
	return ""
}

func (c *trustCase) trust(service string) approval.Trust {
	get := func(key string) approval.Property {
		if v, ok := c.Input.Services[service][key]; ok {
			return property(v)
		}
		return property(c.Input.Defaults[key])
	}
	return approval.Trust{
		PublicSource: get("public_source"), SecretData: get("secret_data"),
		PublicSink: get("public_sink"), DangerousWrites: get("dangerous_writes"),
	}
}

// op plays one operation: a read is a mail:read, a write a channel:out, at full
// autonomy, where the table allows both and trust alone speaks.
func (c *trustCase) op(t *testing.T, e *policy.Engine, op string) approval.Ruling {
	t.Helper()
	verb, rest, _ := strings.Cut(op, " ")
	if verb == "file" {
		return approval.Ruling{}
	}
	service, payload, _ := strings.Cut(rest, " ")
	f := facts(map[string]string{"read": "mail:read", "write": "channel:out"}[verb])
	f.Autonomy, f.Tool, f.Trust = approval.Full, service, c.trust(service)
	if strings.Contains(payload, "AKIA") {
		e.Scan = func(*approval.Facts) []approval.Finding {
			return []approval.Finding{{Kind: "aws-access-token", Where: "body", Length: 20}}
		}
	}
	r := e.Judge(f)
	if r.Outcome != approval.Deny {
		e.Learn(approval.Entry{Event: approval.EventApproved, Workspace: "w", Time: noon, Taints: r.Taints})
	}
	return r
}

// The cases of its trust policy. Its needs_cop, a call for an LLM judge, has no
// counterpart: what it was called for becomes a taint, and the trifecta asks a
// person.
func TestTrustCasesOfThePredecessor(t *testing.T) {
	var all struct{ Cases []json.RawMessage }
	if !cases(t, "files-chat-trust.json", &all) {
		return
	}
	played := 0
	for _, raw := range all.Cases {
		var head struct{ Suite string }
		require.NoError(t, json.Unmarshal(raw, &head))
		if head.Suite != "policy" {
			continue
		}
		var c trustCase
		require.NoError(t, json.Unmarshal(raw, &c))
		played++
		t.Run(c.Name, func(t *testing.T) {
			cfg := policy.Config{}
			if c.Input.ContainsSecrets {
				cfg.Secrets = []string{"w"}
			}
			e := engine(t, cfg)
			var last approval.Ruling
			for _, op := range c.Input.Ops {
				last = c.op(t, e, op)
			}
			want := c.Expected
			if want.Allowed != nil {
				require.Equal(t, *want.Allowed, last.Outcome != approval.Deny, last.Reasons)
			}
			if want.NeedsHuman != nil {
				require.Equal(t, *want.NeedsHuman, last.Outcome == approval.Ask, last.Reasons)
			}
			if want.Reason != "" {
				require.Contains(t, strings.ToLower(strings.Join(last.Reasons, "\n")), deed(want.Reason))
			}
			taints := e.Taints("w")[""]
			if want.Corruption != nil {
				require.Equal(t, *want.Corruption, slices.Contains(taints, approval.TaintCorruption))
			}
			if want.Secret != nil {
				require.Equal(t, *want.Secret, slices.Contains(taints, approval.TaintSecret))
			}
		})
	}
	require.GreaterOrEqual(t, played, 16)
}

// deed is the part of a reason that both say: "reading from 'email' is forbidden".
func deed(reason string) string {
	s, _, _ := strings.Cut(strings.ToLower(reason), " (")
	return s
}

// What the capability policy of the predecessor does, by the names of its
// cases; what is not here is about its cards, dialogs and callbacks.
func TestGrantCasesOfThePredecessor(t *testing.T) {
	played := map[string]func(t *testing.T){
		"policy.registry_size": func(t *testing.T) { require.Len(t, approval.Capabilities(), 13) },
		"grant.unknown_capability": func(t *testing.T) {
			g := grants(facts("fs:write"))[2]
			g.Capability = "fs:delete"
			require.Error(t, engine(t, policy.Config{}).Remember(g))
		},
		"grant.revoke": func(t *testing.T) {
			f := facts("fs:write")
			g := grants(f)[2]
			e := engine(t, policy.Config{})
			remember(t, e, g)
			g.RevokedAt = noon.Add(-time.Second)
			remember(t, e, g)
			require.Equal(t, approval.Ask, e.Judge(f).Outcome)
			require.Len(t, e.Grants(), 1, "it stays in the list")
		},
		"grant.lifts": func(t *testing.T) {
			f := facts("fs:write")
			e := engine(t, policy.Config{})
			remember(t, e, grants(f)[2])
			require.Equal(t, approval.Allow, e.Judge(f).Outcome)
		},
	}
	reasons := map[string]string{
		"policy.new_caps":               "the set is closed: 13",
		"policy.conditional_capability": "a tool has one capability; [[rules]] have conditions on arguments",
		"grant.glob_is_exact":           "a defect: a path grant covers the files under it (TestPathGrantCoversFilesBelow)",
		"grant.bad_expiry":              "a defect: an unparsable date is expired (TestUnparsableDateIsExpiredNotEternal)",
		"grant.list_filters":            "of the command: permesso grants",
	}
	// The others are not about policy, or are about parts that DESIGN has not.
	elsewhere := map[string]string{
		"registry.":      "approvals are files; the slot's tests play them (approval/gate)",
		"callback.":      "buttons belong to channels that have them",
		"card.":          "card strings follow DESIGN (chat)",
		"yesno":          "no free yes or no: the grammar is commands and codes (chat)",
		"start_consent.": "consent to start programs is a grant or an exact command line here",
		"cap.":           "of its buttons and files",
		"inline.":        "of its keyboards",
		"dialog.":        "of its dialogs",
		"gate.":          "of its plans with placeholders; here the whole request is judged and shown",
		"admin.":         "lists of shell commands: never judged safe by pattern (DESIGN, Not here)",
	}
	var all struct {
		Cases []struct{ Name string }
	}
	if cases(t, "policy-grants-cards.json", &all) {
		for _, c := range all.Cases {
			_, plays := played[c.Name]
			for prefix := range elsewhere {
				plays = plays || strings.HasPrefix(c.Name, prefix)
			}
			require.True(t, plays || reasons[c.Name] != "", "%s is neither played nor explained", c.Name)
		}
	}
	for name, f := range played {
		t.Run(name, f)
	}
}
