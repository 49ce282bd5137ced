package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

func cancelled() (context.Context, func()) { return context.WithCancel(context.Background()) }

// Defects of an earlier public gate of this kind, each as a test.

// TestRequestKeysCannotDecide tries every way to decide with a key that may request.
func TestRequestKeysCannotDecide(t *testing.T) {
	inbox := &fakeInbox{}
	h := newRig(t, func(h *rig) { h.server.Inbox = inbox })
	id := h.ask()
	for _, k := range []string{"agent", "another"} {
		require.Equal(t, 403, h.do(k, "POST", path(id, "/decision"), code("1")).StatusCode)
		require.Equal(t, 403, h.do(k, "POST", "/v1/inbox/email-reply", map[string]any{"subject": id, "body": "1"}).StatusCode)
	}
	require.Empty(t, inbox.received)
	for _, more := range []string{apikey.MayDecide, apikey.MayInbound} {
		k := apikey.New("x")
		k.Workspace, k.Owner, k.Scopes, k.CreatedAt, k.CreatedBy = home, "ann", []string{apikey.MayRequest, more}, time.Now(), "test"
		require.ErrorContains(t, k.Check(), "an agent must not decide its own requests")
		body, err := k.Encode()
		require.NoError(t, err)
		_, err = apikey.Parse(body, k.ID)
		require.Error(t, err, "a key file cannot combine these scopes either")
	}
	h.newKey("mallory", home, "mallory", apikey.MayDecide)
	h.requireProblem(h.do("mallory", "POST", path(id, "/decision"), code("1")), 404, "approval not found")
	require.Equal(t, "pending", h.do("agent", "GET", path(id), nil).json["status"])
	require.Zero(t, h.runs())
}

// TestFirstDecisionWins has ann approve and bob deny at the same moment, 500 times.
func TestFirstDecisionWins(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	const trials, atOnce = 500, 10
	var wg sync.WaitGroup
	approvals := make(chan bool, trials)
	for range atOnce {
		wg.Go(func() {
			for range trials / atOnce {
				approvals <- h.race()
			}
		})
	}
	wg.Wait()
	close(approvals)
	won := 0
	for yes := range approvals {
		if yes {
			won++
		}
	}
	require.Equal(t, won, h.runs(), "approved requests ran once, denied ones never")
	t.Logf("approved %d of %d", won, trials)
}

// race reports whether the approval won.
func (h *rig) race() bool {
	id := h.ask()
	start := make(chan struct{})
	var answers [2]answer
	var wg sync.WaitGroup
	for i, who := range []string{"ann", "bob"} {
		wg.Go(func() {
			<-start
			answers[i] = h.do(who, "POST", path(id, "/decision"), code([]string{"1", "3"}[i]))
		})
	}
	close(start)
	wg.Wait()
	got := h.do("agent", "GET", path(id, "?wait=60"), nil).json
	yes, no := answers[0].StatusCode, answers[1].StatusCode
	require.True(h.t, yes == 200 && no == 409 || yes == 409 && no == 200, "%d and %d", yes, no)
	require.Equal(h.t, map[bool]string{true: "approved", false: "denied"}[yes == 200], got["status"])
	return yes == 200
}

