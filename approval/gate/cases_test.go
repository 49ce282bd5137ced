package gate_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc"
)

// The file behavior of an earlier public gate. Every shared case passes, or is listed
// here with the reason for the difference. A reason that is no longer true fails,
// too.
var knownDifferences = map[string]string{
	"state/create writes pending file":           "the short id is the id's first 8 digits, and the configuration defines handlers, not the file",
	"state/create returns short id":              "two characters distinguish only 1296 requests and are easy to guess: ours are 8 digits",
	"watch.decision/handler_type ipc dispatched": "nothing is added to the arguments: the arguments shown are the arguments run",
	"watch.decision/ipc without deps":            "this handler needs no dependencies: it runs",
	"watch.decision/unparsable pending":          "it was a request, so it gets a response: malformed",
	"watch.decision/decision lacks approved":     "a decision without verdict and MAC is invalid: it is removed, and the request stays pending",
	"service/unconfigured workspace":             "a workspace that is not configured is refused",
}

type sharedCase struct {
	Suite, Name string
	Input       json.RawMessage
	Expected    json.RawMessage
}

func (c sharedCase) input(t *testing.T, name string) string { return text(t, c.Input, name) }

func (c sharedCase) expected(t *testing.T, name string) string { return text(t, c.Expected, name) }

// text is a string member, or the JSON of any other member.
func text(t *testing.T, object []byte, name string) string {
	raw := field(t, object, name)
	var s string
	if json.Unmarshal([]byte(raw), &s) == nil {
		return s
	}
	return raw
}

// sharedID is an id from the shared cases that is valid here, too.
const sharedID = "aabb001122334455"

func sharedKey() approval.Key { return approval.Key{Workspace: personal, ID: sharedID} }

// check runs one case and returns what it wants and what it got.
type check func(t *testing.T, h *rig, c sharedCase) (want, got any)

func TestSharedFileCases(t *testing.T) {
	b := sharedFile(t, "cases", "files-chat-trust.json")
	if b == nil {
		return
	}
	var doc struct{ Cases []sharedCase }
	require.NoError(t, json.Unmarshal(b, &doc))
	ours := map[string]bool{"state": true, "sweep": true, "decide": true, "watch.decision": true, "e2e": true, "service": true}
	checks, seen := caseChecks(), map[string]bool{}
	for _, c := range doc.Cases {
		if !ours[c.Suite] {
			continue
		}
		key := c.Suite + "/" + c.Name
		seen[key] = true
		t.Run(key, func(t *testing.T) {
			run, ok := checks[key]
			require.True(t, ok, "a case without a check")
			want, got := run(t, newRig(t, options{inline: true}), c)
			if why, ok := knownDifferences[key]; ok {
				require.NotEqual(t, want, got, "no longer differs: %s", why)
				return
			}
			require.Equal(t, want, got)
		})
	}
	for key := range checks {
		require.True(t, seen[key], "a check without a case: %s", key)
	}
	for key := range knownDifferences {
		require.True(t, seen[key], "a difference without a case: %s", key)
	}
}

