package gate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/secrets"
)

// maxRefused is what the record of a refused request may have, in bytes: the reason, twice the
// metadata, and no payload.
const maxRefused = 16 << 10

// payload is a marker, repeated, for a request of almost the maximum size.
const payload = "PAYLOAD-"

var bigText = `"` + strings.Repeat(payload, 30_000) + `"`

// A refused request costs what its reason costs, whatever is in it.
func TestRefusedRequestLeavesItsDigest(t *testing.T) {
	names := make([]string, 2000)
	for i := range names {
		names[i] = fmt.Sprintf(`"%s%d":1`, payload, i)
	}
	aims := gatetest.Tools()["run"]
	aims.Name, aims.Target = "aims", "{text}"
	for _, c := range []struct {
		why, tool, data string
		more            []string
		want            string // status and the beginning of the error
		logged          bool   // the reason quotes the beginning of a value, as before
	}{
		{"denied by a rule", "never", `{"text":` + bigText + `}`, nil, "auto_rejected: Denied by policy: ", false},
		{"an unknown tool", "nothing", `{"text":` + bigText + `}`, nil, "auto_rejected: tool_unknown tool=nothing", false},
		{"an undeclared argument with a long name", "never", `{` + bigText + `:1}`, nil, "auto_rejected: argument_undeclared", true},
		{"many undeclared arguments", "never", `{` + strings.Join(names, ",") + `}`, nil, "auto_rejected: argument_undeclared", true},
		{"not JSON", "never", bigText + `:`, nil, "malformed: ", true},
		{"a long name twice", "never", `{` + bigText + `:1,` + bigText + `:1}`, nil, "malformed: ", true},
		{"an unknown member with a long name", "never", `{}`, []string{bigText + `:1`}, "malformed: ", true},
		{"a target of the agent's", "aims", `{"text":` + bigText + `}`, nil, "auto_rejected: Denied by policy: ", false},
		{"a long proof", "never", `{}`, []string{`"proof":{"program":` + bigText + `}`}, "auto_rejected: Denied by policy: ", false},
		{"long texts", "never", `{}`, []string{`"rationale":"` + strings.Repeat(payload, 1000) + `"`}, "auto_rejected: Denied by policy: ", false},
	} {
		t.Run(c.why, func(t *testing.T) {
			h, k := newRig(t, options{
				inline: true, limits: approval.Limits{RequestSize: 1 << 20},
				tools: map[string]approval.Tool{"aims": aims}, rules: []policy.Rule{{Name: "aims", Tool: policy.Names{"aims"}, Outcome: approval.Deny, Reason: "no"}},
			}), key(1)
			body := request(k, c.tool, c.data, c.more...)
			h.writeRequest(k, body)
			h.step(k)
			require.True(t, strings.HasPrefix(h.outcome(k), c.want), h.outcome(k)[:min(len(h.outcome(k)), 500)])
			require.True(t, h.isSettled(k))
			file := h.read(approval.DocRecord, k)
			require.Less(t, len(file), maxRefused)
			require.LessOrEqual(t, strings.Count(string(file), payload), 100, "no more than a reason quotes")
			if !c.logged {
				require.NotContains(t, string(file), payload)
			}
			rec := h.record(k)
			require.Equal(t, "null", string(rec.Request))
			require.Nil(t, rec.Facts)
			require.Equal(t, approval.Digest([]byte(body)), rec.RequestSHA256)
			require.Equal(t, string(h.read(approval.DocResponse, k)), string(rec.Response))
			require.Equal(t, approval.Digest([]byte(body)), h.response(k).RequestSHA256)
			log, err := os.ReadFile(filepath.Join(h.layout.Audit(), "log.jsonl"))
			require.NoError(t, err)
			require.Less(t, len(log), 2<<10, "the entry is as small")
		})
	}
}