// TestUnclearDecisionIsRefused sends verdicts that are not exactly one of the valid
// forms.
func TestUnclearDecisionIsRefused(t *testing.T) {
	h := newRig(t)
	id := h.ask(func(w map[string]any) { w["session_id"] = "s1" })
	for _, body := range []string{
		`{}`, `{"code":""}`, `{"code":"0"}`, `{"code":"7"}`, `{"code":"approve"}`, `{"code":"yes"}`, `{"code":"no, deny this"}`, `{"code":"１"}`,
		`{"code":"1 "}`, `{"code":1}`, `{"code":true}`, `{"code":["1"]}`, `{"code":"1","code":"3"}`, `{"Code":"1"}`, `{"approved":true}`, `{"verdict":"approved"}`,
		`{"code":"1","reason":"no, deny this"}`, `{"code":"1","note":"wait"}`, `{"code":"6","note":"no"}`, `{"code":"4"}`, `{"code":"5"}`, `{"code":"4","note":""}`,
		`{"code":"4","note":"a","override":"b"}`, `{"code":"5","note":"a"}`, `{"code":"2","answer":"x"}`, `{"answer":"1"}`, `{"answer":"a","feedback":"b"}`,
		`{"code":"3","note":"x"}`, `{"code":null}`, `{"note":"1"}`, `{"override":"1"}`, `{"reason":"approve"}`, `"1"`, `1`, `[]`,
	} {
		a := h.do("ann", "POST", path(id, "/decision"), body)
		require.Contains(t, []int{400, 422}, a.StatusCode, "%s: %s", body, a.body)
	}
	require.Equal(t, "pending", h.do("agent", "GET", path(id), nil).json["status"])
	require.Equal(t, 422, h.do("ann", "POST", path(id, "/decision"), map[string]any{"code": "1", "pending_sha256": "x"}).StatusCode)
	h.requireProblem(h.do("ann", "POST", path(id, "/decision"), map[string]any{"code": "1", "pending_sha256": strings.Repeat("0", 64)}), 409, "the approval changed since it was shown: get it again")
	require.Zero(t, h.runs())
	shown := h.do("ann", "GET", path(id), nil).json["pending_sha256"]
	require.Len(t, shown, 64, "an approver learns what a decision has to name")
	require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), map[string]any{"code": "3", "pending_sha256": shown}).StatusCode)
	ended := h.do("agent", "GET", path(id)+"?wait=60", nil).json
	require.Equal(t, "denied", ended["status"])
	require.Nil(t, ended["pending_sha256"])
	for verdict, want := range map[string]string{
		`{"code":"1"}`: "approved", `{"code":"2"}`: "approved", `{"code":"3"}`: "denied", `{"code":"3","reason":"no, deny this"}`: "denied",
		`{"code":"4","note":"n"}`: "approved", `{"code":"5","override":"o"}`: "overridden", `{"code":"6"}`: "approved", `{"feedback":"why?"}`: "request_more",
	} {
		id := h.ask(func(w map[string]any) { w["session_id"] = "s1" })
		require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), verdict).StatusCode, verdict)
		require.Equal(t, want, h.do("agent", "GET", path(id, "?wait=60"), nil).json["outcome"], verdict)
		h.revokeAll()
	}
}

// revokeAll revokes all grants, so that the next request needs a decision.
func (h *rig) revokeAll() {
	for _, g := range h.GrantsIn(home) {
		_, err := h.RevokeGrant(g.ID, "test")
		require.NoError(h.t, err)
	}
}

// TestRevokeRule lists a rule and revokes it: its client may, other clients may not.
func TestRevokeRule(t *testing.T) {
	h := newRig(t)
	id := h.addGrant(grant.Action, "")
	request := map[string]any{"action_type": "write_file"}
	require.Empty(t, h.do("another", "GET", "/v1/allow-rules", nil).json["items"])
	h.requireProblem(h.do("another", "GET", "/v1/allow-rules/"+id, nil), 404, "rule not found")
	h.requireProblem(h.do("another", "DELETE", "/v1/allow-rules/"+id, nil), 404, "rule not found")
	h.requireProblem(h.do("agent", "DELETE", "/v1/session-allows/"+id, nil), 404, "rule not found")
	require.Len(t, h.do("agent", "GET", "/v1/allow-rules", nil).json["items"], 1)
	require.Len(t, h.do("ann", "GET", "/v1/allow-rules", nil).json["items"], 1, "a key that decides sees the rules")
	h.newKey("watch", home, "", apikey.MayRead)
	require.Equal(t, 403, h.do("watch", "DELETE", "/v1/allow-rules/"+id, nil).StatusCode)
	require.Equal(t, 204, h.do("agent", "DELETE", "/v1/allow-rules/"+id, nil).StatusCode)
	require.Equal(t, "revoked", h.do("agent", "GET", "/v1/allow-rules/"+id, nil).json["state"])
	require.Equal(t, "pending", h.do("agent", "POST", "/v1/approvals", request).json["status"], "a revoked rule allows nothing")
	call := map[string]any{"tool_name": "run"}
	given := h.addGrant(grant.Tool, "")
	require.Equal(t, "pending", h.do("another", "POST", "/v1/approvals", call).json["status"], "a grant of another client")
	require.Equal(t, "approved", h.do("agent", "POST", "/v1/approvals", call).json["status"])
	require.Equal(t, 404, h.do("another", "DELETE", "/v1/grants/"+given, nil).StatusCode)
	require.Equal(t, 204, h.do("ann", "DELETE", "/v1/grants/"+given, nil).StatusCode)
	require.Equal(t, "pending", h.do("agent", "POST", "/v1/approvals", call).json["status"])
}