func caseChecks() map[string]check {
	return map[string]check{
		"state/create writes pending file":                       createsPending,
		"state/no .tmp left after create":                        leavesNoTemp,
		"state/create returns short id":                          returnsShortID,
		"state/short id differs from those pending in the group": shortIDsDiffer,
		"state/find by short id": func(t *testing.T, h *rig, _ sharedCase) (any, any) {
			h.ask(sharedKey(), request(sharedKey(), "run", ""))
			return []approval.Key{sharedKey()}, h.find(t, approval.ShortID(sharedID))
		},
		"state/find unknown short id": func(t *testing.T, h *rig, _ sharedCase) (any, any) {
			h.ask(sharedKey(), request(sharedKey(), "run", ""))
			return []approval.Key(nil), h.find(t, "ffffffff")
		},
		"state/list all groups": func(t *testing.T, h *rig, c sharedCase) (any, any) {
			return c.expected(t, "count"), h.list(t, nil)[0]
		},
		"state/list filtered by group": func(t *testing.T, h *rig, c sharedCase) (any, any) {
			require.JSONEq(t, `["tool_a"]`, c.expected(t, "tools"), "only the requested group")
			return `["run"]`, h.list(t, []string{personal})[1]
		},
		"state/list when no ipc dir":                              listsNothing,
		"sweep/decision without pending removed":                  removesLoneDecision,
		"watch.decision/no pending":                               removesLoneDecision,
		"decide/approve writes decision":                          writesDecision(approval.Approved),
		"decide/deny writes decision":                             writesDecision(approval.Denied),
		"watch.decision/denied":                                   ends("run", approval.Denied),
		"e2e/deny":                                                ends("run", approval.Denied),
		"watch.decision/tool gone":                                ends("nonexistent_tool", approval.Approved),
		"watch.decision/handler raises boom":                      ends("fails", approval.Approved),
		"watch.decision/ipc without deps":                         ends("run", approval.Approved),
		"watch.decision/handler_type ipc dispatched":              dispatches,
		"watch.decision/unparsable decision / missing request_id": freesTheSlot,
		"watch.decision/unparsable pending":                       unparsablePending,
		"watch.decision/decision lacks approved": func(_ *testing.T, h *rig, _ sharedCase) (any, any) {
			h.ask(sharedKey(), request(sharedKey(), "run", ""))
			h.writeDoc(approval.DocDecision, sharedKey(), `{"request_id":"r"}`)
			h.step(sharedKey())
			return "denied: Denied by user", h.outcome(sharedKey())
		},
		"e2e/approve": func(t *testing.T, h *rig, _ sharedCase) (any, any) {
			h.ask(sharedKey(), request(sharedKey(), "run", ""))
			require.Nil(t, h.response(sharedKey()))
			h.decide(decision(sharedKey(), approval.Approved))
			h.step(sharedKey())
			require.True(t, h.isSettled(sharedKey()), "files cleaned")
			return `{"done":true}`, string(h.response(sharedKey()).Result)
		},
		"e2e/all-false service": func(_ *testing.T, h *rig, _ sharedCase) (any, any) {
			// Policy allows a tool without risks. The gate must then ask no person
			// and answer at once.
			h.writeRequest(sharedKey(), request(sharedKey(), "auto", ""))
			h.step(sharedKey())
			return []any{"auto_approved", false}, []any{h.outcome(sharedKey()), h.has(approval.DocPending, sharedKey())}
		},
		"service/dangerous write": func(_ *testing.T, h *rig, _ sharedCase) (any, any) {
			h.writeRequest(sharedKey(), request(sharedKey(), "run", ""))
			h.step(sharedKey())
			return []any{true, false}, []any{h.has(approval.DocPending, sharedKey()), h.has(approval.DocResponse, sharedKey())}
		},
		"service/unconfigured workspace": func(t *testing.T, h *rig, _ sharedCase) (any, any) {
			require.NoError(t, h.layout.Prepare(ipc.OS(), "unconfigured"))
			k := approval.Key{Workspace: "unconfigured", ID: sharedID}
			h.writeRequest(k, request(k, "run", ""))
			h.step(k)
			return []any{true, "none"}, []any{h.has(approval.DocPending, k), h.outcome(k)}
		},
	}
}

func (h *rig) viewer() *read.Viewer {
	return &read.Viewer{Store: h.store, Seal: h.key}
}

func (h *rig) find(t *testing.T, prefix string) []approval.Key {
	keys, err := h.viewer().Find(context.Background(), nil, prefix)
	require.NoError(t, err)
	return keys
}

// list asks in two workspaces, and returns the number of pendings and their tools.
func (h *rig) list(t *testing.T, workspaces []string) []string {
	second := approval.Key{Workspace: other, ID: "ccdd001122334455"}
	h.ask(sharedKey(), request(sharedKey(), "run", ""))
	h.ask(second, request(second, "fails", ""))
	waiting, err := h.viewer().Waiting(context.Background(), workspaces)
	require.NoError(t, err)
	tools := []string{}
	for _, w := range waiting {
		tools = append(tools, w.Pending.ToolName)
	}
	listed, err := json.Marshal(tools)
	require.NoError(t, err)
	return []string{string(rune('0' + len(tools))), string(listed)}
}

func listsNothing(t *testing.T, h *rig, _ sharedCase) (want, got any) {
	require.NoError(t, os.RemoveAll(h.layout.IPC()))
	waiting, err := h.viewer().Waiting(context.Background(), nil)
	require.NoError(t, err)
	return 0, len(waiting)
}

func createsPending(t *testing.T, h *rig, c sharedCase) (want, got any) {
	name := c.input(t, "tool_name")
	args := gatetest.Args()
	args["type"] = approval.Argument{Type: facts.TypeText}
	h.setTool(name, approval.Tool{Name: name, Trust: gatetest.Harmless(), Args: args})
	h.ask(sharedKey(), request(sharedKey(), name, field(t, c.Input, "request_data")))
	path := filepath.Join(h.layout.Pendings(personal), sharedID+".json")
	require.Equal(t, filepath.Join(h.layout.Home, filepath.FromSlash(c.expected(t, "file"))), path)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, field(t, c.Input, "request_data"), field(t, b, "request_data"))
	require.Equal(t, personal, text(t, b, "source_group"))
	var wanted []string
	require.NoError(t, json.Unmarshal([]byte(field(t, c.Expected, "keys")), &wanted))
	var found []string
	for _, name := range wanted {
		if field(t, b, name) != "" {
			found = append(found, name)
		} else {
			require.Equal(t, "handler_type", name)
		}
	}
	return wanted, found
}

func leavesNoTemp(t *testing.T, h *rig, _ sharedCase) (want, got any) {
	h.ask(sharedKey(), request(sharedKey(), "run", ""))
	names, err := os.ReadDir(h.layout.Pendings(personal))
	require.NoError(t, err)
	return 1, len(names)
}

