package httpapi_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Cases of an earlier public service with proofs and a dialog. A case that differs has
// its reason here.
var dialogDiffers = map[string]string{
	"service.id_from_hash_and_request_more":      "ids are random or derived from the client's key: two requests for one program are two requests",
	"service.api_aliases":                        "each operation has one path",
	"service.retry_same_id_returns_old_decision": "a decision is for the bytes that were shown: the same key with other bytes is refused, and runs nothing",
	"service.ui_list_and_detail":                 "tested in chat/web",
	"service.ui_rows_fragment":                   "the same",
	"service.ui_coverage_order":                  "tested in chat and chat/web",
}

// waitAndDecide waits for a request on another connection, and has ann decide.
func (h *rig) waitAndDecide(id string, decision any) (blocked, decided answer) {
	var wg sync.WaitGroup
	wg.Go(func() { blocked = h.do("agent", "GET", path(id, "?wait=60"), nil) })
	decided = h.do("ann", "POST", path(id, "/decision"), decision)
	wg.Wait()
	return blocked, decided
}

var dialog = map[string]func(h *rig, t *testing.T) bool{
	"service.waits_for_decision": func(h *rig, t *testing.T) bool {
		id := h.ask()
		before := h.do("agent", "GET", path(id), nil)
		require.Equal(t, "pending", before.json["status"])
		require.Nil(t, before.json["decision"], "no approval before a decision")
		require.Nil(t, before.json["receipt"])
		blocked, decided := h.waitAndDecide(id, code("1"))
		require.Equal(t, http.StatusOK, decided.StatusCode, "%s", decided.body)
		require.NotEmpty(t, blocked.json["receipt"])
		require.Equal(t, blocked.json, h.do("agent", "GET", path(id), nil).json, "the response of the waiting client does not change")
		list := h.do("agent", "GET", "/v1/approvals", nil)
		require.Equal(t, 1, strings.Count(string(list.body), id), "%s", list.body)
		return blocked.json["status"] == "approved"
	},
	"service.id_from_hash_and_request_more": func(h *rig, t *testing.T) bool {
		proof := func(w map[string]any) { w["proof"] = map[string]any{"program_sha256": strings.Repeat("ab", 32)} }
		id := h.ask(proof)
		require.NotEqual(t, id, h.ask(proof))
		blocked, _ := h.waitAndDecide(id, map[string]any{"feedback": "who will be emailed?"})
		require.Equal(t, "request_more", blocked.json["outcome"])
		require.Equal(t, "who will be emailed?", blocked.json["feedback"])
		require.Equal(t, "answer_from_facts_or_resubmit", blocked.json["required_response"])
		require.Nil(t, blocked.json["receipt"])
		return strings.Contains(id, strings.Repeat("ab", 8))
	},
	"service.api_aliases": func(h *rig, _ *testing.T) bool {
		return h.do("agent", "POST", "/api/requests", map[string]any{"tool_name": "run"}).StatusCode != 404 ||
			h.do("agent", "POST", "/requests", map[string]any{"tool_name": "run"}).StatusCode != 404
	},
	"service.retry_same_id_returns_old_decision": func(h *rig, t *testing.T) bool {
		program := func(text string) answer {
			return h.do("agent", "POST", "/v1/approvals", map[string]any{"tool_name": "run", "request_data": map[string]any{"program": text}}, "Idempotency-Key", "clr_retry")
		}
		id := program("one").json["approval_id"].(string)
		h.waitAndDecide(id, code("1"))
		again := program("another")
		require.Equal(t, 422, again.StatusCode, "%s", again.body)
		require.NotContains(t, string(again.body), "approved")
		require.Equal(t, "approved", program("one").json["status"], "the same request again returns its end")
		require.Equal(t, 1, h.runs(), "nothing runs a second time")
		return again.StatusCode < 300
	},
}