// TestChannelsDown creates a request while no channel is reachable: the gate accepts it,
// and the channel sends the pending later.
func TestChannelsDown(t *testing.T) {
	h := newRig(t)
	a := h.do("agent", "POST", "/v1/approvals", map[string]any{"tool_name": "run", "channel": "email"})
	require.Equal(t, http.StatusCreated, a.StatusCode)
	w, err := h.view.Pending(h.key(a.json["approval_id"].(string)))
	require.NoError(t, err)
	require.Equal(t, "email", w.Pending.AskOn)
}

// TestClientsCanOnlyNarrowChannels checks which channels and targets a client may choose.
func TestClientsCanOnlyNarrowChannels(t *testing.T) {
	h := newRig(t, func(h *rig) {
		ws := h.ws[other]
		ws.Channels = []string{"email"}
		h.ws[other] = ws
	})
	h.newKey("outsider", other, "", apikey.MayRequest)
	for _, tt := range []struct {
		key, channel string
		target       map[string]any
		status       int
		askOn        string
	}{
		{"agent", "", nil, 201, ""},
		{"agent", "telegram", nil, 201, "telegram"},
		{"agent", "email", map[string]any{"email_to": "ann@example.org"}, 201, "email"},
		{"agent", "", map[string]any{"tg_chat_id": "123"}, 201, "telegram"},
		{"agent", "", map[string]any{"tg_chat_id": 123}, 201, "telegram"},
		{"agent", "", map[string]any{"tg_chat_id": 666}, 422, ""},
		{"agent", "", map[string]any{"tg_chat_id": 12.5}, 422, ""},
		{"agent", "", map[string]any{"tg_chat_id": true}, 422, ""},
		{"agent", "", map[string]any{"tg_chat_id": "666"}, 422, ""},
		{"agent", "", map[string]any{"email_to": "mallory@evil.example"}, 422, ""},
		{"agent", "", map[string]any{"email_to": "ANN@example.org"}, 422, ""},
		{"agent", "email", map[string]any{"tg_chat_id": "123"}, 422, ""},
		{"agent", "telegram", map[string]any{"email_to": "ann@example.org"}, 422, ""},
		{"agent", "", map[string]any{"tg_chat_id": "123", "email_to": "ann@example.org"}, 422, ""},
		{"agent", "", map[string]any{}, 422, ""},
		{"outsider", "telegram", nil, 422, ""},
		{"outsider", "", map[string]any{"tg_chat_id": "123"}, 422, ""},
	} {
		request := map[string]any{"tool_name": "run"}
		if tt.channel != "" {
			request["channel"] = tt.channel
		}
		if tt.target != nil {
			request["target"] = tt.target
		}
		a := h.do(tt.key, "POST", "/v1/approvals", request)
		require.Equal(t, tt.status, a.StatusCode, "%v: %s", tt, a.body)
		if tt.status == 201 {
			w, err := h.view.Pending(h.key(a.json["approval_id"].(string)))
			require.NoError(t, err)
			require.Equal(t, tt.askOn, w.Pending.AskOn)
		}
	}
}