func returnsShortID(t *testing.T, h *rig, c sharedCase) (want, got any) {
	h.ask(sharedKey(), request(sharedKey(), "run", ""))
	short := h.pending(sharedKey()).ShortID
	require.Regexp(t, `^[0-9a-f]{8}$`, short)
	return true, regexp.MustCompile(c.expected(t, "regex")).MatchString(short)
}

// shortIDsDiffer because the second request has the last digits of its id.
func shortIDsDiffer(t *testing.T, h *rig, _ sharedCase) (want, got any) {
	h.ask(sharedKey(), request(sharedKey(), "run", ""))
	second := approval.Key{Workspace: personal, ID: sharedID[:8] + "00000000"}
	h.writeRequest(second, request(second, "run", ""))
	h.step(second)
	require.Equal(t, "00000000", h.pending(second).ShortID)
	return []approval.Key{sharedKey()}, h.findWaiting(t, sharedID[:8])
}

func (h *rig) findWaiting(t *testing.T, prefix string) (keys []approval.Key) {
	waiting, err := h.viewer().Waiting(context.Background(), nil)
	require.NoError(t, err)
	for _, w := range waiting {
		if w.Pending.IsNamed(prefix) {
			keys = append(keys, w.Key())
		}
	}
	return keys
}

func removesLoneDecision(_ *testing.T, h *rig, _ sharedCase) (want, got any) {
	h.writeDoc(approval.DocDecision, sharedKey(), `{"request_id":"`+sharedID+`","approved":true}`)
	h.step(sharedKey())
	return []any{false, "none"}, []any{h.has(approval.DocDecision, sharedKey()), h.outcome(sharedKey())}
}

// writesDecision decides, and compares the members that the case names.
func writesDecision(v approval.Verdict) check {
	return func(t *testing.T, h *rig, c sharedCase) (want, got any) {
		h.ask(sharedKey(), request(sharedKey(), "run", ""))
		a := decision(sharedKey(), v)
		a.By = person("testuser")
		h.decide(a)
		b := h.read(approval.DocDecision, sharedKey())
		var wanted map[string]any
		require.NoError(t, json.Unmarshal([]byte(field(t, c.Expected, "json")), &wanted))
		found := map[string]any{}
		for name, value := range wanted {
			if value == "<iso8601>" {
				_, err := time.Parse(time.RFC3339Nano, text(t, b, name))
				require.NoError(t, err)
				found[name] = value
				continue
			}
			var is any
			require.NoError(t, json.Unmarshal([]byte(field(t, b, name)), &is))
			found[name] = is
		}
		return wanted, found
	}
}

// ends asks, decides, and compares the error that the agent reads.
func ends(tool string, v approval.Verdict) check {
	return func(t *testing.T, h *rig, c sharedCase) (want, got any) {
		_, known := h.Tool(tool)
		if !known { // it is gone when the decision comes
			h.setTool(tool, approval.Tool{Name: tool, Trust: gatetest.Harmless()})
		}
		h.ask(sharedKey(), request(sharedKey(), tool, ""))
		if !known {
			h.setTool(tool, approval.Tool{})
		}
		h.decide(decision(sharedKey(), v))
		h.step(sharedKey())
		require.True(t, h.isSettled(sharedKey()), "pending and decision removed")
		r := h.response(sharedKey())
		wanted := text(t, []byte(field(t, c.Expected, "response")), "error")
		if r.Error == nil {
			return wanted, ""
		}
		return wanted, *r.Error
	}
}

func dispatches(t *testing.T, h *rig, c sharedCase) (want, got any) {
	h.ask(sharedKey(), request(sharedKey(), "run", `{"a":1}`))
	h.decide(decision(sharedKey(), approval.Approved))
	h.step(sharedKey())
	require.Equal(t, []string{`{"a":1}`}, h.executor.argsOf(sharedKey()))
	var added map[string]any
	require.NoError(t, json.Unmarshal([]byte(field(t, c.Expected, "dispatch_args")), &added))
	return true, strings.Contains(h.executor.argsOf(sharedKey())[0], "_cop_approved") && len(added) > 0
}

func freesTheSlot(_ *testing.T, h *rig, _ sharedCase) (want, got any) {
	h.ask(sharedKey(), request(sharedKey(), "run", ""))
	for _, junk := range []string{"not json", "{}"} {
		h.writeDoc(approval.DocDecision, sharedKey(), junk)
		h.step(sharedKey())
	}
	return []any{false, "none"}, []any{h.has(approval.DocDecision, sharedKey()), h.outcome(sharedKey())}
}

func unparsablePending(t *testing.T, h *rig, _ sharedCase) (want, got any) {
	h.writeDoc(approval.DocPending, sharedKey(), "not json")
	h.writeDoc(approval.DocDecision, sharedKey(), `{"request_id":"`+sharedID+`","approved":true}`)
	h.step(sharedKey())
	require.True(t, h.isSettled(sharedKey()), "pending and decision removed")
	require.Equal(t, approval.StatusMalformed, h.status(sharedKey()))
	return "none", h.outcome(sharedKey())
}