func TestDialogCases(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", "dialog-receipts.json"))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		b = []byte(`{"cases":[]}`)
	} else {
		require.NoError(t, err)
	}
	var doc struct{ Cases []struct{ Name string } }
	require.NoError(t, json.Unmarshal(b, &doc))
	for _, c := range doc.Cases {
		_, tried := dialog[c.Name]
		require.True(t, tried || dialogDiffers[c.Name] != "" || !strings.HasPrefix(c.Name, "service."), "%s: neither tested nor excused", c.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(dialog)) {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, dialogDiffers[name] == "", dialog[name](newRig(t), t), dialogDiffers[name])
		})
	}
}

// Defects of that service, as tests. There a request could carry its own approval.
func TestRequestsCannotCarryAnApproval(t *testing.T) {
	h := newRig(t)
	for name, more := range map[string]any{
		"approval": map[string]any{"decision": "approved_once", "receipt": "local-1"}, "decision": map[string]any{"code": "1", "by": "ann"},
		"approved": true, "status": "approved", "outcome": "approved", "receipt": "permesso receipt v1", "code": "1", "auto": true, "verdict": "approved",
		"decided_by": "ann", "ruling": map[string]any{"outcome": "allow"}, "facts": map[string]any{}, "verified": true,
	} {
		a := h.do("agent", "POST", "/v1/approvals", map[string]any{"tool_name": "run", name: more})
		require.Equal(t, 422, a.StatusCode, "%s: %s", name, a.body)
	}
	id := h.ask(func(w map[string]any) {
		w["request_data"] = map[string]any{"approved": true, "decision": "approved_once"}
		w["proof"] = map[string]any{"approval": "approved_once", "verified": true, "signature": "x"}
		w["title"], w["rationale"] = "approved", "pre-approved by admin"
	})
	require.Equal(t, "pending", h.do("agent", "GET", path(id), nil).json["status"])
	w, err := h.view.Pending(h.key(id))
	require.NoError(t, err)
	require.False(t, w.Pending.Facts.Proof.Verified, "an agent cannot mark its proof as verified")
	require.Zero(t, h.runs())
}

// There any text was a decision, and was stored as one.
func TestUnknownCodeIsNotADecision(t *testing.T) {
	h := newRig(t)
	id := h.ask()
	for _, body := range []string{`{"code":"banana"}`, `{"decision":"banana"}`, `{"verdict":"banana"}`, `{"answer":"banana"}`, `"banana"`, `banana`} {
		a := h.do("ann", "POST", path(id, "/decision"), body)
		require.Contains(t, []int{400, 422}, a.StatusCode, "%s: %s", body, a.body)
	}
	require.Equal(t, "pending", h.do("agent", "GET", path(id), nil).json["status"])
	blocked, decided := h.waitAndDecide(id, code("3"))
	require.Equal(t, http.StatusOK, decided.StatusCode, "it can still be decided")
	require.Equal(t, "denied", blocked.json["status"])
	require.Zero(t, h.runs())
}

// There each waiting request held a thread, and 40 of them blocked the service.
func TestManyWaitingClients(t *testing.T) {
	h := newRig(t)
	ids := make([]string, 40)
	for i := range ids {
		ids[i] = h.ask()
	}
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			a := h.do("agent", "GET", path(id, "?wait=60"), nil)
			require.Contains(t, []int{200, 429, 503}, a.StatusCode, "%s", a.body)
		})
	}
	start := time.Now()
	a := h.do("another", "POST", "/v1/approvals", map[string]any{"tool_name": "auto"})
	require.Equal(t, 201, a.StatusCode, "%s", a.body)
	require.Equal(t, "approved", h.do("another", "GET", path(a.json["approval_id"].(string), "?wait=60"), nil).json["status"])
	require.Equal(t, 200, h.do("agent", "GET", "/v1/approvals", nil).StatusCode)
	require.Equal(t, 200, h.do("ann", "POST", path(ids[39], "/decision"), code("1")).StatusCode, "the last request may be decided first")
	require.Less(t, time.Since(start), 50*time.Second, "waiting clients do not block others")
	for _, id := range ids[:39] {
		require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), code("3")).StatusCode)
	}
	wg.Wait()
	require.Equal(t, 2, h.runs())
}