// TestOnlyKeyOwnerDecides creates a request with a key that has an owner.
func TestOnlyKeyOwnerDecides(t *testing.T) {
	h := newRig(t)
	h.newKey("anns", home, "ann", apikey.MayRequest)
	id := h.askAs("anns")
	h.requireProblem(h.do("bob", "POST", path(id, "/decision"), code("1")), 404, "approval not found")
	require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), code("1")).StatusCode)
}

// TestArgumentsAreVerbatim compares the stored arguments with those that were sent.
func TestArgumentsAreVerbatim(t *testing.T) {
	h := newRig(t)
	const data = `{"n": 9007199254740993 ,"big":1e400,"neg":-0.0, "s":"\u00e9\/","deep":{"b":[1.10]}}`
	a := h.do("agent", "POST", "/v1/approvals", `{"tool_name":"run","request_data":`+data+`}`)
	require.Equal(t, 201, a.StatusCode, "%s", a.body)
	w, err := h.view.Pending(h.key(a.json["approval_id"].(string)))
	require.NoError(t, err)
	require.True(t, bytes.Equal([]byte(data), w.Pending.RequestData), "%s", w.Pending.RequestData)
	require.Equal(t, 200, h.do("ann", "POST", path(a.json["approval_id"].(string), "/decision"), code("1")).StatusCode)
	h.do("agent", "GET", path(a.json["approval_id"].(string), "?wait=60"), nil)
	require.True(t, bytes.Equal([]byte(data), h.Executor.Jobs()[0].Args), "the executed arguments are those that were sent: %s", h.Executor.Jobs()[0].Args)
}

func TestIdempotencyKey(t *testing.T) {
	h := newRig(t)
	request := map[string]any{"tool_name": "auto", "request_data": map[string]any{"n": 1}}
	var wg sync.WaitGroup
	ids := make(chan string, 20)
	for range 20 {
		wg.Go(func() {
			a := h.do("agent", "POST", "/v1/approvals", request, "Idempotency-Key", "once")
			require.Contains(t, []int{200, 201}, a.StatusCode, "%s", a.body)
			ids <- a.json["approval_id"].(string)
		})
	}
	wg.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		seen[id] = true
	}
	require.Len(t, seen, 1)
	for id := range seen {
		h.do("agent", "GET", path(id, "?wait=60"), nil)
	}
	require.Equal(t, 1, h.runs())
	h.requireProblem(h.do("agent", "POST", "/v1/approvals", map[string]any{"tool_name": "auto"}, "Idempotency-Key", "once"), 422, "this Idempotency-Key was used with another body")
	other := h.do("another", "POST", "/v1/approvals", request, "Idempotency-Key", "once")
	require.Equal(t, 201, other.StatusCode, "another client's key is another key")
	require.False(t, seen[other.json["approval_id"].(string)])
	require.Equal(t, 422, h.do("agent", "POST", "/v1/approvals", request, "Idempotency-Key", "a b").StatusCode)
}

// TestAboutTableMatchesOutcome reads the table of the document.
func TestAboutTableMatchesOutcome(t *testing.T) {
	rows := 0
	for row := range strings.Lines(httpapi.About) {
		cells := strings.Split(row, "|")
		if len(cells) != 6 || strings.Contains(row, "---") || strings.Contains(row, "what it means") {
			continue
		}
		name := strings.TrimSpace(cells[1])
		if name == "null" {
			continue
		}
		rows++
		status, execution := httpapi.Outcome(approval.Status(name))
		require.Equal(t, strings.TrimSpace(cells[2])+" "+strings.TrimSpace(cells[3]), status+" "+execution, name)
	}
	require.Equal(t, 12, rows)
	status, execution := httpapi.Outcome("invented later")
	require.Equal(t, "denied none", fmt.Sprint(status, " ", execution), "an unknown status is denied")
}