// The record names a few of the secrets in a refused request, and where they are in few words,
// however many there are and however long the names beside them.
func TestRefusedRequestNamesFewSecrets(t *testing.T) {
	denies := gatetest.Tools()["run"]
	denies.Name, denies.Secrets = "denies", "deny"
	scanner, err := secrets.New()
	require.NoError(t, err)
	for _, tool := range []string{"never", "denies"} {
		for _, c := range []struct{ members, long int }{{1000, 8}, {1, 200_000}, {40, 5000}} {
			t.Run(fmt.Sprintf("%s: %d secrets with names of %d bytes", tool, c.members, c.long), func(t *testing.T) {
				h, k := newRig(t, options{inline: true, limits: approval.Limits{RequestSize: 1 << 20}, tools: map[string]approval.Tool{"denies": denies}}), key(1)
				h.Policy.Scan = scanner.Scan
				members := make([]string, c.members)
				for i := range members { // the limit of a place in the report is within an é
					members[i] = fmt.Sprintf(`"%03d%s":"ghp_R7kQxX93kdJw81vRtB2mZ5nLpWq4YcT6uHsA"`, i, strings.Repeat("é", c.long/2))
				}
				h.writeRequest(k, request(k, tool, `{"text":{`+strings.Join(members, ",")+`}}`))
				h.step(k)
				require.Equal(t, approval.StatusAutoRejected, h.status(k))
				require.Len(t, h.record(k).Ruling.Secrets, min(c.members, 16))
				require.Less(t, len(h.read(approval.DocRecord, k)), maxRefused)
			})
		}
	}
}

// A path of a refused request may be as long as the request: where it leads is not kept.
func TestRefusedRequestKeepsNoPath(t *testing.T) {
	opens := gatetest.Tools()["run"]
	opens.Name, opens.Args = "opens", map[string]approval.Argument{"text": {Type: "path"}}
	h, k := newRig(t, options{
		inline: true, tools: map[string]approval.Tool{"opens": opens},
		rules: []policy.Rule{{Name: "opens", Tool: policy.Names{"opens"}, Outcome: approval.Deny, Reason: "no"}},
	}), key(1)
	resolved := 0
	h.Policy.Resolve = func(path string) (string, error) { resolved++; return "/elsewhere" + path, nil }
	h.writeRequest(k, request(k, "opens", `{"text":"/`+strings.Repeat(payload, 1000)+`"}`))
	h.step(k)
	require.Equal(t, approval.StatusAutoRejected, h.status(k))
	require.NotZero(t, resolved)
	require.NotContains(t, string(h.read(approval.DocRecord, k)), payload)
}

// What a refused request was about is still known, and its response has what any other has.
func TestRefusedRequestKeepsItsOutline(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.writeRequest(k, request(k, "never", `{"text":"`+payload+`"}`, `"session_id":"s1"`, `"metadata":{"of":"the agent"}`, `"title":"`+payload+`"`))
	h.step(k)
	require.JSONEq(t, `{"of":"the agent"}`, string(h.response(k).Metadata))
	p := read.Requested(k, h.record(k))
	require.Equal(t, []string{"never", "custom:never", "s1", `{"of":"the agent"}`}, []string{p.ToolName, p.ActionType, p.SessionID, string(p.Metadata)})
	require.Empty(t, p.RequestData, "not kept, which is not the same as empty")

	v := read.Viewer{Store: h.store, Seal: h.key}
	r, then, err := v.RequestAndRuling(context.Background(), k)
	require.NoError(t, err)
	require.Nil(t, r, "it cannot be judged again")
	require.Equal(t, approval.Deny, then.Outcome)
}

// What ran keeps its payload: people may have to look at it.
func TestWhatRanKeepsItsRequest(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	body := request(k, "auto", `{"text":"`+payload+`"}`)
	h.writeRequest(k, body)
	h.step(k)
	require.Equal(t, "auto_approved", h.outcome(k))
	require.Equal(t, body, string(h.record(k).Request))
	require.Nil(t, h.record(k).Outline)
}

// The digest is enough to know a request that comes again from another one under its id.
func TestRefusedRequestThatComesAgain(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	body, other := request(k, "never", `{"text":"a"}`), request(k, "never", `{"text":"b"}`)
	h.writeRequest(k, body)
	h.step(k)
	first := h.read(approval.DocRecord, k)
	h.writeRequest(k, body)
	h.step(k)
	require.True(t, h.isSettled(k))
	require.Empty(t, h.refusals(personal), "the same one is no fault")
	h.writeRequest(k, other)
	h.step(k)
	require.Contains(t, h.refusals(personal), "another request under a used ID")
	require.Equal(t, string(first), string(h.read(approval.DocRecord, k)))

	_, err := h.gate.Submit(context.Background(), k, []byte(body), submit.Origin{})
	require.NoError(t, err)
	_, err = h.gate.Submit(context.Background(), k, []byte(other), submit.Origin{})
	require.ErrorIs(t, err, submit.ErrIDTaken)
	h.reopen()
	h.step(k)
	_, err = h.gate.Submit(context.Background(), k, []byte(body), submit.Origin{})
	require.NoError(t, err)
}
