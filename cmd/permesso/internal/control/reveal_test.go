package control

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
)

// secretToken is a made-up token that a card masks.
var secretToken = "ghp_" + strings.Repeat("aB3dE6gH9", 4)

var (
	secretKey = approval.Key{Workspace: "default", ID: "5ec7e75ec7e75ec7"}
	bobsKey   = approval.Key{Workspace: "default", ID: "b0b5b0b5b0b5b0b5"} // only bob decides it
)

// newSecretHome also has two pendings with a token, each twice.
func newSecretHome(t *testing.T) (*home.Home, *home.Keys) {
	t.Helper()
	h, k := newHome(t)
	release, err := h.Lock(t.Context())
	require.NoError(t, err)
	for key, principal := range map[approval.Key]string{secretKey: "", bobsKey: "bob"} {
		body, err := (&approval.Pending{
			Version: approval.Version, RequestID: key.ID, ShortID: key.ID[:8], ToolName: "x", SourceGroup: "default", Principal: principal,
			RequestData: approval.Raw(`{"a":"push with ` + secretToken + ` now","b":"` + secretToken + `"}`),
			Timestamp:   time.Now().UTC(), ExpiresAt: time.Now().Add(time.Hour).UTC(),
			Verb: map[string]string{}, Options: []string{}, Facts: approval.Evidence{Host: []approval.HostFact{}},
			Ruling: approval.Ruling{Reasons: []approval.Reason{}}, Proof: approval.Raw("null"),
		}).Encode()
		require.NoError(t, err)
		require.NoError(t, h.Store.Commit(t.Context(), store.Put(approval.DocPending, key, k.Seal.Seal(approval.DocPending, key, body))))
	}
	t.Cleanup(func() { require.NoError(t, release()) })
	return h, k
}

// revealed lists the entries of the log about reveals, as they are on the disk.
func revealed(t *testing.T, h *home.Home) (list []event.Entry) {
	t.Helper()
	require.NoError(t, audit.Entries(h.FS, h.Layout.Audit(), func(e event.Entry) error {
		if e.Event == event.Revealed {
			list = append(list, e)
		}
		return nil
	}))
	files, err := filepath.Glob(filepath.Join(h.Layout.Audit(), "*"))
	require.NoError(t, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(b), secretToken[8:20], "the log never holds the bytes")
	}
	return list
}

// The operator sees the token, in the daemon and without it, and the log says so.
func TestRevealIsAudited(t *testing.T) {
	h, k := newSecretHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	serve(t, files.service, httpapi.Caller{Via: "cli", Operator: true}, "1")
	remote, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	for i, c := range []*Client{files, remote} {
		w, err := c.Reveal(t.Context(), secretKey)
		require.NoError(t, err)
		require.Contains(t, string(w.Pending.RequestData), secretToken)
		require.Len(t, w.SHA256, 64)
		list := revealed(t, h)
		require.Len(t, list, i+1)
		e := list[i]
		require.Equal(t, []string{"default", secretKey.ID, home.Operator().Name, home.Operator().StableID(), "cli"},
			[]string{e.Workspace, e.RequestID, e.By, e.ByID, e.Via})
		require.Regexp(t, `^2 masks: .*github.*$`, e.Reason)
	}
}

// What the log does not have is not shown.
func TestRevealWithoutAuditShowsNothing(t *testing.T) {
	h, k := newSecretHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	files.service.Audit = func(event.Entry) error { return errors.New("disk full") }
	serve(t, files.service, httpapi.Caller{Via: "cli", Operator: true}, "1")
	remote, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	for _, c := range []*Client{files, remote} {
		w, err := c.Reveal(t.Context(), secretKey)
		require.ErrorContains(t, err, "nothing is revealed: disk full")
		require.Nil(t, w)
	}
	require.Empty(t, revealed(t, h))
}

func TestRevealRights(t *testing.T) {
	h, k := newSecretHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	s := files.service
	s.Decider.May = func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
		return "ann", ws == "default" && by.ID == "1001" && (p == nil || p.Principal == "")
	}
	var refused []approval.Person
	s.Decider.Refused = func(_ approval.Key, by approval.Person, _ string) { refused = append(refused, by) }
	socket := func(uid string) approval.Person { return approval.Person{Channel: approval.EntranceSocket, ID: uid} }
	for _, row := range []struct {
		why    string
		key    approval.Key
		caller httpapi.Caller
		reason error
	}{
		{"an approver of the workspace", secretKey, httpapi.Caller{Person: socket("1001"), Workspaces: []string{"default"}}, nil},
		{"a stranger", secretKey, httpapi.Caller{Person: socket("1009")}, decide.ErrNotAuthorized},
		{"an approver of another workspace", secretKey, httpapi.Caller{Person: socket("1002"), Workspaces: []string{"other"}}, decide.ErrNotAuthorized},
		{"a person who sees the workspace, but may not decide", secretKey, httpapi.Caller{Person: socket("1002"), Workspaces: []string{"default"}}, decide.ErrNotAuthorized},
		{"a request for another person", bobsKey, httpapi.Caller{Person: socket("1001"), Workspaces: []string{"default"}}, decide.ErrNotAuthorized},
		{"an entrance that does not show the workspace", secretKey, httpapi.Caller{Person: socket("1001"), Workspaces: []string{"other"}}, decide.ErrNotAuthorized},
		{"an operator who may not decide", secretKey, httpapi.Caller{Person: home.Operator(), Operator: true}, decide.ErrNotAuthorized},
		{"an unknown request", approval.Key{Workspace: "default", ID: "ffffffffffffffff"}, httpapi.Caller{Person: socket("1001"), Workspaces: []string{"default"}}, decide.ErrUnknown},
		{"a path", approval.Key{Workspace: "../keys", ID: secretKey.ID}, httpapi.Caller{Person: socket("1001"), Operator: true}, decide.ErrNotAuthorized},
		{"nothing is masked", about, httpapi.Caller{Person: socket("1001"), Workspaces: []string{"default"}}, decide.ErrNotApplicable},
	} {
		before := len(revealed(t, h))
		refused = nil
		w, err := s.Reveal(t.Context(), &row.caller, row.key)
		if row.reason == nil {
			require.NoError(t, err, row.why)
			list := revealed(t, h)
			require.Len(t, list, before+1)
			require.Equal(t, "ann", list[before].By)
			continue
		}
		require.ErrorIs(t, err, row.reason, row.why)
		require.Nil(t, w, row.why)
		require.Len(t, revealed(t, h), before, row.why)
		if errors.Is(row.reason, decide.ErrNotAuthorized) {
			require.Equal(t, []approval.Person{row.caller.Person}, refused, "a refusal is reported, as that of a decision")
		}
	}
}
