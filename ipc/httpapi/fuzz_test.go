package httpapi_test

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/service"
)

// fakeGate accepts requests and keeps the last.
type fakeGate struct {
	key  approval.Key
	got  []byte
	from submit.Origin
}

// Submit implements the gate of a service.
func (s *fakeGate) Submit(_ context.Context, k approval.Key, request []byte, from submit.Origin) (submit.Result, error) {
	s.key, s.got, s.from = k, request, from
	return submit.Result{}, nil
}

// Cancel implements the gate of a service.
func (*fakeGate) Cancel(context.Context, approval.Key, submit.Origin, string) (*approval.Decision, error) {
	return nil, &decide.Refusal{Reason: decide.ErrUnknown}
}

// fakeViewer returns the last request as pending.
type fakeViewer struct{ *fakeGate }

func (fakeViewer) Waiting(context.Context, []string) ([]approval.StoredPending, error) {
	return nil, nil
}

func (fakeViewer) Find(context.Context, []string, string) ([]approval.Key, error) { return nil, nil }

func (b fakeViewer) Story(_ context.Context, k approval.Key) (read.Story, error) {
	return read.Story{Pending: &approval.Pending{SourceGroup: k.Workspace, RequestID: k.ID, ClientID: b.from.ClientID, ExpiresAt: time.Now()}}, nil
}

type oneKey struct{ k *apikey.Key }

func (s oneKey) Key(hash string) (*apikey.Key, error) {
	if hash != s.k.Hash {
		return nil, fs.ErrNotExist
	}
	return s.k, nil
}

func (oneKey) WorkspaceInfo(string) (service.WorkspaceInfo, bool) {
	return service.WorkspaceInfo{Channels: []string{"email"}, Targets: map[string][]string{"email": {"a@b.c"}}, MaxSize: 1 << 20}, true
}

// newFakeServer is a server with a fakeGate and one key: "key".
func newFakeServer() (*fakeGate, *apikey.Key, http.Handler) {
	k := apikey.New("key")
	k.Workspace, k.Scopes, k.CreatedAt, k.CreatedBy = home, []string{apikey.MayRequest}, time.Now(), "test"
	s := &fakeGate{}
	return s, k, (&httpapi.Server{Service: &service.Service{Gate: s, Viewer: fakeViewer{s}, Settings: oneKey{k}}, Keys: oneKey{k}, Hosts: []string{"permesso"}}).Handler()
}

func post(handler http.Handler, body []byte, idempotencyKey string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/approvals", bytes.NewReader(body))
	r.Host = "permesso"
	r.Header.Set("Authorization", "Bearer key")
	r.Header.Set("Content-Type", "application/json")
	if idempotencyKey != "" {
		r.Header.Set("Idempotency-Key", idempotencyKey)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// An id derived from an Idempotency-Key may have been used before.
func TestOnlyRandomIDsAreFresh(t *testing.T) {
	s, _, handler := newFakeServer()
	body := []byte(`{"tool_name":"x"}`)
	require.Equal(t, http.StatusCreated, post(handler, body, "").Code)
	require.True(t, s.from.Fresh)
	random := s.key.ID
	require.Equal(t, http.StatusCreated, post(handler, body, "").Code)
	require.NotEqual(t, random, s.key.ID)
	require.Equal(t, http.StatusCreated, post(handler, body, "mine").Code)
	require.False(t, s.from.Fresh)
	made := s.key.ID
	require.Equal(t, http.StatusCreated, post(handler, body, "mine").Code)
	require.Equal(t, made, s.key.ID)
}

// FuzzCreate sends any body. An accepted request must be readable by the gate under its
// id, with the arguments as they were sent, from the client that sent it, and only on
// configured channels.
func FuzzCreate(f *testing.F) {
	s, k, handler := newFakeServer()
	for _, seed := range []string{
		`{"tool_name":"x","request_data":{"n":1e400}}`, `{"action_type":"exec_cmd","target":{"email_to":"a@b.c"}}`, `{"type":"question","title":"b","options":["a"]}`,
		`{"tool_name":"x","proof":{"a":[1,2]},"resubmits":"appr_0123456789abcdef"}`, `{"request_id":"0123456789abcdef"}`, `{"tool_name":null}`, `[`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s.got = nil
		w := post(handler, body, "")
		require.Less(t, w.Code, 500, "%s", w.Body)
		require.Equal(t, w.Code == http.StatusCreated, s.got != nil)
		if s.got == nil {
			return
		}
		require.Equal(t, submit.Origin{ClientID: k.ClientID(), AskOn: s.from.AskOn, Fresh: true}, s.from)
		require.Contains(t, []string{"", "email"}, s.from.AskOn)
		require.Equal(t, home, s.key.Workspace)
		q, err := approval.ParseRequest(s.got, s.key.ID)
		if err != nil {
			require.ErrorIs(t, err, approval.ErrMalformed) // the gate reports the error
			return
		}
		if string(q.RequestData) != "{}" {
			require.True(t, bytes.Contains(body, q.RequestData), "%s is not in %s", q.RequestData, body)
		}
	})
}
