package deliver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
)

// The feed says what a rule allowed despite the trifecta or secrets.
func TestFeedSaysDespite(t *testing.T) {
	r := &approval.Ruling{Reasons: []approval.Reason{
		approval.Because("table_allow", "level", "full", "capability", "channel:out"),
		approval.Because("despite", "rule", "team", "what", "trifecta"),
	}}
	require.Equal(t, " · rule team allows it despite trifecta", allowedDespite(r, "en"))
	require.Equal(t, " · la regola team lo permette nonostante trifecta", allowedDespite(r, "it"))
	require.Empty(t, allowedDespite(&approval.Ruling{Reasons: r.Reasons[:1]}, "en"))
}

// oneGrant is a revoker with one grant.
type oneGrant struct{ grant.Grant }

func (oneGrant) Given(*approval.Pending, *approval.Decision) *grant.Grant { return nil }
func (oneGrant) Revoke(context.Context, grant.Grant, approval.Person) (bool, error) {
	return false, nil
}

func (g oneGrant) Remembered(context.Context, []string) ([]grant.Grant, error) {
	return []grant.Grant{g.Grant}, nil
}

// The feed says which grant allowed a request: its sentence.
func TestFeedNamesTheGrant(t *testing.T) {
	g := grant.Grant{
		ID: "a7f3b2c1d4e5f6a7", ExpiresAt: time.Date(2027, 2, 19, 12, 0, 0, 0, time.UTC),
		Terms: approval.Terms{Form: grant.Tool, Workspace: "personal", ClientID: "ws:personal", Tool: "x_post"},
	}
	s := &session{Channel: &Channel{Interceptor: &chat.Interceptor{Revoker: oneGrant{g}}}}
	by := func(id, language string) string {
		return s.allowedBy(t.Context(), "personal", &approval.Ruling{Rule: "team", Grant: id}, language)
	}
	require.Equal(t, "Always: x_post with any arguments in personal, until 2027-02-19", by(g.ID, "en"))
	require.Equal(t, "Sempre: x_post con qualsiasi argomento in personal, fino al 2027-02-19", by(g.ID, "it"))
	require.Equal(t, "team", by("", "en"))
	require.Equal(t, "team", by("beef000000000000", "en"), "a grant that was removed since")
}

// The feed says what was allowed, and to whom. What an agent writes cannot look like more.
func TestFeedSaysWhatAndToWhom(t *testing.T) {
	tools := map[string]approval.Tool{
		"x_post":   {Name: "x_post", Summary: "{text} -> x.com/ricardo", Target: "x.com/ricardo"},
		"download": {Name: "download", Summary: "{url}", Target: "{path}", Args: map[string]approval.Argument{"path": {Type: "path"}, "url": {Type: "url"}}},
		"plain":    {Name: "plain", Target: "{to}"},
	}
	s := &session{Channel: &Channel{
		Style: func(language string) chat.Style { return chat.Style{Language: language} },
		Tool:  func(name string) (approval.Tool, bool) { tool, ok := tools[name]; return tool, ok },
	}}
	k := approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}
	for _, c := range []struct{ why, request, want string }{
		{"the target is in the summary", `"tool_name":"x_post","request_data":{"text":"Meeting at 5"}`, `x_post: "Meeting at 5" -> x.com/ricardo`},
		{"the target is not", `"tool_name":"download","request_data":{"url":"https://example.org/a","path":"/srv/a"}`, `download: example.org → /srv/a`},
		{"no summary", `"tool_name":"plain","request_data":{"to":"ann"}`, `plain: ann`},
		{"a tool that is gone", `"tool_name":"gone","request_data":{"to":"ann"}`, `gone: to: ann`},
		{"release-only", `"action_type":"exec_cmd","request_data":{"command":"ls"}`, `exec_cmd: "ls"`},
		{"release-only, in prose", `"action_type":"exec_cmd","title":"t","preview":"ls\" · team\nx"`, `exec_cmd: "ls\" · team\nx"`},
		{"nothing", `"action_type":"custom:x"`, `custom:x: (no details)`},
	} {
		rec := &approval.Record{Request: approval.Raw(`{"request_id":"` + k.ID + `",` + c.request + `}`)}
		require.Equal(t, c.want, s.feedWhat(k, rec, "en"), c.why)
	}
}
