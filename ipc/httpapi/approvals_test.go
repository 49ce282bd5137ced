package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAskAndDecide(t *testing.T) {
	h := newRig(t)
	a := h.do("agent", "POST", "/v1/approvals", map[string]any{
		"tool_name": "run", "session_id": "s1", "title": "Post", "request_data": map[string]any{"text": "hi"}, "expires_in_sec": 60,
	})
	require.Equal(t, http.StatusCreated, a.StatusCode, "%s", a.body)
	id := a.json["approval_id"].(string)
	require.Regexp(t, "^appr_[0-9a-f]{32}$", id)
	require.Equal(t, "/v1/approvals/"+id, a.Header.Get("Location"))
	require.Equal(t, "pending", a.json["status"])
	require.Equal(t, false, a.json["auto"])
	require.Nil(t, a.json["decision"])
	require.IsType(t, float64(0), a.json["expires_at"])

	got := h.do("agent", "GET", path(id), nil)
	require.Equal(t, http.StatusOK, got.StatusCode)
	require.Equal(t, a.json, got.json)
	require.Equal(t, "s1", got.json["session_id"])
	require.Equal(t, "custom:run", got.json["action_type"])

	d := h.do("ann", "POST", path(id, "/decision"), map[string]any{"code": "4", "note": "add logs"})
	require.Equal(t, http.StatusOK, d.StatusCode, "%s", d.body)
	require.Equal(t, "approved", d.json["status"])

	got = h.do("agent", "GET", path(id, "?wait=60"), nil)
	require.Equal(t, "approved", got.json["status"])
	require.Equal(t, "approved", got.json["outcome"])
	require.Equal(t, "done", got.json["execution"])
	require.Equal(t, map[string]any{"code": "4", "note": "add logs", "override": nil, "by": "ann", "via": "rest"}, got.json["decision"])
	require.Equal(t, map[string]any{"done": true}, got.json["result"])
	require.Contains(t, got.json["receipt"], "permesso")
	require.Equal(t, 1, h.runs())
}

func TestKeysAndScopes(t *testing.T) {
	h := newRig(t)
	id := h.ask()
	h.requireProblem(h.do("no key", "GET", path(id), nil), http.StatusUnauthorized, "Invalid API key")
	h.secrets["wrong"] = "permesso_wrong"
	h.requireProblem(h.do("wrong", "GET", path(id), nil), http.StatusUnauthorized, "Invalid API key")
	h.requireProblem(h.do("another", "GET", path(id), nil), http.StatusNotFound, "approval not found")
	h.requireProblem(h.do("another", "DELETE", path(id), nil), http.StatusNotFound, "approval not found")
	h.requireProblem(h.do("agent", "POST", path(id, "/decision"), code("1")), http.StatusForbidden, "this key lacks the scope decide")
	h.requireProblem(h.do("ann", "POST", "/v1/approvals", map[string]any{"tool_name": "run"}), http.StatusForbidden, "this key lacks the scope request")
	h.newKey("elsewhere", other, "ann", "decide", "read")
	h.requireProblem(h.do("elsewhere", "POST", path(id, "/decision"), code("1")), http.StatusNotFound, "approval not found")
	h.revoke("agent")
	h.requireProblem(h.do("agent", "GET", path(id), nil), http.StatusUnauthorized, "Invalid API key")
	require.Zero(t, h.runs())
}

// A request waits as long as one from the agent's folder: expires_in_sec may change the
// workspace's timeout, and the workspace's maximum limits it.
func TestTimeoutIsTheWorkspaces(t *testing.T) {
	h := newRig(t)
	for _, c := range []struct {
		asked any
		want  time.Duration
	}{
		{nil, time.Hour},
		{60, time.Minute},
		{48 * 3600, time.Hour},
	} {
		before := time.Now()
		id := h.ask(func(w map[string]any) {
			if c.asked != nil {
				w["expires_in_sec"] = c.asked
			}
		})
		a := h.do("agent", "GET", path(id), nil)
		until := time.Unix(int64(a.json["expires_at"].(float64)), 0)
		require.WithinDuration(t, before.Add(c.want), until, 20*time.Second, "%v", c.asked)
	}
}

// The reason of a cancel is kept with the request.
func TestCancelWithAReason(t *testing.T) {
	h := newRig(t)
	id := h.ask()
	h.requireProblem(h.do("agent", "DELETE", path(id, "?reason="+strings.Repeat("x", 301)), nil), http.StatusUnprocessableEntity, "query.reason: expected length <= 300")
	require.Equal(t, "pending", h.do("agent", "GET", path(id), nil).json["status"])
	got := h.do("agent", "DELETE", path(id, "?reason=no+longer+needed"), nil)
	require.Equal(t, http.StatusOK, got.StatusCode, "%s", got.body)
	got = h.do("agent", "GET", path(id, "?wait=60"), nil)
	require.Equal(t, "cancelled", got.json["outcome"])
	require.Equal(t, "no longer needed", got.json["feedback"])
}

// A key finds its own requests by the beginning of an id, ended ones too.
func TestListByID(t *testing.T) {
	h := newRig(t)
	id := h.ask()
	ids := func(key, prefix string) (found []any) {
		list := h.do(key, "GET", "/v1/approvals?id="+prefix, nil)
		require.Equal(t, http.StatusOK, list.StatusCode, "%s", list.body)
		for _, item := range list.json["items"].([]any) {
			found = append(found, item.(map[string]any)["approval_id"])
		}
		return found
	}
	require.Equal(t, []any{id}, ids("agent", id[len("appr_"):][:8]))
	require.Equal(t, []any{id}, ids("agent", id[:len("appr_")+4]))
	require.Empty(t, ids("another", id[len("appr_"):][:8]), "of another client")
	require.Equal(t, []any{id}, ids("ann", id), "her workspace")
	require.Equal(t, http.StatusOK, h.do("agent", "DELETE", path(id), nil).StatusCode)
	h.do("agent", "GET", path(id, "?wait=60"), nil)
	require.Equal(t, []any{id}, ids("agent", id[len("appr_"):][:8]), "ended")
	require.Equal(t, http.StatusUnprocessableEntity, h.do("agent", "GET", "/v1/approvals?id=a7f", nil).StatusCode)
}
